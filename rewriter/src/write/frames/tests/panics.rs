//! Panics that unwind through frames with destructors, caught, resumed and caught again.

use std::panic::{catch_unwind, resume_unwind};

struct Trace(&'static str, Vec<u32>);

impl Drop for Trace {
    fn drop(&mut self) {
        print!("-{}{} ", self.0, self.1.len());
    }
}

#[inline(never)]
fn inner(kind: u32) -> u32 {
    let t = Trace("inner", vec![kind; kind as usize]);
    match kind {
        0 => panic!("asked for {kind}"),
        1 => t.1[kind as usize + 5],
        2 => "none".parse::<u32>().unwrap(),
        3 => std::panic::panic_any(3u32),
        _ => t.1.iter().sum(),
    }
}

#[inline(never)]
fn outer(kind: u32) -> u32 {
    let _a = Trace("outer", Vec::new());
    match catch_unwind(|| inner(kind)) {
        Ok(sum) => sum,
        Err(e) if e.is::<u32>() => resume_unwind(e),
        Err(e) => e.downcast_ref::<String>().map_or(0, |s| s.len() as u32),
    }
}

fn main() {
    std::panic::set_hook(Box::new(|_| print!("! ")));
    for kind in 0..6 {
        match catch_unwind(|| outer(kind)) {
            Ok(value) => println!("= {value}"),
            Err(_) => println!("= resumed"),
        }
    }
}
