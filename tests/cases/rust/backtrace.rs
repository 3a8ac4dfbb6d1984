//# flags: -C opt-level=0 -g | -C opt-level=3 -g | -C opt-level=3
//# link: -C strip=none | -C relocation-model=static
//# env: RUST_BACKTRACE=1
//# exit: 101
//# stderr: mentions panicked this_is_the_end third_level second_level first_level prog::main
// A panic that nobody catches prints a backtrace with the functions' names.
#[inline(never)]
fn this_is_the_end(n: usize) -> usize {
    let v = vec![1, 2, 3];
    v[n]
}
#[inline(never)]
fn third_level(n: usize) -> usize {
    this_is_the_end(n * 2) + std::hint::black_box(1)
}
#[inline(never)]
fn second_level(n: usize) -> usize {
    third_level(n + 1) * std::hint::black_box(2)
}
#[inline(never)]
fn first_level(n: usize) -> usize {
    second_level(n + 1) ^ std::hint::black_box(3)
}
fn main() {
    println!("before");
    println!("{}", first_level(std::hint::black_box(1)));
}
