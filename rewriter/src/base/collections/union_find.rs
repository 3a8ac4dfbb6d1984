//! Union-find: things that are joined two by two, and which of them hang together.
//!
//! Input: numbers below a count, joined in any order. Output: for each the number of its component. **Invariant**: that is the least one of its members.

/// Union-find over blocks, or anything numbered.
pub(crate) struct Components(Vec<u32>);

impl Components {
    pub(crate) fn new(n: usize) -> Self {
        Components((0..n as u32).collect())
    }

    #[inline]
    pub(crate) fn find(&mut self, mut a: u32) -> u32 {
        while self.0[a as usize] != a {
            self.0[a as usize] = self.0[self.0[a as usize] as usize];
            a = self.0[a as usize];
        }
        a
    }

    #[inline]
    pub(crate) fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.find(a), self.find(b));
        if a != b {
            self.0[a.max(b) as usize] = a.min(b);
        }
    }
}
