//! One host's end of the network.
//!
//! Purpose: [`Worker`] sends bytes to other hosts and receives from them. Input: bytes, and more that are to go with them from where they are. Output: bytes, whole and
//! in the order of sending, and which connections have broken. What goes with them comes with them, or is offered, as UCX finds better: then it is fetched to where it
//! belongs, and nobody copies it (UCX's rendezvous). **Invariants**: nothing here blocks; what is being sent stays where it is until UCX is done with it; one thread uses
//! a worker, the one that has made it.
//! Source: `ucp.h`.

use crate::ucx::bindings::{
    AM_FLAG_WHOLE_MSG, AM_HANDLER_PARAM_FIELD_ARG, AM_HANDLER_PARAM_FIELD_CB, AM_HANDLER_PARAM_FIELD_FLAGS,
    AM_HANDLER_PARAM_FIELD_ID, AM_RECV_ATTR_FLAG_RNDV, AM_SEND_FLAG_EAGER, API_MAJOR, API_MINOR, Address,
    AmHandlerParams, AmReceived, EP_CLOSE_FLAG_FORCE, EP_PARAM_FIELD_ERR_HANDLER, EP_PARAM_FIELD_ERR_HANDLING_MODE,
    EP_PARAM_FIELD_REMOTE_ADDRESS, ERR_BUSY, ERR_HANDLING_MODE_PEER, ERR_LAST, Endpoint, EndpointParams, ErrorHandler,
    FEATURE_AM, FEATURE_WAKEUP, IN_PROGRESS, OK, OP_ATTR_FIELD_FLAGS, PARAM_FIELD_ESTIMATED_NUM_EPS,
    PARAM_FIELD_FEATURES, Params, RequestParams, Status, THREAD_MODE_SINGLE, UcpContext, UcpWorker as Handle,
    WORKER_PARAM_FIELD_THREAD_MODE, WorkerParams,
};
use crate::ucx::library::Library;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr;

/// The number of the only active message.
const MESSAGE: u32 = 0;
/// How often the network is looked at, at the end, for connections that are still being closed.
const CLOSING_LOOKS: u32 = 100_000;

/// What another host has sent.
#[derive(Debug)]
pub struct Delivery {
    pub bytes: Vec<u8>,
    pub with_it: WithIt,
}

/// What goes with it.
#[derive(Debug)]
pub enum WithIt {
    Here(Vec<u8>),
    Offered(Offer),
}

impl WithIt {
    /// How many bytes.
    pub const fn bytes(&self) -> usize {
        match self {
            WithIt::Here(bytes) => bytes.len(),
            WithIt::Offered(offer) => offer.bytes,
        }
    }
}

/// Bytes that are still with their sender. Dropped, it is refused.
#[derive(Debug)]
pub struct Offer {
    bytes: usize,
    /// UCX's, while the offer is neither taken nor refused.
    data: *mut c_void,
    worker: Handle,
    refuse: unsafe extern "C" fn(Handle, *mut c_void),
}

impl Drop for Offer {
    fn drop(&mut self) {
        if !self.data.is_null() {
            // SAFETY: what UCX has given for this, of a worker that outlives all offers.
            unsafe { (self.refuse)(self.worker, self.data) };
        }
    }
}

