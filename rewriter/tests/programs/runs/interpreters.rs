//! Interpreters whose made code touches shared memory, guarded, on two nodes: LuaJIT's compiler, and libffi's closures under Python.
//!
//! Both get at shared memory through a library that is written here. What they print is compared with what arithmetic says.

use crate::sources::{SharedProgram, finished};
use blizzard_test_harness::needs::{need, need_file};
use std::fs;
use std::path::Path;

blizzard_test_harness::module! {
    code_that_luajit_makes_touches_shared_memory,
    closures_of_libffi_touch_shared_memory,
}

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

/// Runs `interpreter` with a script on two nodes; the script's argument is the library. What node 0 has said.
fn said_on_two_nodes(interpreter: &Path, options: &[&str], script: &str) -> String {
    let library = SharedProgram::new(SHIM, &["-fPIC", "-shared"]);
    let at = |name: &str| library.folder.path().join(name);
    fs::write(at("script"), script).unwrap();
    let mut command = library.blizzard();
    command.args(["-q", "run", "-n", "2", "--access", "guard", "--stats", "stats.json", "--"]);
    let output = command.arg(interpreter).args(options).args(["script", "./prog"]).output().unwrap();
    let (said, noted, status) = finished(output);
    assert_eq!((noted.as_str(), status), ("", 0), "{said}");
    let stats: serde_json::Value = serde_json::from_slice(&fs::read(at("stats.json")).unwrap()).unwrap();
    let faults = stats["totals"]["untested_accesses"].as_u64().unwrap();
    assert!(faults > 0, "nothing that was made touched shared memory: {stats}");
    said
}

fn code_that_luajit_makes_touches_shared_memory() {
    // Twenty rounds over 4096 elements.
    let sum: u64 = (0..4096u64).map(|i| (1..=20).map(|round| i + round).sum::<u64>()).sum();
    assert_eq!(said_on_two_nodes(&need("luajit"), &[], LUA), format!("{sum}LL\n"));
}

fn closures_of_libffi_touch_shared_memory() {
    let python = need_file("/usr/bin/python3", "python3");
    let sum: u64 = (0..4096u64).map(|i| 3 * i).sum();
    assert_eq!(said_on_two_nodes(&python, &["-S"], PYTHON), format!("{sum}\n"));
}
