//! PMIx.
//!
//! Input: the environment that the starter gives. Output: a [`Job`]. The library (`libpmix`, 4.2 or later) is loaded at run time. Types, constants and functions are
//! copied by hand from `pmix.h`; `tests/layout.rs` compares them with the header of the machine. Source: the PMIx standard, version 4.2.

use crate::job::client::{Job, StarterClient};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CStr, c_char, c_int};
use std::ptr;

/// The library's name, which says version 2 of its binary interface.
const PMIX: &str = "libpmix.so.2";
/// The oldest version whose structures are those below.
const OLDEST: (u32, u32) = (4, 2);

pub const SUCCESS: c_int = 0;
pub const BOOL: u16 = 1;
pub const STRING: u16 = 3;
pub const UINT32: u16 = 14;
pub const BYTE_OBJECT: u16 = 27;
pub const GLOBAL: u8 = 3;
pub const RANK_WILDCARD: u32 = u32::MAX - 1;
pub const JOB_SIZE: &CStr = c"pmix.job.size";
pub const LOCAL_PEERS: &CStr = c"pmix.lpeers";
pub const COLLECT_DATA: &CStr = c"pmix.collect";

/// `pmix_proc_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Proc {
    pub nspace: [c_char; 256],
    pub rank: u32,
}

/// `pmix_byte_object_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ByteObject {
    pub bytes: *mut c_char,
    pub size: usize,
}

/// What of `pmix_value_t`'s union is used; as large as the largest member.
#[repr(C)]
#[derive(Clone, Copy)]
pub union PmixData {
    pub flag: bool,
    pub uint32: u32,
    pub string: *mut c_char,
    pub bo: ByteObject,
    pub room: [u64; 3],
}

/// `pmix_value_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value {
    pub kind: u16,
    pub data: PmixData,
}

/// `pmix_info_t`
#[repr(C)]
pub struct Info {
    pub key: [c_char; 512],
    pub flags: u32,
    pub value: Value,
}

/// The functions of the library that are used.
#[derive(Clone, Copy)]
struct Functions {
    init: unsafe extern "C" fn(*mut Proc, *const Info, usize) -> c_int,
    finalize: unsafe extern "C" fn(*const Info, usize) -> c_int,
    put: unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int,
    commit: unsafe extern "C" fn() -> c_int,
    fence: unsafe extern "C" fn(*const Proc, usize, *const Info, usize) -> c_int,
    get: unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    get_version: unsafe extern "C" fn() -> *const c_char,
}

/// What the starter's library does for this process.
struct PmixClient {
    functions: Functions,
    me: Proc,
}

/// The environment variable with this process's rank.
pub const RANK: &str = "PMIX_RANK";

/// Whether a starter that speaks PMIx has started this process.
pub fn is_offered() -> bool {
    ["PMIX_NAMESPACE", RANK].iter().all(|name| std::env::var_os(name).is_some())
}

/// Loads the library.
fn load() -> Result<Functions, String> {
    // SAFETY: the initialisers of a library that programs are linked to as a matter of course.
    let opened = unsafe { Library::open(Some(PMIX), RTLD_NOW | RTLD_GLOBAL) }
        .map_err(|e| format!("a node that mpirun starts needs PMIx 4.2 or later (Debian package libpmix2): {e}"))?;
    macro_rules! find {
        ($name:literal) => {
            // SAFETY: the field's type is the header's; the library is never unloaded, since it has threads of its own.
            match unsafe { opened.get($name.as_bytes()) } {
                Ok(symbol) => *symbol,
                Err(_) => return Err(format!("{PMIX} of this host has no {}: PMIx 4.2 or later is needed", $name)),
            }
        };
    }
    let functions = Functions {
        init: find!("PMIx_Init"),
        finalize: find!("PMIx_Finalize"),
        put: find!("PMIx_Put"),
        commit: find!("PMIx_Commit"),
        fence: find!("PMIx_Fence"),
        get: find!("PMIx_Get"),
        error_string: find!("PMIx_Error_string"),
        get_version: find!("PMIx_Get_version"),
    };
    std::mem::forget(opened);
    // SAFETY: a text that the library keeps.
    let text = unsafe { CStr::from_ptr((functions.get_version)()) }.to_string_lossy().into_owned();
    match version(&text) {
        Some(found) if found < OLDEST => {
            Err(format!("{PMIX} of this host is PMIx {}.{}, and 4.2 or later is needed", found.0, found.1))
        }
        _ => Ok(functions),
    }
}

