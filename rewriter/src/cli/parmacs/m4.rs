//! The part of m4 that programs for the PARMACS macros use, so that they build where m4 is not installed.
//!
//! Input: the file of the macros (`rt/include/parmacs.m4`), then a source file. Output: the expanded text, byte for byte that of GNU m4 but for the lines
//! that name places in the source ([`crate::cli::parmacs::lines`]).
//!
//! What is there: words, arguments with nested parentheses, nested quotes, comments, rescanning of expansions; `define`, `undefine`, `defn`,
//! `ifdef`, `ifelse`, `dnl`, `divert` (0 and below), `include`, `sinclude`. `changequote` and `changecom`, which m4 would obey, are refused.
//! Everything else that m4 has built in is undefined by the macros' file: C programs have functions of the same names.
//!
//! **Invariants:** a macro is a whole word: nothing is expanded inside a longer one, in a quote or in a comment. Memory and time are bounded:
//! expansions that do not end are an error. Errors say the file and the line of the macro call.
//!
//! Source: POSIX.1-2017, m4; GNU m4 1.4.19 manual, "Input processing", "How m4 copies input to output", "Macro arguments".

use crate::base::error::{Error, Result};
use crate::cli::parmacs::lines::LinedText;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The macros, as `blizzard config --m4` gives them to m4.
pub const MACROS: &[u8] = include_bytes!("../../../../rt/include/parmacs.m4");

/// Expansions of one file after which it is taken not to end.
const MOST_EXPANSIONS: u64 = 1_000_000;
/// Bytes of text that wait to be scanned again.
const MOST_PENDING: usize = 64 << 20;
/// Files that include one another.
const MOST_INCLUDES: usize = 64;

/// Expands the macros of PARMACS in `text`, the contents of `file`. `lines`: with those of the source.
///
/// # Errors
/// A quote or a list of arguments that does not end, a file to include that is not there, an expansion that does not end, what this m4
/// does not do; with file and line.
pub fn expand(file: &Path, text: &[u8], lines: bool) -> Result<Vec<u8>> {
    let mut m4 = M4::new();
    m4.file(Path::new("parmacs.m4"), MACROS, false)?;
    m4.file(file, text, lines)
}

/// A macro: one of m4's own, or text.
#[derive(Clone)]
enum Macro {
    Text(Vec<u8>),
    Builtin(Builtin),
}

#[derive(Clone, Copy, PartialEq)]
enum Builtin {
    Define,
    Undefine,
    Defn,
    Ifdef,
    Ifelse,
    Dnl,
    Divert,
    Include,
    /// `include` that takes a missing file for an empty one.
    Sinclude,
    /// `changequote` or `changecom`.
    Change,
}

const BUILTINS: [(&str, Builtin); 11] = [
    ("define", Builtin::Define),
    ("undefine", Builtin::Undefine),
    ("defn", Builtin::Defn),
    ("ifdef", Builtin::Ifdef),
    ("ifelse", Builtin::Ifelse),
    ("dnl", Builtin::Dnl),
    ("divert", Builtin::Divert),
    ("include", Builtin::Include),
    ("sinclude", Builtin::Sinclude),
    ("changequote", Builtin::Change),
    ("changecom", Builtin::Change),
];

impl Builtin {
    /// Whether the name alone, without arguments, is just a word.
    fn needs_arguments(self) -> bool {
        !matches!(self, Builtin::Dnl | Builtin::Divert | Builtin::Change)
    }
}

/// A file that is being read.
struct Source {
    name: PathBuf,
    text: Vec<u8>,
    at: usize,
    line: u32,
    /// What is to be scanned before the file goes on, last byte first.
    pending: Vec<u8>,
}

/// Where something begins, for messages.
#[derive(Clone)]
struct Place {
    name: PathBuf,
    line: u32,
}

impl Place {
    fn error(&self, what: &str) -> Error {
        Error::new(format!("{}:{}: {what}", self.name.display(), self.line))
    }
}

struct M4 {
    macros: HashMap<Vec<u8>, Macro>,
    /// The innermost included file last.
    sources: Vec<Source>,
    diverted: bool,
    expansions: u64,
}

