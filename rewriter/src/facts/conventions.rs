//! Functions that keep more than the ABI asks for, and returns that lead elsewhere than to the caller.
//!
//! Purpose: liveness assumes that whoever enters a function from outside the module relies on the ABI. Some code relies
//! on more. Input: the graph and the decoded instructions. Output: the blocks where [`crate::facts::liveness`] must assume more.
//!
//! * *TLS descriptor resolvers* (the dynamic loader's): entered by `call [rax]` with their argument in rax, they preserve every other register
//!   (psABI, TLS descriptors). A compiled function never reads memory through rax before it has written rax: at its entry rax
//!   holds at most a count of vector registers. So a root that does is taken for one of these, and must preserve everything.
//! * *Context switches* (`setcontext`): once rsp has been loaded from memory, a return leads to no caller of this function, and
//!   whatever the registers hold may be arguments of a new function.
//! * *Hand-written code that code of another convention enters* ([`crate::facts::handwritten`]).

use crate::base::addresses::Vaddr;
use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::decode::regs::RegSet;
use crate::facts::callees::{self, Callees};
use crate::facts::handwritten;
use crate::facts::kinds::Facts;
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::read::image::Image;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// What [`find`] found.
#[derive(Debug, Default)]
pub struct Conventions {
    /// Entries of functions that must preserve all general registers.
    pub preserve_all: Vec<BlockId>,
    /// Blocks that end in a return to a context of its own, or to code of a convention of its own.
    pub switched: Vec<BlockId>,
    /// Indirect calls and jumps that may know more of their callees than the ABI.
    pub callees: Callees,
}

/// Looks at all roots and at the instructions that [`crate::facts::effects::switches_stack`] knows. `frames`: where functions begin and end.
pub fn find(image: &Image, insns: &Insns, cfg: &Cfg, facts: &Facts, frames: &[(Vaddr, Vaddr)]) -> Conventions {
    let mut found = Conventions {
        callees: callees::find(image, insns, cfg, facts),
        switched: handwritten::returns(image, insns, cfg, facts, frames),
        ..Conventions::default()
    };
    for b in cfg.ids().filter(|b| cfg.root[b.ix()]) {
        let block = &cfg.blocks[b.ix()];
        for i in block.first.0..block.stop.0 {
            let id = InsnId(i);
            let e = facts.effects(id);
            if e.reads.meets(RegSet::RAX) && addressed_by_rax(&insns.decode(image, id)) {
                found.preserve_all.push(b);
                break;
            }
            if e.kills.meets(RegSet::RAX) {
                break;
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    let mut work: Vec<BlockId> = facts.switches.iter().map(|&id| cfg.block_of(id)).collect();
    while let Some(b) = work.pop() {
        if seen.insert(b) {
            if cfg.blocks[b.ix()].end() == End::Ret {
                found.switched.push(b);
            }
            work.extend(cfg.succ(b));
        }
    }
    found
}

fn addressed_by_rax(insn: &Instruction) -> bool {
    let memory = (0..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::Memory);
    memory
        && !matches!(insn.mnemonic(), Mnemonic::Lea | Mnemonic::Nop)
        && (insn.memory_base() == Register::RAX || insn.memory_index() == Register::RAX)
}
