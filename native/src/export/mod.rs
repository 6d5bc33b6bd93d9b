//! Compiles models ahead of time: writes down what the engine would run for inputs of known shapes. [`record`] has the
//! engine plan a model for a target, and records the steps of a run instead of executing them; [`c`] writes the
//! recording as C, [`web`] as an ES module.
//!
//! A [`Recording`] is plain data: kernels, buffers, and steps over them. It has weights in the layout that the kernels
//! read: what depends on constants alone, and packed copies of weights, were computed by the evaluator. Never here: a
//! second planner.

pub mod c;
mod record;
pub mod web;

pub use record::record;

use gradloom_core::DType;
use gradloom_core::codegen::Program;
use gradloom_core::target::Target;
use std::path::Path;
use std::sync::Arc;

/// The computation of a model on a target, for inputs of known shapes.
pub struct Recording {
    /// The target that the kernels are compiled for.
    pub target: Target,
    /// The distinct kernels; steps refer to them by index.
    pub kernels: Vec<Arc<Program>>,
    /// The contents of buffers that never change.
    pub constants: Vec<Vec<u8>>,
    /// The sizes in bytes of buffers for intermediate values.
    pub arenas: Vec<usize>,
    /// The inputs of a run.
    pub inputs: Vec<Port>,
    /// The outputs of a run.
    pub outputs: Vec<Port>,
    /// The steps in order of execution.
    pub steps: Vec<Step>,
}

/// An input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name in the model.
    pub name: String,
    /// The dtype in the model.
    pub dtype: DType,
    /// The dtype in the target's memory.
    pub stored: DType,
    /// Shape.
    pub shape: Vec<usize>,
}

/// A buffer of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Buffer {
    /// A constant.
    Constant(usize),
    /// An arena.
    Arena(usize),
    /// An input.
    Input(usize),
    /// An output.
    Output(usize),
}

/// Part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The buffer.
    pub buffer: Buffer,
    /// Byte offset.
    pub offset: usize,
    /// Bytes.
    pub bytes: usize,
}

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Run a kernel.
    Launch {
        /// The kernel's index.
        kernel: usize,
        /// Buffers by slot.
        args: Vec<Place>,
        /// The grid.
        grid: [u32; 3],
        /// Launch scalars as raw 4-byte values.
        vars: Vec<u32>,
    },
    /// Copy bytes.
    Copy {
        /// From.
        from: Place,
        /// To.
        to: Place,
    },
}

impl Port {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size in bytes in the target's memory.
    pub fn bytes(&self) -> usize {
        self.len() * self.stored.size()
    }
}

/// A file to write.
pub struct File {
    /// Its name, without a folder.
    pub name: String,
    /// Its contents.
    pub bytes: Vec<u8>,
}

impl File {
    fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> File {
        File { name: name.into(), bytes: bytes.into() }
    }
}

/// Writes files into a folder; creates the folder if it does not exist.
pub fn write(folder: &Path, files: &[File]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    files.iter().try_for_each(|f| std::fs::write(folder.join(&f.name), &f.bytes))
}

/// Offsets of pieces that are placed one after the other, each at a multiple of `align`, and the total size in bytes.
fn layout(sizes: impl Iterator<Item = usize>, align: usize) -> (Vec<usize>, usize) {
    let mut end = 0usize;
    let places = sizes.map(|n| {
        let at = end.next_multiple_of(align);
        end = at + n;
        at
    });
    (places.collect(), end.next_multiple_of(align))
}

/// The constants of a recording concatenated, and the offset of each.
fn blob<'a>(constants: impl Iterator<Item = &'a Vec<u8>> + Clone, align: usize) -> (Vec<usize>, Vec<u8>) {
    let (places, total) = layout(constants.clone().map(Vec::len), align);
    let mut out = vec![0; total];
    for (data, &at) in constants.zip(&places) {
        out[at..at + data.len()].copy_from_slice(data);
    }
    (places, out)
}

/// Turns names into distinct identifiers of C and JavaScript: characters other than letters and digits become `_`.
fn identifiers<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for name in names {
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let begins = plain.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
        let base = if begins { plain } else { format!("v{plain}") };
        let mut name = base.clone();
        let mut n = 2;
        while out.contains(&name) {
            name = format!("{base}_{n}");
            n += 1;
        }
        out.push(name);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_identifiers_that_differ() {
        let names = ["input.1", "input 1", "0", "", "double"];
        assert_eq!(identifiers(names.into_iter()), ["input_1", "input_1_2", "v0", "v", "double"]);
    }

    #[test]
    fn pieces_lie_at_multiples() {
        assert_eq!(layout([3, 0, 70].into_iter(), 64), (vec![0, 64, 64], 192));
        let (at, bytes) = blob([vec![1u8, 2], vec![3]].iter(), 4);
        assert_eq!((at, bytes), (vec![0, 4], vec![1, 2, 0, 0, 3, 0, 0, 0]));
    }
}
