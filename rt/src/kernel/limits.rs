//! The program's limits of address space and data, apart from what the runtime has mapped.
//!
//! Purpose: the kernel counts all mappings of a process towards RLIMIT_AS, and the private writable ones towards RLIMIT_DATA. Those of the runtime are
//! terabytes of which hardly a page is used: under any limit that a program sets for itself, each of its later allocations would fail. Input:
//! what is about to be mapped; the program's own calls. Output: limits of the kernel's that are higher than the program's by what is mapped.
//! **Invariants**
//! * A finite limit of the kernel's is the program's plus [`OWN`], a soft one less [`SHARED`]; nothing else is remembered, since a `vfork` child has limits of its own
//!   and this memory.
//! * The program sees and sets its own limits. Another program that it executes starts with them: the soft ones as they are, while a hard one may be
//!   higher by [`OWN`], so that a rewritten program can start there too.
//! * Without a finite limit nobody asks the kernel again (programs in a sandbox may not).
//!
//! Source: getrlimit(2), prlimit(2); Linux `mm/mmap.c`: `may_expand_vm`, `is_data_mapping`.

use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a program's rewritten text and its libraries' may take more than the originals' do: address space is asked of for them as well.
const CODE_BYTES: u64 = 256 << 20;
/// What the queues of a node may take while the program runs.
const LATER_BYTES: u64 = 64 << 20;
const NONE: u64 = libc::RLIM64_INFINITY;
const KINDS: [u32; 2] = [libc::RLIMIT_AS, libc::RLIMIT_DATA];

/// Bytes of the runtime's that count towards each of [`KINDS`].
static OWN: PerProcess<[AtomicU64; 2]> = PerProcess::new([const { AtomicU64::new(0) }; 2]);
/// Of that, what counted and counts no more. A program that this one executes maps it anew: below the hard limit there must be room for it.
static SHARED: PerProcess<[AtomicU64; 2]> = PerProcess::new([const { AtomicU64::new(0) }; 2]);
/// Some limit is finite, or has been.
static FINITE: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));
static STARTED: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));
/// Soft limits may still be as [`lower`] left them.
static LOWERED: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));

/// The kernel's `struct rlimit64`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    soft: u64,
    hard: u64,
}

/// What limits of a kind are higher by.
#[derive(Clone, Copy)]
struct Own {
    soft: u64,
    hard: u64,
}

impl Own {
    /// Of one of [`KINDS`].
    fn of(at: usize) -> Own {
        let hard = OWN[at].load(Ordering::Relaxed);
        Own { soft: hard - SHARED[at].load(Ordering::Relaxed), hard }
    }
}

fn above(limit: u64, bytes: u64) -> u64 {
    // The largest finite one stays finite.
    if limit == NONE { NONE } else { limit.saturating_add(bytes).min(NONE - 1) }
}

fn below(limit: u64, bytes: u64) -> u64 {
    if limit == NONE { NONE } else { limit.saturating_sub(bytes) }
}

impl Limit {
    const UNLIMITED: Limit = Limit { soft: NONE, hard: NONE };

    /// With room for `bytes` more; what to try first, and what without the privilege to raise a hard limit.
    fn with_room(self, bytes: u64) -> [Limit; 2] {
        let soft = above(self.soft, bytes);
        let hard = if soft <= self.hard { self.hard } else { above(self.hard, bytes) };
        [Limit { soft, hard }, Limit { soft: soft.min(self.hard), ..self }]
    }

    /// What the program sees, and what it wants of the kernel.
    fn shown(self, own: Own) -> Limit {
        Limit { soft: below(self.soft, own.soft), hard: below(self.hard, own.hard) }
    }
    fn wanted(self, own: Own) -> Limit {
        Limit { soft: above(self.soft, own.soft), hard: above(self.hard, own.hard) }
    }

    /// What another program starts with, if that is another limit.
    fn lowered(self, own: u64) -> Option<Limit> {
        (self.soft != NONE && self.soft >= own && own > 0).then(|| Limit { soft: self.soft - own, ..self })
    }

