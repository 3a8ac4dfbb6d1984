//! Compiles the client library of `blizzard.h` with the system's C compiler: $CC, or cc.

use std::env::var_os;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: [&str; 3] = ["blizzard", "fork", "tempest"];

fn must(command: &mut Command) {
    let done = command.status();
    assert!(done.as_ref().is_ok_and(|status| status.success()), "{command:?}: {done:?}");
}

fn main() {
    println!("cargo::rerun-if-changed=client");
    println!("cargo::rerun-if-changed=include");
    println!("cargo::rerun-if-env-changed=CC");
    let out = PathBuf::from(var_os("OUT_DIR").expect("cargo sets it"));
    let library = out.join("libblizzard_client.a");
    let mut archive = Command::new("ar");
    archive.arg("crs").arg(&library);
    for name in SOURCES {
        let (source, object) = (Path::new("client").join(name).with_extension("c"), out.join(name).with_extension("o"));
        let mut cc = Command::new(var_os("CC").unwrap_or_else(|| "cc".into()));
        must(cc.args(["-std=c11", "-O2", "-fPIC", "-fno-lto", "-Iinclude", "-c"]).arg(source).arg("-o").arg(&object));
        archive.arg(object);
    }
    let _ = std::fs::remove_file(&library);
    must(&mut archive);
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=blizzard_client");
}
