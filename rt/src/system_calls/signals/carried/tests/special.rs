//! What has no form of its own.

use crate::kernel::sys;
use crate::node::access::Lane;
use crate::system_calls::signals::carried::decode::decode;
use crate::system_calls::signals::carried::refused::CarryRefused;
use crate::system_calls::signals::carried::tests::machine::{DISTANCE, End, Machine, Random, State};

const RAX: usize = 0;
const RBX: usize = 3;
const RSP: usize = 4;
const RDI: usize = 7;

fn state(machine: &Machine) -> State {
    let mut state = State::zero();
    state.floats[..2].copy_from_slice(&[0x7f, 3]);
    state.gprs[RSP] = machine.stack + 2048;
    Random(5).fill(&mut state.vectors[0]);
    Random(6).fill(&mut state.vectors[1]);
    state
}

fn fill(machine: &mut Machine) {
    for region in [machine.private, machine.shared] {
        Random(99).fill(machine.memory(region));
    }
}

/// Everything that is refused, as far as it is decoded: an instruction, and why.
const REFUSED: [(&[u8], CarryRefused); 33] = [
    // push rax; pop rax; ret; leave; enter; call; call rax; pushfq; push fs; push imm
    (&[0x50], CarryRefused::Stack),
    (&[0x58], CarryRefused::Stack),
    (&[0xc3], CarryRefused::Stack),
    (&[0xc9], CarryRefused::Stack),
    (&[0xc8, 0, 0, 0], CarryRefused::Stack),
    (&[0xe8, 0, 0, 0, 0], CarryRefused::Stack),
    (&[0xff, 0xd0], CarryRefused::Stack),
    (&[0x9c], CarryRefused::Stack),
    (&[0x0f, 0xa0], CarryRefused::Stack),
    (&[0x6a, 0], CarryRefused::Stack),
    // mov rax, fs:[rax]; mov rax, gs:[rax]; lodsb fs:[rsi]
    (&[0x64, 0x48, 0x8b, 0x00], CarryRefused::SegmentBase),
    (&[0x65, 0x48, 0x8b, 0x00], CarryRefused::SegmentBase),
    (&[0x64, 0xac], CarryRefused::SegmentBase),
    // mov eax, [eax]; stos with edi; mov eax, [moffs32]
    (&[0x67, 0x8b, 0x00], CarryRefused::ShortAddress),
    (&[0x67, 0xab], CarryRefused::ShortAddress),
    (&[0x67, 0xa1, 0, 0, 0, 0], CarryRefused::ShortAddress),
    // mov eax, [rip]
    (&[0x8b, 0x05, 0, 0, 0, 0], CarryRefused::RipRelative),
    // movdir64b; enqcmd; enqcmds; clzero
    (&[0x66, 0x0f, 0x38, 0xf8, 0x00], CarryRefused::Implicit64),
    (&[0xf2, 0x0f, 0x38, 0xf8, 0x00], CarryRefused::Implicit64),
    (&[0xf3, 0x0f, 0x38, 0xf8, 0x00], CarryRefused::Implicit64),
    (&[0x0f, 0x01, 0xfc], CarryRefused::Implicit64),
    // jmp far; call far
    (&[0xff, 0x28], CarryRefused::FarTransfer),
    (&[0x48, 0xff, 0x18], CarryRefused::FarTransfer),
    // sgdt; sldt
    (&[0x0f, 0x01, 0x00], CarryRefused::SystemRegister),
    (&[0x0f, 0x00, 0x00], CarryRefused::SystemRegister),
    // mov fs, [rax]; lfs; lss
    (&[0x8e, 0x20], CarryRefused::SegmentRegister),
    (&[0x0f, 0xb4, 0x00], CarryRefused::SegmentRegister),
    (&[0x0f, 0xb2, 0x00], CarryRefused::SegmentRegister),
    // tileloadd
    (&[0xc4, 0xe2, 0x7b, 0x4b, 0x04, 0x08], CarryRefused::Tile),
    // vpmacssww (XOP); pfadd (3DNow!)
    (&[0x8f, 0xe8, 0x70, 0x85, 0x00, 0x10], CarryRefused::Unknown),
    (&[0x0f, 0x0f, 0x00, 0x9e], CarryRefused::Unknown),
    // nop; mov eax, eax
    (&[0x90, 0x90], CarryRefused::Unknown),
    (&[0x8b, 0xc0], CarryRefused::NoOperand),
];

#[test]
fn what_is_refused() {
    for (bytes, why) in REFUSED {
        assert_eq!(decode(bytes, 0).map(|_| ()), Err(why), "{bytes:x?}");
    }
}