/// Bytes that are being fetched.
#[derive(Debug)]
pub struct Fetch {
    /// UCX's request; null: they came at once.
    request: *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

impl Drop for Fetch {
    fn drop(&mut self) {
        if !self.request.is_null() {
            // SAFETY: given back once, in whatever state: UCX then forgets it by itself.
            unsafe { (self.free)(self.request) };
        }
    }
}

/// What UCX has told since it was asked last.
struct Inbox {
    worker: Handle,
    refuse: unsafe extern "C" fn(Handle, *mut c_void),
    messages: VecDeque<Delivery>,
    /// Peers whose connection has broken, and why.
    broken: Vec<(usize, Status)>,
    /// Messages of a form that no peer sends.
    strange: u64,
}

/// What UCX gives back when it finds the connection to a peer broken.
struct Tag {
    inbox: *const RefCell<Inbox>,
    peer: usize,
}

/// A connection.
struct Peer {
    endpoint: Endpoint,
    /// What is being sent, and UCX's request for it.
    sending: VecDeque<(*mut c_void, Vec<u8>)>,
    /// Buffers that may be used again.
    spare: Vec<Vec<u8>>,
    /// UCX holds its address.
    _tag: Box<Tag>,
}

/// A worker of UCX, and its connections.
pub struct Worker {
    library: Library,
    context: UcpContext,
    handle: Handle,
    inbox: Box<RefCell<Inbox>>,
    peers: Vec<Peer>,
    /// It belongs to one thread.
    _here: PhantomData<*mut ()>,
}

impl Worker {
    /// A worker that will have so many connections.
    ///
    /// # Errors
    /// UCX's, in one line.
    pub fn new(library: Library, peers: usize) -> Result<Worker, String> {
        let api = library.functions;
        let failed = |what: &str, status| format!("UCX cannot {what}: {}", library.text(status));
        let mut config = ptr::null_mut();
        // SAFETY: no prefix and no file: the environment's UCX_* settings.
        let status = unsafe { (api.config_read)(ptr::null(), ptr::null(), &raw mut config) };
        if status != OK {
            return Err(failed("read its settings", status));
        }
        let params = Params {
            field_mask: PARAM_FIELD_FEATURES | PARAM_FIELD_ESTIMATED_NUM_EPS,
            features: FEATURE_AM | FEATURE_WAKEUP,
            request_size: 0,
            request_init: ptr::null_mut(),
            request_cleanup: ptr::null_mut(),
            tag_sender_mask: 0,
            mt_workers_shared: 0,
            estimated_num_eps: peers,
            estimated_num_ppn: 0,
            name: ptr::null(),
        };
        let mut context = ptr::null_mut();
        // SAFETY: structures of the header's form, alive during the calls.
        let status = unsafe {
            let status = (api.init)(API_MAJOR, API_MINOR, &raw const params, config, &raw mut context);
            (api.config_release)(config);
            status
        };
        if status != OK {
            return Err(failed("find a network", status));
        }
        let params = WorkerParams {
            field_mask: WORKER_PARAM_FIELD_THREAD_MODE,
            thread_mode: THREAD_MODE_SINGLE,
            cpu_mask: [0; 16],
            events: 0,
            user_data: ptr::null_mut(),
            event_fd: 0,
            flags: 0,
            name: ptr::null(),
            am_alignment: 0,
            client_id: 0,
        };
        let mut handle = ptr::null_mut();
        // SAFETY: as above.
        let status = unsafe { (api.worker_create)(context, &raw const params, &raw mut handle) };
        if status != OK {
            let text = failed("open the network", status);
            // SAFETY: the context has no worker.
            unsafe { (api.cleanup)(context) };
            return Err(text);
        }
        let (messages, broken) = (VecDeque::new(), Vec::new());
        let inbox = Inbox { worker: handle, refuse: api.am_release_data, messages, broken, strange: 0 };
        let inbox = Box::new(RefCell::new(inbox));
        let argument = ptr::from_ref(&*inbox).cast_mut().cast::<c_void>();
        let worker = Worker { library, context, handle, inbox, peers: Vec::new(), _here: PhantomData };
        let params = AmHandlerParams {
            field_mask: AM_HANDLER_PARAM_FIELD_ID
                | AM_HANDLER_PARAM_FIELD_FLAGS
                | AM_HANDLER_PARAM_FIELD_CB
                | AM_HANDLER_PARAM_FIELD_ARG,
            id: MESSAGE,
            flags: AM_FLAG_WHOLE_MSG,
            callback: Some(on_message),
            argument,
        };
        // SAFETY: as above; the inbox lives as long as the worker.
        let status = unsafe { (api.worker_set_am_recv_handler)(handle, &raw const params) };
        if status == OK { Ok(worker) } else { Err(worker.failed("receive", status)) }
    }

