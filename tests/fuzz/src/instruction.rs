//! Random instructions that a sequence may contain.
//!
//! Input: random choices. Output: the bytes of one instruction, from all of the processor's opcode maps, that touches memory only through
//! registers which hold the right addresses ([`Roles`]) and neither jumps nor asks the kernel for anything. What is allowed is decided by
//! decoding what was made up, not by a list of opcodes.

use crate::machine::has_512;
use arbitrary::{Result, Unstructured};
use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register, RflagsBits,
};
use std::collections::BTreeMap;

/// What the general registers are for. Numbers are the encoding's.
#[derive(Clone, Debug)]
pub struct Roles {
    /// Hold addresses in the middle of a region, and are never written but by string instructions.
    pub pointers: [u8; 4],
    /// How many of `pointers` point into memory below 4 GiB; these come first.
    pub low: usize,
    /// How many of the last of the others point into private memory that lies high, where its addresses show that it is private.
    pub high: usize,
    /// Hold small numbers; never written, but that a repeated string instruction counts rcx down.
    pub small: [u8; 2],
    /// Counts loops; never written.
    pub counter: u8,
    /// The sequence uses the red zone (psABI 3.2.2). Then it does not move rsp, because what is below the red zone may change at any time.
    pub red_zone: bool,
    /// Pointers change places with each other, so that 32 bits of one are no address.
    pub swaps: bool,
}

/// Vector registers whose elements are small, as indices of gathers and scatters; never written.
pub const INDICES: [u8; 2] = [14, 15];
/// Displacements are this small, in both directions.
pub const REACH: i32 = 512;

/// Makes an instruction. `None`: what came out is not allowed. `undefined`: status flags that nothing has defined; updated.
pub fn make(u: &mut Unstructured, roles: &Roles, at: u64, undefined: &mut u32) -> Result<Option<Vec<u8>>> {
    let mut bytes = match u.int_in_range(0..=9)? {
        0..=2 => common(u, roles)?,
        3 => string(u)?,
        4 => vex(u, roles)?,
        5 => evex(u, roles)?,
        _ => legacy(u, roles)?,
    };
    for _ in 0..8 {
        bytes.push(u.arbitrary()?);
    }
    bytes.truncate(15);
    let insn = Decoder::with_ip(64, &bytes, at, DecoderOptions::NONE).decode();
    bytes.truncate(insn.len());
    if !is_allowed(&insn, roles, *undefined) {
        return Ok(None);
    }
    *undefined |= insn.rflags_undefined();
    // Shifts by 0 and repetitions of nothing leave the flags alone.
    let shifts = matches!(
        insn.mnemonic(),
        Mnemonic::Shl | Mnemonic::Sal | Mnemonic::Shr | Mnemonic::Sar | Mnemonic::Shld | Mnemonic::Shrd
    ) || matches!(insn.mnemonic(), Mnemonic::Rol | Mnemonic::Ror | Mnemonic::Rcl | Mnemonic::Rcr);
    if !shifts && !insn.is_string_instruction() {
        *undefined &= insn.rflags_undefined() | !(insn.rflags_written() | insn.rflags_cleared() | insn.rflags_set());
    }
    Ok(Some(bytes))
}

/// A ModRM byte with what belongs to it; `rex`: the R, X and B bits that go with it.
struct Operand {
    bytes: Vec<u8>,
    rex: u8,
}

