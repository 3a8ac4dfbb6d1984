//! Faults planted into the tests of plain and full code, and into their stubs.

use crate::decode::decoder::Code;
use crate::decode::effects::Flow;
use crate::decode::insn::{GS, Insn, Mem, NONE};
use crate::judge::versions::pairs::{Version, Versions};
use crate::sites::symbolic::is_tag_test_at_alias;
use crate::tests::guard_access::subject::{Subject, leading, subject, tests_of};
use blizzard_contract::{self as contract, TAG_TABLE_BASE};

#[test]
fn finds_faults_in_tests() {
    let s = subject();
    faults_in_tests(&s, |v| &v.full);
    let learnt = Subject::learnt(&s.original, 1).expect("rewrite");
    faults_in_tests(&learnt, |v| &v.plain);
    faults_in_tests(&learnt, |v| &v.full);
    // Rows of the restart table, which the runtime asks whether plain code is in a test: each byte of its heads.
    let info = learnt.view(|view| view.m.info);
    let heads = (0..info.restart_count.div_ceil(64) * 8).map(|k| info.restart_heads_va + k);
    learnt.finds_each(heads.map(|va| (va, vec![learnt.byte(va).wrapping_add(1)])).collect(), "");
}

/// Where a test has spilled registers, its stub asks whether the access's own block allows it.
#[test]
fn finds_faults_in_tests_of_the_own_block() {
    let source = "__attribute__((noinline)) static long sweep(long *p, long n) {\n\
            long last = 7;\n\
            __asm__ volatile(\"1: mov %%rax, 8(%%rdi)\\n add $8, %%rdi\\n add 16(%%rdi), %%rcx\\n add %%rcx, %%rax\\n xor %%rdx, %%rax\\n\"\n\
                \"add %%r8, %%rax\\n xor %%r9, %%rax\\n add %%r10, %%rax\\n xor %%r11, %%rax\\n dec %%rsi\\n jnz 1b\"\n\
                : \"+D\"(p), \"+S\"(n), \"+a\"(last) : : \"rcx\", \"rdx\", \"r8\", \"r9\", \"r10\", \"r11\", \"memory\", \"cc\");\n\
            return last;\n\
        }\n\
        int main(void) { static long a[99]; return (int)sweep(a, 9); }";
    let original = Subject::new("cc", source, &["-O1"]).original;
    let s = Subject::learnt(&original, 1).expect("rewrite");
    s.accepted("as it is");
    let mut changes = vec![];
    s.view(|view| {
        let is_level = |i: &Insn| i.mem.is_some_and(|m| m.disp as u64 == TAG_TABLE_BASE && i.op == 0xf6);
        for version in [&view.v.plain, &view.v.full] {
            for (site, access) in tests_of(version) {
                let hot = &version.code.insns[site.start..site.access];
                let branch = hot.iter().find(|i| i.flow == Flow::Cond).expect("a branch");
                let stub = &view.cold.insns[view.cold.at(branch.target).expect("a stub")..];
                let gate = stub.iter().position(|i| matches!(i.flow, Flow::Call | Flow::CallInd)).expect("a call");
                let Some(own) = stub[..gate].iter().position(is_level) else { continue };
                // In front of it: and, cmp, ja, lea or mov, shr.
                let [test, denied, and, limit, straddles] = [own, own + 1, own - 5, own - 4, own - 3].map(|k| &stub[k]);
                let allowing = s.byte(test.end() - 1);
                changes.push((test.end() - 1, vec![if allowing == 8 { 0xc } else { 0xe }]));
                changes.push((and.end() - 1, vec![31]));
                changes.push((limit.end() - 1, vec![s.byte(limit.end() - 1) + 1]));
                changes.push((straddles.va, vec![0x72]));
                changes.push((denied.va, vec![0x75]));
                // The branch behind the look at the doorbell.
                changes.push((stub[own + 3].va + 1, vec![0]));
                let leaves = stub[own..].iter().find(|i| i.flow == Flow::Jump).expect("a way to the access");
                changes.extend(leading(leaves, access.va + 1));
            }
        }
    });
    assert!(changes.len() >= 4 * 7, "{}", changes.len());
    s.finds_each(changes, "");
}

