//! Ensembles of decision trees. All trees are descended at once: each step gathers, for every row and tree, the current
//! node's feature, threshold and successors; a row that has reached a leaf stays there. So an ensemble takes as many
//! steps as its deepest tree, whatever the number of trees.

use super::super::value::{Cx, Value};
use super::elementwise::one;
use super::ml::{Second, classify, labels, matrix, post_transform};
use super::{Op, OpDef, ml};
use crate::dtype::DType;
use crate::error::Result;
use crate::io::HostTensor;
use crate::tensor::Tensor;
use crate::util::decimal::Shown;
use rustc_hash::FxHashMap;

pub(super) static OPS: &[OpDef] = &[
    ml("TreeEnsembleRegressor", regressor),
    ml("TreeEnsembleClassifier", classifier),
    OpDef { floats: 1, ..ml("TreeEnsemble", ensemble) },
];

/// How a node compares its feature with its value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    LessEqual,
    Less,
    GreaterEqual,
    Greater,
    Equal,
    NotEqual,
    /// True if the feature is one of a list of values.
    Member,
    Leaf,
}

const MODES: [(&str, Mode); 8] = [
    ("BRANCH_LEQ", Mode::LessEqual),
    ("BRANCH_LT", Mode::Less),
    ("BRANCH_GTE", Mode::GreaterEqual),
    ("BRANCH_GT", Mode::Greater),
    ("BRANCH_EQ", Mode::Equal),
    ("BRANCH_NEQ", Mode::NotEqual),
    ("BRANCH_MEMBER", Mode::Member),
    ("LEAF", Mode::Leaf),
];

struct Node {
    mode: Mode,
    feature: usize,
    value: f64,
    /// Index of the successor where the comparison holds (`no`: where it does not); the node itself at a leaf.
    yes: usize,
    no: usize,
    /// True if a NaN feature follows `yes`.
    nan_is_yes: bool,
    members: Vec<f64>,
}

/// The nodes of all trees in one list.
struct Forest {
    nodes: Vec<Node>,
    roots: Vec<usize>,
    /// The contributions of leaves: node, target, weight.
    weights: Vec<(usize, usize, f64)>,
    targets: usize,
}

/// The depth of the deepest tree; `None` if a node is its own descendant or a successor does not exist.
fn depth(f: &Forest) -> Option<usize> {
    let mut level = vec![0usize; f.nodes.len()];
    let (mut open, mut deepest) = (f.roots.clone(), 0);
    let mut steps = 0;
    while let Some(i) = open.pop() {
        steps += 1;
        let node = f.nodes.get(i)?;
        deepest = deepest.max(level[i]);
        if steps > f.nodes.len() {
            return None;
        }
        if node.mode != Mode::Leaf {
            for next in [node.yes, node.no].into_iter().take(if node.yes == node.no { 1 } else { 2 }) {
                *level.get_mut(next)? = level[i] + 1;
                open.push(next);
            }
        }
    }
    Some(deepest)
}

fn column(f: &Forest, dtype: DType, of: impl Fn(&Node) -> f64) -> Result<Value> {
    let list: Vec<_> = f.nodes.iter().map(|n| crate::dtype::Scalar::from_f64(of(n), dtype)).collect();
    HostTensor::from_scalars(dtype, vec![f.nodes.len()], &list).map(Value::known)
}

