//! The text of `--attr`: a rule a line.
//!
//! Input: the file, the number of nodes. Output: [`AttributeRules`], or what is wrong with a line. **Invariant**: no two rules are for the same site.
//!
//! ```text
//! # a comment
//! grid.c:120        block=4096 homes=first-touch
//! Grid::make        protocol=mcm
//! alloc 3           homes=node:1
//! ```

use crate::base::error::{Error, Result};
use blizzard_contract::{AllocRule, BLOCK_BYTES, BLOCK_MAX_BYTES, MAX_NODES, alloc_homes};
use blizzard_protocol::list::{self, OPERATION_SHIFT};
use blizzard_protocol::operation::{Combine, Element, Operation};
use blizzard_protocol::port::ProtocolId;
use std::path::Path;

/// Which allocations a rule is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllocSite {
    /// A path's end, and a line.
    Line(String, u32),
    Function(String),
    /// Each node's allocation of that number.
    Order(u64),
}

/// A line of the file.
#[derive(Debug, Clone)]
pub struct AttributeRule {
    pub line: usize,
    /// The site, as it is written.
    pub text: String,
    pub site: AllocSite,
    /// As it is written.
    pub attributes: String,
    pub row: AllocRule,
}

/// The whole file.
#[derive(Debug, Clone)]
pub struct AttributeRules {
    pub file: String,
    pub rules: Vec<AttributeRule>,
}

const ATTRIBUTES: [&str; 3] = ["block", "homes", "protocol"];
/// What `homes` can be, apart from `node:N`.
const HOMES: [(&str, u32); 3] = [
    ("round-robin", alloc_homes::ROUND_ROBIN),
    ("first-touch", alloc_homes::FIRST_TOUCH),
    ("slices", alloc_homes::SLICES),
];

impl AttributeRules {
    /// Reads the file, for a run of so many nodes if that is known.
    ///
    /// # Errors
    /// It cannot be read, or a line of it is none.
    pub fn read(path: &Path, nodes: Option<u32>) -> Result<AttributeRules> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| {
            let why = match e.kind() {
                std::io::ErrorKind::InvalidData => "it is no text; `--attr FILE` takes rules, one a line".to_owned(),
                _ => e.to_string(),
            };
            Error::new(format!("--attr: cannot read {file}: {why}"))
        })?;
        AttributeRules::parse(file, &text, nodes)
    }

    fn parse(file: String, text: &str, nodes: Option<u32>) -> Result<AttributeRules> {
        let mut all = AttributeRules { file, rules: Vec::new() };
        for (line, text) in (1..).zip(text.lines()) {
            let rule = rule(line, without_comment(text)).map_err(|what| all.error(line, what))?;
            let Some(rule) = rule else { continue };
            if let Some(other) = all.rules.iter().find(|other| other.site == rule.site) {
                return Err(all.error(line, format!("{} has a rule already, in line {}", rule.text, other.line)));
            }
            all.rules.push(rule);
        }
        nodes.map_or(Ok(()), |nodes| all.fit(nodes))?;
        Ok(all)
    }

    /// Looks whether a run of so many nodes has all homes.
    ///
    /// # Errors
    /// It has not.
    pub fn fit(&self, nodes: u32) -> Result<()> {
        let is_missing = |rule: &&AttributeRule| rule.row.homes == alloc_homes::NODE && rule.row.node >= nodes;
        match self.rules.iter().find(is_missing) {
            None => Ok(()),
            Some(AttributeRule { line, row, .. }) => {
                Err(self.error(*line, format!("homes=node:{}: the run has {nodes} node(s), numbered from 0", row.node)))
            }
        }
    }

    /// The farthest home, and what to say if there is no such node.
    pub fn farthest(&self) -> Option<(u32, Error)> {
        let homes = self.rules.iter().filter(|rule| rule.row.homes == alloc_homes::NODE);
        let AttributeRule { line, row, .. } = homes.max_by_key(|rule| rule.row.node)?;
        Some((row.node, self.error(*line, format!("homes=node:{}: the run has fewer nodes", row.node))))
    }

    /// What is wrong with a line.
    pub fn error(&self, line: usize, what: impl std::fmt::Display) -> Error {
        Error::new(format!("{}:{line}: {what}", self.file))
    }
}

