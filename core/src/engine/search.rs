//! Beam search over lists of opts for one kernel. The search proposes candidates and is told how long they took. It has
//! no clock and no device; its driver has both, and stops asking when the time is up.
//!
//! It starts from the heuristic's opts and from no opts. Each round takes the best lists that were not extended before;
//! from each it makes lists with one more opt, one fewer, or one changed, and drops those that lead to a program seen
//! before. The cost model decides which of them are worth timing.

use super::plan::{self, Compiled};
use super::tuned;
use crate::codegen::cost::cost;
use crate::codegen::opt::{actions, heuristic};
use crate::codegen::{self, Opt, Program, axes::Kernel};
use crate::render::Renderer;
use crate::schedule::Ast;
use crate::target::Target;
use crate::uop::{Op, hash};
use crate::util::sort;
use crate::{Error, Result};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;

/// Lists that are extended in a round (the width of the beam).
const BEAM: usize = 4;
/// Candidates made from one list that are timed: those that the cost model estimates to be fastest.
const TIMED_PER_LIST: usize = 10;
/// A list slower than the best one by this factor is not extended, unless it has fewer than three opts.
const MAX_SLOWDOWN: f64 = 1.6;
/// The search ends after more than this many rounds without a better list.
const PATIENCE: usize = 2;

/// A candidate to be timed.
pub struct Trial {
    /// The list of opts.
    pub opts: Vec<Opt>,
    /// The program, ready for a device.
    pub compiled: Compiled,
}

struct Candidate {
    opts: Vec<Opt>,
    program: Program,
}

struct Timed {
    opts: Vec<Opt>,
    seconds: f64,
    extended: bool,
}

/// What a search does next.
pub enum Next {
    /// Time this and [`Search::tell`].
    Trial(Box<Trial>),
    /// Nothing to time yet: call again.
    Working,
    /// There is nothing left worth trying.
    Done,
}

/// The search for one kernel.
pub struct Search {
    ast: Ast,
    target: Target,
    renderer: &'static dyn Renderer,
    chosen: Vec<Opt>,
    seen: FxHashSet<u128>,
    queue: VecDeque<Candidate>,
    asked: Option<Vec<Opt>>,
    /// Lists of this round that are not compiled yet, grouped by the list they were made from; and the compiled ones of
    /// the first group, with estimated nanoseconds.
    growing: VecDeque<VecDeque<Vec<Opt>>>,
    made: Vec<(f64, Candidate)>,
    timed: Vec<Timed>,
    /// The best time when the round began, and the number of rounds since it improved.
    best_before_round: f64,
    rounds_without_gain: usize,
    heuristic_seconds: Option<f64>,
    trials: usize,
}

impl Search {
    /// Begins with the heuristic's opts, with none, and with those that an earlier search found.
    pub fn new(ast: &Ast, target: &Target, renderer: &'static dyn Renderer, known: Option<&[Opt]>) -> Result<Search> {
        let mut k = Kernel::new(ast);
        k.settle_axes();
        let chosen = heuristic::choose(&k, target);
        let mut s = Search {
            ast: ast.clone(),
            target: target.clone(),
            renderer,
            chosen: chosen.clone(),
            seen: FxHashSet::default(),
            queue: VecDeque::new(),
            asked: None,
            growing: VecDeque::new(),
            made: Vec::new(),
            timed: Vec::new(),
            best_before_round: f64::INFINITY,
            rounds_without_gain: 0,
            heuristic_seconds: None,
            trials: 0,
        };
        let first = s.candidate(chosen).ok_or_else(|| Error::Internal("the heuristic's opts do not fit".into()))?;
        s.queue.push_back(first);
        for opts in [Some(Vec::new()), known.map(<[Opt]>::to_vec)].into_iter().flatten() {
            if let Some(c) = s.candidate(opts) {
                s.queue.push_back(c);
            }
        }
        Ok(s)
    }

    /// The program without any opts, whose results those of candidates are compared with.
    pub fn reference(&self) -> Result<Compiled> {
        plan::compile(&self.ast, &self.target, self.renderer, Some(&[]))
    }

    /// The next candidate; `None` when the search is over. The first is the heuristic's.
    pub fn ask(&mut self) -> Option<Trial> {
        loop {
            match self.poll() {
                Next::Trial(t) => return Some(*t),
                Next::Working => {}
                Next::Done => return None,
            }
        }
    }

