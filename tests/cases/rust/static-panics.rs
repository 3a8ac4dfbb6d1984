//# flags: -O -C target-feature=+crt-static | -C target-feature=+crt-static -C relocation-model=static | -O -C target-feature=+crt-static -C strip=symbols
//# stderr: mentions deep
// Unwinding in static programs: panics caught in the thread that panics and at its join, with cleanups on the way.
use std::panic;

struct Guard(u32);
impl Drop for Guard {
    fn drop(&mut self) {
        println!("dropped {}", self.0);
    }
}

fn deep(n: u32) -> u32 {
    let _guard = Guard(n);
    if n == 0 {
        panic!("deep");
    }
    deep(n - 1) + 1
}

fn main() {
    for n in 0..3 {
        println!("{}", panic::catch_unwind(|| deep(n)).is_err());
    }
    println!("{}", std::thread::spawn(|| deep(2)).join().is_err());
}
