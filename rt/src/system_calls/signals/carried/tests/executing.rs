//! Each form with a memory operand, as this processor executes it: at a private address, and at the shared one, where it faults and is carried out.

use crate::node::access::Lane;
use crate::system_calls::signals::carried::forms::LEGACY;
use crate::system_calls::signals::carried::tests::decoding::{bytes_of, refused};
use crate::system_calls::signals::carried::tests::machine::{End, LANDING, Machine, Random, State};
use crate::system_calls::signals::carried::tests::specimens::{self, PLAIN, Shape, Specimen, directions};
use iced_x86::{Code, Instruction, Mnemonic};
use std::collections::{BTreeMap, BTreeSet};

/// General registers of the operand. No instruction uses them by itself.
const BASES: [u8; 3] = [9, 12, 13];
const INDEX: u8 = 10;
/// Where the operand lies in a region: aligned, and across two pages.
const PLACES: [u64; 2] = [4096 + 64, 8192 - 5];

/// Forms that are not run: what the processors make of them is not the same.
fn differs(insn: &Instruction, specimen: &Specimen) -> bool {
    // AMD's read 16 bits. The value of an address is another one.
    insn.mnemonic() == Mnemonic::Lea
        || matches!(insn.mnemonic(), Mnemonic::Call | Mnemonic::Jmp) && specimen.widths.short
}

struct Case<'a> {
    bytes: &'a [u8],
    insn: Instruction,
    shape: Shape,
    /// From the beginning of a region.
    place: u64,
    seed: u64,
}

impl Case<'_> {
    fn state(&self, machine: &Machine, region: u64) -> State {
        let mut random = Random(self.seed);
        let mut state = State::zero();
        state.gprs.iter_mut().for_each(|gpr| *gpr = random.next());
        state.vectors.iter_mut().for_each(|vector| random.fill(vector));
        state.masks.iter_mut().for_each(|mask| *mask = random.next());
        state.flags = random.next() & 0x8d5;
        state.floats[..2].copy_from_slice(&[0x7f, 3]);
        if matches!(self.insn.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc) {
            state.gprs[..8].iter_mut().for_each(|gpr| *gpr = (*gpr as i64 % 9000) as u64);
        }
        if self.seed & 1 == 0 {
            state.gprs[2] = 0;
        }
        state.gprs[4] = machine.stack + 2048;
        let mut base = (region + self.place).wrapping_sub(self.insn.memory_displacement64());
        if self.shape.index.is_some() {
            state.gprs[usize::from(INDEX)] %= 1 << 16;
            base = base.wrapping_sub(state.gprs[usize::from(INDEX)] << self.shape.scale);
        }
        state.gprs[usize::from(self.shape.base.unwrap())] = base;
        state
    }

    /// Memory before, and after a run.
    fn run(&self, machine: &mut Machine, region: u64) -> (End, Vec<u8>, Vec<u8>) {
        let mut random = Random(self.seed ^ 0x5555);
        let landing = machine.code + LANDING;
        let stack = machine.stack;
        random.fill(machine.memory(stack));
        let state = self.state(machine, region);
        let at = self.place as usize;
        let memory = machine.memory(region);
        random.fill(memory);
        use Mnemonic as M;
        match self.insn.mnemonic() {
            M::Call | M::Jmp => memory[at..at + 8].copy_from_slice(&landing.to_le_bytes()),
            // An area in its initial state.
            M::Xrstor | M::Xrstor64 | M::Fxrstor | M::Fxrstor64 => memory[at..at + 576].fill(0),
            // No tiles.
            M::Ldtilecfg => memory[at..at + 64].fill(0),
            // The selector of data.
            M::Mov if self.insn.op0_register().is_segment_register() => memory[at..at + 2].copy_from_slice(&[0x2b, 0]),
            M::Ldmxcsr | M::Vldmxcsr => memory[at..at + 4].copy_from_slice(&[0xa5, 0x7f, 0, 0]),
            // Sometimes what the comparison wants.
            M::Cmpxchg if self.seed & 2 == 0 => memory[at..at + 8].copy_from_slice(&state.gprs[0].to_le_bytes()),
            M::Cmpxchg8b if self.seed & 2 == 0 => {
                memory[at..at + 4].copy_from_slice(&state.gprs[0].to_le_bytes()[..4]);
                memory[at + 4..at + 8].copy_from_slice(&state.gprs[2].to_le_bytes()[..4]);
            }
            M::Cmpxchg16b if self.seed & 2 == 0 => {
                memory[at..at + 8].copy_from_slice(&state.gprs[0].to_le_bytes());
                memory[at + 8..at + 16].copy_from_slice(&state.gprs[2].to_le_bytes());
            }
            _ => {}
        }
        let end = machine.run(self.bytes, &state);
        let memory = machine.memory(region).to_vec();
        (end, memory, machine.memory(stack).to_vec())
    }
}

/// Prefetches and what does nothing.
fn accesses_nothing(code: Code) -> bool {
    use Mnemonic as M;
    format!("{:?}", code.mnemonic()).starts_with("Prefetch")
        || matches!(code.mnemonic(), M::Nop | M::Reservednop | M::Cldemote)
}

/// What became of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The processor does not have it.
    Missing,
    Carried,
    /// It raises another signal, in either place.
    Raised,
    /// It accesses nothing.
    Untouched,
}

