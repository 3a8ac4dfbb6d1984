//! Debug information of every form that compilers, linkers and packagers write: the line, function and inlined frames of each instruction's new
//! address are those of its old one.

use addr2line::Loader;
use blizzard::base::options::Options;
use blizzard::pipeline;
use blizzard_contract::trap_map::TrapMap;
use blizzard_contract::{self as contract, ModuleInfo, TrapHead};
use blizzard_test_harness::{needs, shell_command};
use object::{Object, ObjectSection, ObjectSymbol};
use std::fs;
use std::path::{Path, PathBuf};

blizzard_test_harness::module! {
    all_versions_of_dwarf: ["gcc", "clang"],
    the_64_bit_format: ["gcc", "clang"],
    compressed_sections: ["-gz=zlib", "-gz=zlib-gnu", "zstd", "zlib", "zlib-gnu"],
    templates_exceptions_and_lambdas: [
    "g++ -O0 -gdwarf-5",
    "g++ -O2 -gdwarf-4 -fdebug-types-section",
    "clang++ -O2 -gdwarf-5",
    ],
    rust_with_its_library,
    objects_of_several_compilers_and_versions,
    units_of_link_time_optimisation,
    an_index_of_gdb_follows_the_code,
    macros_are_known_where_they_are_defined,
    frames_of_a_program_without_unwind_tables,
    split_units_are_not_believed_but_lines_are: ["gcc", "clang"],
    a_separate_debug_file_is_not_believed_but_can_be_put_into_the_output,
    cold_code_has_the_name_of_its_function,
}

