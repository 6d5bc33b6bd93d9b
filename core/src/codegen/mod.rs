//! Kernel graph -> [`Program`]: optimise axes, lower reductions to register tiles, decompose, order.

pub mod program;

pub use program::{ParamInfo, Program, TileAxis, VarInfo};
