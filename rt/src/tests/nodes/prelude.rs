//! What these tests use of the runtime.

pub use crate::kernel::sys;
pub use crate::memory::region::Region;
pub use crate::memory::tags::Space;
pub use crate::messages::kinds::id;
pub use crate::node::node::Node;
pub use crate::sync::collective::Collective;
pub use crate::transport::message::Message;
pub use blizzard_contract::Counter;
pub use blizzard_protocol::ids::NodeId;
pub use core::sync::atomic::Ordering;
