//! Tuning while a page is in use: drives the core's search, timed by the host's clock, in pieces of some milliseconds,
//! and makes the engine adopt faster kernels between two runs. A candidate must give the results of the kernel that it
//! would replace.

use crate::js::{now, text};
use crate::runtime::Inner;
use crate::values::TunedKernel;
use gradloom_core::codegen::cost::cost;
use gradloom_core::device::Step;
use gradloom_core::engine::search::{Next, Search};
use gradloom_core::engine::{Bench, Compiled, Trying, plan};
use gradloom_core::render::Renderer;
use gradloom_core::schedule::Ast;
use gradloom_core::target::Target;
use gradloom_core::util::{between, sort};
use gradloom_core::{Error, Result};
use js_sys::{Function, Promise};
use std::rc::Rc;
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;

/// The shortest measured interval in milliseconds: browsers limit the clock's resolution, so a kernel is repeated until
/// a measurement takes this long (at most `MAX_REPEATS` times).
const MIN_MEASURED_MS: f64 = 2.0;
const MAX_REPEATS: f64 = 256.0;
/// How often a candidate is timed, unless the first measurement is clearly slower.
const TIMING_ROUNDS: usize = 3;
/// A candidate must take less than this fraction of the current time; smaller gains are within the noise.
const ADOPTION_RATIO: f64 = 0.97;
/// The longest time in milliseconds that the search generates candidates without yielding.
const SEARCH_SLICE_MS: f64 = 4.0;
/// A candidate that the cost model predicts to be this many times slower is not run if it could then take longer than
/// `NOTICEABLE_MS` milliseconds, which the user would notice.
const MAX_PREDICTED_SLOWDOWN: f64 = 10.0;
const NOTICEABLE_MS: f64 = 20.0;
/// Kernels with more bytes of buffers than this are not tuned, since tuning duplicates their buffers.
const MAX_BUFFER_BYTES: usize = 256 << 20;

/// A tuning session.
pub(crate) struct Tuner {
    inner: Rc<Inner>,
    target: Target,
    renderer: &'static dyn Renderer,
    /// Called before each piece of work: resolves when there is time for it, to false if tuning should end.
    request_slot: Function,
    budget_ms: f64,
    spent_ms: f64,
    /// For tests: kernels are first compiled without opts, and the cost model replaces the clock, so that a better
    /// kernel is certain to be found on any machine under any load.
    without_opts: bool,
}

impl Tuner {
    pub(crate) fn new(inner: Rc<Inner>, request_slot: Function, budget_ms: f64, without_opts: bool) -> Tuner {
        let (target, renderer) = {
            let mut engine = inner.engine.borrow_mut();
            (engine.device().target().clone(), engine.device().renderer())
        };
        Tuner { inner, target, renderer, request_slot, budget_ms, spent_ms: 0.0, without_opts }
    }

    /// Tunes the kernels that were launched so far and not searched before, in order of their total time; each gets a
    /// share of the budget in proportion to that time.
    pub(crate) async fn run(mut self) -> Result<Vec<TunedKernel>> {
        let kernels = {
            let _guard = self.inner.lock().await;
            let mut engine = self.inner.engine.borrow_mut();
            let kernels = engine.kernels()?;
            kernels.into_iter().filter(|k| !engine.searched(k.0)).collect::<Vec<_>>()
        };
        let mut shares = Vec::new();
        for (key, ast, launches) in kernels {
            if !self.wait_for_slot(self.budget_ms / 4.0).await? {
                break;
            }
            if let Some(ms) = self.time_current(key).await? {
                shares.push((ms * launches as f64, key, ast, launches));
            }
        }
        sort::by(&mut shares, |a, b| b.0.total_cmp(&a.0));
        let mut left: f64 = shares.iter().map(|s| s.0).sum();
        let mut out = Vec::new();
        for (share, key, ast, launches) in shares {
            let part = between(share / left.max(f64::MIN_POSITIVE), 0.0, 1.0);
            left -= share;
            let stop = self.spent_ms + (self.budget_ms - self.spent_ms) * part;
            if !self.wait_for_slot(stop).await? {
                break;
            }
            // a kernel whose search fails keeps its current version
            if let Ok(Some(done)) = self.tune_kernel(key, &ast, launches, stop).await {
                out.push(done);
            }
        }
        Ok(out)
    }

