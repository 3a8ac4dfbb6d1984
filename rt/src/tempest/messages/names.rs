//! Names of message handlers on the wire (Tempest 1.2.1, section 3.3.2).
//!
//! Purpose: a handler is named by its module and its place there, never by an address, and a name is looked up in the module's own
//! records before it is believed ([`MODULES`]). Looking up takes a system call, so both directions are remembered.
//! Input: addresses of functions, old or new ones (the rewriter's `DESIGN.md`, "New addresses"); names. Output: names, new addresses.
//! **Invariant**: what is remembered is used only while the table of modules is the same.

use crate::kernel::owned::PerNode;
use crate::libraries::modules::{MODULES, Modules};
use crate::tempest::owner::TURN;

const PLACES: usize = 64;

#[derive(Clone, Copy)]
struct Known {
    key: u64,
    value: u64,
    /// Of the table of modules.
    version: u64,
}

const UNKNOWN: Known = Known { key: u64::MAX, value: 0, version: u64::MAX };

/// What is remembered, by the low bits of the key.
pub struct HandlerNames {
    names: [Known; PLACES],
    entries: [Known; PLACES],
}

/// What belongs to `key`, looked up if it is not known.
#[inline]
fn known(table: &mut [Known; PLACES], key: u64, look_up: fn(&Modules, u64) -> Option<u64>) -> Option<u64> {
    // Functions are 16-byte aligned as a rule.
    let known = &mut table[(key >> 4) as usize % PLACES];
    if known.key == key && known.version == MODULES.version() { Some(known.value) } else { learn(known, key, look_up) }
}

#[inline(never)]
fn learn(known: &mut Known, key: u64, look_up: fn(&Modules, u64) -> Option<u64>) -> Option<u64> {
    let version = MODULES.version();
    let value = look_up(&MODULES, key)?;
    *known = Known { key, value, version };
    Some(value)
}

impl HandlerNames {
    pub const fn new() -> HandlerNames {
        HandlerNames { names: [UNKNOWN; PLACES], entries: [UNKNOWN; PLACES] }
    }
}

static NAMES: PerNode<HandlerNames> = PerNode::new(&TURN);

pub fn start() {
    NAMES.init(HandlerNames::new());
}

/// The name of the function at `address`; `None` when that is no rewritten code.
#[inline]
pub fn of(address: u64) -> Option<u64> {
    if cfg!(test) {
        // There is no rewritten code: each function has its address for a name.
        return Some(address);
    }
    NAMES.with(|names| known(&mut names.names, address, Modules::name_of))
}

/// The new code of the function with that name.
#[inline]
pub fn resolve(name: u64) -> Option<u64> {
    if cfg!(test) {
        return Some(name);
    }
    NAMES.with(|names| known(&mut names.entries, name, Modules::resolve))
}
