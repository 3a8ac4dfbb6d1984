//! The tests of a loop that tests tags once for several iterations, as `DESIGN.md` lists them.
//!
//! Input: a planned [`Strip`]. Output: at the loop's head a comparison with the limit, in the cold buffer the tests. Who enters the loop
//! begins at [`head`]'s first instruction, which says that nothing has been tested; the loop's own jump leads to the one behind it.

use crate::base::options::{AccessMode, Options, Poll};
use crate::decode::insn::InsnId;
use crate::decode::reader::Reader;
use crate::decode::regs::{RegSet, written_by};
use crate::insert::asm::{self, MemOperand, RSP};
use crate::insert::code::{COLD_ALIGN, EmittedCode, FixupTarget};
use crate::insert::guard;
use crate::insert::instruments::{self, Instrument};
use crate::insert::site::{RED_ZONE, Site, check_counter, count};
use crate::insert::stubs::{group_call, take_back, word};
use crate::plan::decision::DecisionClass;
use crate::plan::loop_tests::{AccessStream, Copy, Limit, Strip};
use crate::plan::ranges::{AddressKey, NO_REG, Range};
use crate::plan::strips;
use blizzard_contract as contract;
use blizzard_contract::Counter;
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};

/// Where a copy finds its limit that has no register for it: in the red zone, of which the program has nothing there.
const BELOW: i32 = -8;

/// A strip whose head has been emitted.
pub struct Open<'x> {
    strip: &'x Strip,
    /// The fixup of the branch to the tests.
    branch: usize,
    /// Where the tests lead: bytes behind the beginning of the first instruction's new code.
    body: u32,
    /// The same for where the first instruction begins, behind what counts its block.
    first: u32,
    /// What the recorder knows it by.
    mark: usize,
}

impl Open<'_> {
    /// The loop's first instruction begins here, its check included.
    pub fn begins(&mut self, code: &EmittedCode, site: &Site) {
        self.first = code.hot.pos() - site.begin;
    }
}

/// From the beginning of the first instruction's new code to where the loop's own jump leads.
pub const ENTRY_BYTES: u32 = 12;

/// The comparison in front of a copy's first block and its branch; the jumps behind its last one. Where it compares with a register, as much
/// padding stands in front of it.
pub const COPY_HEAD_BYTES: u32 = 14;
const KEPT_HEAD_BYTES: u32 = 9;
const BELOW_HEAD_BYTES: u32 = 11;
pub const COPY_TAIL_BYTES: u32 = 11;

/// Emits what runs when the loop is entered, and the comparison at its head.
pub fn head<'x>(code: &mut EmittedCode, site: &Site, strip: &'x Strip) -> Open<'x> {
    let from = code.hot.pos();
    let limit = strip.limit();
    take_back(&mut code.hot.bytes, limit);
    debug_assert_eq!(code.hot.pos() - from, ENTRY_BYTES);
    // From the comparison the way may lead into the loop's copy.
    instruments::insert(code, site, Instrument::Counter { insns: 0 }).expect("only a check can be refused");
    let mark = code.recorder.next_mark();
    code.recorder.mark(site.program(), DecisionClass::Strip, 2);
    asm::cmp_reg_mem64(&mut code.hot.bytes, strip.counter, word(limit).0);
    let at = asm::jcc32(&mut code.hot.bytes, if limit == Limit::Up { asm::CC_AE } else { asm::CC_BE });
    // The tests are emitted when the block is.
    code.hot.fix(at, FixupTarget::Cold(0));
    if let Some(place) = code.recorder.place_of(mark) {
        (place.live, place.hot) = (site.live, from..code.hot.pos());
    }
    let body = code.hot.pos() - site.begin;
    Open { strip, branch: code.hot.fixups.len() - 1, body, first: body, mark }
}

