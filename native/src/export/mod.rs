//! Models compiled ahead of time: what the engine runs for inputs of known shapes, written down. [`record`] has the engine plan a
//! model for a target and take the run down instead of doing it; [`c`] writes that as C, [`web`] as an ES module.
//!
//! A [`Recording`] is plain data: kernels, buffers, and steps over them. Weights are in it as the kernels read them: what is computed of
//! constants alone, and packed copies, was computed by the evaluator meanwhile. Never: a second planner.

pub mod c;
mod record;
pub mod web;

pub use record::record;

use gradloom_core::DType;
use gradloom_core::codegen::Program;
use gradloom_core::target::Target;
use std::path::Path;
use std::sync::Arc;

/// What a model computes from inputs of known shapes on a target.
pub struct Recording {
    /// What the kernels are made for.
    pub target: Target,
    /// The kernels, each once, by number.
    pub kernels: Vec<Arc<Program>>,
    /// Contents of buffers that stay as they are.
    pub constants: Vec<Vec<u8>>,
    /// Bytes of buffers for values between kernels.
    pub arenas: Vec<usize>,
    /// What a run is given.
    pub inputs: Vec<Port>,
    /// What it gives.
    pub outputs: Vec<Port>,
    /// In order.
    pub steps: Vec<Step>,
}

/// An input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name in the model.
    pub name: String,
    /// Element type of the model.
    pub dtype: DType,
    /// Element type in the target's memory.
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
    /// An input's.
    Input(usize),
    /// An output's.
    Output(usize),
}

/// Part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Which.
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
        /// Its number.
        kernel: usize,
        /// Buffers by slot.
        args: Vec<Place>,
        /// Grid.
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
    /// Elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Has it no elements?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in the target's memory.
    pub fn bytes(&self) -> usize {
        self.len() * self.stored.size()
    }
}

/// A file to be written.
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

/// Writes files into a folder, which is made if it is not there.
pub fn write(folder: &Path, files: &[File]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    files.iter().try_for_each(|f| std::fs::write(folder.join(&f.name), &f.bytes))
}

/// Where pieces lie one after the other, each at a multiple of `align`, and the bytes of all.
fn layout(sizes: impl Iterator<Item = usize>, align: usize) -> (Vec<usize>, usize) {
    let mut end = 0usize;
    let places = sizes.map(|n| {
        let at = end.next_multiple_of(align);
        end = at + n;
        at
    });
    (places.collect(), end.next_multiple_of(align))
}

/// The constants of a recording as one piece of bytes, and where each begins.
fn blob<'a>(constants: impl Iterator<Item = &'a Vec<u8>> + Clone, align: usize) -> (Vec<usize>, Vec<u8>) {
    let (places, total) = layout(constants.clone().map(Vec::len), align);
    let mut out = vec![0; total];
    for (data, &at) in constants.zip(&places) {
        out[at..at + data.len()].copy_from_slice(data);
    }
    (places, out)
}

/// Names as identifiers of C and JavaScript, all different: what is no letter or digit becomes `_`.
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
