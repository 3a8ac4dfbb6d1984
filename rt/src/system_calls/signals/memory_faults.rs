//! The signals of memory that is not there, SIGSEGV and SIGBUS, as the program would see them without checks.
//!
//! Purpose: the program's handler is to find the fault of the program's own access. Two things stand in the way.
//! * The test of a tag faults itself where the access's address is not canonical or lies in the kernel's half: the tag would lie behind the table. Nothing
//!   there is shared, so the test is passed over as if the tag allowed the access; the access raises the signal then.
//! * The runtime keeps pages where the program has nothing. Rights that are missing there are reported as SEGV_MAPERR. Nor may a checked access find the
//!   tag table: the tags of the table itself cannot be read ([`crate::memory::segment::hide_tags_of_tags`]), so the test of such a tag faults. The page that the access leads to
//!   is taken away ([`arm`]) and given back when the access has raised its signal.
//!
//! So the runtime's wrapper ([`crate::system_calls::signals::wrapper`]) is installed for both signals wherever the program does not ignore them; for SIGFPE and SIGILL, too, so that the launcher hears of them ([`crate::system_calls::signals::dying`]). Input: the frame of a signal. Output: a
//! context that goes on behind the test, or information for the program's handler.
//! **Invariants**
//! * What is passed over is a tag test: an instruction that only checks have, in rewritten code, that raised the signal by an address of which the table has no tag to read.
//! * A page that was taken away is given back before anything but that access uses it: the first signal that an instruction raises brings it back, and the
//!   instruction is tried again if it was the runtime's or a test and the page its cause.
//!
//! Limits: in a program whose libraries are not rewritten, run on one node, the C library's calls do not pass the gate, and nothing is installed. Two threads that stray into
//! the tag table at the same moment may read it.
//! Source: SDM volume 2 (TEST), volume 3, 6.15 (#GP, #SS, #PF); Linux `arch/x86/mm/fault.c`, `arch/x86/kernel/traps.c`.

use crate::kernel::owned::PerProcess;
use crate::kernel::sys::{self, KernelSigaction};
use crate::kernel::ucontext::GREGS;
use crate::kernel::ucontext::{REG_EFL, REG_RIP, Ucontext};
use crate::libraries::modules::MODULES;
use crate::memory::access_control::interface::{AccessControl, Fault};
use crate::memory::access_control::program::{PROGRAM, program_address};
use crate::memory::segment::{self, TABLE};
use crate::node::access::MAX_LANES;
use crate::process::trap_bytes::debugged;
use crate::system_calls::execution::runtime_text;
use crate::system_calls::execution::signal_sets::{SYNCHRONOUS, bit};
use crate::system_calls::signals::actions::DEFAULT;
use crate::system_calls::signals::alternate_stack::{Settled, may_go_apart};
use crate::system_calls::signals::carried::carry_out::{
    SlotExit, UntestedMemory, carry_out, grant_by_node, leave_at_end, refuse,
};
use crate::system_calls::signals::untested::{self, Untested};
use crate::tempest::faults;
use blizzard_contract::{self as contract, guard_tags as tags};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Both signals.
pub const SIGNALS: u64 = bit(libc::SIGSEGV) | bit(libc::SIGBUS);
/// Those, and others of instructions by which the program may die.
pub const KEPT: u64 = SIGNALS | bit(libc::SIGFPE) | bit(libc::SIGILL);
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
const ZF: u64 = 1 << 6;
const CF: u64 = 1;
/// Conditions of jumps.
const BELOW: u8 = 2;
const EQUAL: u8 = 4;
const NOT_EQUAL: u8 = 5;
/// Longest tag test: prefix, opcode, ModRM, SIB, disp32, imm32.
const TEST_BYTES: usize = 13;
const PAGE: u64 = 4096;

static INSTALLED: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));
/// Address of a word that holds the number of the process whose memory this is: zero again in a forked child, the parent's in one of `vfork`. 0: there is none.
static OWNER: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));
/// Pages of the tag table that cannot be read now: those of the last tests that found their tags hidden. Several tests may stand in front of one access, and a
/// gather has several addresses; each leads to two pages at most.
static ARMED: PerProcess<[AtomicU64; 2 * MAX_LANES]> = PerProcess::new([const { AtomicU64::new(0) }; 2 * MAX_LANES]);
/// The place of [`ARMED`] that is used next.
static NEXT_ARMED: PerProcess<AtomicUsize> = PerProcess::new(AtomicUsize::new(0));