    /// The opposite.
    fn restored(self, own: u64) -> Option<Limit> {
        (self.soft < own).then(|| Limit { soft: above(self.soft, own).min(self.hard), ..self })
    }
}

/// Changes the limit and returns the one before.
///
/// # Errors
/// The kernel's.
fn exchange(kind: u32, new: Option<Limit>) -> sys::Result<Limit> {
    let mut old = Limit::UNLIMITED;
    let new = new.as_ref().map_or(0, |limit| core::ptr::from_ref(limit) as u64);
    // SAFETY: two live structures, or null.
    unsafe { sys::call(libc::SYS_prlimit64, [0, kind.into(), new, &raw mut old as u64, 0, 0]) }.map(|_| old)
}

/// Room for the larger code. Once, at the start.
pub fn make_room_for_code() {
    // What the process was started with is not known yet.
    FINITE.store(true, Ordering::Relaxed);
    let limited = KINDS.iter().any(|&kind| exchange(kind, None).is_ok_and(|limit| limit != Limit::UNLIMITED));
    FINITE.store(limited, Ordering::Relaxed);
    make_room(CODE_BYTES, false);
}

/// Raises finite limits for what the runtime is about to map. `writable_private`: it counts as data, too. A limit that may not be raised is
/// for the mapping to report.
pub fn make_room(bytes: u64, writable_private: bool) {
    let counted = |kind: u32| kind != libc::RLIMIT_DATA || writable_private;
    make_room_in(counted, bytes);
}

/// The same for what becomes writable, private data within a mapping that counts as address space already.
pub fn make_room_for_data(bytes: u64) {
    make_room_in(|kind| kind == libc::RLIMIT_DATA, bytes);
}

/// What was writable and private is shared: it no longer counts as data.
pub fn data_is_shared(bytes: u64) {
    SHARED[1].fetch_add(bytes, Ordering::Relaxed);
    if FINITE.load(Ordering::Relaxed) {
        change(libc::RLIMIT_DATA, |limit| Some([limit.shown(Own { soft: bytes, hard: 0 }); 2]));
    }
}

fn make_room_in(counted: impl Fn(u32) -> bool, bytes: u64) {
    for (&kind, own) in KINDS.iter().zip(OWN.iter()).filter(|(kind, _)| counted(**kind)) {
        own.fetch_add(bytes, Ordering::Relaxed);
        if FINITE.load(Ordering::Relaxed) {
            change(kind, |limit| Some(limit.with_room(bytes)));
        }
    }
}

/// [`make_room`] for tables of the runtime, which the start makes; how they grow afterwards is [`LATER_BYTES`]'.
pub fn make_room_at_start(bytes: u64) {
    if !STARTED.load(Ordering::Relaxed) {
        make_room(bytes, true);
    }
}

/// The program is about to run: limits that it sets have to hold all of the runtime's that they will hold.
pub fn started(nodes: u32) {
    if nodes > 1 {
        make_room(LATER_BYTES, true);
    }
    STARTED.store(true, Ordering::Relaxed);
}

/// Sets what `to` makes of the limit: the first that the kernel allows.
fn change(kind: u32, to: impl Fn(Limit) -> Option<[Limit; 2]>) {
    let Some(to) = exchange(kind, None).ok().and_then(to) else { return };
    let _ = exchange(kind, Some(to[0])).or_else(|_| exchange(kind, Some(to[1])));
}

