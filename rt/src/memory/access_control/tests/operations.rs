//! The basic operations on each kind of access control.

use crate::kernel::sys::{self, Errno};
use crate::memory::access_control::interface::{AccessControl, Fault};
use crate::memory::access_control::program;
use crate::memory::access_control::tag_tests::TagTests;
use crate::memory::access_control::tests::aliased::Aliased;
use crate::memory::partition::{BlockSize, Partition};
use crate::memory::segment::{GUARD_BYTES, InvalidTags};
use crate::memory::tags::Space;
use crate::system_calls::table::calls::row;
use crate::system_calls::table::copies::{CallCopies, Given};
use crate::system_calls::table::memory::kernel_arguments;
use crate::system_calls::table::visitor::Shared;
use blizzard_contract::{
    BLOCK_BYTES, BLOCK_SHIFT, CONTEXT_SHARED, SEGMENT_BASE, SEGMENT_WINDOW_BYTES, TAG_INVALID, TAG_TABLE_BASE,
};
use blizzard_protocol::ids::Block;
use blizzard_protocol::tag::Tag;

const PAGE: u64 = 4096;
/// As many as have a page of tags.
const BYTES: u64 = PAGE << BLOCK_SHIFT;
/// Parts of the window that no other test uses.
const BASES: [u64; 2] = [SEGMENT_BASE + (1 << 36), SEGMENT_BASE + (1 << 37)];
/// From the program's addresses to a place outside the window.
const DISTANCE: u64 = 1 << 42;

/// Memory as the program has it, all Invalid, with the tag test and the rights of its addresses.
struct Program<C> {
    control: C,
    base: u64,
    /// An access whose tag forbids it faults without a test.
    faults: bool,
}

impl<C: AccessControl> Program<C> {
    fn start(base: u64, faults: bool, of: impl FnOnce(u64) -> C) -> Program<C> {
        let fd = sys::memfd(c"blizzard-test-tags").unwrap();
        sys::write(fd, &[TAG_INVALID; PAGE as usize]).unwrap();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: memory of the test's own at addresses that nothing else uses.
        let control = unsafe {
            let tags = sys::mmap(0, PAGE, libc::PROT_READ, flags, -1, 0).unwrap();
            let control = of(tags);
            control.map("test's memory", base, BYTES).unwrap();
            assert!(control.allows(base, true) && control.allows(base + BYTES - 1, false));
            let error = control.map("test's memory", base, BYTES).unwrap_err().to_string();
            assert!(error.contains("File exists"), "{error}");
            control.invalidate(base, BYTES, InvalidTags { fd, offset: 0, bytes: PAGE }).unwrap();
            control
        };
        sys::close(fd).unwrap();
        Program { control, base, faults }
    }

    /// What an access without a test finds.
    fn load(&self, addr: u64) -> sys::Result<u64> {
        let mut bytes = [0; 8];
        sys::read_own_memory(addr, &mut bytes).map(|()| u64::from_ne_bytes(bytes))
    }

    fn store(&self, addr: u64, value: u64) -> sys::Result<()> {
        // SAFETY: memory of the test's own.
        unsafe { sys::write_own_memory(addr, &value.to_ne_bytes()) }
    }

    fn space(&self) -> Space<C> {
        // SAFETY: of all its addresses, only those that are mapped are used.
        unsafe { Space::of(self.control, SEGMENT_WINDOW_BYTES / 2) }
    }

    fn may(&self, access: sys::Result<()>, allowed: bool) {
        let expected = if allowed || !self.faults { Ok(()) } else { Err(Errno(libc::EFAULT)) };
        assert_eq!(access, expected);
    }

    /// Tags decide, for tests and for the memory itself; runtime and kernel are never kept out.
    fn check(&self) {
        let Program { control, base, .. } = *self;
        let (space, block) = (self.space(), Block::of(base + PAGE + 128));
        let addr = block.addr();
        for (number, (tag, load, store)) in [
            (Tag::Invalid, false, false),
            (Tag::Writable, true, true),
            (Tag::ReadOnly, true, false),
            (Tag::Busy, false, false),
            (Tag::Writable, true, true),
        ]
        .into_iter()
        .enumerate()
        {
            // The whole page, so that rights of pages can tell.
            control.set_tags(base + PAGE, PAGE, tag);
            assert_eq!((control.tag(addr), space.tag(block)), (Some(tag), Some(tag)));
            assert_eq!([false, true].map(|store| space.allows(block, store)), [load, store]);
            let data = [number as u64 + 7; 8];
            space.write(block, &data);
            assert_eq!(space.read(block), data);
            // SAFETY: a word of the block.
            assert_eq!(unsafe { space.runtime_address(addr + 8).cast::<u64>().read() }, data[1]);
            assert_eq!(self.load(control.kernel_address(addr)), Ok(data[0]));
            assert_eq!(self.store(control.kernel_address(addr), 5), Ok(()));
            self.may(self.load(addr).map(|word| assert_eq!(word, 5)), load);
            self.may(self.store(addr, 6), store);
            assert_eq!(space.read(block)[0], if store || !self.faults { 6 } else { 5 });
        }
        assert_eq!(control.tag(base + PAGE - 1), Some(Tag::Invalid));
        assert_eq!(control.tag(base + 2 * PAGE), Some(Tag::Invalid));
        self.check_neighbours(addr);
        self.check_addresses();
        self.check_zeros(addr);
    }

