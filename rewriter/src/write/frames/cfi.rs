//! Call-frame instructions: from the input's bytes to instructions at old addresses that can be written elsewhere.
//!
//! Input: a parsed FDE or CIE. Output: [`CfiStep`]s in ascending order of old address; a written CIE.
//!
//! Invariant: DWARF expressions are copied byte for byte, but for distances from rsp where inserted code has moved it, and none of those copied reads the
//! program counter. Linkers write one that does, for `.plt` (the CFA depends on `rip & 15`, because entries have 16 bytes); new entries have other sizes,
//! so it becomes one row per instruction boundary.
//!
//! Source: DWARF 5 section 6.4.2; GNU ld `elfxx-x86.c`, the PLT's `.eh_frame`.

use crate::base::addresses::Vaddr;
use crate::read::eh_frame::{FrameBytes, FrameInput, Personality};
use crate::read::fde::Fde;
use gimli::write::{
    Address, CallFrameInstruction as Out, CommonInformationEntry as OutCie, EndianVec, Expression, Writer,
};
use gimli::{CallFrameInstruction as In, CommonInformationEntry, EhFrame, Register, UnwindExpression, X86_64};
use std::collections::BTreeMap;

/// DWARF `DW_EH_PE_pcrel | DW_EH_PE_sdata4`: what every pointer of the output uses.
pub(super) const PCREL4: gimli::DwEhPe = gimli::DwEhPe(gimli::DW_EH_PE_pcrel.0 | gimli::DW_EH_PE_sdata4.0);
/// The same through a pointer in memory.
pub(super) const INDIRECT_PCREL4: gimli::DwEhPe = gimli::DwEhPe(gimli::DW_EH_PE_indirect.0 | PCREL4.0);

/// One instruction and the old address from which it holds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CfiStep {
    pub at: Vaddr,
    pub op: Out,
    /// The bytes of its expression, which [`Out`] does not show.
    pub expression: Option<Vec<u8>>,
}

/// Bytes of one `.plt` entry.
const PLT_ENTRY: u64 = 16;

/// Appends the steps of an FDE to `steps`. Those at or behind its end can never hold and are left out.
pub(super) fn steps(input: &FrameInput, fde: &Fde, steps: &mut Vec<CfiStep>) -> Result<(), String> {
    let section = input.section();
    let bases = input.bases();
    let cie = fde.raw.cie();
    let mut at = fde.start;
    // The start of a range under the PLT's rule, and its threshold.
    let mut plt: Option<(Vaddr, u64)> = None;
    let mut instructions = fde.raw.instructions(&section, &bases);
    while let Some(instruction) = instructions.next().map_err(|e| e.to_string())? {
        let to = match instruction {
            In::SetLoc { address } => Some(Vaddr(address)),
            In::AdvanceLoc { delta } => {
                let bytes = u64::from(delta).checked_mul(cie.code_alignment_factor());
                Some(Vaddr(bytes.and_then(|b| at.0.checked_add(b)).ok_or("an advance wraps around")?))
            }
            In::DefCfaExpression { expression } => match plt_threshold(&section, &expression)? {
                Some(threshold) => {
                    if let Some((from, old)) = plt.replace((at, threshold)) {
                        plt_rows(from, at, old, steps);
                    }
                    continue;
                }
                None => None,
            },
            _ => None,
        };
        if let Some(to) = to {
            if to < at {
                return Err(format!("its instructions go back from {at} to {to}"));
            }
            at = to;
            if at >= fde.end {
                break;
            }
            continue;
        }
        let Some(op) = convert(&instruction, cie, &section)? else { continue };
        if let Some((from, threshold)) = plt {
            if from < at && matches!(op, Out::Cfa(..) | Out::CfaExpression(..)) {
                plt_rows(from, at, threshold, steps);
                plt = None;
            } else {
                return Err(format!("an instruction at {at} changes a PLT's rule that depends on rip"));
            }
        }
        let expression = expression_of(&instruction, &section)?;
        steps.push(CfiStep { at, op, expression });
    }
    if let Some((from, threshold)) = plt {
        plt_rows(from, fde.end, threshold, steps);
    }
    Ok(())
}

