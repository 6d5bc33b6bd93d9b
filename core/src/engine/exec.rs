//! The engine: plans, their cache, and the buffers of one session on one device. The engine never waits.
//! [`Engine::start`] plans and starts compiling, [`Engine::ready`] says when all programs are compiled,
//! [`Engine::finish`] submits the run. Native callers loop until `ready`; a page awaits.

use super::bound::Bound;
use super::buffers::{PartialUpload, other_session};
use super::cache::{self, Alone, Host};
use super::plan::{Compiled, Place, Plan};
use super::pool::Pool;
use super::prepare::{PlanSource, plan_key};
use super::start::{Closed, Running, StartStage, Starting};
use super::state::{Bytes, RootId, State};
use super::tuned::Tuned;
use super::watch::Watcher;
use crate::codegen::VarInfo;
use crate::device::{BufId, Device, KernelId, Step, View};
use crate::dtype::Scalar;
use crate::interrupt::Interrupt;
use crate::schedule::share::scalar_number;
use crate::uop::{Arg, Graph, Op, UOp, hash};
use crate::util::lru::Lru;
use crate::util::sort;
use crate::{DType, Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::Cell;
use std::sync::{Arc, Weak};

/// The most packed copies of one buffer. Plans made after that read the buffer as it is.
const MAX_COPIES: usize = 2;

/// Limit on the memory of plans and programs together, in bytes of the host and, as far as it can be estimated, of the
/// device.
const CACHE_BYTES: usize = 64 << 20;

/// A plan of the engine. The engine may forget a plan once no clone of its `pin` is held outside the engine.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) key: u128,
    pub(super) plan: Arc<Plan>,
    pub(super) pin: Option<Arc<()>>,
}

/// A program on the device.
pub(super) struct Loaded {
    pub(super) kernel: KernelId,
    pub(super) compiled: Compiled,
    pub(super) launches: Cell<u64>,
    /// Estimated memory that it takes, on the host and on the device.
    pub(super) bytes: usize,
}

/// What happened since the engine was made, for reports. "The host" is the [`Host`] that the engine was made with.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Plans that were made, or loaded from the host's cache.
    pub plans: u64,
    /// Plans that the engine had already.
    pub plan_hits: u64,
    /// Plans forgotten because plans and programs together exceeded their limit.
    pub plans_forgotten: u64,
    /// Programs compiled.
    pub programs: u64,
    /// Plans and programs found in the host's cache.
    pub cache_hits: u64,
    /// Programs found in the host's cache.
    pub programs_cached: u64,
    /// Plans and programs that were not in the host's cache.
    pub cache_misses: u64,
    /// Lists of opts that did not fit the kernel for which they were proposed, so that a slower program was compiled.
    pub fallbacks: u64,
    /// Programs replaced by faster ones that tuning found.
    pub adopted: u64,
    /// Kernel launches submitted.
    pub launches: u64,
    /// Estimated operations and bytes of the steps that were submitted in portions.
    pub work: u64,
    /// Bytes in device buffers now.
    pub bytes: usize,
    /// The largest value that `bytes` ever had.
    pub peak_bytes: usize,
}

/// One device with everything that is compiled and stored on it. An engine computes tensors of one session only: those
/// of another session are [`Error::Value`] as long as the first session lives.
pub struct Engine {
    pub(super) device: Box<dyn Device>,
    pub(super) host: Box<dyn Host>,
    /// Is told what the engine does.
    pub(super) watcher: Option<Box<dyn Watcher>>,
    /// Hash of this build and target, a part of every key in the host's cache.
    pub(super) space: u128,
    /// Tuned opts that came with the release or the application.
    pub(super) tuned: Tuned,
    /// The graphs of plans by plan key, if they are kept for tuning.
    pub(super) plan_sources: Option<FxHashMap<u128, PlanSource>>,
    pub(super) plans: Lru<Held>,
    pub(super) programs: FxHashMap<u128, Loaded>,
    /// Estimated bytes of all programs, and the limit on plans and programs together.
    pub(super) code_bytes: usize,
    pub(super) cache_bytes: usize,
    /// The label of each program, by its key: lines of tuned opts name kernels by label.
    pub(super) labels: FxHashMap<u128, u128>,
    /// The session whose buffers these are.
    pub(super) session: Option<Arc<()>>,
    pub(super) buffers: FxHashMap<u32, (BufId, usize)>,
    /// Session buffers whose memory belongs to the host rather than to the engine.
    pub(super) borrowed: FxHashSet<u32>,
    /// The buffer that is being uploaded in parts, if there is one.
    pub(super) partial_upload: Option<PartialUpload>,
    /// Packed copies of weights, by session buffer.
    pub(super) packed: FxHashMap<u32, Vec<Packed>>,
    /// For session buffers that were computed from constants: how to compute them again after they left the device.
    pub(super) recipes: FxHashMap<u32, Arc<Recipe>>,
    pub(super) arenas: Vec<(BufId, usize)>,
    /// The steps of the last run of each plan, by plan key. They are valid while `epoch`, which grows when programs or
    /// arenas are replaced, is the one at which they were bound.
    pub(super) bound: FxHashMap<u128, Bound>,
    pub(super) epoch: u64,
    pub(super) pool: Pool,
    /// Limit on the bytes of all device buffers together.
    pub(super) memory_limit: usize,
    vars: Vec<(String, Scalar)>,
    pub(super) counters: Counters,
    pub(super) interrupt: Interrupt,
}