/// Whether the runtime stands between the kernel and the program's action for this signal.
pub fn keeps(signal: u64) -> bool {
    are_kept() && signal < 64 && signal > 0 && bit(signal as i32) & KEPT != 0
}

/// Whether the runtime stands there at all.
pub fn are_kept() -> bool {
    INSTALLED.load(Ordering::Relaxed)
}

/// Prepares for it, and hides the tags of the tag table. The wrapper is to be installed for [`KEPT`] next.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// Called once, before the program runs.
pub unsafe fn prepare() -> sys::Result<()> {
    // SAFETY: new anonymous memory.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = sys::mmap(0, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)?;
        if sys::madvise(page, PAGE, libc::MADV_WIPEONFORK).is_ok() {
            OWNER.store(page, Ordering::Relaxed);
        }
        segment::hide_tags_of_tags()?;
    }
    INSTALLED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Whether this process borrows the memory of the one that has recorded the actions: a child of `vfork`, whose actions are its own.
pub fn memory_is_borrowed() -> bool {
    let at = OWNER.load(Ordering::Relaxed);
    if at == 0 {
        return false;
    }
    // SAFETY: the page stays mapped.
    let owner = unsafe { AtomicU64::from_ptr(at as *mut u64) };
    let me = sys::getpid() as u64;
    owner.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_err_and(|owner| owner != me)
}

/// A tag test, as inserted code has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagTest {
    pub bytes: usize,
    /// The register with the number of a block, in encoding order.
    base: u8,
    disp: u64,
    /// Tags that it looks at.
    tags: u64,
}

impl TagTest {
    /// Decodes `test [base + disp32], imm`, or `cmp` of a byte, followed by a jump, where the displacement is that of the tag table, or a little more, and what is
    /// compared stands in tests of tags.
    pub fn decode(code: &[u8]) -> Option<TagTest> {
        let rest = match code.split_first()? {
            (0x65, rest) if cfg!(feature = "guard") => rest,
            _ => code,
        };
        let (rex, rest) = match rest.split_first()? {
            (prefix @ 0x40..=0x4f, rest) => (*prefix, rest),
            _ => (0, rest),
        };
        let (&opcode, rest) = rest.split_first()?;
        let (&modrm, mut rest) = rest.split_first()?;
        let (tags, extension) = match opcode {
            0xf6 => (1, 0),
            0xf7 => (4, 0),
            0x80 => (1, 7),
            _ => return None,
        };
        // A displacement of 32 bits, and no REX but for the base.
        if modrm & 0xf8 != 0x80 | extension << 3 || rex & 0x0e != 0 {
            return None;
        }
        if modrm & 7 == 4 {
            let (&sib, behind) = rest.split_first()?;
            if sib != 0x24 {
                return None;
            }
            rest = behind;
        }
        let (disp, rest) = rest.split_first_chunk::<4>()?;
        let disp = u64::from(u32::from_le_bytes(*disp));
        if !(contract::TAG_TABLE_BASE..contract::TAG_TABLE_BASE + 256).contains(&disp) {
            return None;
        }
        let (number, rest) = match tags {
            1 => rest.split_first().map(|(&number, rest)| (u32::from(number), rest))?,
            _ => rest.split_first_chunk::<4>().map(|(number, rest)| (u32::from_le_bytes(*number), rest))?,
        };
        let condition = match rest {
            [short @ 0x70..=0x7f, ..] => short & 15,
            [0x0f, near @ 0x80..=0x8f, ..] => near & 15,
            _ => return None,
        };
        let guard = cfg!(feature = "guard");
        let is_test = match (opcode, condition) {
            (0x80, BELOW) => guard && [tags::BOTH_READABLE, tags::BOTH_WRITABLE].contains(&(number as u8)),
            (0x80, NOT_EQUAL) => guard && number == 0,
            (0xf6, EQUAL) if guard => [tags::WRITABLE, tags::READONLY | tags::WRITABLE].contains(&(number as u8)),
            (0x80, _) => false,
            (_, EQUAL | NOT_EQUAL) => [contract::TAG_NO_LOAD, contract::TAG_NO_STORE].iter().any(|&bit| {
                let alike = |ones: u32| number == u32::from(bit) * ones;
                if tags == 1 { alike(1) } else { alike(0x0101) || alike(0x0101_0101) }
            }),
            _ => false,
        };
        is_test.then_some(TagTest { bytes: code.len() - rest.len(), base: modrm & 7 | (rex & 1) << 3, disp, tags })
    }