/// The result of a call that asks for a limit of the program's or sets one, if the runtime's mappings count towards it.
///
/// # Safety
/// `nr` and `args` are the program's call, which may be made.
pub unsafe fn call(nr: i64, args: &[u64; 6]) -> Option<i64> {
    let (kind, new, old) = match nr {
        libc::SYS_getrlimit => (args[0], None, Some(args[1])),
        libc::SYS_setrlimit => (args[0], Some(args[1]), None),
        libc::SYS_prlimit64 if args[0] == 0 || args[0] as i32 == sys::getpid() => {
            let given = |at: u64| (at != 0).then_some(at);
            (args[1], given(args[2]), given(args[3]))
        }
        _ => return None,
    };
    let at = KINDS.iter().position(|&k| k == kind as u32)?;
    let own = Own::of(at);
    let fault = Some(-i64::from(libc::EFAULT));
    let wanted = match new {
        None => None,
        Some(new) => {
            let mut words = [[0; 8]; 2];
            if sys::read_own_memory(new, words.as_flattened_mut()).is_err() {
                return fault;
            }
            Some(Limit { soft: u64::from_ne_bytes(words[0]), hard: u64::from_ne_bytes(words[1]) })
        }
    };
    if wanted.is_some_and(|wanted| wanted != Limit::UNLIMITED) {
        FINITE.store(true, Ordering::Relaxed);
    }
    let before = match exchange(KINDS[at], wanted.map(|wanted| wanted.wanted(own))) {
        Ok(before) => before.shown(own),
        Err(e) => return Some(-i64::from(e.0)),
    };
    if let Some(old) = old {
        let words = [before.soft.to_ne_bytes(), before.hard.to_ne_bytes()];
        // SAFETY: the program says that it may be written there.
        if unsafe { sys::write_own_memory(old, words.as_flattened()) }.is_err() {
            return fault;
        }
    }
    Some(0)
}

/// Whether another program must be started with other limits than this process has.
pub fn are_finite() -> bool {
    FINITE.load(Ordering::Relaxed)
}

/// Gives the process the soft limits that the program has set, for another program that it executes.
pub fn lower() {
    LOWERED.store(true, Ordering::Relaxed);
    for (at, &kind) in KINDS.iter().enumerate() {
        let own = Own::of(at).soft;
        change(kind, |limit| limit.lowered(own).map(|lowered| [lowered, limit]));
    }
}

/// Takes that back: the execution failed.
#[cold]
pub fn restore() {
    LOWERED.store(false, Ordering::Relaxed);
    for (at, &kind) in KINDS.iter().enumerate() {
        let own = Own::of(at).soft;
        change(kind, |limit| limit.restored(own).map(|restored| [restored, limit]));
    }
}

/// [`restore`], where nobody sees whether an execution has failed before the next call does.
#[inline]
pub fn restore_if_lowered() {
    if LOWERED.load(Ordering::Relaxed) {
        restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 1 << 30;

    #[test]
    fn limits_are_raised_by_what_is_mapped() {
        let limit = Limit { soft: 4 * G, hard: NONE };
        assert_eq!(limit.with_room(2048 * G)[0], Limit { soft: 2052 * G, hard: NONE });
        let both = Limit { soft: 4 * G, hard: 5 * G };
        assert_eq!(both.with_room(G), [Limit { soft: 5 * G, hard: 5 * G }; 2], "there is room below the hard limit");
        assert_eq!(both.with_room(9 * G), [Limit { soft: 13 * G, hard: 14 * G }, Limit { soft: 5 * G, hard: 5 * G }]);
        assert_eq!(Limit::UNLIMITED.with_room(G), [Limit::UNLIMITED; 2]);
        let most = Limit { soft: NONE - 1, hard: NONE };
        assert_eq!(most.with_room(G)[0], most, "no finite limit becomes an infinite one");
    }

    #[test]
    fn the_program_sees_what_it_has_set() {
        for limit in [
            Limit { soft: 0, hard: 0 },
            Limit { soft: 10 * G, hard: 20 * G },
            Limit { soft: G, hard: NONE },
            Limit::UNLIMITED,
        ] {
            let own = Own { soft: 2112 * G, hard: 2176 * G };
            let kernels = limit.wanted(own);
            assert_eq!(kernels.shown(own), limit);
            let lowered = kernels.lowered(2112 * G);
            assert_eq!(lowered.map(|l| l.soft), (limit.soft != NONE).then_some(limit.soft));
            if let Some(lowered) = lowered {
                assert_eq!(lowered.hard, kernels.hard);
                assert_eq!(lowered.restored(2112 * G), Some(kernels));
            }
            assert_eq!(kernels.restored(2112 * G), None);
        }
        assert_eq!(Limit { soft: G, hard: G }.shown(Own { soft: 2 * G, hard: 2 * G }), Limit { soft: 0, hard: 0 });
    }
}