fn operand(u: &mut Unstructured, roles: &Roles, scale_bytes: i32) -> Result<Operand> {
    let reg = u.int_in_range(0..=15u8)?;
    let r = (reg >> 3) << 2;
    let field = (reg & 7) << 3;
    if u.ratio(1, 3)? {
        let rm = u.int_in_range(0..=15u8)?;
        return Ok(Operand { bytes: vec![0xc0 | field | rm & 7], rex: r | rm >> 3 });
    }
    if u.ratio(1, 16)? {
        // An absolute address of the private region.
        let at = 0x1000_1000 + u.int_in_range(0..=2 * REACH)?;
        let mut bytes = vec![field | 4, 0x25];
        bytes.extend(at.to_le_bytes());
        return Ok(Operand { bytes, rex: r });
    }
    let base = if u.ratio(1, 8)? { 4 } else { *u.choose(&roles.pointers)? };
    let index = if u.ratio(1, 4)? { *u.choose(&roles.small)? } else { 4 };
    let wide: bool = u.arbitrary()?;
    let disp: i32 = match u.int_in_range(0..=3)? {
        0 => 0,
        1 => u.int_in_range(-REACH..=REACH)?,
        // Neighbours: checks of the same base are merged.
        _ => u.int_in_range(-8..=7)? * 8,
    };
    let disp = match base {
        4 if roles.red_zone => disp.max(-128),
        4 => disp.max(0),
        _ => disp,
    };
    let (mode, disp) = if wide || scale_bytes != 1 {
        (0x80, disp.to_le_bytes().to_vec())
    } else {
        (0x40, vec![disp.clamp(-128, 127) as u8])
    };
    let mut bytes = vec![mode | field | if index != 4 || base & 7 == 4 { 4 } else { base & 7 }];
    if bytes[0] & 7 == 4 {
        bytes.push(u.int_in_range(0..=3u8)? << 6 | (index & 7) << 3 | base & 7);
    }
    bytes.extend(disp);
    Ok(Operand { bytes, rex: r | (index >> 3) << 1 | base >> 3 })
}

/// What compilers write all the time.
fn common(u: &mut Unstructured, roles: &Roles) -> Result<Vec<u8>> {
    const OPCODES: [&[u8]; 23] = [
        &[0x8b],
        &[0x8b],
        &[0x89],
        &[0x89],
        &[0x88],
        &[0x8a],
        &[0x01],
        &[0x03],
        &[0x39],
        &[0x3b],
        &[0x85],
        &[0x31],
        &[0x0f, 0xb6],
        &[0x0f, 0xbe],
        &[0x63],
        &[0xc7],
        &[0x83],
        &[0x0f, 0x10],
        &[0x0f, 0x11],
        &[0xff],
        &[0xf7],
        &[0x0f, 0x44],
        &[0x8d],
    ];
    let operand = operand(u, roles, 1)?;
    let mut bytes = Vec::new();
    let wide = u8::from(u.arbitrary::<bool>()?) << 3;
    if wide | operand.rex != 0 {
        bytes.push(0x40 | wide | operand.rex);
    }
    bytes.extend(*u.choose(&OPCODES)?);
    bytes.extend(operand.bytes);
    Ok(bytes)
}

fn string(u: &mut Unstructured) -> Result<Vec<u8>> {
    let opcode = *u.choose(&[0xa4, 0xa5, 0xa6, 0xa7, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf])?;
    let mut bytes = Vec::new();
    bytes.extend(*u.choose(&[&[][..], &[0xf3], &[0xf2]])?);
    // Defined with cmps and scas only (SDM volume 2, REP).
    if !matches!(opcode, 0xa6 | 0xa7 | 0xae | 0xaf) {
        bytes.retain(|b| *b != 0xf2);
    }
    bytes.extend(*u.choose(&[&[][..], &[0x66], &[0x48]])?);
    bytes.push(opcode);
    Ok(bytes)
}

/// Any opcode of the four legacy maps.
fn legacy(u: &mut Unstructured, roles: &Roles) -> Result<Vec<u8>> {
    let operand = operand(u, roles, 1)?;
    let mut bytes: Vec<u8> = u.choose(&[&[][..], &[], &[], &[0x66], &[0xf2], &[0xf3], &[0xf0], &[0x67]])?.to_vec();
    let wide = u8::from(u.arbitrary::<bool>()?) << 3;
    let map = *u.choose(&[&[][..], &[], &[0x0f], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]])?;
    // Of two operand sizes the second counts; not all decoders know.
    let wide = if map.is_empty() && bytes == [0x66] { 0 } else { wide };
    if wide | operand.rex != 0 || u.arbitrary()? {
        bytes.push(0x40 | wide | operand.rex);
    }
    bytes.extend(map);
    bytes.push(match u.arbitrary()? {
        opcode if map.is_empty() && is_prefix(opcode) => 0x8b,
        opcode => opcode,
    });
    bytes.extend(operand.bytes);
    Ok(bytes)
}