    /// The tag test at an address, if there is one.
    fn at(at: u64) -> Option<TagTest> {
        // With a jump behind it.
        let room = (1..TEST_BYTES as u64 + 2).take_while(|n| MODULES.in_new_code(at.wrapping_add(*n))).count() as u64;
        if !MODULES.in_new_code(at) || MODULES.check_of(at).is_some() {
            return None;
        }
        // SAFETY: so many bytes of new code.
        TagTest::decode(unsafe { core::slice::from_raw_parts(at as *const u8, room as usize + 1) })
    }

    /// Where its first tag lies.
    fn tag(self, context: &Ucontext) -> u64 {
        context.gregs[GREGS[usize::from(self.base)]].wrapping_add(self.disp)
    }
}

/// Whether the table has the tag, and it can be read, as long as its page is not taken away.
fn is_readable(tag: u64) -> bool {
    TABLE.contains(&tag) && (cfg!(feature = "guard") || !segment::HIDDEN_TAGS.contains(&tag))
}

/// On the runtime's own stack, as coroutines may have less than a frame takes: an untested access goes on in full code at once, or is carried out apart.
pub fn settle(signal: i32, info: &mut libc::siginfo_t, context: &mut Ucontext) -> Settled {
    if signal != libc::SIGSEGV || info.si_code <= 0 {
        return Settled::No;
    }
    // SAFETY: the kernel's frame.
    match unsafe { leave_at_end(info, context) } {
        Some(SlotExit::Elsewhere) => {}
        Some(_) => return Settled::Yes,
        None => return Settled::No,
    }
    // SAFETY: the kernel fills the address in for this signal.
    let address = unsafe { info.si_addr() } as u64;
    let is_untested = |address| matches!(PROGRAM.meaning_of_fault(address), Fault::NotTested);
    if !is_untested(address) || is_untested(context.gregs[REG_RIP]) {
        return Settled::No;
    }
    let may_go_apart = may_go_apart(context);
    match untested::find(context) {
        Some(untested) if !untested.is_first || !may_go_apart => {
            untested.go_on(context);
            Settled::Yes
        }
        _ if may_go_apart => Settled::Apart,
        _ => Settled::No,
    }
}

/// Carries the access out that [`settle`] has left.
pub extern "C" fn settle_apart(_signal: i32, info: &libc::siginfo_t, context: &mut Ucontext) {
    // SAFETY: the kernel has filled the address in.
    let address = unsafe { info.si_addr() } as u64;
    // SAFETY: the kernel's context, of the fault of what it is in front of, which is in no slot.
    unsafe { carry_out_or_go_on(context, address, untested::of(context)) };
}

/// Carries out the access that has faulted at `address`, or lets the context go on in full code.
///
/// # Safety
/// As [`carry_out`].
unsafe fn carry_out_or_go_on(context: &mut Ucontext, address: u64, untested: Option<Untested>) {
    let distance = PROGRAM.runtime_address(address).wrapping_sub(address);
    faults::note_pc(context.gregs[REG_RIP]);
    // SAFETY: passed on from the caller.
    match unsafe { carry_out(context, address, &mut UntestedMemory { distance, grant: &mut grant_by_node }) } {
        Ok(()) => {}
        Err(why) => match untested {
            Some(untested) => untested.go_on(context),
            None => refuse(context, address, why),
        },
    }
}

