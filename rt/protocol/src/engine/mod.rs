//! The engine: what every protocol needs of its node, and none owns.
//!
//! | file | what |
//! |---|---|
//! | [`pages`] | the pages of which this node has copies |
//! | [`miss_history`] | the misses of earlier iterations |
//! | [`access`] | misses and messages: the engine itself |
//! | [`replace`] | a page makes room for another one; prefetch and check-in |
//! | [`ahead`] | requests ahead, along the history |

pub mod pages;

pub mod miss_history;

pub mod access;

pub mod replace;

pub mod ahead;
