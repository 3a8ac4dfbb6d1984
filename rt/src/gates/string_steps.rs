//! String instructions on shared memory.
//!
//! Purpose: perform `movs stos lods scas cmps`, any element size, prefix and direction, where some blocks may not be accessible. Input:
//! a [`string_desc`] and the registers. Output: the registers as the instruction leaves them.
//! Method: run the real instruction for the longest stretch whose blocks are all accessible now; where even the first element's blocks
//! are not, acquire them and look again. Acquiring one operand's block can cost the other's, because handlers run only there:
//! hence both are looked at after every acquisition.
//! **Invariant**: between looking at the tags and the end of the real instruction nothing else runs on this thread.
//! Source: SDM volume 2 (REP, MOVS, STOS, LODS, SCAS, CMPS), volume 1 section 7.3.9.

use crate::node::access::Lane;
use blizzard_contract::{BLOCK_BYTES, string_desc};
use core::arch::asm;

/// Blocks looked at for one stretch: bounds the time between two looks.
const STRETCH_BLOCKS: u64 = 4096;
/// Fruitless acquisitions of one operand after which both are acquired at once: two nodes that want each other's blocks could
/// otherwise take them from each other without end.
const PATIENCE: u32 = 8;
/// Direction flag.
const DF: u64 = 1 << 10;
/// Zero flag.
const ZF: u64 = 1 << 6;
/// CF, PF, AF, ZF, SF, OF: what `scas` and `cmps` write.
const STATUS_FLAGS: u64 = 0x8d5;

/// The registers a string instruction uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringRegs {
    pub rax: u64,
    pub rcx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rflags: u64,
}

/// Access to shared memory.
pub trait Blocks {
    /// Whether the block that holds `addr` allows the access now.
    fn accessible(&self, addr: u64, store: bool) -> bool;
    /// By which address the runtime reads and writes. Addresses keep their distances.
    fn runtime_address(&self, addr: u64) -> u64;
    /// Makes `bytes` bytes at `addr` accessible; other blocks may become inaccessible meanwhile.
    fn acquire(&mut self, addr: u64, bytes: u64, store: bool);
    /// Makes `bytes` bytes at both addresses accessible at once.
    fn acquire_both(&mut self, addrs: [u64; 2], bytes: u64, store: bool);
    /// The first `chunk` of the `left` elements that are left are about to be executed: an operand outside shared memory may raise a signal.
    fn executes(&mut self, _left: u64, _chunk: u64) {}
    /// They have been.
    fn executed(&mut self) {}
}

/// How many of at most `max` elements from `addr` on, in the given direction, lie in accessible blocks.
fn stretch(blocks: &impl Blocks, addr: u64, size: u64, down: bool, store: bool, max: u64) -> u64 {
    let block_of = |at: u64| at & !(BLOCK_BYTES - 1);
    if down {
        // Lowest byte of the last element, and highest of the first.
        let top = addr.wrapping_add(size - 1);
        let bytes = (max - 1).saturating_mul(size).saturating_add(size);
        let mut low = top.wrapping_add(1);
        for _ in 0..STRETCH_BLOCKS {
            if top.wrapping_add(1).wrapping_sub(low) >= bytes || !blocks.accessible(low.wrapping_sub(1), store) {
                break;
            }
            low = block_of(low.wrapping_sub(1));
        }
        (top.wrapping_add(1).wrapping_sub(low) / size).min(max)
    } else {
        let bytes = max.saturating_mul(size);
        let mut end = addr;
        for _ in 0..STRETCH_BLOCKS {
            if end.wrapping_sub(addr) >= bytes || !blocks.accessible(end, store) {
                break;
            }
            end = block_of(end).wrapping_add(BLOCK_BYTES);
        }
        (end.wrapping_sub(addr) / size).min(max)
    }
}

