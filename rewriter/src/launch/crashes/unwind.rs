//! From a process's registers to the calls that led there.
//!
//! Input: registers and memory of a process that waits. Output: the places of its frames, the innermost first. The files' own frame information is used, as
//! a debugger does: that of rewritten code describes rewritten code.
//! Source: DWARF 5, 6.4; psABI 3.6.2 (numbers of registers); Linux `arch/x86/kernel/signal_64.c` (the frame of a signal).

use crate::launch::crashes::process_memory::ProcessMemory;
use crate::read::rewritten;
use blizzard_contract as contract;
use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, Encoding, EndianSlice, EvaluationResult, Location, NativeEndian,
    Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value,
};
use object::{Object, ObjectSection};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Most frames that are followed.
const FRAMES: usize = 64;
const RBP: usize = 6;
const RSP: usize = 7;
const RIP: usize = 16;
/// Where `sigcontext` has the registers, by DWARF's numbers.
const IN_CONTEXT: [usize; 17] = [13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7, 16];
/// Bytes in front of the registers in `struct ucontext`.
const UCONTEXT_REGISTERS: u64 = 40;
/// `mov rax, 15; syscall`: the return of a handler.
const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// A system call: inserted code goes through the runtime's gate, and comes back behind this.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Instructions of inserted code behind a call, at most.
const STUB_STEPS: usize = 32;
/// `call [disp32]`, by which inserted code enters the runtime; what follows is the gate's address.
const CALL_GATE: [u8; 3] = [0xff, 0x14, 0x25];
/// DWARF expressions of frames are short.
const EXPRESSION_STEPS: u32 = 1000;

/// A place in the code of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackFrame {
    /// In memory.
    pub address: u64,
    /// Behind a call: the call is what the frame is in.
    pub is_behind_call: bool,
    /// Where a handler of a signal returns to: what it has interrupted comes next.
    pub is_trampoline: bool,
    /// The file that is mapped there, and the place's offset in it.
    pub file: Option<(PathBuf, u64)>,
}

type Registers = [Option<u64>; 17];

/// The calls that led to a context, whose registers stand in the order of the kernel's `sigcontext`.
pub fn frames(memory: &ProcessMemory, context: &[u64; 23]) -> Vec<StackFrame> {
    frames_from(memory, IN_CONTEXT.map(|place| Some(context[place])), false)
}

/// The calls that led to a call that will return to `address`, with `sp` behind it. They end where a frame is found by another register.
pub fn frames_of_call(memory: &ProcessMemory, address: u64, sp: u64) -> Vec<StackFrame> {
    let mut registers = [None; 17];
    (registers[RIP], registers[RSP]) = (Some(address), Some(sp));
    frames_from(memory, registers, true)
}

/// The calls that led to a function that has made its frame: `at` points to the `rbp` that it has kept, in front of its return address.
pub fn frames_of_frame(memory: &ProcessMemory, at: u64) -> Option<Vec<StackFrame>> {
    let mut registers = [None; 17];
    registers[RBP] = Some(memory.word(at)?);
    registers[RIP] = Some(memory.word(at + 8)?);
    registers[RSP] = Some(at + 16);
    Some(frames_from(memory, registers, true))
}

