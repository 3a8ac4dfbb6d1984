//! The part of the contract that `tempest.h` mirrors: the table of the Tempest functions and the structures that they take.
//!
//! Purpose: `rt/client/tempest.c` finds [`TempestApi`] in [`super::BzApi`] and gives each function its name of the specification.
//! Input and output: C types only; addresses as `u64`. Source: Tempest 1.2.1, section 3; Reinhardt 1996, appendix A (A.2.4.4, A.2.6).

/// `TPPI_PAGE_SHIFT`.
pub const PAGE_SHIFT: u32 = 12;
/// `TPPI_PAGE_SIZE`.
pub const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;
/// `TPPI_NUM_PAGE_MODES`.
pub const PAGE_MODES: usize = 64;
/// `TPPI_MAX_AM_BYTES`: a page and 256 bytes of control information.
pub const MAX_MESSAGE_BYTES: usize = PAGE_BYTES as usize + 256;
/// `TPPI_MAX_CHANNEL_BYTES`.
pub const MAX_CHANNEL_BYTES: u64 = 1 << 30;
/// Bytes of a word of a message: C's `int`.
pub const WORD_BYTES: usize = 4;

/// `TPPI_PageInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageInfo {
    pub mode: u32,
    pub home: u32,
    pub usr_ptr: u64,
}

/// Kinds of [`SendItem`].
pub mod item_kind {
    pub const WORD: u32 = 0;
    pub const BLOCK: u32 = 1;
    pub const REGION: u32 = 2;
    pub const FORWARD: u32 = 3;
}

/// One item of a message's body (section 3.3.2).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendItem {
    /// [`item_kind`].
    pub kind: u32,
    /// BLOCK: the tag change.
    pub change: u32,
    /// BLOCK, REGION, FORWARD: bytes; WORD: the value.
    pub len: i32,
    pub _pad: u32,
    /// BLOCK, REGION: address.
    pub addr: u64,
}

/// `TPPI_PageFaultHandlerPtr`.
pub type PageFaultHandler = unsafe extern "C" fn(va: u64, pc: i32, is_write: i32);
/// `TPPI_BlkAccFaultHandlerPtr`.
pub type BlockFaultHandler = unsafe extern "C" fn(va: u64, usr_ptr: u64, home: u32);
/// `TPPI_MessageHandlerPtr`.
pub type MessageHandler = unsafe extern "C" fn(src: u32, size: i32);
/// `TPPI_ChannelHandlerPtr`.
pub type ChannelHandler = unsafe extern "C" fn(node: u32, channel: i32);
/// `TPPI_TimerHandlerPtr`.
pub type TimerHandler = unsafe extern "C" fn(user_ptr: u64);

/// The functions of `tempest.h`; the header documents each. Functions are given as addresses of the program's code, 0 for none. The field
/// order is part of the ABI (append only).
#[repr(C)]
pub struct TempestApi {
    pub bytes: u64,
    /// Makes the user-managed segment; before every other function, by the main thread.
    pub start: extern "C" fn(),
    pub alloc_and_map: extern "C" fn(u64, u32, u32, u32, u64) -> i32,
    pub unmap_and_free: extern "C" fn(u64) -> i32,
    pub remap: extern "C" fn(u64, u64) -> i32,
    pub register_page_fault_handler: extern "C" fn(u64),
    pub get_page_info: extern "C" fn(u64, *mut PageInfo) -> i32,
    pub fault_pc: extern "C" fn() -> u64,
    pub get_blk_acc: extern "C" fn(u64) -> u32,
    pub change_blk_acc: extern "C" fn(u64, i32, u32),
    pub change_blk_acc_and_copy: extern "C" fn(u64, i32, u32, u64),
    pub register_blk_acc_fault_handler: extern "C" fn(u32, u32, i32, u64),
    pub send: extern "C" fn(u32, u64, *const SendItem, u32),
    pub recv_w: extern "C" fn() -> i32,
    pub recv_ba: extern "C" fn(u64, i32, u32),
    pub recv_r: extern "C" fn(u64, i32),
    pub set_channel_src: extern "C" fn(u32, u64) -> i32,
    /// The last argument: whether the source is notified.
    pub set_channel_dst: extern "C" fn(u32, i32, u64, i32, u64, i32) -> i32,
    pub is_channel_estd: extern "C" fn(u32, i32) -> i32,
    pub channel_send: extern "C" fn(u32, i32, u64, i32),
    pub is_channel_ready: extern "C" fn(u32, i32) -> i32,
    /// The last argument: whether the source is notified.
    pub reset_channel: extern "C" fn(u32, i32, i32),
    pub is_channel_reset: extern "C" fn(u32, i32) -> i32,
    pub destroy_channel_src: extern "C" fn(u32, i32),
    pub destroy_channel_dst: extern "C" fn(u32, i32),
    /// The third argument: 0 the source's endpoint, 1 the destination's.
    pub get_channel_user_ptr: extern "C" fn(u32, i32, i32) -> u64,
    pub set_channel_user_ptr: extern "C" fn(u32, i32, i32, u64),
    pub schedule_timer: extern "C" fn(i32, u64, u64),
    pub resume_va: extern "C" fn(u64, i32),
    pub sleep: extern "C" fn(*mut i32),
    pub wakeup: extern "C" fn(*mut i32),
    pub atomic_incr: extern "C" fn(*mut i32),
}
