//# flags: -C opt-level=0 | -C opt-level=3
//# link: -C strip=none | -C relocation-model=static
// Panics that are caught: in nested calls with drops on the way, across threads, in drops of collections, resumed, with payloads.
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

struct Guard<'a>(&'a std::cell::RefCell<Vec<u32>>, u32);
impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
    }
}

#[inline(never)]
fn deep(log: &std::cell::RefCell<Vec<u32>>, n: u32, index: usize) -> u32 {
    let _guard = Guard(log, n);
    let table = [1, 2, 3];
    if n == 0 { table[index] } else { deep(log, n - 1, index) + std::hint::black_box(n) }
}

#[inline(never)]
fn kinds(kind: u32, zero: i32) -> i64 {
    match kind {
        0 => panic!("plain {kind}"),
        1 => i64::from(10 / zero),
        2 => i64::from(i32::MAX.checked_add(1 + zero).expect("addition")),
        3 => Option::<i64>::None.unwrap(),
        4 => "x".parse::<i64>().unwrap(),
        5 => std::panic::panic_any(77i64),
        6 => unreachable!("kind {}", kind),
        7 => [1i64, 2][..zero as usize + 5 - 4 + 1].len() as i64 + i64::from("é".is_char_boundary(1)) + "é"[1..].len() as i64,
        _ => 5,
    }
}

fn main() {
    let log = std::cell::RefCell::new(Vec::new());
    let result = catch_unwind(AssertUnwindSafe(|| deep(&log, 5, 1)));
    println!("{result:?}");
    let result = catch_unwind(AssertUnwindSafe(|| deep(&log, 5, std::hint::black_box(7))));
    println!("{} {:?}", result.is_err(), log.borrow());
    for kind in 0..9 {
        match catch_unwind(|| kinds(kind, std::hint::black_box(0))) {
            Ok(v) => println!("{kind}: {v}"),
            Err(e) => match (e.downcast_ref::<String>(), e.downcast_ref::<&str>(), e.downcast_ref::<i64>()) {
                (Some(s), ..) => println!("{kind}: {s}"),
                (_, Some(s), _) => println!("{kind}: {s}"),
                (.., Some(n)) => println!("{kind}: number {n}"),
                _ => println!("{kind}: something"),
            },
        }
    }
    let again = catch_unwind(|| {
        let inner = catch_unwind(|| panic!("inner"));
        resume_unwind(inner.unwrap_err());
    });
    println!("{:?}", again.unwrap_err().downcast_ref::<&str>());
    let joined = std::thread::Builder::new().name("worker".into()).spawn(|| -> u32 { panic!("in a thread") }).unwrap().join();
    println!("{}", joined.is_err());
    let boxes: Vec<Box<dyn Fn(u32) -> u32 + Send + Sync + std::panic::RefUnwindSafe>> =
        vec![Box::new(|x| x + 1), Box::new(|x| if x > 2 { panic!("closure {x}") } else { x }), Box::new(|x| x * 2)];
    for x in 0..5 {
        let values: Vec<_> = boxes.iter().map(|f| catch_unwind(|| f(x)).ok()).collect();
        println!("{values:?}");
    }
}