/// What the input is made of.
enum Token {
    /// Text that is copied, quoted text without its outer quotes among it.
    Text(Vec<u8>),
    Word(Vec<u8>),
    Byte(u8),
}

impl M4 {
    fn new() -> M4 {
        let macros = BUILTINS.iter().map(|(name, b)| (name.as_bytes().to_vec(), Macro::Builtin(*b))).collect();
        M4 { macros, sources: Vec::new(), diverted: false, expansions: 0 }
    }

    /// Expands a whole file.
    fn file(&mut self, name: &Path, text: &[u8], lines: bool) -> Result<Vec<u8>> {
        self.expansions = 0;
        self.open(name, text.to_vec());
        let mut out = LinedText::new(lines);
        let mut place = self.place();
        loop {
            // Behind the end of the source stands what its last macro has left.
            self.leave_read();
            if !self.sources.is_empty() {
                place = self.place();
            }
            let Some(token) = self.token()? else { return Ok(out.finish()) };
            let behind = self.sources.last().map_or(0, |source| source.line);
            let text = match token {
                Token::Word(word) => self.word(word)?,
                Token::Text(text) => Some(text),
                Token::Byte(byte) => Some(vec![byte]),
            };
            if let Some(text) = text.filter(|_| !self.diverted) {
                out.add(&text, (&place.name, place.line), behind > place.line);
            }
        }
    }

    /// Leaves files that have been read to their ends.
    fn leave_read(&mut self) {
        let is_read = |source: &Source| source.pending.is_empty() && source.at >= source.text.len();
        while self.sources.last().is_some_and(is_read) {
            self.sources.pop();
        }
    }

    fn open(&mut self, name: &Path, text: Vec<u8>) {
        self.sources.push(Source { name: name.to_owned(), text, at: 0, line: 1, pending: Vec::new() });
    }

    fn peek(&self) -> Option<u8> {
        self.sources.iter().rev().find_map(|s| s.pending.last().or_else(|| s.text.get(s.at)).copied())
    }

    fn next(&mut self) -> Option<u8> {
        loop {
            let source = self.sources.last_mut()?;
            if let Some(byte) = source.pending.pop() {
                return Some(byte);
            }
            if let Some(&byte) = source.text.get(source.at) {
                source.at += 1;
                source.line += u32::from(byte == b'\n');
                return Some(byte);
            }
            self.sources.pop();
        }
    }

    /// Puts `text` in front of the input.
    fn push(&mut self, text: &[u8], place: &Place) -> Result<()> {
        if self.sources.is_empty() {
            // The call was the last of the file; what it stands for is scanned all the same.
            self.sources.push(Source {
                name: place.name.clone(),
                text: Vec::new(),
                at: 0,
                line: place.line,
                pending: Vec::new(),
            });
        }
        let source = self.sources.last_mut().expect("one was pushed");
        if source.pending.len() + text.len() > MOST_PENDING {
            return Err(place.error("the expansion does not end"));
        }
        source.pending.extend(text.iter().rev());
        Ok(())
    }

    fn place(&self) -> Place {
        let source = self.sources.last();
        Place { name: source.map(|s| s.name.clone()).unwrap_or_default(), line: source.map_or(0, |s| s.line) }
    }

    fn token(&mut self) -> Result<Option<Token>> {
        let mut place = self.place();
        let Some(byte) = self.next() else { return Ok(None) };
        if byte == b'`' {
            return self.quoted(&place).map(|text| Some(Token::Text(text)));
        }
        if byte == b'#' {
            let mut text = vec![byte];
            while let Some(byte) = self.next() {
                text.push(byte);
                if byte == b'\n' {
                    break;
                }
            }
            return Ok(Some(Token::Text(text)));
        }
        if !is_word(byte) || byte.is_ascii_digit() {
            return Ok(Some(Token::Byte(byte)));
        }
        let mut word = vec![byte];
        while let Some(byte) = self.peek().filter(|b| is_word(*b)) {
            self.next();
            word.push(byte);
        }
        place.line = place.line.max(1);
        Ok(Some(Token::Word(word)))
    }