    /// Waits until there is time for work; false if the budget is spent or the caller ended tuning.
    async fn wait_for_slot(&self, stop: f64) -> Result<bool> {
        if self.spent_ms >= stop.min(self.budget_ms) {
            return Ok(false);
        }
        let fail = |e: JsValue| Error::Internal(format!("tuning: {}", text(&e)));
        let promise = self.request_slot.call0(&JsValue::NULL).map_err(fail)?;
        Ok(JsFuture::from(Promise::resolve(&promise)).await.map_err(fail)?.is_truthy())
    }

    /// The time of a kernel's current version in milliseconds.
    async fn time_current(&mut self, key: u128) -> Result<Option<f64>> {
        let start = now();
        let guard = self.inner.lock().await;
        let compiled = self.inner.engine.borrow().program(key).cloned();
        let Some(compiled) = compiled else { return Ok(None) };
        let Some(bench) = self.bench(&compiled)? else { return Ok(None) };
        let ms = self.time(&bench, &compiled, f64::INFINITY, 1).await;
        bench.free(self.inner.engine.borrow_mut().device());
        drop(guard);
        self.spent_ms += now() - start;
        Ok(ms.ok())
    }

    fn bench(&self, c: &Compiled) -> Result<Option<Bench>> {
        let bytes: usize = c.source.params.iter().map(|p| p.len * p.dtype.size()).sum();
        if bytes > MAX_BUFFER_BYTES {
            return Ok(None);
        }
        Bench::new(self.inner.engine.borrow_mut().device(), c).map(Some)
    }

    /// Tunes one kernel until the spent time reaches `stop`.
    async fn tune_kernel(&mut self, key: u128, ast: &Ast, launches: u64, stop: f64) -> Result<Option<TunedKernel>> {
        let known = self.inner.engine.borrow_mut().tuned(key);
        let search = Search::new(ast, &self.target, self.renderer, known.as_deref())?;
        let first = plan::compile(ast, &self.target, self.renderer, if self.without_opts { Some(&[]) } else { None })?;
        if self.without_opts {
            let _guard = self.inner.lock().await;
            self.inner.engine.borrow_mut().adopt(key, &[], first.clone())?;
            self.inner.wait_compiled().await?;
        }
        let Some(bench) = self.bench(&first)? else { return Ok(None) };
        let done = self.search(search, &bench, first, key, stop).await;
        bench.free(self.inner.engine.borrow_mut().device());
        Ok(done?.map(|t| TunedKernel { launches: launches as f64, ..t }))
    }

    async fn search(
        &mut self,
        mut search: Search,
        bench: &Bench,
        first: Compiled,
        key: u128,
        stop: f64,
    ) -> Result<Option<TunedKernel>> {
        let expected = {
            let _guard = self.inner.lock().await;
            self.run_program(bench, &first).await?
        };
        let predicted_ns = |c: &Compiled| c.program.as_ref().map_or(0.0, |p| cost(p, &self.target).ns);
        let first_ns = predicted_ns(&first).max(1.0);
        let mut best: Option<(f64, Compiled)> = None;
        let mut wrong = 0;
        let mut exhausted = false;
        while self.wait_for_slot(stop).await? {
            let start = now();
            let next = loop {
                match search.poll() {
                    Next::Working if now() - start < SEARCH_SLICE_MS => {}
                    next => break next,
                }
            };
            let trial = match next {
                Next::Done => {
                    exhausted = true;
                    break;
                }
                Next::Working => {
                    self.spent_ms += now() - start;
                    continue;
                }
                Next::Trial(t) => t.compiled,
            };
            let slower = predicted_ns(&trial) / first_ns;
            let guess_ms = search.heuristic().unwrap_or(0.0) * slower;
            let ms = if slower > MAX_PREDICTED_SLOWDOWN && guess_ms > NOTICEABLE_MS {
                None
            } else {
                let _guard = self.inner.lock().await;
                let limit = best.as_ref().map_or(f64::INFINITY, |b| b.0);
                match self.run_program(bench, &trial).await {
                    Ok(got) if bench.agree(&expected, &got) => {
                        self.time(bench, &trial, limit, TIMING_ROUNDS).await.ok()
                    }
                    Ok(_) => {
                        wrong += 1;
                        None
                    }
                    Err(_) => None,
                }
            };
            if let Some(ms) = ms.filter(|&ms| best.as_ref().is_none_or(|b| ms < b.0)) {
                best = Some((ms, trial));
            }
            search.tell(ms);
            self.spent_ms += now() - start;
        }
        let (Some((after, compiled)), Some(before)) = (best, search.heuristic()) else { return Ok(None) };
        let opts = search.best().map(|b| b.0.to_vec()).unwrap_or_default();
        let (mut before, mut after) = (if self.without_opts { f64::INFINITY } else { before }, after);
        let (mut name, mut line) = (first.source.name.clone(), None);
        let start = now();
        let _guard = self.inner.lock().await;
        if after < before * ADOPTION_RATIO {
            // selecting the best of many favours noise, so the two versions that matter are timed again alternately
            (before, after) = (f64::INFINITY, f64::INFINITY);
            for _ in 0..2 {
                before = before.min(self.time(bench, &first, f64::INFINITY, TIMING_ROUNDS).await?);
                after = after.min(self.time(bench, &compiled, f64::INFINITY, TIMING_ROUNDS).await?);
            }
        }
        if after < before * ADOPTION_RATIO {
            name = compiled.source.name.clone();
            let mut engine = self.inner.engine.borrow_mut();
            line = Some(engine.tuned_line(key, &opts));
            engine.adopt(key, &opts, compiled)?;
            drop(engine);
            self.inner.wait_compiled().await?;
        } else {
            after = before;
        }
        if exhausted {
            self.inner.engine.borrow_mut().note_searched(key);
        }
        self.spent_ms += now() - start;
        let (tried, wrong) = (search.trials() as f64, wrong as f64);
        Ok(Some(TunedKernel { name, line, launches: 0.0, before_ms: before, after_ms: after, tried, wrong }))
    }