/// Major and minor number in what a library says of itself: `OpenPMIx 4.2.2 (PMIx Standard: …)`.
fn version(text: &str) -> Option<(u32, u32)> {
    let number = text.split([' ', ',']).find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut parts = number.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// Joins the job.
///
/// # Errors
/// The library is not there or too old; the starter does not answer.
pub fn join() -> Result<Job, String> {
    let functions = load()?;
    let mut me = Proc { nspace: [0; 256], rank: 0 };
    // SAFETY: a place for the name; no further wishes.
    let status = unsafe { (functions.init)(&raw mut me, ptr::null(), 0) };
    let client = PmixClient { functions, me };
    client.check("join the job", status)?;
    let all = Proc { rank: RANK_WILDCARD, ..me };
    let size = client.value(&all, JOB_SIZE)?;
    // SAFETY: the kind says which member is set.
    let size = if size.kind == UINT32 { unsafe { size.data.uint32 } } else { 0 };
    let peers = client.value(&all, LOCAL_PEERS)?;
    let mut here = Vec::new();
    if peers.kind == STRING {
        // SAFETY: as above; a text that nobody frees.
        let text = unsafe { CStr::from_ptr(peers.data.string) }.to_string_lossy();
        here = text.split(',').filter_map(|rank| rank.trim().parse().ok()).collect();
    }
    here.sort_unstable();
    Ok(Job { client: Box::new(client), rank: me.rank, size, here })
}

impl PmixClient {
    fn check(&self, what: &str, status: c_int) -> Result<(), String> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: a text that the library keeps, for any number.
        let text = unsafe { CStr::from_ptr((self.functions.error_string)(status)) };
        Err(format!("PMIx cannot {what}: {} ({status})", text.to_string_lossy()))
    }

    /// What a rank, or the starter, has put there. It is never freed: a job has few values, which are used until its end.
    fn value(&self, of: &Proc, key: &CStr) -> Result<Value, String> {
        let mut value: *mut Value = ptr::null_mut();
        // SAFETY: structures of the header's form, a text, and a place for a pointer.
        let status = unsafe { (self.functions.get)(of, key.as_ptr(), ptr::null(), 0, &raw mut value) };
        self.check(&format!("say {} of rank {}", key.to_string_lossy(), of.rank), status)?;
        // SAFETY: the library has set it.
        Ok(unsafe { *value })
    }
}

impl StarterClient for PmixClient {
    fn put(&self, key: &CStr, bytes: &[u8]) -> Result<(), String> {
        let bo = ByteObject { bytes: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
        let mut value = Value { kind: BYTE_OBJECT, data: PmixData { room: [0; 3] } };
        value.data.bo = bo;
        // SAFETY: the library copies the bytes, and does not write to them.
        let status = unsafe { (self.functions.put)(GLOBAL, key.as_ptr(), &raw mut value) };
        self.check("take a value", status)
    }

    fn meet(&self) -> Result<(), String> {
        let mut key = [0; 512];
        for (to, from) in key.iter_mut().zip(COLLECT_DATA.to_bytes()) {
            *to = *from as c_char;
        }
        let mut value = Value { kind: BOOL, data: PmixData { room: [0; 3] } };
        value.data.flag = true;
        let collect = Info { key, flags: 0, value };
        // SAFETY: structures of the header's form; no list of ranks: all.
        let status = unsafe {
            match (self.functions.commit)() {
                SUCCESS => (self.functions.fence)(ptr::null(), 0, &raw const collect, 1),
                failed => failed,
            }
        };
        self.check("wait for all ranks", status)
    }

    fn get(&self, rank: u32, key: &CStr) -> Result<Vec<u8>, String> {
        let value = self.value(&Proc { rank, ..self.me }, key)?;
        if value.kind != BYTE_OBJECT {
            return Err(format!("{} of rank {rank} is not what a rank puts there", key.to_string_lossy()));
        }
        // SAFETY: the kind says which member is set; so many bytes are there, and nobody frees them.
        let bo = unsafe { value.data.bo };
        if bo.size == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts(bo.bytes.cast::<u8>(), bo.size) }.to_vec())
    }

    fn leave(&self) -> Result<(), String> {
        // SAFETY: nothing of the library's is used afterwards.
        let status = unsafe { (self.functions.finalize)(ptr::null(), 0) };
        self.check("leave the job", status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let cases = [
            ("OpenPMIx 4.2.2rc2 (PMIx Standard: 4.1, Stable ABI: 0.0, Provisional ABI: 0.0)", Some((4, 2))),
            ("OpenPMIx 3.2.5, repo rev", Some((3, 2))),
            ("something else", None),
        ];
        for (text, found) in cases {
            assert_eq!(version(text), found, "{text}");
        }
    }
}