    /// Does a small piece of the search, for hosts that must not block for long: none takes longer than compiling one
    /// kernel.
    pub fn poll(&mut self) -> Next {
        if let Some(c) = self.queue.pop_front() {
            // a program that cannot be rendered is dropped
            let Ok(compiled) = Compiled::new(c.program, &self.target, self.renderer) else { return Next::Working };
            self.asked = Some(c.opts.clone());
            return Next::Trial(Box::new(Trial { opts: c.opts, compiled }));
        }
        match self.growing.front_mut().map(VecDeque::pop_front) {
            Some(Some(list)) => {
                if let Some(c) = self.candidate(list) {
                    self.made.push((cost(&c.program, &self.target).ns, c));
                }
            }
            Some(None) => {
                self.growing.pop_front();
                let mut made = std::mem::take(&mut self.made);
                sort::by(&mut made, |a, b| a.0.total_cmp(&b.0));
                self.queue.extend(made.into_iter().take(TIMED_PER_LIST).map(|m| m.1));
            }
            None if self.grow() => {}
            None => return Next::Done,
        }
        Next::Working
    }

    /// Tells how long the last candidate took; `None` if it failed or gave wrong results.
    pub fn tell(&mut self, seconds: Option<f64>) {
        let Some(opts) = self.asked.take() else { return };
        self.trials += 1;
        let Some(seconds) = seconds else { return };
        if self.trials == 1 {
            self.heuristic_seconds = Some(seconds);
        }
        self.timed.push(Timed { opts, seconds, extended: false });
    }

    /// The fastest opts so far and their time.
    pub fn best(&self) -> Option<(&[Opt], f64)> {
        let best = self.timed.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
        Some((&best.opts, best.seconds))
    }

    /// The heuristic's opts.
    pub fn chosen(&self) -> &[Opt] {
        &self.chosen
    }

    /// The time of the heuristic's opts.
    pub fn heuristic(&self) -> Option<f64> {
        self.heuristic_seconds
    }

    /// Candidates timed.
    pub fn trials(&self) -> usize {
        self.trials
    }

    /// Begins a round; false if there is nothing left worth trying.
    fn grow(&mut self) -> bool {
        let Some((_, best)) = self.best() else { return false };
        self.rounds_without_gain = if best < self.best_before_round * 0.99 { 0 } else { self.rounds_without_gain + 1 };
        self.best_before_round = best;
        if self.rounds_without_gain > PATIENCE {
            return false;
        }
        sort::by(&mut self.timed, |a, b| a.seconds.total_cmp(&b.seconds));
        let plain_too = |t: &Timed| t.seconds < best * MAX_SLOWDOWN || t.opts.len() < 3;
        let states: Vec<Vec<Opt>> = self
            .timed
            .iter_mut()
            .filter(|t| !t.extended && plain_too(t))
            .take(BEAM)
            .map(|t| {
                t.extended = true;
                t.opts.clone()
            })
            .collect();
        for opts in &states {
            let lists = self.neighbours(opts);
            self.growing.push_back(lists.into());
        }
        !states.is_empty()
    }

    /// All lists that differ from `opts` by one step: one opt removed, changed or added.
    fn neighbours(&self, opts: &[Opt]) -> Vec<Vec<Opt>> {
        let mut out = Vec::new();
        for i in 0..opts.len() {
            let mut less = opts.to_vec();
            less.remove(i);
            out.push(less);
            for other in actions::variants(&opts[i], &self.target) {
                let mut changed = opts.to_vec();
                changed[i] = other;
                out.push(changed);
            }
        }
        let mut k = Kernel::new(&self.ast);
        k.settle_axes();
        if k.apply_all(opts, &self.target).is_ok() {
            for next in actions::next(&k, &self.target) {
                let mut more = opts.to_vec();
                more.push(next);
                out.push(more);
            }
        }
        out
    }

