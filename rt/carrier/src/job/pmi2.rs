//! PMI-2: what Slurm speaks where it has no plugin for PMIx.
//!
//! Input: the environment that the starter gives. Output: a [`Job`]. The library (`libpmi2`) is loaded at run time. A value is text, and short: it goes in pieces, in
//! hexadecimal, each under a key of its own; all ranks share the keys. Source: `pmi2.h` of Slurm 22.05; the PMI-2 API of MPICH.

use crate::job::client::{Job, StarterClient};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Write as _;
use std::os::fd::BorrowedFd;

/// The library's names: Slurm's own.
const LIBRARIES: [&str; 2] = ["libpmi2.so.0", "libpmi2.so"];

const SUCCESS: c_int = 0;
/// `PMI2_MAX_VALLEN`, `PMI2_MAX_ATTRVALUE`
const VALUE_BYTES: usize = 1024;
/// Bytes of a piece: two digits each, and room for the rest of what goes over the wire.
const PIECE: usize = 400;

/// The environment variable with this process's rank.
pub const RANK: &str = "PMI_RANK";
/// The one with the descriptor that leads to the starter.
const DESCRIPTOR: &str = "PMI_FD";

/// The functions of the library that are used.
#[derive(Clone, Copy)]
struct Functions {
    init: unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int, *mut c_int) -> c_int,
    finalize: unsafe extern "C" fn() -> c_int,
    attribute: unsafe extern "C" fn(*const c_char, *mut c_char, c_int, *mut c_int) -> c_int,
    put: unsafe extern "C" fn(*const c_char, *const c_char) -> c_int,
    fence: unsafe extern "C" fn() -> c_int,
    get: unsafe extern "C" fn(*const c_char, c_int, *const c_char, *mut c_char, c_int, *mut c_int) -> c_int,
}

struct Pmi2Client {
    functions: Functions,
    rank: u32,
}

/// Whether a starter that speaks PMI-2 has started this process.
pub fn is_offered() -> bool {
    [RANK, DESCRIPTOR].iter().all(|name| std::env::var_os(name).is_some())
}

/// Loads the library.
fn load() -> Result<Functions, String> {
    // SAFETY: the initialisers of a library that programs are linked to as a matter of course.
    let open = |name: &&str| unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.ok();
    let opened = LIBRARIES
        .iter()
        .find_map(open)
        .ok_or("a node that srun starts with PMI-2 needs libpmi2 (Debian package libpmi2-0), or `srun --mpi=pmix`")?;
    macro_rules! find {
        ($name:literal) => {
            // SAFETY: the field's type is the header's; the library is never unloaded.
            match unsafe { opened.get($name.as_bytes()) } {
                Ok(symbol) => *symbol,
                Err(_) => return Err(format!("libpmi2 of this host has no {}", $name)),
            }
        };
    }
    let functions = Functions {
        init: find!("PMI2_Init"),
        finalize: find!("PMI2_Finalize"),
        attribute: find!("PMI2_Info_GetJobAttr"),
        put: find!("PMI2_KVS_Put"),
        fence: find!("PMI2_KVS_Fence"),
        get: find!("PMI2_KVS_Get"),
    };
    std::mem::forget(opened);
    Ok(functions)
}

/// Joins the job.
///
/// # Errors
/// The library is not there; the starter does not answer, or does not say which ranks share a host.
pub fn join() -> Result<Job, String> {
    let functions = load()?;
    let (mut spawned, mut size, mut rank, mut number) = (0, 0, 0, 0);
    // SAFETY: places for four numbers.
    let status = unsafe { (functions.init)(&raw mut spawned, &raw mut size, &raw mut rank, &raw mut number) };
    check("join the job", status)?;
    keep_descriptor();
    let (rank, size) = (rank.max(0).cast_unsigned(), size.max(0).cast_unsigned());
    let client = Pmi2Client { functions, rank };
    let mapping = client.attribute(c"PMI_process_mapping")?;
    let hosts = hosts_of(&mapping, size).ok_or_else(|| format!("PMI-2 says of the ranks' hosts {mapping:?}"))?;
    let own = hosts.get(rank as usize).copied();
    let here = (0..size).zip(&hosts).filter(|&(_, host)| Some(*host) == own).map(|(rank, _)| rank).collect();
    Ok(Job { client: Box::new(client), rank, size, here })
}

/// The program gets no descriptor that leads to the starter.
fn keep_descriptor() {
    let Some(descriptor) = std::env::var(DESCRIPTOR).ok().and_then(|text| text.parse().ok()) else { return };
    // SAFETY: the starter has opened it for this process; the library never closes it.
    let starter = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let _ = rustix::io::fcntl_setfd(starter, rustix::io::FdFlags::CLOEXEC);
}

/// The number of each rank's host, in `(vector,(first host,hosts,ranks of each),…)`, which is repeated until there are `size` ranks.
fn hosts_of(mapping: &str, size: u32) -> Option<Vec<u32>> {
    let blocks = mapping.trim().strip_prefix("(vector,")?.strip_suffix(')')?;
    let mut one_round = Vec::new();
    for block in blocks.split_terminator(')') {
        let numbers = block.trim_start_matches(',').strip_prefix('(')?;
        let numbers: Vec<u32> = numbers.split(',').map(|n| n.trim().parse().ok()).collect::<Option<_>>()?;
        let &[first, hosts, ranks] = numbers.as_slice() else { return None };
        for host in first..first.checked_add(hosts)? {
            let room = (size as usize).saturating_sub(one_round.len());
            if room == 0 {
                break;
            }
            one_round.extend(std::iter::repeat_n(host, room.min(ranks as usize)));
        }
    }
    (!one_round.is_empty()).then(|| one_round.iter().copied().cycle().take(size as usize).collect())
}