/// Emits the tests, and the copy of the loop that they lead to, if there is one.
pub fn tests(code: &mut EmittedCode, open: &Open, reader: &mut Reader, options: &Options) {
    let Open { strip, branch, body, .. } = *open;
    let s = strip.scratch;
    code.sites.strips += 1;
    let begin = code.cold.pos();
    code.hot.retarget(branch, FixupTarget::Cold(begin));
    // No instruction of the program's: what is executed here is known by a counter of its own.
    count_block(code, strip.first, 0);
    let mut rung = None;
    if options.poll == Poll::Backedge {
        let out = &mut code.cold.bytes;
        count(out, options.count, Counter::Polls);
        asm::cmp_mem32(out, MemOperand::absolute(contract::POLL_WORD), 0);
        rung = Some(asm::jcc32(out, asm::CC_NE));
        code.recorder.mark(strip.first, DecisionClass::Poll, 2);
    }
    if strip.spilled {
        code.sites.spills += 1;
        asm::lea(&mut code.cold.bytes, RSP, MemOperand::base(RSP, -RED_ZONE));
        asm::push(&mut code.cold.bytes, s);
    }
    // Jumps to the copy.
    let mut to_copy = Vec::new();
    if !strip.screens.is_empty() {
        let mut shared = Vec::new();
        screens(code, strip, options, &mut shared);
        set_limit(code, strip, strips::LONGEST as i32);
        leave(code, strip, strip.copy.is_some(), body, &mut to_copy);
        shared.into_iter().for_each(|at| asm::land32(&mut code.cold.bytes, at));
        count_block(code, strip.first, 0);
    }
    // Where an element of a table may not be accessed, the loop itself checks each.
    let copy = strip.copy.as_ref().filter(|c| !c.private);
    let mut element = Vec::new();
    test_streams(code, strip, copy.map_or(&[][..], |c| &c.tables), options, &mut element);
    let mut denied = Vec::new();
    test_streams(code, strip, &strip.streams, options, &mut denied);
    set_limit(code, strip, strip.iterations);
    leave(code, strip, copy.is_some(), body, &mut to_copy);
    if is_guarded(options) {
        denied.append(&mut element);
    }
    if !element.is_empty() {
        element.into_iter().for_each(|at| asm::land32(&mut code.cold.bytes, at));
        count_block(code, strip.first, 0);
        test_streams(code, strip, &strip.streams, options, &mut denied);
        set_limit(code, strip, strip.iterations);
        go_on(code, strip.first, body);
    }
    if is_guarded(options) {
        on_its_own(code, strip, rung, denied, body);
    } else {
        near(code, strip, rung, denied, body);
    }
    if let Some(copy) = &strip.copy {
        let at = self::copy(code, open, copy, begin, reader, options);
        to_copy.into_iter().for_each(|fixup| code.cold.retarget(fixup, FixupTarget::Cold(at)));
    }
    if let Some(place) = code.recorder.place_of(open.mark) {
        place.cold = begin..code.cold.pos();
    }
}

/// Ends a way through the tests: in the copy, by one of the jumps `to_copy`, or in the loop.
fn leave(code: &mut EmittedCode, strip: &Strip, in_copy: bool, body: u32, to_copy: &mut Vec<usize>) {
    if in_copy {
        let to = asm::jmp32(&mut code.cold.bytes);
        code.cold.fix(to, FixupTarget::Cold(0));
        to_copy.push(code.cold.fixups.len() - 1);
    } else {
        go_on(code, strip.first, body);
    }
}

/// Asks of each address that accesses move on from whether it can be shared memory; the branches of those that can go to `shared`.
fn screens(code: &mut EmittedCode, strip: &Strip, options: &Options, shared: &mut Vec<usize>) {
    for screen in &strip.screens {
        let out = &mut code.cold.bytes;
        count(out, options.count, check_counter(screen.store));
        let alone = screen.key.index == NO_REG && screen.key.base != NO_REG;
        let asked = if alone {
            screen.key.base
        } else {
            address_of(out, strip.scratch, screen.key, screen.lo);
            strip.scratch
        };
        asm::bt(out, asked, contract::PRIVATE_BIT as u8);
        shared.push(asm::jcc32(out, asm::CC_AE));
        code.recorder.mark(strip.first, DecisionClass::Apart, if alone { 2 } else { 3 });
    }
}

