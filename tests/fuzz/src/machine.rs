//! A process that runs a sequence of instructions from a given state and writes down where it ends.
//!
//! Input: the sequence's bytes and a [`State`]. Output: [`program`], a static ELF file; [`run`], what became of it.
//! The same harness code stands around the sequence in the original and, rewritten, in the output. It also sets access tags of the memory that the
//! sequence works on, and the doorbell: run by itself, on memory of its own that stands where tag table and doorbell are; rewritten, on the real ones. With
//! one node a miss grants everything and changes no tag, so that the slow paths of checks and polls run again and again.
//! Guarded code runs as node 0 of two, of which the other one is never created: memory faults as with several nodes, and this node is the home of
//! all of it, so that each miss is granted at once.
//! A handler of the program's own writes down where an instruction has faulted, and ends the process.

use blizzard::launch::options::LaunchOptions;
use blizzard::launch::region::RegionFile;
use blizzard_contract::{self as contract, BzApi, guard_tags};
use std::fs::File;
use std::io::{Error, Read, Seek, Write};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::process::{Command, ExitStatus, Stdio};

/// Private memory that sequences work on.
pub const PRIVATE: u64 = 0x1000_0000;
/// The same in the segment.
pub const SHARED: u64 = contract::SEGMENT_BASE;
/// The same where the kernel places stacks, libraries and programs: the bit of an address that shared memory never has is set.
pub const HIGH: u64 = 0x5000_0000_0000;
const _: () = assert!(HIGH >> contract::PRIVATE_BIT & 1 == 1);
/// So far behind the private ones nothing is mapped, neither in the original nor in the output.
pub const UNMAPPED: u64 = 0x1000_0000;
/// Bytes of each.
pub const REGION: usize = 16 << 10;
/// Bytes that the process writes down: the private region, its state before, after, and at a signal, its stack; then the shared region and the high one.
pub const IMAGE: usize = 0x28000;
/// Where the stack begins, downwards.
pub const STACK_TOP: u64 = PRIVATE + IMAGE as u64;

const STATE: usize = 0x4000;
const OUT: usize = 0x6000;
/// In either: what `fxrstor64` reads and `fxsave64` writes.
const FLOATS: usize = 0x1000;
/// What the handler was told: the beginning of `siginfo_t`, the registers of `mcontext_t`, and the area that XSAVE wrote.
const SIGNAL: usize = 0x8000;
const SIGNAL_GPRS: usize = SIGNAL + 0x40;
const SIGNAL_AREA: usize = SIGNAL + 0x1000;
/// Behind `SIGNAL`: whether there are tags of guarded code, and those of the shared region at the end.
const GUARDED: usize = 0x280;
const LAST_TAGS: usize = 0x300;
/// `mov edi, SIGNAL+LAST_TAGS`, with which the harness of guarded code begins to copy the tags.
pub const COPIES_TAGS: [u8; 5] = {
    let [a, b, c, d] = (PRIVATE as u32 + (SIGNAL + LAST_TAGS) as u32).to_le_bytes();
    [0xbf, a, b, c, d]
};
const STACK_BOTTOM: usize = 0xa000;
/// The system call, which does nothing, a little in front of the sequence.
pub const MARK: u64 = libc::SYS_getppid as u64;
/// In the state: tags of the shared region as guarded code has them; how the sequence is entered; where the jumps into made code and out of it lead; the code
/// that the process makes.
const GUARD_TAGS: usize = 656;
const ENTRY: usize = 912;
const INTO_MADE: usize = 920;
const OUT_OF_MADE: usize = 928;
const MADE_BYTES: usize = 0x1800;
/// Where the process puts code that the rewriter was not shown.
const MADE: u64 = 0x3000_0000;
const CODE: u64 = 0x40_0000;
const CODE_OFFSET: usize = 0x1000;
/// Processor time after which a process has failed.
const SECONDS: u64 = 5;

/// What the registers and the tags hold before the sequence.
#[derive(Clone, Debug)]
pub struct State {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
    pub gprs: [u64; 16],
    /// Status flags and DF.
    pub flags: u64,
    /// zmm0 to zmm31; ymm0 to ymm15 where the processor has no AVX-512.
    pub vectors: [[u8; 64]; 32],
    pub masks: [u64; 8],
    /// The x87 and MMX registers, their control, status and tags, and MXCSR, as FXSAVE has them; no exception is unmasked.
    pub floats: [u8; 512],
    /// Contents of each region.
    pub memory: Vec<u8>,
    /// Tags of the blocks of the private and of the shared region.
    pub tags: [[u8; REGION / 64]; 2],
    /// Whether the doorbell is set.
    pub doorbell: bool,
    pub entry: Entry,
}

