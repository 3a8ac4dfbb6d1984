//! The libraries that nearly every program of this system loads: rewritten with all checks, the audit finds nothing open in them.

use blizzard::options::Options;
use blizzard::pipeline;
use blizzard::verify::verify_with;
use std::process::Command;

/// Rewrites and audits the library that gcc finds by this name; it has at least so many checked loads and stores.
fn audited(name: &str, loads: u64, stores: u64) {
    let of_gcc = Command::new("gcc").arg(format!("-print-file-name={name}")).output().unwrap();
    let path = String::from_utf8(of_gcc.stdout).unwrap();
    let input = std::fs::read(path.trim()).unwrap();
    let output = pipeline::rewrite_library(&input, name, &Options::default()).unwrap();
    let audit = verify_with(&output.bytes, name, Some(&input)).unwrap();
    assert!(audit.is_clean(), "{audit}");
    assert!(audit.checked.loads >= loads && audit.checked.stores >= stores, "{audit}");
}

#[test]
fn the_c_library() {
    audited("libc.so.6", 10_000, 5_000);
}

#[test]
fn the_dynamic_loader() {
    audited("ld-linux-x86-64.so.2", 1_000, 500);
}

#[test]
fn the_cpp_library() {
    audited("libstdc++.so.6", 10_000, 5_000);
}
