//# flags: -C opt-level=0 | -C opt-level=3 | -C opt-level=3 -C panic=abort
//# signal: SIGABRT
//# stderr: mentions first panicked
// A panic in a drop during unwinding, or any panic with panic=abort, ends the process by SIGABRT with its message.
struct Bomb;
impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("second");
    }
}
fn main() {
    println!("before");
    let _bomb = Bomb;
    panic!("first");
}
