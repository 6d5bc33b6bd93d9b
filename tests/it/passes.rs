//! One pass on one kernel each: `tests/ir/*.ir` have a kernel as the scheduler makes it, a target, a pass, and the text after that pass.
//! `BLESS=1 cargo test -p gradloom-tests --test it passes` takes what passes make of them now.
//!
//! The head of a file is comments: `target`, one of those below; `opts`, as `gradloom kernels --passes` prints them, or `chosen`; `pass`.
//! A pass over the graph of a model has no opts, but `inputs`: the numbers of the buffers that differ from run to run. One of the scheduler
//! has neither, and a tensor graph of parameters.
//! The kernel, or graph, follows, then a line `----`, then what is wanted: a graph, or `the same`.

use gradloom::{Runtime, Tensor};
use gradloom_core::codegen::{Opt, PASSES, compile_watched};
use gradloom_core::dtype::Scalar;
use gradloom_core::engine::passes::Outcome;
use gradloom_core::engine::{GRAPH_PASSES, GraphPass};
use gradloom_core::io::HostTensor;
use gradloom_core::schedule::{Ast, SCHEDULE_PASSES, SchedulePass, Scheduling, Stepped};
use gradloom_core::target::{Isa, MatrixTile, Target};
use gradloom_core::tensor::ConstantCache;
use gradloom_core::uop::eval::eval_tensor;
use gradloom_core::uop::parse::parse;
use gradloom_core::uop::print::print;
use gradloom_core::uop::{Arg, Graph, UOp};
use gradloom_tests::targets::wgsl_hardware;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn target(name: &str) -> Option<Target> {
    Some(match name {
        "x86-avx2" => Target::x86(Isa::Avx2, 1),
        "x86-vnni" => Target::x86(Isa::Avx512Vnni, 1),
        "x86-avx512" => Target::x86(Isa::Avx512, 1),
        "wasm" => Target::wasm(false, 1),
        "wgsl" => Target::wgsl("webgpu"),
        "wgsl-hardware" => wgsl_hardware(),
        "tiles" => Target::matrix("tiles", [MatrixTile::sm80(), MatrixTile::subgroup_matrix()].concat()),
        "wgsl-emulated" => Target::wgsl("webgpu").emulated(),
        _ => return None,
    })
}

/// What follows `// name: ` in a file's head.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|l| l.strip_prefix("// ")?.strip_prefix(name)?.strip_prefix(": "))
}

/// The text after the pass that a file names.
fn after(input: &str) -> Result<String, String> {
    let named = |name: &str| field(input, name).ok_or(format!("`{name}` is missing"));
    let t = target(named("target")?).ok_or("unknown target")?;
    if let Some(pass) = GRAPH_PASSES.iter().find(|p| Ok(p.name) == named("pass")) {
        return after_graph_pass(input, pass, &t, named("inputs")?);
    }
    if let Some(pass) = SCHEDULE_PASSES.iter().find(|p| Ok(p.name) == named("pass")) {
        return after_schedule_pass(input, pass, &t);
    }
    let opts = match named("opts")? {
        "chosen" => None,
        "none" => Some(Vec::new()),
        list => Some(Opt::parse_list(list).ok_or("unknown opts")?),
    };
    let pass = named("pass")?;
    if PASSES.iter().all(|p| p.name != pass) {
        return Err(format!("there is no pass `{pass}`"));
    }
    let kernel = parse(input).map_err(|e| e.to_string())?;
    let (sink, live) = kernel.roots.split_first().ok_or("`roots` is missing")?;
    if !live.is_empty() {
        gradloom_core::codegen::live::enable();
    }
    let ast = Ast { live: live.to_vec(), ..Ast::new(kernel.graph, *sink) };
    let (mut last, mut text) = (String::new(), None);
    compile_watched(&ast, &t, opts.as_deref(), &mut |p, l| {
        let now = l.text();
        if p.name == pass {
            text = Some(if now == last { "the same\n".into() } else { now.clone() });
        }
        last = now;
    })
    .map_err(|e| e.to_string())?;
    text.ok_or(format!("`{pass}` does not run for this target"))
}

/// The same of a pass over the graph of a model, which may not change a value.
fn after_graph_pass(input: &str, pass: &GraphPass, t: &Target, inputs: &str) -> Result<String, String> {
    let inputs: Vec<u32> =
        inputs.split(' ').map(|i| i.parse().map_err(|_| format!("no buffer {i}"))).collect::<Result<_, _>>()?;
    let parsed = parse(input).map_err(|e| e.to_string())?;
    let (mut g, roots) = (parsed.graph, parsed.roots);
    let new = match pass.run(&mut g, &roots, &inputs, t).map_err(|e| e.to_string())? {
        Outcome::Same => return Ok("the same\n".into()),
        Outcome::Constants(found) => found,
        Outcome::Roots(new) => {
            assert_eq!(values(&g, &new), values(&g, &roots), "{} changes values", pass.name);
            new
        }
    };
    Ok(print(&g, &new))
}