/// How a sequence is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// From code that has touched no shared memory: guarded code is in its plain version.
    Plain,
    /// Behind a load from shared memory, in the same function: guarded code is in its full version.
    Full,
    /// The process copies the sequence to memory of its own, which is no code for the rewriter.
    Made,
}

/// Where a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// As `wait` reports it.
    pub status: String,
    /// What the runtime said when it ended the run.
    pub said: Option<String>,
    image: Vec<u8>,
}

/// What a handler is told of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub number: u32,
    /// si_code.
    pub code: u32,
    /// The processor's exception, and the error code that it had.
    pub exception: u64,
    pub error: u64,
    /// The address of the data, of signals that tell it: the others name the instruction, which stands elsewhere in rewritten code.
    pub address: Option<u64>,
}

/// How the kernel orders general registers: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp.
const AT: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];

/// Bytes of [`End::vectors`] in front of the mask registers.
pub const VECTORS: usize = 32 * 64;

impl End {
    /// Whether the process wrote everything down: at the end of the sequence, or at a fault.
    pub fn is_complete(&self) -> bool {
        self.image.len() == IMAGE + 2 * REGION
    }

    /// The fault that ended the sequence.
    pub fn fault(&self) -> Option<Fault> {
        let number = self.half(SIGNAL);
        let names_data = [libc::SIGSEGV, libc::SIGBUS].contains(&(number as i32));
        (number != 0).then(|| Fault {
            number,
            code: self.half(SIGNAL + 8),
            exception: self.word(SIGNAL_GPRS + 8 * 20),
            error: self.word(SIGNAL_GPRS + 8 * 19),
            address: names_data.then(|| self.word(SIGNAL + 16)),
        })
    }

    fn half(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.image[at..at + 4].try_into().expect("four bytes"))
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.image[at..at + 8].try_into().expect("eight bytes"))
    }

    /// The first block of the shared region that guarded code has changed from `before`, and whose tag has not allowed that.
    pub fn stored_without_leave(&self, before: &[u8]) -> Option<usize> {
        let (tags, shared) = (&self.image[SIGNAL + LAST_TAGS..], &self.image[IMAGE..IMAGE + REGION]);
        let mut blocks = shared.chunks(64).zip(before.chunks(64)).zip(tags);
        blocks.position(|((now, before), tag)| now != before && tag & guard_tags::WRITABLE == 0)
    }

    /// The most important of it, for messages.
    pub fn summary(&self) -> String {
        let End { status, said, image } = self;
        if !self.is_complete() {
            return format!("{status}, {said:?}, {} bytes", image.len());
        }
        let registers: Vec<u64> = (0..16).map(|n| self.gpr(n)).collect();
        format!("{status}, {:?} at {:#x}, {registers:x?}", self.fault().map(|f| f.number), self.interrupted_at())
    }

    /// With some general registers of another one, as a handler has found them.
    #[must_use]
    pub fn with_registers_of(&self, other: &End, numbers: &[usize]) -> End {
        let mut end = self.clone();
        for number in numbers {
            let at = SIGNAL_GPRS + 8 * AT[*number];
            end.image[at..at + 8].copy_from_slice(&other.image[at..at + 8]);
        }
        end
    }

    /// Where the instruction stands that the signal has interrupted.
    pub fn interrupted_at(&self) -> u64 {
        self.word(SIGNAL_GPRS + 8 * 16)
    }

    /// Value of a general register, by its number.
    pub fn gpr(&self, number: usize) -> u64 {
        match self.fault() {
            Some(_) => self.word(SIGNAL_GPRS + 8 * AT[number]),
            None => self.word(OUT + 8 * number),
        }
    }

    /// The flags register.
    pub fn flags(&self) -> u64 {
        self.word(if self.fault().is_some() { SIGNAL_GPRS + 8 * 17 } else { OUT + 128 })
    }

    /// Vector registers, 64 bytes each, and mask registers; zeros where the processor has none.
    pub fn vectors(&self) -> Vec<u8> {
        if self.fault().is_none() {
            return self.image[OUT + 1024..OUT + 1024 + VECTORS + 64].to_vec();
        }
        let mut out = vec![0; VECTORS + 64];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        for n in 0..16 {
            put(64 * n, &self.floats()[160 + 16 * n..][..16]);
            put(64 * n + 16, &self.component(2, 16 * n, 16));
            if has_512() {
                put(64 * n + 32, &self.component(6, 32 * n, 32));
                put(1024 + 64 * n, &self.component(7, 64 * n, 64));
            }
        }
        if has_512() {
            put(VECTORS, &self.component(5, 0, 64));
        }
        out
    }

    /// Part of a component of the area that XSAVE wrote (SDM volume 1, 13.4): zeros where it was in its initial state.
    fn component(&self, number: u32, from: usize, bytes: usize) -> Vec<u8> {
        let begin = std::arch::x86_64::__cpuid_count(0xd, number).ebx as usize;
        if self.word(SIGNAL_AREA + 512) >> number & 1 == 0 {
            return vec![0; bytes];
        }
        self.image[SIGNAL_AREA + begin + from..][..bytes].to_vec()
    }

    /// The 512 bytes of FXSAVE.
    pub fn floats(&self) -> &[u8] {
        &self.image[if self.fault().is_some() { SIGNAL_AREA } else { OUT + FLOATS }..][..512]
    }

    /// Private region, shared and high region, and the stack from so many bytes below rsp upwards.
    pub fn memory(&self, below: usize) -> [&[u8]; 3] {
        self.memory_from(self.gpr(4).wrapping_sub(below as u64))
    }

    /// The same with the stack from an address upwards.
    pub fn memory_from(&self, stack: u64) -> [&[u8]; 3] {
        let stack = (stack.wrapping_sub(PRIVATE) as usize).clamp(STACK_BOTTOM - 128, IMAGE);
        [&self.image[..REGION], &self.image[IMAGE..], &self.image[stack..IMAGE]]
    }
}

