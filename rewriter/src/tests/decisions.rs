//! Decisions as `inspect --decisions` tells them: each reason and each answer occurs, and the sums are those of the rewrite.

use crate::base::options::{Checks, Options, Poll};
use crate::pipeline;
use crate::plan::decision::Reason;
use crate::reports::decisions::{Answer, DecisionsReport, Flags, Point, PointKind, decisions};
use crate::reports::inspect::inspect;
use crate::tests::passes::program;
use std::collections::BTreeSet;

/// Code with everything that is decided, and the options for it.
fn samples() -> Vec<(&'static str, Options)> {
    let all = Options::tests();
    vec![
        ("mov rax, [rdi]\n mov rcx, [rdi+8]\n mov [rsp-8], rax\n mov edx, [rip+memory]\n push rax\n pop rax", all),
        ("mov eax, fs:[0]\n mov eax, [edi]\n lock add [rdi], rax\n add [rsi], rax\n xchg [rsi+512], rax", all),
        ("mov rax, [rdi]\n cmp rax, 1\n je 1f\n nop\n1: mov rax, [rdi]", all),
        ("mov ecx, 100\n1: mov rax, [rdi]\n add [rsi], rax\n add rdi, 8\n add rsi, 8\n dec rcx\n jnz 1b", all),
        ("mov ecx, 9\n rep movsb\n vpgatherdd ymm1, [rdi+ymm2*4], ymm3\n vpscatterdd [rdi+zmm2*4]{k1}, zmm3", all),
        ("movdir64b rax, [rdi]\n fxsave [rdi]\n mov rsp, [rdi]", all),
        ("dec rdi\n jz 1f\n call f\n call f\n1: nop", all),
        ("1: dec rsi\n jz 2f\n3: dec rdi\n jnz 3b\n jmp 1b\n2: call [rdi]\n jmp rax", all),
        ("cmp rdi, rsi\n mov rcx, [rdi]\n sete al", Options { screens: false, ..all }),
        ("mov rax, [rdi]\n mov [rsi], rax", Options { checks: Checks::Stores, poll: Poll::None, ..all }),
        ("1: mov rax, [rdi]\n dec rsi\n jnz 1b", Options { checks: Checks::None, blocks: true, ..all }),
        ("mov rax, [rdi]\n mov rcx, [rdi+8]\n1: dec rsi\n jnz 1b", Options { poll: Poll::None, merge: false, ..all }),
    ]
}

fn told(body: &str, options: &Options) -> DecisionsReport {
    decisions(&program(body), "p", options, None).expect("an analysis")
}

fn points() -> Vec<Point> {
    let reports = samples().into_iter().map(|(body, options)| told(body, &options));
    reports.flat_map(|r| r.functions).flat_map(|f| f.points).collect()
}

#[test]
fn each_reason_and_each_answer_occurs() {
    let mut points = points();
    points.extend(told("int 0x80", &Options::tests()).functions.into_iter().flat_map(|f| f.points));
    let reasons: BTreeSet<Reason> = points.iter().filter_map(|p| p.reason).collect();
    assert_eq!(reasons, BTreeSet::from(Reason::ALL));
    use Answer::*;
    for answer in [Checked, Gate, Unchecked, Refused, Poll, NoPoll, Strip, StackTest, Counter] {
        assert!(points.iter().any(|p| p.decision == answer), "{answer:?}");
    }
    let memory = [
        PointKind::Load,
        PointKind::Store,
        PointKind::Update,
        PointKind::Atomic,
        PointKind::String,
        PointKind::Gather,
        PointKind::Scatter,
    ];
    let others = [PointKind::ImplicitStack, PointKind::Unknown, PointKind::Entry, PointKind::BackEdge, PointKind::Edge];
    for asked in memory.into_iter().chain(others).chain([PointKind::StackPointer, PointKind::Block]) {
        assert!(points.iter().any(|p| p.point == asked), "{asked:?}");
    }
    for why in ["screen, then tag", "tag", "range", "each cycle polls", "each cycle has another poll"] {
        assert!(points.iter().any(|p| p.why == why), "{why}");
    }
    for why in ["what follows may lead anywhere", "functions call each other in a circle", "not asked for"] {
        assert!(points.iter().any(|p| p.why == why), "{why}");
    }
}

/// What is told is what a rewrite does.
#[test]
fn sums_are_those_of_the_rewrite() {
    for (body, options) in samples() {
        let input = program(body);
        let report = pipeline::rewrite(&input, "p", &options).expect("rewrite").report;
        let totals = told(body, &options).totals;
        let told = [totals.checked, totals.gates, totals.polls, totals.stack_tests, totals.strips, totals.refused];
        let done = [
            report.checks,
            report.string_gates + report.vsib_gates,
            report.polls,
            report.stack_tests,
            report.optimiser.strips,
            0,
        ];
        assert_eq!(told, done, "{body}");
        let covered: u64 = ["merged", "dominated", "strip"].iter().filter_map(|r| totals.unchecked.get(*r)).sum();
        let accesses = inspect(&input, "p", &options).expect("an analysis").accesses;
        let checked = accesses.checked_loads + accesses.checked_stores + accesses.by_runtime;
        assert_eq!(checked, totals.checked + totals.gates + covered, "{body}");
        assert_eq!(accesses.exempt_total(), totals.unchecked.values().sum::<u64>() - covered, "{body}");
    }
}

/// A sequence stands where something is inserted, and nowhere else; what it saves is live.
#[test]
fn sequences_stand_where_something_is_inserted() {
    for p in points() {
        let inserts = !matches!(p.decision, Answer::Unchecked | Answer::Refused | Answer::NoPoll);
        // The second check of an instruction is part of the first one's sequence.
        let second = p.instruction.starts_with("movdir64b") && p.point == PointKind::Store;
        assert_eq!(p.sequence.is_some(), inserts && !second, "{p:?}");
        let Some(s) = p.sequence else { continue };
        assert!(s.hot_bytes > 0 && s.instructions > 0, "{p:?}", p = s);
        assert!(s.saved.iter().all(|r| s.registers.contains(r)), "{s:?}");
    }
    let of = |body, options: Options| {
        let points = told(body, &options).functions.into_iter().flat_map(|f| f.points);
        points.filter(|p| p.decision == Answer::Checked).map(|p| p.sequence.unwrap()).collect::<Vec<_>>()
    };
    let plain = Options { screens: false, ..Options::tests() };
    let [free] = &of("mov rax, [rdi]\n cmp rax, 1", plain)[..] else { panic!("one check") };
    assert_eq!((free.instructions, free.flags, free.saved.len()), (4, Flags::Dead, 0));
    let [saved] = &of("cmp rdi, rsi\n mov rcx, [rdi]\n sete al", plain)[..] else { panic!("one check") };
    assert_eq!(saved.flags, Flags::Saved);
}

#[test]
fn functions_are_found_by_name_and_by_address() {
    let input = program("mov rax, [rdi]");
    let of = |function| decisions(&input, "p", &Options::tests(), function);
    let all = of(None).expect("an analysis").functions;
    let f = all.iter().find(|f| f.name == "f").expect("a function");
    let inside = format!("{:#x}", f.address + 1);
    for name in ["f", inside.as_str()] {
        let found = of(Some(name)).expect("an analysis").functions;
        assert_eq!(found.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["f"], "{name}");
    }
    for name in ["nothing", "0x1", "0xf00d", "0xno", ""] {
        assert!(of(Some(name)).unwrap_err().what.contains("has no function"), "{name}");
    }
}
