//! The part of UCX's interface that is used, as `ucp/api/ucp.h` of version 1.13 has it.
//!
//! Purpose: types, constants and functions for [`crate::ucx::worker`]. Copied by hand from the header; `tests/layout.rs` compares sizes, offsets and values with
//! the header of the machine, where there is one. Fields that are not used are kept as room, so that a structure is as large as the library expects.
//! UCX promises that later versions understand programs of this one: each structure says by `field_mask` which of its fields are set.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// The version of the interface that is asked for.
pub const API_MAJOR: c_uint = 1;
pub const API_MINOR: c_uint = 13;

/// `ucs_status_t`: 0, or an error, which is negative. 1: not over yet.
pub type Status = c_int;
pub const OK: Status = 0;
pub const IN_PROGRESS: Status = 1;
pub const ERR_BUSY: Status = -15;
/// Pointers from this value on, as unsigned numbers, are statuses (`UCS_PTR_IS_ERR`).
pub const ERR_LAST: isize = -100;

/// Handles.
pub type UcpContext = *mut c_void;
pub type UcpWorker = *mut c_void;
pub type Endpoint = *mut c_void;
pub type Config = *mut c_void;
/// Where a worker can be reached; opaque bytes.
pub type Address = *mut c_void;

pub const PARAM_FIELD_FEATURES: u64 = 1 << 0;
pub const PARAM_FIELD_ESTIMATED_NUM_EPS: u64 = 1 << 6;
pub const FEATURE_WAKEUP: u64 = 1 << 4;
pub const FEATURE_AM: u64 = 1 << 6;

/// `ucp_params_t`
#[repr(C)]
pub struct Params {
    pub field_mask: u64,
    pub features: u64,
    pub request_size: usize,
    pub request_init: *mut c_void,
    pub request_cleanup: *mut c_void,
    pub tag_sender_mask: u64,
    pub mt_workers_shared: c_int,
    pub estimated_num_eps: usize,
    pub estimated_num_ppn: usize,
    pub name: *const c_char,
}

pub const WORKER_PARAM_FIELD_THREAD_MODE: u64 = 1 << 0;
pub const THREAD_MODE_SINGLE: c_uint = 0;

/// `ucp_worker_params_t`
#[repr(C)]
pub struct WorkerParams {
    pub field_mask: u64,
    pub thread_mode: c_uint,
    pub cpu_mask: [u64; 16],
    pub events: c_uint,
    pub user_data: *mut c_void,
    pub event_fd: c_int,
    pub flags: u64,
    pub name: *const c_char,
    pub am_alignment: usize,
    pub client_id: u64,
}

pub const EP_PARAM_FIELD_REMOTE_ADDRESS: u64 = 1 << 0;
pub const EP_PARAM_FIELD_ERR_HANDLING_MODE: u64 = 1 << 1;
pub const EP_PARAM_FIELD_ERR_HANDLER: u64 = 1 << 2;
pub const ERR_HANDLING_MODE_PEER: c_uint = 1;

/// `ucp_err_handler_t`
#[repr(C)]
pub struct ErrorHandler {
    pub callback: Option<unsafe extern "C" fn(argument: *mut c_void, endpoint: Endpoint, status: Status)>,
    pub argument: *mut c_void,
}

/// `ucp_ep_params_t`
#[repr(C)]
pub struct EndpointParams {
    pub field_mask: u64,
    pub address: *const c_void,
    pub err_mode: c_uint,
    pub err_handler: ErrorHandler,
    pub user_data: *mut c_void,
    pub flags: c_uint,
    /// `sockaddr`, `conn_request`, `name`, `local_sockaddr`.
    pub unused: [u64; 6],
}

pub const AM_HANDLER_PARAM_FIELD_ID: u64 = 1 << 0;
pub const AM_HANDLER_PARAM_FIELD_FLAGS: u64 = 1 << 1;
pub const AM_HANDLER_PARAM_FIELD_CB: u64 = 1 << 2;
pub const AM_HANDLER_PARAM_FIELD_ARG: u64 = 1 << 3;
/// The callback gets whole messages.
pub const AM_FLAG_WHOLE_MSG: u32 = 1 << 0;
/// The data are not there: the sender offers them (`UCP_AM_RECV_ATTR_FLAG_RNDV`), and they are fetched by `am_receive_data`.
pub const AM_RECV_ATTR_FLAG_RNDV: u64 = 1 << 17;