fn check(what: &str, status: c_int) -> Result<(), String> {
    if status == SUCCESS { Ok(()) } else { Err(format!("PMI-2 cannot {what}: error {status}")) }
}

/// The key of a piece.
fn key_of(rank: u32, key: &CStr, piece: usize) -> CString {
    CString::new(format!("{}.{rank}.{piece}", key.to_string_lossy())).unwrap_or_default()
}

/// Pieces of hexadecimal text. The first begins with their number.
fn pieces(bytes: &[u8]) -> Vec<String> {
    let mut pieces: Vec<String> = bytes
        .chunks(PIECE)
        .map(|chunk| {
            chunk.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        })
        .collect();
    let first = pieces.first().cloned().unwrap_or_default();
    let count = pieces.len().max(1);
    pieces.resize(count, String::new());
    pieces[0] = format!("{count} {first}");
    pieces
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

impl Pmi2Client {
    fn attribute(&self, name: &CStr) -> Result<String, String> {
        let mut room = [0u8; VALUE_BYTES];
        let mut found = 0;
        // SAFETY: a text, room of that size, and a place for a number.
        let status = unsafe {
            (self.functions.attribute)(name.as_ptr(), room.as_mut_ptr().cast(), VALUE_BYTES as c_int, &raw mut found)
        };
        check(&format!("say {}", name.to_string_lossy()), status)?;
        let text = CStr::from_bytes_until_nul(&room).ok().filter(|_| found != 0);
        text.map(|text| text.to_string_lossy().into_owned())
            .ok_or_else(|| format!("PMI-2 has no {}", name.to_string_lossy()))
    }

    fn piece(&self, rank: u32, key: &CStr, piece: usize) -> Result<String, String> {
        let mut room = [0u8; VALUE_BYTES + 1];
        let mut length = 0;
        let name = key_of(rank, key, piece);
        // SAFETY: a text, room of that size, and a place for a number; without a job's name it is this one.
        let status = unsafe {
            let room = room.as_mut_ptr().cast();
            (self.functions.get)(std::ptr::null(), -1, name.as_ptr(), room, VALUE_BYTES as c_int, &raw mut length)
        };
        check(&format!("say {}", name.to_string_lossy()), status)?;
        let text = CStr::from_bytes_until_nul(&room).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }
}

impl StarterClient for Pmi2Client {
    fn put(&self, key: &CStr, bytes: &[u8]) -> Result<(), String> {
        for (number, piece) in pieces(bytes).into_iter().enumerate() {
            let (key, piece) = (key_of(self.rank, key, number), CString::new(piece).unwrap_or_default());
            // SAFETY: two texts, which the library copies.
            let status = unsafe { (self.functions.put)(key.as_ptr(), piece.as_ptr()) };
            check("take a value", status)?;
        }
        Ok(())
    }

    fn meet(&self) -> Result<(), String> {
        // SAFETY: the job was joined.
        check("wait for all ranks", unsafe { (self.functions.fence)() })
    }

    fn get(&self, rank: u32, key: &CStr) -> Result<Vec<u8>, String> {
        let wrong = || format!("{} of rank {rank} is not what a rank puts there", key.to_string_lossy());
        let text = self.piece(rank, key, 0)?;
        let (count, digits) = text.split_once(' ').ok_or_else(wrong)?;
        let count: usize = count.parse().map_err(|_| wrong())?;
        let mut bytes = bytes_of(digits).ok_or_else(wrong)?;
        for number in 1..count {
            bytes.extend(bytes_of(&self.piece(rank, key, number)?).ok_or_else(wrong)?);
        }
        Ok(bytes)
    }

    fn leave(&self) -> Result<(), String> {
        // SAFETY: nothing of the library's is used afterwards.
        check("leave the job", unsafe { (self.functions.finalize)() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_ranks_are_read() {
        let cases = [
            ("(vector,(0,1,4))", 4, Some(vec![0, 0, 0, 0])),
            ("(vector,(0,2,2))", 4, Some(vec![0, 0, 1, 1])),
            ("(vector,(0,1,3),(1,1,1))", 4, Some(vec![0, 0, 0, 1])),
            // Dealt like cards.
            ("(vector,(0,2,1))", 5, Some(vec![0, 1, 0, 1, 0])),
            ("(vector,(0,1,4000000000))", 2, Some(vec![0, 0])),
            ("(vector,(0,1))", 2, None),
            ("(vector,)", 2, None),
            ("(vector,(4294967295,4,1))", 2, None),
            ("", 1, None),
        ];
        for (mapping, size, hosts) in cases {
            assert_eq!(hosts_of(mapping, size), hosts, "{mapping}");
        }
    }

    #[test]
    fn values_come_back_from_their_pieces() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE] {
            let bytes: Vec<u8> = (0..length).map(|k| (k * 7) as u8).collect();
            let pieces = pieces(&bytes);
            assert!(pieces.iter().all(|piece| piece.len() < VALUE_BYTES - 100));
            let (count, first) = pieces[0].split_once(' ').unwrap();
            assert_eq!(count.parse(), Ok(pieces.len()));
            let digits = [first, &pieces[1..].concat()].concat();
            assert_eq!(bytes_of(&digits), Some(bytes));
        }
        assert_eq!(bytes_of("0g"), None);
    }
}
