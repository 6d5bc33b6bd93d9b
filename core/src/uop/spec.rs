//! The executable specification of the IR: which ops are legal in a stage, and what the sources, dtypes, argument and
//! shapes of each must be. [`Node::checks`] has one line per op; the checks of loops, addresses and tiles are in
//! `spec/kernels.rs`, those of whole graphs and programs in `spec/whole.rs`. Passes may rely on everything checked
//! here. A violation is a bug of the pass that ran before, so `verify` gives `Error::Internal` with the node printed.

mod kernels;
mod whole;

use super::graph::elements;
use super::mma::MATRIX_TILES_ENABLED;
use super::{Arg, AxisKind, Graph, Op, ReduceOp, Space, UOp};
use crate::dtype::Scalar;
use crate::{DType, Error, Result};
use whole::{check_program, check_range_ids, check_reduced, check_roots};

/// The form of a graph, which tells how far it is compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Values have shapes.
    Tensor,
    /// Scalars over ranges.
    Kernel,
    /// Between kernel and program: ops of either are legal, ranges may be of tile kinds, and there is no execution
    /// order yet.
    Lowering,
    /// Linear order, tiles.
    Program,
}

/// Checks every node that `roots` need (Tensor, Kernel, Lowering), or the program whose execution order is `roots`
/// (Program).
pub fn verify(g: &Graph, roots: &[UOp], stage: Stage) -> Result<()> {
    let fail = |u: UOp, what: String| Error::Internal(format!("{stage:?} spec: {}: {what}", super::print::line(g, u)));
    let nodes = g.reachable(roots);
    let of_one = (stage != Stage::Lowering).then_some(stage);
    for &u in &nodes {
        check_node(g, g.op(u), g.dtype(u), g.src(u), g.arg(u), of_one).map_err(|what| fail(u, what))?;
    }
    match stage {
        Stage::Tensor => Ok(()),
        Stage::Lowering => check_range_ids(g, &nodes).and_then(|()| check_reduced(g, &nodes)),
        Stage::Kernel => {
            check_range_ids(g, &nodes).and_then(|()| check_reduced(g, &nodes)).and_then(|()| check_roots(g, roots))
        }
        Stage::Program => check_range_ids(g, &nodes).and_then(|()| check_program(g, roots, &nodes)),
    }
    .map_err(|(u, what)| fail(u, what))
}

/// Checks one node, which need not be in the graph yet. `None` for the stage accepts what is legal in any stage.
pub fn check_node(
    g: &Graph,
    op: Op,
    dt: DType,
    src: &[UOp],
    arg: &Arg,
    stage: Option<Stage>,
) -> std::result::Result<(), String> {
    let node = Node { g, op, dt, src, arg, stage };
    node.checks().iter().try_for_each(|check| check(&node).map(|_| ()))
}

type Check<'a> = std::result::Result<&'a Node<'a>, String>;

struct Node<'a> {
    g: &'a Graph,
    op: Op,
    dt: DType,
    src: &'a [UOp],
    arg: &'a Arg,
    stage: Option<Stage>,
}

/// One row of the table in [`Node::checks`]: the checks of an op's nodes, in the order in which they are made.
macro_rules! checks {
    ($($check:ident $(<$n:literal>)?)*) => { &[$(|node| node.$check $(::<$n>)? ()),*] };
}