#[test]
fn refusals_leave_the_context_alone() {
    let mut machine = Machine::new();
    let shared = machine.shared + 512;
    // add qword ptr [rax+0], 0 behind prefixes that fill it up.
    let long = [0x66, 0x66, 0x66, 0x66, 0x48, 0x81, 0x80, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut cases: Vec<(&[u8], usize, CarryRefused)> = vec![
        (&[0x50], RSP, CarryRefused::Stack),
        (&[0xc3], RSP, CarryRefused::Stack),
        (&[0x48, 0x89, 0x04, 0x24], RSP, CarryRefused::Stack),
        (&[0xff, 0x28], RAX, CarryRefused::FarTransfer),
        (&[0x8e, 0x20], RAX, CarryRefused::SegmentRegister),
        (&long, RAX, CarryRefused::NoRoom),
        (&[0xff, 0xe0], RAX, CarryRefused::Code),
    ];
    if std::fs::read_to_string("/proc/cpuinfo").unwrap().contains(" clzero ") {
        cases.push((&[0x0f, 0x01, 0xfc], RAX, CarryRefused::Implicit64));
    }
    for (bytes, register, why) in cases {
        fill(&mut machine);
        let mut start = state(&machine);
        start.gprs[register] = shared;
        let end = machine.run(bytes, &start);
        assert_eq!((machine.refused(), end.signal), (Some(why), libc::SIGSEGV), "{bytes:x?}");
        assert_eq!((end.state.gprs, machine.granted()), (start.gprs, &[][..]), "{bytes:x?}");
        assert!(end.at == 0 || why == CarryRefused::Code, "{bytes:x?}");
    }
}

/// Runs it on either memory, with the same outcome but for the registers that are left out. What was granted.
fn both(
    machine: &mut Machine,
    bytes: &dyn Fn(u64) -> Vec<u8>,
    change: &dyn Fn(&mut State, u64),
    except: &[usize],
) -> Vec<Lane> {
    let mut ends: Vec<(End, Vec<u8>)> = Vec::new();
    for region in [machine.private, machine.shared] {
        fill(machine);
        let mut start = state(machine);
        change(&mut start, region);
        let mut end = machine.run(&bytes(region), &start);
        assert_eq!((machine.refused(), end.signal), (None, libc::SIGTRAP), "{:x?}", bytes(region));
        except.iter().for_each(|register| end.state.gprs[*register] = 0);
        ends.push((end, machine.memory(region).to_vec()));
    }
    assert!(ends[0] == ends[1], "{:x?}", bytes(machine.shared));
    machine.granted().to_vec()
}

#[test]
fn addresses_without_modrm() {
    let mut machine = Machine::new();
    let shared = machine.shared;
    let lane = |at: u64, bytes, store, masked| [Lane { addr: shared + at, bytes, store, masked }];
    // mov al, [moffs]; mov rax, [moffs]; mov [moffs], ax
    for (prefix, opcode, bytes, store) in
        [(None, 0xa0, 1, false), (Some(0x48), 0xa1, 8, false), (Some(0x66), 0xa3, 2, true)]
    {
        let code = |region: u64| prefix.into_iter().chain([opcode]).chain((region + 100).to_le_bytes()).collect();
        let granted = both(&mut machine, &code, &|start, _| start.gprs[RAX] = 0x1122_3344_5566_7788, &[]);
        assert_eq!(granted, lane(100, bytes, store, false));
    }
    // xlat
    let table = |start: &mut State, region| (start.gprs[RAX], start.gprs[RBX]) = (0xffff_ff90, region + 7);
    assert_eq!(both(&mut machine, &|_| vec![0xd7], &table, &[RBX]), lane(7 + 0x90, 1, false, false));
    // maskmovdqu xmm0, xmm1; vmaskmovdqu; maskmovq mm0, mm1
    let destination = |start: &mut State, region| start.gprs[RDI] = region + 33;
    let mut forms: Vec<(&[u8], u64)> = vec![(&[0x66, 0x0f, 0xf7, 0xc1], 16), (&[0x0f, 0xf7, 0xc1], 8)];
    if super::machine::has("avx") {
        forms.push((&[0xc5, 0xf9, 0xf7, 0xc1], 16));
    }
    for (code, bytes) in forms {
        let granted = both(&mut machine, &|_| code.to_vec(), &destination, &[RDI]);
        // A mask of nothing accesses nothing.
        assert!(granted == lane(33, bytes, true, true) || code[0] == 0x0f && granted.is_empty(), "{granted:?}");
    }
}

/// Pages end behind the instruction, or in it.
#[test]
fn instructions_at_the_end_of_a_page() {
    let mut machine = Machine::new();
    let shared = machine.shared;
    // add qword ptr [rax+0x100], 5
    let code = [0x48, 0x83, 0x80, 0, 1, 0, 0, 5];
    for at in 4096 - 9..4096 {
        fill(&mut machine);
        let mut start = state(&machine);
        start.gprs[RAX] = shared;
        let end = machine.run_at(at, &code, &start);
        assert_eq!((end.signal, end.at, machine.refused()), (libc::SIGTRAP, 9, None), "{at}");
        assert_eq!(machine.granted(), [Lane { addr: shared + 0x100, bytes: 8, store: true, masked: false }]);
    }
}

/// A program writes other code over its own, and slots are used again for other instructions.
#[test]
fn code_that_changes() {
    let mut machine = Machine::new();
    let shared = machine.shared;
    machine.memory(shared)[..4].copy_from_slice(&7u32.to_le_bytes());
    let mut start = state(&machine);
    start.gprs[RAX] = shared;
    for at in (0..6000).step_by(7) {
        // mov ebx, [rax]; mov bl, [rax]; not dword ptr [rax] twice
        for (code, rbx) in [(&[0x8b, 0x18], 7), (&[0x8a, 0x18], 7), (&[0xf7, 0x10], 0), (&[0xf7, 0x10], 0)] {
            let end = machine.run_at(at, code, &start);
            assert_eq!((end.signal, end.at, end.state.gprs[RBX]), (libc::SIGTRAP, 3, rbx), "{at}");
            assert_eq!(machine.faults(), 1);
        }
    }
}

/// What faults in a slot faults in the program.
#[test]
fn faults_of_slots_are_the_instructions_own() {
    let mut machine = Machine::new();
    let (shared, page) = (machine.shared, machine.shared + 4096 + DISTANCE);
    let rights = |prot| {
        // SAFETY: the machine's alias.
        unsafe { sys::mprotect(page, 4096, prot) }.unwrap();
    };
    // add [rax], rbx; rep stosb; rep movsb; movups xmm0, [rax]
    let codes: [&[u8]; 4] = [&[0x48, 0x01, 0x18], &[0xf3, 0xaa], &[0xf3, 0xa4], &[0x0f, 0x10, 0x00]];
    for (n, code) in codes.into_iter().enumerate() {
        let mut start = state(&machine);
        let private = machine.private;
        (start.gprs[RAX], start.gprs[1], start.gprs[6], start.gprs[RDI]) =
            (shared + 4096 - 3, 40, private, shared + 4096 - 3);
        rights(libc::PROT_NONE);
        let end = machine.run(code, &start);
        rights(libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!((end.signal, end.at, machine.refused()), (libc::SIGSEGV, 0, None), "{code:x?}");
        assert!(
            end.fault.is_some_and(|at| at <= shared + 4096 && at >= shared + 4096 - 3),
            "{code:x?} {:x?}",
            end.fault
        );
        let mut expected = start.gprs;
        if n == 1 || n == 2 {
            // Three elements are done; microcode may do them again.
            let done = end.state.gprs[RDI] - start.gprs[RDI];
            assert!(done <= 3, "{code:x?}");
            expected[1] -= done;
            expected[RDI] += done;
            expected[6] += if n == 2 { done } else { 0 };
        }
        assert_eq!(end.state.gprs, expected, "{code:x?}");
    }
}

/// Whatever is carried out may be interrupted in its slot.
#[test]
fn interrupted_slots() {
    let mut machine = Machine::new();
    let (shared, code_at, stack) = (machine.shared, machine.code, machine.stack);
    let landing = code_at + super::machine::LANDING;
    machine.memory(shared)[..8].copy_from_slice(&landing.to_le_bytes());
    machine.interrupt(true);
    let mut start = state(&machine);
    start.gprs[RAX] = shared;
    // mov rbx, [rax]
    let end = machine.run(&[0x48, 0x8b, 0x18], &start);
    assert_eq!((end.signal, end.at, end.state.gprs[RBX], machine.faults()), (libc::SIGTRAP, 4, landing, 1));
    // call [rax]
    let end = machine.run(&[0xff, 0x10], &start);
    assert_eq!((end.signal, code_at + end.at, end.state.gprs[RSP]), (libc::SIGTRAP, landing + 1, start.gprs[RSP] - 8));
    let top = (end.state.gprs[RSP] - stack) as usize;
    assert_eq!(machine.memory(stack)[top..top + 8], (code_at + 2).to_le_bytes());
}
