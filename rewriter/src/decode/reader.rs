//! Decodes instructions of a module again, cheapest in order.
//!
//! Purpose: stages that go through all code want the bytes of an instruction, or its decoding, one after the other. Input: the image and its
//! [`Insns`]. Output: bytes, decoded instructions, and where they stand.
//!
//! Invariant: what has been read is given back to the kernel every [`READ_AT_ONCE`] bytes, so a pass from the beginning of the code to its end
//! keeps little of the input in memory; whatever the order, what is read is right.

use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::read::image::Image;
use iced_x86::{ConstantOffsets, Decoder, DecoderOptions, Instruction};

/// Bytes behind which what a [`Reader`] has read is given back.
const READ_AT_ONCE: usize = 1 << 20;

/// Decodes instructions of a module, cheapest in order: then it keeps little of the input in memory.
pub struct Reader<'x, 'a> {
    image: &'x Image<'a>,
    insns: &'x Insns,
    section: usize,
    /// Where the section begins, from [`Insns::base`], and its bytes.
    from: u32,
    bytes: &'a [u8],
    /// Where what has been read is given back.
    give_back_at: usize,
    decoder: Decoder<'a>,
}

impl<'x, 'a> Reader<'x, 'a> {
    /// Reads anywhere in `insns`.
    pub fn new(image: &'x Image<'a>, insns: &'x Insns) -> Self {
        let decoder = Decoder::with_ip(64, &[], 0, DecoderOptions::NONE);
        let mut reader = Reader { image, insns, section: 0, from: 0, bytes: &[], give_back_at: 0, decoder };
        reader.enter(0);
        reader
    }

    fn enter(&mut self, section: usize) {
        self.section = section;
        self.from = (self.image.exec[section].va - self.insns.base) as u32;
        self.bytes = self.image.exec_bytes(section);
        self.decoder = Decoder::with_ip(64, self.bytes, 0, DecoderOptions::NONE);
        self.give_back_at = READ_AT_ONCE;
    }

    #[cold]
    fn give_back(&mut self, at: usize) {
        self.image.give_back();
        self.give_back_at = at + READ_AT_ONCE;
    }

    /// Offset of `id` in its section, which becomes the current one.
    #[inline]
    fn seek(&mut self, id: InsnId) -> usize {
        let offset = self.insns.offset(id);
        let at = offset.wrapping_sub(self.from) as usize;
        if at < self.bytes.len() {
            if at >= self.give_back_at {
                self.give_back(at);
            }
            return at;
        }
        self.enter(self.image.exec_at(self.insns.va(id)).expect("decoded code lies in a section"));
        (offset - self.from) as usize
    }

    /// The section that holds `id`, and its offset there.
    #[inline]
    pub fn place(&mut self, id: InsnId) -> (usize, usize) {
        let at = self.seek(id);
        (self.section, at)
    }

    /// The bytes from `id` to the end of its section.
    #[inline]
    pub fn tail(&mut self, id: InsnId) -> &'a [u8] {
        let at = self.seek(id);
        &self.bytes[at..]
    }

    /// Decodes `id` into `insn` and returns its bytes.
    pub fn decode(&mut self, id: InsnId, insn: &mut Instruction) -> &'a [u8] {
        let at = self.seek(id);
        self.decoder.set_position(at).expect("the offset lies in the section");
        self.decoder.set_ip(self.insns.va(id).0);
        self.decoder.decode_out(insn);
        &self.bytes[at..at + insn.len()]
    }

    /// Where the fields of the instruction decoded last stand in its bytes.
    pub fn constant_offsets(&self, insn: &Instruction) -> ConstantOffsets {
        self.decoder.get_constant_offsets(insn)
    }
}
