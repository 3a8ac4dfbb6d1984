//! What remains at the old addresses.

pub mod chains;
pub mod springboards;