/// Whether the harness loads and stores zmm and mask registers, and so whether sequences may use them.
pub fn has_512() -> bool {
    std::is_x86_feature_detected!("avx512bw")
}

// rax, rcx, ... are stored by name because their numbers are the encoding's, not the alphabet's.
std::arch::global_asm!(
    ".set STATE, 0x10004000",
    ".set OUT, 0x10006000",
    ".set SIGNAL, 0x10008000",
    // mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0); what is there already stays.
    ".macro fuzz_map at length",
    "  mov eax, 9",
    "  movabs rdi, \\at",
    "  mov esi, \\length",
    "  mov edx, 3",
    "  mov r10d, 0x100022",
    "  mov r8, -1",
    "  xor r9d, r9d",
    "  syscall",
    ".endm",
    // mprotect(at, length, PROT_READ | PROT_WRITE): the runtime's own tag table cannot be changed here.
    ".macro fuzz_writable at length",
    "  mov eax, 10",
    "  movabs rdi, \\at",
    "  mov esi, \\length",
    "  mov edx, 3",
    "  syscall",
    ".endm",
    ".macro fuzz_copy from to bytes",
    "  mov esi, \\from",
    "  movabs rdi, \\to",
    "  mov ecx, \\bytes",
    "  rep movsb",
    ".endm",
    // What a handler finds is copied from where the kernel has put it: in front of the program's stack.
    ".macro fuzz_keep from to bytes",
    "  lea rsi, \\from",
    "  mov edi, \\to",
    "  mov ecx, \\bytes",
    "  rep movsb",
    ".endm",
    ".macro fuzz_begin",
    "  mov rbx, rsp",
    "  jmp 3f",
    // rsi: siginfo_t, rdx: ucontext_t.
    "2: mov rbx, rdx",
    "  fuzz_keep [rsi], SIGNAL, 32",
    "  fuzz_keep [rbx+40], SIGNAL+64, 184",
    "  mov rsi, qword ptr [rbx+224]",
    "  fuzz_keep [rsi], SIGNAL+4096, 3072",
    "  fuzz_end 1",
    // A sigaction: handler, SA_SIGINFO | SA_RESTORER, a restorer that is not needed, no mask. Not on the stack: where a function makes
    // addresses of it, checks keep nothing in the red zone.
    "3: lea rax, [rip + 2b]",
    "  mov qword ptr [SIGNAL+512], rax",
    "  mov qword ptr [SIGNAL+520], 0x4000004",
    "  mov qword ptr [SIGNAL+528], rax",
    ".irp n,4,7,8,10,11",
    "  mov eax, 13",
    "  mov edi, \\n",
    "  mov esi, SIGNAL+512",
    "  xor edx, edx",
    "  mov r10d, 8",
    "  syscall",
    ".endr",
    "  mov rcx, qword ptr [rbx]",
    "  lea rbx, [rbx+8*rcx+16]",
    "4: add rbx, 8",
    "  cmp qword ptr [rbx-8], 0",
    "  jne 4b",
    // Behind the environment: is there a runtime, of several nodes?
    "5: mov rax, qword ptr [rbx]",
    "  test rax, rax",
    "  jz 6f",
    "  add rbx, 16",
    "  cmp rax, {aux}",
    "  jne 5b",
    "  mov rbx, qword ptr [rbx-8]",
    "  call [rbx+{nodes}]",
    "  cmp eax, 1",
    "  je 6f",
    "  mov edi, 0x4000",
    "  call [rbx+{alloc}]",
    "  movabs rcx, 0x200000000000",
    "  cmp rax, rcx",
    "  je 7f",
    "  ud2",
    // By their aliases no block is granted.
    "7: fuzz_copy 0x10000000, 0x200000000000+{distance}, 0x4000",
    "  fuzz_copy STATE+{guard_tags}, 0x807fff8000+{distance}, 256",
    "  mov dword ptr [SIGNAL+{guarded}], 1",
    "  jmp 8f",
    "6: fuzz_map 0x803f8000, 0x1000",
    "  fuzz_map 0x807fff8000, 0x1000",
    "  fuzz_writable 0x803f8000, 0x1000",
    "  fuzz_writable 0x807fff8000, 0x1000",
    "  fuzz_map 0x7fff0000, 0x1000",
    "  fuzz_map 0x200000000000, 0x4000",
    "  fuzz_copy 0x10000000, 0x200000000000, 0x4000",
    "  fuzz_copy STATE+144, 0x803f8000, 256",
    "  fuzz_copy STATE+400, 0x807fff8000, 256",
    "8: fuzz_map 0x500000000000, 0x4000",
    "  fuzz_copy 0x10000000, 0x500000000000, 0x4000",
    "  cmp dword ptr [STATE+{entry}], {made}",
    "  jne 9f",
    "  fuzz_map 0x30000000, 0x1000",
    "  fuzz_copy STATE+{made_bytes}, 0x30000000, 0x800",
    "  mov eax, 10",
    "  mov edi, 0x30000000",
    "  mov esi, 0x1000",
    "  mov edx, 5",
    "  syscall",
    // From here on whoever traces the process steps (src/steps.rs).
    "9: mov eax, {mark}",
    "  syscall",
    "  cmp dword ptr [STATE+{entry}], {full}",
    "  jne 9f",
    "  movabs rax, 0x200000003fc0",
    "  mov rax, qword ptr [rax]",
    "9:",
    "  mov eax, dword ptr [STATE+136]",
    // Not by a constant address: the audit allows that to checks only.
    "  mov ecx, 0x7fff0000",
    "  mov dword ptr [rcx], eax",
    "  fxrstor64 [STATE+4096]",
    ".endm",
    ".macro fuzz_load",
    "  mov esp, STATE+128",
    "  popfq",
    "  mov rax, qword ptr [STATE]",
    "  mov rcx, qword ptr [STATE+8]",
    "  mov rdx, qword ptr [STATE+16]",
    "  mov rbx, qword ptr [STATE+24]",
    "  mov rsp, qword ptr [STATE+32]",
    "  mov rbp, qword ptr [STATE+40]",
    "  mov rsi, qword ptr [STATE+48]",
    "  mov rdi, qword ptr [STATE+56]",
    "  mov r8, qword ptr [STATE+64]",
    "  mov r9, qword ptr [STATE+72]",
    "  mov r10, qword ptr [STATE+80]",
    "  mov r11, qword ptr [STATE+88]",
    "  mov r12, qword ptr [STATE+96]",
    "  mov r13, qword ptr [STATE+104]",
    "  mov r14, qword ptr [STATE+112]",
    "  mov r15, qword ptr [STATE+120]",
    ".endm",
    ".macro fuzz_store",
    "  mov qword ptr [OUT], rax",
    "  mov qword ptr [OUT+8], rcx",
    "  mov qword ptr [OUT+16], rdx",
    "  mov qword ptr [OUT+24], rbx",
    "  mov qword ptr [OUT+32], rsp",
    "  mov qword ptr [OUT+40], rbp",
    "  mov qword ptr [OUT+48], rsi",
    "  mov qword ptr [OUT+56], rdi",
    "  mov qword ptr [OUT+64], r8",
    "  mov qword ptr [OUT+72], r9",
    "  mov qword ptr [OUT+80], r10",
    "  mov qword ptr [OUT+88], r11",
    "  mov qword ptr [OUT+96], r12",
    "  mov qword ptr [OUT+104], r13",
    "  mov qword ptr [OUT+112], r14",
    "  mov qword ptr [OUT+120], r15",
    // Below the red zone, so that a signal may come in at any time.
    "  lea rsp, [rsp-128]",
    "  pushfq",
    "  pop qword ptr [OUT+128]",
    "  cld",
    "  fxsave64 [OUT+4096]",
    ".endm",
    ".macro fuzz_end code",
    // The tags, before the kernel is given the blocks.
    "  cmp dword ptr [SIGNAL+{guarded}], 0",
    "  je 1f",
    "  mov edi, SIGNAL+{last_tags}",
    "  movabs rsi, 0x807fff8000+{distance}",
    "  mov ecx, 256",
    "  rep movsb",
    "1:",
    "  mov eax, 1",
    "  mov edi, 1",
    "  mov esi, 0x10000000",
    "  mov edx, 0x28000",
    "  syscall",
    "  mov eax, 1",
    "  mov edi, 1",
    "  movabs rsi, 0x200000000000",
    "  mov edx, 0x4000",
    "  syscall",
    "  mov eax, 1",
    "  mov edi, 1",
    "  movabs rsi, 0x500000000000",
    "  mov edx, 0x4000",
    "  syscall",
    "  mov eax, 231",
    "  mov edi, \\code",
    "  syscall",
    "  ud2",
    ".endm",
    ".pushsection .rodata.blizzard_fuzz, \"a\"",
    "blizzard_fuzz_begin_512:",
    "fuzz_begin",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "vmovups zmm\\n, zmmword ptr [STATE+1024+64*\\n]",
    ".endr",
    ".irp n,0,1,2,3,4,5,6,7",
    "kmovq k\\n, qword ptr [STATE+3072+8*\\n]",
    ".endr",
    "fuzz_load",
    "blizzard_fuzz_end_512:",
    "fuzz_store",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "vmovups zmmword ptr [OUT+1024+64*\\n], zmm\\n",
    ".endr",
    ".irp n,0,1,2,3,4,5,6,7",
    "kmovq qword ptr [OUT+3072+8*\\n], k\\n",
    ".endr",
    "fuzz_end 0",
    "blizzard_fuzz_begin_256:",
    "fuzz_begin",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "vmovups ymm\\n, ymmword ptr [STATE+1024+64*\\n]",
    ".endr",
    "fuzz_load",
    "blizzard_fuzz_end_256:",
    "fuzz_store",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "vmovups ymmword ptr [OUT+1024+64*\\n], ymm\\n",
    ".endr",
    "fuzz_end 0",
    "blizzard_fuzz_last:",
    ".popsection",
    aux = const contract::AT_BLIZZARD,
    nodes = const offset_of!(BzApi, nodes),
    alloc = const offset_of!(BzApi, alloc),
    distance = const contract::ALIAS_DISTANCE,
    guard_tags = const GUARD_TAGS,
    entry = const ENTRY,
    made = const Entry::Made as u32,
    full = const Entry::Full as u32,
    made_bytes = const MADE_BYTES,
    mark = const MARK,
    guarded = const GUARDED,
    last_tags = const LAST_TAGS,
);

