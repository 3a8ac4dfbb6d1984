//! Programs that make code while they run, guarded, on two nodes: LuaJIT's compiler, and libffi's closures under Python. Their code touches shared memory.
//!
//! Both get at shared memory through a library that is written here. What they print is compared with what plain arithmetic says.

use blizzard_test_harness::needs::{need, need_file};
use blizzard_test_harness::tests;
use blizzard_tests::compile::{Job, Language, compile};
use blizzard_tests::run::{Outcome, run};
use blizzard_tests::tool;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

tests! {
    code_that_luajit_makes_touches_shared_memory,
    closures_of_libffi_touch_shared_memory,
}

/// An interpreter and its libraries are rewritten first.
const LIMIT: Duration = Duration::from_secs(180);

/// Node 0's array; `each` calls back with the address of each element of this node's half.
const SHIM: &str = "
#include <blizzard.h>
enum { COUNT = 4096 };
long *shared_array(void) {
    if (bz_node() == 0) bz_publish(0, bz_alloc(COUNT * sizeof(long)));
    return bz_lookup(0);
}
unsigned shared_node(void) { return bz_node(); }
void shared_barrier(void) { bz_barrier(); }
void each(long *all, void (*what)(long *, long)) {
    for (long i = bz_node(); i < COUNT; i += bz_nodes()) what(&all[i], i);
}
";

/// Loops that are long enough to be compiled. Node 1 adds to what node 0 has stored, then node 0 sums.
const LUA: &str = "
local ffi = require('ffi')
ffi.cdef('long *shared_array(void); unsigned shared_node(void); void shared_barrier(void);')
local lib = ffi.load(arg[1])
local all, me = lib.shared_array(), lib.shared_node()
local traces = 0
jit.attach(function(what) if what == 'stop' then traces = traces + 1 end end, 'trace')
for round = 1, 20 do
    if me == round % 2 then for i = 0, 4095 do all[i] = all[i] + i + round end end
    lib.shared_barrier()
end
local sum = 0LL
for i = 0, 4095 do sum = sum + all[i] end
if traces == 0 then error('nothing was compiled') end
if me == 0 then print(tostring(sum)) end
";

const PYTHON: &str = "
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
lib.shared_array.restype = ctypes.POINTER(ctypes.c_long)
closure = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_long), ctypes.c_long)
lib.each.argtypes = [ctypes.POINTER(ctypes.c_long), closure]
shared = lib.shared_array()
def add(where, i): where[0] += i
add = closure(add)
for _ in range(3):
    lib.each(shared, add)
    lib.shared_barrier()
if lib.shared_node() == 0: print(sum(shared[i] for i in range(4096)))
lib.shared_barrier()
";

/// The library, in `folder`.
fn shim(folder: &Path) -> PathBuf {
    let (source, output) = (folder.join("shim.c"), folder.join("shim.so"));
    fs::write(&source, SHIM).unwrap();
    let mut flags = tool::config("--cflags").unwrap();
    flags.extend(["-O2", "-fPIC", "-shared"].map(str::to_owned));
    let libraries = tool::config("--libs").unwrap();
    compile(&Job { sources: vec![source], language: Language::C, compiler: "cc", flags, libraries, output: &output })
        .unwrap();
    output
}

/// Runs `interpreter` with a script on two nodes; the script's argument is the library.
fn on_two_nodes(folder: &TempDir, interpreter: &Path, options: &[&str], script: &str) -> Outcome {
    let (file, stats) = (folder.path().join("script"), folder.path().join("stats.json"));
    fs::write(&file, script).unwrap();
    let mut command =
        tool::blizzard(&["run", "-n", "2", "--access", "guard", "--stats", stats.to_str().unwrap(), "--"]);
    command.arg(interpreter).args(options).arg(&file).arg(shim(folder.path()));
    let outcome = run(&mut command, "", LIMIT).unwrap().success().unwrap();
    let stats: serde_json::Value = serde_json::from_slice(&fs::read(&stats).unwrap()).unwrap();
    let faults = stats["totals"]["untested_accesses"].as_u64().unwrap();
    assert!(faults > 0, "nothing that was made touched shared memory: {stats}");
    outcome
}

fn code_that_luajit_makes_touches_shared_memory() {
    let luajit = need("luajit");
    let folder = tempfile::tempdir().unwrap();
    let outcome = on_two_nodes(&folder, &luajit, &[], LUA);
    // Twenty rounds over 4096 elements.
    let sum: u64 = (0..4096u64).map(|i| (1..=20).map(|round| i + round).sum::<u64>()).sum();
    assert_eq!(outcome.stdout_text(), format!("{sum}LL\n"));
}

fn closures_of_libffi_touch_shared_memory() {
    let python = need_file("/usr/bin/python3", "python3");
    let folder = tempfile::tempdir().unwrap();
    let outcome = on_two_nodes(&folder, &python, &["-S"], PYTHON);
    let sum: u64 = (0..4096u64).map(|i| 3 * i).sum();
    assert_eq!(outcome.stdout_text(), format!("{sum}\n"));
}