/// Performs the instruction that `desc` describes.
///
/// # Safety
/// The program must be entitled to execute the instruction with these registers: the memory is the program's.
pub unsafe fn perform(desc: u32, regs: &mut StringRegs, blocks: &mut impl Blocks) {
    let op = desc & string_desc::OP_MASK;
    let size_log2 = desc >> string_desc::SIZE_SHIFT & 3;
    let size = 1u64 << size_log2;
    let rep = desc >> string_desc::REP_SHIFT & 3;
    let check_loads = desc & string_desc::CHECK_LOADS != 0;
    let check_stores = desc & string_desc::CHECK_STORES != 0;
    let reads_rsi = matches!(op, string_desc::MOVS | string_desc::LODS | string_desc::CMPS);
    let reads_rdi = matches!(op, string_desc::SCAS | string_desc::CMPS);
    let writes_rdi = matches!(op, string_desc::MOVS | string_desc::STOS);
    let compares = reads_rdi;
    let down = regs.rflags & DF != 0;
    // Without a prefix the instruction runs once and leaves rcx alone.
    let mut left = if rep == 0 { 1 } else { regs.rcx };
    let mut fruitless = 0;
    while left > 0 {
        if fruitless == PATIENCE {
            // Over-asks for the source of a move: rare, and it ends the contest.
            blocks.acquire_both([regs.rsi, regs.rdi], size, writes_rdi);
            fruitless = 0;
        }
        let mut n = left;
        if reads_rsi && check_loads {
            n = stretch(blocks, regs.rsi, size, down, false, n);
            if n == 0 {
                blocks.acquire(regs.rsi, size, false);
                fruitless += u32::from(reads_rdi || writes_rdi);
                continue;
            }
        }
        if reads_rdi && check_loads || writes_rdi && check_stores {
            n = stretch(blocks, regs.rdi, size, down, writes_rdi, n);
            if n == 0 {
                blocks.acquire(regs.rdi, size, writes_rdi);
                fruitless += u32::from(reads_rsi);
                continue;
            }
        }
        fruitless = 0;
        let (rsi, rdi) = (blocks.runtime_address(regs.rsi), blocks.runtime_address(regs.rdi));
        let mut chunk = StringRegs { rcx: n, rsi, rdi, ..*regs };
        blocks.executes(left, n);
        // SAFETY: the caller vouches for the instruction; its first n elements are accessible.
        unsafe { execute(op, size_log2, rep == 2, &mut chunk) };
        blocks.executed();
        left -= n - chunk.rcx;
        regs.rax = chunk.rax;
        regs.rsi = regs.rsi.wrapping_add(chunk.rsi.wrapping_sub(rsi));
        regs.rdi = regs.rdi.wrapping_add(chunk.rdi.wrapping_sub(rdi));
        if compares {
            regs.rflags = regs.rflags & !STATUS_FLAGS | chunk.rflags & STATUS_FLAGS;
            let equal = chunk.rflags & ZF != 0;
            // repe stops at the first difference, repne at the first match.
            if rep == 1 && !equal || rep == 2 && equal {
                break;
            }
        }
    }
    if rep != 0 {
        regs.rcx = left;
    }
}

/// What an instruction has read and written, from its registers before it and behind it.
pub fn touched(desc: u32, before: &StringRegs, behind: &StringRegs) -> [Lane; 2] {
    let op = desc & string_desc::OP_MASK;
    let size = 1u64 << (desc >> string_desc::SIZE_SHIFT & 3);
    let lane = |from: u64, to: u64, store| {
        let is_down = before.rflags & DF != 0;
        // Downwards the first element is the highest.
        let (addr, bytes) =
            if is_down { (to.wrapping_add(size), from.wrapping_sub(to)) } else { (from, to.wrapping_sub(from)) };
        Lane { addr, bytes, store, masked: false }
    };
    let writes_rdi = matches!(op, string_desc::MOVS | string_desc::STOS);
    [lane(before.rsi, behind.rsi, false), lane(before.rdi, behind.rdi, writes_rdi)]
}

/// One function that executes one instruction form on [`StringRegs`].
macro_rules! form {
    ($text:literal, $regs:expr) => {{
        let regs: &mut StringRegs = $regs;
        // The flags go in for DF only; single-step and the system bits stay out.
        let mut flags = regs.rflags & DF;
        // SAFETY: the caller vouches for the memory; DF is cleared again, as Rust code needs it.
        unsafe {
            asm!(
                "push {flags}",
                "popfq",
                $text,
                "pushfq",
                "pop {flags}",
                "cld",
                flags = inout(reg) flags,
                inout("rax") regs.rax,
                inout("rcx") regs.rcx,
                inout("rsi") regs.rsi,
                inout("rdi") regs.rdi,
            );
        }
        regs.rflags = flags;
    }};
}