/// Begins a block in the cold code, where no flags are live; counts it, where blocks are counted.
fn count_block(code: &mut EmittedCode, first: InsnId, insns: u32) {
    if let Some(k) = code.recorder.begin(first, insns) {
        let at = asm::lock_inc64_rip(&mut code.cold.bytes);
        code.cold.fix(at, FixupTarget::Counter(k));
    }
}

/// Tests the tags of all blocks of the streams; the branches go to `denied`.
fn test_streams(
    code: &mut EmittedCode,
    strip: &Strip,
    streams: &[AccessStream],
    options: &Options,
    denied: &mut Vec<usize>,
) {
    for stream in streams {
        let out = &mut code.cold.bytes;
        block_of(out, strip.scratch, stream, 0);
        for &tag in &stream.tags {
            count(out, options.count, check_counter(stream.store));
            if is_guarded(options) {
                denied.push(guard::test_two(out, strip.scratch, tag, stream.store));
                continue;
            }
            let place = MemOperand::base(strip.scratch, contract::TAG_TABLE_BASE as i32 + i32::from(tag));
            asm::test32(out, place, u32::from(bit(stream.store)) * 0x0101_0101);
            denied.push(asm::jcc32(out, asm::CC_NE));
        }
        let inserted = 2 + 2 * stream.tags.len() as u32;
        code.recorder.mark(strip.first, DecisionClass::Apart, inserted);
    }
}

/// Says that so many iterations have been tested.
fn set_limit(code: &mut EmittedCode, strip: &Strip, iterations: i32) {
    let out = &mut code.cold.bytes;
    asm::lea(out, strip.scratch, MemOperand::base(strip.counter, strip.step * iterations));
    asm::store64(out, word(strip.limit()).0, strip.scratch);
    if strip.limit_below {
        // Where the register is saved, rsp is lower.
        let lower = if strip.spilled { RED_ZONE + 8 } else { 0 };
        asm::store64(out, MemOperand::base(RSP, lower + BELOW), strip.scratch);
    }
    let inserted = 3 + if strip.spilled { 4 } else { 0 } + u32::from(strip.limit_below);
    code.recorder.mark(strip.first, DecisionClass::Strip, inserted);
    restore(code, strip);
}

/// Emits the copy; where its first block begins. It compares with the limit in front of that, and goes back to the tests at `begin`.
fn copy(code: &mut EmittedCode, open: &Open, copy: &Copy, begin: u32, reader: &mut Reader, options: &Options) -> u32 {
    let Open { strip, first: behind, .. } = *open;
    let copied = Copied { strip, copy, behind, guarded: is_guarded(options) };
    let kept = !strip.limit_below && copied.keeps_limit(code, reader);
    assert!(kept || strip.limit_below || !is_guarded(options), "the word may be another loop's");
    let padding = match (kept, strip.limit_below) {
        (true, _) => COPY_HEAD_BYTES - KEPT_HEAD_BYTES,
        (_, true) => COPY_HEAD_BYTES - BELOW_HEAD_BYTES,
        _ => 0,
    };
    let least = code.cold.pos() + padding;
    code.cold.bytes.resize(least.next_multiple_of(COLD_ALIGN) as usize, asm::NOP);
    let head = code.cold.pos();
    count_block(code, strip.first, 0);
    let limit = strip.limit();
    if kept {
        asm::cmp(&mut code.cold.bytes, strip.counter, strip.scratch);
    } else if strip.limit_below {
        asm::cmp_reg_mem64(&mut code.cold.bytes, strip.counter, MemOperand::base(RSP, BELOW));
    } else {
        asm::cmp_reg_mem64(&mut code.cold.bytes, strip.counter, word(limit).0);
    }
    let at = asm::jcc32(&mut code.cold.bytes, if limit == Limit::Up { asm::CC_AE } else { asm::CC_BE });
    code.cold.fix(at, FixupTarget::Cold(begin));
    code.recorder.mark(strip.first, DecisionClass::Strip, 2);
    let first = code.cold.pos();
    debug_assert!(options.blocks || first - head + padding == COPY_HEAD_BYTES);
    let mut insn = Instruction::default();
    let exit = FixupTarget::Insn { id: strip.stop, delta: 0 };
    for k in 1..=copy.times {
        count_block(code, strip.first, strip.stop.0 - strip.first.0);
        for id in (strip.first.0..strip.stop.0 - 1).map(InsnId) {
            let (from, access, stop) = copied.of(code, id, reader);
            let at = code.cold.pos();
            code.copy_hot(from..stop);
            code.moved.push((at, code.cold.pos(), id));
            if let Some((class, inserted)) = code.recorder.last(id) {
                let (class, inserted) =
                    if from == access && inserted > 0 { (DecisionClass::Hoisted, 0) } else { (class, inserted) };
                code.recorder.mark(id, class, inserted);
            }
        }
        reader.decode(InsnId(strip.stop.0 - 1), &mut insn);
        // iced numbers the conditions from 1 in the order of their encodings.
        let cc = insn.condition_code() as u8 - 1;
        if k < copy.times {
            let at = asm::jcc32(&mut code.cold.bytes, cc ^ 1);
            code.cold.fix(at, exit);
        } else {
            let at = asm::jcc32(&mut code.cold.bytes, cc);
            code.cold.fix(at, FixupTarget::Cold(head));
            let at = asm::jmp32(&mut code.cold.bytes);
            code.cold.fix(at, exit);
        }
    }
    first
}

