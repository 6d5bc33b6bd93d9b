//! When a command has to wait for those before it: where one of both writes what the other one uses.

use super::memory::Place;

/// Uses that are looked through one by one; with more there is a barrier whether it is needed or not.
const MOST: usize = 64;

/// What the commands since the last barrier use.
#[derive(Default)]
pub(super) struct Hazards {
    uses: Vec<(Place, bool)>,
}

impl Hazards {
    /// Notes a command's uses, each with whether it writes, and says if a barrier has to come before it.
    pub(super) fn wait_before(&mut self, uses: &[(Place, bool)]) -> bool {
        let meets =
            |a: &Place, b: &Place| a.block == b.block && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
        let clash = |new: &(Place, bool)| self.uses.iter().any(|old| (new.1 || old.1) && meets(&new.0, &old.0));
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
        let part = |offset, bytes| Place { block: 1, offset, bytes };
        let mut h = Hazards::default();
        assert!(!h.wait_before(&[(part(0, 64), true), (part(64, 64), false)]));
        assert!(!h.wait_before(&[(part(64, 64), false), (part(128, 4), true)]), "both read it");
        assert!(!h.wait_before(&[(Place { block: 3, ..part(0, 64) }, true)]), "another block");
        assert!(h.wait_before(&[(part(60, 8), false)]), "it was written");
        assert!(!h.wait_before(&[(part(0, 4), true)]), "there was a barrier since");
        assert!(h.wait_before(&[(part(64, 1), true)]), "it is read");
    }
}
