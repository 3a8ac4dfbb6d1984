//! `blizzard config`: what a compiler needs for programs that use `blizzard.h`, m4 for those with the PARMACS macros, and gdb for rewritten libraries.
//!
//! Input: what is asked for. Output: flags and paths on standard output.
//!
//! The files are part of this executable ([`crate::cli::make::client`]). Whoever has not installed them gets them in the cache.

use crate::base::error::Result;
use crate::base::messages;
use crate::cli::make::client::Client;
use crate::cli::shared::compiler::{self, Compiler};
use crate::cli::shared::print::print;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the flags for compiling and linking programs that use blizzard.h, or install what they need
///
/// Libraries are rewritten with the program, so the C library's functions may be given shared memory. With --no-libraries they are not. Then
/// compile with --cflags --no-libraries: it keeps the compiler from turning loops and assignments of structures into calls of memset and
/// memcpy. Which flags do that depends on the compiler: name yours if it is not cc. Clang still calls
/// memset to clear structures of more than 128 bytes, and at -O0 memcpy too.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    cc -O2 heat.c $(blizzard config --cflags --libs) -o heat\n  \
    clang -c heat.c $(blizzard config --cflags --no-libraries --compiler clang)\n  \
    blizzard config --install inst    # for pkg-config, CMake, Cargo, m4, gdb\n  \
    gdb -x $(blizzard config --gdb) heat.blz"
)]
pub struct ConfigCommand {
    /// Flags for compiling
    #[arg(long, required_unless_present_any = ["libs", "m4", "gdb", "install"])]
    cflags: bool,
    /// Flags for linking
    #[arg(long)]
    libs: bool,
    /// The file of the PARMACS macros, for m4: `m4 $(blizzard config --m4) PROG.C` prints what `blizzard parmacs --no-lines` does
    #[arg(long, conflicts_with_all = ["cflags", "libs"])]
    m4: bool,
    /// The file of commands with which gdb shows the functions of rewritten libraries, too
    #[arg(long, conflicts_with_all = ["cflags", "libs", "m4"])]
    gdb: bool,
    /// Put headers, library, macros, and what pkg-config, CMake and Cargo look for, below PREFIX, as `make install` does. If `blizzard` is in
    /// PREFIX/bin, this command prints those paths from then on
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["cflags", "libs", "m4", "gdb"])]
    install: Option<PathBuf>,
    /// Compile for runs whose libraries are not rewritten
    #[arg(long, requires = "cflags")]
    no_libraries: bool,
    /// The compiler that these flags are for [default: $CC, or cc]
    #[arg(long, value_name = "CC", requires = "no_libraries")]
    compiler: Option<String>,
}

impl ConfigCommand {
    /// Prints the flags on one line.
    pub fn execute(self) -> Result<ExitCode> {
        if let Some(prefix) = &self.install {
            Client::install_to(prefix, 0o777)?;
            return Ok(ExitCode::SUCCESS);
        }
        let client = Client::install()?;
        let mut flags = Vec::new();
        if self.m4 {
            flags.push(client.parmacs().display().to_string());
        }
        if self.gdb {
            flags.push(client.gdb().display().to_string());
        }
        if self.cflags {
            flags.push(client.cflags());
            if self.no_libraries {
                flags.extend(own_flags(self.compiler.as_deref())?.iter().map(|&flag| flag.to_owned()));
            }
        }
        if self.libs {
            flags.extend(client.libs());
        }
        print(&format!("{}\n", flags.join(" ")))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The compiler's own flags; with a warning if it has none of the kind that is needed.
fn own_flags(asked: Option<&str>) -> Result<&'static [&'static str]> {
    let Some(compiler) = Compiler::find(asked)? else { return Ok(compiler::default_flags()) };
    Ok(compiler.flags().unwrap_or_else(|| {
        messages::warning(&format!(
            "{} has no flag that keeps it from turning loops into calls of memset and memcpy, which must \
             not be given shared memory",
            compiler.name()
        ));
        &[]
    }))
}
