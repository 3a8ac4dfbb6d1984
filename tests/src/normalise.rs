//! Takes out of a program's standard error what differs from one run to the next without being an error:
//! addresses, thread numbers and the folder it was started from.

/// `text` with each `0x…` number, the thread number in Rust's panic line and `folder` replaced.
pub fn stderr(text: &str, folder: &str) -> String {
    let text = if folder.is_empty() { text.to_string() } else { text.replace(folder, "DIR") };
    text.split_inclusive('\n').map(|line| thread_number(&addresses(line))).collect()
}

fn addresses(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("0x") {
        let digits = rest[at + 2..].bytes().take_while(u8::is_ascii_hexdigit).count();
        out.push_str(&rest[..at]);
        out.push_str(if digits == 0 { "0x" } else { "0xN" });
        rest = &rest[at + 2 + digits..];
    }
    out + rest
}

/// `thread 'main' (1234) panicked at …`
fn thread_number(line: &str) -> String {
    if let Some((head, tail)) = line.split_once("' (")
        && head.starts_with("thread '")
        && let Some((number, tail)) = tail.split_once(')')
        && number.bytes().all(|b| b.is_ascii_digit())
    {
        return format!("{head}' (N){tail}");
    }
    line.to_string()
}

#[cfg(test)]
mod tests {
    use super::stderr;

    #[test]
    fn addresses_threads_and_folders() {
        assert_eq!(stderr("/a/b/prog: 0x7f12: bad 0xz\n", "/a/b"), "DIR/prog: 0xN: bad 0xz\n");
        assert_eq!(stderr("thread 'main' (77) panicked at x\n", ""), "thread 'main' (N) panicked at x\n");
        assert_eq!(stderr("thread main (77)\n", ""), "thread main (77)\n");
    }
}