/// What a copy has of the hot buffer.
struct Copied<'x> {
    strip: &'x Strip,
    copy: &'x Copy,
    /// From the beginning of the first instruction's new code to the instruction, check included.
    behind: u32,
    /// The instructions have prefixes that the program's have not.
    guarded: bool,
}

impl Copied<'_> {
    /// The part that is copied of an instruction, and where in it the instruction itself begins: from, itself, to.
    fn of(&self, code: &EmittedCode, id: InsnId, reader: &mut Reader) -> (u32, u32, u32) {
        let begin = code.begin.get(id.ix());
        let stop = code.begin.get(id.ix() + 1);
        let access = if self.guarded {
            begin + code.accesses.in_front(id)
        } else {
            stop - reader.decode(id, &mut Instruction::default()).len() as u32
        };
        let begin = begin + if id == self.strip.first { self.behind } else { 0 };
        (if self.copy.elements.contains(&id) { access } else { begin }, access, stop)
    }

    /// Whether the register of the tests, which holds the limit when they are left for the copy, holds it as long as the copy runs: nothing that
    /// stands there writes it, and it is dead at the loop's head.
    fn keeps_limit(&self, code: &EmittedCode, reader: &mut Reader) -> bool {
        let Copied { strip, .. } = *self;
        let mut facts = InstructionInfoFactory::new();
        let mut writes = |bytes: &[u8]| {
            let mut insns = Decoder::new(64, bytes, DecoderOptions::NONE).into_iter();
            insns.any(|insn| written_by(facts.info(&insn)).contains(RegSet(1 << strip.scratch)))
        };
        !strip.spilled
            && (strip.first.0..strip.stop.0 - 1).map(InsnId).all(|id| {
                let (from, _, stop) = self.of(code, id, reader);
                !writes(&code.hot.bytes[from as usize..stop as usize])
            })
    }
}

