//! `gradloom kernels`: lists the kernels of a model, with their code, costs, times, or the graph after each pass.

use super::json::Json;
use super::{Cache, Failure, Job, Outcome, Progress, files};
use gradloom::OnnxModel;
use gradloom::device::{Device, Step, View};
use gradloom::engine::{Compiled, GRAPH_PASSES, GraphPass, LOADED, Watcher};
use gradloom::io::HostTensor;
use gradloom::render::Code;
use gradloom_core::codegen::cost::cost;
use gradloom_core::codegen::count::{Counts, count};
use gradloom_core::codegen::{self, PASSES, VarInfo};
use gradloom_core::render::wasm::instructions;
use gradloom_core::schedule::{Ast, SCHEDULE_PASSES, SchedulePass, Scheduling};
use gradloom_core::target::{Lang, Target};
use gradloom_core::uop::print::print;
use gradloom_core::uop::{Graph, UOp};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What to print of each kernel.
pub(crate) struct Show {
    pub(crate) source: bool,
    pub(crate) asm: bool,
    pub(crate) counts: bool,
    pub(crate) time: bool,
    /// The name of a pass, or `all`.
    pub(crate) passes: Option<String>,
    /// The name of a kernel.
    pub(crate) only: Option<String>,
}

impl Show {
    fn is_shown(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == name)
    }
}

pub(crate) fn kernels(job: &Job, show: &Show, cache: &Cache, progress: Progress) -> Outcome<Json> {
    let mut model = job.open(cache, progress)?;
    if let Some(pass) = &show.passes {
        let inputs = files::inputs_or_zeros(&job.given, model.model(), progress)?;
        return passes(&mut model, &files::borrowed(&inputs), pass, show);
    }
    let inputs = files::inputs_or_zeros(&job.given, model.model(), progress)?;
    let plan = model.plan(&files::borrowed(&inputs))?.unwrap_or_default();
    let mut rows = Vec::new();
    for c in &plan.calls {
        let Some(p) = model.engine().program(c.program).cloned() else { continue };
        if !show.is_shown(&p.source.name) {
            continue;
        }
        let mut row = vec![
            ("name", Json::text(&p.source.name)),
            ("grid", Json::count(p.grid.iter().map(|&g| g as usize).product())),
            ("flops", Json::Int(p.flops as i64)),
            ("bytes", Json::Int(p.bytes as i64)),
        ];
        // A kernel from the cache on disk has no program
        if let Some(program) = &p.program {
            let c = cost(program, model.engine().device().target());
            row.push(("predicted_us", Json::Num(c.ns / 1e3, 1)));
            row.push(("bound", Json::text(c.bound)));
        }
        if show.time {
            let us = measure(model.engine().device(), &p)?;
            row.push(("us", Json::Num(us, 1)));
            row.push(("gflops", Json::Num(p.flops as f64 / us / 1e3, 1)));
        }
        if show.counts {
            let Some(program) = &p.program else {
                return Err(Failure("a kernel from the cache on disk has no counts: use --no-cache".into()));
            };
            row.extend(counts(&count(program)));
        }
        if show.asm {
            if !matches!(&p.source.code, Code::Bytes(_)) {
                return Err(Failure(format!("device {} has no machine code to disassemble: use --source", job.device)));
            }
            row.push(("asm", Json::Text(text(&p, model.engine().device().target()))));
        }
        if show.source {
            row.push(("source", Json::Text(text(&p, model.engine().device().target()))));
        }
        rows.push(Json::from(row));
    }
    Ok(Json::from(vec![("kernels", Json::count(rows.len())), ("list", Json::List(rows))]))
}

/// The graph of the model before and after each pass over it, each plan after each pass of the scheduler, and the graph of each
/// distinct kernel as scheduled and after each pass, or all of these only after the pass `name`. What a pass did not
/// change is not printed again. The scheduler's first pass also shows what it does not change: the graph of the plan.
fn passes(model: &mut OnnxModel, inputs: &[(&str, HostTensor)], name: &str, show: &Show) -> Outcome<Json> {
    let schedule = SCHEDULE_PASSES.iter().map(|p| p.name);
    let graph = std::iter::once(LOADED.0).chain(GRAPH_PASSES.iter().map(|p| p.name));
    let names: Vec<&str> = graph.chain(schedule).chain(PASSES.iter().map(|p| p.name)).collect();
    if name != "all" && !names.contains(&name) {
        return Err(Failure(format!("there is no pass `{name}`; there are {}", names.join(", "))));
    }
    let target = model.engine().device().target().clone();
    let mut rows = Vec::new();
    let seen = Graphs::default();
    model.engine().watch(Some(Box::new(seen.clone())));
    let asts = model.kernels(inputs)?;
    let Texts { graph, schedule, .. } = seen.take();
    let shown = |texts: Vec<(&str, String)>| -> Json {
        Json::List(texts.into_iter().filter(|g| name == "all" || g.0 == name).map(|g| Json::Text(g.1)).collect())
    };
    let (graph, schedule) = (shown(graph), shown(schedule));
    for ast in asts {
        let mut last = print(&ast.g, &ast.roots());
        let mut text = if name == "all" { format!("// as scheduled\n{last}") } else { String::new() };
        let program = codegen::compile_watched(&ast, &target, None, &mut |pass, l| {
            let now = l.text();
            if now != last && (name == "all" || name == pass.name) {
                text += &format!("// {}: {}\n{}{now}", pass.name, pass.what, l.rules());
            }
            last = now;
        })?;
        if !show.is_shown(&program.name) {
            continue;
        }
        let opts: Vec<String> = program.opts.iter().map(ToString::to_string).collect();
        rows.push(Json::from(vec![
            ("name", Json::text(&program.name)),
            ("opts", Json::Text(opts.join(", "))),
            ("refused", Json::count(program.refused)),
            ("passes", Json::Text(text)),
        ]));
    }
    let count = Json::count(rows.len());
    Ok(Json::from(vec![("graph", graph), ("schedule", schedule), ("kernels", count), ("list", Json::List(rows))]))
}

