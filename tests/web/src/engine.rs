//! The whole way on a device of the host: models against their expected outputs, and the speed of a matmul.

use gradloom_core::device::Device;
use gradloom_core::engine::Engine;
use gradloom_core::io::onnx::{Model, Runner};
use gradloom_core::io::{HostTensor, npz};
use gradloom_core::tensor::{Session, Tensor};
use gradloom_core::{Error, Result};
use gradloom_tests::onnx_suite::Case;
use gradloom_web::signal::Signal;
use js_sys::{Date, Function, Reflect};
use std::fmt::Write as _;
use std::sync::Arc;
use wasm_bindgen::JsCast;

/// Milliseconds of a clock that only goes forward.
pub(crate) fn now() -> f64 {
    let clock = Reflect::get(&js_sys::global(), &"performance".into()).unwrap_or_default();
    let now = Reflect::get(&clock, &"now".into()).map(JsCast::unchecked_into::<Function>);
    now.and_then(|f| f.call0(&clock)).ok().and_then(|v| v.as_f64()).unwrap_or_else(Date::now)
}

/// An engine and what to await when it has nothing to do.
pub(crate) struct Host {
    pub(crate) engine: Engine,
    pub(crate) signal: Signal,
}

impl Host {
    pub(crate) fn new(device: Box<dyn Device>, signal: Signal) -> Host {
        Host { engine: Engine::new(device), signal }
    }

    async fn compiled(&mut self) -> Result<()> {
        while !self.engine.ready()? {
            self.signal.wait().await;
        }
        Ok(())
    }

    async fn value(&mut self, t: &Tensor) -> Result<HostTensor> {
        let (ticket, dt, _) = self.engine.read(&mut t.session().state(), t.root())?;
        loop {
            if let Some(bytes) = self.engine.poll(ticket, dt)? {
                return HostTensor::new(dt, t.shape(), bytes);
            }
            self.signal.wait().await;
        }
    }

    /// One run: its outputs as read back, and the time until all kernels were compiled.
    async fn run(&mut self, r: &mut Runner, inputs: &[(&str, HostTensor)]) -> Result<(Vec<(String, HostTensor)>, f64)> {
        let start = now();
        let mut run = r.begin(&mut self.engine, inputs)?;
        let (outputs, compiled) = loop {
            while !r.ready(&mut self.engine, &mut run)? {
                self.signal.wait().await;
            }
            let compiled = now() - start;
            if let Some(out) = r.step(&mut self.engine, &mut run)? {
                break (out, compiled);
            }
        };
        let mut list = Vec::new();
        for (name, t) in &outputs {
            self.realize(&[t]).await?;
            list.push((name.clone(), self.value(t).await?));
        }
        drop(outputs);
        r.collect(&mut self.engine);
        Ok((list, compiled))
    }

    async fn realize(&mut self, tensors: &[&Tensor]) -> Result<()> {
        let Some(first) = tensors.first() else { return Ok(()) };
        let roots: Vec<_> = tensors.iter().map(|t| t.root()).collect();
        let pending = self.engine.start(&mut first.session().state(), &roots)?;
        self.compiled().await?;
        self.engine.finish(&mut first.session().state(), pending)?;
        Ok(())
    }