fn frames_from(memory: &ProcessMemory, mut registers: Registers, mut is_behind_call: bool) -> Vec<StackFrame> {
    let mut files = Files::default();
    let mut frames: Vec<StackFrame> = Vec::new();
    // At 0 frames end, unless it was called.
    let is_frame = |rip, number| (rip != 0 || number == 0) && number < FRAMES;
    while let Some(address) = registers[RIP].filter(|&rip| is_frame(rip, frames.len())) {
        let file = memory.file_at(address);
        let cold = file.as_ref().and_then(|(path, offset)| files.get(path)?.cold_around(*offset, address));
        if let Some(behind) = cold.and_then(|cold| behind_stub(memory, &registers, &cold, is_behind_call)) {
            (registers, is_behind_call) = (behind, false);
            continue;
        }
        frames.push(StackFrame { address, is_behind_call, is_trampoline: false, file: file.clone() });
        let sp = registers[RSP];
        let is_nowhere = file.is_none();
        let found = file.and_then(|(path, offset)| {
            let file = files.get(&path)?;
            let bias = address.wrapping_sub(file.address(offset)?);
            step(memory, file, bias, &registers, is_behind_call)
        });
        let is_first = frames.len() == 1;
        // The C library's `clone` has neither a frame nor anything on its stack where it calls the system.
        let is_call_of_system = || memory.reads(address.wrapping_sub(SYSCALL.len() as u64), &SYSCALL);
        let is_bare = if is_nowhere { is_first } else { !is_behind_call || is_call_of_system() };
        let next = found
            .or_else(|| signal_frame(memory, &registers))
            // A call of a pointer that leads nowhere has done nothing but push the address behind it.
            .or_else(|| if is_bare { behind_a_call(memory, &registers) } else { None });
        let Some((next, is_signal)) = next else { break };
        // Frames lie higher and higher, but where a handler has a stack of its own.
        if !is_signal && next[RSP] <= sp {
            break;
        }
        if let Some(frame) = frames.last_mut() {
            frame.is_trampoline = is_signal;
        }
        (registers, is_behind_call) = (next, !is_signal);
    }
    frames
}

/// The registers where inserted code, which no frame describes, goes on in the program: what is left of it gives the stack back and goes
/// there.
fn behind_stub(
    memory: &ProcessMemory,
    registers: &Registers,
    cold: &Range<u64>,
    is_behind_call: bool,
) -> Option<Registers> {
    use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register as R};
    let mut next = *registers;
    let (mut at, mut sp) = (registers[RIP]?, registers[RSP]?);
    if is_behind_call {
        sp += popped_by_gate(memory, at);
    }
    for _ in 0..STUB_STEPS {
        if !cold.contains(&at) {
            (next[RIP], next[RSP]) = (Some(at), Some(sp));
            return Some(next);
        }
        let mut code = [0; 15];
        memory.read(at, &mut code)?;
        let i = Decoder::with_ip(64, &code, at, DecoderOptions::NONE).decode();
        let moves_stack = i.op_count() > 0 && i.op0_register() == R::RSP;
        let number = |operand| dwarf_number(i.op_register(operand));
        match i.mnemonic() {
            Mnemonic::Lea if moves_stack && i.memory_base() == R::RSP && i.memory_index() == R::None => {
                sp = sp.wrapping_add(i.memory_displacement64());
            }
            Mnemonic::Pop if !moves_stack => {
                if let Some(number) = number(0) {
                    next[number] = memory.word(sp);
                }
                sp += 8;
            }
            Mnemonic::Popfq => sp += 8,
            Mnemonic::Mov if !moves_stack && (i.op0_kind(), i.op1_kind()) == (OpKind::Register, OpKind::Register) => {
                if let (Some(to), Some(from)) = (number(0), number(1)) {
                    next[to] = next[from];
                }
            }
            Mnemonic::Jmp if i.near_branch_target() != 0 => {
                at = i.near_branch_target();
                continue;
            }
            Mnemonic::Ret => {
                at = memory.word(sp)?;
                let arguments = if i.op_count() > 0 { u64::from(i.immediate16()) } else { 0 };
                sp = sp.wrapping_add(8 + arguments);
                continue;
            }
            // Another miss, perhaps, or another form.
            _ if moves_stack || i.is_stack_instruction() || i.flow_control() != iced_x86::FlowControl::Next => {
                return None;
            }
            _ => {}
        }
        at = i.next_ip();
    }
    None
}

/// The bytes that the gate takes from the stack whose call ends at `at`: frames describe its return alone.
fn popped_by_gate(memory: &ProcessMemory, at: u64) -> u64 {
    let mut call = [0; 7];
    if memory.read(at.wrapping_sub(7), &mut call).is_none() || call[..3] != CALL_GATE {
        return 0;
    }
    match u64::from(u32::from_le_bytes([call[3], call[4], call[5], call[6]])) {
        contract::GATE_MISS => 16,
        contract::GATE_STRING | contract::GATE_VSIB | contract::GATE_GROUP => 8,
        _ => 0,
    }
}