/// A comment begins a line, or follows a space: names of functions have `#`, too.
fn without_comment(text: &str) -> &str {
    let begins = |&(at, _): &(usize, &str)| at == 0 || text[..at].ends_with(char::is_whitespace);
    let comment = text.match_indices('#').find(begins);
    text[..comment.map_or(text.len(), |(at, _)| at)].trim()
}

/// The word is `NAME=VALUE`; in front of the first such word is the site, which may have spaces.
fn attribute(word: &str) -> Option<(&str, &str)> {
    let is_word =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    word.split_once('=').filter(|(name, _)| is_word(name))
}

fn rule(line: usize, text: &str) -> std::result::Result<Option<AttributeRule>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let sites = words.iter().position(|word| attribute(word).is_some()).unwrap_or(words.len());
    let name = words[..sites].join(" ");
    if name.is_empty() {
        return Err(format!("{text}: no site stands in front of the attributes: FILE:LINE, FUNCTION or `alloc N`"));
    }
    if sites == words.len() {
        return Err(format!("{name} has no attributes: block=BYTES, homes=POLICY or protocol=NAME"));
    }
    let mut row = AllocRule::default();
    for word in &words[sites..] {
        let Some((name, value)) = attribute(word) else {
            return Err(format!("{word} is no attribute: block=BYTES, homes=POLICY or protocol=NAME"));
        };
        set(&mut row, name, value)?;
    }
    let site = site(&name)?;
    if let AllocSite::Order(nth) = site {
        row.nth = nth;
    }
    Ok(Some(AttributeRule { line, text: name, site, attributes: words[sites..].join(" "), row }))
}

fn site(name: &str) -> std::result::Result<AllocSite, String> {
    if let Some(number) = name.strip_prefix("alloc ") {
        let number = number.parse().ok().filter(|&number| number > 0);
        return number
            .map(AllocSite::Order)
            .ok_or_else(|| format!("{name}: allocations are numbered from 1: `alloc 3`"));
    }
    let line = name.rsplit_once(':').filter(|(file, _)| !file.is_empty() && !file.ends_with(':'));
    Ok(match line.and_then(|(file, line)| Some((file, line.parse().ok()?))) {
        Some((file, line)) => AllocSite::Line(file.trim_start_matches("./").to_owned(), line),
        None => AllocSite::Function(name.to_owned()),
    })
}

