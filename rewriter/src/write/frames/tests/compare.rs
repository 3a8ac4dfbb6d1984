//! A file's frames and their rewritten form: at every instruction, what unwinders and personality routines see is the same.

use crate::base::addresses::Vaddr;
use crate::read::eh_frame::{FrameInput, Section};
use crate::read::frames::parse;
use crate::write::frames::build::{NewFrames, build};
use crate::write::frames::pieces::CodeMap;
use crate::write::frames::tests::maps::{self, Map, Rule};
use crate::write::frames::tests::oracle::{self, Action, Row, Table, Verdict};
use gimli::Pointer;
use object::{Object, ObjectSection};
use std::path::Path;

impl NewFrames {
    /// Address behind the last section.
    pub fn end(&self) -> Vaddr {
        let all = [&self.eh_frame_hdr(), &self.eh_frame, &self.gcc_except_table];
        all.iter().map(|(at, bytes)| *at + bytes.len() as u64).max().expect("three sections")
    }

    /// Where the search table stands, and its bytes, with no other frames.
    pub fn eh_frame_hdr(&self) -> (Vaddr, Vec<u8>) {
        let table = self.search_table.write(self.eh_frame.0, &[]).expect("all within reach");
        assert_eq!(table.len(), self.search_table.bytes());
        (self.search_table.at, table)
    }
}

/// A file of this machine, as the frames code sees it.
pub struct File {
    pub bytes: Vec<u8>,
}

impl File {
    pub fn open(path: impl AsRef<Path>) -> Option<File> {
        Some(File { bytes: std::fs::read(path).ok()? })
    }

    /// Runs `f` over the file's frames.
    pub fn with<T>(&self, f: impl FnOnce(&FrameInput, &object::File) -> T) -> T {
        let elf = object::File::parse(&*self.bytes).expect("an ELF file");
        let sections: Vec<(u64, &[u8])> =
            elf.sections().filter(|s| s.address() != 0).filter_map(|s| Some((s.address(), s.data().ok()?))).collect();
        let tail = |a: Vaddr| {
            let (at, data) = sections.iter().find(|(at, d)| *at <= a.0 && a.0 < at + d.len() as u64)?;
            Some(&data[(a.0 - at) as usize..])
        };
        let section = |name| elf.section_by_name(name);
        let eh_frame = section(".eh_frame").expect("frames");
        let input = FrameInput {
            eh_frame: Section { at: Vaddr(eh_frame.address()), bytes: eh_frame.data().expect("frames") },
            tail: &tail,
            text: section(".text").map(|s| Vaddr(s.address())),
            got: section(".got").map(|s| Vaddr(s.address())),
        };
        f(&input, &elf)
    }
}

pub const NEW_CODE: u64 = 0x4000_0000;
pub const NEW_TABLES: u64 = 0x5000_0000;

/// How many things a comparison compared.
#[derive(Debug, Default)]
pub struct Compared {
    pub instructions: usize,
    pub landings: usize,
    pub catches: usize,
    pub specifications: usize,
    pub plt: usize,
    pub split: usize,
    pub signal: usize,
    pub lowered: usize,
}

/// Rewrites the file's frames by `rule` and compares, at every instruction, what unwinders and personalities see.
pub fn compare(file: &File, rule: Rule) -> Compared {
    file.with(|input, _| {
        let info = parse(input).expect("readable");
        let code = maps::instructions(input, &info);
        let mut map = Map::new(&code, NEW_CODE, &rule);
        if matches!(rule, Rule::Stretch) {
            map.spill();
        }
        let frames = build(input, &[&map], &[], 0, Vaddr(NEW_TABLES)).expect("buildable");
        let mut compared = Compared { split: frames.report.split, ..Compared::default() };

        let old_bases = input.bases();
        let new_bases = gimli::BaseAddresses::default().set_eh_frame(frames.eh_frame.0.0);
        let backed = |from: u64, to: u64| (input.tail)(Vaddr(from)).is_some_and(|b| b.len() as u64 >= to - from);
        let old = Table::read(input.eh_frame.bytes, &old_bases, backed);
        let new = Table::read(&frames.eh_frame.1, &new_bases, |_, _| true);
        let hdr = frames.eh_frame_hdr();
        let entries = oracle::check_header((hdr.0.0, &hdr.1), (frames.eh_frame.0.0, &frames.eh_frame.1));
        assert_eq!(entries, frames.report.fdes_written);
        assert_eq!(frames.eh_frame.1.last_chunk(), Some(&[0u8; 4]), "the terminator");

        let lsdas = &frames.gcc_except_table;
        let memory = |a: u64| match a.checked_sub(lsdas.0.0).and_then(|o| lsdas.1.get(o as usize..)) {
            Some(bytes) => bytes,
            None => (input.tail)(Vaddr(a)).expect("data"),
        };
        let mut verdicts = Verdicts { memory: &memory, old: None, new: None };
        for &(at, begin, end) in &map.places {
            let Some((old_row, old_context)) = old.at(at) else { continue };
            compared.instructions += 1;
            let meant = if is_plt(old_row) { plt_row(old_row, at) } else { old_row.clone() };
            compared.plt += usize::from(is_plt(old_row));
            let points = if !map.moves.is_empty() && Map::spills(at) {
                compared.lowered += 1;
                maps::SPILL.iter().copied().zip([begin, begin + 1, end - 1]).collect()
            } else {
                vec![(0, begin), (0, end - 1)]
            };
            for (lower_by, new_at) in points {
                let Some((row, context)) = new.at(new_at) else {
                    panic!("no row at {new_at:#x} for {at:#x}");
                };
                assert_eq!(*row, lowered(&meant, lower_by), "{at:#x} {new_at:#x}");
                if old_context.signal {
                    // A signal handler returns to the old address.
                    assert_eq!(new.at(at).map(|(row, context)| (row, context.signal)), Some((old_row, true)));
                    compared.signal += 1;
                }
                // A routine that has moved is named at its new place.
                let meant = old_context.personality.map(|p| match p {
                    Pointer::Direct(va) => {
                        let moved = map.places.binary_search_by_key(&va, |place| place.0);
                        Pointer::Direct(moved.map_or(va, |k| map.places[k].1))
                    }
                    slot => slot,
                });
                assert_eq!(context.personality, meant, "{at:#x}");
                assert_eq!(context.signal, old_context.signal, "{at:#x}");
                assert_eq!(context.lsda.is_some(), old_context.lsda.is_some(), "{at:#x}");
                let (Some(old_lsda), Some(new_lsda)) = (old_context.lsda, context.lsda) else { continue };
                let was = verdicts.at((old_lsda, old_context.function), at, true);
                let is = verdicts.at((new_lsda, context.function), new_at, false);
                compare_verdicts(was, is, &map, &mut compared);
            }
        }
        compared
    })
}