    fn failed(&self, what: &str, status: Status) -> String {
        format!("UCX cannot {what}: {}", self.library.text(status))
    }

    /// What a status means, in UCX's words.
    pub fn text(&self, status: Status) -> String {
        self.library.text(status)
    }

    /// Where others reach this worker.
    ///
    /// # Errors
    /// UCX's.
    pub fn address(&self) -> Result<Vec<u8>, String> {
        let api = self.library.functions;
        let (mut address, mut length): (Address, usize) = (ptr::null_mut(), 0);
        // SAFETY: places for a pointer and a number.
        let status = unsafe { (api.worker_get_address)(self.handle, &raw mut address, &raw mut length) };
        if status != OK {
            return Err(self.failed("tell its address", status));
        }
        // SAFETY: the library says so; the address is given back afterwards.
        let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length) }.to_vec();
        // SAFETY: as above.
        unsafe { (api.worker_release_address)(self.handle, address) };
        Ok(bytes)
    }

    /// Connects to the worker of that address; the peer's number, from 0 on. That it cannot be reached may show later.
    ///
    /// # Errors
    /// UCX's: there is no network that both have.
    pub fn connect(&mut self, address: &[u8]) -> Result<usize, String> {
        let peer = self.peers.len();
        let tag = Box::new(Tag { inbox: &raw const *self.inbox, peer });
        let params = EndpointParams {
            field_mask: EP_PARAM_FIELD_REMOTE_ADDRESS | EP_PARAM_FIELD_ERR_HANDLING_MODE | EP_PARAM_FIELD_ERR_HANDLER,
            address: address.as_ptr().cast(),
            err_mode: ERR_HANDLING_MODE_PEER,
            err_handler: ErrorHandler {
                callback: Some(on_error),
                argument: ptr::from_ref(&*tag).cast_mut().cast::<c_void>(),
            },
            user_data: ptr::null_mut(),
            flags: 0,
            unused: [0; 6],
        };
        let mut endpoint = ptr::null_mut();
        // SAFETY: the structure has the header's form, and the address is one of UCX's: whoever made it has the run's secret.
        let status = unsafe { (self.library.functions.ep_create)(self.handle, &raw const params, &raw mut endpoint) };
        if status != OK {
            return Err(self.failed("connect", status));
        }
        self.peers.push(Peer { endpoint, sending: VecDeque::new(), spare: Vec::new(), _tag: tag });
        Ok(peer)
    }

    /// An empty buffer for a message to that peer.
    pub fn buffer(&mut self, peer: usize) -> Vec<u8> {
        let mut buffer = self.peers[peer].spare.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// How many messages to that peer UCX has not let go of.
    pub fn unsent(&mut self, peer: usize) -> usize {
        let api = self.library.functions;
        let peer = &mut self.peers[peer];
        while let Some(&(request, _)) = peer.sending.front() {
            // SAFETY: a request of UCX's that was not given back.
            if unsafe { (api.request_status)(request) } == IN_PROGRESS {
                break;
            }
            // What has gone wrong is told by the error handler.
            // SAFETY: as above; it is over.
            unsafe { (api.request_free)(request) };
            let (_, buffer) = peer.sending.pop_front().expect("it was there");
            peer.spare.push(buffer);
        }
        peer.sending.len()
    }

    /// Sends.
    ///
    /// # Errors
    /// UCX's: the connection is broken.
    pub fn send(&mut self, peer: usize, bytes: Vec<u8>) -> Result<(), String> {
        let (start, length) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: the buffer's memory stays where it is until the request is over.
        unsafe { self.send_parts(peer, bytes, (ptr::null(), 0), (start, length), AM_SEND_FLAG_EAGER) }
    }

    /// Sends, and more with it.
    ///
    /// # Errors
    /// As [`Worker::send`].
    ///
    /// # Safety
    /// `more` can be read as long as the worker lives. What of it changes before it has arrived arrives as anything.
    pub unsafe fn send_with(&mut self, peer: usize, bytes: Vec<u8>, more: (*const u8, usize)) -> Result<(), String> {
        let header = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: as above; the caller vouches for the rest.
        unsafe { self.send_parts(peer, bytes, header, (more.0.cast(), more.1), 0) }
    }

    /// # Safety
    /// Both parts stay readable until the request is over: inside `bytes`, or for good.
    unsafe fn send_parts(
        &mut self,
        peer: usize,
        bytes: Vec<u8>,
        header: (*const c_void, usize),
        data: (*const c_void, usize),
        flags: u32,
    ) -> Result<(), String> {
        let params = with_flags(flags);
        let to = &mut self.peers[peer];
        let send = self.library.functions.am_send;
        // SAFETY: the caller vouches for both parts.
        let request = unsafe { send(to.endpoint, MESSAGE, header.0, header.1, data.0, data.1, &raw const params) };
        if request.is_null() {
            to.spare.push(bytes);
            Ok(())
        } else if is_error(request) {
            Err(self.failed("send", request as isize as Status))
        } else {
            to.sending.push_back((request, bytes));
            Ok(())
        }
    }

    /// Lets UCX work; whether there was anything to do.
    pub fn progress(&mut self) -> bool {
        // SAFETY: the thread is the worker's. The callbacks use the inbox alone, which nobody has borrowed.
        unsafe { (self.library.functions.worker_progress)(self.handle) != 0 }
    }

    /// The next message.
    pub fn receive(&mut self) -> Option<Delivery> {
        self.inbox.borrow_mut().messages.pop_front()
    }

    /// Fetches what was offered.
    ///
    /// # Errors
    /// UCX's: the connection is broken.
    ///
    /// # Safety
    /// As many bytes as are offered can be written at `to` as long as the worker lives.
    pub unsafe fn fetch(&mut self, mut offer: Offer, to: *mut u8) -> Result<Fetch, String> {
        let api = self.library.functions;
        let data = std::mem::replace(&mut offer.data, ptr::null_mut());
        let params = with_flags(0);
        // SAFETY: UCX's own offer, which is used once; the caller vouches for the place.
        let request = unsafe { (api.am_receive_data)(self.handle, data, to.cast(), offer.bytes, &raw const params) };
        if is_error(request) {
            return Err(self.failed("receive", request as isize as Status));
        }
        Ok(Fetch { request, free: api.request_free })
    }

    /// Whether that has been fetched.
    ///
    /// # Errors
    /// UCX's: the connection is broken.
    pub fn has_fetched(&self, fetch: &Fetch) -> Result<bool, String> {
        if fetch.request.is_null() {
            return Ok(true);
        }
        // SAFETY: a request of UCX's that was not given back.
        match unsafe { (self.library.functions.request_status)(fetch.request) } {
            IN_PROGRESS => Ok(false),
            OK => Ok(true),
            status => Err(self.failed("receive", status)),
        }
    }

    /// A peer whose connection has broken, and why.
    pub fn broken(&mut self) -> Option<(usize, Status)> {
        self.inbox.borrow_mut().broken.pop()
    }

    /// How many messages had a form that no peer sends.
    pub fn strange(&self) -> u64 {
        self.inbox.borrow().strange
    }

    /// Readable when there is something to do, after [`Worker::arm`].
    ///
    /// # Errors
    /// UCX's: a network that cannot wake.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, String> {
        let mut fd = -1;
        // SAFETY: a place for a number.
        let status = unsafe { (self.library.functions.worker_get_efd)(self.handle, &raw mut fd) };
        if status != OK || fd < 0 {
            return Err(self.failed("wake this process", status));
        }
        // SAFETY: the descriptor is the worker's, and stays open as long as it lives.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Before a sleep on [`Worker::event_fd`]: false when there is something to do now.
    pub fn arm(&mut self) -> bool {
        // SAFETY: the thread is the worker's.
        let status = unsafe { (self.library.functions.worker_arm)(self.handle) };
        debug_assert!(status == OK || status == ERR_BUSY, "{}", self.library.text(status));
        status == OK
    }
}