/// What is scheduled when the scheduler's pass has run, the first time if it runs again.
fn after_schedule_pass(input: &str, pass: &SchedulePass, t: &Target) -> Result<String, String> {
    let parsed = parse(input).map_err(|e| e.to_string())?;
    let slots = parsed.graph.iter().filter_map(|u| match parsed.graph.arg(u) {
        Arg::Param { slot, .. } => Some(*slot as usize + 1),
        _ => None,
    });
    gradloom_core::schedule::needed::enable();
    let mut s = Scheduling::new(&parsed.graph, &parsed.roots, slots.max().unwrap_or(0), t);
    let mut last = print(&parsed.graph, &parsed.roots);
    loop {
        match s.step().map_err(|e| e.to_string())? {
            Stepped::Part => {}
            Stepped::Pass(done) => {
                let now = s.text();
                if done.name == pass.name {
                    return Ok(if now == last { "the same\n".into() } else { now });
                }
                last = now;
            }
            Stepped::Done(_) => return Err(format!("`{}` does not run", pass.name)),
        }
    }
}

/// What the evaluator gives where all buffers have small numbers, of which no sum is rounded.
fn values(g: &Graph, roots: &[UOp]) -> Vec<Vec<f64>> {
    let buffer = |wanted: u32| {
        g.iter().find_map(|u| match g.arg(u) {
            Arg::Buffer { id, len } if *id == wanted => Some((g.dtype(u), *len)),
            _ => None,
        })
    };
    let mut bytes = |id: u32| {
        let (dtype, len) = buffer(id)?;
        let number = |i: usize| Scalar::from_i64((i as i64 * 37 + i64::from(id) * 11) % 7 - 3, dtype);
        let all: Vec<Scalar> = (0..len).map(number).collect();
        HostTensor::from_scalars(dtype, vec![len], &all).ok().map(|t| t.data)
    };
    let all = eval_tensor(g, roots, &mut bytes, &|_| None).unwrap_or_else(|e| panic!("{e}"));
    all.into_iter().map(|v| HostTensor { dtype: v.dtype, shape: v.shape.to_vec(), data: v.data }.to_f64()).collect()
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ir");
    let mut list: Vec<_> = std::fs::read_dir(folder).expect("tests/ir").map(|e| e.expect("an entry").path()).collect();
    list.retain(|p| p.extension().is_some_and(|e| e == "ir"));
    list.sort();
    list
}

#[test]
fn passes_do_what_files_say() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for path in files() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a text");
        let (input, want) = text.split_once("----\n").unwrap_or((&text, ""));
        let got = after(input).unwrap_or_else(|e| panic!("{name}: {e}"));
        if bless {
            std::fs::write(&path, format!("{input}----\n{got}")).expect("the file is writable");
        } else if got != want {
            let at = got.lines().zip(want.lines()).position(|(a, b)| a != b).unwrap_or(want.lines().count());
            wrong.push(format!("{name}, line {at} of the result: {:?}", got.lines().nth(at).unwrap_or("missing")));
        }
        seen.insert(field(input, "pass").unwrap_or_default().to_owned());
    }
    assert!(wrong.is_empty(), "run with BLESS=1 if the change is meant:\n{}", wrong.join("\n"));
    let schedule = SCHEDULE_PASSES.iter().map(|p| p.name);
    let names: Vec<&str> =
        GRAPH_PASSES.iter().map(|p| p.name).chain(schedule).chain(PASSES.iter().map(|p| p.name)).collect();
    let unseen: Vec<&&str> = names.iter().filter(|p| !seen.contains(**p)).collect();
    assert_eq!(unseen, Vec::<&&str>::new(), "passes without a file");
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "two passes have one name: {names:?}");
}

/// A graph of tensors is loaded as a model is: its scale goes into the weights, once for the plans of all shapes.
#[test]
fn graphs_of_tensors_get_them_too() -> gradloom::Result<()> {
    let mut rt = Runtime::open("eval", 1)?;
    let s = rt.session().clone();
    let numbers = |n: usize| (0..n).map(|i| (i * 37 % 7) as f32 - 3.0).collect::<Vec<_>>();
    let w = Tensor::new(&s, &numbers(64 * 32), &[64, 32])?;
    let mut folded = ConstantCache::default();
    let mut read = BTreeSet::new();
    for n in [3, 5] {
        let x = Tensor::new(&s, &numbers(n * 64), &[n, 64])?;
        let input = x.buffer().expect("a buffer");
        let want = rt.to_vec::<f32>(&x.matmul(&w)?.mul(0.25)?)?;
        let y = x.matmul(&w)?.mul(0.25)?;
        rt.load(&[&y], &[input], &mut folded)?;
        let replay = rt.realize(&[&y])?;
        assert_eq!(rt.to_vec::<f32>(&y)?, want);
        let others: Vec<u32> = replay.externals().iter().copied().filter(|id| *id != input).collect();
        assert!(others.len() == 1 && w.buffer() != Some(others[0]), "{others:?}");
        read.insert(others[0]);
    }
    assert_eq!(read.len(), 1, "the weights were scaled more than once");
    Ok(())
}