/// The LSDAs read last: neighbouring instructions share them.
pub struct Verdicts<'a> {
    memory: &'a dyn Fn(u64) -> &'a [u8],
    old: Option<((u64, u64), oracle::Lsda<'a>)>,
    new: Option<((u64, u64), oracle::Lsda<'a>)>,
}

impl Verdicts<'_> {
    pub fn at(&mut self, key: (u64, u64), address: u64, old: bool) -> Verdict {
        let slot = if old { &mut self.old } else { &mut self.new };
        if slot.as_ref().is_none_or(|s| s.0 != key) {
            *slot = Some((key, oracle::Lsda::read(key.0, key.1, self.memory)));
        }
        slot.as_ref().expect("just set").1.verdict(address)
    }
}

pub fn compare_verdicts(was: Verdict, is: Verdict, map: &Map, compared: &mut Compared) {
    let Verdict::Lands { pad, actions } = was else { return assert_eq!(was, is) };
    let expected = map.begin(Vaddr(pad)).expect("a relocated pad").0;
    for action in &actions {
        match action {
            Action::Catch(_) => compared.catches += 1,
            Action::Specification(_) => compared.specifications += 1,
            Action::Cleanup => {}
        }
    }
    compared.landings += 1;
    assert_eq!(Verdict::Lands { pad: expected, actions }, is);
}

/// The row of inserted code that lowered rsp: other where its rules depend on rsp.
pub fn lowered(row: &Row, lower_by: u32) -> Row {
    let offset = row.cfa.strip_prefix("RegisterAndOffset { register: Register(7), offset: ");
    let cfa = match offset.and_then(|o| o.strip_suffix(" }")) {
        Some(offset) => rsp_plus(offset.parse::<i64>().expect("an offset") + i64::from(lower_by)),
        None => lowered_expression(&row.cfa, lower_by),
    };
    let registers = row.registers.iter().map(|(r, rule)| (*r, lowered_expression(rule, lower_by))).collect();
    Row { cfa, registers, ..row.clone() }
}

/// Adds to each `DW_OP_breg7` (0x77) that begins an expression; those of the tests have one there or none.
pub fn lowered_expression(rule: &str, lower_by: u32) -> String {
    // What is copied stays as it is, also where its numbers are longer than they need be.
    let Some((before, rest)) = rule.split_once("[77, ").filter(|_| lower_by != 0) else { return rule.to_owned() };
    let bytes: Vec<u8> =
        rest.trim_end_matches(']').split(", ").map(|b| u8::from_str_radix(b, 16).expect("a byte")).collect();
    let used = bytes.iter().position(|b| b & 0x80 == 0).expect("an end") + 1;
    let offset = gimli::leb128::read::signed(&mut gimli::EndianSlice::new(&bytes[..used], gimli::LittleEndian));
    let mut offset = offset.expect("an offset") + i64::from(lower_by);
    let mut out = vec![0x77];
    loop {
        let byte = (offset & 0x7f) as u8;
        offset >>= 7;
        let last = offset == 0 && byte & 0x40 == 0 || offset == -1 && byte & 0x40 != 0;
        out.push(if last { byte } else { byte | 0x80 });
        if last {
            break;
        }
    }
    out.extend(&bytes[used..]);
    format!("{before}{out:x?}")
}

pub fn rsp_plus(offset: i64) -> String {
    format!("{:?}", gimli::CfaRule::<usize>::RegisterAndOffset { register: gimli::Register(7), offset })
}

/// Whether the CFA is the PLT's expression.
pub fn is_plt(row: &Row) -> bool {
    row.cfa.starts_with("[77, 8, 80, 0, 3f, 1a, ")
}

/// The row that the PLT's expression means at `at`.
pub fn plt_row(old: &Row, at: u64) -> Row {
    let threshold = u64::from_str_radix(&old.cfa[23..25], 16).expect("a literal") - 0x30;
    let offset = if at & 15 >= threshold { 16 } else { 8 };
    Row { cfa: rsp_plus(offset), ..old.clone() }
}

/// Compiles `source` and opens the result.
pub fn compile(compiler: &str, arguments: &[&str], source: &str) -> File {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/write/frames/tests").join(source);
    let done = std::process::Command::new(compiler).args(arguments).arg("-o").arg(&out).arg(source).output();
    let done = done.expect("the compiler starts");
    assert!(done.status.success(), "{compiler} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    File::open(out).expect("the compiler has written it")
}