/// Sets an attribute that has not been set.
fn set(row: &mut AllocRule, name: &str, value: &str) -> std::result::Result<(), String> {
    let twice = || Err(format!("{name} is given twice"));
    let near =
        |all: &[&str]| nearest(value, all.iter().copied()).map_or(String::new(), |near| format!(" (is {near} meant?)"));
    match name {
        "block" if row.block_bytes != 0 => twice(),
        "block" => {
            let fits =
                |bytes: &u32| bytes.is_power_of_two() && (BLOCK_BYTES..=BLOCK_MAX_BYTES).contains(&u64::from(*bytes));
            let bytes = value.parse().ok().filter(fits);
            row.block_bytes =
                bytes.ok_or_else(|| format!("block={value}: 64, 128, 256, 512, 1024, 2048 or 4096 is needed"))?;
            Ok(())
        }
        "homes" if row.homes != 0 => twice(),
        "homes" => {
            let node = value.strip_prefix("node:").and_then(|node| node.parse::<u32>().ok());
            (row.homes, row.node) = match (HOMES.iter().find(|(name, _)| *name == value), node) {
                (Some((_, homes)), _) => (*homes, 0),
                (None, Some(node)) if (node as usize) < MAX_NODES => (alloc_homes::NODE, node),
                (None, Some(_)) => return Err(format!("homes={value}: a run has at most {MAX_NODES} nodes")),
                (None, None) => {
                    let names = HOMES.map(|(name, _)| name);
                    return Err(format!("homes={value}: {} or node:N is needed{}", names.join(", "), near(&names)));
                }
            };
            Ok(())
        }
        "protocol" if row.protocol != 0 => twice(),
        "protocol" => {
            let with_operations = || list::ALL.into_iter().filter(|protocol| protocol.has_operations());
            let name = value.split(':').next().unwrap_or_default();
            if let Some(protocol) = with_operations().find(|protocol| protocol.name() == name) {
                row.protocol = reduction(protocol, value)?;
                return Ok(());
            }
            let plain = || list::ALL.into_iter().filter(|protocol| !protocol.has_operations());
            let names = plain().map(ProtocolId::name);
            let forms: Vec<String> = names
                .clone()
                .map(str::to_owned)
                .chain(with_operations().map(|p| format!("{}:OPERATION:TYPE", p.name())))
                .collect();
            let names: Vec<&str> = names.chain(with_operations().map(ProtocolId::name)).collect();
            let found = plain().find(|protocol| protocol.name() == value);
            let unknown = || format!("protocol={value}: there are {}{}", forms.join(", "), near(&names));
            row.protocol = found.ok_or_else(unknown)?.number();
            Ok(())
        }
        _ => {
            let near = nearest(name, ATTRIBUTES).map_or(String::new(), |near| format!(" (is {near} meant?)"));
            Err(format!("{name} is no attribute: there are {}{near}", ATTRIBUTES.join(", ")))
        }
    }
}

/// The number of that protocol with an operation, written `reduce:OPERATION:TYPE`.
fn reduction(protocol: ProtocolId, value: &str) -> std::result::Result<u32, String> {
    let parts: Vec<&str> = value.split(':').collect();
    let [_, operation, of] = parts[..] else {
        let name = protocol.name();
        return Err(format!("protocol={value}: {name}:OPERATION:TYPE is needed, as in {name}:sum:f64"));
    };
    let (operations, types) = (Combine::ALL.map(|(name, _)| name), Element::ALL.map(|(name, _)| name));
    let unknown = |what: &str, name: &str, all: &[&str]| {
        let near = nearest(name, all.iter().copied()).map_or(String::new(), |near| format!(" (is {near} meant?)"));
        format!("protocol={value}: there is no {what} {name}: there are {}{near}", all.join(", "))
    };
    let Some(&(_, combine)) = Combine::ALL.iter().find(|(name, _)| *name == operation) else {
        return Err(unknown("operation", operation, &operations));
    };
    let Some(&(_, of)) = Element::ALL.iter().find(|(name, _)| *name == of) else {
        return Err(unknown("type", of, &types));
    };
    let operation = Operation::new(combine, of);
    let operation = operation.ok_or_else(|| format!("protocol={value}: floats have no bitwise or"))?;
    Ok(protocol.number() | operation.number() << OPERATION_SHIFT)
}