/// The rows of the PLT code `[from, to)`: `CFA = rsp + 8 + ((rip & 15) >= threshold) * 8`.
fn plt_rows(from: Vaddr, to: Vaddr, threshold: u64, steps: &mut Vec<CfiStep>) {
    let mut at = from.0;
    while at < to.0 {
        let entry = at & !(PLT_ENTRY - 1);
        let (offset, next) =
            if at - entry < threshold { (8, entry + threshold) } else { (16, entry.saturating_add(PLT_ENTRY)) };
        steps.push(CfiStep { at: Vaddr(at), op: Out::Cfa(X86_64::RSP, offset), expression: None });
        at = next;
    }
}

/// The threshold of the PLT's CFA expression, if it is that one.
fn plt_threshold(section: &EhFrame<FrameBytes>, e: &UnwindExpression<usize>) -> Result<Option<u64>, String> {
    use gimli::constants as c;
    let bytes = e.get(section).map_err(|e| e.to_string())?.0.slice();
    let [breg7, 8, breg16, 0, lit15, and, lit, ge, lit3, shl, plus] = *bytes else { return Ok(None) };
    let fixed = [breg7, breg16, lit15, and, ge, lit3, shl, plus];
    let expected = [
        c::DW_OP_breg7.0,
        c::DW_OP_breg16.0,
        c::DW_OP_lit15.0,
        c::DW_OP_and.0,
        c::DW_OP_ge.0,
        c::DW_OP_lit3.0,
        c::DW_OP_shl.0,
        c::DW_OP_plus.0,
    ];
    let threshold = lit.wrapping_sub(c::DW_OP_lit0.0);
    Ok((fixed == expected && (1..16).contains(&threshold)).then_some(threshold.into()))
}

/// One instruction for the output; `None` for padding.
fn convert(
    instruction: &In<usize>,
    cie: &CommonInformationEntry<FrameBytes>,
    section: &EhFrame<FrameBytes>,
) -> Result<Option<Out>, String> {
    let small = |v: i128| match i32::try_from(v) {
        // The writer divides by the factor, which may be -1.
        Ok(small) if small != i32::MIN => Ok(small),
        _ => Err(format!("offset {v} in a call-frame instruction")),
    };
    let plain = |v: u64| small(v.into());
    let factor = i128::from(cie.data_alignment_factor());
    let signed = |v: i64| small(i128::from(v) * factor);
    let unsigned = |v: u64| small(i128::from(v) * factor);
    let expression = |e: &UnwindExpression<usize>| -> Result<Expression, String> {
        let e = e.get(section).map_err(|e| e.to_string())?;
        let mut operations = e.operations(cie.encoding());
        while let Some(op) = operations.next().map_err(|e| e.to_string())? {
            let reads_pc = matches!(op, gimli::Operation::RegisterOffset { register, .. }
                | gimli::Operation::Register { register } if register == cie.return_address_register());
            if reads_pc {
                return Err("an expression reads rip".to_string());
            }
        }
        Ok(Expression::raw(e.0.slice().to_vec()))
    };
    Ok(Some(match instruction {
        In::DefCfa { register, offset } => Out::Cfa(*register, plain(*offset)?),
        In::DefCfaSf { register, factored_offset } => Out::Cfa(*register, signed(*factored_offset)?),
        In::DefCfaRegister { register } => Out::CfaRegister(*register),
        In::DefCfaOffset { offset } => Out::CfaOffset(plain(*offset)?),
        In::DefCfaOffsetSf { factored_offset } => Out::CfaOffset(signed(*factored_offset)?),
        In::DefCfaExpression { expression: e } => Out::CfaExpression(expression(e)?),
        In::Undefined { register } => Out::Undefined(*register),
        In::SameValue { register } => Out::SameValue(*register),
        In::Offset { register, factored_offset } => Out::Offset(*register, unsigned(*factored_offset)?),
        In::OffsetExtendedSf { register, factored_offset } => Out::Offset(*register, signed(*factored_offset)?),
        In::ValOffset { register, factored_offset } => Out::ValOffset(*register, unsigned(*factored_offset)?),
        In::ValOffsetSf { register, factored_offset } => Out::ValOffset(*register, signed(*factored_offset)?),
        In::Register { dest_register, src_register } => Out::Register(*dest_register, *src_register),
        In::Expression { register, expression: e } => Out::Expression(*register, expression(e)?),
        In::ValExpression { register, expression: e } => Out::ValExpression(*register, expression(e)?),
        In::Restore { register } => Out::Restore(*register),
        In::RememberState => Out::RememberState,
        In::RestoreState => Out::RestoreState,
        In::ArgsSize { size } => Out::ArgsSize(u32::try_from(*size).map_err(|_| format!("argument size {size}"))?),
        In::Nop => return Ok(None),
        other => return Err(format!("call-frame instruction {other:?}")),
    }))
}