    /// Compiles a list; `None` if it does not fit the kernel or the target, or leads to a program seen before.
    fn candidate(&mut self, opts: Vec<Opt>) -> Option<Candidate> {
        if !tuned::in_bounds(&opts) {
            return None;
        }
        let program = codegen::compile(&self.ast, &self.target, Some(&opts)).ok()?;
        let t = &self.target;
        let threads: u64 = program.local.iter().map(|&n| u64::from(n)).product();
        let within = |have: [u32; 3], most: [u32; 3]| have.iter().zip(most).all(|(&h, m)| h <= m);
        let fits = !t.caps.has_local
            || within(program.grid, t.limits.max_grid)
                && within(program.local, t.limits.max_local)
                && threads <= u64::from(t.limits.max_local_total);
        let registers =
            |p: &Program| p.order.iter().filter(|&&u| p.g.op(u) == Op::Acc).map(|&u| vectors(p, u, t)).sum::<f64>();
        if !fits || registers(&program) > 4.0 * t.caps.vector_registers as f64 {
            return None;
        }
        self.seen.insert(hash::key(&program.g, &program.order)).then_some(Candidate { opts, program })
    }
}

/// Registers that a value fills.
fn vectors(p: &Program, u: crate::uop::UOp, t: &Target) -> f64 {
    p.tile(u).iter().map(|a| if a.lane { a.len.div_ceil(t.caps.lanes) } else { a.len }).product::<usize>() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType::F32;
    use crate::render::{self, wasm::Wasm};
    use crate::schedule::schedule;
    use crate::uop::{Graph, ReduceOp};

    fn matmul(n: usize, t: &Target) -> Ast {
        let mut g = Graph::new();
        let (a, b) = (g.param(0, F32, n * n), g.param(1, F32, n * n));
        let (a, b) = (g.reshape(a, &[n, n, 1]), g.reshape(b, &[1, n, n]));
        let (a, b) = (g.expand(a, &[n, n, n]), g.expand(b, &[n, n, n]));
        let product = g.binary(Op::Mul, a, b);
        let sum = g.reduce(product, ReduceOp::Add, &[1]);
        schedule(&g, &[sum], 2, t).unwrap().kernels.remove(0).ast
    }

    #[test]
    fn a_search_ends_and_finds_what_the_times_say() {
        let t = Target::wasm(true, 1);
        let ast = matmul(64, &t);
        let mut s = Search::new(&ast, &t, &Wasm, None).unwrap();
        let mut programs = FxHashSet::default();
        let mut fastest = f64::INFINITY;
        while let Some(trial) = s.ask() {
            let p = trial.compiled.program.as_ref().unwrap();
            assert!(programs.insert(hash::key(&p.g, &p.order)), "each program once");
            // the cost model serves as the clock
            let seconds = cost(p, &t).ns;
            fastest = fastest.min(seconds);
            s.tell(Some(seconds));
            assert!(s.trials() < 2000, "it comes to an end");
        }
        let (opts, best) = s.best().unwrap();
        assert_eq!(best, fastest);
        assert!(best <= s.heuristic().unwrap());
        assert!(codegen::compile(&ast, &t, Some(opts)).is_ok());
    }

    #[test]
    fn no_program_is_cheaper_than_its_multiplications() {
        let mut targets = vec![Target::wasm(true, 1), Target::wasm(false, 1)];
        if cfg!(feature = "c") {
            targets.push(Target::c(8, 16, 1));
        }
        for t in targets {
            let mut s = Search::new(&matmul(128, &t), &t, render::of(t.lang), None).unwrap();
            while let Some(trial) = s.ask() {
                let ns = cost(trial.compiled.program.as_ref().unwrap(), &t).ns;
                let (vectors, m) = (128f64.powi(3) / t.caps.lanes as f64, t.machine.prices);
                assert!(ns >= vectors * m.multiply_add * m.cycle, "{:?}: {ns}", trial.opts);
                s.tell(Some(ns));
            }
            assert!(s.trials() > 50, "{}: {} programs", t.name, s.trials());
        }
    }

    #[test]
    fn failures_are_not_chosen() {
        let t = Target::wasm(true, 1);
        let mut s = Search::new(&matmul(32, &t), &t, &Wasm, None).unwrap();
        let first = s.ask().unwrap().opts;
        s.tell(Some(1.0));
        for _ in 0..5 {
            s.ask().unwrap();
            s.tell(None);
        }
        assert_eq!(s.best().unwrap(), (first.as_slice(), 1.0));
    }
}