/// SDM volume 2, 2.3.5.
fn vex(u: &mut Unstructured, roles: &Roles) -> Result<Vec<u8>> {
    let mut operand = operand(u, roles, 1)?;
    vector_index(u, &mut operand)?;
    let map = u.int_in_range(1..=3u8)?;
    let mut bytes = vec![0xc4, (!operand.rex & 7) << 5 | map, u.arbitrary()?, u.arbitrary()?];
    bytes.extend(operand.bytes);
    Ok(bytes)
}

/// SDM volume 2, 2.7.1.
fn evex(u: &mut Unstructured, roles: &Roles) -> Result<Vec<u8>> {
    // Short displacements are multiplied by the operand's size: none are made.
    let mut operand = operand(u, roles, 64)?;
    vector_index(u, &mut operand)?;
    let map = *u.choose(&[1u8, 2, 3, 5, 6])?;
    let r = u8::from(u.arbitrary::<bool>()?) << 4;
    let p1: u8 = u.arbitrary()?;
    let v = u8::from(u.ratio(3, 4)?) << 3;
    let p2: u8 = u.arbitrary::<u8>()? & 0xf7 | v;
    let mut bytes = vec![0x62, (!operand.rex & 7) << 5 | r | map, p1 | 4, p2, u.arbitrary()?];
    bytes.extend(operand.bytes);
    Ok(bytes)
}

/// Makes the index of some operands with a SIB byte one of [`INDICES`], as gathers and scatters need it.
fn vector_index(u: &mut Unstructured, operand: &mut Operand) -> Result<()> {
    let has_sib = operand.bytes[0] & 0xc7 == 0x84 || operand.bytes[0] & 0xc7 == 0x44;
    if has_sib && u.ratio(1, 2)? {
        let index = *u.choose(&INDICES)?;
        operand.bytes[1] = operand.bytes[1] & 0xc7 | (index & 7) << 3;
        operand.rex = operand.rex & !2 | (index >> 3) << 1;
    }
    Ok(())
}

