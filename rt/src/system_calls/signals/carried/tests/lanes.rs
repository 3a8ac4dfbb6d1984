//! Gathers and scatters with lanes in either memory, beside the same with all in private memory.

use crate::node::access::Lane;
use crate::system_calls::signals::carried::forms::EVEX;
use crate::system_calls::signals::carried::tests::machine::{End, Machine, Random, State, has};
use crate::system_calls::signals::carried::tests::specimens::{self, PLAIN, Shape, Specimen};
use std::collections::BTreeSet;

const BASE: u8 = 9;
/// The register of the index, of the mask and of the data.
const INDEX: usize = 4;
const DATA: u8 = 2;
/// Where the base is in a region.
const ORIGIN: u64 = 4096;

struct Case {
    bytes: Vec<u8>,
    specimen: Specimen,
    lanes: usize,
    /// Index of each lane in its region; which lanes are in shared memory, and which are active.
    offsets: [i64; 16],
    shared: u64,
    active: u64,
    seed: u64,
}

impl Case {
    fn elem_bytes(&self) -> usize {
        4 << u8::from(self.specimen.widths.w)
    }

    fn index_bytes(&self) -> usize {
        4 << (self.specimen.key.opcode & 1)
    }

    fn is_scatter(&self) -> bool {
        self.specimen.key.opcode >= 0xa0
    }

    /// Runs it with these lanes in shared memory, and these active; the end, and both regions.
    fn run(&self, machine: &mut Machine, shared: u64, active: u64) -> (End, [Vec<u8>; 2]) {
        let regions = [machine.private, machine.shared];
        regions.iter().for_each(|region| Random(self.seed).fill(machine.memory(*region)));
        let mut random = Random(self.seed);
        let mut state = State::zero();
        state.gprs.iter_mut().for_each(|gpr| *gpr = random.next());
        state.vectors.iter_mut().for_each(|vector| random.fill(vector));
        state.floats[..2].copy_from_slice(&[0x7f, 3]);
        (state.gprs[4], state.gprs[usize::from(BASE)]) = (machine.stack + 2048, machine.private + ORIGIN);
        state.masks[1] = active;
        for lane in 0..self.lanes {
            let bridge = if shared >> lane & 1 != 0 { machine.shared.wrapping_sub(machine.private) as i64 } else { 0 };
            let index = (self.offsets[lane] + bridge).to_le_bytes();
            let n = self.index_bytes();
            state.vectors[INDEX][n * lane..n * (lane + 1)].copy_from_slice(&index[..n]);
        }
        if self.specimen.key.encoding != EVEX {
            for (lane, element) in state.vectors[0].chunks_mut(self.elem_bytes()).enumerate() {
                let last = element.len() - 1;
                element[last] = element[last] & 0x7f | ((active >> lane & 1) << 7) as u8;
            }
        }
        let mut end = machine.run(&self.bytes, &state);
        assert_eq!(machine.refused(), None, "{:x?}", self.bytes);
        end.state.vectors[INDEX] = [0; 64];
        (end, regions.map(|region| machine.memory(region).to_vec()))
    }

    fn check(&self, machine: &mut Machine) {
        let everywhere = (1u64 << self.lanes) - 1;
        machine.interrupt(false);
        let (expected, _) = self.run(machine, 0, self.active);
        let what = format!("{:x?} lanes {:x} shared {:x}", self.bytes, self.active, self.shared);
        assert_eq!((expected.signal, expected.at), (libc::SIGTRAP, self.bytes.len() as u64 + 1), "{what}");
        // What lanes of one kind store.
        let (_, [private, _]) = self.run(machine, 0, self.active & !self.shared);
        let (_, [shared, _]) = self.run(machine, 0, self.active & self.shared);
        for steps in [false, true] {
            machine.interrupt(steps);
            let (end, memory) = self.run(machine, self.shared & everywhere, self.active);
            assert!(
                end == expected,
                "{what} steps {steps}: {:?} {:x?} {:x?} {:x?} {:x?}",
                (end.signal, end.at),
                end.state.vectors[2],
                expected.state.vectors[2],
                end.state.vectors[0],
                expected.state.vectors[0]
            );
            assert!(memory == [private.clone(), shared.clone()], "{what}: memory");
            let wanted: Vec<Lane> = (0..self.lanes)
                .filter(|lane| (self.active & self.shared) >> lane & 1 != 0)
                .map(|lane| {
                    let addr = (machine.shared + ORIGIN).wrapping_add_signed(self.offsets[lane]);
                    Lane { addr, bytes: self.elem_bytes() as u64, store: self.is_scatter(), masked: false }
                })
                .collect();
            if !steps {
                assert_eq!(machine.granted(), wanted, "{what}");
            }
        }
    }
}

#[test]
fn lanes_may_be_in_private_and_in_shared_memory() {
    let mut machine = Machine::new();
    let mut seen = BTreeSet::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for (specimen, insn) in specimens::all() {
        let supported = if specimen.key.encoding == EVEX { has("avx512") } else { has("avx") };
        // Not all masks can be compared without a register for them.
        if !insn.is_vsib() || specimen.key.reg != DATA || !supported || !seen.insert((insn.code(), specimen.widths)) {
            continue;
        }
        let mut bytes = specimen.bytes(Shape { base: Some(BASE), ..PLAIN }, 0);
        bytes.truncate(specimens::decode(&bytes).len());
        let index_bytes = 4 << (specimen.key.opcode & 1);
        let lanes = (16 << specimen.widths.l) / insn.memory_size().size().max(index_bytes);
        for seed in 0..12u64 {
            let shared = [u64::MAX, 1, 2, random.next(), random.next()][(seed % 5) as usize];
            let active = if seed < 5 { u64::MAX } else { random.next() };
            let offsets = core::array::from_fn(|_| random.below(4000) as i64 - 2000);
            Case { bytes: bytes.clone(), specimen, lanes, offsets, shared, active, seed: seed + 77 }
                .check(&mut machine);
        }
    }
    assert!(!has("avx") || seen.len() >= 8, "{}", seen.len());
    assert!(!has("avx512") || seen.len() >= 8 + 24, "{}", seen.len());
}