unsafe extern "C" {
    static blizzard_fuzz_begin_512: u8;
    static blizzard_fuzz_end_512: u8;
    static blizzard_fuzz_begin_256: u8;
    static blizzard_fuzz_end_256: u8;
    static blizzard_fuzz_last: u8;
}

/// The code in front of the sequence and the code behind it.
fn harness() -> (&'static [u8], &'static [u8]) {
    let between = |from: *const u8, to: *const u8| {
        // SAFETY: both are labels of one read-only section, in this order.
        unsafe { std::slice::from_raw_parts(from, to.addr() - from.addr()) }
    };
    let (b512, e512) = (&raw const blizzard_fuzz_begin_512, &raw const blizzard_fuzz_end_512);
    let (b256, e256) = (&raw const blizzard_fuzz_begin_256, &raw const blizzard_fuzz_end_256);
    if has_512() {
        (between(b512, e512), between(e512, b256))
    } else {
        (between(b256, e256), between(e256, &raw const blizzard_fuzz_last))
    }
}

impl State {
    fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; 0x2000];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        for (n, value) in self.gprs.iter().enumerate() {
            put(8 * n, &value.to_le_bytes());
        }
        put(128, &self.flags.to_le_bytes());
        put(136, &u64::from(self.doorbell).to_le_bytes());
        put(144, &self.tags[0]);
        put(400, &self.tags[1]);
        put(GUARD_TAGS, &guarded(&self.tags[1]));
        put(ENTRY, &(self.entry as u32).to_le_bytes());
        for (n, vector) in self.vectors.iter().enumerate() {
            put(1024 + 64 * n, vector);
        }
        for (n, mask) in self.masks.iter().enumerate() {
            put(3072 + 8 * n, &mask.to_le_bytes());
        }
        put(FLOATS, &self.floats);
        out
    }
}