/// The bytes of the expression in `instruction`, if it has one.
fn expression_of(instruction: &In<usize>, section: &EhFrame<FrameBytes>) -> Result<Option<Vec<u8>>, String> {
    let (In::DefCfaExpression { expression }
    | In::Expression { expression, .. }
    | In::ValExpression { expression, .. }) = instruction
    else {
        return Ok(None);
    };
    Ok(Some(expression.get(section).map_err(|e| e.to_string())?.0.slice().to_vec()))
}

/// How the frame is found.
#[derive(Debug, Clone, Default, PartialEq)]
enum Rule {
    #[default]
    None,
    Register(Register, i32),
    Expression(Vec<u8>),
}

/// The registers that expressions find: whether the expression is the value or its place, and its bytes.
type Found = BTreeMap<u16, (bool, Vec<u8>)>;

/// What of the rules may depend on rsp, while the steps of a function are gone through.
#[derive(Debug, Clone, Default)]
pub(super) struct RspRules {
    cfa: Rule,
    /// The offset last named: what a register gets that is named where the frame address is found by an expression. The standard does not
    /// allow that; assembly has it, and libgcc and LLVM's libunwind agree on it.
    offset: i32,
    found: Found,
    remembered: Vec<(Rule, i32, Found)>,
    /// At the function's entry.
    first: Found,
}

impl RspRules {
    /// The rules at a function's entry.
    pub fn initial(input: &FrameInput, fde: &Fde) -> Result<RspRules, String> {
        let (section, bases) = (input.section(), input.bases());
        let mut rules = RspRules::default();
        let mut instructions = fde.raw.cie().instructions(&section, &bases);
        while let Some(instruction) = instructions.next().map_err(|e| e.to_string())? {
            if let Some(op) = convert(&instruction, fde.raw.cie(), &section)? {
                rules.apply(&op, expression_of(&instruction, &section)?.as_deref());
            }
        }
        rules.first = rules.found.clone();
        Ok(rules)
    }

    /// `expression`: the bytes of the instruction's expression.
    pub fn apply(&mut self, op: &Out, expression: Option<&[u8]>) {
        let bytes = || expression.unwrap_or_default().to_vec();
        match *op {
            Out::Cfa(register, offset) => (self.cfa, self.offset) = (Rule::Register(register, offset), offset),
            Out::CfaRegister(register) => self.cfa = Rule::Register(register, self.offset),
            Out::CfaOffset(offset) => {
                self.offset = offset;
                if let Rule::Register(_, old) = &mut self.cfa {
                    *old = offset;
                }
            }
            Out::CfaExpression(_) => self.cfa = Rule::Expression(bytes()),
            Out::Expression(register, _) => drop(self.found.insert(register.0, (false, bytes()))),
            Out::ValExpression(register, _) => drop(self.found.insert(register.0, (true, bytes()))),
            Out::Undefined(register)
            | Out::SameValue(register)
            | Out::Offset(register, _)
            | Out::ValOffset(register, _)
            | Out::Register(register, _) => drop(self.found.remove(&register.0)),
            Out::Restore(register) => {
                self.found.remove(&register.0);
                self.found.extend(self.first.get(&register.0).map(|rule| (register.0, rule.clone())));
            }
            Out::RememberState => self.remembered.push((self.cfa.clone(), self.offset, self.found.clone())),
            Out::RestoreState => (self.cfa, self.offset, self.found) = self.remembered.pop().unwrap_or_default(),
            _ => {}
        }
    }