    async fn compile(&self, bench: &Bench, c: &Compiled) -> Result<Trying> {
        let trying = bench.compile(self.inner.engine.borrow_mut().device(), c)?;
        match self.inner.wait_compiled().await {
            Ok(()) => Ok(trying),
            Err(e) => {
                self.free(trying);
                Err(e)
            }
        }
    }

    fn free(&self, trying: Trying) {
        trying.free(self.inner.engine.borrow_mut().device());
    }

    /// The results of a program, from the same input data each time.
    async fn run_program(&self, bench: &Bench, c: &Compiled) -> Result<Vec<Vec<u8>>> {
        let trying = self.compile(bench, c).await?;
        let out = self.read_outputs(bench, trying.first()).await;
        self.free(trying);
        out
    }

    async fn read_outputs(&self, bench: &Bench, steps: &[Step]) -> Result<Vec<Vec<u8>>> {
        let tickets = {
            let mut engine = self.inner.engine.borrow_mut();
            let dev = engine.device();
            bench.reset(dev)?;
            dev.submit(steps)?;
            bench.written().into_iter().map(|view| dev.read(view)).collect::<Result<Vec<_>>>()?
        };
        let mut out = Vec::new();
        for ticket in tickets {
            out.push(self.inner.readback_bytes(ticket).await?);
        }
        Ok(out)
    }

    /// The minimum time of several rounds in milliseconds; a single round if it is far above `limit`.
    async fn time(&self, bench: &Bench, c: &Compiled, limit: f64, rounds: usize) -> Result<f64> {
        if self.without_opts {
            return Ok(c.program.as_ref().map_or(0.0, |p| cost(p, &self.target).ns));
        }
        let trying = self.compile(bench, c).await?;
        let measured = async {
            self.measure(bench, trying.first()).await?;
            let once = self.measure(bench, trying.again()).await?;
            if once > 4.0 * limit.max(MIN_MEASURED_MS) {
                return Ok(once);
            }
            let n = between((MIN_MEASURED_MS / once.max(1e-3)).ceil(), 1.0, MAX_REPEATS);
            let steps = vec![trying.again(); n as usize].concat();
            let mut best = f64::INFINITY;
            for _ in 0..rounds {
                best = best.min(self.measure(bench, &steps).await? / n);
                if best > limit * 2.0 {
                    break;
                }
            }
            Ok(best)
        };
        let out = measured.await;
        self.free(trying);
        out
    }

    /// The time of some steps in milliseconds, by the device's own timer if it has one.
    async fn measure(&self, bench: &Bench, steps: &[Step]) -> Result<f64> {
        let start = now();
        let timed = self.inner.engine.borrow_mut().device().submit_timed(steps)?;
        if let Some(ticket) = timed {
            let words = self.inner.readback_bytes(ticket).await?;
            let at = |i: usize| words.get(i * 8..i * 8 + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
            if let (Some(from), Some(to)) = (at(0), at(1))
                && to > from
            {
                return Ok((to - from) as f64 / 1e6);
            }
            return Ok(now() - start);
        }
        let Some(view) = bench.written().first().copied() else { return Ok(now() - start) };
        let first_word = gradloom_core::device::View { bytes: view.bytes.min(4), ..view };
        let ticket = self.inner.engine.borrow_mut().device().read(first_word)?;
        self.inner.readback_bytes(ticket).await?;
        Ok(now() - start)
    }
}