/// The number that frames have for a whole register.
fn dwarf_number(register: iced_x86::Register) -> Option<usize> {
    // Those of instructions are in the order rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi.
    const NUMBERS: [usize; 8] = [0, 2, 1, 3, 7, 6, 4, 5];
    let number = register.is_gpr64().then(|| register.number())?;
    Some(NUMBERS.get(number).copied().unwrap_or(number))
}

/// The caller's registers, from the return address on top of the stack.
fn behind_a_call(memory: &ProcessMemory, registers: &Registers) -> Option<(Registers, bool)> {
    let sp = registers[RSP]?;
    let mut next = *registers;
    next[RIP] = memory.word(sp);
    next[RSP] = Some(sp + 8);
    let is_code = memory.mapping(next[RIP]?).is_some_and(|m| m.is_code());
    (is_code && follows_call(memory, next[RIP]?)).then_some((next, false))
}

/// Whether a call ends in front of `at`: near, direct, or through a register or memory (SDM volume 2, CALL).
pub fn follows_call(memory: &ProcessMemory, at: u64) -> bool {
    let mut code = [0; 8];
    if memory.read(at.wrapping_sub(8), &mut code).is_none() {
        return false;
    }
    let is_indirect = |length: usize| code[8 - length] == 0xff && code[9 - length] >> 3 & 7 == 2;
    code[3] == 0xe8 || (2..=7).any(is_indirect)
}

/// The registers that a handler of a signal has interrupted, if this is where it returns to.
fn signal_frame(memory: &ProcessMemory, registers: &Registers) -> Option<(Registers, bool)> {
    if !memory.reads(registers[RIP]?, &SIGRETURN) {
        return None;
    }
    let at = registers[RSP]? + UCONTEXT_REGISTERS;
    Some((IN_CONTEXT.map(|place| memory.word(at + 8 * place as u64)), true))
}

/// The registers of the caller, and whether they are those that a signal has interrupted.
fn step(
    memory: &ProcessMemory,
    file: &Frames,
    bias: u64,
    registers: &Registers,
    is_behind_call: bool,
) -> Option<(Registers, bool)> {
    let at = registers[RIP]?.wrapping_sub(bias) - u64::from(is_behind_call);
    let bases = BaseAddresses::default().set_eh_frame(file.va).set_text(file.text);
    let mut eh_frame = EhFrame::new(&file.eh_frame, NativeEndian);
    eh_frame.set_address_size(8);
    // What debuggers alone need: the frames of the runtime.
    let mut debug_frame = DebugFrame::new(&file.debug_frame, NativeEndian);
    debug_frame.set_address_size(8);
    let place = Place { memory, registers, bias, at };
    step_by(&eh_frame, &bases, &place).or_else(|| step_by(&debug_frame, &bases, &place))
}

/// Where a frame is.
struct Place<'a> {
    memory: &'a ProcessMemory,
    registers: &'a Registers,
    bias: u64,
    /// The address in the file, of an instruction in the frame.
    at: u64,
}

/// The same by one section.
fn step_by<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    place: &Place<'_>,
) -> Option<(Registers, bool)> {
    let Place { memory, registers, bias, at } = *place;
    let fde = section.fde_for_address(bases, at, S::cie_from_offset).ok()?;
    let mut context = UnwindContext::new();
    let row = fde.unwind_info_for_address(section, bases, &mut context, at).ok()?;
    let machine = Machine { memory, section, encoding: fde.cie().encoding(), registers, bias };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => machine.register(*register)?.wrapping_add_signed(*offset),
        CfaRule::Expression(expression) => machine.evaluate(*expression, None)?,
    };
    let mut next: Registers = *registers;
    // A return address that nothing is said of is that of a call.
    next[RSP] = Some(cfa);
    for number in 0..=RIP {
        let saved = |at: u64| memory.word(at);
        let register = Register(number as u16);
        next[number] = match row.register(register) {
            None | Some(RegisterRule::SameValue) if number == RSP => Some(cfa),
            // The outermost frame says that it has no caller.
            Some(RegisterRule::Undefined) => None,
            None if number == RIP => None,
            None | Some(RegisterRule::SameValue) => registers[number],
            Some(RegisterRule::Offset(offset)) => saved(cfa.wrapping_add_signed(offset)),
            Some(RegisterRule::ValOffset(offset)) => Some(cfa.wrapping_add_signed(offset)),
            Some(RegisterRule::Register(other)) => machine.register(other),
            Some(RegisterRule::Expression(e)) => machine.evaluate(e, Some(cfa)).and_then(saved),
            Some(RegisterRule::ValExpression(e)) => machine.evaluate(e, Some(cfa)),
            Some(RegisterRule::Constant(value)) => Some(value),
            Some(_) => None,
        };
    }
    Some((next, fde.is_signal_trampoline()))
}

