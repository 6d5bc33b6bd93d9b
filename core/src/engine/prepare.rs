//! From a closed graph to a plan whose programs are on the device. A plan or program is taken from this engine, else
//! from the host's cache, else it is made. Also replaces single programs by faster ones, which tuning does while a
//! model is in use.

use super::cache::{self, Kind};
use super::exec::{Engine, Held, Loaded};
use super::plan::{self, Call, Compiled, Job, Packed, PartialKernel, Place, Plan, Progress};
use super::start::{Closed, Compiling, StartStage};
use super::tuned;
use crate::codegen::Opt;
use crate::device::BufId;
use crate::render::Code;
use crate::schedule::{Ast, Schedule, Scheduling};
use crate::target::Target;
use crate::uop::{Graph, UOp};
use crate::util::sort;
use crate::{Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// The graph that a plan was made from.
pub(super) struct PlanSource {
    graph: Graph,
    roots: Vec<UOp>,
    constant: Vec<bool>,
}

impl Engine {
    /// The plan with this key, if the engine has it.
    pub(super) fn known_plan(&mut self, key: u128) -> Option<Held> {
        let held = self.plans.get(key)?.clone();
        self.counters.plan_hits += 1;
        Some(held)
    }

    /// Where the plan for a closed graph starts from: a plan of this engine, one from the host's cache, or one that is
    /// to be made.
    pub(super) fn plan_for(&mut self, mut closed: Closed) -> Result<StartStage> {
        if let Some(held) = self.known_plan(closed.key) {
            return Ok(StartStage::Known(held));
        }
        if let Some((plan, fresh)) = self.remembered(closed.key, closed.constant.len())? {
            let (todo, scheduled_for) = (VecDeque::new(), self.device.target().clone());
            let compiling = Compiling { plan, todo, partial: None, fresh: fresh.into(), is_new: false, scheduled_for };
            return Ok(StartStage::Compile(Box::new(closed), compiling));
        }
        self.counters.cache_misses += 1;
        closed.vars = plan::checked(&closed.graph, &closed.roots, &closed.constant)?;
        let scheduling = Scheduling::new(&closed.graph, &closed.roots, closed.constant.len(), self.device.target());
        Ok(StartStage::Plan(Box::new(closed), Box::new(scheduling)))
    }

    /// The plan of a schedule, and which of its kernels must be compiled.
    pub(super) fn scheduled(
        &mut self,
        closed: &Closed,
        schedule: Schedule,
        scheduled_for: &Target,
    ) -> Result<Compiling> {
        let (plan, jobs) = plan::scheduled(schedule, closed.vars.clone(), &closed.constant, scheduled_for)?;
        self.note_labels(&plan);
        let (todo, fresh) = self.missing(jobs);
        Ok(Compiling { plan, todo, partial: None, fresh, is_new: true, scheduled_for: scheduled_for.clone() })
    }

    /// Adds a plan to the engine once all of its programs are on the device.
    pub(super) fn add_plan(&mut self, closed: Closed, c: Compiling) -> Held {
        let Closed { key, graph, roots, constant, .. } = closed;
        if c.is_new {
            let entry = cache::entry_key(self.space, Kind::Plan, key);
            self.host.save(Kind::Plan, entry, cache::save_plan(entry, &c.plan));
        }
        self.counters.plans += 1;
        let mut bytes = plan_bytes(&c.plan);
        if let Some(plan_sources) = &mut self.plan_sources {
            bytes += graph.len() * NODE_BYTES;
            plan_sources.insert(key, PlanSource { graph, roots, constant });
        }
        let held = Held { key, plan: Arc::new(c.plan), pin: Some(Arc::new(())) };
        self.plans.insert(key, held.clone(), bytes);
        self.bound_caches();
        held
    }

    /// While plans and programs take more than their limit: forgets the least recently used plans, and the programs
    /// that no other plan uses. Pinned plans stay.
    pub(super) fn bound_caches(&mut self) {
        if self.plans.bytes() + self.code_bytes <= self.cache_bytes {
            return;
        }
        // down to three quarters of the limit, because each round walks over all plans
        while self.plans.bytes() + self.code_bytes > self.cache_bytes / 4 * 3 {
            let free = |h: &Held| h.pin.as_ref().is_none_or(|pin| Arc::strong_count(pin) == 1);
            let gone = self.plans.take_oldest(free);
            if gone.is_empty() {
                break;
            }
            self.counters.plans_forgotten += gone.len() as u64;
            if let Some(plan_sources) = &mut self.plan_sources {
                gone.iter().for_each(|(key, _)| _ = plan_sources.remove(key));
            }
            self.release_unused();
        }
    }

    /// Releases the programs, copies and arenas that no plan uses.
    fn release_unused(&mut self) {
        self.unbind();
        let mut used: FxHashSet<u128> = FxHashSet::default();
        let mut arenas: Vec<usize> = Vec::new();
        for held in self.plans.values() {
            used.extend(held.plan.calls.iter().map(|c| c.program));
            arenas.resize(arenas.len().max(held.plan.arenas.len()), 0);
            arenas.iter_mut().zip(&held.plan.arenas).for_each(|(most, &n)| *most = (*most).max(n));
        }
        let packs: Vec<u128> = used
            .iter()
            .filter_map(|key| self.programs.get(key))
            .flat_map(|l| &l.compiled.packs)
            .map(|p| p.key)
            .collect();
        used.extend(packs);
        let mut dead: Vec<u128> = self.programs.keys().filter(|key| !used.contains(key)).copied().collect();
        sort::ascending(&mut dead);
        for key in dead {
            self.labels.remove(&key);
            if let Some(old) = self.programs.remove(&key) {
                self.code_bytes -= old.bytes;
                self.device.release(old.kernel);
            }
        }
        let pool = &mut self.pool;
        self.packed.retain(|_, copies| {
            copies.retain(|c| {
                let stays = used.contains(&c.key);
                if !stays {
                    pool.put(c.buf, c.bytes);
                }
                stays
            });
            !copies.is_empty()
        });
        let mut free = Vec::new();
        for (i, arena) in self.arenas.iter_mut().enumerate() {
            // a smaller one is allocated when it is needed
            if arena.1 > arenas.get(i).copied().unwrap_or(0) && arena.1 > 0 {
                free.push(std::mem::replace(arena, (BufId(u32::MAX), 0)));
            }
        }
        self.free(free);
    }

    fn note_labels(&mut self, plan: &Plan) {
        self.labels.extend(plan.calls.iter().map(|c| (c.program, c.label)));
    }

    /// The plan from the host's cache, with those of its programs that are not on the device.
    fn remembered(&mut self, key: u128, n_params: usize) -> Result<Option<(Plan, Vec<(u128, Compiled)>)>> {
        let entry = cache::entry_key(self.space, Kind::Plan, key);
        let found = self.load(Kind::Plan, entry).and_then(|b| cache::load_plan(entry, &b, n_params));
        let Some(plan) = found else { return Ok(None) };
        let mut fresh: Vec<(u128, Compiled)> = Vec::new();
        let mut params: FxHashMap<u128, usize> = FxHashMap::default();
        self.note_labels(&plan);
        for c in &plan.calls {
            if let std::collections::hash_map::Entry::Vacant(slot) = params.entry(c.program) {
                let known = self.programs.get(&c.program).map(|l| l.compiled.source.params.len());
                slot.insert(match known {
                    Some(n) => n,
                    None => {
                        // if a kernel is missing, the plan is made again
                        let Some(compiled) = self.remembered_kernel(c.program) else { return Ok(None) };
                        let n = compiled.source.params.len();
                        fresh.push((c.program, compiled));
                        n
                    }
                });
            }
            if params[&c.program] != c.args.len() {
                return Ok(None);
            }
        }
        self.counters.cache_hits += 1 + fresh.len() as u64;
        self.counters.programs_cached += fresh.len() as u64;
        Ok(Some((plan, fresh)))
    }

    /// A kernel from the host's cache, compiled with its tuned opts if it has any.
    fn remembered_kernel(&mut self, key: u128) -> Option<Compiled> {
        let opts = self.tuned(key);
        self.stored_kernel(cache::with_opts(key, opts.as_deref()))
    }

    fn stored_kernel(&mut self, key: u128) -> Option<Compiled> {
        let entry = cache::entry_key(self.space, Kind::Kernel, key);
        self.load(Kind::Kernel, entry).and_then(|b| cache::load_kernel(entry, &b))
    }

    /// An entry of the host's cache; `None` if the watcher wants to see how plans and kernels are made.
    fn load(&mut self, kind: Kind, entry: u128) -> Option<Vec<u8>> {
        if self.watcher.as_ref().is_some_and(|w| w.wants_graphs()) {
            return None;
        }
        self.host.load(kind, entry)
    }

    fn save_kernel(&mut self, key: u128, compiled: &Compiled) {
        let entry = cache::entry_key(self.space, Kind::Kernel, key);
        if let Some(bytes) = cache::save_kernel(entry, compiled) {
            self.host.save(Kind::Kernel, entry, bytes);
        }
    }

    fn opts_entry(&mut self, key: u128) -> u128 {
        cache::entry_key(cache::opts_space(self.device.target()), Kind::Opts, key)
    }

    /// The label by which lines of tuned opts name a kernel of a plan.
    fn line_label(&self, key: u128) -> Option<u64> {
        let label = *self.labels.get(&key)?;
        Some(cache::line_label(self.device.target(), label))
    }

    /// The tuned opts of a kernel: found on this machine, else added by [`Engine::add_tuned`], else those of this
    /// release.
    pub fn tuned(&mut self, key: u128) -> Option<Vec<Opt>> {
        let entry = self.opts_entry(key);
        let found = self.host.load(Kind::Opts, entry).and_then(|b| cache::load_opts(entry, &b));
        found.or_else(|| self.tuned.get(self.line_label(key)?))
    }

    /// Adds tuned opts for plans made from now on: lines as [`Engine::tuned_line`] gives them. Returns how many there
    /// are. Opts that do not fit their kernel are ignored when it is compiled.
    ///
    /// # Errors
    /// [`Error::Format`] that names the first malformed line; then no line is added.
    pub fn add_tuned(&mut self, lines: &str) -> Result<usize> {
        self.tuned.add(lines)
    }

    /// The opts of a kernel as a line for [`Engine::add_tuned`], valid on this and other devices of the same family.
    pub fn tuned_line(&mut self, key: u128, opts: &[Opt]) -> String {
        tuned::line(self.line_label(key).unwrap_or_default(), opts)
    }

    /// Of the jobs that this engine does not have: those that the host's cache does not have either, with their tuned
    /// opts, and those that it has.
    fn missing(&mut self, jobs: Vec<Job>) -> (VecDeque<(Job, Option<Vec<Opt>>)>, VecDeque<(u128, Compiled)>) {
        let (mut todo, mut known) = (VecDeque::new(), VecDeque::new());
        for job in jobs {
            if self.programs.contains_key(&job.key) {
                continue;
            }
            let opts = self.tuned(job.key);
            match self.stored_kernel(cache::with_opts(job.key, opts.as_deref())) {
                Some(compiled) => known.push_back((job.key, compiled)),
                None => todo.push_back((job, opts)),
            }
        }
        self.counters.cache_hits += known.len() as u64;
        self.counters.programs_cached += known.len() as u64;
        self.counters.cache_misses += todo.len() as u64;
        (todo, known)
    }

    /// Does one piece of compiling: compiles as many kernels as the host does at once, or one step of one kernel. Once
    /// enough code for a call of the device's compiler is ready, gives that to the device instead; the device may
    /// compile while the next kernels are made. True when nothing is left to do.
    pub(super) fn compile_some(&mut self, c: &mut Compiling) -> Result<bool> {
        let most = self.device.compile_bytes();
        let ends = c.todo.is_empty() && c.partial.is_none();
        let mut bytes = 0;
        let enough = c.fresh.iter().position(|(_, compiled)| {
            bytes += all_code_bytes(compiled);
            bytes >= most
        });
        let n = match enough {
            Some(at) => at + 1,
            None if ends => c.fresh.len(),
            None => {
                self.compile_next(c)?;
                return Ok(false);
            }
        };
        let batch: Vec<(u128, Compiled)> = c.fresh.drain(..n).collect();
        self.put_on_device(batch)?;
        Ok(ends && c.fresh.is_empty())
    }

    /// Compiles as many kernels as the host does at once; if that is one, does one step of it.
    fn compile_next(&mut self, c: &mut Compiling) -> Result<()> {
        let (target, interrupt) = (self.device.target().clone(), self.interrupt.clone());
        let renderer = self.device.renderer();
        let whole = |job: &Job, opts: Option<&[Opt]>| plan::compile(&job.ast, &target, renderer, opts);
        // tuned opts of another release may no longer fit
        let plain = |job: &Job, opts: &Option<Vec<Opt>>, result: Result<Compiled>| match result {
            Err(_) if opts.is_some() => interrupt.check().and_then(|()| whole(job, None)),
            result => result,
        };
        if let Some((job, opts, partial)) = c.partial.take() {
            let compiled = match partial.step(&job.ast, &target, renderer) {
                Ok(Progress::Partial(partial)) => {
                    c.partial = Some((job, opts, partial));
                    return Ok(());
                }
                Ok(Progress::Whole(compiled)) => *compiled,
                // compiling it in one call tries again with fewer opts
                Err(_) => plain(&job, &opts, interrupt.check().and_then(|()| whole(&job, opts.as_deref())))?,
            };
            return self.is_compiled(c, job, opts, compiled);
        }
        let n = c.todo.len().min(self.host.at_once());
        let mut todo: Vec<(Job, Option<Vec<Opt>>)> = c.todo.drain(..n).collect();
        if n == 1
            && let Some((job, opts)) = todo.pop()
        {
            interrupt.check()?;
            match PartialKernel::of(&job.ast, &target, renderer, opts.as_deref()) {
                Ok(partial) => c.partial = Some((job, opts, partial)),
                Err(e) => {
                    let compiled = plain(&job, &opts, Err(e))?;
                    return self.is_compiled(c, job, opts, compiled);
                }
            }
            return Ok(());
        }
        let made: Vec<OnceLock<Result<Compiled>>> = todo.iter().map(|_| OnceLock::new()).collect();
        self.host.each(n, &|i| {
            let (job, opts) = &todo[i];
            let result = interrupt.check().and_then(|()| whole(job, opts.as_deref()));
            let _ = made[i].set(plain(job, opts, result));
        });
        let none = || Error::Internal("a kernel was not compiled".into());
        for ((job, opts), result) in todo.into_iter().zip(made) {
            self.is_compiled(c, job, opts, result.into_inner().ok_or_else(none)??)?;
        }
        Ok(())
    }

    fn is_compiled(&mut self, c: &mut Compiling, job: Job, opts: Option<Vec<Opt>>, compiled: Compiled) -> Result<()> {
        self.counters.programs += 1;
        self.counters.fallbacks += compiled.program.as_ref().map_or(0, |p| p.refused as u64);
        if let Some(watcher) = &mut self.watcher {
            watcher.compiled(&job.ast, &compiled, self.device.target());
        }
        self.save_kernel(cache::with_opts(job.key, opts.as_deref()), &compiled);
        c.fresh.push_back((job.key, compiled));
        Ok(())
    }

    fn put_on_device(&mut self, fresh: Vec<(u128, Compiled)>) -> Result<()> {
        if fresh.is_empty() {
            return Ok(());
        }
        let copies: Vec<Packed> = fresh.iter().flat_map(|f| &f.1.packs).cloned().collect();
        let mut seen = FxHashSet::default();
        let copies = copies.into_iter().filter(|p| seen.insert(p.key) && !self.programs.contains_key(&p.key));
        let all: Vec<(u128, Compiled)> = copies.map(|p| (p.key, *p.compiled)).chain(fresh).collect();
        let sources: Vec<_> = all.iter().map(|f| f.1.source.clone()).collect();
        let ids = self.device.compile(&sources)?;
        self.unbind();
        for ((key, compiled), kernel) in all.into_iter().zip(ids) {
            let bytes = compiled_bytes(&compiled);
            let (launches, old) = self.programs.get(&key).map_or((0, 0), |l| (l.launches.get(), l.bytes));
            self.code_bytes = self.code_bytes + bytes - old;
            self.programs.insert(key, Loaded { kernel, compiled, launches: launches.into(), bytes });
        }
        Ok(())
    }

    /// Keeps the graphs of all plans from now on, so that their kernels can be tuned. To be called before the first
    /// plan.
    pub fn keep_graphs(&mut self) {
        self.plan_sources.get_or_insert_default();
    }

    /// The distinct kernels of all plans whose graphs are kept, with the number of their launches so far. Schedules the
    /// plans again to get them.
    pub fn kernels(&mut self) -> Result<Vec<(u128, Ast, u64)>> {
        let target = self.device.target().clone();
        self.count_launches();
        let mut keys: Vec<u128> = self.plan_sources.iter().flatten().map(|k| *k.0).collect();
        sort::ascending(&mut keys);
        let mut list: Vec<(u128, Ast, u64)> = Vec::new();
        let mut seen = FxHashSet::default();
        for k in keys.iter().filter_map(|k| self.plan_sources.as_ref()?.get(k)) {
            let (_, jobs) = plan::plan(&k.graph, &k.roots, &k.constant, &target)?;
            for job in jobs.into_iter().filter(|j| j.ast.custom().is_none() && seen.insert(j.key)) {
                if let Some(loaded) = self.programs.get(&job.key) {
                    list.push((job.key, job.ast, loaded.launches.get()));
                }
            }
        }
        Ok(list)
    }

    /// Has this build finished the search for a kernel's opts?
    pub fn searched(&mut self, key: u128) -> bool {
        let entry = cache::entry_key(self.space, Kind::Searched, key);
        self.host.load(Kind::Searched, entry).is_some_and(|b| cache::load_opts(entry, &b).is_some())
    }

    /// Records that the search for a kernel's opts is finished.
    pub fn note_searched(&mut self, key: u128) {
        let entry = cache::entry_key(self.space, Kind::Searched, key);
        self.host.save(Kind::Searched, entry, cache::save_opts(entry, &[]));
    }

    /// Replaces a kernel by one compiled with other opts, in this engine and in the host's cache. The device must be
    /// ready before the next run, as after a start.
    pub fn adopt(&mut self, key: u128, opts: &[Opt], compiled: Compiled) -> Result<()> {
        let entry = self.opts_entry(key);
        self.host.save(Kind::Opts, entry, cache::save_opts(entry, opts));
        self.save_kernel(cache::with_opts(key, Some(opts)), &compiled);
        let old = self.programs.get(&key).map(|l| l.kernel);
        self.put_on_device(vec![(key, compiled)])?;
        if let Some(old) = old {
            self.device.release(old);
        }
        self.counters.adopted += 1;
        Ok(())
    }
}

/// Estimated bytes of a graph node, and of a kernel on a device besides its code.
const NODE_BYTES: usize = 160;
const KERNEL_BYTES: usize = 8 << 10;

fn plan_bytes(plan: &Plan) -> usize {
    use std::mem::size_of;
    let call = |c: &Call| size_of::<Call>() + c.args.len() * size_of::<Place>() + c.scalars.len() * 4;
    size_of::<Plan>() + plan.calls.iter().map(call).sum::<usize>()
}

/// Bytes of a kernel's code and of the kernels that make its packed copies.
fn all_code_bytes(c: &Compiled) -> usize {
    code_bytes(c) + c.packs.iter().map(|p| code_bytes(&p.compiled)).sum::<usize>()
}

fn code_bytes(c: &Compiled) -> usize {
    match &c.source.code {
        Code::Text(t) => t.len(),
        Code::Bytes(b) => b.len(),
        Code::Program(_) => 0,
    }
}

fn compiled_bytes(c: &Compiled) -> usize {
    let code = code_bytes(c);
    let nodes = c.program.as_ref().map_or(0, |p| p.g.len());
    // the engine holds the code, and so does the device in some form
    KERNEL_BYTES + 3 * code + NODE_BYTES * nodes
}

/// The key of a plan: that of the graph and the slots of constant parameters.
pub(super) fn plan_key(graph: u128, constant: &[bool]) -> u128 {
    let slots = (0u32..).zip(constant).filter(|x| *x.1).map(|x| x.0);
    if constant.contains(&true) { plan::with_numbers(graph, slots) } else { graph }
}