/// The names of passes that changed something, and what they made.
#[derive(Default)]
struct Texts {
    /// Passes over the model's graph.
    graph: Vec<(&'static str, String)>,
    /// Passes of the scheduler, over all plans of the model.
    schedule: Vec<(&'static str, String)>,
    /// The schedule after the last pass.
    last: String,
}

/// Records what passes over the model and its plans make.
#[derive(Clone, Default)]
struct Graphs(Arc<Mutex<Texts>>);

impl Graphs {
    fn take(&self) -> Texts {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Watcher for Graphs {
    // plans that come from the cache on disk are not scheduled
    fn wants_graphs(&self) -> bool {
        true
    }

    fn compiled(&mut self, _: &Ast, _: &Compiled, _: &Target) {}

    fn rewrote(&mut self, pass: &GraphPass, g: &Graph, before: &[UOp], roots: &[UOp]) {
        let text = |(name, what): (&'static str, &str), roots: &[UOp]| {
            (name, format!("// {name}: {what}\n{}", print(g, roots)))
        };
        let graph = &mut self.0.lock().unwrap_or_else(PoisonError::into_inner).graph;
        if graph.is_empty() {
            graph.push(text(LOADED, before));
        }
        graph.push(text((pass.name, pass.what), roots));
    }

    fn scheduled(&mut self, pass: &SchedulePass, s: &Scheduling) {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = s.text();
        if now != texts.last {
            let text = format!("// {}: {}\n{now}", pass.name, pass.what);
            texts.schedule.push((pass.name, text));
        }
        texts.last = now;
    }

    fn sees_steps(&self) -> bool {
        false
    }

    fn submit(&mut self, device: &mut dyn Device, step: &Step, _: Option<&Compiled>) -> gradloom::Result<()> {
        device.submit(std::slice::from_ref(step))
    }
}

/// Counts for one launch: accesses by the number of elements that each moves, as `width:count`; float
/// operations, barriers and bytes.
fn counts(c: &Counts) -> Vec<(&'static str, Json)> {
    let widths = |m: &BTreeMap<usize, u64>| m.iter().map(|(w, n)| format!("{w}:{n}")).collect::<Vec<_>>().join(" ");
    vec![
        ("loads", Json::Text(widths(&c.loads))),
        ("stores", Json::Text(widths(&c.stores))),
        ("local", Json::Int(c.local as i64)),
        ("counted_flops", Json::Int(c.flops as i64)),
        ("barriers", Json::Int(c.barriers as i64)),
        ("shuffles", Json::Int(c.shuffles as i64)),
        ("moved_bytes", Json::Int(c.bytes as i64)),
    ]
}

/// The code of a kernel for people to read: its source, or the instructions of what is bytes.
pub(crate) fn text(p: &Compiled, t: &Target) -> String {
    match &p.source.code {
        Code::Text(text) => text.clone(),
        Code::Bytes(b) if t.lang == Lang::Wasm => instructions(b),
        Code::Bytes(b) => gradloom::disasm::disassemble(b),
        Code::Program(_) => String::new(),
    }
}

/// The shortest time of several launches on zeroed buffers, in microseconds of the device's clock if it has one.
fn measure(dev: &mut dyn Device, p: &Compiled) -> gradloom::Result<f64> {
    let kernel = dev.compile(std::slice::from_ref(&p.source))?[0];
    while !dev.ready()? {}
    let mut args = Vec::new();
    for info in &p.source.params {
        let bytes = info.len * info.dtype.size();
        args.push(View { buf: dev.alloc(bytes.max(4))?, offset: 0, bytes });
    }
    let vars = p.vars.iter().map(VarInfo::any_bits).collect();
    let step = Step::Launch { kernel, args: args.clone(), grid: p.grid, vars };
    let mut best = f64::INFINITY;
    for _ in 0..8 {
        best = best.min(gradloom::tune::seconds(dev, std::slice::from_ref(&step))? * 1e6);
    }
    args.iter().for_each(|a| dev.free(a.buf));
    dev.release(kernel);
    Ok(best)
}