fn compare(machine: &mut Machine, case: &Case) -> Outcome {
    let (private, shared) = (machine.private, machine.shared);
    let insn = &case.insn;
    let (mut expected, memory, stack) = case.run(machine, private);
    if expected.signal == libc::SIGILL {
        return Outcome::Missing;
    }
    let (end, shared_memory, shared_stack) = case.run(machine, shared);
    let what = || format!("{insn} {:x?} at {:#x} seed {}", case.bytes, case.place, case.seed);
    assert_eq!(machine.refused(), None, "{}", what());
    let base = usize::from(case.shape.base.unwrap());
    if expected.state.gprs[base] == case.state(machine, private).gprs[base] {
        expected.state.gprs[base] = case.state(machine, shared).gprs[base];
    }
    assert!(expected == end, "{}: {}", what(), difference(&expected, &end));
    assert!(
        memory == shared_memory,
        "{}: memory from {:?}",
        what(),
        (0..memory.len()).find(|n| memory[*n] != shared_memory[*n])
    );
    assert!(stack == shared_stack, "{}: stack", what());
    let (load, store, masked) = directions(insn);
    let bits = matches!(
        insn.code(),
        Code::Bt_rm16_r16
            | Code::Bts_rm16_r16
            | Code::Btr_rm16_r16
            | Code::Btc_rm16_r16
            | Code::Bt_rm32_r32
            | Code::Bts_rm32_r32
            | Code::Btr_rm32_r32
            | Code::Btc_rm32_r32
            | Code::Bt_rm64_r64
            | Code::Bts_rm64_r64
            | Code::Btr_rm64_r64
            | Code::Btc_rm64_r64
    );
    match machine.granted() {
        [] if machine.faults() == 0 && (masked || !load && !store) => Outcome::Untouched,
        [] if !load && !store => Outcome::Carried,
        [] if end.signal != libc::SIGTRAP => Outcome::Raised,
        [lane] => {
            let bytes = bytes_of(insn).unwrap_or(crate::kernel::xsave::state_bytes());
            let addr = if bits { lane.addr } else { shared + case.place };
            assert_eq!(*lane, Lane { addr, bytes, store, masked }, "{}", what());
            if end.signal == libc::SIGTRAP { Outcome::Carried } else { Outcome::Raised }
        }
        other => panic!("{}: {other:?}", what()),
    }
}

fn difference(a: &End, b: &End) -> String {
    let mut out = format!("{:?} {:?}", (a.signal, a.code, a.at), (b.signal, b.code, b.at));
    let (a, b) = (&a.state, &b.state);
    for n in 0..16 {
        if a.gprs[n] != b.gprs[n] {
            out += &format!(" gpr {n}: {:#x} {:#x}", a.gprs[n], b.gprs[n]);
        }
    }
    for n in 0..32 {
        if a.vectors[n] != b.vectors[n] {
            out += &format!(" vector {n}: {:x?} {:x?}", a.vectors[n], b.vectors[n]);
        }
    }
    out + &format!(
        " flags {:#x} {:#x} masks {:?} {:?} floats {:x?} {:x?}",
        a.flags, b.flags, a.masks, b.masks, a.floats, b.floats
    )
}

fn shape(n: u64) -> Shape {
    let base = Some(BASES[n as usize % 3]);
    match n / 3 % 3 {
        0 => Shape { base, ..PLAIN },
        1 => Shape { base, disp_bytes: 1, disp: -7, ..PLAIN },
        _ => Shape { base, index: Some(INDEX), scale: (n % 4) as u8, disp_bytes: 4, disp: 0x1234 },
    }
}

#[test]
fn every_form_does_in_shared_memory_what_it_does_in_private_memory() {
    let mut machine = Machine::new();
    let (mut seen, mut outcomes) = (BTreeSet::new(), BTreeMap::<Outcome, BTreeSet<Code>>::new());
    let mut runs = 0u64;
    for (specimen, insn) in specimens::all() {
        if refused(&insn).is_some() || insn.is_vsib() || differs(&insn, &specimen) {
            continue;
        }
        if !seen.insert((insn.code(), specimen.widths, specimen.mask)) {
            continue;
        }
        let lockable = specimen.key.encoding == LEGACY && directions(&insn) == (true, true, false);
        for seed in 1..=4u64 {
            for (place, lock) in
                PLACES.into_iter().flat_map(|place| [false, true].map(|lock| (place, lock && lockable)))
            {
                let shape = shape(runs + seed);
                let mut bytes = if lock { vec![0xf0] } else { Vec::new() };
                bytes.extend(specimen.bytes(shape, (seed * 37) as u8));
                let insn = specimens::decode(&bytes);
                bytes.truncate(insn.len());
                let case = Case { bytes: &bytes, insn, shape, place, seed: seed * 0x9e37_79b9_7f4a_7c15 };
                let outcome = compare(&mut machine, &case);
                outcomes.entry(outcome).or_default().insert(insn.code());
                runs += 1;
                if outcome == Outcome::Missing && !lock {
                    break;
                }
            }
        }
    }
    let of = |outcome| outcomes.get(&outcome).cloned().unwrap_or_default();
    let carried = of(Outcome::Carried);
    let missing = of(Outcome::Missing);
    let is_left = |code: &&Code| !carried.contains(code) && !missing.contains(code) && !accesses_nothing(**code);
    let never: Vec<&Code> = outcomes.values().flatten().filter(is_left).collect();
    assert!(never.is_empty(), "{never:?}");
    let evex = carried.iter().filter(|code| code.op_code().encoding() == iced_x86::EncodingKind::EVEX).count();
    assert!(carried.len() - evex > 900 && (evex > 1200 || !super::machine::has("avx512")), "{} {evex}", carried.len());
}
