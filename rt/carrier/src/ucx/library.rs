//! Loading UCX.
//!
//! Input: the machine's libraries. Output: [`Library`], or one line that says what is missing and which package brings it.

use crate::ucx::bindings::{API_MAJOR, API_MINOR, Functions};
use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CStr, c_void};

/// The library's name, which says version 1 of its binary interface.
const UCP: &str = "libucp.so.0";

/// UCX, loaded for as long as the process runs: it has threads and handlers of its own, which would outlive it.
pub struct Library {
    pub functions: Functions,
}

impl Library {
    /// Loads it.
    ///
    /// # Errors
    /// It is not there, or too old.
    pub fn load() -> Result<Library, String> {
        // SAFETY: the initialisers of UCX, which programs are linked to as a matter of course.
        let opened = unsafe { Opened::open(Some(UCP), RTLD_NOW | RTLD_GLOBAL) };
        let opened = opened.map_err(|e| {
            format!("a run on several hosts needs UCX 1.13 or later (Debian package libucx0) on each of them: {e}")
        })?;
        let find = |name: &str| {
            // SAFETY: only the address is taken.
            let symbol = unsafe { opened.get::<*mut c_void>(name.as_bytes()) };
            symbol.ok().map(|symbol| symbol.into_raw()).filter(|address| !address.is_null())
        };
        // SAFETY: the addresses are those of the library's functions; it is never unloaded.
        let functions = unsafe { Functions::find(find) }
            .map_err(|name| format!("{UCP} of this host has no function {name}: UCX 1.13 or later is needed"))?;
        std::mem::forget(opened);
        let library = Library { functions };
        match library.version() {
            version if version >= (API_MAJOR, API_MINOR) => Ok(library),
            (major, minor) => Err(format!("{UCP} of this host is UCX {major}.{minor}, and 1.13 or later is needed")),
        }
    }

    /// Major and minor version.
    pub fn version(&self) -> (u32, u32) {
        let (mut major, mut minor, mut release) = (0, 0, 0);
        // SAFETY: three places for numbers.
        unsafe { (self.functions.get_version)(&raw mut major, &raw mut minor, &raw mut release) };
        (major, minor)
    }

    /// What a status means, in UCX's words.
    pub fn text(&self, status: i32) -> String {
        // SAFETY: a text that the library keeps, for any number.
        let text = unsafe { CStr::from_ptr((self.functions.status_string)(status)) };
        text.to_string_lossy().into_owned()
    }
}
