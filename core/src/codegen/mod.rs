//! Kernel graph -> [`Program`]. [`compile`] is the whole pipeline, one line a pass.
//!
//! Never: tensors, plans, renderers. What it must know of a backend it reads from the [`Target`].

pub mod axes;
pub mod count;
mod falling;
pub mod late;
pub mod opt;
pub mod pack;
pub mod program;
pub mod reach;
pub mod reduce;
mod shared;
mod stage;

pub use opt::{Opt, OptOp};
pub use program::{ParamInfo, Program, TileAxis, VarInfo};

use crate::schedule::Ast;
use crate::target::Target;
use crate::uop::spec::{self, Stage};
use crate::{Error, Result};

/// Compiles one kernel for a target, with the given opts or those of the heuristic.
pub fn compile(ast: &Ast, t: &Target, opts: Option<&[Opt]>) -> Result<Program> {
    if cfg!(debug_assertions) {
        spec::verify(&ast.g, &[ast.sink], Stage::Kernel)?;
    }
    let mut k = axes::Kernel::new(ast);
    k.merge_axes();
    let stats = k.stats();
    let opts = opts.map_or_else(|| opt::heuristic::choose(&k, t), <[Opt]>::to_vec);
    // threads of a workgroup go through loops together
    let masked = if t.has_local { Vec::new() } else { reach::find(&mut k) };
    k.apply_all(&opts, t)?;
    k.map_launch(t)?;
    reach::ends(&mut k, &masked);
    falling::lower(&mut k, t);
    late::decompose(&mut k, t)?;
    let mut loops = Default::default();
    if t.has_local {
        shared::lower(&mut k, t, &mut loops)?;
    } else {
        stage::lower(&mut k, &mut loops)?;
    }
    reduce::lower(&mut k, t, &mut loops)?;
    reach::apply(&mut k);
    late::decompose(&mut k, t)?; // simplified loop bodies may compare in narrow dtypes again
    late::split_addresses(&mut k);
    late::finish(&mut k, t);
    let order = late::linearize(&mut k, &loops)?;
    let p = late::package(k, order, stats);
    spec::verify(&p.g, &p.order, Stage::Program)?;
    if t.max_turns < u32::MAX {
        let turns = count::turns(&p);
        if turns > t.max_turns as u64 {
            return Err(Error::Turns { kernel: p.name, turns, most: t.max_turns });
        }
    }
    Ok(p)
}
