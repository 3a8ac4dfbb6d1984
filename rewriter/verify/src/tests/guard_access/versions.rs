//! Faults planted into what leads from one version to the other: redirections, the version table, frames, springboards.

use crate::decode::decoder::{self};
use crate::decode::effects::Flow;
use crate::decode::insn::{Insn, Mem, NO_TARGET, NONE, WIDE};
use crate::file::module::Module;
use crate::judge::versions::pairs::Version;
use crate::sites::site::{SiteKind, get};
use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::Numbers;
use crate::tests::guard_access::subject::{SOURCE, Subject, found, leading, subject};
use crate::tests::outputs::unwinding::THROWS;
use blizzard_contract::{self as contract};

#[test]
fn finds_faults_in_redirections() {
    let s = subject();
    let (mut nops, mut gone, mut away, mut led_to, mut sprung, mut run_into) =
        (vec![], vec![], vec![], vec![], vec![], vec![]);
    let (info, rows) = s.view(|view| {
        let rows = view.m.redirects().expect("rows");
        let (plain, full) = (&view.v.plain, &view.v.full);
        let branch = |v: &Version, to: u64| {
            let mut far = v.own.iter().map(|&k| *v.insn(k as usize)).filter(|i| i.len >= 5 && i.target != NO_TARGET);
            let i = far.find(|i| matches!(i.flow, Flow::Jump | Flow::Call | Flow::Cond)).expect("a branch");
            leading(&i, to)
        };
        for &(from, to) in &rows {
            let jump = from - 5;
            nops.extend([(from, vec![0x0f, 0x1f, 0x40, 0]), (from, contract::REDIRECTED.to_vec())]);
            gone.extend([(jump, vec![0xcc; 5]), (jump, vec![0xe8])]);
            let by = |to: u64| (to.wrapping_sub(from) as i32).to_le_bytes().to_vec();
            let other = rows.iter().find(|r| r.1 != to).expect("another function").1;
            away.extend(
                [from, other, to + 1, view.begin(full.insn(*full.own.last().expect("code") as usize))]
                    .map(|to| (jump + 1, by(to))),
            );
            led_to.extend([branch(plain, jump), branch(full, jump)].into_iter().flatten());
            let k = plain.code.at(jump).expect("the jump");
            let before = (0..k).rev().find(|&k| !plain.insn(k).is_nop() && !plain.insn(k).is_int3());
            let before = before.map(|k| plain.insn(k)).filter(|i| i.flow == Flow::Ret && i.len == 1);
            run_into.extend(before.map(|i| (i.va, vec![0x90])));
        }
        for o in view.m.old_code() {
            for k in 0..o.data.len().saturating_sub(5) {
                let va = o.va + k as u64;
                let by = i32::from_le_bytes(o.data[k + 1..k + 5].try_into().expect("four bytes"));
                let to = (va + 5).wrapping_add(by as u64);
                if o.data[k] == 0xe9 && rows.iter().any(|r| r.0 == to) {
                    sprung.push((va + 1, (by - 5).to_le_bytes().to_vec()));
                }
            }
        }
        (view.m.info, rows)
    });
    assert!(rows.len() > 5 && run_into.len() > 2);
    s.finds_each(nops, "begins with no instruction that may be overwritten");
    s.finds_each(gone, "has no jump there in front");
    s.finds_each(away, "has no jump there in front");
    s.finds_each(led_to, "lands between a check and its access|leads elsewhere than");
    s.finds_each(sprung, "leads between a check and its access");
    s.finds_each(run_into, "is reached by what stands in front of it");
    // Row and jump agree, and lead to another function: the first row stands whole in the head of its group.
    let (from, _) = rows[0];
    for &(_, other) in &rows[1..] {
        let offset = (other.wrapping_sub(info.new_base_va) as u32).to_le_bytes().to_vec();
        let jump = (from - 4, (other.wrapping_sub(from) as i32).to_le_bytes().to_vec());
        s.finds(
            &[(info.redirect_heads_va + 4, offset), jump],
            "does not lead to where the function begins in full code",
        );
    }
    // The table.
    let found = |words: &[(usize, u64)], why: &str| found(&s.with_words(words), why);
    found(&[(4, info.redirect_codes_va + 1)], "");
    found(&[(3, info.redirect_code_bytes - 1)], "contradict each other");
    found(&[(3, info.redirect_code_bytes + 1)], "contradict each other");
    found(&[(2, info.redirect_heads_va + 4)], "");
    found(&[(1, info.redirect_count - 1)], "contradict each other");
    found(&[(1, 0), (3, 0)], "has no row for this function");
    let codes = (0..info.redirect_code_bytes).map(|k| info.redirect_codes_va + k);
    s.finds_each(codes.map(|va| (va, vec![s.byte(va).wrapping_add(1)])).collect(), "");
    // The last row removed: its code is the last bytes. The jump, and the nop, then belong to nothing.
    let removed = |bytes: u64| s.with_words(&[(1, info.redirect_count - 1), (3, info.redirect_code_bytes - bytes)]);
    let readable = (1..=16).map(removed).find(|file| Module::read(file, "p").expect("module").redirects().is_some());
    let mut file = readable.expect("a table with a row less");
    self::found(&file, "plain code leads to full code");
    let reasons = verify_with(&file, "p", Some(&s.original)).expect("audit runs").open;
    assert!(reasons.iter().any(|o| o.reason.contains("is not the instruction of the original")), "{reasons:?}");
    let at = s.offset(rows[rows.len() - 1].0);
    file[at - 5..at].fill(0xcc);
    self::found(&file, "has no row for this function");
}

