//! Real libraries with constants in their code sections: what code reads there keeps its bytes.
//!
//! Hand-written cryptography keeps its tables between its functions, where they may read as instructions. Every read of a
//! constant address, and every address that is put into a register and loaded through before anything else, must find
//! the input's bytes in the output.

use blizzard::base::addresses::Vaddr;
use blizzard::base::options::Options;
use blizzard::decode::insn::InsnId;
use blizzard::pipeline::{Analysed, analyse, rewrite_library};
use blizzard_test_harness::needs;
use iced_x86::{Instruction, Mnemonic, OpKind};

blizzard_test_harness::module! {
    what_code_reads_from_code_sections_keeps_its_bytes: [
    "libcrypto.so.3",
    "libgcrypt.so.20",
    "libgnutls.so.30",
    "libnettle.so.8",
    "libfreeblpriv3.so",
    ],
    a_function_of_zeros_does_not_take_the_square_of_its_size,
}

const FOLDER: &str = "/usr/lib/x86_64-linux-gnu";
/// Libraries and their Debian packages.
const LIBRARIES: [(&str, &str); 5] = [
    ("libcrypto.so.3", "libssl3"),
    ("libgcrypt.so.20", "libgcrypt20"),
    ("libgnutls.so.30", "libgnutls30"),
    ("libnettle.so.8", "libnettle8"),
    ("libfreeblpriv3.so", "libnss3"),
];

/// Address and length of what `insn` surely reads from a code section; `next` is the instruction behind it.
fn surely_read(analysed: &Analysed, insn: &Instruction, next: Option<&Instruction>) -> Option<(Vaddr, usize)> {
    if !insn.is_ip_rel_memory_operand() {
        return None;
    }
    let at = Vaddr(insn.ip_rel_memory_address());
    analysed.image.exec_at(at)?;
    if insn.mnemonic() != Mnemonic::Lea {
        return Some((at, insn.memory_size().size()));
    }
    let next = next?;
    let through = next.memory_base() == insn.op0_register() && next.mnemonic() != Mnemonic::Lea;
    let memory = (0..next.op_count()).any(|op| next.op_kind(op) == OpKind::Memory);
    let plain = next.memory_index() == iced_x86::Register::None;
    (through && memory && plain).then(|| (at + next.memory_displacement64(), next.memory_size().size()))
}

fn what_code_reads_from_code_sections_keeps_its_bytes(name: &str) {
    let (_, package) = LIBRARIES.iter().find(|(library, _)| *library == name).unwrap();
    let input = std::fs::read(needs::need_file(format!("{FOLDER}/{name}"), package)).unwrap();
    let output = rewrite_library(&input, name, &Options::default()).unwrap_or_else(|e| panic!("{e}")).bytes;
    let analysed = analyse(&input, name).unwrap_or_else(|e| panic!("{e}"));
    let decode = |i: usize| analysed.insns.decode(&analysed.image, InsnId(i as u32));
    let count = analysed.insns.len();
    let mut reads = 0;
    for i in 0..count {
        let insn = decode(i);
        let next = (i + 1 < count).then(|| decode(i + 1));
        let Some((at, bytes)) = surely_read(&analysed, &insn, next.as_ref()) else { continue };
        let Some(off) = analysed.image.offset_of(at) else { continue };
        let range = off.0 as usize..off.0 as usize + bytes;
        assert_eq!(input[range.clone()], output[range], "{name}: {:#x} reads {at}", insn.ip());
        reads += 1;
    }
    assert!(reads > 0, "no constants were found");
}

fn a_function_of_zeros_does_not_take_the_square_of_its_size() {
    // A megabyte of `add [rax], al` in one block: each access looked through all those in front of it, for more than a hundred seconds.
    let folder = tempfile::tempdir().unwrap();
    let (file, library) = (folder.path().join("a.s"), folder.path().join("a.so"));
    let source = ".globl f\n.type f, @function\nf: .cfi_startproc\n.zero 1000000\nret\n.cfi_endproc\n.size f, . - f\n";
    std::fs::write(&file, source).unwrap();
    let status = std::process::Command::new("cc")
        .args(["-shared", "-nostdlib", "-o"])
        .arg(&library)
        .arg(&file)
        .status()
        .unwrap();
    assert!(status.success());
    let input = std::fs::read(&library).unwrap();
    let before = processor_seconds();
    let output = rewrite_library(&input, "zeros", &Options::default()).unwrap();
    let took = processor_seconds() - before;
    assert_eq!(output.report.instructions, 500_001);
    assert!(took < 60.0, "{took} s");
}

/// What this thread has computed. The time that passes meanwhile says nothing on a machine that others use or that stands still.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_ascii_whitespace().collect();
    // User and system time, the fields 14 and 15 of proc(5), in hundredths of a second; the third is the first behind the name.
    let ticks = |number: usize| fields[number - 3].parse::<f64>().unwrap();
    (ticks(14) + ticks(15)) / 100.0
}
