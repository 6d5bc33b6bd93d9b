//! From a closed graph to a plan whose programs are on the device: out of this engine, out of the host's cache, or made now.
//! And the exchange of single programs by faster ones, which tuning does while a model is in use.

use super::cache::{self, Kind};
use super::exec::{Engine, Loaded};
use super::plan::{self, Compiled, Job, Packed, Plan};
use super::tuned;
use crate::codegen::Opt;
use crate::schedule::Ast;
use crate::target::Target;
use crate::uop::{Graph, UOp};
use crate::util::sort;
use crate::{Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::{Arc, OnceLock};

/// What a plan was made from.
pub(super) struct Kept {
    graph: Graph,
    roots: Vec<UOp>,
    constant: Vec<bool>,
}

impl Engine {
    /// A plan that this engine has.
    pub(super) fn known_plan(&mut self, key: u128) -> Option<Arc<Plan>> {
        let plan = self.plans.get(&key)?.clone();
        self.counters.plan_hits += 1;
        Some(plan)
    }

    /// The plan for a closed graph and its key: one this engine has, one the host remembers, or one made now.
    /// `constant` says of each parameter if its contents stay the same from run to run.
    pub(super) fn plan_for(&mut self, graph: u128, g: &Graph, roots: &[UOp], constant: &[bool]) -> Result<Arc<Plan>> {
        let n_params = constant.len();
        let key = plan_key(graph, constant);
        if let Some(p) = self.known_plan(key) {
            return Ok(p);
        }
        let plan = match self.remembered(key, n_params)? {
            Some(plan) => plan,
            None => {
                self.counters.cache_misses += 1;
                let target = self.device.target().clone();
                let (plan, jobs) = plan::plan(g, roots, constant, &target)?;
                self.compile(jobs, &target)?;
                let entry = cache::entry_key(self.space, Kind::Plan, key);
                self.host.save(Kind::Plan, entry, cache::save_plan(entry, &plan));
                plan
            }
        };
        self.counters.plans += 1;
        if let Some(kept) = &mut self.kept {
            kept.insert(key, Kept { graph: g.clone(), roots: roots.to_vec(), constant: constant.to_vec() });
        }
        let plan = Arc::new(plan);
        self.plans.insert(key, plan.clone());
        Ok(plan)
    }

    /// The plan as the host remembers it, with all of its programs on the device.
    fn remembered(&mut self, key: u128, n_params: usize) -> Result<Option<Plan>> {
        let entry = cache::entry_key(self.space, Kind::Plan, key);
        let found = self.host.load(Kind::Plan, entry).and_then(|b| cache::load_plan(entry, &b, n_params));
        let Some(plan) = found else { return Ok(None) };
        let mut fresh: Vec<(u128, Compiled)> = Vec::new();
        let mut params: FxHashMap<u128, usize> = FxHashMap::default();
        for c in &plan.calls {
            if let std::collections::hash_map::Entry::Vacant(slot) = params.entry(c.program) {
                let known = self.programs.get(&c.program).map(|l| l.compiled.source.params.len());
                slot.insert(match known {
                    Some(n) => n,
                    None => {
                        // without one of its kernels the plan is made again
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
        self.put_on_device(fresh)?;
        Ok(Some(plan))
    }

    /// A kernel with its tuned opts, if there are such, as the host remembers it.
    fn remembered_kernel(&mut self, key: u128) -> Option<Compiled> {
        let opts = self.tuned(key);
        self.stored_kernel(cache::with_opts(key, opts.as_deref()))
    }

    fn stored_kernel(&mut self, key: u128) -> Option<Compiled> {
        let entry = cache::entry_key(self.space, Kind::Kernel, key);
        self.host.load(Kind::Kernel, entry).and_then(|b| cache::load_kernel(entry, &b))
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

    /// The opts that a search found for a kernel: on this machine, or elsewhere as [`Engine::add_tuned`] was told, or as
    /// this release knows.
    pub fn tuned(&mut self, key: u128) -> Option<Vec<Opt>> {
        let entry = self.opts_entry(key);
        let found = self.host.load(Kind::Opts, entry).and_then(|b| cache::load_opts(entry, &b));
        found.or_else(|| self.tuned.get(entry).map(<[Opt]>::to_vec))
    }

    /// Takes tuned opts for plans made from now on: lines as [`Engine::tuned_line`] gives them. Returns how many there are.
    /// Opts that do not fit their kernel are passed over when it is compiled.
    ///
    /// # Errors
    /// [`Error::Format`] that names the first line that is none; then nothing is taken.
    pub fn add_tuned(&mut self, lines: &str) -> Result<usize> {
        self.tuned.add(lines)
    }

    /// Opts of a kernel as a line for [`Engine::add_tuned`], here and on other devices of the same family.
    pub fn tuned_line(&mut self, key: u128, opts: &[Opt]) -> String {
        tuned::line(self.opts_entry(key), opts)
    }

    /// Compiles the kernels that neither this engine nor the host has, all at once.
    fn compile(&mut self, jobs: Vec<Job>, target: &Target) -> Result<()> {
        let mut ready: Vec<(u128, Option<Compiled>)> = Vec::new();
        let mut todo: Vec<(Job, Option<Vec<Opt>>)> = Vec::new();
        for job in jobs {
            if self.programs.contains_key(&job.key) {
                continue;
            }
            let opts = self.tuned(job.key);
            let known = self.stored_kernel(cache::with_opts(job.key, opts.as_deref()));
            let missing = known.is_none();
            ready.push((job.key, known));
            if missing {
                todo.push((job, opts));
            }
        }
        let cached = (ready.len() - todo.len()) as u64;
        self.counters.cache_hits += cached;
        self.counters.programs_cached += cached;
        self.counters.cache_misses += todo.len() as u64;
        self.counters.programs += todo.len() as u64;
        let made: Vec<OnceLock<Result<Compiled>>> = todo.iter().map(|_| OnceLock::new()).collect();
        self.host.each(todo.len(), &|i| {
            let (job, opts) = &todo[i];
            let mut result = plan::compile(&job.ast, target, opts.as_deref());
            if opts.is_some() && result.is_err() {
                // opts found by another release may no longer fit
                result = plan::compile(&job.ast, target, None);
            }
            let _ = made[i].set(result);
        });
        let none = || Error::Internal("a kernel was not compiled".into());
        let mut made = todo.into_iter().zip(made);
        for (_, slot) in ready.iter_mut().filter(|r| r.1.is_none()) {
            let ((job, opts), result) = made.next().ok_or_else(none)?;
            let compiled = result.into_inner().ok_or_else(none)??;
            self.save_kernel(cache::with_opts(job.key, opts.as_deref()), &compiled);
            *slot = Some(compiled);
        }
        self.put_on_device(ready.into_iter().filter_map(|(k, c)| Some((k, c?))).collect())
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
        for ((key, compiled), kernel) in all.into_iter().zip(ids) {
            let launches = self.programs.get(&key).map_or(0, |l| l.launches);
            self.programs.insert(key, Loaded { kernel, compiled, launches });
        }
        Ok(())
    }

    /// From now on the graphs of plans are kept, so that their kernels can be tuned. To be called before the first plan.
    pub fn keep_graphs(&mut self) {
        self.kept.get_or_insert_default();
    }

    /// The distinct kernels of all plans whose graphs were kept, with the number of their launches so far. Schedules the
    /// plans again.
    pub fn kernels(&mut self) -> Result<Vec<(u128, Ast, u64)>> {
        let target = self.device.target().clone();
        let mut keys: Vec<u128> = self.kept.iter().flatten().map(|k| *k.0).collect();
        sort::ascending(&mut keys);
        let mut list: Vec<(u128, Ast, u64)> = Vec::new();
        let mut seen = FxHashSet::default();
        for k in keys.iter().filter_map(|k| self.kept.as_ref()?.get(k)) {
            let (_, jobs) = plan::plan(&k.graph, &k.roots, &k.constant, &target)?;
            for job in jobs.into_iter().filter(|j| seen.insert(j.key)) {
                if let Some(loaded) = self.programs.get(&job.key) {
                    list.push((job.key, job.ast, loaded.launches));
                }
            }
        }
        Ok(list)
    }

    /// Was the search for a kernel's opts brought to its end, by this build?
    pub fn searched(&mut self, key: u128) -> bool {
        let entry = cache::entry_key(self.space, Kind::Searched, key);
        self.host.load(Kind::Searched, entry).is_some_and(|b| cache::load_opts(entry, &b).is_some())
    }

    /// Notes that the search for a kernel's opts came to its end.
    pub fn note_searched(&mut self, key: u128) {
        let entry = cache::entry_key(self.space, Kind::Searched, key);
        self.host.save(Kind::Searched, entry, cache::save_opts(entry, &[]));
    }

    /// Runs a kernel with other opts from now on, here and wherever the host's cache is used. The device must be ready
    /// before the next run, as after a start.
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

/// The key of a plan.
pub(super) fn plan_key(graph: u128, constant: &[bool]) -> u128 {
    let slots = (0u32..).zip(constant).filter(|x| *x.1).map(|x| x.0);
    if constant.contains(&true) { plan::with_numbers(graph, slots) } else { graph }
}