#[test]
fn finds_versions_that_differ() {
    let s = subject();
    let (mut other, mut middle, mut away, mut calls, mut to_full) = (vec![], vec![], vec![], vec![], vec![]);
    let (mut polls, mut loops, mut heads, mut behind_poll) = (vec![], vec![], vec![], vec![]);
    s.view(|view| {
        let (plain, full) = (&view.v.plain, &view.v.full);
        let inside = (0..full.code.insns.len()).filter(|&k| get(&full.sites.protected, k)).map(|k| full.insn(k).va);
        let inside: Vec<u64> = inside.collect();
        for (p, f) in view.pairs() {
            match p.flow {
                Flow::Next if p.imm != 0 && p.mem.is_none() => other.push((f.end() - 1, vec![s.byte(f.end() - 1) ^ 1])),
                Flow::Jump | Flow::Cond if plain.code.contains(p.target) && full.code.contains(f.target) => {
                    let at = full.own_from(full.code.at(f.target).expect("an instruction"));
                    let own = full.insn(full.own[at] as usize).va;
                    let polled = full.polls(full.code.at(f.target).expect("as above")..full.own[at] as usize) != 0;
                    behind_poll.extend(leading(f, own).filter(|_| polled));
                    if polled && f.target <= f.va {
                        heads.push(own);
                    }
                    middle.extend(inside.iter().find_map(|&va| leading(f, va)));
                    away.extend(leading(f, p.target));
                    to_full.extend(leading(p, f.target));
                    let next = full.own.iter().map(|&k| full.insn(k as usize).va).find(|&va| va > f.target + 32);
                    away.extend(next.and_then(|va| leading(f, va)));
                }
                Flow::Call => {
                    let to = plain.code.at(p.target).map(|k| plain.own[plain.own_from(k)] as usize);
                    let to = to.and_then(|k| view.v.full(k)).map(|k| view.begin(full.insn(k)));
                    calls.extend(to.and_then(|to| leading(f, to)));
                    to_full.extend(to.and_then(|to| leading(p, to)));
                }
                _ => {}
            }
        }
        assert!(plain.sites.list.iter().all(|s| s.kind != SiteKind::Poll), "a poll in plain code");
        for site in full.sites.list.iter().filter(|s| s.kind == SiteKind::Poll) {
            let (from, to) = (full.insn(site.start).va, full.insn(site.access).va);
            let list = if heads.contains(&to) { &mut loops } else { &mut polls };
            list.push((from, vec![0x90; (to - from) as usize]));
        }
    });
    s.finds_each(other, "full code that is no instruction|leads to another instruction|what follows it");
    s.finds_each(middle, "leads elsewhere than");
    s.finds_each(away, "leads elsewhere than");
    s.finds_each(calls, "leads elsewhere than");
    s.finds_each(to_full, "plain code leads to full code");
    s.finds_each(loops, "without a poll on the way");
    // Some that the program needs, and guarded code does not: what comes there without one comes from code that exists once.
    s.finds_each(polls, "leads to an unknown place|has no poll in front of it|belongs to no recognised check");
    s.finds_each(behind_poll, "leads elsewhere than");
}

