//! The libraries that nearly every program of this system loads: rewritten with all checks, the audit finds nothing open in them.

use blizzard::base::options::Options;
use blizzard::pipeline;
use blizzard::reports::audit::verify_with;
use blizzard_test_harness::{needs, tool};

blizzard_test_harness::module! {
    the_c_library, the_dynamic_loader, the_cpp_library,
}

/// Rewrites and audits the library that gcc finds by this name; it has at least so many checked loads and stores.
fn audited(name: &str, package: &str, loads: u64, stores: u64) {
    // Prints the bare name of a file that it does not find.
    let of_gcc = tool("gcc").arg(format!("-print-file-name={name}")).output().unwrap();
    let path = String::from_utf8(of_gcc.stdout).unwrap();
    let input = std::fs::read(needs::need_file(path.trim(), package)).unwrap();
    let output = pipeline::rewrite_library(&input, name, &Options::default()).unwrap();
    let audit = verify_with(&output.bytes, name, Some(&input)).unwrap();
    assert!(audit.is_clean(), "{audit}");
    assert!(audit.checked.loads >= loads && audit.checked.stores >= stores, "{audit}");
}

fn the_c_library() {
    audited("libc.so.6", "libc6", 10_000, 5_000);
}

fn the_dynamic_loader() {
    audited("ld-linux-x86-64.so.2", "libc6", 1_000, 500);
}

fn the_cpp_library() {
    audited("libstdc++.so.6", "libstdc++6", 10_000, 5_000);
}
