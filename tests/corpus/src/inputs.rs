//! What the programs work on: files made from a seed, the same on every machine.
//!
//! Sizes are such that the workloads of `programs.toml` take a few tenths of a second. Everything is written below one
//! folder, which the workloads know as `$IN` and only read.

use fastrand::Rng;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

const SEED: u64 = 0x626c_697a_7a61_7264;

/// Writes all inputs into `folder`.
///
/// # Errors
/// The file system's.
pub fn write(folder: &Path) -> io::Result<()> {
    let mut rng = Rng::with_seed(SEED);
    let words = words(&mut rng, 4000);
    let put = |name: &str, bytes: Vec<u8>| fs::write(folder.join(name), bytes);
    put("words.txt", lines(words.iter()))?;
    put("text.txt", prose(&mut rng, &words, 4 << 20))?;
    put("small.txt", prose(&mut rng, &words, 256 << 10))?;
    put("numbers.txt", lines((0..200_000).map(|_| rng.u32(..1_000_000))))?;
    let mut random = vec![0; 2 << 20];
    rng.fill(&mut random);
    put("random.bin", random)?;
    put("table.csv", table(&mut rng, &words, 60_000))?;
    put("data.json", json(&mut rng, &words, 15_000))?;
    put("doc.xml", xml(&mut rng, &words, 20_000))?;
    put("image.ppm", image(&mut rng, 640, 480))?;
    put("sound.wav", sound(&mut rng, 8))?;
    put("prog.c", c_source(&mut rng, 220).into_bytes())?;
    put("prog.cpp", cpp_source(&mut rng, 60).into_bytes())?;
    put("prog.s", assembly(&mut rng, 30_000).into_bytes())?;
    for dir in 0..20 {
        let at = folder.join(format!("tree/d{dir:02}"));
        fs::create_dir_all(&at)?;
        for file in 0..40 {
            fs::write(at.join(format!("f{file:02}.txt")), prose(&mut rng, &words, 3000))?;
        }
    }
    Ok(())
}

fn words(rng: &mut Rng, count: usize) -> Vec<String> {
    const ONSETS: [&str; 16] = ["b", "c", "d", "f", "g", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr", "gl"];
    const VOWELS: [&str; 7] = ["a", "e", "i", "o", "u", "ea", "ou"];
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        let mut word = String::new();
        for _ in 0..rng.usize(1..4) {
            word.push_str(ONSETS[rng.usize(..ONSETS.len())]);
            word.push_str(VOWELS[rng.usize(..VOWELS.len())]);
        }
        out.push(word);
    }
    out
}

/// Lines of words; frequent words are more frequent, as in languages.
fn prose(rng: &mut Rng, words: &[String], bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes + 100);
    let mut column = 0;
    while out.len() < bytes {
        let rank = (words.len() as f64).powf(rng.f64()) as usize;
        let word = &words[rank.min(words.len() - 1)];
        out.extend_from_slice(word.as_bytes());
        column += word.len() + 1;
        let end = column > 60 + rng.usize(..20);
        out.push(if end { b'\n' } else { b' ' });
        if end {
            column = 0;
        }
    }
    out.push(b'\n');
    out
}

fn lines<T: std::fmt::Display>(items: impl Iterator<Item = T>) -> Vec<u8> {
    let mut out = String::new();
    for item in items {
        writeln!(out, "{item}").expect("writing to a string cannot fail");
    }
    out.into_bytes()
}

fn table(rng: &mut Rng, words: &[String], rows: usize) -> Vec<u8> {
    let mut out = "id,name,group,amount\n".to_owned();
    for id in 0..rows {
        let name = &words[rng.usize(..words.len())];
        let cents = rng.u32(..10_000_000);
        writeln!(out, "{id},{name},{},{}.{:02}", rng.u32(..50), cents / 100, cents % 100).expect("a string");
    }
    out.into_bytes()
}

