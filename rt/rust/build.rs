//! Compiles the client library of `blizzard.h`, so that C and Rust programs share one implementation.

fn main() {
    println!("cargo::rerun-if-changed=../client/blizzard.c");
    println!("cargo::rerun-if-changed=../include/blizzard.h");
    cc::Build::new().file("../client/blizzard.c").include("../include").warnings(true).compile("blizzard_client");
}
