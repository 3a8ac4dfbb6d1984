//! Copies of structures that lead to shared memory.
//!
//! Purpose: the kernel may have to be given other addresses of shared memory than the program has. Where such an address stands inside a structure, the
//! kernel gets a copy of that structure, with its own addresses. Input: structures that the visitor reads, and their pointers. Output: the
//! address that the kernel is given; behind the call, the program gets what the kernel has written.
//! **Invariants**
//! * The program's structure is copied only where one of its pointers becomes another one. No pointer of the kernel's comes back.
//! * Copies are of one call, the last that was looked at, and are there until the next.
//! * Where all addresses are the program's (see [`COPIED`]), there is no code for this.

use crate::memory::access_control::program;

/// Whether pointers may become others.
pub const COPIED: bool = cfg!(any(test, feature = "guard"));

/// Words that the copies of one call have: the vectors of 1024 messages with 8 parts each, or the arguments of a new program, 32,768 in all.
const WORDS: usize = if COPIED { 1 << 15 } else { 0 };
/// Bytes of them.
pub const BYTES: usize = 8 * WORDS;

/// The memory of one call's copies.
pub struct CallCopies {
    words: [u64; WORDS],
    used: usize,
    written: Option<Written>,
}

/// Fields that the kernel writes in each element of a structure: the bytes in front, and its own.
pub type Fields = &'static [(usize, usize)];

/// A copy whose fields the program gets behind the call.
#[derive(Clone, Copy)]
struct Written {
    /// Where it begins.
    word: usize,
    /// The program's structure.
    addr: u64,
    fields: Fields,
    element_bytes: usize,
    /// It is an array of so many, and the call's result says how many of them have been used; 0: it is none. (So `None` of all this is zeros, of which a
    /// file has no bytes.)
    elements: usize,
}

/// A structure of the program, and the word at which its copy begins if there is one.
pub struct Structure {
    pub addr: u64,
    pub bytes: u64,
    pub word: Option<usize>,
}

impl Structure {
    pub fn at(addr: u64, bytes: u64) -> Structure {
        Structure { addr, bytes, word: None }
    }
}

/// What makes a look at a call one that asks what the kernel is given.
pub struct Given<'a> {
    pub copies: &'a mut CallCopies,
    /// The kernel's address of the program's memory.
    pub address: &'a dyn Fn(u64) -> u64,
}

impl CallCopies {
    pub const EMPTY: CallCopies = CallCopies { words: [0; WORDS], used: 0, written: None };

    /// Another call.
    pub fn clear(&mut self) {
        (self.used, self.written) = (0, None);
    }

    /// Makes room for a copy. Where it begins, and its bytes; `None`: there is no room.
    pub fn make(&mut self, bytes: u64) -> Option<(usize, &mut [u8])> {
        let (word, bytes) = (self.used, usize::try_from(bytes).ok()?);
        let room = self.words.get_mut(word..word.checked_add(bytes.div_ceil(8))?)?;
        self.used += room.len();
        // SAFETY: bytes of those words.
        Some((word, unsafe { core::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), bytes) }))
    }

    /// Replaces a word.
    pub fn set(&mut self, word: usize, value: u64) {
        self.words[word] = value;
    }

    /// Where the kernel finds a copy.
    pub fn address(&self, word: usize) -> u64 {
        self.words[word..].as_ptr() as u64
    }

    /// The kernel writes `fields` of each element of the copy at `word`.
    pub fn note_written(&mut self, structure: &Structure, word: usize, fields: Fields, elements: Option<u64>) {
        let elements = elements.unwrap_or(0) as usize;
        let element_bytes = structure.bytes as usize / elements.max(1);
        self.written = Some(Written { word, addr: structure.addr, fields, element_bytes, elements });
    }

    /// Whether the program gets something behind the call.
    pub fn are_written(&self) -> bool {
        self.written.is_some()
    }

    /// Gives the program what the kernel has written, once. The call's result.
    ///
    /// # Safety
    /// The call whose copies these are has just returned `result`, and nothing that it touches has become inaccessible.
    pub unsafe fn give_back(&mut self, result: i64) -> i64 {
        let Some(written) = self.written.take().filter(|_| result >= 0) else { return result };
        let elements = if written.elements == 0 { 1 } else { written.elements.min(result as usize) };
        let from = self.words[written.word..].as_ptr().cast::<u8>();
        for element in 0..elements {
            for (front, bytes) in written.fields {
                let at = element * written.element_bytes + front;
                // SAFETY: inside the copy; the program passes the structure to be written.
                let done = unsafe {
                    let bytes = core::slice::from_raw_parts(from.add(at), *bytes);
                    program::write(written.addr + at as u64, bytes)
                };
                if done.is_err() {
                    return -i64::from(libc::EFAULT);
                }
            }
        }
        result
    }
}