    /// Text up to the quote's end; the opening quote is read.
    fn quoted(&mut self, place: &Place) -> Result<Vec<u8>> {
        let (mut text, mut depth) = (Vec::new(), 1);
        while let Some(byte) = self.next() {
            match byte {
                b'`' => depth += 1,
                b'\'' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(text);
            }
            text.push(byte);
        }
        Err(place.error("a quote (`) that no ' ends"))
    }

    /// What a word leaves in the output: itself if it is no macro. The expansion of a macro goes to the front of the input.
    fn word(&mut self, word: Vec<u8>) -> Result<Option<Vec<u8>>> {
        let Some(found) = self.macros.get(&word).cloned() else { return Ok(Some(word)) };
        let called = self.peek() == Some(b'(');
        if matches!(found, Macro::Builtin(b) if b.needs_arguments()) && !called {
            return Ok(Some(word));
        }
        let place = self.place();
        self.expansions += 1;
        if self.expansions > MOST_EXPANSIONS {
            return Err(place.error("the expansion does not end"));
        }
        let name = String::from_utf8_lossy(&word).into_owned();
        let mut arguments = vec![word];
        if called {
            self.arguments(&mut arguments, &place, &name)?;
        }
        match found {
            Macro::Text(body) => self.push(&substituted(&body, &arguments), &place)?,
            Macro::Builtin(builtin) => self.built_in(builtin, &arguments, &place)?,
        }
        Ok(None)
    }

    /// Appends the arguments of a call whose parenthesis comes next: expanded, without the white space in front of each.
    fn arguments(&mut self, all: &mut Vec<Vec<u8>>, place: &Place, name: &str) -> Result<()> {
        self.next();
        let (mut argument, mut depth, mut begins) = (Vec::new(), 0, true);
        loop {
            let Some(token) = self.token()? else {
                return Err(place.error(&format!("the arguments of {name} do not end")));
            };
            match token {
                Token::Byte(byte) if begins && byte.is_ascii_whitespace() => continue,
                Token::Byte(b')') if depth == 0 => {
                    all.push(argument);
                    return Ok(());
                }
                Token::Byte(b',') if depth == 0 => {
                    all.push(std::mem::take(&mut argument));
                    begins = true;
                    continue;
                }
                Token::Byte(byte) => {
                    depth = match byte {
                        b'(' => depth + 1,
                        b')' => depth - 1,
                        _ => depth,
                    };
                    argument.push(byte);
                }
                Token::Text(text) => argument.extend(text),
                Token::Word(word) => argument.extend(self.word(word)?.unwrap_or_default()),
            }
            begins = false;
        }
    }

    fn built_in(&mut self, builtin: Builtin, arguments: &[Vec<u8>], place: &Place) -> Result<()> {
        let argument = |n: usize| arguments.get(n).map_or(&b""[..], Vec::as_slice);
        match builtin {
            Builtin::Define => {
                self.macros.insert(argument(1).to_vec(), Macro::Text(argument(2).to_vec()));
            }
            Builtin::Undefine => {
                for name in &arguments[1..] {
                    self.macros.remove(name);
                }
            }
            Builtin::Defn => {
                let mut text = Vec::new();
                for name in &arguments[1..] {
                    match self.macros.get(name) {
                        Some(Macro::Text(body)) => text.extend([b"`", body.as_slice(), b"'"].concat()),
                        Some(Macro::Builtin(_)) => return Err(place.error("defn of a macro that m4 has built in")),
                        None => {}
                    }
                }
                self.push(&text, place)?;
            }
            Builtin::Ifdef => {
                let chosen = if self.macros.contains_key(argument(1)) { argument(2) } else { argument(3) };
                self.push(chosen, place)?;
            }
            Builtin::Ifelse => {
                let mut rest = &arguments[1..];
                // One argument is a comment.
                let chosen = loop {
                    match rest {
                        [a, b, yes, ..] if a == b => break yes.as_slice(),
                        [_, _, _, no] => break no.as_slice(),
                        [_, _, _, more @ ..] if more.len() >= 2 => rest = more,
                        _ => break b"",
                    }
                };
                self.push(chosen, place)?;
            }
            Builtin::Dnl => while self.next().is_some_and(|byte| byte != b'\n') {},
            Builtin::Divert => {
                let number = String::from_utf8_lossy(argument(1)).trim().parse::<i64>();
                self.diverted = match (argument(1).is_empty(), number) {
                    (true, _) | (false, Ok(0)) => false,
                    (false, Ok(number)) if number < 0 => true,
                    _ => return Err(place.error("divert: only 0 and numbers below are done here; m4 does others")),
                };
            }
            Builtin::Include | Builtin::Sinclude => self.include(argument(1), builtin == Builtin::Include, place)?,
            Builtin::Change => {
                return Err(place.error("changequote and changecom are not done here; m4 does them"));
            }
        }
        Ok(())
    }

