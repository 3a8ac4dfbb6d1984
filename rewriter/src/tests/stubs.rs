//! What stands behind the call of a gate, in every stub of real code: the runtime finds its way from there to the program.
//!
//! The oracle decodes with another decoder, and follows whatever it meets until it is in hot code.

use crate::base::options::{AccessMode, Options};
use crate::pipeline;
use crate::store::library_search::libraries_of;
use crate::tests::passes::program;
use blizzard_contract::{GATE_GROUP, GATE_MISS, GATE_POLL, GATE_STRING, GATE_VSIB, goes_on};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use object::{Object, ObjectSection, ObjectSegment};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

/// Bytes of arguments that the gates take whose callers go on behind them.
const GATES: [(u64, u64); 5] = [(GATE_MISS, 16), (GATE_POLL, 0), (GATE_STRING, 8), (GATE_VSIB, 8), (GATE_GROUP, 8)];

/// Where the stack is when a gate has returned.
const STACK: u64 = 0x7000_0000;

/// The new code of an output.
struct NewCode<'x> {
    bytes: &'x [u8],
    all: Range<u64>,
    cold: Range<u64>,
    /// Calls of cold code, by where that begins: where they return to.
    callers: BTreeMap<u64, Vec<u64>>,
    /// Calls of gates: where they return to, and the gate's slot.
    gates: Vec<(u64, u64)>,
}