/// Parameters of a request: these flags, and nothing else that is not usual.
fn with_flags(flags: u32) -> RequestParams {
    RequestParams {
        op_attr_mask: OP_ATTR_FIELD_FLAGS,
        flags,
        request: ptr::null_mut(),
        callback: ptr::null_mut(),
        datatype: 0,
        user_data: ptr::null_mut(),
        reply_buffer: ptr::null_mut(),
        memory_type: 0,
        recv_info: ptr::null_mut(),
        memh: ptr::null_mut(),
    }
}

impl Drop for Worker {
    /// Closes the connections at once: what is still to be sent is nobody's any more.
    fn drop(&mut self) {
        let api = self.library.functions;
        let params = with_flags(EP_CLOSE_FLAG_FORCE);
        self.inbox.borrow_mut().messages.clear();
        // SAFETY: each endpoint is closed once; requests are looked at until they are over and then given back.
        unsafe {
            for peer in &mut self.peers {
                let request = (api.ep_close)(peer.endpoint, &raw const params);
                let is_request = !request.is_null() && !is_error(request);
                let requests = peer.sending.drain(..).map(|(request, buffer)| (request, Some(buffer)));
                for (request, buffer) in requests.chain(is_request.then_some((request, None))) {
                    let mut looks = 0;
                    while (api.request_status)(request) == IN_PROGRESS && looks < CLOSING_LOOKS {
                        (api.worker_progress)(self.handle);
                        looks += 1;
                    }
                    if (api.request_status)(request) == IN_PROGRESS {
                        // UCX may still read it.
                        std::mem::forget(buffer);
                    }
                    (api.request_free)(request);
                }
            }
            (api.worker_destroy)(self.handle);
            (api.cleanup)(self.context);
        }
    }
}