/// A packed copy of a session buffer.
pub(super) struct Packed {
    /// The kernel that makes it.
    pub(super) key: u128,
    pub(super) buf: BufId,
    pub(super) bytes: usize,
}

/// A planned computation that has not run yet: [`Engine::start`] returns it, [`Engine::finish`] runs it.
pub struct Pending {
    pub(super) held: Held,
    /// Session buffer per external slot.
    pub(super) externals: Vec<u32>,
    /// The node of each of the plan's roots, in the same order.
    pub(super) nodes: Vec<UOp>,
}

/// A plan that computed constants from host bytes, with those bytes, so that the constants can be computed again.
pub(super) struct Recipe {
    held: Held,
    externals: Vec<(DType, usize, Bytes)>,
    /// The session buffers of its outputs.
    outputs: Vec<u32>,
}

/// A captured computation that can run again on other inputs without building a graph.
#[derive(Clone)]
pub struct Replay {
    pub(super) held: Held,
    session: Weak<()>,
    externals: Vec<u32>,
    shapes: Arc<[Vec<usize>]>,
    /// While this exists, compaction keeps the buffers that the computation reads and writes.
    hold: Option<Arc<()>>,
}

impl Engine {
    /// An engine on a device, without threads and without a cache that outlives the engine.
    pub fn new(device: Box<dyn Device>) -> Engine {
        Engine::with_host(device, Box::new(Alone))
    }

    /// An engine on a device, with a host that may have threads and a persistent cache.
    pub fn with_host(device: Box<dyn Device>, mut host: Box<dyn Host>) -> Engine {
        Engine {
            space: cache::space(device.target()),
            watcher: host.watcher(),
            device,
            host,
            tuned: Tuned::default(),
            plan_sources: None,
            plans: Lru::default(),
            code_bytes: 0,
            cache_bytes: CACHE_BYTES,
            programs: FxHashMap::default(),
            labels: FxHashMap::default(),
            session: None,
            partial_upload: None,
            buffers: FxHashMap::default(),
            borrowed: FxHashSet::default(),
            packed: FxHashMap::default(),
            recipes: FxHashMap::default(),
            arenas: Vec::new(),
            bound: FxHashMap::default(),
            epoch: 0,
            pool: Pool::default(),
            memory_limit: usize::MAX,
            vars: Vec::new(),
            counters: Counters::default(),
            interrupt: Interrupt::default(),
        }
    }

    /// The device.
    pub fn device(&mut self) -> &mut dyn Device {
        &mut *self.device
    }

