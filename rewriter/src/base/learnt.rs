//! What runs have learnt: which accesses faulted because plain code does not test them, and how often.
//!
//! Input: text, or what nodes have counted. Output: [`Knowledge`], and the same text for the same knowledge.
//!
//! ```text
//! blizzard-learnt 1
//! object 41d0c8f2ab37e190 em3d
//! 1a40 3
//! 1a4c 1
//! ```
//! The first line is the version. An object is a file before it was rewritten: the first 16 digits of its SHA-256, and a name for readers. Behind it stands a line
//! for each access: its address there, hexadecimal, and its faults. Objects ascend by their digits, accesses by their addresses.
//! **Invariant**: knowledge says where tests pay and nothing else. Whatever it says, an output is right.

use crate::base::addresses::Vaddr;
use crate::base::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;

/// The first line.
const VERSION: &str = "blizzard-learnt 1";
/// A name of an object is for readers: whatever a file is called, it stays in its line.
const LONGEST_NAME: usize = 255;

/// Tells apart the files that are rewritten: the first eight bytes of the SHA-256 of their contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object(pub [u8; 8]);

impl Object {
    /// The object with these contents.
    pub fn of(file: &[u8]) -> Object {
        let hash = Sha256::digest(file);
        Object(std::array::from_fn(|k| hash[k]))
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// How often accesses of one object have faulted, by their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearntSites {
    pub name: String,
    faults: BTreeMap<Vaddr, u64>,
}

impl LearntSites {
    /// Nothing has been learnt.
    pub const NONE: &'static LearntSites = &LearntSites { name: String::new(), faults: BTreeMap::new() };

    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.faults.len()
    }

    pub fn addresses(&self) -> impl Iterator<Item = Vaddr> + '_ {
        self.faults.keys().copied()
    }

    /// Address and faults, ascending.
    pub fn all(&self) -> impl Iterator<Item = (Vaddr, u64)> + '_ {
        self.faults.iter().map(|(&at, &faults)| (at, faults))
    }

    /// A word for names: equal where the same accesses are known, however often they have faulted.
    pub fn word(&self) -> Vec<u8> {
        self.addresses().flat_map(|at| at.0.to_le_bytes()).collect()
    }
}

/// What is known of some objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Knowledge(BTreeMap<Object, LearntSites>);

impl Knowledge {
    /// Reads the text; `path` is used in messages.
    ///
    /// # Errors
    /// The first line that is wrong, with its number.
    pub fn parse(text: &str, path: &Path) -> Result<Knowledge> {
        let mut knowledge = Knowledge::default();
        let wrong = |number: usize, why: &str| {
            Error::new(format!("{}:{number}: {why}", path.display())).help("such files are written by `blizzard learn`")
        };
        let mut lines = (1..).zip(text.lines());
        match lines.next() {
            Some((_, VERSION)) => {}
            Some((_, line)) if line.starts_with("blizzard-learnt ") => {
                return Err(wrong(1, &format!("is of another version: `{VERSION}` is needed")));
            }
            _ => return Err(wrong(1, &format!("`{VERSION}` is needed"))),
        }
        let mut at: Option<Object> = None;
        for (number, line) in lines {
            if let Some(rest) = line.strip_prefix("object ") {
                let (digits, name) = rest.split_once(' ').unwrap_or((rest, ""));
                let object =
                    object(digits).ok_or_else(|| wrong(number, "16 hexadecimal digits and a name are needed"))?;
                if at.is_some_and(|before| before >= object) {
                    return Err(wrong(number, "objects do not ascend"));
                }
                knowledge.0.insert(object, LearntSites { name: name.to_owned(), ..LearntSites::default() });
                at = Some(object);
                continue;
            }
            let site = line.split_once(' ').and_then(|(at, faults)| {
                Some((Vaddr(hexadecimal(at)?), faults.parse::<u64>().ok().filter(|faults| *faults > 0)?))
            });
            let (address, faults) =
                site.ok_or_else(|| wrong(number, "an address and a number of faults are needed"))?;
            let sites = at.and_then(|object| knowledge.0.get_mut(&object));
            let sites = sites.ok_or_else(|| wrong(number, "no object stands in front of it"))?;
            if sites.faults.last_key_value().is_some_and(|last| *last.0 >= address) {
                return Err(wrong(number, "addresses do not ascend"));
            }
            sites.faults.insert(address, faults);
        }
        Ok(knowledge)
    }

    /// The text, which [`Knowledge::parse`] reads.
    pub fn text(&self) -> String {
        let mut text = format!("{VERSION}\n");
        for (object, sites) in self.0.iter().filter(|o| !o.1.is_empty()) {
            let name: String = sites.name.chars().filter(|c| !c.is_control()).take(LONGEST_NAME).collect();
            writeln!(text, "object {object} {name}").expect("writing to a string cannot fail");
            for (at, faults) in sites.all() {
                writeln!(text, "{:x} {faults}", at.0).expect("writing to a string cannot fail");
            }
        }
        text
    }

    /// What is known of an object.
    pub fn of(&self, object: Object) -> &LearntSites {
        self.0.get(&object).unwrap_or(LearntSites::NONE)
    }

    pub fn all(&self) -> impl Iterator<Item = (Object, &LearntSites)> {
        self.0.iter().map(|(&object, sites)| (object, sites))
    }

