//! The access tag of a block.
//!
//! Input: a byte of the tag table. Output: what it allows. Pure.
//!
//! Source: Tempest 1.2.1, section 2 (tags); `blizzard_contract` has the bytes.

use blizzard_contract as contract;

/// The access tag of a block. The discriminants are the bytes of the tag table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Tag {
    Writable = contract::TAG_WRITABLE,
    ReadOnly = contract::TAG_READONLY,
    Invalid = contract::TAG_INVALID,
    /// Not accessible, and a request for the block is outstanding.
    Busy = contract::TAG_BUSY,
}

impl Tag {
    /// `None` for a byte that is no tag.
    pub const fn from_byte(byte: u8) -> Option<Tag> {
        match byte {
            contract::TAG_WRITABLE => Some(Tag::Writable),
            contract::TAG_READONLY => Some(Tag::ReadOnly),
            contract::TAG_INVALID => Some(Tag::Invalid),
            contract::TAG_BUSY => Some(Tag::Busy),
            _ => None,
        }
    }

    pub const fn byte(self) -> u8 {
        self as u8
    }

    pub const fn allows_load(self) -> bool {
        self.byte() & contract::TAG_NO_LOAD == 0
    }

    pub const fn allows_store(self) -> bool {
        self.byte() & contract::TAG_NO_STORE == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Tag;

    #[test]
    fn bytes_round_trip() {
        for byte in 0..=255 {
            assert_eq!(Tag::from_byte(byte).map(Tag::byte), [0, 1, 3, 7].contains(&byte).then_some(byte));
        }
    }
}
