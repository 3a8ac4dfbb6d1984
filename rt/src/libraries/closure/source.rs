//! Where rewritten libraries come from, as the rewriter has said.

use crate::kernel::owned::PerProcess;
use blizzard_contract::{ModuleInfo, closure_strings};
use core::cell::UnsafeCell;
use core::ffi::CStr;

/// Where rewritten libraries come from.
#[derive(Clone, Copy, Debug)]
pub enum LibrarySource {
    /// Libraries are not rewritten.
    Off,
    /// From this folder, relative to the program's.
    Bundle { folder: &'static CStr },
    Cache {
        folder: &'static CStr,
        root: &'static CStr,
        key: &'static CStr,
        tool: &'static CStr,
        /// As the launcher would say it in the environment; empty where the rewriter did not say it.
        original: &'static CStr,
    },
}

pub struct ClosureState {
    pub source: LibrarySource,
    /// The process has rights that whoever started it has not.
    pub secure: bool,
}

struct StateCell(UnsafeCell<ClosureState>);

// SAFETY: written by `init` while the process has one thread and runs no program code, only read afterwards.
unsafe impl Sync for StateCell {}

static STATE: PerProcess<StateCell> =
    PerProcess::new(StateCell(UnsafeCell::new(ClosureState { source: LibrarySource::Off, secure: false })));

pub fn state() -> &'static ClosureState {
    // SAFETY: see `StateCell`.
    unsafe { &*STATE.0.get() }
}

/// Reads what the rewriter said. Errors with the text that makes no sense.
///
/// # Errors
/// The first string, when it is not one of [`closure_strings`] with its arguments.
///
/// # Safety
/// Called once, before the program runs; `info` and `bias` describe the loaded program.
pub unsafe fn init(info: &ModuleInfo, bias: u64, secure: bool) -> Result<(), &'static CStr> {
    let bytes: &'static [u8] = if info.closure_va == 0 {
        &[]
    } else {
        // SAFETY: the rewriter stores that many bytes there.
        unsafe {
            core::slice::from_raw_parts(info.closure_va.wrapping_add(bias) as *const u8, info.closure_bytes as usize)
        }
    };
    let source = parse(bytes)?;
    // SAFETY: see `StateCell`.
    unsafe { *STATE.0.get() = ClosureState { source, secure } };
    Ok(())
}

fn parse(mut bytes: &'static [u8]) -> Result<LibrarySource, &'static CStr> {
    if bytes.is_empty() {
        return Ok(LibrarySource::Off);
    }
    let mut next = || {
        let text = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
        bytes = bytes.get(text.to_bytes_with_nul().len()..).unwrap_or_default();
        text
    };
    let kind = next();
    let source = if kind.to_bytes() == closure_strings::BUNDLE.as_bytes() {
        LibrarySource::Bundle { folder: next() }
    } else if kind.to_bytes() == closure_strings::CACHE.as_bytes() {
        LibrarySource::Cache { folder: next(), root: next(), key: next(), tool: next(), original: next() }
    } else {
        return Err(kind);
    };
    Ok(source)
}

/// Whether libraries are rewritten.
pub fn active() -> bool {
    !matches!(state().source, LibrarySource::Off)
}

/// Whether libraries are beside the program.
pub fn is_bundle() -> bool {
    matches!(state().source, LibrarySource::Bundle { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strings_are_told_apart() {
        assert!(matches!(parse(b""), Ok(LibrarySource::Off)));
        assert!(matches!(parse(b"bundle\0lib\0"), Ok(LibrarySource::Bundle { folder }) if folder == c"lib"));
        let Ok(LibrarySource::Cache { folder, root, key, tool, original }) =
            parse(b"cache\0/c/i\0/c\0k\0/bin/tool\0BLIZZARD_EXE=/bin/prog\0")
        else {
            panic!("not a cache");
        };
        assert_eq!((folder, root, key, tool), (c"/c/i", c"/c", c"k", c"/bin/tool"));
        assert_eq!(original, c"BLIZZARD_EXE=/bin/prog");
        assert_eq!(parse(b"other\0").unwrap_err(), c"other");
        // What is cut off is empty, not something else.
        assert!(matches!(parse(b"bundle"), Err(kind) if kind.is_empty()));
    }
}
