//! Decides where a command must wait for earlier commands: where one of two commands writes a memory region
//! that the other one uses.

/// A range of bytes in one address space (a block of memory, or a buffer).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    pub(crate) space: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The most recorded uses that are compared one by one; with more, a barrier is inserted without looking.
const MOST: usize = 64;

/// The regions that commands since the last barrier use, each with whether it is written.
#[derive(Default)]
pub(crate) struct Hazards {
    uses: Vec<(Region, bool)>,
}

impl Hazards {
    /// Records the regions that a command uses, each with whether it is written, and returns whether a barrier must
    /// come before the command.
    pub(crate) fn wait_before(&mut self, uses: &[(Region, bool)]) -> bool {
        let meets = |a: &Region, b: &Region| {
            a.space == b.space && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes
        };
        let clash = |new: &(Region, bool)| self.uses.iter().any(|old| (new.1 || old.1) && meets(&new.0, &old.0));
        let wait = self.uses.len() > MOST || uses.iter().any(clash);
        if wait {
            self.uses.clear();
        }
        self.uses.extend_from_slice(uses);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_wait_for_what_they_use() {
        let part = |offset, bytes| Region { space: 1, offset, bytes };
        let mut h = Hazards::default();
        assert!(!h.wait_before(&[(part(0, 64), true), (part(64, 64), false)]));
        assert!(!h.wait_before(&[(part(64, 64), false), (part(128, 4), true)]), "both read it");
        assert!(!h.wait_before(&[(Region { space: 3, ..part(0, 64) }, true)]), "another space");
        assert!(h.wait_before(&[(part(60, 8), false)]), "it was written");
        assert!(!h.wait_before(&[(part(0, 4), true)]), "there was a barrier since");
        assert!(h.wait_before(&[(part(64, 1), true)]), "it is read");
    }
}
