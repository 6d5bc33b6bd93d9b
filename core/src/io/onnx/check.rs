//! Checks a model before its graph is built: all names resolve, there are no cycles, and every operator is known. Also
//! finds the inputs whose values decide shapes or branches, so that they must be known during a build.

use crate::util::sorted::{SortedMap, SortedSet};

use super::ops::Operators;
use super::proto::{AttrValue, FunctionProto, GraphProto, ModelProto, NodeProto};
use crate::error::{Error, Result};
use crate::util::gather;

/// How errors refer to a node: its name, or else its first output, and its operator.
pub(super) fn describe(n: &NodeProto) -> String {
    let name = [&n.name, n.outputs.first().unwrap_or(&n.name)].into_iter().find(|s| !s.is_empty());
    format!("`{}` ({})", name.map_or("", |n| n.as_str()), n.op_type)
}

fn fail(what: String, node: &NodeProto) -> Error {
    Error::Model { what, node: Some(describe(node)) }
}

/// Adds the node to an error about shapes, dtypes, values, budgets or support that names none yet.
pub(super) fn name_node(e: Error, node: &NodeProto) -> Error {
    match e {
        Error::Shape { .. } | Error::Axis { .. } | Error::DType { .. } | Error::Value { .. } => {
            Error::Model { what: e.to_string(), node: Some(describe(node)) }
        }
        Error::Model { what, node: None } => Error::Model { what, node: Some(describe(node)) },
        Error::Budget { what, limit, wanted, node: None } => {
            Error::Budget { what, limit, wanted, node: Some(describe(node)) }
        }
        Error::Unsupported { what, context } if context.is_empty() => {
            Error::Unsupported { what, context: format!("node {}", describe(node)) }
        }
        e => e,
    }
}

/// The subgraphs of a node.
pub(super) fn subgraphs(n: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    n.attributes.iter().flat_map(|a| match &a.value {
        AttrValue::Graph(g) => std::slice::from_ref(&**g),
        AttrValue::Graphs(g) => g,
        _ => &[],
    })
}

fn subgraphs_mut(n: &mut NodeProto) -> impl Iterator<Item = &mut GraphProto> {
    n.attributes.iter_mut().flat_map(|a| match &mut a.value {
        AttrValue::Graph(g) => std::slice::from_mut(&mut **g),
        AttrValue::Graphs(g) => g,
        _ => &mut [],
    })
}

/// The names visible in a graph.
#[derive(Default)]
struct Names<'a> {
    own: SortedSet<String>,
    outer: Option<&'a Names<'a>>,
}

impl Names<'_> {
    fn has(&self, name: &str) -> bool {
        self.own.contains(name) || self.outer.is_some_and(|o| o.has(name))
    }
}

/// The newest version of ONNX's operator set that is supported.
const NEWEST: i64 = 28;

/// The message if the model's operator set is too new: a newer version may give known names another meaning.
pub(super) fn too_new(m: &ModelProto) -> Option<String> {
    let set = m.opsets.iter().find(|o| o.domain.is_empty() && o.version > NEWEST)?;
    Some(format!("operator set {}: {NEWEST} is the newest that is known", set.version))
}

/// Sorts all graphs topologically, drops unused nodes, and refuses unsupported operators.
pub(super) fn check_model(m: &mut ModelProto, operators: Operators) -> Result<()> {
    if let Some(what) = too_new(m) {
        return Err(Error::Unsupported { what, context: "ONNX model".to_owned() });
    }
    sort(m)?;
    let missing = missing(m, operators)?;
    if missing.is_empty() {
        return Ok(());
    }
    let mut list = Vec::new();
    for (op, nodes) in missing {
        let some: Vec<&str> = nodes.iter().take(3).map(String::as_str).collect();
        let more = if nodes.len() > 3 { format!(" and {} more", nodes.len() - 3) } else { String::new() };
        list.push(format!("{op} (node {}{more})", some.join(", ")));
    }
    Err(Error::Unsupported { what: format!("operators: {}", list.join("; ")), context: "ONNX model".to_owned() })
}

