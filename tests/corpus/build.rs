//! Leaves the commit that is being built in `CORPUS_COMMIT`: what is measured is the rewriter that was built, whatever is checked out later.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn main() {
    // Where there is no repository, as in an unpacked archive, nothing is known.
    let commit = git(&["describe", "--always", "--dirty", "--exclude=*"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=CORPUS_COMMIT={commit}");
    // The log of HEAD changes with every commit; sources that are not committed are seen by the folders.
    for path in [
        git(&["rev-parse", "--git-path", "logs/HEAD"]),
        Some("../../rewriter/src".into()),
        Some("../../rt/src".into()),
        Some("src".into()),
    ]
    .into_iter()
    .flatten()
    {
        println!("cargo:rerun-if-changed={path}");
    }
}