/// The leaf that every row reaches in every tree: `[rows, trees]`.
fn leaves(o: &Op<'_, '_>, f: &Forest, x: &Value) -> Result<Value> {
    let cx = &o.cx;
    let (rows, width, trees) = (x.dim(0)?, x.dim(1)?, f.roots.len());
    let Some(depth) = depth(f) else { return o.fail("the nodes are no trees") };
    if f.nodes.iter().any(|n| n.mode != Mode::Leaf && n.feature >= width) {
        return o.fail(format!("a tree reads a feature that {:?} does not have", x.shape()));
    }
    cx.check_shape(&[rows, trees.max(1)])?;
    let place = |i: usize| i as f64;
    let feature = column(f, DType::I32, |n| place(if n.mode == Mode::Leaf { 0 } else { n.feature }))?;
    let value = column(f, x.dtype(), |n| n.value)?;
    let (yes, no) = (column(f, DType::I32, |n| place(n.yes))?, column(f, DType::I32, |n| place(n.no))?);
    let nan = column(f, DType::Bool, |n| f64::from(u8::from(n.nan_is_yes)))?;
    let mode = column(f, DType::I32, |n| f64::from(n.mode as u8))?;
    let used = |m: Mode| f.nodes.iter().any(|n| n.mode == m);
    let (members, many) = members(cx, f, x.dtype())?;
    let has_nan = f.nodes.iter().any(|n| n.nan_is_yes);
    let roots: Vec<i64> = f.roots.iter().map(|&r| r as i64).collect();
    let mut at = cx.expand(&cx.reshape(&cx.cast(&cx.ints(&roots)?, DType::I32)?, &[1, trees])?, &[rows, trees])?;
    for _ in 0..depth {
        let v = cx.gather_elements(x, &cx.gather(&feature, &at, 0)?, 1)?;
        let limit = cx.gather(&value, &at, 0)?;
        let kind = cx.gather(&mode, &at, 0)?;
        let mut go: Option<Value> = None;
        for (_, m) in MODES.iter().filter(|m| m.1 != Mode::Leaf && used(m.1)) {
            let is = match m {
                Mode::LessEqual => cx.or(&cx.lt(&v, &limit)?, &cx.eq(&v, &limit)?)?,
                Mode::Less => cx.lt(&v, &limit)?,
                Mode::GreaterEqual => cx.or(&cx.lt(&limit, &v)?, &cx.eq(&v, &limit)?)?,
                Mode::Greater => cx.lt(&limit, &v)?,
                Mode::Equal => cx.eq(&v, &limit)?,
                Mode::NotEqual => cx.not(&cx.eq(&v, &limit)?)?,
                Mode::Member | Mode::Leaf => {
                    let list = cx.gather(&members, &at, 0)?;
                    let wide = cx.reshape(&v, &[rows, trees, 1])?;
                    let hits = cx.cast(&cx.eq(&wide, &list)?, DType::I32)?;
                    debug_assert!(many > 0);
                    let n = cx.reduce(Tensor::sum, &hits, &[2], false)?;
                    cx.lt(&cx.scalar_like(&n, 0.0), &n)?
                }
            };
            go = Some(match go {
                None => is,
                Some(old) => {
                    let own = cx.eq(&kind, &cx.scalar_like(&kind, f64::from(*m as u8)))?;
                    cx.select(&own, &is, &old)?
                }
            });
        }
        let Some(mut go) = go else { break };
        if has_nan {
            let lost = cx.and(&cx.unary(Tensor::isnan, &v)?, &cx.gather(&nan, &at, 0)?)?;
            go = cx.or(&go, &lost)?;
        }
        at = cx.select(&go, &cx.gather(&yes, &at, 0)?, &cx.gather(&no, &at, 0)?)?;
    }
    Ok(at)
}

/// The member list of each node, padded with NaN, which equals nothing: `[nodes, longest]`.
fn members(cx: &Cx<'_>, f: &Forest, dtype: DType) -> Result<(Value, usize)> {
    let many = f.nodes.iter().map(|n| n.members.len()).max().unwrap_or(0);
    let rows = f.nodes.iter().flat_map(|n| (0..many).map(|i| n.members.get(i).copied().unwrap_or(f64::NAN)));
    let mut list = cx.vec_with_capacity(f.nodes.len().saturating_mul(many))?;
    list.extend(rows.map(|v| crate::dtype::Scalar::from_f64(v, dtype)));
    Ok((Value::known(HostTensor::from_scalars(dtype, vec![f.nodes.len(), many], &list)?), many))
}

/// The leaves' weights, aggregated over all trees: `[rows, targets]`.
fn scores(o: &Op<'_, '_>, f: &Forest, x: &Value, how: &str) -> Result<Value> {
    let cx = &o.cx;
    let at = leaves(o, f, x)?;
    let n = cx.check_shape(&[f.nodes.len(), f.targets])?;
    let empty = match how {
        "MIN" => f64::INFINITY,
        "MAX" => f64::NEG_INFINITY,
        _ => 0.0,
    };
    let mut table = cx.filled(n, empty)?;
    for &(node, target, weight) in &f.weights {
        let slot = &mut table[node * f.targets + target];
        *slot = if empty == 0.0 { *slot + weight } else { weight };
    }
    let list: Vec<_> = table.into_iter().map(|v| crate::dtype::Scalar::from_f64(v, x.dtype())).collect();
    let table = Value::known(HostTensor::from_scalars(x.dtype(), vec![f.nodes.len(), f.targets], &list)?);
    let each = cx.gather(&table, &at, 0)?;
    match how {
        "SUM" => cx.reduce(Tensor::sum, &each, &[1], false),
        "AVERAGE" => cx.mean(&each, &[1], false),
        "MIN" | "MAX" => {
            let best = cx.reduce(if how == "MIN" { Tensor::min } else { Tensor::max }, &each, &[1], false)?;
            let none = cx.eq(&best, &cx.scalar_like(&best, empty))?;
            cx.select(&none, &cx.scalar_like(&best, 0.0), &best)
        }
        other => o.fail(format!("the aggregate `{other}` is unknown")),
    }
}