/// One instruction of each form that accesses memory through a register, and of each string instruction; `roles.red_zone` is false.
pub fn forms(roles: &Roles, base: u8) -> Vec<Vec<u8>> {
    let mut factory = InstructionInfoFactory::new();
    let mut found = BTreeMap::new();
    let mut add = |head: &[u8], operand: &Operand| {
        let bytes = [head, &operand.bytes, &[1; 4]].concat();
        let insn = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
        let key = (insn.code() as u32, insn.has_lock_prefix(), insn.has_rep_prefix(), insn.has_repne_prefix());
        if insn.is_invalid() || found.contains_key(&key) || !is_allowed(&insn, roles, 0) {
            return;
        }
        let is_base = |register: Register| register.is_gpr() && register.full_register().number() == usize::from(base);
        if insn.is_string_instruction() || factory.info(&insn).used_memory().iter().any(|m| is_base(m.base())) {
            found.insert(key, bytes[..insn.len()].to_vec());
        }
    };
    // [base+64], and the same with a vector of indices, which has nothing but registers 0 and 3 beside it.
    let plain = |reg: u8| Operand {
        bytes: vec![0x80 | (reg & 7) << 3 | base & 7, 64, 0, 0, 0],
        rex: (reg >> 3) << 2 | base >> 3,
    };
    let indexed = |reg: u8| Operand {
        bytes: vec![0x84 | (reg & 7) << 3, (INDICES[0] & 7) << 3 | base & 7, 64, 0, 0, 0],
        rex: (reg >> 3) << 2 | (INDICES[0] >> 3) << 1 | base >> 3,
    };
    for opcode in 0..=255u8 {
        for operand in (0..16).map(plain) {
            for prefix in [&[][..], &[0x66], &[0xf2], &[0xf3], &[0xf0]] {
                for (wide, map) in [0, 8].into_iter().flat_map(|w| LEGACY_MAPS.map(|map| (w, map))) {
                    if !(map.is_empty() && is_prefix(opcode)) {
                        add(&[prefix, &[0x40 | wide | operand.rex], map, &[opcode]].concat(), &operand);
                    }
                }
            }
        }
        for operand in [plain(0), plain(3), indexed(0), indexed(3)] {
            // W, a second register or none, L or L'L, pp.
            for (bits, register) in (0..=255u8).step_by(2).flat_map(|bits| [0, 5].map(|r| (bits, r))) {
                let (wide, pp, long) = (bits & 0x80, bits >> 1 & 3, bits >> 3 & 3);
                let (broadcast, mask) = (bits >> 5 & 1, bits >> 6 & 1);
                let second = wide | (!register & 15) << 3 | pp;
                for map in [1, 2, 3, 5, 6] {
                    let first = (!operand.rex & 7) << 5 | map;
                    if map <= 3 && long < 2 && broadcast == 0 && mask == 0 {
                        add(&[0xc4, first, second | long << 2, opcode], &operand);
                    }
                    add(&[0x62, first | 0x10, second | 4, long << 5 | broadcast << 4 | 8 | mask, opcode], &operand);
                }
            }
        }
    }
    found.into_values().collect()
}

const LEGACY_MAPS: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];

/// Behind a REX prefix decoders do not agree on what these mean.
fn is_prefix(opcode: u8) -> bool {
    matches!(opcode, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}

fn is_allowed(insn: &Instruction, roles: &Roles, undefined: u32) -> bool {
    if insn.is_invalid()
        || insn.is_privileged()
        || insn.flow_control() != FlowControl::Next
        || is_odd(insn)
        || !is_supported(insn)
    {
        return false;
    }
    if insn.rflags_read() & undefined & STATUS != 0
        || insn.rflags_modified() & !(STATUS | RflagsBits::DF | C_FLAGS) != 0
    {
        return false;
    }
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(insn);
    if roles.red_zone && insn.stack_pointer_increment() != 0 {
        return false;
    }
    let pops_rsp = insn.stack_pointer_increment() > 0
        && insn.op_count() > 0
        && insn.op0_kind() == OpKind::Register
        && insn.op0_register().full_register() == Register::RSP;
    if pops_rsp {
        return false;
    }
    let string = insn.is_string_instruction();
    let number = |r: Register| (r.full_register().is_gpr()).then(|| r.full_register().number() as u8);
    let is_small = |r: Register| number(r).is_some_and(|n| roles.small.contains(&n));
    for used in info.used_registers() {
        let reads =
            matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess);
        let register = used.register();
        if register.is_segment_register() && !reads {
            return false;
        }
        // The counts of repeated string instructions.
        if string && number(register) == Some(1) && !is_small(register) {
            return false;
        }
        // rsi, rdi and rcx.
        if reads || string && matches!(number(register), Some(1 | 6 | 7)) {
            continue;
        }
        match number(register) {
            Some(4) if !matches!(insn.stack_pointer_increment(), -16..=-1 | 1..=16) => return false,
            Some(4) => {}
            Some(n) if roles.pointers.contains(&n) || roles.small.contains(&n) || roles.counter == n => return false,
            _ => {}
        }
        if register.is_vector_register() && INDICES.contains(&(register.number() as u8)) {
            return false;
        }
    }
    let pointer = |r: Register| {
        number(r).is_some_and(|n| {
            let found = roles.pointers.iter().position(|p| *p == n);
            let is_short = |at: usize| r.is_gpr32() && at < roles.low && !roles.swaps;
            n == 4 && r.is_gpr64() || found.is_some_and(|at| r.is_gpr64() || is_short(at))
        })
    };
    let uses_bits = matches!(insn.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc)
        && insn.op0_kind() == OpKind::Memory
        && insn.op1_kind() == OpKind::Register;
    if uses_bits && !is_small(insn.op1_register()) {
        return false;
    }
    info.used_memory().iter().all(|m| {
        let base = match m.base() {
            Register::None => (0x1000_1000..0x1000_2000).contains(&m.displacement()),
            r => pointer(r),
        };
        let index = match m.index() {
            Register::None => true,
            // xlat.
            Register::AL => true,
            r if r.is_vector_register() => INDICES.contains(&(r.number() as u8)),
            r => is_small(r) && r.size() >= 4,
        };
        // Not beyond the red zone, which a negative index would be; the small numbers are not negative.
        let near = m.base() == Register::None || (m.displacement() as i64).abs() <= 2 * i64::from(REACH);
        base && index && near && !matches!(m.segment(), Register::FS | Register::GS)
    })
}