    /// A block has its own tag; a page has the least rights of its blocks.
    fn check_neighbours(&self, addr: u64) {
        let space = self.space().with_partition(Partition::uniform(BlockSize::new(128).unwrap()));
        space.set_tag(Block::of(addr), Tag::Invalid);
        let allowed = [addr - 1, addr, addr + 127, addr + 128].map(|at| self.control.allows(at, true));
        assert_eq!(allowed, [true, false, false, true]);
        self.may(self.load(addr - 8).map(drop), false);
        self.may(self.load(addr + 256).map(drop), false);
    }

    fn check_addresses(&self) {
        let Program { control, base, faults } = *self;
        for at in [base, base + 5, base + BYTES - 1] {
            assert_eq!(control.program_address(control.runtime_address(at)), at);
            assert_eq!(control.runtime_address(at) - control.runtime_address(base), at - base);
            let meaning = if faults { Fault::NotTested } else { Fault::Unused };
            assert_eq!(control.meaning_of_fault(at), meaning);
        }
        let private = &raw const faults as u64;
        assert_eq!(control.program_address(private), private);
        for (at, meaning) in [
            (private, Fault::NotOurs),
            (0, Fault::NotOurs),
            (base - 1, Fault::Unused),
            (base + BYTES, Fault::Unused),
            (SEGMENT_BASE - GUARD_BYTES, Fault::Unused),
            (SEGMENT_BASE - GUARD_BYTES - 1, Fault::NotOurs),
            (SEGMENT_BASE + SEGMENT_WINDOW_BYTES, Fault::NotOurs),
            (CONTEXT_SHARED, Fault::Unused),
            (TAG_TABLE_BASE, Fault::TagTable),
            (TAG_TABLE_BASE + (base >> BLOCK_SHIFT), Fault::TagTable),
        ] {
            assert_eq!(control.meaning_of_fault(at), meaning, "{at:#x}");
        }
        // `write`: a descriptor, a pointer, a number; `mmap`: no pointer that is followed.
        let of = |addr| if program::in_segment(addr) { control.kernel_address(addr) } else { addr };
        let given = |nr, args| {
            let mut copies = CallCopies::EMPTY;
            let given = Given { copies: &mut copies, address: &of };
            // SAFETY: the call leads to no structures.
            unsafe { kernel_arguments(row(nr), nr, &args, Shared::Segment, given) }.unwrap()
        };
        let there = control.kernel_address(base);
        assert_eq!(given(libc::SYS_write, [base, base, base, 0, 0, 0]), [base, there, base, 0, 0, 0]);
        assert_eq!(given(libc::SYS_write, [1, private, 8, 0, 0, 0]), [1, private, 8, 0, 0, 0]);
        assert_eq!(given(libc::SYS_mmap, [base; 6]), [base; 6]);
    }

    fn check_zeros(&self, addr: u64) {
        let Program { control, base, .. } = *self;
        let (space, page) = (self.space(), addr & !(PAGE - 1));
        let used = |at: u64| space.read(Block::of(at)).iter().any(|word| *word != 0);
        for at in [addr, page - BLOCK_BYTES, page + PAGE] {
            space.write(Block::of(at), &[9; 8]);
        }
        space.discard(page, PAGE);
        assert_eq!([addr, page - BLOCK_BYTES, page + PAGE].map(used), [false, true, true]);
        control.set_tags(base, BYTES, Tag::Writable);
        self.may(self.load(page).map(drop), true);
        // SAFETY: nobody needs the contents.
        unsafe { control.forget(base, BYTES) }.unwrap();
        assert_eq!([page - BLOCK_BYTES, page + PAGE].map(used), [false, false]);
        assert_eq!([base, base + BYTES - 1].map(|at| control.tag(at)), [Some(Tag::Invalid); 2]);
        self.may(self.load(page).map(drop), false);
    }
}

/// Tests that have the tag of `base` at `tags`; `distance`: to the bytes.
fn tests(base: u64, distance: u64, tags: u64) -> TagTests {
    let first = tags - ((base - SEGMENT_BASE) >> BLOCK_SHIFT);
    // SAFETY: used for memory that the test has mapped.
    unsafe { TagTests::at(SEGMENT_BASE + distance, first) }
}

#[test]
fn tag_tests() {
    let program = Program::start(BASES[0], false, |tags| tests(BASES[0], 0, tags));
    assert_eq!(program.control.runtime_address(BASES[0]), BASES[0]);
    program.check();
}

#[test]
fn aliased() {
    let base = BASES[1];
    let program = Program::start(base, true, |tags| Aliased::new(tests(base, DISTANCE, tags), base, BYTES));
    assert_eq!(program.control.runtime_address(base), base + DISTANCE);
    program.check();
}
