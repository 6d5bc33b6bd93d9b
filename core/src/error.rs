//! Every error a user can meet, as data: variants carry the op, shapes, dtypes and names needed to act on them.
//! [`Error::code`] is the stable string that JavaScript callers match on.

use crate::dtype::DType;

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with the values involved.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
// A tag of one byte would be followed by three bytes of padding, which compilers copy one by one wherever an error is
// passed on, that is at every `?`; with a tag of four bytes they copy the rest in words. The web module is a tenth
// smaller for it.
#[repr(u32)]
pub enum Error {
    /// Shapes do not fit an op.
    #[error("{op}: shape {lhs:?} does not fit {rhs:?}")]
    Shape {
        #[doc = "op"]
        op: &'static str,
        #[doc = "left"]
        lhs: Vec<usize>,
        #[doc = "right"]
        rhs: Vec<usize>,
    },
    /// An axis outside the rank.
    #[error("{op}: axis {axis} is out of range for rank {rank}")]
    Axis {
        #[doc = "op"]
        op: &'static str,
        #[doc = "axis"]
        axis: i64,
        #[doc = "rank"]
        rank: usize,
    },
    /// A dtype that an op does not support.
    #[error("{op}: dtype {dtype} is not supported: {why}")]
    DType {
        #[doc = "op"]
        op: &'static str,
        #[doc = "dtype"]
        dtype: DType,
        #[doc = "reason"]
        why: String,
    },
    /// A bad argument value.
    #[error("{op}: {what}")]
    Value {
        #[doc = "op"]
        op: &'static str,
        #[doc = "what is wrong"]
        what: String,
    },
    /// Something that this build or device does not support.
    #[error("unsupported {what} ({context})")]
    Unsupported {
        #[doc = "feature"]
        what: String,
        #[doc = "where: node, op, target"]
        context: String,
    },
    /// The loops of a kernel make more iterations than the device's driver allows.
    #[error("unsupported {turns} turns of loops in a thread of {kernel}, {most} at most")]
    Turns {
        #[doc = "kernel name"]
        kernel: String,
        #[doc = "turns of one thread"]
        turns: u64,
        #[doc = "the target's limit"]
        most: u32,
    },
    /// A file that is malformed.
    #[error("bad {format} file: {what}{}", at.map(|o| format!(" at byte {o}")).unwrap_or_default())]
    Format {
        #[doc = "file format"]
        format: &'static str,
        #[doc = "what is wrong"]
        what: String,
        #[doc = "byte offset"]
        at: Option<u64>,
    },
    /// A model that parses but cannot be run.
    #[error("model: {what}{}", at_node(node.as_ref()))]
    Model {
        #[doc = "what is wrong"]
        what: String,
        #[doc = "node name and op type"]
        node: Option<String>,
    },
    /// A model input or output is missing, unknown or of the wrong kind.
    #[error("input `{name}`: {what}")]
    Input {
        #[doc = "input name"]
        name: String,
        #[doc = "what is wrong"]
        what: String,
    },
    /// A device failed, for example at compiling a kernel.
    #[error("device {device}: {what}")]
    Device {
        #[doc = "device name"]
        device: String,
        #[doc = "what happened"]
        what: String,
    },
    /// A model, a file or a template asks for more than its [`crate::Budget`] allows.
    #[error("budget: {} {what} are wanted, {limit} are allowed{}", count(*wanted), at_node(node.as_ref()))]
    Budget {
        #[doc = "what is counted, and the budget's field that limits it"]
        what: &'static str,
        #[doc = "how much is allowed"]
        limit: u64,
        #[doc = "how much was asked for; the largest number where it can not be counted"]
        wanted: u64,
        #[doc = "node name and op type"]
        node: Option<String>,
    },
    /// A device is lost with all that it held: a graphics driver reset it, one of its threads died, or one of its
    /// kernels trapped.
    #[error("device {device} is lost: {what}")]
    Lost {
        #[doc = "device name"]
        device: String,
        #[doc = "what happened"]
        what: String,
    },
    /// An allocation failed.
    #[error("out of memory on {device}: {} bytes wanted", count(*bytes))]
    OutOfMemory {
        #[doc = "device name"]
        device: String,
        #[doc = "bytes asked for; the largest number where they can not be counted"]
        bytes: u64,
    },
    /// Building and compiling took longer than the caller allows.
    #[error("building and compiling took more than {ms} ms")]
    Deadline {
        #[doc = "milliseconds allowed"]
        ms: u64,
    },
    /// The caller cancelled the work.
    #[error("aborted")]
    Aborted,
    /// A bug in gradloom.
    #[error("internal error: {0}")]
    Internal(String),
}

/// Prints a number of bytes or elements; `u64::MAX` stands for a size that overflowed.
fn count(n: u64) -> String {
    if n == u64::MAX { "more than 2^63".to_owned() } else { n.to_string() }
}

fn at_node(node: Option<&String>) -> String {
    node.map(|n| format!(" (node {n})")).unwrap_or_default()
}

impl Error {
    /// A short stable code for programs, such as `E_SHAPE` or `E_FORMAT`.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Shape { .. } => "E_SHAPE",
            Error::Axis { .. } => "E_AXIS",
            Error::DType { .. } => "E_DTYPE",
            Error::Value { .. } => "E_VALUE",
            Error::Unsupported { .. } | Error::Turns { .. } => "E_UNSUPPORTED",
            Error::Format { .. } => "E_FORMAT",
            Error::Model { .. } => "E_MODEL",
            Error::Input { .. } => "E_INPUT",
            Error::Device { .. } => "E_DEVICE",
            Error::Budget { .. } => "E_BUDGET",
            Error::Lost { .. } => "E_DEVICE_LOST",
            Error::OutOfMemory { .. } => "E_OUT_OF_MEMORY",
            Error::Deadline { .. } => "E_DEADLINE",
            Error::Aborted => "E_ABORTED",
            Error::Internal(_) => "E_INTERNAL",
        }
    }

    /// Makes an [`Error::Value`].
    pub fn value(op: &'static str, what: impl Into<String>) -> Error {
        Error::Value { op, what: what.into() }
    }

    /// Makes an [`Error::Format`].
    pub fn format(format: &'static str, what: impl Into<String>, at: Option<u64>) -> Error {
        Error::Format { format, what: what.into(), at }
    }
}
