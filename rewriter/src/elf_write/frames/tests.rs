//! Tests over real files and over damaged ones.

use super::*;
use object::{Object, ObjectSection};

/// A file of this machine, as the frames code sees it.
struct File {
    bytes: Vec<u8>,
}

impl File {
    fn open(path: &str) -> Option<File> {
        Some(File { bytes: std::fs::read(path).ok()? })
    }

    /// Runs `f` over the file's frames.
    fn with<T>(&self, f: impl FnOnce(&Input, &object::File) -> T) -> T {
        let elf = object::File::parse(&*self.bytes).expect("an ELF file");
        let sections: Vec<(u64, &[u8])> =
            elf.sections().filter(|s| s.address() != 0).filter_map(|s| Some((s.address(), s.data().ok()?))).collect();
        let tail = |a: Vaddr| {
            let (at, data) = sections.iter().find(|(at, d)| *at <= a.0 && a.0 < at + d.len() as u64)?;
            Some(&data[(a.0 - at) as usize..])
        };
        let section = |name| elf.section_by_name(name);
        let eh_frame = section(".eh_frame").expect("frames");
        let input = Input {
            eh_frame: Section { at: Vaddr(eh_frame.address()), bytes: eh_frame.data().expect("frames") },
            tail: &tail,
            text: section(".text").map(|s| Vaddr(s.address())),
            got: section(".got").map(|s| Vaddr(s.address())),
        };
        f(&input, &elf)
    }
}

#[test]
fn landing_pads_of_an_installed_cpp_library_are_instructions_of_its_text() {
    let Some(file) = File::open("/usr/lib/x86_64-linux-gnu/libstdc++.so.6") else { return };
    file.with(|input, elf| {
        let info = parse(input).expect("readable");
        let text = elf.section_by_name(".text").expect("text");
        let range = text.address()..text.address() + text.size();
        assert!(info.fdes.len() > 4000, "{}", info.fdes.len());
        let pads = info.landing_pads();
        assert!(pads.len() > 1000, "{}", pads.len());
        assert!(pads.iter().all(|p| range.contains(&p.0)));
        assert!(info.fdes.iter().all(|f| f.lsda.is_none() || f.personality.is_some()));
    });
}
