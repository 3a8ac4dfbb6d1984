//! A second cache for those who cannot write to the one that the program was rewritten with.
//!
//! Somebody may start a program that another user has rewritten. Input: who this process is. Output: the folder `/tmp/blizzard-cache-UID`, open.
//! **Invariant**: it is used only by a process that its user could change anyway: whatever else runs as that user can write there, and
//! must not get the rights, the memory or the descriptors of a server by it. A process that has become another user, or has a capability, a
//! group or a saved user id that the user has not, takes no libraries from there.
//! Source: ptrace(2), "Ptrace access mode checking"; PR_SET_DUMPABLE in prctl(2).

use crate::kernel::sys::{self, Errno};
use crate::libraries::closure::paths::{Fd, FdPath};
use crate::libraries::closure::source::state;
use core::fmt::{self, Write};

/// What the kernel shows of users that a name space does not map.
const OVERFLOW_UID: u32 = 65534;
/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Name of the folder for the cache of `user`.
pub fn root(to: &mut impl Write, user: u32) -> fmt::Result {
    write!(to, "/tmp/blizzard-cache-{user}")
}

/// Whether the user that this process runs as could change it anyway.
pub fn is_allowed() -> bool {
    !state().secure && may_be_looked_into() && has_one_identity() && (user() == Some(0) || has_no_capabilities())
}

fn user() -> Option<u32> {
    // SAFETY: no memory is touched.
    unsafe { sys::call(libc::SYS_geteuid, [0; 6]) }.ok().map(|user| user as u32)
}

/// A process that has changed its user loses this.
fn may_be_looked_into() -> bool {
    // SAFETY: no memory is touched.
    let dumpable = unsafe { sys::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
    dumpable == Ok(1)
}

fn has_one_identity() -> bool {
    [libc::SYS_getresuid, libc::SYS_getresgid].into_iter().all(|call| {
        let mut ids = [0u32; 3];
        let first = ids.as_mut_ptr() as u64;
        // SAFETY: the kernel writes three words.
        let asked = unsafe { sys::call(call, [first, first + 4, first + 8, 0, 0, 0]) };
        asked.is_ok() && ids[0] == ids[1] && ids[1] == ids[2]
    })
}

fn has_no_capabilities() -> bool {
    let header = [CAPABILITY_VERSION, 0];
    // Effective, permitted and inheritable ones, twice.
    let mut sets = [0u32; 6];
    let args = [header.as_ptr() as u64, sets.as_mut_ptr() as u64, 0, 0, 0, 0];
    // SAFETY: two words are read, six are written.
    let asked = unsafe { sys::call(libc::SYS_capget, args) };
    asked.is_ok() && sets[1] == 0 && sets[4] == 0
}

/// Whether nobody but this process's user and root can have made the file that `stat` describes.
pub fn is_trusted(stat: &libc::stat) -> bool {
    (stat.st_uid == 0 || Some(stat.st_uid) == user()) && stat.st_mode & 0o022 == 0
}

/// The cache of this process's user, if there is one and it may be used.
pub fn folder() -> Result<Fd, Errno> {
    let refused = Errno(libc::EPERM);
    let user = user().filter(|&user| user != OVERFLOW_UID && is_allowed()).ok_or(refused)?;
    let mut path = FdPath::new();
    root(&mut path, user).map_err(|fmt::Error| Errno(libc::ENAMETOOLONG))?;
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let folder = sys::open(path.as_cstr(), flags).map(Fd)?;
    let stat = sys::fstat(folder.0)?;
    if stat.st_uid != user || stat.st_mode & 0o077 != 0 {
        return Err(refused);
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a child that ends by `then`.
    fn in_child(then: impl FnOnce() -> bool) -> bool {
        // SAFETY: fork; the child ends by exit_group.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            sys::exit_group(i32::from(!then()));
        }
        crate::libraries::closure::rewriting::wait_for(pid as u64) == Ok(0)
    }

    #[test]
    fn a_process_that_its_user_cannot_change_has_no_cache_of_that_user() {
        // SAFETY: no memory is touched.
        let undumpable = || unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) } == 0;
        assert!(in_child(|| is_allowed() || user() != Some(0) && !has_no_capabilities()));
        assert!(in_child(|| undumpable() && !is_allowed() && folder().is_err()));
        if user() != Some(0) {
            println!("not tried: only root can become another user");
            return;
        }
        // SAFETY: these are the child's own; it is looked into again, as after an execve.
        let becomes = |real: u32, effective: u32, saved: u32| unsafe {
            libc::setresuid(real, effective, saved) == 0 && libc::prctl(libc::PR_SET_DUMPABLE, 1) == 0
        };
        assert!(in_child(|| becomes(61_190, 61_190, 61_190) && is_allowed()));
        assert!(in_child(|| becomes(61_190, 61_190, 0) && !is_allowed()));
        assert!(in_child(|| becomes(0, 61_190, 0) && !is_allowed()));
        // SAFETY: as above.
        let keeps_capabilities = || unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1) } == 0;
        assert!(in_child(|| keeps_capabilities() && becomes(61_190, 61_190, 61_190) && !is_allowed()));
        // SAFETY: as above.
        let has_group = || unsafe { libc::setresgid(61_190, 0, 0) } == 0;
        assert!(in_child(|| has_group() && becomes(61_190, 61_190, 61_190) && !is_allowed()));
    }

    #[test]
    fn what_others_can_have_made_is_not_trusted() {
        let stat = |uid: u32, mode: u32| {
            // SAFETY: integers only.
            let mut stat: libc::stat = unsafe { core::mem::zeroed() };
            (stat.st_uid, stat.st_mode) = (uid, mode);
            stat
        };
        let own = user().unwrap();
        assert!(is_trusted(&stat(own, 0o700)) && is_trusted(&stat(0, 0o755)));
        assert!(!is_trusted(&stat(own + 1, 0o700)) && !is_trusted(&stat(own, 0o722)) && !is_trusted(&stat(0, 0o775)));
    }
}