    /// Runs a model `repeat` times more than once and compares every time. A report as one line of JSON.
    pub(crate) async fn model(&mut self, file: Vec<u8>, input: &[u8], expected: &[u8], repeat: u32) -> Result<String> {
        let start = now();
        let mut runner = Runner::new(Arc::new(Model::parse(file)?), &Session::new());
        let inputs = npz::read(input)?;
        let inputs: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let expected = npz::read(expected)?;
        let mut times = Vec::new();
        let (mut compile, mut first, mut worst) = (0.0, 0.0, 0f64);
        for turn in 0..=repeat {
            let began = now();
            let (outputs, compiled) = self.run(&mut runner, &inputs).await?;
            let took = now() - began;
            if turn == 0 {
                (compile, first) = (compiled, now() - start);
            } else {
                times.push(took);
            }
            for (name, want) in &expected {
                let got = outputs.iter().find(|o| o.0 == *name).map(|o| o.1.to_f64()).unwrap_or_default();
                let want = want.to_f64();
                if got.len() != want.len() {
                    return Err(Error::Internal(format!("{name}: {} elements, not {}", got.len(), want.len())));
                }
                let scale = want.iter().fold(1e-30f64, |m, x| m.max(x.abs()));
                let error = got.iter().zip(&want).fold(0f64, |m, (a, b)| {
                    let d = (a - b).abs();
                    if d.is_nan() { f64::INFINITY } else { m.max(d) }
                });
                worst = worst.max(error / scale);
            }
        }
        times.sort_by(f64::total_cmp);
        let median = times.get(times.len() / 2).copied().unwrap_or(0.0);
        let c = self.engine.counters();
        let mut out = String::new();
        let _ = write!(
            out,
            "{{\"error\":{worst:e},\"compileMs\":{compile:.1},\"firstMs\":{first:.1},\"medianMs\":{median:.2},\
             \"minMs\":{:.2},\"programs\":{},\"launches\":{},\"peakMB\":{:.1}}}",
            times.first().unwrap_or(&0.0),
            c.programs,
            c.launches / (repeat as u64 + 1),
            c.peak_bytes as f64 / 1e6
        );
        Ok(out)
    }

    /// Computes lists of tensors of one session and reads them back: in one realization, which compiles all kernels at once, or if that
    /// is refused each list alone.
    pub(crate) async fn values(&mut self, lists: &[Vec<Tensor>]) -> Vec<Result<Vec<HostTensor>>> {
        let all: Vec<&Tensor> = lists.iter().flatten().collect();
        // a refusal shows again at the list that it is about
        _ = self.realize(&all).await;
        let mut out = Vec::new();
        for list in lists {
            out.push(self.list(list).await);
        }
        out
    }

    async fn list(&mut self, tensors: &[Tensor]) -> Result<Vec<HostTensor>> {
        self.realize(&tensors.iter().collect::<Vec<_>>()).await?;
        let mut out = Vec::new();
        for t in tensors {
            out.push(self.value(t).await?);
        }
        Ok(out)
    }

    /// Runs a case of the ONNX suite; nothing if its outputs are right, else what is wrong.
    pub(crate) async fn case(&mut self, case: &Case) -> Result<Option<String>> {
        let model = Arc::new(Model::parse(case.model.clone())?);
        let mut runner = Runner::new(model.clone(), &Session::new());
        for set in case.sets(&model) {
            let (inputs, want) = set?;
            let inputs: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
            if let Err(what) = case.check(&self.run(&mut runner, &inputs).await?.0, &want) {
                return Ok(Some(what));
            }
        }
        Ok(None)
    }

    /// The outputs of a model. An engine's buffers are named by its one session, so all models of a host have the same.
    pub(crate) async fn outputs(
        &mut self,
        session: &Session,
        model: Arc<Model>,
        inputs: &[(String, HostTensor)],
    ) -> Result<Vec<(String, HostTensor)>> {
        let inputs: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        Ok(self.run(&mut Runner::new(model, session), &inputs).await?.0)
    }

    /// GFLOP/s of an n x n x n f32 matmul, the best of `repeat`.
    pub(crate) async fn matmul(&mut self, n: usize, repeat: u32) -> Result<f64> {
        let s = Session::new();
        let data = |k: usize| (0..n * n).map(|i| ((i * k) % 17) as f32 - 8.0).collect::<Vec<f32>>();
        let (a, b) = (Tensor::new(&s, &data(7), &[n, n])?, Tensor::new(&s, &data(5), &[n, n])?);
        let mut best = f64::INFINITY;
        for _ in 0..=repeat {
            let c = a.matmul(&b)?;
            let pending = self.engine.start(&mut s.state(), &[c.root()])?;
            self.compiled().await?;
            let start = now();
            self.engine.finish(&mut s.state(), pending)?;
            if self.engine.device().target().name == "webgpu" {
                self.value(&c.clone()).await?;
            }
            best = best.min(now() - start);
            drop(c);
            self.engine.collect(&mut s.state());
        }
        Ok(2.0 * (n as f64).powi(3) / best / 1e6)
    }
}