#[test]
fn finds_jump_tables_that_lead_out_of_full_code() {
    let s = Subject::new("cc", SOURCE, &["-O2", "-fno-inline", "-no-pie", "-fno-pie"]);
    let mut entries = vec![];
    s.view(|view| {
        let rodata = view.m.rodata.as_ref().expect("tables");
        let (plain, full) = (&view.v.plain, &view.v.full);
        for (k, word) in rodata.data.chunks_exact(8).enumerate() {
            let to = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            if !full.code.contains(to) {
                continue;
            }
            let va = rodata.va + 8 * k as u64;
            let at = full.landing(to).map(|l| l.at).expect("an instruction");
            let in_plain = plain.insn(plain.own[view.v.plain_of[at] as usize] as usize).va;
            entries.push((va, in_plain.to_le_bytes().to_vec()));
            entries.push((va, (to + 1).to_le_bytes().to_vec()));
        }
    });
    s.finds_each(entries, "jump table in full code");
}

#[test]
fn finds_faults_in_the_version_table() {
    let s = subject();
    let (info, first) = s.view(|view| (view.m.info, view.m.versions().expect("rows")[0]));
    let words = contract::ModuleInfo { ..info }.words();
    let place = |value: u64| words.iter().rposition(|w| *w == value).expect("a word");
    let at = s.file.windows(8).position(|w| w == contract::MODULE_MAGIC.to_le_bytes()).expect("module info");
    let field = |back: usize, value: u64| s.with_words(&[(back, value)]);
    found(&field(9, 0), "full code does not begin in the code");
    found(&field(9, info.full_at + 3), "");
    found(&field(9, info.full_at - 40), "");
    found(&field(9, info.code_bytes + 64), "full code does not begin in the code");
    found(&field(8, info.version_codes_va + 1), "");
    found(&field(7, info.version_code_bytes - 1), "contradict each other");
    found(&field(7, info.version_code_bytes + 1), "contradict each other");
    found(&field(6, info.version_heads_va + 4), "");
    found(&field(5, info.version_count - 1), "contradict each other");
    found(&field(5, 0), "contradict each other|has no row");
    let flags = {
        let mut file = s.file.clone();
        let at = at + 8 * place(info.flags).min(1);
        file[at..at + 8].copy_from_slice(&(info.flags & !contract::module_flags::GUARD).to_le_bytes());
        file
    };
    found(&flags, "the flags do not say so");
    // Rows changed, each code and each head.
    let codes = (0..info.version_code_bytes).map(|k| info.version_codes_va + k);
    let plus = |va: u64, by: u8| (va, vec![s.byte(va).wrapping_add(by)]);
    s.finds_each(codes.clone().map(|va| plus(va, 1)).collect(), "");
    s.finds_each(codes.map(|va| plus(va, 0x10)).collect(), "");
    let heads = info.version_count.div_ceil(64) * 12;
    s.finds_each((0..heads).map(|k| plus(info.version_heads_va + k, 1)).collect(), "");
    assert!(first.0 < first.1);
    // The last row removed: its code is the last byte, or the last two. A row added: where there is room behind the codes.
    for bytes in 1..=2 {
        let file = s.with_words(&[(5, info.version_count - 1), (7, info.version_code_bytes - bytes)]);
        found(&file, "has no row for this access|contradict each other");
    }
    let mut more = s.with_words(&[(5, info.version_count + 1), (7, info.version_code_bytes + 1)]);
    let behind = s.offset(info.version_codes_va + info.version_code_bytes);
    more[behind] = 0x11;
    found(&more, "its row to|needs no test|contradict each other");
}

/// Each byte of the frames' rules, and of their exception tables, of full code.
#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn finds_frames_that_differ() {
    let s = Subject::new("c++", THROWS, &["-std=c++14", "-O2"]);
    let (mut rules, mut ranges) = (vec![], vec![]);
    s.view(|view| {
        let full = &view.v.full.code;
        let bytes = |va: u64, n: usize| view.m.bytes_at(va, n).expect("in the file");
        for f in view.m.frames.list.iter().filter(|f| full.contains(f.from) && f.to - f.from > 16) {
            let n = u32::from_le_bytes(bytes(f.record, 4).try_into().expect("four bytes")) as usize;
            ranges.push((f.record + 8, (f.from.wrapping_sub(f.record + 8) as i32 + 1).to_le_bytes().to_vec()));
            ranges.push((f.record + 12, ((f.to - f.from) as u32 - 16).to_le_bytes().to_vec()));
            let record = bytes(f.record, n + 4);
            // DW_CFA_def_cfa_offset, behind an advance.
            let steps = (18..record.len() - 1).filter(|&k| record[k] == 0x0e && (0x41..0x80).contains(&record[k - 1]));
            rules.extend(steps.map(|k| (f.record + k as u64 + 1, vec![record[k + 1] + 8])));
        }
    });
    s.finds_each(ranges, "");
    s.finds_each(rules, "the frame's rules");
    let pads = s.view(|view| {
        let full = &view.v.full.code;
        let table = view.m.sections.iter().find(|s| s.name == ".gcc_except_table").expect("exception tables");
        let pads = view.m.pads.iter().filter(|p| full.contains(p.from)).count();
        (table.va..table.va + table.data.len() as u64, pads)
    });
    assert!(pads.1 > 3);
    let hits = pads.0.filter(|&va| {
        let change = [(va, vec![s.byte(va).wrapping_add(1)])];
        let audit = verify_with(&s.with(&change), "p", None);
        audit.is_ok_and(|a| a.open.iter().any(|o| o.reason.contains("the landing pad is") && full_at(&s, o.at)))
    });
    assert!(hits.count() >= pads.1 / 2);
}

