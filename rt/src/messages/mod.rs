//! Messages between nodes: their kinds, and the check of those that arrive.

pub mod kinds;

pub mod judge;

pub mod area;
