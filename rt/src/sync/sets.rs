//! How error lines name the nodes of a set.
//!
//! Input: a set of nodes. Output: words such as `node 1 waits` or `nodes 0, 2 wait`.

use blizzard_protocol::ids::NodeSet;
use core::fmt;

/// A set of nodes that prints as `node 1` or `nodes 0, 2`.
pub struct Names(pub NodeSet);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "node" } else { "nodes" })?;
        let mut separator = " ";
        for node in self.0.iter() {
            write!(f, "{separator}{}", node.index())?;
            separator = ", ";
        }
        Ok(())
    }
}

/// Prints as `node 1 waits` or `nodes 0, 2 wait`.
pub struct Waits(pub NodeSet);

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Names(self.0), if self.0.len() == 1 { "waits" } else { "wait" })
    }
}

/// Prints as `node 1 has` or `nodes 0, 2 have`.
pub struct Has(pub NodeSet);

impl fmt::Display for Has {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Names(self.0), if self.0.len() == 1 { "has" } else { "have" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blizzard_protocol::ids::NodeId;

    #[test]
    fn sets_of_nodes_read_well() {
        let set = |numbers: &[u32]| numbers.iter().filter_map(|&number| NodeId::new(number)).collect();
        assert_eq!(Waits(set(&[1])).to_string(), "node 1 waits");
        assert_eq!(Has(set(&[0, 2, 63])).to_string(), "nodes 0, 2, 63 have");
    }
}
