//! `docs/compiler.md` follows a matrix product and a softmax through the compiler. What it prints is what the compiler does now: each fenced
//! block that names a kernel and a step, as ```` ```ir matmul opts ````, holds that step's text.
//! `BLESS=1 cargo test -p gradloom-tests --test it walk` rewrites the blocks.

use gradloom_core::DType;
use gradloom_core::codegen::cost::cost;
use gradloom_core::codegen::{PASSES, compile_watched};
use gradloom_core::engine::{self, GRAPH_PASSES};
use gradloom_core::render::{Code, Renderer, c::CRenderer, wgsl::WgslRenderer};
use gradloom_core::schedule::{SCHEDULE_PASSES, schedule};
use gradloom_core::target::{Isa, Target};
use gradloom_core::tensor::{Session, Tensor};
use gradloom_core::uop::print::print;
use gradloom_tests::targets::wgsl_hardware;
use std::collections::BTreeMap;
use std::path::Path;

/// The steps of one computation on one target by name: `tensor`, `kernel`, each pass that changes something, `opts chosen`, `code`, `cost`.
fn steps(name: &str) -> BTreeMap<String, String> {
    let s = Session::new();
    let input = |shape: &[usize]| Tensor::empty(&s, DType::F32, shape).expect("an input");
    let (y, inputs, t) = match name {
        "matmul" => (input(&[96, 64]).matmul(&input(&[64, 96])).and_then(|y| y.relu()), 2, Target::x86(Isa::Avx2, 1)),
        "softmax" => (input(&[32, 256]).softmax(-1), 1, Target::x86(Isa::Avx2, 1)),
        "softmax-gpu" => (input(&[32, 256]).softmax(-1), 1, wgsl_hardware()),
        _ => panic!("{name}: there is no such computation"),
    };
    let node = y.expect("a graph").node();
    let (g, roots) = engine::close(&s.state().graph, &[node]);
    let mut out = BTreeMap::from([("tensor".to_owned(), print(&g, &roots))]);
    let mut kernels = schedule(&g, &roots, inputs, &t).expect("a schedule").kernels;
    assert_eq!(kernels.len(), 1, "{name} is one kernel");
    let ast = kernels.remove(0).ast;
    let mut last = print(&ast.g, &[ast.sink]);
    out.insert("kernel".into(), last.clone());
    let p = compile_watched(&ast, &t, None, &mut |pass, lowering| {
        let now = lowering.text();
        if now != last {
            out.insert(pass.name.into(), now.clone());
        }
        last = now;
    })
    .expect("a program");
    let opts: Vec<String> = p.opts.iter().map(ToString::to_string).collect();
    out.insert("chosen".into(), format!("{}\n", opts.join("\n")));
    let c = cost(&p, &t);
    let [l1, l2, memory] = c.moved.map(|b| b.round());
    out.insert(
        "cost".into(),
        format!("{:.1} us, limited by {}; bytes into L1 {l1}, into L2 {l2}, of memory {memory}\n", c.ns / 1e3, c.bound),
    );
    let printed = if t.caps.has_local { WgslRenderer.render(&p, &t) } else { CRenderer.render(&p, &t) };
    let Ok(Code::Text(code)) = printed else { panic!("{name}: no text") };
    // every C file begins with the same definitions
    let own = code.find(&format!("void {}", p.name)).unwrap_or(0);
    out.insert("code".into(), code[own..].into());
    out
}

#[test]
fn the_walk_through_the_compiler_is_what_it_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/compiler.md");
    let page = std::fs::read_to_string(&path).expect("docs/compiler.md");
    let mut known: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let (mut blessed, mut blocks, mut lines) = (String::new(), 0, page.lines());
    while let Some(line) = lines.next() {
        blessed += &format!("{line}\n");
        let words: Vec<&str> = line.strip_prefix("```").map_or(vec![], |rest| rest.split(' ').collect());
        let [_, name, step] = words[..] else { continue };
        let steps = known.entry(name.into()).or_insert_with(|| steps(name));
        let text = steps.get(step).unwrap_or_else(|| panic!("{name} has no step `{step}`: {:?}", steps.keys()));
        blessed += &format!("{}\n```\n", text.trim_end());
        blocks += 1;
        lines.by_ref().find(|l| *l == "```").expect("the block ends");
    }
    assert!(blocks > 10, "{blocks} blocks");
    // the tables have every pass, in order
    let table: Vec<&str> = page.lines().filter(|l| l.starts_with("| `")).collect();
    let graph = GRAPH_PASSES.iter().map(|p| (p.name, p.what));
    let schedule = SCHEDULE_PASSES.iter().map(|p| (p.name, p.what));
    let all = graph.chain(schedule).chain(PASSES.iter().map(|p| (p.name, p.what)));
    let rows: Vec<String> = all.map(|(name, what)| format!("| `{name}` | {what} |")).collect();
    assert_eq!(table, rows, "the page's tables of passes");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, blessed).expect("the file is writable");
    } else {
        let differs = page.lines().zip(blessed.lines()).find(|(a, b)| a != b);
        assert!(page == blessed, "{differs:?}; run with BLESS=1 if the change is meant");
    }
}
