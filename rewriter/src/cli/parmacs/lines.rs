//! The expanded text with the lines of the source: compilers and debuggers name what the user has written.
//!
//! Input: pieces of text, each with the place in the source that it stands for. Output: the text, with `#line` in front of a line that the compiler would
//! otherwise take for another one. **Invariant**: without the lines that begin with `#line` the text is that of the pieces. None stands where the compiler would
//! not see it, or where it would end a line that goes on: in a comment, and behind a backslash.
//!
//! Source: ISO C 2011, 5.1.1.2 (phases of translation), 6.10.4 (line control).

use std::path::{Path, PathBuf};

/// Where a byte stands as C reads it.
#[derive(Clone, Copy, PartialEq)]
enum InC {
    Code,
    /// Behind a slash that is not yet a comment's.
    Slash,
    Comment,
    /// Behind an asterisk in a comment.
    Star,
    LineComment,
    /// Between quotation marks, of strings or of characters.
    Quoted(u8),
    /// Behind a backslash there.
    Escaped(u8),
}

/// The text so far.
pub struct LinedText {
    text: Vec<u8>,
    /// Whether the lines of the source are wanted.
    is_wanted: bool,
    /// What the compiler takes the current line for.
    file: PathBuf,
    line: u32,
    state: InC,
    begins: bool,
}

impl LinedText {
    /// Nothing. `is_wanted`: whether the lines of the source are.
    pub fn new(is_wanted: bool) -> LinedText {
        LinedText { text: Vec::new(), is_wanted, file: PathBuf::new(), line: 0, state: InC::Code, begins: true }
    }

    pub fn finish(self) -> Vec<u8> {
        self.text
    }

    /// Appends text that begins in a line of a file. `goes_on`: it is the source's own, so that each line in it is the source's next one.
    pub fn add(&mut self, text: &[u8], (file, mut line): (&Path, u32), goes_on: bool) {
        if !self.is_wanted {
            return self.text.extend_from_slice(text);
        }
        for &byte in text {
            if std::mem::replace(&mut self.begins, false) {
                self.tell(file, line);
            }
            self.text.push(byte);
            self.state = self.state.behind(byte);
            if byte == b'\n' {
                self.begins = true;
                self.line += 1;
                line += u32::from(goes_on);
            }
        }
    }

    fn tell(&mut self, file: &Path, line: u32) {
        let is_known = self.line == line && self.file == file;
        let is_seen = !matches!(self.state, InC::Comment | InC::Star) && !self.text.ends_with(b"\\\n");
        if is_known || !is_seen {
            return;
        }
        let mut directive = format!("#line {line}").into_bytes();
        if self.file != file {
            directive.extend(b" \"");
            for &byte in file.as_os_str().as_encoded_bytes() {
                directive.extend(matches!(byte, b'"' | b'\\').then_some(b'\\'));
                directive.push(byte);
            }
            directive.push(b'"');
        }
        directive.push(b'\n');
        self.text.extend(directive);
        (self.file, self.line) = (file.to_owned(), line);
    }
}

impl InC {
    fn behind(self, byte: u8) -> InC {
        match (self, byte) {
            (InC::Comment | InC::Star, b'*') => InC::Star,
            (InC::Star, b'/') => InC::Code,
            (InC::Comment | InC::Star, _) => InC::Comment,
            (InC::Quoted(mark), b'\\') => InC::Escaped(mark),
            (InC::Escaped(mark), _) => InC::Quoted(mark),
            // No string goes on in the next line.
            (_, b'\n') => InC::Code,
            (InC::LineComment, _) => InC::LineComment,
            (InC::Quoted(mark), _) if byte != mark => InC::Quoted(mark),
            (InC::Quoted(_), _) => InC::Code,
            (InC::Slash, b'/') => InC::LineComment,
            (InC::Slash, b'*') => InC::Comment,
            (_, b'/') => InC::Slash,
            (_, b'"' | b'\'') => InC::Quoted(byte),
            _ => InC::Code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces, in lines of the file `f`, with the lines told.
    fn told(pieces: &[(&str, u32, bool)]) -> String {
        let mut all = LinedText::new(true);
        for (text, line, goes_on) in pieces {
            all.add(text.as_bytes(), (Path::new("f"), *line), *goes_on);
        }
        String::from_utf8(all.finish()).unwrap()
    }

    #[test]
    fn a_line_that_the_compiler_would_miss_is_told() {
        assert_eq!(told(&[("a\nb\n", 1, true), ("c\n", 3, true)]), "#line 1 \"f\"\na\nb\nc\n");
        assert_eq!(told(&[("a\n", 1, true), ("c\n", 3, true)]), "#line 1 \"f\"\na\n#line 3\nc\n");
        // What a macro stands for is all in one line of the source.
        let macros = told(&[("\nx\n", 1, false), ("\ny\n", 1, true)]);
        assert_eq!(macros, "#line 1 \"f\"\n\n#line 1\nx\n#line 1\n\ny\n");
    }

    #[test]
    fn nothing_is_told_where_it_would_not_be_seen() {
        assert_eq!(
            told(&[("/* a\n", 1, true), ("b */\n", 5, true), ("c", 6, true)]),
            "#line 1 \"f\"\n/* a\nb */\n#line 6\nc"
        );
        assert_eq!(
            told(&[("#define A \\\n", 1, true), ("b\n", 5, true), ("c", 6, true)]),
            "#line 1 \"f\"\n#define A \\\nb\n#line 6\nc"
        );
        // These are no comments.
        for text in ["\"/*\"\n", "'\\'' '\"' / *\n", "a / b // c /* d\n", "\"\\\"/*\"\n", "/**/ /***/\n"] {
            assert!(told(&[(text, 1, true), ("c", 9, true)]).ends_with("#line 9\nc"), "{text}");
        }
    }

    #[test]
    fn names_of_files_are_strings() {
        let mut all = LinedText::new(true);
        all.add(b"x", (Path::new("a\"b\\c"), 1), true);
        assert_eq!(all.finish(), b"#line 1 \"a\\\"b\\\\c\"\nx");
        let mut all = LinedText::new(false);
        all.add(b"x\n", (Path::new("f"), 7), true);
        assert_eq!(all.finish(), b"x\n");
    }
}