fn json(rng: &mut Rng, words: &[String], records: usize) -> Vec<u8> {
    let record = |id: usize, rng: &mut Rng| {
        let word = |rng: &mut Rng| words[rng.usize(..words.len())].clone();
        serde_json::json!({
            "id": id, "name": word(rng), "tags": [word(rng), word(rng)], "score": rng.u32(..1000), "open": rng.bool(),
        })
    };
    let all: Vec<_> = (0..records).map(|id| record(id, rng)).collect();
    serde_json::Value::from(all).to_string().into_bytes()
}

fn xml(rng: &mut Rng, words: &[String], records: usize) -> Vec<u8> {
    let mut out = "<?xml version=\"1.0\"?>\n<list>\n".to_owned();
    for id in 0..records {
        let word = |rng: &mut Rng| words[rng.usize(..words.len())].clone();
        let (name, text, group) = (word(rng), word(rng), rng.u32(..30));
        writeln!(out, "  <item id=\"{id}\" group=\"{group}\"><name>{name}</name><text>{text} &amp; co</text></item>")
            .expect("a string");
    }
    out.push_str("</list>\n");
    out.into_bytes()
}

fn image(rng: &mut Rng, width: usize, height: usize) -> Vec<u8> {
    let mut out = format!("P6\n{width} {height}\n255\n").into_bytes();
    for y in 0..height {
        for x in 0..width {
            let wave = (x * x / 97 + y * y / 61) as u8;
            out.extend_from_slice(&[wave / 2 + rng.u8(..16), (x * 255 / width) as u8, (y * 255 / height) as u8 ^ 7]);
        }
    }
    out
}

/// PCM, 16 bits, stereo, 44.1 kHz; triangle waves and noise, so that no floating-point function is involved.
fn sound(rng: &mut Rng, seconds: u32) -> Vec<u8> {
    let frames = 44_100 * seconds;
    let bytes = frames * 4;
    let mut out = Vec::with_capacity(bytes as usize + 44);
    out.extend_from_slice(b"RIFF");
    out.extend_from_slice(&(bytes + 36).to_le_bytes());
    out.extend_from_slice(b"WAVEfmt ");
    out.extend_from_slice(&16u32.to_le_bytes());
    for half in [1u16, 2] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    out.extend_from_slice(&44_100u32.to_le_bytes());
    out.extend_from_slice(&(44_100u32 * 4).to_le_bytes());
    for half in [4u16, 16] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    out.extend_from_slice(b"data");
    out.extend_from_slice(&bytes.to_le_bytes());
    let triangle = |t: u32, period: u32| (t % period).abs_diff(period / 2) as i32 * 20_000 / period as i32;
    for t in 0..frames {
        for period in [101 + t / 5000, 203] {
            let sample = triangle(t, period) - 5000 + rng.i32(-300..300);
            out.extend_from_slice(&(sample as i16).to_le_bytes());
        }
    }
    out
}

fn c_source(rng: &mut Rng, functions: usize) -> String {
    let mut out = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n".to_owned();
    out.push_str("struct item { int key; double weight; char name[24]; struct item *next; };\n");
    for k in 0..functions {
        let (a, b, c) = (rng.u32(3..90), rng.u32(2..17), rng.u32(1..9));
        write!(
            out,
            "static int f{k}(int n, struct item *list, double *out)\n{{\n\
             \x20   int sum = {a};\n    for (int i = 0; i < n; i++) {{\n\
             \x20       switch ((i * {b} + sum) % 7) {{\n\
             \x20       case 0: sum += i ^ {a}; break;\n        case 1: sum -= i * {c}; break;\n\
             \x20       case 2: out[i % 64] += sum / {b}.5; break;\n        case 3: sum = (sum << 3) | (sum >> 5 & {a}); break;\n\
             \x20       case 4: if (list) {{ sum += list->key; list = list->next; }} break;\n\
             \x20       default: sum ^= {a} * i; break;\n        }}\n    }}\n\
             \x20   for (struct item *p = list; p; p = p->next) {{ p->weight *= {c}.25; sum += (int)strlen(p->name); }}\n\
             \x20   return sum;\n}}\n"
        )
        .expect("a string");
    }
    out.push_str("int main(void)\n{\n    struct item items[64];\n    double out[64] = {0};\n    int sum = 0;\n");
    out.push_str("    for (int i = 0; i < 64; i++) {\n        items[i].key = i; items[i].weight = i;\n");
    out.push_str("        snprintf(items[i].name, sizeof items[i].name, \"item %d\", i);\n");
    out.push_str("        items[i].next = i < 63 ? &items[i + 1] : NULL;\n    }\n");
    for k in 0..functions {
        writeln!(out, "    sum += f{k}({}, items, out);", rng.u32(10..200)).expect("a string");
    }
    out.push_str("    printf(\"%d %.3f\\n\", sum, out[7]);\n    return 0;\n}\n");
    out
}