/// Emits what tests, or acquires, for one iteration only; `rung`: the branch that found the doorbell rung.
fn near(code: &mut EmittedCode, strip: &Strip, rung: Option<usize>, denied: Vec<usize>, body: u32) {
    let s = strip.scratch;
    // Exactly what this iteration touches.
    denied.into_iter().for_each(|at| asm::land32(&mut code.cold.bytes, at));
    let mut missing = Vec::new();
    let apart = |need: &&Range| !strip.needs.iter().any(|other| other != *need && other.covers(need));
    for need in strip.needs.iter().filter(apart) {
        for last in [0, need.hi - need.lo - 1].into_iter().take(if need.hi - need.lo > 1 { 2 } else { 1 }) {
            let out = &mut code.cold.bytes;
            let stream = AccessStream { key: need.key, lo: need.lo, store: need.store, tags: Vec::new() };
            block_of(out, s, &stream, last);
            asm::test8(out, MemOperand::base(s, contract::TAG_TABLE_BASE as i32), bit(need.store));
            missing.push(asm::jcc32(out, asm::CC_NE));
        }
    }
    take_back(&mut code.cold.bytes, strip.limit());
    restore(code, strip);
    go_on(code, strip.first, body);
    missing.into_iter().for_each(|at| asm::land32(&mut code.cold.bytes, at));
    restore(code, strip);
    if let Some(rung) = rung {
        let out = &mut code.cold.bytes;
        let over = asm::jmp32(out);
        asm::land32(out, rung);
        poll(code, strip.first);
        asm::land32(&mut code.cold.bytes, over);
    }
    group_call(code, strip.first, (!strip.spilled).then_some(s), strip.chain);
    take_back(&mut code.cold.bytes, strip.limit());
    go_on(code, strip.first, body);
}

/// Of guarded code: emits what lets the loop run with the tests of its own accesses, for as many iterations as would have been tested at once: to ask
/// before each of them costs more, and what denies one of them often denies more.
fn on_its_own(code: &mut EmittedCode, strip: &Strip, rung: Option<usize>, denied: Vec<usize>, body: u32) {
    denied.into_iter().for_each(|at| asm::land32(&mut code.cold.bytes, at));
    count_block(code, strip.first, 0);
    set_limit(code, strip, strip.iterations);
    go_on(code, strip.first, body);
    let Some(rung) = rung else { return };
    asm::land32(&mut code.cold.bytes, rung);
    poll(code, strip.first);
    take_back(&mut code.cold.bytes, strip.limit());
    go_on(code, strip.first, body);
}

/// Lets the runtime handle messages.
fn poll(code: &mut EmittedCode, id: InsnId) {
    asm::lea(&mut code.cold.bytes, RSP, MemOperand::base(RSP, -RED_ZONE));
    code.stub_gate(contract::GATE_POLL, id, (RED_ZONE, 0));
    asm::lea(&mut code.cold.bytes, RSP, MemOperand::base(RSP, RED_ZONE));
}

fn is_guarded(options: &Options) -> bool {
    options.access == AccessMode::Guard
}

/// Puts the register back, if it was saved.
fn restore(code: &mut EmittedCode, strip: &Strip) {
    if strip.spilled {
        asm::pop(&mut code.cold.bytes, strip.scratch);
        asm::lea(&mut code.cold.bytes, RSP, MemOperand::base(RSP, RED_ZONE));
    }
}

fn bit(store: bool) -> u8 {
    if store { contract::TAG_NO_STORE } else { contract::TAG_NO_LOAD }
}

/// `s` = number of the block `plus` bytes behind a stream's first byte.
fn block_of(out: &mut Vec<u8>, s: u8, stream: &AccessStream, plus: i32) {
    address_of(out, s, stream.key, stream.lo + plus);
    asm::shr(out, s, contract::BLOCK_SHIFT as u8);
}

/// `s` = the address that registers and a displacement make.
fn address_of(out: &mut Vec<u8>, s: u8, key: AddressKey, disp: i32) {
    let known = |r: u8| (r < 16).then_some(r);
    let index = known(key.index).map(|r| (r, key.scale));
    match (MemOperand { base: known(key.base), index, disp }, key.base) {
        (MemOperand { index: None, disp: 0, .. }, base) if base < 16 => asm::mov(out, s, base),
        (address, _) => asm::lea(out, s, address),
    }
}

fn go_on(code: &mut EmittedCode, id: InsnId, body: u32) {
    let at = asm::jmp32(&mut code.cold.bytes);
    code.cold.fix(at, FixupTarget::Insn { id, delta: body });
}