/// The name that is most like `name`, if one is at all.
pub fn nearest<'a>(name: &str, all: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |other: &str| strsim::normalized_damerau_levenshtein(name, other);
    let rated = all.into_iter().map(|other| (likeness(other), other)).filter(|(likeness, _)| *likeness > 0.4);
    rated.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> std::result::Result<Vec<AttributeRule>, String> {
        AttributeRules::parse("r".into(), text, Some(2)).map(|rules| rules.rules).map_err(|error| error.to_string())
    }

    #[test]
    fn sites_are_lines_functions_and_numbers() {
        let text = "# all\n\n src/a.c:12 block=4096 homes=node:1 # why\nGrid::make(unsigned long) protocol=mcm\nalloc 3 homes=first-touch\n{lambda(int)#1} block=64\na::b block=64\n./x.c:7 block=64";
        let rules = parsed(text).unwrap();
        let sites: Vec<AllocSite> = rules.iter().map(|rule| rule.site.clone()).collect();
        let function = |name: &str| AllocSite::Function(name.into());
        let line = |file: &str, line| AllocSite::Line(file.into(), line);
        let expected = [
            line("src/a.c", 12),
            function("Grid::make(unsigned long)"),
            AllocSite::Order(3),
            function("{lambda(int)#1}"),
            function("a::b"),
            line("x.c", 7),
        ];
        assert_eq!(sites, expected);
        let row = AllocRule { block_bytes: 4096, homes: alloc_homes::NODE, node: 1, ..AllocRule::default() };
        assert_eq!((rules[0].row, rules[0].line, rules[2].row.nth), (row, 3, 3));
        let number = parsed("f protocol=update").unwrap()[0].row.protocol;
        assert_eq!(ProtocolId::chosen(number).unwrap().0.name(), "update");
        let number = parsed("f protocol=reduce:max:i32").unwrap()[0].row.protocol;
        let (protocol, operation) = ProtocolId::chosen(number).unwrap();
        assert_eq!((protocol.name(), operation), ("reduce", Operation::new(Combine::Max, Element::I32)));
    }

    #[test]
    fn each_wrong_line_is_told_with_its_place() {
        for (text, expected) in [
            ("f blok=64", "r:1: blok is no attribute: there are block, homes, protocol (is block meant?)"),
            ("f block=100", "r:1: block=100: 64, 128, 256, 512, 1024, 2048 or 4096 is needed"),
            ("\nf block=8192", "r:2: block=8192: 64, 128, 256, 512, 1024, 2048 or 4096 is needed"),
            ("f homes=node:2", "r:1: homes=node:2: the run has 2 node(s), numbered from 0"),
            ("f homes=node:1024", "r:1: homes=node:1024: a run has at most 1024 nodes"),
            ("f protocol=stach", "(is stache meant?)"),
            (
                "f protocol=reduce:sun:f64",
                "r:1: protocol=reduce:sun:f64: there is no operation sun: there are sum, min, max, or (is sum meant?)",
            ),
            (
                "\nf protocol=reduce:sum:f46",
                "r:2: protocol=reduce:sum:f46: there is no type f46: there are u32, i32, u64, i64, f32, f64 (is f64 meant?)",
            ),
            ("f protocol=reduce:or:f64", "r:1: protocol=reduce:or:f64: floats have no bitwise or"),
            ("f protocol=reduce", "r:1: protocol=reduce: reduce:OPERATION:TYPE is needed, as in reduce:sum:f64"),
            (
                "f protocol=reduec",
                "there are stache, mcm, home, update, migratory, broadcast, reduce:OPERATION:TYPE (is reduce meant?)",
            ),
            ("f block=64 block=64", "r:1: block is given twice"),
            ("f block=64 g", "r:1: g is no attribute: block=BYTES, homes=POLICY or protocol=NAME"),
            ("f", "r:1: f has no attributes: block=BYTES, homes=POLICY or protocol=NAME"),
            ("block=64", "r:1: block=64: no site stands in front of the attributes: FILE:LINE, FUNCTION or `alloc N`"),
            ("alloc 0 block=64", "r:1: alloc 0: allocations are numbered from 1: `alloc 3`"),
            ("a.c:3 block=64\n./a.c:3 block=128", "r:2: ./a.c:3 has a rule already, in line 1"),
        ] {
            let told = parsed(text).unwrap_err();
            assert!(told.ends_with(expected) && told.lines().count() == 1, "{text}: {told}");
        }
        let missing = AttributeRules::read("/nonexistent/rules".as_ref(), None).unwrap_err();
        assert!(missing.to_string().starts_with("--attr: cannot read /nonexistent/rules: "));
        let program = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(program.path(), [0x7f, b'E', b'L', b'F', 0xff]).unwrap();
        let no_text = AttributeRules::read(program.path(), None).unwrap_err().to_string();
        assert!(no_text.ends_with(": it is no text; `--attr FILE` takes rules, one a line"), "{no_text}");
    }
}