const STATUS: u32 = RflagsBits::CF | RflagsBits::PF | RflagsBits::AF | RflagsBits::ZF | RflagsBits::SF | RflagsBits::OF;
/// Condition codes of the x87 unit.
const C_FLAGS: u32 = RflagsBits::C0 | RflagsBits::C1 | RflagsBits::C2 | RflagsBits::C3;

/// What depends on time, place or processor, changes how others behave, or is tried elsewhere.
fn is_odd(insn: &Instruction) -> bool {
    use Mnemonic as M;
    if insn.is_string_instruction()
        && insn.has_repne_prefix()
        && !matches!(insn.op0_kind(), OpKind::Register)
        && matches!(
            insn.mnemonic(),
            M::Movsb | M::Movsw | M::Movsd | M::Movsq | M::Stosb | M::Stosw | M::Stosd | M::Stosq
        )
    {
        return true;
    }
    matches!(
        insn.mnemonic(),
        M::Rdtsc | M::Rdtscp | M::Rdrand | M::Rdseed | M::Rdpid | M::Rdpru | M::Rdpmc | M::Cpuid | M::Xgetbv
            // The address of the instruction executed last is part of what they store.
            | M::Fnstenv | M::Fstenv | M::Fnsave | M::Fsave | M::Fxsave | M::Fxsave64 | M::Xsave | M::Xsave64 | M::Xsaveopt
            | M::Xsaveopt64 | M::Xsavec | M::Xsavec64
            | M::Fldenv | M::Frstor | M::Fxrstor | M::Fxrstor64 | M::Xrstor | M::Xrstor64 | M::Fldcw | M::Ldmxcsr | M::Vldmxcsr
            | M::Rdfsbase | M::Rdgsbase | M::Wrfsbase | M::Wrgsbase | M::Rdpkru | M::Wrpkru
            | M::Monitorx | M::Mwaitx | M::Umonitor | M::Umwait | M::Tpause | M::Enqcmd | M::Serialize
            | M::Sgdt | M::Sidt | M::Sldt | M::Str | M::Smsw | M::Lar | M::Lsl | M::Verr | M::Verw
            | M::Lss | M::Lfs | M::Lgs | M::Popf | M::Popfq | M::Pushf | M::Pushfq | M::Wait
    ) || insn.code() == Code::DeclareByte
        || insn.op_count() > 0 && insn.op0_kind() == OpKind::Register && insn.op0_register().is_segment_register()
        // Store segment selectors and read rip; the first differ by kernel, the second is tried with real programs.
        || (0..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::Register && insn.op_register(op).is_segment_register())
        || insn.is_ip_rel_memory_operand()
        // With REX.B it exchanges rax and r8, and decoders do not agree.
        || insn.mnemonic() == M::Pause && insn.len() > 2
        // A rotation all the way round reads no flag; the audit thinks that it does.
        || matches!(insn.mnemonic(), M::Rcl | M::Rcr) && insn.rflags_read() & RflagsBits::CF == 0
        // The audit takes the address for 64 bits wide.
        || matches!(insn.mnemonic(), M::Maskmovq | M::Maskmovdqu | M::Vmaskmovdqu)
            && (0..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::MemorySegEDI)
}