/// The numbers of a list attribute, or of the tensor attribute that may replace it.
fn numbers(o: &Op<'_, '_>, name: &str) -> Result<Vec<f64>> {
    if let Some(v) = o.floats_opt(name)? {
        return Ok(v.into_iter().map(f64::from).collect());
    }
    let long = format!("{name}_as_tensor");
    match o.tensor_opt(&long)? {
        Some(t) => Ok(o.cx.host(&Value::constant(t)?)?.map_or_else(Vec::new, |t| t.to_f64())),
        None => Ok(Vec::new()),
    }
}

/// Reads the trees of TreeEnsembleRegressor and TreeEnsembleClassifier; `part` is `target` or `class`.
fn forest(o: &Op<'_, '_>, part: &str, targets: usize) -> Result<Forest> {
    let list = |name: &str| o.ints_opt(name).map(Option::unwrap_or_default);
    let (trees, ids) = (list("nodes_treeids")?, list("nodes_nodeids")?);
    let (features, yes, no) = (list("nodes_featureids")?, list("nodes_truenodeids")?, list("nodes_falsenodeids")?);
    let (modes, values, nans) =
        (o.strs("nodes_modes")?, numbers(o, "nodes_values")?, list("nodes_missing_value_tracks_true")?);
    let n = trees.len();
    if n == 0 || [ids.len(), features.len(), yes.len(), no.len(), modes.len(), values.len()].iter().any(|&l| l != n) {
        return o.fail("the attributes of the nodes differ in length");
    }
    let places: FxHashMap<(i64, i64), usize> = (0..n).map(|i| ((trees[i], ids[i]), i)).collect();
    let find = |tree: i64, id: i64| match places.get(&(tree, id)) {
        Some(&i) => Ok(i),
        None => o.fail(format!("tree {tree} has no node {id}")),
    };
    let mut f = Forest { nodes: Vec::with_capacity(n), roots: Vec::new(), weights: Vec::new(), targets };
    for i in 0..n {
        let mode = MODES.iter().find(|m| m.0 == modes[i] && m.1 != Mode::Member).map(|m| m.1);
        let Some(mode) = mode else { return o.fail(format!("the mode `{}` is unknown", modes[i])) };
        let next = |id: i64| if mode == Mode::Leaf { Ok(i) } else { find(trees[i], id) };
        f.nodes.push(Node {
            mode,
            feature: o.size(features[i])?,
            value: values[i],
            yes: next(yes[i])?,
            no: next(no[i])?,
            nan_is_yes: nans.get(i).is_some_and(|&v| v != 0),
            members: Vec::new(),
        });
        // The first node of a tree is its root.
        if i == 0 || !trees[..i].contains(&trees[i]) {
            f.roots.push(i);
        }
    }
    let (w_trees, w_nodes) = (list(&format!("{part}_treeids"))?, list(&format!("{part}_nodeids"))?);
    let (w_ids, weights) = (list(&format!("{part}_ids"))?, numbers(o, &format!("{part}_weights"))?);
    if [w_nodes.len(), w_ids.len(), weights.len()].iter().any(|&l| l != w_trees.len()) {
        return o.fail("the attributes of the leaves differ in length");
    }
    for i in 0..weights.len() {
        let target = o.size(w_ids[i])?;
        if target >= targets {
            return o.fail(format!("target {target} of {targets}"));
        }
        f.weights.push((find(w_trees[i], w_nodes[i])?, target, weights[i]));
    }
    Ok(f)
}

/// Adds the base values to every row.
fn plus(cx: &Cx<'_>, x: &Value, base: &[f64]) -> Result<Value> {
    let list: Vec<_> = base.iter().map(|&v| crate::dtype::Scalar::from_f64(v, x.dtype())).collect();
    cx.add(x, &Value::known(HostTensor::from_scalars(x.dtype(), vec![base.len()], &list)?))
}

/// The features as a matrix; f64 features stay f64, others become f32.
fn features(o: &Op<'_, '_>) -> Result<Value> {
    let x = o.arg(0)?;
    match *x.shape() {
        [n] if x.dtype() == DType::F64 => o.cx.reshape(&x, &[1, n]),
        [_, _] if x.dtype() == DType::F64 => Ok(x),
        _ => matrix(o, 0),
    }
}

fn regressor(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = features(o)?;
    let targets = o.size(o.int("n_targets", 1)?)?;
    let f = forest(o, "target", targets)?;
    let mut y = scores(o, &f, &x, &o.str("aggregate_function", "SUM")?)?;
    let base = numbers(o, "base_values")?;
    if !base.is_empty() {
        if base.len() != targets {
            return o.fail(format!("{} base values for {targets} targets", base.len()));
        }
        y = plus(o.cx, &y, &base)?;
    }
    let kind = o.str("post_transform", "NONE")?;
    let y = post_transform(o, &y, &kind)?;
    one(o.cx.cast(&y, DType::F32))
}