    /// The steps that describe rsp lower by `bytes`, where rules depend on rsp. An expression that does and that branches is left as it
    /// is: no compiler or assembler writes one.
    pub fn lowered(&self, bytes: u32) -> Vec<Out> {
        let cfa = match &self.cfa {
            Rule::Register(X86_64::RSP, offset) => offset.checked_add_unsigned(bytes).map(Out::CfaOffset),
            Rule::Expression(e) => lowered_expression(e, bytes).map(Out::CfaExpression),
            _ => None,
        };
        let found = self.found.iter().filter_map(|(&register, (value, e))| {
            let e = lowered_expression(e, bytes)?;
            let register = Register(register);
            Some(if *value { Out::ValExpression(register, e) } else { Out::Expression(register, e) })
        });
        cfa.into_iter().chain(found).collect()
    }
}

/// An expression that says with rsp lower by `bytes` what `expression` says; `None` where rsp does not matter, or it branches.
fn lowered_expression(expression: &[u8], bytes: u32) -> Option<Expression> {
    let all = gimli::Expression(FrameBytes::new(expression, gimli::LittleEndian));
    let encoding = gimli::Encoding { format: gimli::Format::Dwarf32, version: 1, address_size: 8 };
    let mut operations = all.operations(encoding);
    let (mut out, mut from, mut depends) = (EndianVec::new(gimli::LittleEndian), 0, false);
    while let Some(op) = operations.next().ok()? {
        let to = operations.offset_from(&all);
        match op {
            gimli::Operation::Bra { .. } | gimli::Operation::Skip { .. } => return None,
            gimli::Operation::RegisterOffset { register: X86_64::RSP, offset, .. } => {
                out.write_u8(gimli::constants::DW_OP_breg7.0).ok()?;
                out.write_sleb128(offset.checked_add(i64::from(bytes))?).ok()?;
                depends = true;
            }
            _ => out.write(&expression[from..to]).ok()?,
        }
        from = to;
    }
    depends.then(|| Expression::raw(out.into_vec()))
}

/// The CIE of an FDE as it is written: every pointer PC-relative in four bytes, the meaning unchanged but for the personality routine's new address.
/// `base` is the address of the output's `.eh_frame`; `moved`: where the code at an old address is now.
pub(super) fn cie(
    input: &FrameInput,
    fde: &Fde,
    with_lsda: bool,
    base: Vaddr,
    moved: &dyn Fn(Vaddr) -> Vaddr,
) -> Result<OutCie, String> {
    let from = fde.raw.cie();
    let section = input.section();
    let bases = input.bases();
    let factor = from.data_alignment_factor();
    let factor = i8::try_from(factor).ok().filter(|&f| f != 0).ok_or(format!("data alignment factor {factor}"))?;
    if from.return_address_register().0 > 0x7f {
        return Err(format!("return address register {}", from.return_address_register().0));
    }
    let encoding = gimli::Encoding { format: gimli::Format::Dwarf32, version: 1, address_size: 8 };
    let mut to = OutCie::new(encoding, 1, factor, from.return_address_register());
    let relative = |a: Vaddr| Address::Constant(a - base);
    to.personality = match fde.personality {
        None if from.personality().is_some_and(|p| p == gimli::Pointer::Direct(0)) => {
            return Err("its personality's address is only known at run time".to_string());
        }
        None => None,
        // Unwinders only call it, once and again for each frame: at its old address it would often be a trap.
        Some(Personality::Direct(a)) => Some((PCREL4, relative(moved(a)))),
        Some(Personality::Indirect(a)) => Some((INDIRECT_PCREL4, relative(a))),
    };
    to.lsda_encoding = with_lsda.then_some(PCREL4);
    to.fde_address_encoding = PCREL4;
    to.signal_trampoline = from.is_signal_trampoline();
    let mut instructions = from.instructions(&section, &bases);
    while let Some(instruction) = instructions.next().map_err(|e| e.to_string())? {
        if let Some(op) = convert(&instruction, from, &section)? {
            to.add_instruction(op);
        }
    }
    Ok(to)
}
