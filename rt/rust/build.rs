//! Compiles the client library of `blizzard.h`, so that C and Rust programs share one implementation.

fn main() {
    println!("cargo::rerun-if-changed=../client");
    println!("cargo::rerun-if-changed=../include");
    cc::Build::new()
        .files(["../client/blizzard.c", "../client/fork.c", "../client/tempest.c"])
        .include("../include")
        .warnings(true)
        .compile("blizzard_client");
}