type Bytes<'a> = EndianSlice<'a, NativeEndian>;

/// What expressions are evaluated on.
struct Machine<'a, S> {
    memory: &'a ProcessMemory,
    section: &'a S,
    encoding: Encoding,
    registers: &'a Registers,
    bias: u64,
}

impl<'b, S: UnwindSection<Bytes<'b>>> Machine<'_, S> {
    fn register(&self, register: Register) -> Option<u64> {
        *self.registers.get(usize::from(register.0))?
    }

    fn evaluate(&self, expression: UnwindExpression<usize>, cfa: Option<u64>) -> Option<u64> {
        let mut evaluation = expression.get(self.section).ok()?.evaluation(self.encoding);
        evaluation.set_max_iterations(EXPRESSION_STEPS);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(self.register(register)?))
                }
                EvaluationResult::RequiresMemory { address, size, .. } => {
                    let mut word = [0; 8];
                    self.memory.read(address, word.get_mut(..size.into())?)?;
                    evaluation.resume_with_memory(Value::Generic(u64::from_le_bytes(word)))
                }
                EvaluationResult::RequiresRelocatedAddress(at) => {
                    evaluation.resume_with_relocated_address(at.wrapping_add(self.bias))
                }
                _ => return None,
            }
            .ok()?;
        }
        match evaluation.result().first()?.location {
            Location::Address { address } => Some(address),
            _ => None,
        }
    }
}

/// A file's frame information.
struct Frames {
    eh_frame: Vec<u8>,
    debug_frame: Vec<u8>,
    va: u64,
    text: u64,
    /// Parts of the file in memory: offset, address, bytes.
    segments: Vec<(u64, u64, u64)>,
    /// Addresses of inserted code that stands apart.
    cold: Option<(u64, u64)>,
}

impl Frames {
    fn of(path: &Path) -> Option<Frames> {
        let bytes = std::fs::read(path).ok()?;
        let elf = object::File::parse(bytes.as_slice()).ok()?;
        let segments = rewritten::parts(&elf);
        let contents = |name: &str| Some(elf.section_by_name(name)?.uncompressed_data().ok()?.into_owned());
        let [eh_frame, debug_frame] = [".eh_frame", ".debug_frame"].map(|name| contents(name).unwrap_or_default());
        let va = elf.section_by_name(".eh_frame").map_or(0, |section| section.address());
        let text = elf.section_by_name(".text").map_or(0, |text| text.address());
        let cold = elf.section_by_name(".blizzard.cold").map(|cold| (cold.address(), cold.address() + cold.size()));
        Some(Frames { eh_frame, debug_frame, va, text, segments, cold })
    }

    /// Where inserted code that stands apart is in memory, if `address`, which has this offset in the file, lies there.
    fn cold_around(&self, offset: u64, address: u64) -> Option<Range<u64>> {
        let at = self.address(offset)?;
        let (from, to) = self.cold.filter(|(from, to)| (*from..*to).contains(&at))?;
        Some(address - (at - from)..address + (to - at))
    }

    fn address(&self, offset: u64) -> Option<u64> {
        let inside = |&&(from, _, bytes): &&(u64, u64, u64)| offset.wrapping_sub(from) < bytes;
        self.segments.iter().find(inside).map(|&(from, va, _)| va + (offset - from))
    }
}

#[derive(Default)]
struct Files(HashMap<PathBuf, Option<Frames>>);

impl Files {
    fn get(&mut self, path: &Path) -> Option<&Frames> {
        self.0.entry(path.to_owned()).or_insert_with(|| Frames::of(path)).as_ref()
    }
}