    /// Sets who is told what the engine does from now on; `None` for nobody.
    pub fn watch(&mut self, watcher: Option<Box<dyn Watcher>>) {
        self.watcher = watcher;
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Does the engine still have the plan of a captured computation?
    pub fn has(&self, r: &Replay) -> bool {
        self.plans.contains(r.held.key)
    }

    /// Estimated work of a captured computation: the sum over its launches of the larger of float operations and bytes.
    pub fn work(&self, r: &Replay) -> u64 {
        let kernels = r.held.plan.calls.iter().filter_map(|c| self.programs.get(&c.program));
        kernels.map(|p| p.compiled.work()).fold(0, u64::saturating_add)
    }

    /// Estimated bytes that plans and programs take.
    pub fn cached_bytes(&self) -> usize {
        self.plans.bytes() + self.code_bytes
    }

    /// Sets the limit on the bytes of plans and programs together. Above it, the least recently used ones are
    /// forgotten; those that a [`Replay`] or a [`Pending`] uses stay.
    pub fn set_cache_bytes(&mut self, bytes: usize) {
        self.cache_bytes = bytes;
        self.bound_caches();
    }

    /// Sets the limit on the bytes of device buffers. An allocation beyond it is refused as if the device had no more
    /// memory ([`Error::OutOfMemory`]); existing buffers stay. Memory of the host's own ([`Engine::use_memory`]) counts
    /// towards the limit and is never refused.
    pub fn set_memory_limit(&mut self, bytes: usize) {
        self.memory_limit = bytes;
    }

    /// The compiled program of a key, for inspection.
    pub fn program(&self, key: u128) -> Option<&Compiled> {
        self.programs.get(&key).map(|l| &l.compiled)
    }

    /// Sets a launch scalar (`Op::Var`) for all following runs. A run that has an i32 variable fails with
    /// [`Error::Input`] if the value is not a whole number within the variable's bounds.
    pub fn set_var(&mut self, name: &str, value: Scalar) {
        self.vars.retain(|(known, _)| known != name);
        self.vars.push((name.to_string(), value));
    }

    /// The value of a variable as a launch passes it.
    fn var_bits(&self, v: &VarInfo) -> Result<u32> {
        let missing = || Error::Input { name: v.name.to_string(), what: "variable has no value".into() };
        v.bits(self.vars.iter().find(|(name, _)| **name == *v.name).ok_or_else(missing)?.1)
    }

    /// The value of an integer variable.
    fn var_value(&self, name: &str) -> Result<i64> {
        let missing = || Error::Input { name: name.to_owned(), what: "variable has no value".into() };
        Ok(self.vars.iter().find(|(n, _)| **n == *name).ok_or_else(missing)?.1.as_i64())
    }

    /// Plans the computation of `roots` and starts compiling it. Nothing runs yet; the graph must not change until
    /// `finish`.
    ///
    /// # Errors
    /// Those of planning and compiling, and that of the interrupt ([`Engine::set_interrupt`]) if it fires.
    pub fn start(&mut self, state: &mut State, roots: &[RootId]) -> Result<Pending> {
        let mut starting = self.begin(state, roots)?;
        loop {
            if let Some(pending) = self.go_on(&mut starting)? {
                return Ok(pending);
            }
        }
    }

    /// Begins what [`Engine::start`] does; [`Engine::go_on`] then does it piece by piece.
    pub fn begin(&mut self, state: &mut State, roots: &[RootId]) -> Result<Starting> {
        self.belong_to(state)?;
        if state.wants_compaction() {
            for dead in state.compact() {
                self.drop_buffer(dead);
            }
        }
        let wanted: Vec<UOp> = roots.iter().map(|&r| state.node(r)).collect();
        let mut also: Vec<UOp> = state.readers_of_overwritten(&wanted).into_iter().map(|r| state.node(r)).collect();
        sort::ascending(&mut also); // in order of computation: root numbers depend on which tensors were dropped
        let mut nodes: Vec<UOp> = Vec::new();
        for u in wanted.into_iter().chain(also) {
            if !is_whole_buffer(&state.graph, u) && !nodes.contains(&u) {
                nodes.push(u);
            }
        }
        let (key, externals) = hash::closed_key(&state.graph, &nodes);
        let mut constant: Vec<bool> =
            externals.iter().map(|id| state.buffer(*id).is_some_and(|b| b.constant)).collect();
        if let Some(held) = self.known_plan(plan_key(key, &constant)) {
            return Ok(Starting { nodes, externals, stage: StartStage::Known(held) });
        }
        // each plan may want packed copies of its own: buffers with enough of them count as not constant
        let crowded = |id: u32| self.packed.get(&id).is_some_and(|copies| copies.len() >= MAX_COPIES);
        constant.iter_mut().zip(&externals).for_each(|(c, &id)| *c &= !crowded(id));
        let (closed, closed_roots) = close(&state.graph, &nodes);
        debug_assert_eq!(key, hash::key(&closed, &closed_roots));
        let closed =
            Closed { key: plan_key(key, &constant), graph: closed, roots: closed_roots, constant, vars: Vec::new() };
        let stage = self.plan_for(closed)?;
        Ok(Starting { nodes, externals, stage })
    }

    /// Are all programs compiled?
    pub fn ready(&mut self) -> Result<bool> {
        self.device.ready()
    }

    /// Runs what `start` planned. Afterwards every live root that used one of the computed nodes refers to the buffer
    /// with its value.
    pub fn finish(&mut self, state: &mut State, p: Pending) -> Result<Replay> {
        Ok(self.finished(state, p)?.0)
    }

    /// Remembers how outputs were computed, if the bytes of everything that was read are on the host.
    pub(super) fn remember_recipe(&mut self, state: &State, replay: &Replay, outputs: &[UOp]) {
        let bytes = |&id: &u32| state.buffer(id).and_then(|b| Some((b.dtype, b.len, b.host.clone()?)));
        if let Some(externals) = replay.externals.iter().map(bytes).collect() {
            let outputs: Vec<u32> = outputs.iter().filter_map(|&u| state.buffer_id(u)).collect();
            let recipe = Arc::new(Recipe { held: replay.held.clone(), externals, outputs: outputs.clone() });
            self.recipes.extend(outputs.into_iter().map(|id| (id, recipe.clone())));
        }
    }

    /// Frees the device memory of those of these session buffers that can be uploaded again.
    pub fn let_go(&mut self, state: &State, ids: &[u32]) {
        for id in ids.iter().filter(|id| state.buffer(**id).is_some_and(|b| b.host.is_some())) {
            let old = self.buffers.remove(id);
            self.free(old.into_iter().collect());
        }
    }

    fn finished(&mut self, state: &mut State, p: Pending) -> Result<(Replay, Vec<UOp>)> {
        let mut running = self.launch(state, p)?;
        self.submit_all(&mut running)?;
        self.conclude(state, running)
    }

    /// Prepares the run of a planned computation; [`Engine::submit_some`] then submits its steps.
    pub fn launch(&mut self, state: &mut State, p: Pending) -> Result<Running> {
        let shapes = p.nodes.iter().map(|&u| state.graph.shape(u).to_vec()).collect();
        let Pending { held, externals, nodes } = p;
        let session = Arc::downgrade(state.identity());
        self.running(state, Replay { held, session, externals, shapes, hold: None }, nodes)
    }

    /// Prepares another run of a captured computation, as [`Engine::replay`] does; [`Engine::values`] gives its
    /// results.
    pub fn launch_again(&mut self, state: &mut State, r: &Replay, swap: &FxHashMap<u32, u32>) -> Result<Running> {
        if Weak::as_ptr(&r.session) != Arc::as_ptr(state.identity()) {
            return Err(other_session());
        }
        let externals: Vec<u32> = r.externals.iter().map(|b| swap.get(b).copied().unwrap_or(*b)).collect();
        self.plans.get(r.held.key); // marks the plan as recently used
        let again = Replay {
            held: r.held.clone(),
            session: r.session.clone(),
            externals,
            shapes: r.shapes.clone(),
            hold: r.hold.clone(),
        };
        self.running(state, again, Vec::new())
    }

    fn running(&mut self, state: &mut State, replay: Replay, nodes: Vec<UOp>) -> Result<Running> {
        self.belong_to(state)?;
        let Held { key, plan, .. } = &replay.held;
        let (bound, outputs) = self.bound(state, *key, plan, &replay.externals)?;
        Ok(Running { replay, nodes, outputs, bound, at: 0 })
    }

    /// The flat buffer node that has the value of each root of a run.
    pub(super) fn roots(&mut self, state: &mut State, r: &Running) -> Result<Vec<UOp>> {
        let flat = |place: &Place| match place {
            Place::Output(o) => Ok(r.outputs[*o as usize]),
            Place::External(slot) => Ok(state.buffer_node(r.replay.externals[*slot as usize])),
            Place::Arena { .. } => Err(Error::Internal("a root lives in an arena".into())),
        };
        r.replay.held.plan.roots.iter().map(flat).collect()
    }

    /// Makes every live root that used one of the computed nodes refer to the new buffer. Returns the nodes of the
    /// outputs too.
    pub(super) fn conclude(&mut self, state: &mut State, r: Running) -> Result<(Replay, Vec<UOp>)> {
        let flat = self.roots(state, &r)?;
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        for ((&u, flat), shape) in r.nodes.iter().zip(flat).zip(r.replay.shapes()) {
            let whole = state.graph.reshape(flat, shape);
            map.insert(u, whole);
        }
        // every assign of this run is done: its After node is replaced by the buffer itself
        for u in state.graph.value_nodes(&r.nodes) {
            if state.graph.op(u) == Op::After
                && let Some(b) = state.buffer_below(u)
            {
                map.entry(u).or_insert(b);
            }
        }
        state.replace(&map);
        self.keep_bound(r.replay.held.key, r.bound);
        Ok((r.replay, r.outputs))
    }

    /// Ends a run once all of its steps are submitted.
    pub fn concluded(&mut self, state: &mut State, r: Running) -> Result<Replay> {
        Ok(self.conclude(state, r)?.0)
    }

    /// Runs a captured computation again, with some external buffers replaced: `swap` maps the id of an old buffer to
    /// that of the new one. Every result is a new buffer.
    pub fn replay(&mut self, state: &mut State, r: &Replay, swap: &FxHashMap<u32, u32>) -> Result<Vec<UOp>> {
        let mut running = self.launch_again(state, r, swap)?;
        self.submit_all(&mut running)?;
        self.values(state, running)
    }

    /// Runs a captured computation kernel by kernel, waiting for each. Returns the time of each call of the plan, in
    /// the unit of `clock`: seconds.
    pub fn time_calls(
        &mut self,
        state: &mut State,
        r: &Replay,
        swap: &FxHashMap<u32, u32>,
        clock: &mut dyn FnMut() -> f64,
    ) -> Result<Vec<f64>> {
        let externals: Vec<u32> = r.externals.iter().map(|b| swap.get(b).copied().unwrap_or(*b)).collect();
        let (steps, _) = self.bind(state, &r.held.plan, &externals)?;
        let mut times = Vec::with_capacity(steps.len());
        for step in &steps {
            let start = clock();
            self.device.submit(std::slice::from_ref(step))?;
            self.device.sync()?;
            times.push(clock() - start);
        }
        Ok(times)
    }

    /// Submits a plan. Returns the output buffers' nodes.
    fn run(&mut self, state: &mut State, plan: &Plan, externals: &[u32]) -> Result<Vec<UOp>> {
        let (steps, outputs) = self.bind(state, plan, externals)?;
        self.counters.launches += steps.len() as u64;
        self.give(&steps)?;
        self.ran();
        Ok(outputs)
    }

    /// Called after each run: frees pooled buffers that were not needed for a while.
    pub(super) fn ran(&mut self) {
        let old = self.pool.age();
        self.free(old);
    }

    /// Allocates a plan's outputs and gives every call its buffers. Returns the output buffers' nodes too.
    pub(super) fn bind(&mut self, state: &mut State, plan: &Plan, externals: &[u32]) -> Result<(Vec<Step>, Vec<UOp>)> {
        let mut outputs = Vec::new();
        let steps = self.bind_to(state, plan, externals, &mut outputs);
        if steps.is_err() {
            self.forget(state, &outputs);
        }
        Ok((steps?, outputs))
    }

    /// Allocates a plan's outputs. Returns their nodes and their device memory.
    pub(super) fn outputs(&mut self, state: &mut State, plan: &Plan) -> Result<(Vec<UOp>, Vec<View>)> {
        let mut outputs = Vec::with_capacity(plan.outputs.len());
        let views = self.output_views(state, plan, &mut outputs);
        if views.is_err() {
            self.forget(state, &outputs);
        }
        Ok((outputs, views?))
    }

    fn output_views(&mut self, state: &mut State, plan: &Plan, outputs: &mut Vec<UOp>) -> Result<Vec<View>> {
        let mut views = Vec::with_capacity(plan.outputs.len());
        for o in &plan.outputs {
            let bytes = o.len * self.device.target().stored_as(o.dtype)?.size();
            // As in a pooled buffer, the bytes are undefined until the plan writes them.
            let buf = self.alloc_with(bytes, true)?;
            let node = state.add_buffer(o.dtype, o.len, None);
            let id = state.buffer_id(node).unwrap_or_default();
            self.buffers.insert(id, (buf, bytes));
            outputs.push(node);
            views.push(View { buf, offset: 0, bytes });
        }
        Ok(views)
    }

    /// Frees outputs that were allocated for a run which failed: where memory is short, the next attempt needs it.
    fn forget(&mut self, state: &State, outputs: &[UOp]) {
        outputs.iter().filter_map(|&u| state.buffer_id(u)).for_each(|id| self.drop_buffer(id));
    }

    fn bind_to(
        &mut self,
        state: &mut State,
        plan: &Plan,
        externals: &[u32],
        outputs: &mut Vec<UOp>,
    ) -> Result<Vec<Step>> {
        for v in &plan.vars {
            self.var_bits(v)?;
        }
        self.restore(state, plan, externals)?;
        for (i, &bytes) in plan.arenas.iter().enumerate() {
            self.arena(i, bytes)?;
        }
        let out_views = self.output_views(state, plan, outputs)?;
        let lost = || Error::Internal("a plan's program is not on the device".into());
        let mut steps = Vec::with_capacity(plan.calls.len());
        let mut all_there = true;
        for c in &plan.calls {
            let loaded = self.programs.get(&c.program).ok_or_else(lost)?;
            loaded.launches.set(loaded.launches.get() + 1);
            let Loaded { kernel, compiled, .. } = loaded;
            let mut args = Vec::with_capacity(c.args.len());
            for (i, a) in (0u32..).zip(&c.args) {
                args.push(match *a {
                    Place::External(slot) => {
                        self.resident(externals[slot as usize], compiled, i).unwrap_or_else(|| {
                            all_there = false;
                            View { buf: BufId(u32::MAX), offset: 0, bytes: 0 }
                        })
                    }
                    Place::Output(o) => out_views[o as usize],
                    Place::Arena { arena, offset, bytes } => View { buf: self.arenas[arena].0, offset, bytes },
                });
            }
            let grid = compiled.grid_at(&|name| self.var_value(name))?;
            let vars = compiled.vars.iter().map(|v| {
                let own = scalar_number(&v.name).and_then(|i| c.scalars.get(i));
                own.map_or_else(|| self.var_bits(v), |s| v.bits(Scalar::Int(*s as i64)))
            });
            steps.push(Step::Launch { kernel: *kernel, args, grid, vars: vars.collect::<Result<_>>()? });
        }
        // packed copies first: making one frees the original on the device, which a later call may read as it is
        for packs in [true, false].into_iter().filter(|_| !all_there) {
            for (c, step) in plan.calls.iter().zip(&mut steps) {
                let Step::Launch { args, .. } = step else { continue };
                for (i, (view, a)) in (0u32..).zip(args.iter_mut().zip(&c.args)) {
                    let &Place::External(slot) = a else { continue };
                    let compiled = &self.programs.get(&c.program).ok_or_else(lost)?.compiled;
                    if compiled.packs.iter().any(|p| p.slot == i) == packs {
                        *view = self.external(state, externals[slot as usize], c.program, i)?;
                    }
                }
            }
        }
        Ok(steps)
    }

    /// What a program gets for a session buffer as its argument `slot`, if that is on the device and can be used as it
    /// is: nothing to upload, pack or invalidate.
    fn resident(&self, id: u32, program: &Compiled, slot: u32) -> Option<View> {
        let (buf, bytes) = match program.packs.iter().find(|p| p.slot == slot) {
            Some(p) => self.copy_of(id, p.key).map(|c| (c.buf, c.bytes))?,
            None if program.source.params.get(slot as usize).is_some_and(|p| p.written) => return None,
            None => *self.buffers.get(&id)?,
        };
        Some(View { buf, offset: 0, bytes })
    }

    /// Recomputes constants that a plan reads and that are no longer on the device.
    pub(super) fn restore(&mut self, state: &mut State, plan: &Plan, externals: &[u32]) -> Result<()> {
        if self.recipes.is_empty() {
            return Ok(());
        }
        let mut wanted = Vec::new();
        for c in &plan.calls {
            for (i, a) in (0u32..).zip(&c.args) {
                let &Place::External(slot) = a else { continue };
                let id = externals[slot as usize];
                let packs = self.programs.get(&c.program).map(|l| &l.compiled.packs);
                let copy = packs.and_then(|p| p.iter().find(|p| p.slot == i)).map(|p| p.key);
                if copy.is_none_or(|key| self.copy_of(id, key).is_none()) {
                    wanted.push(id);
                }
            }
        }
        self.compute_again(state, &wanted)
    }

    /// Runs the recipes of those buffers that have one and are not on the device.
    pub(super) fn compute_again(&mut self, state: &mut State, wanted: &[u32]) -> Result<()> {
        for id in wanted.iter().filter(|id| self.recipes.contains_key(id)).copied().collect::<Vec<_>>() {
            if !self.buffers.contains_key(&id) {
                self.run_recipe(state, id, wanted)?;
            }
        }
        Ok(())
    }

    pub(super) fn run_recipe(&mut self, state: &mut State, id: u32, wanted: &[u32]) -> Result<()> {
        let Some(recipe) = self.recipes.get(&id).cloned() else { return Ok(()) };
        let mut externals = Vec::with_capacity(recipe.externals.len());
        for (dtype, len, bytes) in &recipe.externals {
            let node = state.add_buffer(*dtype, *len, Some(bytes.clone()));
            externals.extend(state.buffer_id(node));
        }
        let made = self.run(state, &recipe.held.plan, &externals);
        externals.into_iter().for_each(|id| self.drop_buffer(id));
        for (node, id) in made?.iter().zip(&recipe.outputs) {
            let Some(new) = state.buffer_id(*node).and_then(|new| self.buffers.remove(&new)) else { continue };
            if self.buffers.contains_key(id) || !self.recipes.contains_key(id) || !wanted.contains(id) {
                self.pool.put(new.0, new.1);
            } else {
                self.buffers.insert(*id, new);
            }
        }
        Ok(())
    }

    /// What a program gets for a session buffer as its argument `slot`: uploads or packs it where necessary.
    fn external(&mut self, state: &mut State, id: u32, program: u128, slot: u32) -> Result<View> {
        let lost = || Error::Internal("a plan's program is not on the device".into());
        let compiled = &self.programs.get(&program).ok_or_else(lost)?.compiled;
        if let Some(key) = compiled.packs.iter().find(|p| p.slot == slot).map(|p| p.key) {
            return self.packed(state, id, key);
        }
        let written = compiled.source.params.get(slot as usize).is_some_and(|p| p.written);
        let view = self.whole(state, id)?;
        if written {
            self.changed(state, id);
        }
        Ok(view)
    }
}

impl Replay {
    /// Lets the engine forget this computation's plan; ask [`Engine::has`] before each use.
    pub fn unpinned(mut self) -> Replay {
        self.held.pin = None;
        self
    }

