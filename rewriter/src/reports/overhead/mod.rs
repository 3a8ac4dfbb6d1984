//! What the checks cost a program, measured.

pub mod counts;
pub mod hot;
pub mod html;
pub mod measure;
pub mod process;
pub mod render;
pub mod report;
pub mod symbols;
