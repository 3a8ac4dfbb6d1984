//! Part of the build script: builds the client library of `blizzard.h` and `tempest.h` and hands it to `cli/make/client.rs`.
//!
//! Input: `../rt/client/*.c`, `../rt/include/*.h`. Output: the environment variable `BLIZZARD_CLIENT_LIB` of the
//! rewriter's compilation: path of `libblizzard.a`, which the rewriter embeds. It is not linked into the rewriter.

use std::path::Path;

/// Builds the library in `out`.
pub fn build(manifest_dir: &Path, out: &Path) {
    let folder = manifest_dir.join("../rt/client");
    let sources = ["blizzard.c", "fork.c", "tempest.c"].map(|name| folder.join(name));
    let include = manifest_dir.join("../rt/include");
    for input in [&folder, &include, &manifest_dir.join("build_client.rs")] {
        println!("cargo::rerun-if-changed={}", input.display());
    }
    cc::Build::new()
        .files(sources)
        .include(include)
        .std("c11")
        .opt_level(2)
        .pic(true)
        .debug(false)
        // Users' linkers read the archive: no intermediate code of the build's compiler.
        .flag_if_supported("-fno-lto")
        .cargo_metadata(false)
        .out_dir(out)
        .compile("blizzard");
    println!("cargo::rustc-env=BLIZZARD_CLIENT_LIB={}", out.join("libblizzard.a").display());
}
