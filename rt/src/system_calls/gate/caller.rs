//! Where in the program a call comes from.
//!
//! Input: a call. Output: the place, for messages.

use crate::libraries::modules::MODULES;
use crate::libraries::places::{self, FunctionPlace};
use crate::memory::access_control::program;
use crate::system_calls::execution::call::Call;
use crate::system_calls::gate::own_file;

/// Words of the stack that are looked at: the C library's frames are small.
const LOOKED_AT: u64 = 512;

/// The place of a call: its own if it is in the program, else the first caller on the stack that is no library's, nor of a standard library in the program, as
/// far as the words there tell.
pub fn of(call: &Call) -> Option<FunctionPlace> {
    let words = (0..LOOKED_AT).map(|k| call.rsp.wrapping_add(8 * k));
    let words = words.map_while(|at| {
        let mut word = [0; 8];
        program::read(at, &mut word).ok().map(|_| u64::from_ne_bytes(word))
    });
    let words = words.filter(|&word| MODULES.in_program(word) && follows_call(word));
    let mut callers = Some(call.rip).filter(|&at| MODULES.in_program(at)).into_iter().chain(words).peekable();
    let &first = callers.peek()?;
    let at = callers.find(|&at| !places::is_of_standard_library(at)).unwrap_or(first);
    Some(FunctionPlace { at, original: own_file::path().zip(MODULES.old_of_program(at)) })
}

/// Whether a call ends in front of `at`: near, direct, or through a register or memory (SDM volume 2, CALL).
fn follows_call(at: u64) -> bool {
    const LONGEST: usize = 8;
    let mut code = [0; LONGEST];
    if program::read(at.wrapping_sub(LONGEST as u64), &mut code).is_err() {
        return false;
    }
    let is_indirect = |length: usize| {
        let call = &code[LONGEST - length..];
        call[0] == 0xff && call[1] >> 3 & 7 == 2
    };
    code[LONGEST - 5] == 0xe8 || (2..=7).any(is_indirect)
}