fn classifier(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let labels = labels(o, "classlabels_int64s", "classlabels_strings")?;
    let x = features(o)?;
    let mut f = forest(o, "class", labels.len())?;
    let base = numbers(o, "base_values")?;
    let is_binary = labels.len() == 2 && f.weights.iter().all(|w| w.1 == f.weights[0].1);
    if is_binary {
        // Two classes with a single score.
        f.targets = 1;
        f.weights.iter_mut().for_each(|w| w.1 = 0);
        let mut y = scores(o, &f, &x, "SUM")?;
        y = match base[..] {
            [] => y,
            [b] | [_, b] => plus(o.cx, &y, &[b])?,
            _ => return o.fail(format!("{} base values for 2 classes", base.len())),
        };
        let positive = f.weights.iter().all(|w| w.2 >= 0.0);
        let y = o.cx.cast(&y, DType::F32)?;
        return classify(o, &y, &labels, if positive { Second::Probability } else { Second::Negative });
    }
    let mut y = scores(o, &f, &x, "SUM")?;
    if !base.is_empty() {
        if base.len() != labels.len() {
            return o.fail(format!("{} base values for {} classes", base.len(), labels.len()));
        }
        y = plus(o.cx, &y, &base)?;
    }
    let y = o.cx.cast(&y, DType::F32)?;
    classify(o, &y, &labels, Second::Complement)
}

/// TreeEnsemble (`ai.onnx.ml` version 5) stores inner nodes and leaves in separate lists; here leaves follow the nodes
/// in one list.
fn ensemble(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = features(o)?;
    let list = |name: &str| o.ints_opt(name).map(Option::unwrap_or_default);
    let tensor = |name: &str| match o.tensor_opt(name)? {
        Some(t) => Ok(o.cx.host(&Value::constant(t)?)?.map_or_else(Vec::new, |t| t.to_f64())),
        None => Ok(Vec::new()),
    };
    let (modes, splits, weights) = (tensor("nodes_modes")?, tensor("nodes_splits")?, tensor("leaf_weights")?);
    let (features, nans) = (list("nodes_featureids")?, list("nodes_missing_value_tracks_true")?);
    let (yes, no) = (list("nodes_truenodeids")?, list("nodes_falsenodeids")?);
    let (yes_leaf, no_leaf, targets) = (list("nodes_trueleafs")?, list("nodes_falseleafs")?, list("leaf_targetids")?);
    let n = modes.len();
    let lengths = [features.len(), splits.len(), yes.len(), no.len(), yes_leaf.len(), no_leaf.len()];
    if lengths.iter().any(|&l| l != n) || targets.len() != weights.len() {
        return o.fail("the attributes of the nodes differ in length");
    }
    let n_targets = o.size(o.int("n_targets", 1)?)?;
    let mut lists =
        tensor("membership_values")?.split(|v| v.is_nan()).map(<[f64]>::to_vec).collect::<Vec<_>>().into_iter();
    let roots = o.sizes(&list("tree_roots")?)?;
    let mut f = Forest { nodes: Vec::new(), roots, weights: Vec::new(), targets: n_targets };
    let next = |i: i64, leaf: i64| o.size(i).map(|i| if leaf != 0 { n.saturating_add(i) } else { i });
    for i in 0..n {
        let Some(&(_, mode)) = MODES.get(modes[i] as usize).filter(|m| m.1 != Mode::Leaf) else {
            return o.fail(format!("the mode {} is unknown", Shown(modes[i])));
        };
        f.nodes.push(Node {
            mode,
            feature: o.size(features[i])?,
            value: splits[i],
            yes: next(yes[i], yes_leaf[i])?,
            no: next(no[i], no_leaf[i])?,
            nan_is_yes: nans.get(i).is_some_and(|&v| v != 0),
            members: if mode == Mode::Member { lists.next().unwrap_or_default() } else { Vec::new() },
        });
    }
    for (i, (&target, &weight)) in targets.iter().zip(&weights).enumerate() {
        let at = n + i;
        f.nodes.push(Node {
            mode: Mode::Leaf,
            feature: 0,
            value: 0.0,
            yes: at,
            no: at,
            nan_is_yes: false,
            members: Vec::new(),
        });
        let target = o.size(target)?;
        if target >= n_targets {
            return o.fail(format!("target {target} of {n_targets}"));
        }
        f.weights.push((at, target, weight));
    }
    let how = ["AVERAGE", "SUM", "MIN", "MAX"].get(o.size(o.int("aggregate_function", 1)?)?).copied().unwrap_or("?");
    let y = scores(o, &f, &x, how)?;
    let kinds = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"];
    let kind = kinds.get(o.size(o.int("post_transform", 0)?)?).copied().unwrap_or("?");
    one(post_transform(o, &y, kind))
}
