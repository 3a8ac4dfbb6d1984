//! Functions that never return to their callers, by the names under which modules import them.
//!
//! Input: a name. Output: whether a call of it ends there. Pure.
//!
//! Source: C11 7.22.4, POSIX, LSB, Itanium C++ ABI; for Rust, the functions of its standard library whose result is `!`. What
//! `verify` and the search for jump tables both need is the list alone; each draws its own conclusions.

/// Sorted.
const NAMES: &[&str] = &[
    "_Exit",
    "_Unwind_Resume",
    "_ZSt9terminatev",
    "__assert",
    "__assert_fail",
    "__assert_perror_fail",
    "__chk_fail",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_rethrow",
    "__cxa_throw",
    "__cxa_throw_bad_array_new_length",
    "__fortify_fail",
    "__libc_fatal",
    "__libc_start_main",
    "__longjmp_chk",
    "__stack_chk_fail",
    "_exit",
    "_longjmp",
    "abort",
    "err",
    "errx",
    "exit",
    "longjmp",
    "pthread_exit",
    "quick_exit",
    "siglongjmp",
    "svc_exit",
    "thrd_exit",
    "verr",
    "verrx",
];

/// Paths, without the arguments of generic ones.
const RUST: &[&str] = &[
    "alloc::alloc::handle_alloc_error",
    "alloc::raw_vec::capacity_overflow",
    "alloc::raw_vec::handle_error",
    "core::option::expect_failed",
    "core::option::unwrap_failed",
    "core::result::unwrap_failed",
    "core::slice::copy_from_slice_impl::len_mismatch_fail",
    "core::slice::index::slice_end_index_len_fail",
    "core::slice::index::slice_end_index_overflow_fail",
    "core::slice::index::slice_index_fail",
    "core::slice::index::slice_index_order_fail",
    "core::slice::index::slice_start_index_len_fail",
    "core::slice::index::slice_start_index_overflow_fail",
    "core::slice::sort::shared::smallsort::panic_on_ord_violation",
    "core::str::slice_error_fail",
    "core::str::slice_error_fail_rt",
    "std::alloc::rust_oom",
    "std::panic::resume_unwind",
    "std::panicking::begin_panic",
    "std::panicking::panic_with_hook",
    "std::panicking::rust_panic_with_hook",
    "std::process::abort",
    "std::process::exit",
    "std::thread::local::panic_access_error",
];

/// All functions whose paths begin so.
const RUST_FAMILIES: &[&str] = &[
    "core::cell::panic_",
    "core::num::overflow_panic::",
    "core::panicking::assert_failed",
    "core::panicking::assert_matches_failed",
    "core::panicking::panic",
];

/// Whether a function of this name, as the symbol table has it, never returns.
pub fn never_returns(name: &str) -> bool {
    // libstdc++'s helpers that throw on behalf of templates.
    NAMES.binary_search(&name).is_ok() || (name.starts_with("_ZSt") && name.contains("__throw_")) || is_rusts(name)
}

fn is_rusts(name: &str) -> bool {
    let mangled = name.starts_with("_R") || name.starts_with("_ZN");
    if !mangled || !["4core", "5alloc", "3std"].iter().any(|c| name.contains(c)) {
        return false;
    }
    // A C++ name is none of Rust's.
    let Ok(path) = rustc_demangle::try_demangle(name) else { return false };
    // Without hashes.
    let path = format!("{path:#}");
    let plain = path.split("::<").next().unwrap_or(&path);
    RUST.binary_search(&plain).is_ok() || RUST_FAMILIES.iter().any(|f| path.starts_with(f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted_for_the_search() {
        assert!(NAMES.is_sorted() && RUST.is_sorted());
        assert!(never_returns("abort") && never_returns("_ZSt20__throw_length_errorPKc"));
        assert!(!never_returns("fork") && !never_returns("_ZSt4cout"));
    }

    #[test]
    fn rusts_panics_are_known_in_both_manglings() {
        assert!(never_returns("_RNvNtCsgEmfK2I1SDS_4core3str16slice_error_fail"));
        assert!(never_returns("_ZN4core9panicking18panic_bounds_check17h0123456789abcdefE"));
        assert!(never_returns("_ZN4core9panicking13assert_failed17h0123456789abcdefE"));
        // A function of the same module that returns; a part of a path; C++.
        assert!(!never_returns("_ZN4core3str8from_utf817h0123456789abcdefE"));
        assert!(!never_returns("_ZN3app4core3str16slice_error_fail17h0123456789abcdefE"));
        assert!(!never_returns("_ZN4core9panickingEv"));
    }
}