fn cpp_source(rng: &mut Rng, classes: usize) -> String {
    let mut out = "#include <map>\n#include <memory>\n#include <stdexcept>\n#include <string>\n#include <vector>\n\
        #include <iostream>\nstruct base { virtual ~base() = default; virtual int work(int) = 0; };\n"
        .to_owned();
    for k in 0..classes {
        let (a, b) = (rng.u32(2..50), rng.u32(3..11));
        write!(
            out,
            "struct c{k} : base {{\n    std::map<std::string, int> m;\n    int work(int n) override {{\n\
             \x20       for (int i = 0; i < n; i++) m[std::to_string(i * {a} % 97)] += i;\n\
             \x20       if (m.size() % {b} == 0) throw std::runtime_error(\"c{k}\");\n\
             \x20       int s = 0; for (auto &p : m) s += p.second; return s; }}\n}};\n"
        )
        .expect("a string");
    }
    out.push_str("int main()\n{\n    std::vector<std::unique_ptr<base>> all;\n");
    for k in 0..classes {
        writeln!(out, "    all.push_back(std::make_unique<c{k}>());").expect("a string");
    }
    out.push_str("    long s = 0;\n    for (auto &p : all) try { s += p->work(200); } ");
    out.push_str("catch (const std::exception &e) { std::cout << e.what() << '\\n'; }\n");
    out.push_str("    std::cout << s << '\\n';\n}\n");
    out
}

fn assembly(rng: &mut Rng, instructions: usize) -> String {
    const REGISTERS: [&str; 8] = ["rax", "rcx", "rdx", "rbx", "rsi", "rdi", "r8", "r13"];
    let mut out = "\t.text\n\t.globl f\nf:\n".to_owned();
    for k in 0..instructions {
        let (a, b) = (REGISTERS[rng.usize(..8)], REGISTERS[rng.usize(..8)]);
        let n = rng.i32(-200..200);
        let line = match rng.u32(..7) {
            0 => format!("movq %{a}, {n}(%{b},%{a},4)"),
            1 => format!("leaq {n}(%{b}), %{a}"),
            2 => format!("addq ${n}, %{a}"),
            3 => format!("jne .L{}", rng.usize(..instructions)),
            4 => format!("vpaddd {n}(%{b}), %ymm{}, %ymm{}", rng.u32(..16), rng.u32(..16)),
            5 => format!("cmpb ${}, {n}(%{a})", n / 2),
            _ => format!("imulq %{a}, %{b}"),
        };
        writeln!(out, ".L{k}:\t{line}").expect("a string");
    }
    out.push_str("\tret\n\t.section .rodata\n");
    for _ in 0..instructions / 10 {
        writeln!(out, "\t.quad .L{}", rng.usize(..instructions)).expect("a string");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_the_same_each_time() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(a.path()).unwrap();
        write(b.path()).unwrap();
        let all = crate::compare::tree(a.path(), &[]).unwrap();
        assert_eq!(all, crate::compare::tree(b.path(), &[]).unwrap());
        assert!(all.len() > 800);
        assert!(all.values().all(|node| node.kind == "folder" || node.bytes.len() > 1000));
    }
}