/// `ucp_am_recv_param_t`
#[repr(C)]
pub struct AmReceived {
    pub recv_attr: u64,
    pub reply_ep: Endpoint,
}

/// `ucp_am_recv_callback_t`
pub type AmCallback = unsafe extern "C" fn(
    argument: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const AmReceived,
) -> Status;

/// `ucp_am_handler_param_t`
#[repr(C)]
pub struct AmHandlerParams {
    pub field_mask: u64,
    pub id: c_uint,
    pub flags: u32,
    pub callback: Option<AmCallback>,
    pub argument: *mut c_void,
}

pub const OP_ATTR_FIELD_FLAGS: u32 = 1 << 4;
/// The data travel with the message.
pub const AM_SEND_FLAG_EAGER: u32 = 1 << 1;
pub const EP_CLOSE_FLAG_FORCE: u32 = 1 << 0;

/// `ucp_request_param_t`
#[repr(C)]
pub struct RequestParams {
    pub op_attr_mask: u32,
    pub flags: u32,
    pub request: *mut c_void,
    pub callback: *mut c_void,
    pub datatype: u64,
    pub user_data: *mut c_void,
    pub reply_buffer: *mut c_void,
    pub memory_type: c_uint,
    pub recv_info: *mut c_void,
    pub memh: *mut c_void,
}

macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are used.
        #[derive(Clone, Copy)]
        pub struct Functions {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Looks all of them up.
            ///
            /// # Errors
            /// The name of one that is not there.
            ///
            /// # Safety
            /// `find` gives the addresses of UCX's functions of these names, which stay where they are.
            pub unsafe fn find(find: impl Fn(&'static str) -> Option<*mut c_void>) -> Result<Functions, &'static str> {
                Ok(Functions {
                    // SAFETY: the function has the type that the header gives to that name.
                    $($field: unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(find($name).ok_or($name)?) },)*
                })
            }
        }
    };
}

functions! {
    get_version = "ucp_get_version": fn(*mut c_uint, *mut c_uint, *mut c_uint);
    config_read = "ucp_config_read": fn(*const c_char, *const c_char, *mut Config) -> Status;
    config_release = "ucp_config_release": fn(Config);
    init = "ucp_init_version": fn(c_uint, c_uint, *const Params, Config, *mut UcpContext) -> Status;
    cleanup = "ucp_cleanup": fn(UcpContext);
    worker_create = "ucp_worker_create": fn(UcpContext, *const WorkerParams, *mut UcpWorker) -> Status;
    worker_destroy = "ucp_worker_destroy": fn(UcpWorker);
    worker_get_address = "ucp_worker_get_address": fn(UcpWorker, *mut Address, *mut usize) -> Status;
    worker_release_address = "ucp_worker_release_address": fn(UcpWorker, Address);
    worker_get_efd = "ucp_worker_get_efd": fn(UcpWorker, *mut c_int) -> Status;
    worker_arm = "ucp_worker_arm": fn(UcpWorker) -> Status;
    worker_progress = "ucp_worker_progress": fn(UcpWorker) -> c_uint;
    worker_set_am_recv_handler = "ucp_worker_set_am_recv_handler": fn(UcpWorker, *const AmHandlerParams) -> Status;
    ep_create = "ucp_ep_create": fn(UcpWorker, *const EndpointParams, *mut Endpoint) -> Status;
    /// Null, a status as a pointer, or a request.
    ep_close = "ucp_ep_close_nbx": fn(Endpoint, *const RequestParams) -> *mut c_void;
    am_send = "ucp_am_send_nbx": fn(Endpoint, c_uint, *const c_void, usize, *const c_void, usize, *const RequestParams) -> *mut c_void;
    /// Null: they are there; a status as a pointer, or a request.
    am_receive_data = "ucp_am_recv_data_nbx": fn(UcpWorker, *mut c_void, *mut c_void, usize, *const RequestParams) -> *mut c_void;
    am_release_data = "ucp_am_data_release": fn(UcpWorker, *mut c_void);
    request_status = "ucp_request_check_status": fn(*mut c_void) -> Status;
    request_free = "ucp_request_free": fn(*mut c_void);
    status_string = "ucs_status_string": fn(Status) -> *const c_char;
}
