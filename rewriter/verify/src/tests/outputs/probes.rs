//! Probes that do not lead to the new code of their instructions.
//!
//! A program has some as `sys/sdt.h` writes them: at the beginning of a function, between accesses, and in front of a return.

use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::compiled;
use blizzard::base::options::{AccessMode, Options};
use blizzard::pipeline;
use object::{Object, ObjectSection};

const SOURCE: &str = r#"
#define PROBE(name)                                                                                                    \
    __asm__ volatile("990: nop\n"                                                                                      \
                     ".pushsection .note.stapsdt,\"\",\"note\"\n"                                                      \
                     ".balign 4\n"                                                                                     \
                     ".4byte 992f-991f, 994f-993f, 3\n"                                                                \
                     "991: .asciz \"stapsdt\"\n"                                                                       \
                     "992: .balign 4\n"                                                                                \
                     "993: .8byte 990b\n"                                                                              \
                     ".8byte probes_base\n"                                                                            \
                     ".8byte 0\n"                                                                                      \
                     ".asciz \"tests\"\n.asciz \"" name "\"\n.asciz \"8@%rdi\"\n"                                      \
                     "994: .balign 4\n"                                                                                \
                     ".popsection\n")
char probes_base;
__attribute__((noinline)) long first(long *at) {
    PROBE("begin");
    at[0] += 1;
    PROBE("between");
    return at[1];
}
__attribute__((noinline)) long none(long n) {
    PROBE("alone");
    return n * 3;
}
int main(int argc, char **argv) {
    static long words[8];
    long sum = first(words + argc) + none(argc);
    PROBE("end");
    return sum == 0;
}
"#;

/// Where each probe is, with its name.
fn probes(file: &[u8]) -> Vec<(u64, String)> {
    let elf = object::File::parse(file).expect("an ELF file");
    let data = elf.section_by_name(".note.stapsdt").expect("probes").data().expect("its bytes");
    let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes")) as usize;
    let (mut all, mut at) = (Vec::new(), 0);
    while at < data.len() {
        let contents = &data[at + 20..at + 20 + word(at + 4)];
        let name = contents[24..].split(|b| *b == 0).nth(1).expect("a name");
        let address = u64::from_le_bytes(contents[..8].try_into().expect("eight bytes"));
        all.push((address, String::from_utf8_lossy(name).into_owned()));
        at += (20 + contents.len()).next_multiple_of(4);
    }
    all
}

#[test]
fn finds_probes_that_lead_elsewhere() {
    let original = compiled("cc", "p.c", SOURCE, &["-O1"]);
    let were = probes(&original);
    let names: Vec<&str> = were.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["begin", "between", "alone", "end"]);
    for access in [AccessMode::Tests, AccessMode::Guard] {
        let output =
            pipeline::rewrite(&original, "p", &Options { access, ..Options::default() }).expect("rewrite").bytes;
        let audit = verify_with(&output, "p", Some(&original)).expect("audit runs");
        assert!(audit.is_clean(), "{access:?}: {audit}");
        let are = probes(&output);
        // Functions that access no memory have one version.
        let twice = are.iter().filter(|(_, name)| name == "between").count();
        assert_eq!(twice, if access == AccessMode::Guard { 2 } else { 1 }, "{are:?}");
        assert_eq!(are.iter().filter(|(_, name)| name == "alone").count(), 1, "{are:?}");
        let notes = object::File::parse(&*output).expect("an ELF file");
        let notes = notes.section_by_name(".note.stapsdt").expect("probes").file_range().expect("its place");
        let reasons = |at: usize, byte: u8, original: Option<&[u8]>| {
            let mut file = output.clone();
            file[notes.0 as usize + at] = byte;
            verify_with(&file, "p", original).map_or_else(|e| e.to_string(), |audit| audit.to_string())
        };
        // Each byte of each note counts, but for the padding behind it.
        for at in (0..notes.1 as usize).step_by(3) {
            let is = output[notes.0 as usize + at];
            let found = reasons(at, is ^ 1, Some(&original));
            let padding = is == 0 && output[notes.0 as usize + at - 1] == 0;
            assert!(found.contains("a probe ") || padding, "{access:?}: byte {at}: {found}");
        }
        // At its old address, also without the original.
        let mut file = output.clone();
        let at = notes.0 as usize + 20;
        file[at..at + 8].copy_from_slice(&were[0].0.to_le_bytes());
        let found = verify_with(&file, "p", None).expect("audit runs").to_string();
        assert!(found.contains("a probe is where its instruction was"), "{found}");
    }
}
