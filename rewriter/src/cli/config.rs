//! `blizzard config`: what a compiler needs for programs that use `blizzard.h`, m4 for those with the PARMACS macros, and gdb for rewritten libraries.
//!
//! Input: what is asked for. Output: flags and paths on standard output.
//!
//! The header and the client library are part of this executable; they are put into the cache folder on demand.

use crate::base::error::{Error, Result};
use crate::cli::shared::compiler::{self, Compiler};
use crate::cli::shared::print::{print, tell};
use crate::store::cache::{Cache, Key, tool_identity};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// The headers by name.
const HEADERS: [(&str, &[u8]); 5] = [
    ("blizzard.h", include_bytes!("../../../rt/include/blizzard.h")),
    ("blizzard_parmacs.h", include_bytes!("../../../rt/include/blizzard_parmacs.h")),
    ("parmacs.m4", include_bytes!("../../../rt/include/parmacs.m4")),
    ("tempest.h", include_bytes!("../../../rt/include/tempest.h")),
    ("tempest_send.h", include_bytes!("../../../rt/include/tempest_send.h")),
];
const LIBRARY: &[u8] = include_bytes!(env!("BLIZZARD_CLIENT_LIB"));
/// Commands for gdb.
const GDB: (&str, &[u8]) = ("libraries.gdb", include_bytes!("libraries.gdb"));

/// Print the flags for compiling and linking programs that use blizzard.h
///
/// Libraries are rewritten with the program, so the C library's functions may be given shared memory. With --no-libraries they are not. Then
/// compile with --cflags --no-libraries: it keeps the compiler from turning loops and assignments of structures into calls of memset and
/// memcpy. Which flags do that depends on the compiler: name yours if it is not cc. Clang still calls
/// memset to clear structures of more than 128 bytes, and at -O0 memcpy too.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    cc -O2 heat.c $(blizzard config --cflags --libs) -o heat\n  \
    clang -c heat.c $(blizzard config --cflags --no-libraries --compiler clang)\n  \
    blizzard parmacs cholesky.C -o cholesky.c\n  \
    gdb -x $(blizzard config --gdb) heat.blz")]
pub struct ConfigCommand {
    /// Flags for compiling
    #[arg(long, required_unless_present_any = ["libs", "m4", "gdb"])]
    cflags: bool,
    /// Flags for linking
    #[arg(long)]
    libs: bool,
    /// The file of the PARMACS macros, for m4: `m4 $(blizzard config --m4) PROG.C` prints what `blizzard parmacs` does
    #[arg(long, conflicts_with_all = ["cflags", "libs"])]
    m4: bool,
    /// The file of commands with which gdb shows the functions of rewritten libraries, too
    #[arg(long, conflicts_with_all = ["cflags", "libs", "m4"])]
    gdb: bool,
    /// Compile for runs whose libraries are not rewritten
    #[arg(long, requires = "cflags")]
    no_libraries: bool,
    /// The compiler that these flags are for [default: $CC, or cc]
    #[arg(long, value_name = "CC", requires = "no_libraries")]
    compiler: Option<String>,
}

/// The client's files on disk.
#[derive(Debug)]
pub struct Client {
    include_dir: PathBuf,
    library: PathBuf,
    parmacs: PathBuf,
    gdb: PathBuf,
}

impl Client {
    /// Puts the files into the user's cache, unless they are there.
    ///
    /// # Errors
    /// When the cache cannot be written to.
    pub fn install() -> Result<Self> {
        let cache = Cache::of_user()?;
        let identity = tool_identity();
        let mut parts: Vec<&[u8]> = vec![b"client", identity.as_bytes(), LIBRARY, GDB.1];
        parts.extend(HEADERS.iter().map(|(_, bytes)| *bytes));
        let key = Key::new(&parts);
        let put = |name: &str, bytes: &[u8]| {
            let write = |e: std::io::Error| Error::new(format!("cannot write {name}")).because(e);
            cache.get_or_make(&key, name.as_ref(), 0o644, |sink| sink.write_at(0, bytes).map_err(write))
        };
        for (name, bytes) in HEADERS {
            put(name, bytes)?;
        }
        let library = put("libblizzard.a", LIBRARY)?;
        let parmacs = put("parmacs.m4", HEADERS[2].1)?;
        let gdb = put(GDB.0, GDB.1)?;
        let include_dir = library.parent().expect("a cache entry is in a folder").to_owned();
        Ok(Client { include_dir, library, parmacs, gdb })
    }

    /// For compiling.
    pub fn cflags(&self) -> String {
        format!("-I{}", self.include_dir.display())
    }

    /// For linking.
    pub fn libs(&self) -> Vec<String> {
        vec![self.library.display().to_string(), "-pthread".to_owned()]
    }
}

impl ConfigCommand {
    /// Prints the flags on one line.
    pub fn execute(self) -> Result<ExitCode> {
        let client = Client::install()?;
        let mut flags = Vec::new();
        if self.m4 {
            flags.push(client.parmacs.display().to_string());
        }
        if self.gdb {
            flags.push(client.gdb.display().to_string());
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
        tell(&format!(
            "warning: {} has no flag that keeps it from turning loops into calls of memset and memcpy, which must \
             not be given shared memory\n",
            compiler.name()
        ));
        &[]
    }))
}