/// Sorts all graphs topologically and drops unused nodes.
pub(super) fn sort(m: &mut ModelProto) -> Result<()> {
    sort_graph(&mut m.graph, None)?;
    for f in &mut m.functions {
        let names = Names { own: f.inputs.iter().cloned().collect(), outer: None };
        f.nodes = sort_nodes(std::mem::take(&mut f.nodes), names, &f.outputs)?;
    }
    Ok(())
}

/// Unsupported operators with the nodes that use them.
pub(super) fn missing(m: &ModelProto, operators: Operators) -> Result<SortedMap<String, Vec<String>>> {
    let mut missing = SortedMap::new();
    let mut state = vec![Visit::New; m.functions.len()];
    unsupported(&m.graph.nodes, &m.functions, operators, &mut state, &mut missing)?;
    Ok(missing)
}

fn sort_graph(g: &mut GraphProto, outer: Option<&Names<'_>>) -> Result<()> {
    if let Some(name) = g.sparse_initializers.first() {
        let context = format!("graph `{}`", g.name);
        return Err(Error::Unsupported { what: format!("sparse initializer `{name}`"), context });
    }
    let own = g.inputs.iter().map(|i| &i.name).chain(g.initializers.iter().map(|t| &t.name));
    let names = Names { own: own.cloned().collect(), outer };
    let outputs: Vec<String> = g.outputs.iter().map(|o| o.name.clone()).collect();
    g.nodes = sort_nodes(std::mem::take(&mut g.nodes), names, &outputs)?;
    Ok(())
}

/// Names that a graph uses but does not define.
fn free_names(g: &GraphProto, out: &mut SortedSet<String>) {
    let mut used = SortedSet::new();
    for n in &g.nodes {
        used.extend(reads(n));
        subgraphs(n).for_each(|s| free_names(s, &mut used));
    }
    used.extend(g.outputs.iter().map(|o| o.name.clone()));
    let own = g.inputs.iter().map(|i| &i.name).chain(g.initializers.iter().map(|t| &t.name));
    for name in own.chain(g.nodes.iter().flat_map(|n| &n.outputs)) {
        used.remove(name);
    }
    out.extend(used);
}

/// The names that a node itself reads: its inputs, and for `Gradient` also those that its attributes name.
fn reads(n: &NodeProto) -> impl Iterator<Item = String> + '_ {
    let graph = n.attributes.iter().filter(|_| n.op_type == "Gradient").flat_map(|a| match &a.value {
        AttrValue::Str(y) if a.name == "y" => vec![String::from_utf8_lossy(y).into_owned()],
        AttrValue::Strings(xs) if a.name == "xs" || a.name == "zs" => {
            xs.iter().map(|x| String::from_utf8_lossy(x).into_owned()).collect()
        }
        _ => Vec::new(),
    });
    n.inputs.iter().cloned().chain(graph)
}

/// True if any node of the model, including subgraphs and functions, satisfies `is`.
pub(super) fn any_node(m: &ModelProto, is: &dyn Fn(&NodeProto) -> bool) -> bool {
    fn inside(nodes: &[NodeProto], is: &dyn Fn(&NodeProto) -> bool) -> bool {
        nodes.iter().any(|n| is(n) || subgraphs(n).any(|g| inside(&g.nodes, is)))
    }
    inside(&m.graph.nodes, is) || m.functions.iter().any(|f| inside(&f.nodes, is))
}

/// Names of the values that nodes read (in subgraphs too), together with `also`.
pub(super) fn used(nodes: &[NodeProto], also: &[&str]) -> SortedSet<String> {
    let mut names: SortedSet<String> = gather(also.iter().map(|n| n.to_string()));
    for n in nodes {
        names.extend(reads(n));
        subgraphs(n).for_each(|g| free_names(g, &mut names));
    }
    names
}