/// A test that keeps a register in the red zone must be known as such to the runtime, which would begin it again. The scale of no index makes no difference but
/// in the bytes that it looks at.
#[test]
fn finds_tests_that_may_begin_again_where_they_have_changed_what_lives() {
    let learnt = Subject::learnt(&subject().original, 1).expect("rewrite");
    let mut changes = vec![];
    learnt.view(|view| {
        for (site, _) in tests_of(&view.v.plain) {
            let first = view.v.plain.insn(site.start);
            if [0x89, 0x24].map(Some) == [1, 3].map(|k| (first.len == 5).then(|| learnt.byte(first.va + k))) {
                changes.push((first.va + 3, vec![0x64]));
            }
        }
    });
    learnt.finds_each(changes, "may begin again here");
}

/// Where the next block is not accessible, a loop of plain code that has learnt may have no place but its stubs where it sees that a peer has rung. One that looks,
/// and goes on alike, or looks elsewhere, is found.
#[test]
fn finds_stubs_that_do_not_answer_the_doorbell() {
    let s = subject();
    for s in [Subject::learnt(&s.original, 1).expect("rewrite"), s] {
        let (mut branches, mut words) = (vec![], vec![]);
        s.view(|view| {
            let looks = |i: &Insn| {
                i.op == 0x83 && i.mem.is_some_and(|m| m.base == NONE && m.disp as u64 == contract::POLL_WORD)
            };
            for stub in view.cold.insns.windows(4) {
                let [test, _, look, branch] = stub else { continue };
                if test.op == 0xf6 && looks(look) && branch.len == 2 {
                    branches.push((branch.va + 1, vec![0]));
                    words.extend([(look.end() - 1, vec![1]), (look.end() - 5, vec![s.byte(look.end() - 5) ^ 4])]);
                }
            }
        });
        assert!(branches.len() > 2, "{branches:x?}");
        s.finds_each(branches, "without a look at the doorbell|does not prove it");
        s.finds_each(words, "cold stub|does not prove it");
    }
}

/// A load is tested as the store to the same bytes behind it. Without that store, which becomes a load here, the test asks for too much.
#[test]
fn finds_loads_that_are_tested_as_stores_of_nothing() {
    let source = "__attribute__((noinline)) static long add(long *to, long n) { long was = *to; *to = was + n; return was; }\n\
        int main(int argc, char **argv) { static long a[4]; return (int)add(a + argc % 4, argc); }";
    let s = Subject::new("cc", source, &["-O1"]);
    s.accepted("as it is");
    let mut changes = vec![];
    s.view(|view| {
        let is_wide = |i: &&Insn| matches!(i.mem, Some(Mem { base, index: NONE, .. }) if base == 7) && i.op == 0x89;
        for code in [view.v.plain.code, view.v.full.code] {
            let store = code.insns.iter().find(is_wide).expect("a store");
            let opcode = (store.va..store.end()).find(|va| s.byte(*va) == 0x89).expect("its opcode");
            changes.push((opcode, vec![0x8b]));
        }
    });
    s.finds(&changes, "asks for the right to store, and nothing that is certainly executed stores");
}

/// Plants faults into the tests of one version.
fn faults_in_tests(s: &Subject, version: for<'x, 'y> fn(&'y Versions<'x>) -> &'y Version<'x>) {
    let (mut prefixes, mut levels, mut branches, mut other, mut back, mut zero, mut answers) =
        (vec![], vec![], vec![], vec![], vec![], vec![], vec![]);
    let (mut called, mut in_line) = (0, 0);
    s.view(|view| {
        let tested = version(view.v);
        for (site, access) in tests_of(tested) {
            let hot = &tested.code.insns[site.start..site.access];
            let level =
                |i: &&Insn| i.mem.is_some_and(|m| m.disp as u64 == TAG_TABLE_BASE && matches!(i.op, 0x80 | 0xf6));
            let branch = hot.iter().find(|i| i.flow == Flow::Cond).expect("a branch");
            let call = hot.iter().find(|i| i.flow == Flow::Call);
            let stub = &view.cold.insns[view.cold.at(call.unwrap_or(branch).target).expect("a stub")..];
            let test = hot.iter().find(level).or_else(|| stub.iter().find(level)).expect("a test");
            prefixes.push((access.va, vec![0x3e]));
            let weaker = match s.byte(test.end() - 1) {
                8 => 0xc,
                0xc => 0xe,
                other => other / 2,
            };
            levels.push((test.end() - 1, vec![weaker]));
            if access.flow == Flow::Next {
                other.push((access.end() - 1, vec![s.byte(access.end() - 1) ^ 8]));
            }
            // What asks whether the memory is private, and the branch behind it.
            let asks = stub.iter().position(|i| level(&i) && i.va != test.va).expect("a test");
            zero.push((stub[asks].end() - 1, vec![1]));
            match call {
                Some(_) => {
                    called += 1;
                    branches.extend([(branch.va, vec![0x73]), (branch.va + 1, vec![0]), (branch.va + 1, vec![2])]);
                    zero.push((stub[asks + 1].va, vec![s.byte(stub[asks + 1].va) ^ 1]));
                    // The first of each kind is the test's own.
                    for op in [0xf8, 0xf9] {
                        let answer = stub.iter().find(|i| i.op == op).expect("an answer");
                        answers.push((answer.va, vec![op as u8 ^ 1]));
                    }
                }
                None => {
                    in_line += 1;
                    branches.push((branch.va + 1, vec![s.byte(branch.va + 1) ^ 1]));
                    let leaves = stub.iter().find(|i| i.target == access.va + 1).expect("a way for private memory");
                    // To the access with its prefix, to the test, or into the stub.
                    let places = [access.va, tested.insn(site.start).va, branch.target];
                    back.extend(places.iter().filter_map(|&to| leading(leaves, to)));
                }
            }
        }
    });
    assert!(in_line > 0 && called + in_line > 10, "{called} {in_line}");
    s.finds_each(prefixes, "without the prefix|does not prove it");
    // Of what is called, the finding is of the first place where the sequence might begin.
    s.finds_each(levels, "does not prove it|cold stub");
    s.finds_each(branches, "goes to the alias without a test");
    s.finds_each(other, "");
    s.finds_each(zero, "private|does not prove it|cold stub");
    // Tests of plain code are in line.
    if called != 0 {
        s.finds_each(answers, "cold stub");
    }
    s.finds_each(back, "cold stub|does not ask first|does not prove it");
}

