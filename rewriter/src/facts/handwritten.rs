//! Functions that code of another convention enters: generated code, such as that of a Scheme compiler which calls into its runtime.
//!
//! Purpose: liveness assumes that whoever enters a function through a pointer relies on the ABI. The compiled code of MIT Scheme keeps its free pointer and
//! its registers' address in rdi and rsi over calls of hooks in the runtime, which are written by hand. Input: the graph, the decoded instructions, and
//! where frames say that functions are. Output: blocks that end in returns behind which everything is live.
//!
//! Compilers describe each function in a frame. What lies between two functions of a module that has frames, and is in none itself, was written by hand; one
//! stretch of it follows one convention. The ABI leaves nothing of interest in rbx, rbp and r12 to r15 at a function's entry, so a function that
//! uses one of them at once, other than to save it, shows that the stretch follows another one. Finding too many is safe. Source: psABI figure 3.4.

use crate::base::addresses::Vaddr;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;
use crate::decode::regs::RegSet;
use crate::facts::kinds::Facts;
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::read::image::Image;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// Returns of code without frames that follows another convention, ascending. `frames`: where functions begin and end.
pub fn returns(image: &Image, insns: &Insns, cfg: &Cfg, facts: &Facts, frames: &[(Vaddr, Vaddr)]) -> Vec<BlockId> {
    let mut framed = vec![false; cfg.blocks.len()];
    for &(start, stop) in frames {
        cfg.blocks_of(insns.main_range(start, stop)).for_each(|b| framed[b.ix()] = true);
    }
    let mut found = Vec::new();
    if framed.iter().filter(|f| **f).count() * 2 < framed.len() {
        // Compiled without frames.
        return found;
    }
    let mut ids = cfg.ids().peekable();
    while let Some(first) = ids.next() {
        if framed[first.ix()] {
            continue;
        }
        let mut stop = first.0 + 1;
        while ids.next_if(|b| !framed[b.ix()]).is_some() {
            stop += 1;
        }
        let stretch = (first.0..stop).map(BlockId);
        if stretch.clone().any(|b| cfg.root[b.ix()] && is_given_more(image, insns, cfg, facts, b)) {
            found.extend(stretch.filter(|b| cfg.blocks[b.ix()].end() == End::Ret));
        }
    }
    found
}

/// Whether the first instructions of a function use what a register held that the ABI makes it preserve.
fn is_given_more(image: &Image, insns: &Insns, cfg: &Cfg, facts: &Facts, entry: BlockId) -> bool {
    let block = &cfg.blocks[entry.ix()];
    let mut callers = RegSet::CALLEE_SAVED.without(RegSet::RSP);
    for id in (block.first.0..block.stop.0).map(InsnId) {
        let e = facts.effects(id);
        let uses = insns.flow(id) == Flow::Next && e.reads.meets(callers);
        if uses && !saves(&insns.decode(image, id), callers) {
            return true;
        }
        callers = callers.without(e.kills);
    }
    false
}

/// Whether an instruction that reads some of `callers` only puts it elsewhere.
fn saves(insn: &Instruction, callers: RegSet) -> bool {
    let addressed = |r: Register| r != Register::None && callers.meets(RegSet::of(r));
    match insn.mnemonic() {
        Mnemonic::Push | Mnemonic::Leave | Mnemonic::Enter => insn.op0_kind() != OpKind::Memory,
        Mnemonic::Mov | Mnemonic::Movq => !addressed(insn.memory_base()) && !addressed(insn.memory_index()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::analyse;
    use crate::tests::passes::assembled;

    /// How many returns of hand-written code between two functions with frames keep everything.
    fn found(hook: &str) -> usize {
        let function = |name: &str| {
            let body = "test edi, edi\n jz 1f\n nop\n1: test esi, esi\n jz 1f\n nop\n1: ret";
            format!(
                "{name}: .cfi_startproc\n {body}\n .cfi_endproc\n .type {name}, @function\n .size {name}, . - {name}\n"
            )
        };
        let text = format!(
            ".intel_syntax noprefix
.globl _start, a, b, hook, other
_start: .cfi_startproc
 jmp _start
 .cfi_endproc
{}
.type hook, @function
hook: {hook}
 ret
.size hook, . - hook
.type other, @function
other: mov rax, [rsi]
 ret
.size other, . - other
{}
",
            function("a"),
            function("b"),
        );
        let file = assembled(&text);
        let a = analyse(&file, "p").unwrap();
        super::returns(&a.image, &a.insns, &a.cfg, &a.facts, &a.frames).len()
    }

    #[test]
    fn what_is_given_more_than_the_abi_says_gives_as_much_back() {
        for uses in ["mov rcx, rbx\n and rcx, rbp", "mov rax, [r12+8]", "add rbx, 8", "lea rax, [rbp+rcx]"] {
            assert_eq!(found(uses), 2, "{uses}");
        }
        for own in [
            "mov eax, edi",
            "push rbx\n mov ebx, edi\n add ebx, 1\n pop rbx",
            "mov [rdi], rbx",
            "xor ebp, ebp",
            "mov rax, rbp",
        ] {
            assert_eq!(found(own), 0, "{own}");
        }
        assert_eq!(found(".cfi_startproc\n add rbx, 8\n .cfi_endproc"), 0);
    }
}