/// Topological order of the nodes that `outputs` need; the file's order is kept where it is valid.
fn sort_nodes(mut nodes: Vec<NodeProto>, mut known: Names<'_>, outputs: &[String]) -> Result<Vec<NodeProto>> {
    let mut producer: SortedMap<&str, usize> = SortedMap::new();
    for (i, n) in nodes.iter().enumerate() {
        for o in n.outputs.iter().filter(|o| !o.is_empty()) {
            if producer.insert(o, i).is_some() {
                return Err(fail(format!("the value `{o}` is produced twice"), n));
            }
        }
    }
    let mut needs: Vec<Vec<usize>> = Vec::with_capacity(nodes.len());
    for n in &nodes {
        let mut names: SortedSet<String> = gather(reads(n));
        subgraphs(n).for_each(|g| free_names(g, &mut names));
        names.remove("");
        let mut from = SortedSet::new();
        for name in &names {
            match producer.get(name.as_str()) {
                Some(&p) => drop(from.insert(p)),
                None if known.has(name) => {}
                None => return Err(fail(format!("the value `{name}` is not defined anywhere"), n)),
            }
        }
        needs.push(from.into_iter().collect());
    }
    let mut live = vec![false; nodes.len()];
    let mut open = Vec::new();
    for o in outputs {
        match producer.get(o.as_str()) {
            Some(&p) => open.push(p),
            None if known.has(o) => {}
            None => return Err(Error::Model { what: format!("the output `{o}` is not defined anywhere"), node: None }),
        }
    }
    while let Some(i) = open.pop() {
        if !std::mem::replace(&mut live[i], true) {
            open.extend(&needs[i]);
        }
    }
    let order =
        order(&needs, &live).map_err(|i| fail("the graph has a cycle through this node".to_owned(), &nodes[i]))?;
    // A subgraph may read all values of the enclosing graph.
    known.own.extend(nodes.iter().flat_map(|n| n.outputs.iter().cloned()));
    for (n, _) in nodes.iter_mut().zip(&live).filter(|(_, live)| **live) {
        for g in subgraphs_mut(n) {
            sort_graph(g, Some(&known))?;
        }
    }
    let mut slots: Vec<Option<NodeProto>> = nodes.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|i| slots[i].take()).collect())
}

/// Kahn's algorithm, smallest index first; the error is a node on a cycle.
fn order(needs: &[Vec<usize>], live: &[bool]) -> Result<Vec<usize>, usize> {
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    let mut waiting: Vec<usize> = needs.iter().map(Vec::len).collect();
    for (i, from) in needs.iter().enumerate().filter(|(i, _)| live[*i]) {
        from.iter().for_each(|&p| users[p].push(i));
    }
    let mut ready: SortedSet<usize> = gather((0..needs.len()).filter(|&i| live[i] && waiting[i] == 0));
    let mut out = Vec::new();
    while let Some(i) = ready.pop_first() {
        out.push(i);
        for &u in &users[i] {
            waiting[u] -= 1;
            if waiting[u] == 0 {
                ready.insert(u);
            }
        }
    }
    let stuck = |i: &usize| live[*i] && waiting[*i] > 0;
    let Some(mut at) = (0..needs.len()).find(stuck) else { return Ok(out) };
    // Every stuck node needs a stuck node, so after as many steps back as there are nodes, `at` lies on a cycle.
    for _ in 0..needs.len() {
        at = needs[at].iter().copied().find(stuck).unwrap_or(at);
    }
    Err(at)
}

/// The state of each function in the depth-first walk, to detect recursion.
#[derive(Clone, Copy, PartialEq)]
enum Visit {
    New,
    Open,
    Done,
}

/// Collects nodes whose operators are neither supported nor functions of the model.
fn unsupported(
    nodes: &[NodeProto],
    functions: &[FunctionProto],
    operators: Operators,
    state: &mut [Visit],
    missing: &mut SortedMap<String, Vec<String>>,
) -> Result<()> {
    for n in nodes {
        if let Some(i) = functions.iter().position(|f| f.name == n.op_type && f.domain == n.domain) {
            match state[i] {
                Visit::Open => return Err(fail("the function calls itself".to_owned(), n)),
                Visit::Done => {}
                Visit::New => {
                    state[i] = Visit::Open;
                    unsupported(&functions[i].nodes, functions, operators, state, missing)?;
                    state[i] = Visit::Done;
                }
            }
        } else if operators.find(&n.domain, &n.op_type).is_none() {
            let dot = if n.domain.is_empty() { "" } else { "." };
            missing.or_insert_with(format!("{}{dot}{}", n.domain, n.op_type), Vec::new).push(describe(n));
        }
        for g in subgraphs(n) {
            unsupported(&g.nodes, functions, operators, state, missing)?;
        }
    }
    Ok(())
}