/// The tag table is mapped at its alias only: without the prefix a test faults. The other prefix does nothing.
#[test]
fn finds_tests_of_tags_elsewhere_than_at_the_alias() {
    let s = subject();
    let (mut hot, mut cold) = (vec![], vec![]);
    s.view(|view| {
        let tests = |code: &Code| -> Vec<(u64, Vec<u8>)> {
            code.insns.iter().filter(|i| is_tag_test_at_alias(i)).map(|i| (i.va, vec![0x3e])).collect()
        };
        (hot, cold) = (tests(view.v.full.code), tests(view.cold));
        assert!(
            !hot.is_empty() && cold.len() > hot.len(),
            "each stub tests a tag, and so do tails, and tests that are called"
        );
    });
    s.finds_each(hot, "no check sequence leads to this test");
    s.finds_each(cold, "unexpected instruction|unexpected branch|does not prove it");
}

/// The first byte of an instruction, REX.W, becomes the prefix; the instruction then accesses four bytes at the alias.
#[test]
fn finds_the_prefix_where_nothing_was_tested() {
    let s = subject();
    let (mut plain, mut full, mut alias) = (vec![], vec![], vec![]);
    s.view(|view| {
        let wide = |i: &&Insn| i.mem.is_some() && s.byte(i.va) == 0x48;
        plain.extend(view.v.plain.code.insns.iter().filter(wide).map(|i| (i.va, vec![GS])));
        full.extend(view.v.full.code.insns.iter().filter(wide).map(|i| (i.va, vec![GS])));
        let address = (contract::SEGMENT_BASE + contract::ALIAS_DISTANCE + 0x1234).to_le_bytes().to_vec();
        let named = |i: &&Insn| i.mem.is_some_and(|m| m.disp == 0x1234_5678_9abc);
        let constants = view.v.plain.code.insns.iter().filter(named);
        alias.extend(constants.map(|i| (i.end() - 8, address.clone())));
    });
    assert!(plain.len() > 10 && full.len() > 10);
    s.finds_each(plain, "goes to the alias without a test");
    s.finds_each(full, "goes to the alias without a test|sequence|undo|changed");
    s.finds_each(alias, "of the alias");
}

#[test]
fn finds_what_reads_or_moves_the_base_of_gs() {
    let s = subject();
    let (mut reads, mut moves) = (vec![], vec![]);
    s.view(|view| {
        let room = |i: &&Insn| i.len == 4 && i.mem.is_none() && i.flow == Flow::Next;
        let all: Vec<u64> = view.v.plain.code.insns.iter().filter(room).map(|i| i.va).collect();
        reads.extend(all.iter().map(|&va| (va, vec![0xf3, 0x0f, 0xae, 0xc8])));
        moves.extend(all.iter().map(|&va| (va, vec![0xf3, 0x0f, 0xae, 0xd8])));
    });
    assert!(reads.len() > 10);
    s.finds_each(reads, "the base of %gs");
    s.finds_each(moves, "the base of %gs");
}
