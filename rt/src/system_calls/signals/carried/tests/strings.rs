//! String instructions with operands in either memory, beside the same with both in private memory.

use crate::node::access::Lane;
use crate::system_calls::signals::carried::tests::machine::{End, Machine, REGION, Random, State};

/// Where the operands begin; they do not meet.
const SOURCE: u64 = 2000;
const DESTINATION: u64 = 8000;
const MIDDLE: usize = 5000;
const DF: u64 = 1 << 10;

struct Case {
    bytes: Vec<u8>,
    size: u64,
    count: u64,
    down: bool,
    seed: u64,
    /// Bytes are equal for a while.
    equal: bool,
}

impl Case {
    /// The end, and what became of the operands' memory.
    fn run(&self, machine: &mut Machine, source: u64, destination: u64) -> (End, Vec<u8>) {
        for region in [machine.private, machine.shared] {
            let memory = machine.memory(region);
            if self.equal {
                memory.fill(7);
                // A difference, sometimes within reach.
                memory[DESTINATION as usize + 1000] = 8;
            } else {
                Random(self.seed).fill(memory);
            }
        }
        let mut random = Random(self.seed);
        let mut state = State::zero();
        state.gprs.iter_mut().for_each(|gpr| *gpr = random.next());
        state.floats[..2].copy_from_slice(&[0x7f, 3]);
        state.flags = random.next() & 0x8d5 | if self.down { DF } else { 0 };
        state.gprs[4] = machine.stack + 2048;
        state.gprs[0] = if self.equal { 0x0707_0707_0707_0707 } else { state.gprs[0] };
        (state.gprs[1], state.gprs[6], state.gprs[7]) = (self.count, source + SOURCE, destination + DESTINATION);
        let mut end = machine.run(&self.bytes, &state);
        end.state.gprs[6] = end.state.gprs[6].wrapping_sub(source);
        end.state.gprs[7] = end.state.gprs[7].wrapping_sub(destination);
        let memory =
            [machine.memory(source)[..MIDDLE].to_vec(), machine.memory(destination)[MIDDLE..].to_vec()].concat();
        (end, memory)
    }
}

/// `movs`, `cmps`, `stos`, `lods`, `scas`, of bytes: whether rsi is used, whether rdi is, whether that is stored to.
const OPCODES: [(u8, bool, bool, bool); 5] = [
    (0xa4, true, true, true),
    (0xa6, true, true, false),
    (0xaa, false, true, true),
    (0xac, true, false, false),
    (0xae, false, true, false),
];

fn cases() -> Vec<(Case, (bool, bool, bool))> {
    let mut out = Vec::new();
    for (n, (opcode, rsi, rdi, store)) in OPCODES.into_iter().enumerate() {
        for (log2, repeat) in (0..4u64).flat_map(|log2| [&[][..], &[0xf3], &[0xf2]].map(|repeat| (log2, repeat))) {
            for (count, down, equal) in [
                (0, false, false),
                (1, true, true),
                (3, false, true),
                (150, false, true),
                (150, true, true),
                (100, false, false),
                (250, true, true),
            ] {
                let mut bytes = repeat.to_vec();
                bytes.extend([&[][..], &[0x66], &[], &[0x48]][log2 as usize]);
                bytes.push(opcode | u8::from(log2 > 0));
                let seed = 0x1234_5678_9abc_def1 + out.len() as u64 * 0x1_0001 + n as u64;
                out.push((Case { bytes, size: 1 << log2, count, down, seed, equal }, (rsi, rdi, store)));
            }
        }
    }
    out
}

fn check(machine: &mut Machine, case: &Case, (rsi, rdi, store): (bool, bool, bool)) {
    let (private, shared) = (machine.private, machine.shared);
    machine.interrupt(false);
    let (expected, memory) = case.run(machine, private, private);
    for (source, destination, steps) in [
        (shared, shared, false),
        (private, shared, false),
        (shared, private, false),
        (shared, private, true),
        (shared, shared, true),
    ] {
        machine.interrupt(steps);
        let (end, got) = case.run(machine, source, destination);
        let what = format!(
            "{:x?} {} elements, {source:#x} to {destination:#x}, down {}, steps {steps}",
            case.bytes, case.count, case.down
        );
        assert_eq!(machine.refused(), None, "{what}");
        assert!(end == expected, "{what}: {:?} {:x?} {:x?}", (end.signal, end.at), end.state.gprs, expected.state.gprs);
        assert!(got == memory, "{what}: memory");
        // What was granted covers what is accessed, and no more than that but for comparisons.
        let repeats = case.bytes[0] == 0xf3 || case.bytes[0] == 0xf2;
        let bytes = case.size * if repeats { case.count } else { 1 };
        let range = |at: u64| if case.down { at + case.size - bytes..at + case.size } else { at..at + bytes };
        let mut granted = [0, 0];
        for Lane { addr, bytes, store: stores, .. } in machine.granted() {
            let second = *addr >= shared + MIDDLE as u64;
            let range = if second { range(destination + DESTINATION) } else { range(source + SOURCE) };
            assert!(range.contains(addr) && range.contains(&(addr + bytes - 1)), "{what}: {addr:#x} {bytes}");
            assert_eq!(*stores, second && store, "{what}");
            granted[usize::from(second)] += bytes;
        }
        let compares = !store && rdi;
        for (n, used) in [rsi && source == shared, rdi && destination == shared].into_iter().enumerate() {
            let wanted = if used { bytes } else { 0 };
            let is_right = if steps || compares { granted[n] == 0 || used } else { granted[n] == wanted };
            assert!(is_right, "{what}: {} bytes granted, {wanted} wanted", granted[n]);
        }
    }
}

#[test]
fn strings_do_what_they_do_in_private_memory() {
    let mut machine = Machine::new();
    const _: () = assert!(DESTINATION as usize + 2000 < REGION);
    for (case, uses) in cases() {
        check(&mut machine, &case, uses);
    }
}