/// The maximum depth of nested function calls.
pub(super) const MAX_CALLS: usize = 8;

/// The model's own function that a node calls.
pub(super) fn function<'a>(functions: &'a [FunctionProto], n: &NodeProto) -> Option<&'a FunctionProto> {
    functions.iter().find(|f| f.name == n.op_type && f.domain == n.domain)
}

/// Indices of graph inputs.
type Set = SortedSet<usize>;

/// The inputs whose *values* decide shapes (`hard`) or branches (`soft`).
#[derive(Default)]
pub(super) struct Demand {
    pub(super) hard: Set,
    pub(super) soft: Set,
    steps: usize,
}

struct Env<'a> {
    values: SortedMap<String, Set>,
    parent: Option<&'a Env<'a>>,
}

impl Env<'_> {
    fn get(&self, name: &str) -> Set {
        match (self.values.get(name), self.parent) {
            (Some(s), _) => s.clone(),
            (None, Some(p)) => p.get(name),
            (None, None) => Set::new(),
        }
    }
}

/// Propagates the dependence of values on inputs through the graph. `Shape` and `Size` end it: what they return depends
/// on shapes only.
pub(super) fn demand(m: &ModelProto, operators: Operators) -> Demand {
    let mut env = Env { values: SortedMap::new(), parent: None };
    for (i, input) in m.graph.inputs.iter().enumerate() {
        env.values.insert(input.name.clone(), gather([i]));
    }
    let mut d = Demand::default();
    flow(&m.graph.nodes, &mut env, (&m.functions, operators), 0, &mut d);
    d
}

/// Propagates dependences through nodes; `known` holds the model's functions and the operators.
fn flow(nodes: &[NodeProto], env: &mut Env<'_>, known: (&[FunctionProto], Operators), depth: usize, d: &mut Demand) {
    for n in nodes {
        // Nested functions can make the walk exponential; a build is limited to a similar number of nodes.
        d.steps += 1;
        if d.steps > 1 << 20 {
            return;
        }
        let ins: Vec<Set> = n.inputs.iter().map(|i| env.get(i)).collect();
        let mut all: Set = gather(ins.iter().flatten().copied());
        let mut outs: Option<Vec<Set>> = None;
        if let Some(f) = function(known.0, n).filter(|_| depth < MAX_CALLS) {
            let values = gather(f.inputs.iter().cloned().zip(ins.iter().cloned()));
            let mut inner = Env { values, parent: None };
            flow(&f.nodes, &mut inner, known, depth + 1, d);
            outs = Some(f.outputs.iter().map(|o| inner.get(o)).collect());
        } else if let Some(op) = known.1.find(&n.domain, &n.op_type) {
            for (i, set) in ins.iter().enumerate() {
                if op.known & (1 << i.min(31)) != 0 {
                    d.hard.extend(set);
                }
            }
            match n.op_type.as_str() {
                "Shape" | "Size" => all = Set::new(),
                "If" => d.soft.extend(&all),
                _ => {}
            }
        }
        for g in subgraphs(n) {
            let mut inner = Env { values: SortedMap::new(), parent: Some(env) };
            g.inputs.iter().for_each(|i| drop(inner.values.insert(i.name.clone(), all.clone())));
            flow(&g.nodes, &mut inner, known, depth, d);
            let found: Vec<Set> = g.outputs.iter().map(|o| inner.get(&o.name)).collect();
            all.extend(found.iter().flatten());
        }
        for (i, o) in n.outputs.iter().enumerate() {
            let set = outs.as_ref().and_then(|v| v.get(i)).unwrap_or(&all);
            env.values.insert(o.clone(), set.clone());
        }
    }
}
