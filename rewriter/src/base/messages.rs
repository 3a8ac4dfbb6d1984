//! What commands say to the user besides their output: errors, warnings, notes, details.
//!
//! Input: texts, and how much the user wants to read (`-q`, `-v`, `--color`). Output: lines on standard error that begin with `blizzard: `.
//! **Invariant**: whoever reads there or not, the exit status says the same.

use crate::base::error::plain;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// How much is said. Errors always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Errors only.
    Quiet,
    /// Warnings and notes, too.
    Usual,
    /// Also what is done meanwhile.
    Verbose,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Usual as u8);
static COLOUR: AtomicBool = AtomicBool::new(false);

/// When messages have colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

impl Colour {
    /// Whether what is written to `to` has colours.
    pub fn is_on(self, to: &impl IsTerminal) -> bool {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match self {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => {
                to.is_terminal() && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
            }
        }
    }
}

/// Sets how messages of this process look from now on.
pub fn set_up(level: Level, colour: Colour) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    COLOUR.store(colour.is_on(&std::io::stderr()), Ordering::Relaxed);
}

/// Whether messages have colours.
pub fn in_colour() -> bool {
    COLOUR.load(Ordering::Relaxed)
}

/// Whether the user wants to read errors only.
pub fn is_quiet() -> bool {
    !is_shown(Level::Usual)
}

fn is_shown(level: Level) -> bool {
    LEVEL.load(Ordering::Relaxed) >= level as u8
}

/// Writes a line to standard error, `blizzard: ` in front, without the numbers of the system's errors.
pub fn tell(text: &str) {
    let text = plain(text);
    // In one piece: lines of several processes stay whole.
    let _ = std::io::stderr().write_all(format!("blizzard: {}\n", text.trim_end_matches('\n')).as_bytes());
}

/// A word that says what kind of message follows, in its colour (an SGR parameter of ECMA-48).
fn headed(word: &str, colour: &str, text: &str) {
    match in_colour() {
        true => tell(&format!("\x1b[1;{colour}m{word}:\x1b[0m {text}")),
        false => tell(&format!("{word}: {text}")),
    }
}

/// Something did not work.
pub fn error(text: &str) {
    headed("error", "31", text);
}

/// Something works, but not as the user may think.
pub fn warning(text: &str) {
    if is_shown(Level::Usual) {
        headed("warning", "33", text);
    }
}

/// Something that is good to know.
pub fn note(text: &str) {
    if is_shown(Level::Usual) {
        headed("note", "36", text);
    }
}

/// What is done, for whoever wants to know.
pub fn detail(text: &str) {
    if is_shown(Level::Verbose) {
        tell(text);
    }
}
