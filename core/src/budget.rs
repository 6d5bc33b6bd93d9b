//! Limits on what a model, a file or a template may ask for. Sizes that come from outside become memory, nodes and
//! outputs only after a [`Budget`] allowed them, and memory is allocated in a way that can fail. Nothing here knows
//! what the sizes are for, and nothing here measures time.

use crate::error::{Error, Result};

/// Limits of what one model, file or template may make. Every field has a default; raise those that an error names.
///
/// ```
/// use gradloom_core::Budget;
/// let budget = Budget { host_bytes: 64 << 20, ..Budget::default() };
/// assert!(budget.check(budget.host_bytes(65 << 20)).is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Bytes of constants and tables that one build of a graph makes on the host, besides the weights in the file; also the
    /// bytes of one file after it is unpacked or translated, beyond a multiple of its own length.
    pub host_bytes: u64,
    /// Nodes that one build of a graph runs, counted again for every iteration of a loop.
    pub nodes: u64,
    /// Outputs of one node, and values of one sequence.
    pub outputs: u64,
    /// Elements of one tensor.
    pub tensor_elems: u64,
    /// Bytes that a chat template writes, and bytes of any text on the way there.
    pub template_bytes: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            host_bytes: 512 << 20,
            nodes: 1 << 20,
            outputs: 1 << 16,
            tensor_elems: 1 << 31,
            template_bytes: 4 << 20,
        }
    }
}

/// A size that is asked for, and its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// What is counted, and the budget's field that limits it.
    pub what: &'static str,
    /// The limit.
    pub limit: u64,
    /// What is asked for.
    pub wanted: u64,
}

impl Budget {
    /// A claim for bytes on the host.
    pub fn host_bytes(&self, wanted: impl TryInto<u64>) -> Claim {
        claim("bytes on the host (`host_bytes`)", self.host_bytes, wanted)
    }

    /// A claim for nodes of one build.
    pub fn nodes(&self, wanted: impl TryInto<u64>) -> Claim {
        claim("nodes of one build (`nodes`)", self.nodes, wanted)
    }

    /// A claim for outputs of a node, or values of a sequence.
    pub fn outputs(&self, wanted: impl TryInto<u64>) -> Claim {
        claim("outputs of a node (`outputs`)", self.outputs, wanted)
    }

    /// A claim for elements of a tensor.
    pub fn tensor_elems(&self, wanted: impl TryInto<u64>) -> Claim {
        claim("elements of a tensor (`tensor_elems`)", self.tensor_elems, wanted)
    }

    /// A claim for bytes of a template's text.
    pub fn template_bytes(&self, wanted: impl TryInto<u64>) -> Claim {
        claim("bytes of a template's text (`template_bytes`)", self.template_bytes, wanted)
    }

    /// The size as a length, if it is within the budget and fits this host's `usize`; else [`Error::Budget`].
    pub fn check(&self, claim: Claim) -> Result<usize> {
        claim.grant()
    }

    /// An empty list with the capacity for `n` elements on the host. `Budget` if that is more than allowed,
    /// `OutOfMemory` if the host does not have it.
    pub fn list<T>(&self, n: usize) -> Result<Vec<T>> {
        let bytes = (n as u64).saturating_mul(size_of::<T>() as u64);
        self.host_bytes(bytes).grant()?;
        room(n)
    }

    /// A list of `n` copies of a value; errors as for [`Budget::list`].
    pub fn filled<T: Clone>(&self, n: usize, value: T) -> Result<Vec<T>> {
        let mut list = self.list(n)?;
        list.resize(n, value);
        Ok(list)
    }
}

impl Claim {
    /// The size as a length, if it is within the limit and fits this host's `usize`; else [`Error::Budget`].
    pub fn grant(self) -> Result<usize> {
        let Claim { what, limit, wanted } = self;
        match usize::try_from(wanted) {
            Ok(n) if wanted <= limit => Ok(n),
            _ => Err(Error::Budget { what, limit, wanted, node: None }),
        }
    }
}

/// Makes a claim. A size that does not fit 64 bits counts as the largest one.
fn claim(what: &'static str, limit: u64, wanted: impl TryInto<u64>) -> Claim {
    Claim { what, limit, wanted: wanted.try_into().unwrap_or(u64::MAX) }
}

/// An empty list with the capacity for `n` elements. If the host does not have the memory this is an error rather than
/// the end of the process.
pub fn room<T>(n: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    let refused = |_| Error::OutOfMemory {
        device: "the host".to_owned(),
        bytes: (n as u64).saturating_mul(size_of::<T>() as u64),
    };
    list.try_reserve_exact(n).map_err(refused)?;
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_within_is_granted_and_what_is_not_says_so() {
        let b = Budget { host_bytes: 100, ..Budget::default() };
        assert_eq!(b.host_bytes(100u64).grant(), Ok(100));
        let e = b.host_bytes(101u64).grant().unwrap_err();
        assert_eq!(e.code(), "E_BUDGET");
        assert!(e.to_string().contains("101") && e.to_string().contains("100") && e.to_string().contains("host_bytes"));
        assert_eq!(b.filled(25, 1u32).unwrap(), [1; 25]);
        assert!(matches!(b.filled(26, 1u32), Err(Error::Budget { wanted: 104, limit: 100, .. })));
    }

    #[test]
    fn sizes_that_no_memory_has_are_errors() {
        let all = Budget { host_bytes: u64::MAX, ..Budget::default() };
        let e = all.list::<u64>(1 << 60).unwrap_err();
        assert!(matches!(e, Error::OutOfMemory { .. }), "{e}");
        let e = Budget::default().list::<u64>(usize::MAX).unwrap_err();
        assert!(!e.to_string().contains("18446744073709551615"), "{e}");
        assert!(Budget::default().outputs(-1i64).grant().is_err());
    }
}
