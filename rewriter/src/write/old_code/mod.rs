//! What remains at the old addresses.

pub(crate) mod chains;
pub(crate) mod springboards;
