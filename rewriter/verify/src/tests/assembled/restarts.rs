//! The restart table of modules that are assembled by hand, and faults in it.

use crate::decode::decoder;
use crate::file::module::Module;
use crate::sites::{find, site};
use crate::tests::fixtures::samples::load;
use blizzard_contract::ModuleInfo;
use blizzard_contract::module_flags;
use blizzard_contract::restarts::{GROUP, Restart, encode};
use object::{Object, ObjectSection};

/// Changes the rows of a table that would be right.
pub type Change = fn(&mut Vec<Restart>);

/// Fills the table in: the rows that belong to the checks that are recognised, changed.
pub fn fill(mut file: Vec<u8>, change: Change) -> Vec<u8> {
    let place = |name: &str| {
        let elf = object::File::parse(&*file).expect("an ELF file");
        let section = elf.section_by_name(name).expect("the section");
        (section.address(), section.file_range().expect("in the file"))
    };
    let (table_va, (table_at, table_bytes)) = place(".blizzard.restarts");
    let (_, (info_at, _)) = place(".blizzard.info");
    let mut rows = rows(&file);
    change(&mut rows);
    assert!(rows.len() <= GROUP, "one group");
    let (mut codes, mut before) = (Vec::new(), None);
    for &row in &rows {
        let (code, bytes) = encode(before, row);
        codes.extend(&code[..bytes]);
        before = Some(row);
    }
    let heads = codes.len().next_multiple_of(4);
    assert!(heads + 8 <= table_bytes as usize);
    let mut put = |at: u64, bytes: &[u8]| file[at as usize..][..bytes.len()].copy_from_slice(bytes);
    put(table_at, &codes);
    if let Some(first) = rows.first() {
        put(table_at + heads as u64, &first.check.to_le_bytes());
    }
    // Behind them in the module info are the words of guarded code.
    const BEHIND: usize = 9;
    let words = [table_va, codes.len() as u64, table_va + heads as u64, rows.len() as u64];
    for (k, word) in words.iter().enumerate() {
        put(info_at + 8 * (ModuleInfo::WORDS - BEHIND - words.len() + k) as u64, &word.to_le_bytes());
    }
    file
}

fn rows(file: &[u8]) -> Vec<Restart> {
    let m = Module::read(file, "module").expect("a module");
    let text = decoder::decode(m.text.data, m.text.va, &m.functions.iter().map(|f| f.0).collect::<Vec<_>>());
    let cold = decoder::decode(m.cold.data, m.cold.va, &[]);
    let rodata = |va| m.bytes_at(va, 16).and_then(|b| b.try_into().ok());
    let cx = site::Context {
        text: &text,
        cold: &cold,
        check_loads: m.info.flags & module_flags::CHECK_LOADS != 0,
        check_stores: m.info.flags & module_flags::CHECK_STORES != 0,
        polls: m.info.flags & module_flags::POLLS != 0,
        guard: false,
        rodata: &rodata,
    };
    let offset = |k: usize| Some((text.insns.get(k)?.va - m.info.new_base_va) as u32);
    let found = find::find(&cx);
    let guarded = found.list.iter().filter(|s| s.kind.is_about_access());
    guarded.filter_map(|s| Some(Restart { check: offset(s.start)?, access: offset(s.access)? })).collect()
}

#[test]
fn finds_faults_in_restarts() {
    let not_led = "whoever continues at this access is not led back to its check";
    let elsewhere = "which is not where a check of it begins";
    let cases: [(Change, &str); 6] = [
        (|rows| rows.clear(), not_led),
        (|rows| rows[0].check += 1, elsewhere),
        (|rows| rows[0].check -= 1, elsewhere),
        (|rows| rows[0].access += 1, not_led),
        (|rows| rows[0].access -= 1, elsewhere),
        (
            |rows| {
                let row = rows[0];
                rows.push(Restart { check: row.access + 1, access: row.access + 2 });
            },
            elsewhere,
        ),
    ];
    for (k, (change, words)) in cases.into_iter().enumerate() {
        let mut program = load();
        program.accepted();
        program.restarts = change;
        eprintln!("case {k}");
        program.found(words);
    }
}
