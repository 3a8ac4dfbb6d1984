//! `blizzard run` and what goes with it: a program on one or more nodes, on this host or on several.
//!
//! Input: a program with its arguments, options of the run. Output: the program's output and exit status.

pub(crate) mod attributes;

pub(crate) mod shipment;

pub(crate) mod debugger;

pub(crate) mod settings;

pub(crate) mod command;

pub(crate) mod learn;

pub(crate) mod agent;

pub(crate) mod node;