    pub fn is_empty(&self) -> bool {
        self.0.values().all(LearntSites::is_empty)
    }

    /// The accesses of all objects but one, without how often they have faulted: equal for whoever knows of the same.
    pub fn accesses_but_of(&self, object: Object) -> Knowledge {
        let mut accesses = Knowledge::default();
        for (other, sites) in self.all().filter(|other| other.0 != object) {
            sites.addresses().for_each(|at| accesses.add(other, &sites.name, at, 1));
        }
        accesses
    }

    /// Adds faults of an access.
    pub fn add(&mut self, object: Object, name: &str, at: Vaddr, faults: u64) {
        let sites = self.0.entry(object).or_default();
        if sites.name.is_empty() {
            name.clone_into(&mut sites.name);
        }
        let count = sites.faults.entry(at).or_default();
        *count = count.saturating_add(faults);
    }

    /// Knows all that another one knows: of each access the larger number of faults. For what may have been counted by both.
    pub fn include(&mut self, other: &Knowledge) {
        for (object, sites) in other.all() {
            for (at, faults) in sites.all() {
                let known = self.of(object).faults.get(&at).copied().unwrap_or(0);
                self.add(object, &sites.name, at, faults.saturating_sub(known));
            }
        }
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: &Knowledge) {
        for (object, sites) in other.all() {
            sites.all().for_each(|(at, faults)| self.add(object, &sites.name, at, faults));
        }
    }
}

fn object(digits: &str) -> Option<Object> {
    (digits.len() == 16).then(|| hexadecimal(digits)).flatten().map(|number| Object(number.to_be_bytes()))
}

/// A number as [`Knowledge::text`] writes it: no sign, no upper case.
fn hexadecimal(digits: &str) -> Option<u64> {
    let right = digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    right.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "blizzard-learnt 1\nobject 0011223344556677 em3d of mine\n1a40 3\n1a4c 1\nobject ff00000000000000 libc.so.6\n20 18446744073709551615\n";

    fn parse(text: &str) -> Result<Knowledge> {
        Knowledge::parse(text, Path::new("k"))
    }

    #[test]
    fn the_text_leads_back_to_itself() {
        let knowledge = parse(TEXT).unwrap();
        assert_eq!(knowledge.text(), TEXT);
        let sites = knowledge.of(Object([0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77]));
        assert_eq!(sites.all().collect::<Vec<_>>(), [(Vaddr(0x1a40), 3), (Vaddr(0x1a4c), 1)]);
        assert!(knowledge.of(Object([9; 8])).is_empty());
    }

    #[test]
    fn what_both_have_counted_is_included_once() {
        let mut known = parse("blizzard-learnt 1\nobject 0011223344556677 em3d\n1a40 9\n1a4c 1\n").unwrap();
        known.include(&parse(TEXT).unwrap());
        let sites = known.of(Object([0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77]));
        assert_eq!(sites.all().collect::<Vec<_>>(), [(Vaddr(0x1a40), 9), (Vaddr(0x1a4c), 1)]);
        assert_eq!(known.of(Object([0xff, 0, 0, 0, 0, 0, 0, 0])).all().collect::<Vec<_>>(), [(Vaddr(0x20), u64::MAX)]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, why) in [
            ("", 1, "blizzard-learnt 1"),
            ("blizzard-learnt 2\n", 1, "another version"),
            ("object 0011223344556677 p\n", 1, "is needed"),
            ("blizzard-learnt 1\n1a40 3\n", 2, "no object"),
            ("blizzard-learnt 1\nobject 00112233 p\n", 2, "16 hexadecimal digits"),
            ("blizzard-learnt 1\nobject 0011223344556677 p\n1a40\n", 3, "an address and"),
            ("blizzard-learnt 1\nobject 0011223344556677 p\n1a40 0\n", 3, "an address and"),
            ("blizzard-learnt 1\nobject 0011223344556677 p\n+1a40 1\n", 3, "an address and"),
            ("blizzard-learnt 1\nobject 0011223344556677 p\n1a40 3\n1a40 3\n", 4, "do not ascend"),
            ("blizzard-learnt 1\nobject 0011223344556677 p\n1a40 3\n\n", 4, "an address and"),
            ("blizzard-learnt 1\nobject 0011223344556677 p\nobject 0011223344556677 p\n", 3, "do not ascend"),
        ] {
            let error = parse(text).expect_err(text).what;
            assert!(error.starts_with(&format!("k:{line}: ")) && error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn knowledge_adds_up_whatever_comes_first() {
        let (a, b) = (Object([1; 8]), Object([2; 8]));
        let mut all = Knowledge::default();
        all.add(b, "b", Vaddr(9), u64::MAX);
        all.add(a, "a\nx", Vaddr(7), 2);
        let mut other = Knowledge::default();
        other.add(a, "a\nx", Vaddr(7), 1);
        other.merge(&all);
        all.add(a, "", Vaddr(7), 1);
        assert_eq!(all.text(), other.text());
        assert_eq!(parse(&all.text()).unwrap().text(), all.text());
        assert!(all.text().contains("7 3\n"));
        assert_eq!(all.of(a).word(), 7u64.to_le_bytes());
    }
}