fn full_at(s: &Subject, va: u64) -> bool {
    s.view(|view| view.v.full.code.contains(va))
}

#[test]
fn finds_springboards_to_full_code() {
    let s = subject();
    let mut changes = vec![];
    s.view(|view| {
        for o in view.m.old_code() {
            for k in 0..o.data.len().saturating_sub(5) {
                let va = o.va + k as u64;
                let by = i32::from_le_bytes(o.data[k + 1..k + 5].try_into().expect("four bytes"));
                let to = (va + 5).wrapping_add(by as u64);
                let plain = &view.v.plain;
                let Some(at) = plain.landing(to).filter(|_| o.data[k] == 0xe9).map(|l| l.at) else { continue };
                if let Some(f) = view.v.full(plain.own[at] as usize) {
                    let to = view.begin(view.v.full.insn(f));
                    changes.push((va + 1, (to.wrapping_sub(va + 5) as i32).to_le_bytes().to_vec()));
                }
            }
        }
    });
    s.finds_each(changes, "leads to no instruction of the new code");
}

/// What is changed at random in full code and in stubs is found, but for what the processor does not ask.
#[test]
fn finds_bytes_changed_at_random() {
    let s = subject();
    let places: Vec<(u64, Insn)> = s.view(|view| {
        let stubs = view.cold.insns.iter();
        let all = view.v.full.code.insns.iter().chain(stubs).filter(|i| !i.is_nop() && !i.is_int3());
        all.flat_map(|i| (i.va..i.end()).map(|va| (va, *i))).collect()
    });
    let mut numbers = Numbers(0x1357_9bdf_0246_8ace);
    // Another encoding of the same instruction: bits of REX that nothing uses, the scale of no index.
    let record = |i: &Insn| {
        let mem = i.mem.map(|m| Mem { scale: if m.index == NONE { 1 } else { m.scale }, ..m });
        let bits = if i.size == 1 { i.bits & !WIDE } else { i.bits };
        // The register field of `setcc` says nothing.
        let ext = if (0x190..=0x19f).contains(&i.op) { 0 } else { i.ext };
        (i.op, ext, mem, i.imm, i.r0, i.r1, bits, i.target, i.len)
    };
    // A poll's stub may repeat the poll.
    let polls: Vec<(u64, u64)> = s.view(|view| {
        let of = |v: &Version| -> Vec<(u64, u64)> {
            let polls = v.sites.list.iter().filter(|s| s.kind == SiteKind::Poll);
            polls.map(|s| (v.insn(s.access).va, v.insn(s.start).va)).collect()
        };
        [of(&view.v.plain), of(&view.v.full)].concat()
    });
    let mut missed = vec![];
    for _ in 0..1500 {
        let (va, i) = places[numbers.next(places.len())];
        let new = s.byte(va).wrapping_add(1 + numbers.next(255) as u8);
        let file = s.with(&[(va, vec![new])]);
        if verify_with(&file, "p", None).is_ok_and(|a| a.is_clean()) {
            let at = s.offset(i.va);
            let now = decoder::decode(&file[at..at + 15], i.va, &[]).insns.first().copied();
            let repeats = now.is_some_and(|now| now.flow == i.flow && polls.contains(&(i.target, now.target)));
            let same = now.is_some_and(|now| record(&now) == record(&i) && i.target == NO_TARGET);
            // Of lahf and sahf: flags that are dead as the audit finds need not be kept.
            let keeps_flags = matches!(i.op, 0x9e | 0x9f);
            if !same && !repeats && !keeps_flags {
                missed.push(format!("{va:#x}: {:#x} -> {new:#x} of {i:x?}", s.byte(va)));
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