/// Whether the result of a call is a status and no request.
fn is_error(pointer: *mut c_void) -> bool {
    pointer as usize >= ERR_LAST as usize
}

/// A message has come.
unsafe extern "C" fn on_message(
    argument: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const AmReceived,
) -> Status {
    // SAFETY: the inbox, which outlives the worker; UCX's parameters are alive during the call.
    let (inbox, param) = unsafe { (&*argument.cast::<RefCell<Inbox>>(), &*param) };
    let mut inbox = inbox.borrow_mut();
    let copied = |start: *const c_void, length: usize| {
        if length == 0 {
            return Vec::new();
        }
        // SAFETY: UCX says that so many bytes are there, until the callback returns.
        unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) }.to_vec()
    };
    let is_offer = param.recv_attr & AM_RECV_ATTR_FLAG_RNDV != 0;
    if header_length == 0 && is_offer {
        // Not fetched, so UCX drops it.
        inbox.strange += 1;
        return OK;
    }
    if header_length == 0 {
        let arrived = Delivery { bytes: copied(data, length), with_it: WithIt::Here(Vec::new()) };
        inbox.messages.push_back(arrived);
        return OK;
    }
    let bytes = copied(header, header_length);
    let with_it = if is_offer {
        WithIt::Offered(Offer { bytes: length, data, worker: inbox.worker, refuse: inbox.refuse })
    } else {
        WithIt::Here(copied(data, length))
    };
    inbox.messages.push_back(Delivery { bytes, with_it });
    if is_offer { IN_PROGRESS } else { OK }
}

/// A connection has broken.
unsafe extern "C" fn on_error(argument: *mut c_void, _endpoint: Endpoint, status: Status) {
    // SAFETY: the tag, and through it the inbox, outlive the worker.
    let (inbox, peer) = unsafe {
        let tag = &*argument.cast::<Tag>();
        (&*tag.inbox, tag.peer)
    };
    inbox.borrow_mut().broken.push((peer, status));
}