impl<'x> NewCode<'x> {
    fn of(output: &'x [u8]) -> NewCode<'x> {
        let elf = object::File::parse(output).unwrap();
        let cold = elf.section_by_name(".blizzard.cold").unwrap();
        let cold = cold.address()..cold.address() + cold.size();
        let text = elf.section_by_name(".blizzard.text").unwrap().address();
        let segment = elf.segments().find(|s| (s.address()..s.address() + s.size()).contains(&text)).unwrap();
        let all = segment.address()..segment.address() + segment.size();
        let mut code =
            NewCode { bytes: segment.data().unwrap(), all, cold, callers: BTreeMap::new(), gates: Vec::new() };
        let decoder = Decoder::with_ip(64, code.bytes, code.all.start, DecoderOptions::NONE);
        for i in decoder {
            match i.code() {
                Code::Call_rel32_64 if code.cold.contains(&i.near_branch_target()) => {
                    code.callers.entry(i.near_branch_target()).or_default().push(i.next_ip());
                }
                Code::Call_rm64 if code.cold.contains(&i.ip()) => {
                    let is_gate = i.op0_kind() == OpKind::Memory && i.memory_base() == Register::None;
                    code.gates.extend(is_gate.then_some((i.next_ip(), i.memory_displacement64())));
                }
                _ => {}
            }
        }
        code
    }

    fn at(&self, at: u64) -> Instruction {
        let bytes = &self.bytes[(at - self.all.start) as usize..];
        Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode()
    }

    /// Who has called the code around `at`: where some of them go on.
    fn callers_of(&self, at: u64) -> &[u64] {
        let calls = self.callers.range(..at).next_back().map_or(&[][..], |(_, calls)| calls);
        &calls[..calls.len().min(200)]
    }

    /// Where a stub goes on at `at`, by each instruction in turn: in hot code, or at an access that stands in the stub itself. `returns`: what lies on the
    /// stack, in turn.
    fn followed(&self, mut at: u64, returns: &[u64]) -> (u64, u64) {
        let (mut rsp, mut returns) = (STACK, returns.iter());
        while self.cold.contains(&at) {
            let i = self.at(at);
            let is_rsp = i.op0_kind() == OpKind::Register && i.op0_register() == Register::RSP;
            at = i.next_ip();
            match i.flow_control() {
                FlowControl::UnconditionalBranch => at = i.near_branch_target(),
                FlowControl::Return => {
                    at = *returns.next().expect("a caller");
                    rsp += 8 + if i.op_count() > 0 { i.immediate(0) } else { 0 };
                }
                FlowControl::IndirectCall => rsp += popped(i.memory_displacement64()).expect("a gate"),
                FlowControl::Next if i.segment_prefix() == Register::GS => return (i.ip(), rsp),
                FlowControl::Next if is_rsp && i.code() == Code::Lea_r64_m => {
                    assert_eq!((i.memory_base(), i.memory_index()), (Register::RSP, Register::None));
                    rsp = rsp.wrapping_add(i.memory_displacement64());
                }
                FlowControl::Next if is_rsp && i.code() == Code::Add_rm64_imm8 => {
                    rsp = rsp.wrapping_add(i.immediate(1))
                }
                FlowControl::Next if is_rsp && i.code() == Code::Sub_rm64_imm8 => {
                    rsp = rsp.wrapping_sub(i.immediate(1))
                }
                FlowControl::Next => rsp = rsp.wrapping_add_signed(i.stack_pointer_increment().into()),
                other => panic!("{other:?} behind a gate, at {:#x}: {i}", i.ip()),
            }
        }
        (at, rsp)
    }

    /// The same as the runtime finds it.
    fn found(&self, at: u64, returns: &[u64]) -> (u64, u64) {
        let code = |at: u64| {
            let from = (at - self.all.start) as usize;
            std::array::from_fn(|k| self.bytes.get(from + k).copied().unwrap_or(0))
        };
        let given = std::cell::Cell::new(0);
        let word = |_| returns[given.replace(given.get() + 1)];
        goes_on(at, STACK, code, word)
    }

    /// What lies on the stack behind a gate's call, outermost last: nothing in a stub of its own; in shared code, where its callers go on.
    fn stacks(&self, at: u64) -> Vec<Vec<u64>> {
        let mut end = at;
        let is_shared = loop {
            let i = self.at(end);
            end = i.next_ip();
            match i.flow_control() {
                FlowControl::Return => break true,
                FlowControl::UnconditionalBranch => break false,
                _ => {}
            }
        };
        if !is_shared {
            return vec![Vec::new()];
        }
        let mut all = Vec::new();
        for &caller in self.callers_of(at) {
            match self.cold.contains(&caller) {
                true => all.extend(self.stacks(caller).into_iter().map(|rest| [vec![caller], rest].concat())),
                false => all.push(vec![caller]),
            }
        }
        all
    }
}

fn popped(slot: u64) -> Option<u64> {
    GATES.iter().find(|gate| gate.0 == slot).map(|gate| gate.1)
}

/// Follows all stubs of an output; counts them by gate, and by what stands behind the call.
fn follow(output: &[u8], seen: &mut BTreeMap<(u64, String), u64>) {
    let code = NewCode::of(output);
    for &(at, slot) in code.gates.iter().filter(|gate| popped(gate.1).is_some()) {
        for returns in code.stacks(at) {
            let (found, followed) = (code.found(at, &returns), code.followed(at, &returns));
            assert_eq!(found, followed, "behind the gate {slot:#x} at {at:#x}, {returns:x?}");
            assert!(!code.cold.contains(&found.0) || code.at(found.0).segment_prefix() == Register::GS);
            // A form is the instructions behind the gate, without their numbers.
            let (mut form, mut here) = (String::new(), at);
            while code.cold.contains(&here) && form.len() < 200 {
                let i = code.at(here);
                form += &format!("{:?} ", i.code());
                here = i.next_ip();
                if matches!(i.flow_control(), FlowControl::Return | FlowControl::UnconditionalBranch) {
                    break;
                }
            }
            *seen.entry((slot, form)).or_default() += 1;
        }
    }
}

/// Accesses whose stubs differ from each other.
const BODIES: [&str; 10] = [
    "mov al, [rdi]",
    "mov rax, [rdi]\n mov [rsi+8], rax",
    // No register is free, and flags are live.
    "cmp rsi, 5\n mov rax, [rdi]\n adc rax, rbx\n adc rax, rcx\n adc rax, rdx\n adc rax, rsi\n adc rax, rdi\n adc rax, rbp\n adc rax, r8\n adc rax, r9\n \
     adc rax, r10\n adc rax, r11\n adc rax, r12\n adc rax, r13\n adc rax, r14\n adc rax, r15",
    "bts [rdi], rax",
    "mov rax, [rdi]\n mov rcx, [rdi+8]\n mov rdx, [rdi+60]",
    "rep movsb",
    "fxsave [rdi]",
    "vpcmpeqd ymm2, ymm2, ymm2\n vpgatherdd ymm0, [rdi+ymm1*4], ymm2",
    "mov ecx, 100\n1: add qword ptr [rdi], 1\n add rdi, 8\n dec ecx\n jnz 1b",
    "mov ecx, 100\n1: mov rax, [rdi]\n mov [rsi], rax\n add rdi, 8\n add rsi, 8\n dec ecx\n jnz 1b",
];

#[test]
fn the_runtime_finds_its_way_from_every_stub() {
    let mut seen = BTreeMap::new();
    let libraries = libraries_of(Path::new("/proc/self/exe")).unwrap().all();
    let library = libraries.iter().find(|path| path.ends_with("libc.so.6")).map(|path| std::fs::read(path).unwrap());
    for access in [AccessMode::Tests, AccessMode::Guard] {
        let options = Options { access, ..Options::default() };
        for options in [options, Options { screens: !options.screens, ..options }, Options { count: true, ..options }] {
            for body in BODIES {
                follow(&pipeline::rewrite(&program(body), "p", &options).unwrap().bytes, &mut seen);
            }
        }
        if let Some(input) = &library {
            follow(&pipeline::rewrite_library(input, "libc.so.6", &options).unwrap().bytes, &mut seen);
        }
    }
    let gates: BTreeSet<u64> = seen.keys().map(|(slot, _)| *slot).collect();
    assert_eq!(gates, GATES.map(|gate| gate.0).into());
    assert!(seen.len() > 10, "{seen:#?}");
}