/// Executes the real instruction with a repeat prefix: `rcx` elements at most. A prefix-less instruction is the same with rcx = 1.
///
/// # Safety
/// As [`perform`], and the elements are accessible.
unsafe fn execute(op: u32, size_log2: u32, repne: bool, regs: &mut StringRegs) {
    match (op, size_log2, repne) {
        (string_desc::MOVS, 0, _) => form!("rep movsb", regs),
        (string_desc::MOVS, 1, _) => form!("rep movsw", regs),
        (string_desc::MOVS, 2, _) => form!("rep movsd", regs),
        (string_desc::MOVS, _, _) => form!("rep movsq", regs),
        (string_desc::STOS, 0, _) => form!("rep stosb", regs),
        (string_desc::STOS, 1, _) => form!("rep stosw", regs),
        (string_desc::STOS, 2, _) => form!("rep stosd", regs),
        (string_desc::STOS, _, _) => form!("rep stosq", regs),
        (string_desc::LODS, 0, _) => form!("rep lodsb", regs),
        (string_desc::LODS, 1, _) => form!("rep lodsw", regs),
        (string_desc::LODS, 2, _) => form!("rep lodsd", regs),
        (string_desc::LODS, _, _) => form!("rep lodsq", regs),
        (string_desc::SCAS, 0, false) => form!("repe scasb", regs),
        (string_desc::SCAS, 1, false) => form!("repe scasw", regs),
        (string_desc::SCAS, 2, false) => form!("repe scasd", regs),
        (string_desc::SCAS, _, false) => form!("repe scasq", regs),
        (string_desc::SCAS, 0, true) => form!("repne scasb", regs),
        (string_desc::SCAS, 1, true) => form!("repne scasw", regs),
        (string_desc::SCAS, 2, true) => form!("repne scasd", regs),
        (string_desc::SCAS, _, true) => form!("repne scasq", regs),
        (_, 0, false) => form!("repe cmpsb", regs),
        (_, 1, false) => form!("repe cmpsw", regs),
        (_, 2, false) => form!("repe cmpsd", regs),
        (_, _, false) => form!("repe cmpsq", regs),
        (_, 0, true) => form!("repne cmpsb", regs),
        (_, 1, true) => form!("repne cmpsw", regs),
        (_, 2, true) => form!("repne cmpsd", regs),
        (_, _, true) => form!("repne cmpsq", regs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// xorshift64: enough to vary states, the same on every run.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        fn below(&mut self, n: u64) -> u64 {
            self.next() % n
        }
    }

    /// Tags of a test: blocks come and go as peers would take them.
    struct FakeBlocks {
        readable: HashSet<u64>,
        writable: HashSet<u64>,
        random: Random,
        acquired: u64,
        /// Acquiring a block takes others away with this chance in four.
        hostility: u64,
        /// From the program's addresses to those of the bytes.
        distance: u64,
        both: u64,
    }

    impl FakeBlocks {
        fn new(seed: u64, hostility: u64) -> Self {
            let (readable, writable) = (HashSet::new(), HashSet::new());
            FakeBlocks { readable, writable, random: Random(seed | 1), acquired: 0, hostility, distance: 0, both: 0 }
        }

        fn grant(&mut self, addr: u64, bytes: u64, store: bool) {
            for block in addr / BLOCK_BYTES..=(addr + bytes - 1) / BLOCK_BYTES {
                if store { &mut self.writable } else { &mut self.readable }.insert(block);
            }
        }
    }

    impl Blocks for FakeBlocks {
        fn accessible(&self, addr: u64, store: bool) -> bool {
            let block = addr / BLOCK_BYTES;
            self.writable.contains(&block) || !store && self.readable.contains(&block)
        }

        fn runtime_address(&self, addr: u64) -> u64 {
            addr.wrapping_add(self.distance)
        }

        fn acquire(&mut self, addr: u64, bytes: u64, store: bool) {
            self.acquired += 1;
            let (random, hostility) = (&mut self.random, self.hostility);
            self.readable.retain(|_| random.below(4) >= hostility);
            self.writable.retain(|_| random.below(4) >= hostility);
            self.grant(addr, bytes, store);
        }

        fn acquire_both(&mut self, addrs: [u64; 2], bytes: u64, store: bool) {
            self.both += 1;
            self.readable.clear();
            self.writable.clear();
            for addr in addrs {
                self.grant(addr, bytes, store);
            }
        }
    }

    fn desc(op: u32, size_log2: u32, rep: u32) -> u32 {
        op | size_log2 << string_desc::SIZE_SHIFT
            | rep << string_desc::REP_SHIFT
            | string_desc::CHECK_LOADS
            | string_desc::CHECK_STORES
    }

    /// The real instruction, whole: with rep when the form has one, else once and rcx untouched.
    unsafe fn reference(op: u32, size_log2: u32, rep: u32, regs: &mut StringRegs) {
        let before = *regs;
        if rep == 0 {
            regs.rcx = 1;
        }
        if regs.rcx > 0 {
            // SAFETY: passed on from the caller.
            unsafe { execute(op, size_log2, rep == 2, regs) };
            let written = if op >= string_desc::SCAS { STATUS_FLAGS } else { 0 };
            regs.rflags = before.rflags & !written | regs.rflags & written;
        }
        if rep == 0 {
            regs.rcx = before.rcx;
        }
    }

    /// Bytes of the test arena; both operands lie inside, overlapping or not.
    const ARENA: usize = 2048;

    #[test]
    fn same_result_as_the_instruction_on_random_states() {
        let mut random = Random(0x1234_5678_9abc_def1);
        let (mut acquired, mut both) = (0, 0);
        for round in 0..20_000u32 {
            let op = random.below(5) as u32;
            let size_log2 = random.below(4) as u32;
            let rep = random.below(3) as u32;
            let count = if random.below(8) == 0 { 0 } else { random.below(100) };
            let reach = (count.max(1) << size_log2) as usize;
            let down = random.below(2) == 1;
            // Few distinct values, so that comparisons run for a while.
            let fill = random.below(3);
            let mut arena: Vec<u8> = (0..ARENA).map(|_| (random.below(60) < fill) as u8).collect();
            let mut place = || {
                let offset = random.below((ARENA - reach - 8) as u64);
                if down { offset + reach as u64 } else { offset }
            };
            let (src, dst) = (place(), place());
            let rax = if random.below(2) == 0 { 0 } else { random.next() };
            let rflags = 0x202 | random.next() & STATUS_FLAGS | if down { DF } else { 0 };
            let distance = if random.below(2) == 0 { 0 } else { BLOCK_BYTES << 20 };
            let run = |arena: &mut Vec<u8>, distance: u64, f: &mut dyn FnMut(&mut StringRegs)| {
                let base = arena.as_mut_ptr() as u64 - distance;
                let mut regs = StringRegs { rax, rcx: count, rsi: base + src, rdi: base + dst, rflags };
                f(&mut regs);
                StringRegs { rsi: regs.rsi - base, rdi: regs.rdi - base, ..regs }
            };
            let mut copy = arena.clone();
            // SAFETY: the operands lie inside the arena.
            let expected = run(&mut copy, 0, &mut |regs| unsafe { reference(op, size_log2, rep, regs) });
            // Hostility 4: everything else is lost each time, so only both at once can get on.
            let mut fake = FakeBlocks { distance, ..FakeBlocks::new(random.next(), random.below(5)) };
            // SAFETY: the operands lie inside the arena.
            let got =
                run(&mut arena, distance, &mut |regs| unsafe { perform(desc(op, size_log2, rep), regs, &mut fake) });
            assert_eq!(got, expected, "round {round}: op {op} size {size_log2} rep {rep} count {count} down {down}");
            assert_eq!(arena, copy, "round {round}: memory");
            acquired += fake.acquired;
            both += fake.both;
        }
        assert!(acquired > 20_000 && both > 100, "the rounds must meet inaccessible blocks: {acquired}, {both}");
    }

    #[test]
    fn nothing_is_acquired_for_rcx_zero_or_unchecked_kinds() {
        let mut fake = FakeBlocks::new(1, 0);
        let mut buf = [1u8; 64];
        let at = buf.as_mut_ptr() as u64;
        let start = StringRegs { rax: 0, rcx: 0, rsi: at, rdi: at, rflags: 0x202 | 0x95 };
        let mut regs = start;
        // SAFETY: no element is touched.
        unsafe { perform(desc(string_desc::CMPS, 0, 1), &mut regs, &mut fake) };
        assert_eq!((regs, fake.acquired), (start, 0));
        let unchecked = string_desc::STOS | 1 << string_desc::REP_SHIFT | string_desc::CHECK_LOADS;
        regs.rcx = 64;
        // SAFETY: the whole array.
        unsafe { perform(unchecked, &mut regs, &mut fake) };
        assert_eq!((buf, fake.acquired), ([0; 64], 0));
    }

    #[test]
    fn a_stretch_ends_before_the_element_that_straddles_into_a_lost_block() {
        let mut fake = FakeBlocks::new(1, 0);
        fake.readable = HashSet::from([10, 11]);
        fake.writable = HashSet::from([10]);
        assert_eq!(stretch(&fake, 10 * 64 + 4, 8, false, false, 100), 15);
        assert_eq!(stretch(&fake, 10 * 64 + 4, 8, false, true, 100), 7);
        assert_eq!(stretch(&fake, 11 * 64 + 60, 8, false, false, 100), 0);
        assert_eq!(stretch(&fake, 11 * 64 + 52, 8, true, false, 100), 15);
        assert_eq!(stretch(&fake, 11 * 64 + 60, 8, true, false, 100), 0);
        assert_eq!(stretch(&fake, 10 * 64, 1, false, false, u64::MAX), 128);
    }
}
