//! Names of message handlers on the wire (Tempest 1.2.1, section 3.3.2).
//!
//! Purpose: a handler is named by its module and its place there, never by an address, and a name is looked up in the module's own
//! records before it is believed ([`MODULES`]). Looking up takes a system call, so both directions are remembered.
//! Input: old addresses, names. Output: names, new addresses.
//! **Invariant**: what is remembered is used only while the same new code is there.

use crate::modules::MODULES;

const PLACES: usize = 64;

#[derive(Clone, Copy)]
struct Known {
    key: u64,
    value: u64,
    /// Address of new code that must still be there.
    entry: u64,
}

const UNKNOWN: Known = Known { key: u64::MAX, value: 0, entry: 0 };

/// What is remembered, by the low bits of the key.
pub struct Names {
    names: [Known; PLACES],
    entries: [Known; PLACES],
}

fn place(table: &mut [Known; PLACES], key: u64) -> &mut Known {
    // Functions are 16-byte aligned as a rule.
    &mut table[(key >> 4) as usize % PLACES]
}

fn is_valid(known: &Known, key: u64) -> bool {
    known.key == key && MODULES.in_new_code(known.entry)
}

impl Names {
    pub(super) const fn new() -> Names {
        Names { names: [UNKNOWN; PLACES], entries: [UNKNOWN; PLACES] }
    }

    /// The name of the function at `address`; `None` when that is no rewritten code.
    pub fn of(&mut self, address: u64) -> Option<u64> {
        let known = place(&mut self.names, address);
        if !is_valid(known, address) {
            let (name, entry) = (MODULES.name_of(address)?, MODULES.entry(address)?);
            *known = Known { key: address, value: name, entry };
        }
        Some(known.value)
    }

    /// The new code of the function with that name.
    pub fn resolve(&mut self, name: u64) -> Option<u64> {
        let known = place(&mut self.entries, name);
        if !is_valid(known, name) {
            *known = Known { key: name, value: 0, entry: MODULES.resolve(name)? };
        }
        Some(known.entry)
    }
}