/// A signal that an instruction has raised. True: the context goes on without the program's handler. Else the information is what the plain program sees.
pub fn amend(signal: i32, info: &mut libc::siginfo_t, context: &mut Ucontext) -> bool {
    // A signal that somebody sent (SIGCHLD has a positive code, too) may come between a test and its access, which still needs the pages gone.
    if info.si_code <= 0 || bit(signal) & SYNCHRONOUS == 0 {
        return false;
    }
    if bit(signal) & SIGNALS == 0 {
        give_all_back();
        return signal == libc::SIGILL && debugged::go_on(context);
    }
    let at = context.gregs[REG_RIP];
    let test = TagTest::at(at);
    if let Some(test) = test {
        let tag = test.tag(context);
        let last = tag.wrapping_add(test.tags - 1);
        if !is_readable(tag) || !is_readable(last) {
            // Where tags cannot be read until they are tested, the table cannot either.
            if !cfg!(feature = "guard") && !is_readable(tag) {
                arm(tag);
            }
            context.gregs[REG_RIP] = at + test.bytes as u64;
            // As of private memory.
            context.gregs[REG_EFL] |= if cfg!(feature = "guard") { ZF | CF } else { ZF };
            return true;
        }
    }
    // SAFETY: the kernel fills the address in for these signals.
    let address = unsafe { info.si_addr() } as u64;
    let address = match program_address(address) {
        same if same == address => same,
        // Full code has found it accessible; there is nothing.
        shared => {
            set_address(info, shared);
            shared
        }
    };
    let was_armed = is_armed(address & !(PAGE - 1));
    // Whatever the access has raised, by whatever address: the handler may need the runtime while it blocks this signal.
    give_all_back();
    if was_armed {
        let (text, bytes) = runtime_text::range();
        if test.is_some() || at.wrapping_sub(text) < bytes {
            return true;
        }
    }
    match PROGRAM.meaning_of_fault(address) {
        Fault::NotOurs => {}
        // Nobody can run code there: there is no instruction to be carried out.
        Fault::NotTested if matches!(PROGRAM.meaning_of_fault(at), Fault::NotTested) => {}
        Fault::NotTested => {
            let untested = if signal == libc::SIGSEGV { untested::find(context) } else { None };
            if let Some(untested) = untested.filter(|untested| !untested.is_first) {
                untested.go_on(context);
                return true;
            }
            // SAFETY: the kernel's context, of the fault of what it is in front of. The wrapper has made it leave its slot.
            unsafe { carry_out_or_go_on(context, address, untested) };
            return true;
        }
        // Without the runtime there is nothing.
        Fault::TagTable | Fault::Unused => {
            if signal == libc::SIGSEGV && info.si_code == SEGV_ACCERR {
                info.si_code = SEGV_MAPERR;
            }
        }
    }
    false
}

/// Changes the address that the handler is told.
fn set_address(info: &mut libc::siginfo_t, address: u64) {
    /// Behind signal, error and code, aligned (Linux `include/uapi/asm-generic/siginfo.h`).
    const AT: usize = 16;
    // SAFETY: the field of signals for faults.
    unsafe { core::ptr::from_mut(info).cast::<u8>().add(AT).cast::<u64>().write(address) };
}

/// Takes away the pages of the tag table to which the addresses lead whose tag, and the next one, lie at `tag`.
#[cold]
fn arm(tag: u64) {
    let first = tag.wrapping_sub(contract::TAG_TABLE_BASE) << contract::BLOCK_SHIFT;
    for address in [first, first.wrapping_add(contract::BLOCK_BYTES)] {
        arm_page(address & !(PAGE - 1));
    }
}

/// As a tag test of that range does, for a range that the runtime has made accessible: an access to the tag table raises its signal.
pub fn keep_away(first: u64, bytes: u64) {
    let last = first.wrapping_add(bytes.wrapping_sub(1));
    if [first, last].iter().any(|address| TABLE.contains(address)) && are_kept() {
        for address in [first, last] {
            arm_page(address & !(PAGE - 1));
        }
    }
}

fn arm_page(page: u64) {
    if cfg!(feature = "guard") || !TABLE.contains(&page) || segment::HIDDEN_TAGS.contains(&page) || is_armed(page) {
        return;
    }
    let armed = &ARMED[NEXT_ARMED.fetch_add(1, Ordering::Relaxed) % ARMED.len()];
    give_back(armed.swap(0, Ordering::Relaxed));
    // SAFETY: a page of the table, which `give_back` restores.
    if unsafe { sys::mprotect(page, PAGE, libc::PROT_NONE) }.is_ok() {
        armed.store(page, Ordering::Relaxed);
    }
}