const C_SOURCE: &str = "
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define TWICE(x) ((x) + (x))
struct node { struct node *next; int key; char name[12]; };
static inline int mix(int a, int b) {
    int c = a * 31 + b;
    return TWICE(c) ^ (c >> 7);
}
static struct node *add(struct node *list, int key) {
    struct node *n = malloc(sizeof *n);
    if (!n)
        abort();
    n->next = list;
    n->key = mix(key, list ? list->key : 1);
    snprintf(n->name, sizeof n->name, \"n%d\", key);
    return n;
}
static int sum(const struct node *list) {
    int s = 0;
    for (; list; list = list->next) {
        switch (list->key & 7) {
        case 0: s += 1; break;
        case 1: s -= list->key; break;
        case 2: s ^= 77; break;
        case 3: s += (int)strlen(list->name); break;
        case 4: s = mix(s, 4); break;
        default: s += list->key;
        }
    }
    return s;
}
static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}
int main(int argc, char **argv) {
    struct node *list = 0;
    int keys[64];
    for (int i = 0; i < 64; i++)
        keys[i] = mix(i, argc);
    qsort(keys, 64, sizeof keys[0], compare);
    for (int i = 0; i < 64; i++)
        list = add(list, keys[i]);
    printf(\"%d\\n\", sum(list));
    return argc > 5;
}
";

const CPP_SOURCE: &str = "
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
template <typename T> struct Shape {
    virtual ~Shape() = default;
    virtual T area() const = 0;
};
template <typename T> struct Square : Shape<T> {
    T side;
    explicit Square(T s) : side(s) {}
    T area() const override {
        if (side < 0)
            throw std::runtime_error(\"negative\");
        return side * side;
    }
};
template <typename T, typename F> T fold(const std::vector<std::unique_ptr<Shape<T>>> &all, F f) {
    T total{};
    for (const auto &s : all) {
        try {
            total = f(total, s->area());
        } catch (const std::runtime_error &e) {
            total += static_cast<T>(std::string(e.what()).size());
        }
    }
    return total;
}
int main(int argc, char **) {
    std::vector<std::unique_ptr<Shape<double>>> shapes;
    for (int i = -2; i < argc + 10; i++)
        shapes.push_back(std::make_unique<Square<double>>(i));
    std::map<std::string, int> counts;
    for (int i = 0; i < 20; i++)
        counts[\"k\" + std::to_string(i % 7)] += i;
    std::vector<int> values;
    for (const auto &[key, value] : counts)
        values.push_back(value + static_cast<int>(key.size()));
    std::sort(values.begin(), values.end(), [](int a, int b) { return a % 10 < b % 10; });
    std::cout << fold(shapes, [](double a, double b) { return a + b; }) << ' ' << values.front() << '\\n';
}
";

const RUST_SOURCE: &str = "
use std::collections::{BTreeMap, HashMap};
fn words(text: &str) -> HashMap<&str, usize> {
    let mut all = HashMap::new();
    for word in text.split_whitespace() {
        *all.entry(word).or_insert(0) += word.len();
    }
    all
}
fn main() {
    let text = std::env::args().map(|a| a + \" b c d e\").collect::<Vec<_>>().join(\" \");
    let sorted: BTreeMap<_, _> = words(&text).into_iter().collect();
    let total: usize = sorted.values().zip(1..).map(|(n, k)| n * k).sum();
    println!(\"{total} {:?}\", sorted.keys().next());
}
";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        for (name, text) in [("f.c", C_SOURCE), ("t.cpp", CPP_SOURCE), ("p.rs", RUST_SOURCE)] {
            fs::write(folder.at(name), text).unwrap();
        }
        folder
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command line in the folder.
    fn sh(&self, line: &str) -> String {
        let out = shell_command(line).current_dir(&self.0).env("LC_ALL", "C").output().unwrap();
        assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// Runs a command line that not every version of its tools understands.
    fn needs(&self, line: &str) {
        let done = shell_command(line).current_dir(&self.0).output().unwrap().status.success();
        needs::need_system(done, &format!("tools that can do this: {line}"));
    }

    fn rewrite(&self, old: &str, new: &str) {
        self.rewrite_with(old, new, &Options::default());
    }

    fn rewrite_with(&self, old: &str, new: &str, options: &Options) {
        let rewritten = pipeline::rewrite(&fs::read(self.at(old)).unwrap(), old, options).unwrap();
        fs::write(self.at(new), rewritten.bytes).unwrap();
    }
}

/// Old and new address of each instruction that the trap map names: all but those under springboards. Ascending.
fn pairs(rewritten: &Path) -> Vec<(u64, u64)> {
    let bytes = fs::read(rewritten).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let section = |name| elf.section_by_name(name).unwrap().data().unwrap();
    let mut words = [0; ModuleInfo::WORDS];
    for (word, bytes) in words.iter_mut().zip(section(contract::INFO_SECTION).chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap());
    }
    let info = ModuleInfo::from_words(words);
    let (codes, heads) = section(".blizzard.traps").split_at((info.trap_heads_va - info.trap_codes_va) as usize);
    let word = |b: &[u8]| u32::from_le_bytes(b.try_into().unwrap());
    let head = |h: &[u8]| TrapHead { old: word(&h[..4]), new: word(&h[4..8]), at: word(&h[8..]) };
    let heads: Vec<TrapHead> = heads.chunks_exact(12).map(head).collect();
    let map = TrapMap { heads: &heads, codes, rows: info.trap_count as usize };
    map.all().map(|r| (info.old_base_va + u64::from(r.old), info.new_base_va + u64::from(r.new))).collect()
}

/// Functions with files, lines and columns at an address, the innermost first.
fn frames(loader: &Loader, at: u64) -> Vec<String> {
    let mut found = Vec::new();
    let mut frames = loader.find_frames(at).unwrap();
    while let Some(frame) = frames.next().unwrap() {
        let name = frame.function.map(|f| f.raw_name().unwrap().into_owned());
        let place = frame.location.map(|l| (l.file.map(str::to_owned), l.line, l.column));
        found.push(format!("{name:?} {place:?}"));
    }
    found
}

/// Compares all instructions; returns how many have lines.
fn compare(old: &Path, new: &Path, map: &Path, what: &str) -> usize {
    let loaders = [old, new].map(|path| Loader::new(path).unwrap());
    let symbols = fs::read(new).unwrap();
    let symbols = object::File::parse(&*symbols).unwrap();
    let starts: std::collections::HashSet<u64> = symbols.symbols().map(|s| s.address()).collect();
    let pairs = pairs(map);
    let mut known = 0;
    for (k, &(from, to)) in pairs.iter().enumerate() {
        let expected = frames(&loaders[0], from);
        known += usize::from(expected.iter().any(|f| f.contains("Some((Some")));
        assert_eq!(frames(&loaders[1], to), expected, "{what}: {from:#x} -> {to:#x}");
        // The end of its new code, where no padding is.
        if let Some(&(next, end)) = pairs.get(k + 1)
            && next - from < 16
            && end > to
            && !starts.contains(&end)
            && frames(&loaders[0], next - 1) == expected
        {
            assert_eq!(frames(&loaders[1], end - 1), expected, "{what}: the end of {from:#x} at {end:#x}");
        }
    }
    known
}

/// Rewrites `old` and compares all its instructions.
fn same(folder: &Folder, old: &str, what: &str) {
    let new = format!("{old}.new");
    folder.rewrite(old, &new);
    let known = compare(&folder.at(old), &folder.at(&new), &folder.at(&new), what);
    assert!(known > 100, "{what}: {known} instructions have lines");
}

fn all_versions_of_dwarf(compiler: &str) {
    let folder = Folder::new();
    for version in ["-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        for level in ["-O0", "-O2", "-O2 -ffunction-sections -no-pie"] {
            folder.sh(&format!("{compiler} -g {version} {level} f.c -o old"));
            same(&folder, "old", &format!("{compiler} {version} {level}"));
        }
    }
}

fn the_64_bit_format(compiler: &str) {
    // Its units were left as they were, though their line programs were gone.
    let folder = Folder::new();
    for version in [4, 5] {
        let line = format!("{compiler} -gdwarf-{version} -gdwarf64 -O2 f.c -o old");
        folder.needs(&line);
        same(&folder, "old", &line);
    }
}

fn compressed_sections(form: &str) {
    // They kept old addresses.
    let folder = Folder::new();
    for version in [4, 5] {
        let (compress, convert) = match form.strip_prefix('-') {
            Some(_) => (form, String::new()),
            None => ("", format!("; objcopy --compress-debug-sections={form} old")),
        };
        let line = format!("gcc -gdwarf-{version} {compress} -O2 f.c -o old{convert}");
        folder.needs(&line);
        let bytes = fs::read(folder.at("old")).unwrap();
        let elf = object::File::parse(&*bytes).unwrap();
        let is_compressed = |s: object::Section| {
            let form = s.compressed_file_range().map(|range| range.format);
            s.name() == Ok(".zdebug_info")
                || s.name() == Ok(".debug_info") && form != Ok(object::CompressionFormat::None)
        };
        assert!(elf.sections().any(is_compressed), "{line}");
        same(&folder, "old", &line);
    }
}

fn templates_exceptions_and_lambdas(command: &str) {
    let folder = Folder::new();
    let line = format!("{command} t.cpp -o old");
    folder.sh(&line);
    same(&folder, "old", &line);
}

fn rust_with_its_library() {
    let folder = Folder::new();
    for level in ["0", "2"] {
        folder.sh(&format!("rustc -g -Copt-level={level} p.rs -o old"));
        same(&folder, "old", &format!("rustc -Copt-level={level}"));
    }
}

fn objects_of_several_compilers_and_versions() {
    let folder = Folder::new();
    folder.sh(
        "sed s/main/other/ f.c >g.c; sed s/main/third/ f.c >h.c
         gcc -gdwarf-5 -O2 -c f.c; clang -gdwarf-4 -O1 -c g.c; gcc -gdwarf-2 -gz -O2 -c h.c; g++ -O1 -gdwarf-5 -Dmain=fourth -c t.cpp
         g++ f.o g.o h.o t.o -o old",
    );
    same(&folder, "old", "mixed");
}

fn units_of_link_time_optimisation() {
    let folder = Folder::new();
    folder.sh("sed s/main/other/ f.c >g.c; gcc -flto -O2 -g f.c g.c -o old");
    same(&folder, "old", "-flto");
}

fn an_index_of_gdb_follows_the_code() {
    // gdb found no unit for a new address and showed no lines.
    let folder = Folder::new();
    folder.sh("gcc -g -O1 f.c -o old");
    folder.needs("gdb-add-index old");
    assert!(folder.sh("readelf -SW old").contains(".gdb_index"));
    folder.rewrite("old", "new");
    let [old, new] = ["old", "new"].map(|program| {
        folder.sh(&format!(
            "chmod +x {program}; gdb -nx -batch -ex 'break sum' -ex 'info line main' -ex run -ex bt {program} 2>&1"
        ))
    });
    for part in ["sum (list=", "main (argc=1, argv=", "f.c:45"] {
        assert!(old.contains(part) && new.contains(part), "{part}\n{old}\n{new}");
    }
}

fn macros_are_known_where_they_are_defined() {
    // The unit of macros names its line program by offset, which had changed.
    let folder = Folder::new();
    for version in [4, 5] {
        folder.sh(&format!("printf '#define FIRST 1\\nint first(void) {{ return FIRST; }}\\n' >e.c; gcc -gdwarf-{version} -g3 -O0 e.c f.c -o old"));
        folder.rewrite("old", "new");
        let [old, new] = ["old", "new"].map(|program| {
            folder.sh(&format!(
                "chmod +x {program}; gdb -nx -batch -ex 'break sum' -ex run -ex 'info macro TWICE' -ex 'print TWICE(4)' {program} 2>&1 | tail -n 4"
            ))
        });
        assert!(old.contains("f.c:5") && old.contains("$1 = 8"), "{old}");
        assert_eq!(old, new, "version {version}");
    }
}

fn frames_of_a_program_without_unwind_tables() {
    // .debug_frame described the old code only.
    let folder = Folder::new();
    let flags = "-fno-asynchronous-unwind-tables -fno-unwind-tables -fomit-frame-pointer -fno-exceptions";
    folder.sh(&format!("gcc -g -O1 {flags} f.c -o old"));
    let list = |program: &str| folder.sh(&format!("readelf --debug-dump=frames {program} | grep -c FDE"));
    assert_eq!(folder.sh("readelf -SW old | grep -c debug_frame").trim(), "1");
    folder.rewrite("old", "new");
    assert!(list("new").trim().parse::<u32>().unwrap() > 4);
    let [old, new] = ["old", "new"].map(|program| {
        folder.sh(&format!("chmod +x {program}; gdb -nx -batch -ex 'break compare' -ex run -ex 'bt -frame-arguments none' {program} 2>&1 | grep -o 'main (.*) at.*'"))
    });
    assert!(old.contains("f.c:"), "{old}");
    assert_eq!(old, new);
}

fn split_units_are_not_believed_but_lines_are(compiler: &str) {
    // With which GCC writes the other parts.
    needs::need("objcopy");
    // The other parts hold lengths and lists of the old code. A debugger that finds them by their identities would believe them.
    let folder = Folder::new();
    for version in [4, 5] {
        folder.sh(&format!(
            "rm -f *.dwo; {compiler} -gsplit-dwarf -gdwarf-{version} -O1 -fno-inline f.c -o old; ls *.dwo"
        ));
        folder.rewrite("old", "new");
        let new = folder
            .sh("chmod +x new; gdb -nx -batch -ex 'break sum' -ex run -ex bt -ex step -ex 'info source' new 2>&1");
        assert!(new.contains("Could not find DWO CU"), "{new}");
        assert!(new.contains("f.c:2") && new.contains("main ("), "{compiler} {version}: {new}");
        // What is in the program itself follows the code.
        let all = pairs(&folder.at("new"));
        let loaders = ["old", "new"].map(|name| Loader::new(folder.at(name)).unwrap());
        let mut known = 0;
        for (from, to) in all {
            let place = |loader: &Loader, at| {
                let found = loader.find_location(at).unwrap();
                found.map(|l| (l.file.map(str::to_owned), l.line))
            };
            let expected = place(&loaders[0], from);
            known += usize::from(expected.is_some());
            assert_eq!(place(&loaders[1], to), expected, "{compiler} {version}: {from:#x}");
        }
        assert!(known > 100, "{known}");
    }
}

fn a_separate_debug_file_is_not_believed_but_can_be_put_into_the_output() {
    // The link's checksum is that of the debug file alone, so gdb took the old addresses for the rewritten program's.
    let folder = Folder::new();
    for compress in ["", "--compress-debug-sections=zlib"] {
        folder.sh(&format!(
            "gcc -g -O2 f.c -o full; objcopy --only-keep-debug {compress} full full.debug; strip -o old full
             objcopy --add-gnu-debuglink=full.debug old"
        ));
        folder.rewrite_with("old", "plain", &Options::tests());
        let ask = |program: &str| {
            folder.sh(&format!(
                "chmod +x {program}; gdb -nx -batch -ex 'info line main' -ex 'break sum' -ex run -ex bt {program} 2>&1 || true"
            ))
        };
        assert!(ask("old").contains("f.c:"));
        let plain = ask("plain");
        assert!(!plain.contains("f.c"), "{plain}");

        let blizzard = env!("CARGO_BIN_EXE_blizzard");
        folder.sh(&format!(
            "{blizzard} rewrite old -o new --access tests --no-libraries --debug-file; {blizzard} verify new --original old"
        ));
        let new = ask("new");
        assert!(new.contains("in main (argc=1") || new.contains("  main (argc=1"), "{new}");
        // The linked file's lines are those of the whole one.
        let known = compare(&folder.at("full"), &folder.at("new"), &folder.at("new"), compress);
        assert!(known > 100, "{known}");
        let symbols = folder.sh("nm new");
        assert!(symbols.contains(" main\n") && symbols.contains(" main.blizzard_cold\n"), "{symbols}");
    }
}

fn cold_code_has_the_name_of_its_function() {
    // It counted for whatever function came last.
    let folder = Folder::new();
    folder.sh("g++ -O1 -g t.cpp -o old; gcc -O1 f.c -o nodebug");
    for (old, name) in [("old", "blizzard_cold._ZNK6SquareIdE4areaEv"), ("nodebug", "main.blizzard_cold")] {
        folder.rewrite_with(old, "new", &Options::tests());
        let bytes = fs::read(folder.at("new")).unwrap();
        let elf = object::File::parse(&*bytes).unwrap();
        let cold = elf.section_by_name(".blizzard.cold").unwrap();
        let mut covered = 0;
        for symbol in elf.symbols().filter(|s| s.name().unwrap().contains("blizzard_cold")) {
            assert_eq!(symbol.section_index(), Some(cold.index()));
            assert!(symbol.address() >= cold.address());
            assert!(symbol.address() + symbol.size() <= cold.address() + cold.size());
            covered += symbol.size();
        }
        // Some functions of the C library's start-up files have no sizes.
        assert!(covered * 4 >= cold.size() * 3, "{covered} of {}", cold.size());
        assert!(elf.symbol_by_name(name).is_some());
    }
    // A breakpoint on the function is one at its beginning, not one more in the cold code.
    folder.rewrite_with("old", "new", &Options::tests());
    let ask = |program: &str| {
        folder.sh(&format!(
            "chmod +x {program}; gdb -nx -batch -ex 'break Square<double>::area' -ex 'break main' -ex run -ex 'info breakpoints' {program} 2>&1 \
             | grep -c 'breakpoint *keep\\|^[0-9]*\\.[0-9]'"
        ))
    };
    assert_eq!(ask("new"), ask("old"));
}
