//! The protocols, a folder each; [`crate::list`] has a line for each.
//!
//! A module imports from those above its own in this list.

pub mod stache;

pub mod mcm;

pub mod home;

pub mod migratory;

pub mod reduce;

pub mod update;

pub mod broadcast;