fn is_armed(page: u64) -> bool {
    page != 0 && ARMED.iter().any(|armed| armed.load(Ordering::Relaxed) == page)
}

fn give_all_back() {
    ARMED.iter().for_each(|armed| give_back(armed.swap(0, Ordering::Relaxed)));
}

fn give_back(page: u64) {
    if page != 0 {
        // SAFETY: a page of the tag table gets the rights that it had.
        let _ = unsafe { sys::mprotect(page, PAGE, segment::tag_rights(page)) };
    }
}

/// What the signal does without a handler: at once if somebody has sent it, else when the context goes on and raises it again.
pub fn default_action(signal: i32, raised: bool) {
    // SAFETY: the default action runs no code.
    let done = unsafe { sys::rt_sigaction(signal, &KernelSigaction { flags: sys::SA_RESTORER, ..DEFAULT }) };
    if done.is_err() {
        // A filter of the program's.
        sys::exit_group(128 + signal);
    }
    if !raised {
        let _ = sys::tgkill(sys::getpid(), sys::gettid(), signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JNZ: [u8; 2] = [0x0f, 0x85];

    #[test]
    fn tag_tests_are_recognised_and_their_tags_found() {
        // test byte ptr [rdx + 0x7fff8000], 2; jnz
        let code = [&[0xf6, 0x82, 0, 0x80, 0xff, 0x7f, 2][..], &JNZ].concat();
        let test = TagTest::decode(&code).unwrap();
        assert_eq!(test, TagTest { bytes: 7, base: 2, disp: contract::TAG_TABLE_BASE, tags: 1 });
        // test dword ptr [r12 + 0x7fff8004], 0x01010101; jz
        let code = [0x41, 0xf7, 0x84, 0x24, 4, 0x80, 0xff, 0x7f, 1, 1, 1, 1, 0x74, 5];
        let test = TagTest::decode(&code).unwrap();
        assert_eq!(test, TagTest { bytes: 12, base: 12, disp: contract::TAG_TABLE_BASE + 4, tags: 4 });
        for end in 0..code.len() - 1 {
            assert_eq!(TagTest::decode(&code[..end]), None, "{end}");
        }
    }

    #[test]
    fn nothing_else_is_taken_for_a_tag_test() {
        let others: [&[u8]; 6] = [
            // Another displacement, mask, jump, extension of the opcode, an index, a prefix.
            &[0xf6, 0x82, 0, 0x70, 0xff, 0x7f, 2, 0x75, 0],
            &[0xf6, 0x82, 0, 0x80, 0xff, 0x7f, 4, 0x75, 0],
            &[0xf6, 0x82, 0, 0x80, 0xff, 0x7f, 2, 0x76, 0],
            &[0xf6, 0x92, 0, 0x80, 0xff, 0x7f, 2, 0x75, 0],
            &[0xf6, 0x84, 0x48, 0, 0x80, 0xff, 0x7f, 2, 0x75, 0],
            &[0x66, 0xf7, 0x82, 0, 0x80, 0xff, 0x7f, 2, 2, 0x75, 0],
        ];
        for code in others {
            assert_eq!(TagTest::decode(code), None, "{code:x?}");
        }
    }

    /// The tags of all addresses that are not in the lower half lie behind the table, or where it cannot be read.
    #[test]
    fn tags_that_cannot_be_read_are_those_of_no_shared_memory() {
        let tag = |address: u64| (address >> contract::BLOCK_SHIFT) + contract::TAG_TABLE_BASE;
        for address in
            [contract::TAG_TABLE_BASE, 1 << 32, (1 << 41) + contract::TAG_TABLE_BASE - 1, 1 << 47, 1 << 63, u64::MAX]
        {
            assert!(!is_readable(tag(address)), "{address:#x}");
        }
        for address in [0, 0x7ffb_ffff, 1 << 42, contract::SEGMENT_BASE, (1 << 47) - 1] {
            assert!(is_readable(tag(address)), "{address:#x}");
        }
    }
}