    /// Reads a file from the current folder, or from that of the file that includes it.
    fn include(&mut self, name: &[u8], must: bool, place: &Place) -> Result<()> {
        let name = PathBuf::from(String::from_utf8_lossy(name).into_owned());
        let beside = place.name.parent().unwrap_or(Path::new("")).join(&name);
        if self.sources.len() > MOST_INCLUDES {
            return Err(place.error("files that include one another without end"));
        }
        let read = |path: &PathBuf| std::fs::read(path).map(|text| (path.clone(), text));
        match read(&name).or_else(|_| read(&beside)) {
            Ok((path, text)) => self.open(&path, text),
            Err(e) if must => {
                return Err(place.error(&format!("cannot include {}", name.display())).because(e));
            }
            Err(_) => {}
        }
        Ok(())
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A macro's text with `$0` to `$9` and more, `$#`, `$*` and `$@` replaced.
fn substituted(body: &[u8], arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = body;
    while let Some(at) = rest.iter().position(|b| *b == b'$') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let given = &arguments[1..];
        match rest.first() {
            Some(b'0'..=b'9') => {
                let number = String::from_utf8_lossy(&rest[..digits]).parse::<usize>().unwrap_or(usize::MAX);
                out.extend(arguments.get(number).map_or(&b""[..], Vec::as_slice));
                rest = &rest[digits..];
                continue;
            }
            Some(b'#') => out.extend(given.len().to_string().bytes()),
            Some(b'*') => out.extend(given.join(&b","[..])),
            Some(b'@') => {
                let quoted: Vec<Vec<u8>> = given.iter().map(|a| [b"`", a.as_slice(), b"'"].concat()).collect();
                out.extend(quoted.join(&b","[..]));
            }
            _ => {
                out.push(b'$');
                continue;
            }
        }
        rest = &rest[1..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> String {
        String::from_utf8(expand(Path::new("p.C"), text.as_bytes(), false).unwrap()).unwrap()
    }

    #[test]
    fn macros_expand_with_their_arguments() {
        assert_eq!(expanded("LOCK(a)\n"), "{bz_lock(a);}\n");
        assert_eq!(expanded("ALOCK(g->locks, f(1, (2)))\n"), "{bz_lock((g->locks)[f(1, (2))]);}\n");
        assert_eq!(expanded("BARRIER(g->b,\n   n)"), "{bz_barrier_wait((g->b), (unsigned)(n));}");
        assert_eq!(expanded("p = G_MALLOC(sizeof(*p) * (n + 1))"), "p = bz_alloc(sizeof(*p) * (n + 1));");
        assert_eq!(expanded("PAUSEDEC(a) PAUSEDEC(b, 3)"), "bz_event_t *(a); bz_event_t *(b)[3];");
        assert_eq!(
            expanded("CREATE(f) CREATE(f, 2)"),
            "{bz_create((void (*)(void))(f));} {bz_parmacs_create((void (*)(void))(f), (2)); f();}"
        );
        assert_eq!(expanded("MAIN_ENV int x;"), "\n#include <blizzard_parmacs.h>\n int x;");
        // Without parentheses too.
        assert_eq!(expanded("MAIN_END\n"), "{exit(0);}\n");
    }

    #[test]
    fn nothing_is_expanded_inside_words_comments_and_quotes() {
        assert_eq!(expanded("UNLOCKED LOCK_A _LOCK LOCK2 2LOCK"), "UNLOCKED LOCK_A _LOCK LOCK2 2{bz_lock();}");
        assert_eq!(expanded("#define MAIN_END LOCK(a)\nMAIN_END"), "#define MAIN_END LOCK(a)\n{exit(0);}");
        assert_eq!(expanded("`LOCK(a)' ``x''"), "LOCK(a) `x'");
        assert_eq!(expanded("LOCK(`a,b')"), "{bz_lock(a,b);}");
        assert_eq!(expanded("index(1) len eval(a) define x"), "index(1) len eval(a) define x");
    }

    #[test]
    fn programs_define_macros_of_their_own() {
        assert_eq!(expanded("define(TWICE, `$1 + $1')dnl gone\nTWICE(TWICE(x)) $#"), "x + x + x + x $#");
        assert_eq!(expanded("define(`ALL', `$#: $* $@ $10')ALL(a, `b,c')"), "2: a,b,c a,b,c ");
        assert_eq!(expanded("define(`L', defn(`LOCK'))L(a)undefine(`L')L(a)"), "{bz_lock(a);}L(a)");
        assert_eq!(expanded("ifdef(`LOCK', yes, no) ifelse(a, b, 1, c, c, 2, 3) ifelse(a, b, 1)"), "yes 2 ");
        assert_eq!(expanded("divert(-1)gone divert(0)stays"), "stays");
        // An expansion and what follows it are one word.
        assert_eq!(expanded("define(`A', `LO')A()CK(a)"), "{bz_lock(a);}");
    }

    #[test]
    fn lines_are_those_of_the_source() {
        let lined = |text: &str| String::from_utf8(expand(Path::new("p.C"), text.as_bytes(), true).unwrap()).unwrap();
        let head = "#line 1 \"p.C\"\n";
        assert_eq!(lined("int x;\n/* a\nb */ LOCK(a)\n"), format!("{head}int x;\n/* a\nb */ {{bz_lock(a);}}\n"));
        assert_eq!(
            lined("MAIN_ENV\nint x;\n"),
            format!("{head}\n#line 1\n#include <blizzard_parmacs.h>\n#line 1\n\nint x;\n")
        );
        // A call of several lines, and text that goes away.
        assert_eq!(lined("BARRIER(b,\n  n)\nx\n"), "#line 2 \"p.C\"\n{bz_barrier_wait((b), (unsigned)(n));}\nx\n");
        assert_eq!(lined("dnl gone\nx\n`a\nb'\ny"), "#line 2 \"p.C\"\nx\na\nb\ny");
        assert_eq!(lined("x LOCK(a)"), format!("{head}x {{bz_lock(a);}}"));
    }

    #[test]
    fn errors_name_file_and_line() {
        for (text, line, part) in [
            ("int x;\nLOCK(a\n", 2, "the arguments of LOCK do not end"),
            ("\n\n`open", 3, "a quote (`) that no ' ends"),
            ("define(`x', `x')\nx", 2, "the expansion does not end"),
            ("define(`x', `x x')\nx", 2, "the expansion does not end"),
            ("include(`nowhere.h')", 1, "cannot include nowhere.h"),
            ("\nchangequote([,])", 2, "changequote"),
            ("divert(3)", 1, "divert"),
        ] {
            let error = expand(Path::new("d/p.C"), text.as_bytes(), true).unwrap_err().to_string();
            assert!(error.starts_with(&format!("d/p.C:{line}: ")) && error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn files_are_included_from_the_folder_of_their_includer() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("defs.h"), "LOCKDEC(a)\n").unwrap();
        let main = folder.path().join("p.C");
        assert_eq!(expand(&main, b"include(`defs.h')sinclude(`none')x", false).unwrap(), b"bz_lock_t *(a);\nx");
        let lined = String::from_utf8(expand(&main, b"\ninclude(`defs.h')x\ny", true).unwrap()).unwrap();
        let [main, defs] = [main, folder.path().join("defs.h")].map(|path| path.display().to_string());
        assert_eq!(
            lined,
            format!("#line 1 \"{main}\"\n\n#line 1 \"{defs}\"\nbz_lock_t *(a);\n#line 2 \"{main}\"\nx\ny")
        );
    }
}