/// Whether this processor has the instruction.
fn is_supported(insn: &Instruction) -> bool {
    use CpuidFeature as F;
    insn.cpuid_features().iter().all(|feature| match feature {
        F::INTEL8086
        | F::INTEL186
        | F::INTEL286
        | F::INTEL386
        | F::INTEL486
        | F::X64
        | F::FPU
        | F::FPU287
        | F::FPU387
        | F::CMOV
        | F::CPUID
        | F::CX8
        | F::MMX
        | F::SSE
        | F::SSE2
        | F::FXSR
        | F::MULTIBYTENOP
        | F::PREFETCHW
        | F::PAUSE
        | F::CLFSH => true,
        F::SSE3 => std::is_x86_feature_detected!("sse3"),
        F::SSSE3 => std::is_x86_feature_detected!("ssse3"),
        F::SSE4_1 => std::is_x86_feature_detected!("sse4.1"),
        F::SSE4_2 => std::is_x86_feature_detected!("sse4.2"),
        F::SSE4A => std::is_x86_feature_detected!("sse4a"),
        F::POPCNT => std::is_x86_feature_detected!("popcnt"),
        F::LZCNT => std::is_x86_feature_detected!("lzcnt"),
        F::BMI1 => std::is_x86_feature_detected!("bmi1"),
        F::BMI2 => std::is_x86_feature_detected!("bmi2"),
        F::ADX => std::is_x86_feature_detected!("adx"),
        F::MOVBE => std::is_x86_feature_detected!("movbe"),
        F::CMPXCHG16B => std::is_x86_feature_detected!("cmpxchg16b"),
        F::AES => std::is_x86_feature_detected!("aes"),
        F::PCLMULQDQ => std::is_x86_feature_detected!("pclmulqdq"),
        F::SHA => std::is_x86_feature_detected!("sha"),
        F::F16C => std::is_x86_feature_detected!("f16c"),
        F::FMA => std::is_x86_feature_detected!("fma"),
        F::AVX => std::is_x86_feature_detected!("avx"),
        F::AVX2 => std::is_x86_feature_detected!("avx2"),
        F::VAES => std::is_x86_feature_detected!("vaes"),
        F::VPCLMULQDQ => std::is_x86_feature_detected!("vpclmulqdq"),
        F::GFNI => std::is_x86_feature_detected!("gfni"),
        // As far as the harness keeps the registers.
        F::AVX512F | F::AVX512BW => has_512(),
        F::AVX512CD => has_512() && std::is_x86_feature_detected!("avx512cd"),
        F::AVX512DQ => has_512() && std::is_x86_feature_detected!("avx512dq"),
        F::AVX512VL => has_512() && std::is_x86_feature_detected!("avx512vl"),
        F::AVX512_VBMI => has_512() && std::is_x86_feature_detected!("avx512vbmi"),
        F::AVX512_VBMI2 => has_512() && std::is_x86_feature_detected!("avx512vbmi2"),
        F::AVX512_VNNI => has_512() && std::is_x86_feature_detected!("avx512vnni"),
        F::AVX512_BITALG => has_512() && std::is_x86_feature_detected!("avx512bitalg"),
        F::AVX512_VPOPCNTDQ => has_512() && std::is_x86_feature_detected!("avx512vpopcntdq"),
        F::AVX512_IFMA => has_512() && std::is_x86_feature_detected!("avx512ifma"),
        F::AVX512_BF16 => has_512() && std::is_x86_feature_detected!("avx512bf16"),
        _ => false,
    })
}