    /// Keeps the buffers that this computation reads and writes, even if no tensor needs them any more, so that it can
    /// run again after the tensors from which it was captured were dropped. Without this such a run fails with
    /// `E_INTERNAL`.
    pub fn holding(mut self, state: &mut State) -> Replay {
        self.hold = Some(state.hold(&self.externals));
        self
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.held.plan
    }

    /// Session buffers that it reads and writes, by slot.
    pub fn externals(&self) -> &[u32] {
        &self.externals
    }

    pub(super) fn shapes(&self) -> &[Vec<usize>] {
        &self.shapes
    }
}

impl Pending {
    /// The nodes that will be computed, in the order of the plan's roots.
    pub fn nodes(&self) -> &[UOp] {
        &self.nodes
    }

    /// Session buffers that the plan reads and writes, by slot.
    pub fn externals(&self) -> &[u32] {
        &self.externals
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.held.plan
    }
}

/// Is the node a buffer, possibly reshaped, so that there is nothing to compute?
fn is_whole_buffer(g: &Graph, mut u: UOp) -> bool {
    while matches!(g.op(u), Op::Reshape | Op::Detach) {
        u = g.src_at(u, 0);
    }
    g.op(u) == Op::Buffer
}

/// Replaces buffers by numbered params, which gives the graph that plans are made from. [`hash::closed_key`] gives its
/// key and the buffers by number.
pub fn close(g: &Graph, roots: &[UOp]) -> (Graph, Vec<UOp>) {
    let mut out = Graph::new();
    let mut params = 0;
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in g.value_nodes_postorder(roots) {
        let image = match (g.op(u), g.arg(u)) {
            (Op::Buffer, Arg::Buffer { len, .. }) => {
                params += 1;
                out.param(params - 1, g.dtype(u), *len)
            }
            (op, arg) => {
                let src: smallvec::SmallVec<[UOp; 4]> = g.value_src(u).iter().map(|s| map[s]).collect();
                out.node(op, g.dtype(u), &src, arg.clone())
            }
        };
        map.insert(u, image);
    }
    let roots = roots.iter().map(|r| map[r]).collect();
    (out, roots)
}
