//! Damaged tables: an error or a table that can be read, never a panic and never more work or memory than the input's size
//! warrants.

use crate::base::addresses::Vaddr;
use crate::read::eh_frame::{FrameInput, Section};
use crate::read::frames::parse;
use crate::write::frames::build::build;
use crate::write::frames::tests::compare::{File, NEW_CODE, NEW_TABLES, compile};
use crate::write::frames::tests::maps::{Map, Rule, instructions, xorshift};
use crate::write::frames::tests::oracle;
use object::{Object, ObjectSection};

/// The parts of a small program that frames code reads, free to be damaged.
struct Parts {
    sections: Vec<(u64, Vec<u8>)>,
    eh_frame: usize,
    table: usize,
    map: Map,
}

impl Parts {
    fn of(file: &File) -> Parts {
        file.with(|input, elf| {
            let map = Map::new(&instructions(input, &parse(input).expect("readable")), NEW_CODE, &Rule::Stretch);
            let all: Vec<_> = elf.sections().filter(|s| s.address() != 0).collect();
            let index = |name: &str| all.iter().position(|s| s.name() == Ok(name)).expect("the section");
            Parts {
                eh_frame: index(".eh_frame"),
                table: index(".gcc_except_table"),
                sections: all.iter().map(|s| (s.address(), s.data().unwrap_or_default().to_vec())).collect(),
                map,
            }
        })
    }

    /// Reads and builds; whether both worked.
    fn run(&self, eh_frame_bytes: usize, in_order: Option<bool>) -> bool {
        let tail = |a: Vaddr| {
            let (at, data) = self.sections.iter().find(|(at, d)| *at <= a.0 && a.0 < at + d.len() as u64)?;
            Some(&data[(a.0 - at) as usize..])
        };
        let (at, eh_frame) = &self.sections[self.eh_frame];
        let input = FrameInput {
            eh_frame: Section { at: Vaddr(*at), bytes: &eh_frame[..eh_frame_bytes] },
            tail: &tail,
            text: None,
            got: Some(Vaddr(0x1000)),
        };
        let parsed = parse(&input);
        let map = Map { places: self.map.places.clone(), moves: self.map.moves.clone(), in_order };
        let built = build(&input, &[&map], &[], 0, Vaddr(NEW_TABLES));
        if let Ok(frames) = &built {
            assert!(parsed.is_ok(), "built, but could not be listed");
            let size: usize = self.sections.iter().map(|s| s.1.len()).sum();
            assert!(frames.end().0 - NEW_TABLES < 16 * size as u64, "{:?}", frames.report);
            if frames.report.fdes_written > 0 {
                let (hdr, eh_frame) = (&frames.eh_frame_hdr(), &frames.eh_frame);
                oracle::check_header((hdr.0.0, &hdr.1), (eh_frame.0.0, &eh_frame.1));
            }
        }
        built.is_ok()
    }
}

#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn damaged_tables_are_errors() {
    let file = compile("g++", &["-w", "-O1", "-std=c++14"], "throws.cpp");
    let mut parts = Parts::of(&file);
    let whole = parts.sections[parts.eh_frame].1.len();
    assert!(parts.run(whole, None));
    for length in 0..whole {
        parts.run(length, None);
    }
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let (mut good, mut bad) = (0, 0);
    for round in 0..20_000 {
        let section = if round % 2 == 0 { parts.eh_frame } else { parts.table };
        let before = parts.sections[section].1.clone();
        for _ in 0..1 + xorshift(&mut state) % 4 {
            let at = xorshift(&mut state) as usize % before.len();
            let interesting = [0, 1, 0x7f, 0x80, 0xff, xorshift(&mut state) as u8];
            parts.sections[section].1[at] = interesting[xorshift(&mut state) as usize % interesting.len()];
        }
        // Also with a map whose claim of order the damaged ranges do not keep.
        let ok = parts.run(whole, [None, Some(true), Some(false)][round % 3]);
        *(if ok { &mut good } else { &mut bad }) += 1;
        parts.sections[section].1 = before;
    }
    assert!(good > 1000 && bad > 1000, "{good} {bad}");
}

#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn random_bytes_are_errors() {
    let file = compile("g++", &["-w", "-O1", "-std=c++14"], "throws.cpp");
    let mut parts = Parts::of(&file);
    let whole = parts.sections[parts.eh_frame].1.len();
    let mut state = 0x2545_f491_4f6c_dd1d;
    for _ in 0..2000 {
        let (from, bytes) = (xorshift(&mut state) as usize % whole, xorshift(&mut state) as usize % whole);
        let before = parts.sections[parts.eh_frame].1.clone();
        for byte in parts.sections[parts.eh_frame].1.iter_mut().skip(from).take(bytes) {
            *byte = xorshift(&mut state) as u8;
        }
        parts.run(whole, None);
        parts.sections[parts.eh_frame].1 = before;
    }
}

#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn a_refusal_names_the_record_and_the_reason() {
    let file = compile("g++", &["-w", "-O1", "-std=c++14"], "throws.cpp");
    let mut parts = Parts::of(&file);
    let (at, eh_frame) = &mut parts.sections[parts.eh_frame];
    // The first CIE's augmentation becomes gcc 2's.
    let string = eh_frame.windows(3).position(|w| w == b"zR\0").expect("an augmentation");
    eh_frame[string..string + 2].copy_from_slice(b"eh");
    let record = eh_frame.windows(4).position(|w| w == [0x1c, 0, 0, 0]).expect("an FDE");
    let record = *at + record as u64;
    let input =
        FrameInput { eh_frame: Section { at: Vaddr(*at), bytes: eh_frame }, tail: &|_| None, text: None, got: None };
    let error = parse(&input).expect_err("an unknown augmentation");
    assert!(!error.refusals.is_empty(), "{error}");
    assert!(error.refusals.iter().all(|r| r.place.starts_with(".eh_frame+") && r.reason.contains("augmentation")));
    assert!(error.refusals[0].at.0 <= record, "{error}");
}
