//! What hints change, in counts: the program's result is the same.

use crate::sources::SharedProgram;
use serde_json::Value;

blizzard_test_harness::module! {
    ranges_travel_together,
}

/// Node 1 reads 32 KiB of node 0's memory, and writes them, word by word or as its argument says.
const PROGRAM: &str = r#"
#include <blizzard.h>
#include <stdio.h>
#include <string.h>
enum { WORDS = 4096 };
int main(int argc, char **argv) {
    static long words[WORDS];
    if (bz_node() == 0) {
        long *all = bz_alloc_on(0, sizeof words);
        for (int k = 0; k < WORDS; k++) all[k] = 3 * k;
        bz_publish(0, all);
    }
    long *all = bz_lookup(0);
    if (bz_node() == 1) {
        int in_ranges = strcmp(argv[1], "ranges") == 0;
        if (in_ranges) bz_get(words, all, sizeof words);
        else for (int k = 0; k < WORDS; k++) words[k] = all[k];
        for (int k = 0; k < WORDS; k++) words[k]++;
        if (in_ranges) bz_put(all, words, sizeof words);
        else for (int k = 0; k < WORDS; k++) all[k] = words[k];
    }
    bz_barrier();
    long sum = 0;
    for (int k = 0; k < WORDS; k++) sum += all[k];
    bz_barrier();
    if (bz_node() == 0) printf("%ld\n", sum);
    return 0;
}
"#;

/// 512 blocks, each of which is read and then written.
fn ranges_travel_together() {
    let program = SharedProgram::new(PROGRAM, &["-O2"]);
    for access in ["tests", "guard"] {
        let node_1 = |how: &str| {
            let options = ["-n", "2", "--look-ahead", "0", "--access", access, "--stats", "stats"];
            let (out, err, status) = program.run(&options, how);
            assert_eq!((out.as_str(), status), ("25163776\n", 0), "{err}");
            let stats = std::fs::read(program.folder.path().join("stats")).unwrap();
            let stats: Value = serde_json::from_slice(&stats).unwrap();
            let count = |name: &str| stats["per_node"][1]["counters"][name].as_u64().unwrap();
            ["read_misses", "upgrades", "prefetches"].map(count)
        };
        let [reads, upgrades, asked] = node_1("words");
        assert!(reads >= 512 && upgrades >= 512 && asked == 0, "{access}: {reads} {upgrades} {asked}");
        let [reads, upgrades, asked] = node_1("ranges");
        assert!(reads + upgrades <= 20 && asked >= 1000, "{access}: {reads} {upgrades} {asked}");
    }
}
