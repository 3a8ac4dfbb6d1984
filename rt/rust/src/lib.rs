//! Blizzard for Rust programs.
