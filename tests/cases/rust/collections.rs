//# flags: -C opt-level=0 | -C opt-level=3 | -C opt-level=s
//# link: -C strip=none | -C relocation-model=static
// Collections, iterators, strings, closures, trait objects, matches, threads and channels.
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, RwLock, mpsc};

trait Shape {
    fn area(&self) -> f64;
    fn name(&self) -> String {
        "shape".into()
    }
}
struct Square(f64);
struct Circle {
    r: f64,
}
impl Shape for Square {
    fn area(&self) -> f64 {
        self.0 * self.0
    }
}
impl Shape for Circle {
    fn area(&self) -> f64 {
        3.0 * self.r * self.r
    }
    fn name(&self) -> String {
        format!("circle {}", self.r)
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Number(i64),
    Plus,
    Minus,
    Times,
    Open,
    Close,
}

fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(&c) = chars.peek() {
        match c {
            '0'..='9' => {
                let mut n = 0;
                while let Some(d) = chars.peek().and_then(|c| c.to_digit(10)) {
                    n = n * 10 + i64::from(d);
                    chars.next();
                }
                out.push(Token::Number(n));
                continue;
            }
            '+' => out.push(Token::Plus),
            '-' => out.push(Token::Minus),
            '*' => out.push(Token::Times),
            '(' => out.push(Token::Open),
            ')' => out.push(Token::Close),
            _ => {}
        }
        chars.next();
    }
    out
}

fn expression(t: &[Token], at: &mut usize) -> Result<i64, String> {
    let mut value = term(t, at)?;
    while let Some(op) = t.get(*at) {
        match op {
            Token::Plus => {
                *at += 1;
                value += term(t, at)?;
            }
            Token::Minus => {
                *at += 1;
                value -= term(t, at)?;
            }
            _ => break,
        }
    }
    Ok(value)
}

fn term(t: &[Token], at: &mut usize) -> Result<i64, String> {
    let mut value = factor(t, at)?;
    while t.get(*at) == Some(&Token::Times) {
        *at += 1;
        value = value.checked_mul(factor(t, at)?).ok_or("overflow")?;
    }
    Ok(value)
}

fn factor(t: &[Token], at: &mut usize) -> Result<i64, String> {
    *at += 1;
    match t.get(*at - 1) {
        Some(Token::Number(n)) => Ok(*n),
        Some(Token::Minus) => Ok(-factor(t, at)?),
        Some(Token::Open) => {
            let value = expression(t, at)?;
            *at += 1;
            if t.get(*at - 1) == Some(&Token::Close) { Ok(value) } else { Err("no closing bracket".into()) }
        }
        other => Err(format!("unexpected {other:?}")),
    }
}

fn main() {
    let mut map = HashMap::new();
    let mut tree = BTreeMap::new();
    for i in 0..2000u64 {
        *map.entry(i * 31 % 97).or_insert(0u64) += i;
        tree.entry(format!("k{}", i % 61)).or_insert_with(Vec::new).push(i);
    }
    let mut pairs: Vec<_> = map.into_iter().collect();
    pairs.sort_by_key(|&(k, v)| (v % 10, k));
    println!("{:?}", &pairs[..5]);
    println!("{}", tree.iter().map(|(k, v)| format!("{k}:{}", v.len())).collect::<Vec<_>>().join(","));
    let set: BTreeSet<i32> = (0..500).map(|x| x * x % 101).collect();
    println!("{:?}", set.range(20..40).collect::<Vec<_>>());
    let mut heap: BinaryHeap<_> = (0..50).map(|x| x * 37 % 53).collect();
    print!("heap");
    while let Some(x) = heap.pop() {
        print!(" {x}");
    }
    println!();
    let mut queue: VecDeque<_> = (1..=10).collect();
    for i in 0..25 {
        let front = queue.pop_front().unwrap_or(0);
        queue.push_back(front + i);
        queue.rotate_left(2);
    }
    println!("{queue:?}");
    let shapes: Vec<Box<dyn Shape>> = (0..6i32).map(|i| -> Box<dyn Shape> {
        if i % 2 == 0 { Box::new(Square(f64::from(i))) } else { Box::new(Circle { r: f64::from(i) }) }
    }).collect();
    println!("{} {:?}", shapes.iter().map(|s| s.area()).sum::<f64>(), shapes.iter().map(|s| s.name()).collect::<Vec<_>>());
    for text in ["1+2*3", "(4-2)*-7", "2*(3", "9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9", "", "((((5))))"] {
        println!("{text} = {:?}", expression(&tokens(text), &mut 0));
    }
    let words = "the quick brown fox jumps over the lazy dog — ünïcödé ☃";
    println!("{} {:?}", words.to_uppercase(), words.split_whitespace().rev().map(|w| w.chars().rev().collect::<String>()).collect::<Vec<_>>());
    let shared = Rc::new(std::cell::RefCell::new(vec![1u8]));
    let push = |x: u8| shared.borrow_mut().push(x);
    (0..10).for_each(push);
    println!("{:?} {}", shared.borrow(), Rc::strong_count(&shared));
    let total = Arc::new(Mutex::new(0u64));
    let table = Arc::new(RwLock::new(HashMap::new()));
    let (send, receive) = mpsc::channel();
    let threads: Vec<_> = (0..6u64).map(|id| {
        let (total, table, send) = (total.clone(), table.clone(), send.clone());
        std::thread::spawn(move || {
            for i in 0..500 {
                *total.lock().unwrap() += id * i;
            }
            table.write().unwrap().insert(id, format!("thread {id}"));
            send.send(id * 100).unwrap();
            id
        })
    }).collect();
    drop(send);
    println!("{}", threads.into_iter().map(|t| t.join().unwrap()).sum::<u64>());
    let mut received: Vec<u64> = receive.iter().collect();
    received.sort_unstable();
    println!("{received:?} {} {}", total.lock().unwrap(), table.read().unwrap()[&3]);
    let v: Vec<u32> = (0..10000u32).filter(|x| x % 3 == 1).map(|x| x.wrapping_mul(2654435761)).collect();
    println!("{:?} {}", v.iter().max(), v.chunks(7).map(|c| c.iter().fold(0u32, |a, b| a ^ b)).fold(0u32, u32::wrapping_add));
}