/// The tags of a region as guarded code has them. What a home has not lent to anybody is Writable, or nobody has used it yet.
fn guarded(of_tests: &[u8; REGION / 64]) -> [u8; REGION / 64] {
    use guard_tags as tags;
    let own = of_tests.map(|tag| if tag == 0 { tags::WRITABLE } else { tags::INVALID });
    std::array::from_fn(|n| {
        // Nobody may use what is behind the region.
        let next = own.get(n + 1).copied().unwrap_or(tags::INVALID);
        let both = own[n] == tags::WRITABLE && next == tags::WRITABLE;
        own[n] | if both { tags::BOTH_READABLE | tags::BOTH_WRITABLE } else { 0 }
    })
}

/// Where the code of [`program`] may lie.
pub fn code() -> std::ops::Range<u64> {
    CODE..PRIVATE
}

/// `jmp qword ptr [at]`
fn jump_through(at: u64) -> Vec<u8> {
    [&[0xff, 0x24, 0x25][..], &(at as u32).to_le_bytes()].concat()
}

/// Address of the sequence's first byte in [`program`].
pub fn sequence_at(entry: Entry) -> u64 {
    if entry == Entry::Made { MADE } else { CODE + (CODE_OFFSET + harness().0.len()) as u64 }
}

/// A static program that executes `sequence` from `state`.
pub fn program(sequence: &[u8], state: &State) -> Vec<u8> {
    let (begin, end) = harness();
    let mut data = state.memory.clone();
    data.resize(STATE, 0);
    data.extend(state.bytes());
    let mut put = |at: usize, bytes: &[u8]| data[STATE + at..][..bytes.len()].copy_from_slice(bytes);
    let in_state = |at: usize| PRIVATE + (STATE + at) as u64;
    let into = jump_through(in_state(INTO_MADE));
    let code = match state.entry {
        Entry::Plain | Entry::Full => [begin, sequence, end].concat(),
        Entry::Made => {
            put(MADE_BYTES, &[sequence, &jump_through(in_state(OUT_OF_MADE))].concat());
            put(INTO_MADE, &MADE.to_le_bytes());
            put(OUT_OF_MADE, &(CODE + (CODE_OFFSET + begin.len() + into.len()) as u64).to_le_bytes());
            [begin, &into, end].concat()
        }
    };
    let names = b"\0.text\0.data\0.shstrtab\0";
    let data_offset = (CODE_OFFSET + code.len()).next_multiple_of(0x1000);
    let names_offset = data_offset + data.len();
    let sections_offset = (names_offset + names.len()).next_multiple_of(8);

    let mut out = Elf(Vec::with_capacity(sections_offset + 4 * 64));
    out.0.extend(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    out.halves(&[2, 62]).words(&[1]); // ET_EXEC, EM_X86_64
    out.longs(&[CODE + CODE_OFFSET as u64, 64, sections_offset as u64]);
    out.words(&[0]).halves(&[64, 56, 3, 64, 4, 3]);
    let segment = |out: &mut Elf, kind: u32, flags: u32, offset: usize, at: u64, file: usize, memory: usize| {
        out.words(&[kind, flags]).longs(&[offset as u64, at, at, file as u64, memory as u64, 0x1000]);
    };
    segment(&mut out, 1, 5, CODE_OFFSET, CODE + CODE_OFFSET as u64, code.len(), code.len());
    segment(&mut out, 1, 6, data_offset, PRIVATE, data.len(), IMAGE);
    segment(&mut out, 0x6474_e551, 6, 0, 0, 0, 0); // PT_GNU_STACK
    out.0.resize(CODE_OFFSET, 0);
    out.0.extend(&code);
    out.0.resize(data_offset, 0);
    out.0.extend(&data);
    out.0.extend(names);
    out.0.resize(sections_offset, 0);
    let section = |out: &mut Elf, name: u32, kind: u32, flags: u64, at: u64, offset: usize, bytes: usize| {
        out.words(&[name, kind]).longs(&[flags, at, offset as u64, bytes as u64]).words(&[0, 0]).longs(&[16, 0]);
    };
    section(&mut out, 0, 0, 0, 0, 0, 0);
    section(&mut out, 1, 1, 6, CODE + CODE_OFFSET as u64, CODE_OFFSET, code.len());
    section(&mut out, 7, 1, 3, PRIVATE, data_offset, data.len());
    section(&mut out, 13, 3, 0, 0, names_offset, names.len());
    out.0
}

/// A file being written, little-endian.
struct Elf(Vec<u8>);

impl Elf {
    fn halves(&mut self, values: &[u16]) -> &mut Elf {
        self.0.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        self
    }

    fn words(&mut self, values: &[u32]) -> &mut Elf {
        self.0.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        self
    }

    fn longs(&mut self, values: &[u64]) -> &mut Elf {
        self.0.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        self
    }
}

/// A process that is to be started, and what it leaves behind.
pub struct Prepared {
    pub command: Command,
    out: File,
    region: Option<RegionFile>,
    _exe: File,
}

impl Prepared {
    /// For a program that [`program`] made, or its rewritten form; `guarded`: which is guarded code.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(elf: &[u8], guarded: bool) -> std::io::Result<Prepared> {
        let file = |name: &str| rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).map(File::from);
        let mut exe = file("sequence")?;
        exe.write_all(elf)?;
        let out = file("image")?;
        let mut command = Command::new(format!("/proc/self/fd/{}", exe.as_raw_fd()));
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(Stdio::null()).env_clear();
        let region = if guarded { Some(region()?) } else { None };
        if let Some(region) = &region {
            command.env(contract::BOOT_ENV, format!("fd={},node=0", region.fd()));
        }
        Ok(Prepared { command, out, region, _exe: exe })
    }

    /// Behind its end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn end(mut self, status: ExitStatus) -> std::io::Result<End> {
        let mut image = Vec::new();
        self.out.rewind()?;
        self.out.read_to_end(&mut image)?;
        let said = self.region.and_then(|region| region.report(0).message);
        Ok(End { status: status.to_string(), said, image })
    }
}

/// Runs such a program.
///
/// # Errors
/// The kernel's.
pub fn run(elf: &[u8], guarded: bool) -> std::io::Result<End> {
    let mut prepared = Prepared::new(elf, guarded)?;
    let mut child = prepared.command.spawn()?;
    let limit = rustix::process::Rlimit { current: Some(SECONDS), maximum: Some(SECONDS) };
    let pid = rustix::process::Pid::from_child(&child);
    // One that has ended already needs no limit.
    let _ = rustix::process::prlimit(Some(pid), rustix::process::Resource::Cpu, limit);
    let status = child.wait()?;
    prepared.end(status)
}

/// The memory of a run of two nodes, of which node 0 is to create the other. Whoever this process starts inherits it.
fn region() -> std::io::Result<RegionFile> {
    let options = LaunchOptions { nodes: 2, forks: true, ..LaunchOptions::default() };
    let region = RegionFile::create(&options).map_err(|e| Error::other(e.what))?;
    rustix::io::fcntl_setfd(region.as_fd(), rustix::io::FdFlags::empty())?;
    Ok(region)
}