impl Node<'_> {
    #[rustfmt::skip]
    fn checks(&self) -> &'static [for<'n> fn(&'n Node<'n>) -> Check<'n>] {
        use Op::*;
        match self.op {
            Const      => checks!(in_tkp sources<0> constant),
            Buffer     => checks!(in_t sources<0> storage),
            Param      => checks!(in_tkp sources<0> storage),
            Var        => checks!(in_tkp sources<0> launch_scalar),
            Iota       => checks!(in_t sources<0> i32 iota),
            Reshape    => checks!(in_t sources<1> keeps_dtype reshape),
            Permute    => checks!(in_t sources<1> keeps_dtype permute),
            Expand     => checks!(in_t sources<1> keeps_dtype expand),
            Pad        => checks!(in_t sources<1> keeps_dtype pad),
            Shrink     => checks!(in_t sources<1> keeps_dtype shrink),
            Flip       => checks!(in_t sources<1> keeps_dtype axes_in_rank),
            Gather     => checks!(in_t sources<2> keeps_dtype gather),
            Scatter    => checks!(in_t sources<3> keeps_dtype third_is_dt scatter),
            Scan       => checks!(in_t keeps_dtype values scan),
            Recurrence => checks!(in_t keeps_dtype recurrence),
            Reduce     => checks!(in_tk keeps_dtype reduce),
            Cast       => checks!(in_tkp sources<1> values has_value no_arg),
            Bitcast    => checks!(in_tkp sources<1> values has_value same_size no_arg),
            Neg        => checks!(in_tkp alu<1> numeric),
            Exp2       => checks!(in_tkp power float),
            Log2       => checks!(in_tkp alu<1> float),
            Sin        => checks!(in_tkp alu<1> float),
            Cos        => checks!(in_tkp alu<1> float),
            Tan        => checks!(in_tkp alu<1> float),
            Sqrt       => checks!(in_tkp alu<1> float),
            Recip      => checks!(in_tkp alu<1> float),
            Trunc      => checks!(in_tkp alu<1> float),
            Add        => checks!(in_tkp alu<2>),
            Sub        => checks!(in_tkp alu<2> numeric),
            Mul        => checks!(in_tkp alu<2>),
            Div        => checks!(in_tkp alu<2> float),
            Pow        => checks!(in_tkp alu<2> float),
            Idiv       => checks!(in_tkp alu<2> int),
            Imod       => checks!(in_tkp alu<2> numeric),
            FloorDiv   => checks!(in_tk alu<2> int),
            FloorMod   => checks!(in_tk alu<2> int),
            Max        => checks!(in_tkp alu<2>),
            Min        => checks!(in_tkp alu<2>),
            And        => checks!(in_tkp alu<2> bits),
            Or         => checks!(in_tkp alu<2> bits),
            Xor        => checks!(in_tkp alu<2> bits),
            Shl        => checks!(in_tkp alu<2> int),
            Shr        => checks!(in_tkp alu<2> int),
            CmpLt      => checks!(in_tkp compare),
            CmpEq      => checks!(in_tkp compare),
            CmpNe      => checks!(in_tkp compare),
            Where      => checks!(in_tkp sources<3> values first_is_bool sources_are_dt<1> no_arg),
            MulAdd     => checks!(in_p alu<3> numeric),
            DotBytes   => checks!(in_tkp alu<3> i32),
            DotPairs   => checks!(in_tkp alu<3> i32),
            LookupBytes => checks!(in_tkp alu<5> i32),
            Contiguous => checks!(in_t some_sources keeps_dtype ends_axes),
            Detach     => checks!(in_t some_sources keeps_dtype gradients no_arg),
            Store      => checks!(in_tkp void async_copy store),
            Custom     => checks!(in_tk void custom),
            After      => checks!(in_tkp some_sources keeps_dtype no_arg after),
            Sink       => checks!(in_tk void no_arg),
            Range      => checks!(in_kp sources<1> keeps_dtype range),
            Index      => checks!(in_kp sources<2> keeps_dtype index),
            Load       => checks!(in_kp keeps_dtype address load no_arg),
            Acc        => checks!(in_p keeps_dtype values_first ranges acc),
            AccUpdate  => checks!(in_p sources<2> void accumulates update),
            AccMulAdd  => checks!(in_p sources<3> void accumulates update),
            AccRead    => checks!(in_p keeps_dtype reads_acc no_arg),
            Fold       => checks!(in_p keeps_dtype values_first tile_ranges reduces_tiles),
            Mma        => checks!(in_p has_value multiplies_tiles),
            LoadMatrix => checks!(in_p keeps_dtype address loads_matrices),
            End        => checks!(in_kp void ends_loop no_arg),
            Scratch    => checks!(in_kp sources<0> has_value scratch),
            Barrier    => checks!(in_kp void no_arg_or_number),
            Stage      => checks!(in_k keeps_dtype values_first stage_indices no_arg_or_number),
        }
    }

    // ---- stages

    fn in_stages(&self, legal: &[Stage]) -> Check<'_> {
        match self.stage {
            Some(s) if !legal.contains(&s) => Err(format!("{} is not legal here", self.op.name())),
            _ => Ok(self),
        }
    }

    fn in_t(&self) -> Check<'_> {
        self.in_stages(&[Stage::Tensor])
    }

    fn in_k(&self) -> Check<'_> {
        self.in_stages(&[Stage::Kernel])
    }

    fn in_p(&self) -> Check<'_> {
        self.in_stages(&[Stage::Program])
    }

    fn in_tk(&self) -> Check<'_> {
        self.in_stages(&[Stage::Tensor, Stage::Kernel])
    }

    fn in_kp(&self) -> Check<'_> {
        self.in_stages(&[Stage::Kernel, Stage::Program])
    }

    fn in_tkp(&self) -> Check<'_> {
        Ok(self)
    }

    // ---- counts, dtypes, shapes

    fn want(&self, ok: bool, what: &str) -> Check<'_> {
        if ok { Ok(self) } else { Err(what.to_string()) }
    }

    fn bad_arg(&self) -> Check<'_> {
        Err(format!("argument {:?} does not fit", self.arg))
    }

    fn sources<const N: usize>(&self) -> Check<'_> {
        self.count(N)
    }

    fn count(&self, n: usize) -> Check<'_> {
        if self.src.len() == n { Ok(self) } else { Err(format!("{} sources, {n} wanted", self.src.len())) }
    }

    fn some_sources(&self) -> Check<'_> {
        self.want(!self.src.is_empty(), "no source")
    }

    /// A Detach with a user-defined gradient: after x a seed buffer like x, then pairs of a value and its gradient,
    /// which agree in dtype and shape.
    fn gradients(&self) -> Check<'_> {
        let [x, rest @ ..] = self.src else { return Ok(self) };
        let [seed, pairs @ ..] = rest else { return Ok(self) };
        let g = self.g;
        let like = |a: UOp, b: UOp| g.dtype(a) == g.dtype(b) && g.shape(a) == g.shape(b);
        let seeded = g.op(*seed) == Op::Buffer && g.dtype(*seed) == g.dtype(*x) && g.numel(*seed) == g.numel(*x);
        let fits = pairs.len() % 2 == 0 && pairs.chunks_exact(2).all(|p| like(p[0], p[1]));
        self.want(seeded && fits, "gradients that do not fit")
    }

    fn no_arg(&self) -> Check<'_> {
        if *self.arg == Arg::None { Ok(self) } else { self.bad_arg() }
    }

    fn no_arg_or_number(&self) -> Check<'_> {
        if MATRIX_TILES_ENABLED && matches!(self.arg, Arg::Number(_)) { Ok(self) } else { self.no_arg() }
    }

    /// A Store with a number is an asynchronous copy: its value is a Load, and its target is in workgroup memory.
    fn async_copy(&self) -> Check<'_> {
        if !MATRIX_TILES_ENABLED || !matches!(self.arg, Arg::Number(_)) {
            return self.no_arg();
        }
        self.in_p()?.want(self.src.len() >= 2, "a target and a value wanted")?;
        let mut to = self.src[0];
        while matches!(self.g.op(to), Op::Index | Op::After) {
            to = self.g.src_at(to, 0);
        }
        let shared = matches!(self.g.arg(to), Arg::Scratch { space: Space::Workgroup, .. });
        self.want(shared && self.g.op(self.src[1]) == Op::Load, "copies from no load, or not to workgroup memory")
    }

    /// A Contiguous has either dependencies and no argument, or an i32 scalar end for each axis of its argument.
    fn ends_axes(&self) -> Check<'_> {
        let Arg::Axes(axes) = self.arg else { return self.no_arg() };
        self.axes_in_rank()?.count(axes.len() + 1)?;
        let scalar = |s: &UOp| self.g.dtype(*s) == DType::I32 && self.g.shape(*s).is_empty();
        self.want(self.src[1..].iter().all(scalar), "ends of axes are scalars of i32")
    }

    fn dtype(&self, dt: DType) -> Check<'_> {
        if self.dt == dt { Ok(self) } else { Err(format!("dtype {}, {dt} wanted", self.dt)) }
    }

    fn i32(&self) -> Check<'_> {
        self.dtype(DType::I32)
    }

    fn void(&self) -> Check<'_> {
        self.dtype(DType::Void)
    }

    fn has_value(&self) -> Check<'_> {
        self.want(self.dt != DType::Void, "a value has a dtype")
    }

    fn keeps_dtype(&self) -> Check<'_> {
        self.some_sources()?;
        self.has_value()?.source(0, self.dt)
    }

    fn source(&self, i: usize, dt: DType) -> Check<'_> {
        match self.src.get(i).map(|&s| self.g.dtype(s)) {
            Some(d) if d == dt => Ok(self),
            Some(d) => Err(format!("source {i} is {d}, {dt} wanted")),
            None => Err(format!("no source {i}")),
        }
    }

    fn first_is_bool(&self) -> Check<'_> {
        self.source(0, DType::Bool)
    }

    fn third_is_dt(&self) -> Check<'_> {
        self.source(2, self.dt)
    }

    fn sources_are_dt<const FROM: usize>(&self) -> Check<'_> {
        (FROM..self.src.len()).try_fold(self, |c, i| c.source(i, self.dt))
    }

    fn numeric(&self) -> Check<'_> {
        self.want(self.dt.is_int() || self.dt.is_float(), "not for bool")
    }

    fn float(&self) -> Check<'_> {
        self.want(self.dt.is_float(), "for floats only")
    }

    fn int(&self) -> Check<'_> {
        self.want(self.dt.is_int(), "for integers only")
    }

    fn bits(&self) -> Check<'_> {
        self.want(self.dt.is_int() || self.dt == DType::Bool, "for integers and bool only")
    }

    fn same_size(&self) -> Check<'_> {
        self.want(self.dt.size() == self.g.dtype(self.src[0]).size(), "bitcast between sizes")
    }

    /// All sources are values; in a tensor graph those that are not scalar have the same shape.
    fn values(&self) -> Check<'_> {
        for &s in self.src {
            self.value(s)?;
        }
        let mut shapes = self.src.iter().map(|&s| self.g.shape(s)).filter(|s| !s.is_empty());
        match shapes.next() {
            Some(first) if self.stage.is_none_or(|s| s == Stage::Tensor) => match shapes.find(|s| *s != first) {
                Some(other) => Err(format!("shapes {first:?} and {other:?} differ")),
                None => Ok(self),
            },
            _ => Ok(self),
        }
    }

    fn value(&self, s: UOp) -> Check<'_> {
        let pointer = match self.g.op(s) {
            Op::Index | Op::Scratch | Op::Stage | Op::Acc => true,
            Op::Param => self.stage.is_some_and(|s| s != Stage::Tensor),
            _ => false,
        };
        self.want(!pointer && self.g.dtype(s) != DType::Void, "a source is not a value")
    }

    fn values_first(&self) -> Check<'_> {
        self.some_sources()?;
        self.value(self.src[0])
    }

    fn alu<const N: usize>(&self) -> Check<'_> {
        self.count(N)?.has_value()?.sources_are_dt::<0>()?.values()?.no_arg()
    }

    fn power(&self) -> Check<'_> {
        match self.arg {
            Arg::Number(16) => self.in_p()?.count(1)?.has_value()?.sources_are_dt::<0>()?.values(),
            Arg::Number(0) => self.in_kp()?.count(1)?.has_value()?.sources_are_dt::<0>()?.values(),
            _ => self.alu::<1>(),
        }
    }

    fn compare(&self) -> Check<'_> {
        self.count(2)?.dtype(DType::Bool)?.source(1, self.g.dtype(self.src[0]))?.values()?.no_arg()
    }

    // ---- sources

    fn constant(&self) -> Check<'_> {
        let Arg::Const(c) = self.arg else { return self.bad_arg() };
        self.has_value()?;
        let same_kind = matches!(c, Scalar::Float(_)) == self.dt.is_float();
        self.want(same_kind && c.cast(self.dt, self.dt) == *c, "the constant is no value of its dtype")
    }

    fn storage(&self) -> Check<'_> {
        match self.arg {
            Arg::Buffer { len, .. } if self.op == Op::Buffer => self.has_value()?.fits_memory(&[*len]),
            Arg::Param { len, .. } if self.op == Op::Param => self.has_value()?.fits_memory(&[*len]),
            _ => self.bad_arg(),
        }
    }

    fn fits_memory(&self, shape: &[usize]) -> Check<'_> {
        self.fits(self.dt.size().max(1), shape, isize::MAX as u64)
    }

    /// The element count fits u64. Views take no memory, so they may be larger than it: a matrix product is a reduction
    /// over a view of m * n * k elements.
    fn can_be_counted(&self, shape: &[usize]) -> Check<'_> {
        self.fits(1, shape, u64::MAX)
    }

    fn fits(&self, each: usize, shape: &[usize], most: u64) -> Check<'_> {
        // sizes of zero are left out, so that no partial product of the others overflows either, in whatever order
        let all = shape.iter().filter(|n| **n > 0).try_fold(each as u64, |n, &d| n.checked_mul(d as u64));
        self.want(all.is_some_and(|n| n <= most), "larger than any memory")
    }

    fn launch_scalar(&self) -> Check<'_> {
        match (self.arg, self.dt) {
            (Arg::Var { min, max, .. }, DType::I32) => {
                self.want(min <= max && i32::try_from(*min).is_ok() && i32::try_from(*max).is_ok(), "bad bounds")
            }
            (Arg::Var { min: 0, max: 0, .. }, DType::F32) => Ok(self),
            (Arg::Var { .. }, _) => Err("a launch scalar is i32, or f32 with bounds 0".into()),
            _ => self.bad_arg(),
        }
    }

    fn iota(&self) -> Check<'_> {
        match self.arg {
            Arg::Shape(s) if s.len() == 1 => self.want(s[0] <= i32::MAX as usize, "longer than i32 counts"),
            _ => self.bad_arg(),
        }
    }

    // ---- movement

    fn shape0(&self) -> &[usize] {
        self.g.shape(self.src[0])
    }

    fn reshape(&self) -> Check<'_> {
        let Arg::Shape(s) = self.arg else { return self.bad_arg() };
        self.can_be_counted(s)?;
        self.want(elements(self.shape0()) == elements(s), "another number of elements")
    }

    fn expand(&self) -> Check<'_> {
        let Arg::Shape(s) = self.arg else { return self.bad_arg() };
        let from = self.shape0();
        self.can_be_counted(s)?;
        let ok = s.len() == from.len() && from.iter().zip(s).all(|(a, b)| a == b || *a == 1);
        self.want(ok, "only axes of size 1 expand, at equal rank")
    }

    fn axes_in_rank(&self) -> Check<'_> {
        let Arg::Axes(axes) = self.arg else { return self.bad_arg() };
        distinct_below(axes, self.shape0().len())?;
        Ok(self)
    }

    fn permute(&self) -> Check<'_> {
        let Arg::Axes(axes) = self.arg else { return self.bad_arg() };
        self.axes_in_rank()?.want(axes.len() == self.shape0().len(), "not a permutation of all axes")
    }

    fn pad(&self) -> Check<'_> {
        let Arg::Pairs(p) = self.arg else { return self.bad_arg() };
        let from = self.shape0();
        self.want(p.len() == from.len(), "one pair per axis")?;
        let padded = from.iter().zip(p).map(|(n, (a, b))| n.checked_add(*a)?.checked_add(*b));
        match padded.collect::<Option<Vec<usize>>>() {
            Some(s) => self.can_be_counted(&s),
            None => Err("larger than any memory".into()),
        }
    }

    fn shrink(&self) -> Check<'_> {
        let Arg::Pairs(p) = self.arg else { return self.bad_arg() };
        let from = self.shape0();
        let ok = p.len() == from.len() && from.iter().zip(p).all(|(n, (a, b))| a <= b && b <= n);
        self.want(ok, "one pair begin <= end <= size per axis")
    }

    fn gather(&self) -> Check<'_> {
        let Arg::Axes(axes) = self.arg else { return self.bad_arg() };
        let (x, i) = (self.shape0(), self.g.shape(self.src[1]));
        self.want(self.g.dtype(self.src[1]).is_int(), "indices are integers")?;
        let ok = axes.len() == 1
            && distinct_below(axes, x.len()).is_ok()
            && i.len() == x.len()
            && (0..x.len()).all(|a| a == axes[0] as usize || x[a] == i[a]);
        self.want(ok, "one axis, and the shapes equal on every other")
    }

    fn scatter(&self) -> Check<'_> {
        let Arg::Scatter(_, axis) = self.arg else { return self.bad_arg() };
        let (x, i, s) = (self.shape0(), self.g.shape(self.src[1]), self.g.shape(self.src[2]));
        self.want(self.g.dtype(self.src[1]).is_int(), "indices are integers")?;
        distinct_below(&[*axis], x.len())?;
        let fits = i.len() == x.len() && (0..x.len()).all(|a| a == *axis as usize || i[a] <= x[a]);
        self.want(fits && s == i, "indices and elements have one shape, not larger than the target's on other axes")
    }

    fn scan(&self) -> Check<'_> {
        let Arg::Reduce(op, axes) = self.arg else { return self.bad_arg() };
        distinct_below(axes, self.shape0().len())?;
        self.want(axes.len() == 1 && self.src.len() <= 2, "one axis, one or two sources")?;
        let Some(&a) = self.src.get(1) else { return Ok(self) };
        self.want(*op == ReduceOp::Add && self.dt.is_float(), "only sums of floats have factors")?;
        self.source(1, self.dt)?.want(self.g.shape(a).as_slice() == self.shape0(), "factors of another shape")
    }

    fn recurrence(&self) -> Check<'_> {
        let Arg::Recurrence(r) = self.arg else { return self.bad_arg() };
        r.check(self.g, self.dt, self.src).map(|()| self)
    }

    fn reduce(&self) -> Check<'_> {
        let Arg::Reduce(_, axes) = self.arg else { return self.bad_arg() };
        self.value(self.src[0])?;
        let over_axes = self.src.len() == 1;
        match self.stage {
            Some(Stage::Tensor) if !over_axes => return Err("ranges in a tensor graph".into()),
            Some(Stage::Kernel) if over_axes => return Err("no ranges".into()),
            _ => {}
        }
        if over_axes {
            distinct_below(axes, self.shape0().len())?;
            return self.want(!axes.is_empty(), "no axes");
        }
        // where opts split a reduction among the threads of a workgroup, its range is of kind Local
        let threads = |k: AxisKind| self.stage != Some(Stage::Kernel) && matches!(k, AxisKind::Local(_));
        let reduced = |&r: &UOp| self.g.op(r) == Op::Range && (self.g.kind(r).is_reduce() || threads(self.g.kind(r)));
        let all = self.src[1..].iter().all(reduced);
        self.want(axes.is_empty() && all, "reduces over ranges of a reduce kind, without axes")
    }

    // ---- state

    fn store(&self) -> Check<'_> {
        self.want(self.src.len() >= 2, "a target and a value wanted")?;
        let (target, value) = (self.src[0], self.src[1]);
        self.source(1, self.g.dtype(target))?.value(value)?;
        if self.g.op(target) == Op::Index {
            self.want(self.stage != Some(Stage::Tensor), "stores to an address")?;
            return if self.src.len() == 2 { Ok(self) } else { self.count(3)?.source(2, DType::Bool) };
        }
        self.want(self.stage.is_none_or(|s| s == Stage::Tensor), "stores to no address")?;
        let mut base = target;
        while self.g.op(base).is_movement() && !matches!(self.g.op(base), Op::Pad | Op::Expand)
            || matches!(self.g.op(base), Op::After | Op::Gather)
        {
            base = self.g.src_at(base, 0);
        }
        self.want(matches!(self.g.op(base), Op::Buffer | Op::Param), "the target is no view of storage")?;
        let (t, v) = (self.g.shape(target), self.g.shape(value));
        self.count(2)?.want(v.is_empty() || t == v, "target and value differ in shape")
    }

    /// The sources of a Custom: first distinct buffers that it writes, then materialised values that it reads and does
    /// not write.
    fn custom(&self) -> Check<'_> {
        let Arg::Custom(c) = self.arg else { return self.bad_arg() };
        self.want(c.outputs > 0 && c.outputs <= self.src.len(), "a custom kernel writes some of its sources")?;
        let (outs, xs) = self.src.split_at(c.outputs);
        let in_memory = |u: &UOp, ops: &[Op]| ops.contains(&self.g.op(*u));
        self.want(outs.iter().all(|u| in_memory(u, &[Op::Buffer, Op::Param])), "a custom kernel writes storage")?;
        let held = [Op::Buffer, Op::Param, Op::After, Op::Contiguous];
        self.want(xs.iter().all(|u| in_memory(u, &held)), "a custom kernel reads what lies in memory")?;
        let once = outs.iter().enumerate().all(|(i, u)| !self.src[i + 1..].contains(u));
        self.want(once, "what a custom kernel writes is no other source of it")
    }

    /// In a tensor graph an After is of a whole buffer, possibly reshaped, since only buffers can have been written.
    fn after(&self) -> Check<'_> {
        let mut base = self.src[0];
        while matches!(self.g.op(base), Op::Reshape | Op::After) {
            base = self.g.src_at(base, 0);
        }
        let storage = matches!(self.g.op(base), Op::Buffer | Op::Param);
        self.want(storage || self.stage != Some(Stage::Tensor), "what is read after writes is no storage")
    }
}

fn distinct_below(axes: &[u8], rank: usize) -> std::result::Result<(), String> {
    for (i, a) in axes.iter().enumerate() {
        if *a as usize >= rank {
            return Err(format!("axis {a} at rank {rank}"));
        }
        if axes[..i].contains(a) {
            return Err(format!("axis {a} twice"));
        }
    }
    Ok(())
}
