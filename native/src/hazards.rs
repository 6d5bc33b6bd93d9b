//! When a command has to wait for those before it: where one of both writes what the other one uses.

/// Bytes of a space of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    pub(crate) space: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Uses that are looked through one by one; with more there is a barrier whether it is needed or not.
const MOST: usize = 64;

/// What the commands since the last barrier use.
#[derive(Default)]
pub(crate) struct Hazards {
    uses: Vec<(Region, bool)>,
}

impl Hazards {
    /// Notes a command's uses, each with whether it writes, and says if a barrier has to come before it.
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
