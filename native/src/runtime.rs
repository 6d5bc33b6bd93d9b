//! Tensors on a device with a blocking API: a [`Runtime`] is one device with one session.
//!
//! ```
//! use gradloom::{Runtime, Tensor};
//! let mut rt = Runtime::open("eval", 1)?;
//! let x = Tensor::new(rt.session(), &[1.0f32, 2.0, 3.0], &[3])?;
//! let y = x.mul(2.0)?.sum(&[], false)?;
//! assert_eq!(rt.to_vec::<f32>(&y)?, [12.0]);
//! # Ok::<(), gradloom::Error>(())
//! ```

use crate::NativeHost;
use crate::contain::Health;
use gradloom_core::device::Device;
use gradloom_core::engine::{Bytes, Counters, Engine, GRAPH_PASSES, Replay};
use gradloom_core::io::HostTensor;
use gradloom_core::tensor::{ConstantCache, Element, Session, Tensor};
use gradloom_core::{Error, Result};

/// One device with one session. It may move to other threads; its tensors may be used on several threads.
///
/// A panic in a call, which is a bug of this library, is returned as `E_INTERNAL`, and so is every later
/// call of this runtime.
pub struct Runtime {
    engine: Engine,
    session: Session,
    health: Health,
    /// When the device holds more bytes than this, the next run looks for buffers that nobody needs any more.
    full: usize,
}

/// The most bytes of unused buffers that may be kept for later runs in addition to as many bytes as are in use.
const IDLE: usize = 64 << 20;

impl Runtime {
    /// Opens a device by name (see [`crate::devices`]) with this many threads; 0 uses all.
    pub fn open(name: &str, threads: usize) -> Result<Runtime> {
        Ok(Runtime::on(crate::open(name, threads)?))
    }

    /// A runtime on a device that the caller has made.
    pub fn on(device: Box<dyn Device>) -> Runtime {
        Runtime::with_host(device, NativeHost::new())
    }

    /// The same, with a cache of the caller's choice.
    pub fn with_host(device: Box<dyn Device>, host: NativeHost) -> Runtime {
        let session = Session::for_target(device.target());
        Runtime { engine: Engine::with_host(device, Box::new(host)), session, health: Health::default(), full: IDLE }
    }

    /// The session that tensors are made in.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The engine: counters, variables, programs. Calls on it directly are not protected against panics.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Counts of what the engine did so far.
    pub fn counters(&self) -> Counters {
        self.engine.counters()
    }

    /// Computes tensors, all in one plan. The result can be run again on the current contents of its buffers
    /// ([`Runtime::replay`]); it keeps those buffers alive.
    pub fn realize(&mut self, tensors: &[&Tensor]) -> Result<Replay> {
        self.make_room()?;
        let Runtime { engine, session, health, .. } = self;
        health.guard(|| {
            let roots: Vec<_> = tensors.iter().map(|t| t.root()).collect();
            let pending = engine.start(&mut session.state(), &roots)?;
            while !engine.ready()? {
                std::thread::yield_now();
            }
            let mut state = session.state();
            Ok(engine.finish(&mut state, pending)?.holding(&mut state))
        })
    }

    /// Runs the passes over the graph of a model, before its values are computed for the first time, and computes what
    /// depends on weights alone. `inputs` are the buffers that are not weights. Afterwards the values may be captured
    /// ([`Runtime::realize`]). `folded` collects the constants that graphs of the same model have computed already.
    pub fn load(&mut self, values: &[&Tensor], inputs: &[u32], folded: &mut ConstantCache) -> Result<()> {
        let Runtime { engine, session, health, .. } = self;
        health.guard(|| {
            let roots: Vec<_> = values.iter().map(|t| t.root()).collect();
            for pass in &GRAPH_PASSES {
                let found = engine.rewrite(pass, &mut session.state(), &roots, inputs)?;
                let constants = folded.take_uncached(session, found);
                if constants.is_empty() {
                    continue;
                }
                let roots: Vec<_> = constants.iter().map(Tensor::root).collect();
                let pending = engine.start(&mut session.state(), &roots)?;
                while !engine.ready()? {
                    std::thread::yield_now();
                }
                engine.freeze_reads(&mut session.state(), &pending);
                let leaves = engine.finish_constants(&mut session.state(), pending)?.externals().to_vec();
                // Whoever else reads them uploads them again
                engine.let_go(&session.state(), &leaves);
                constants.iter().for_each(Tensor::freeze);
            }
            Ok(())
        })
    }

    /// Computes a tensor and reads it back.
    pub fn read(&mut self, t: &Tensor) -> Result<HostTensor> {
        if !t.is_readable() {
            self.realize(&[t])?;
        }
        HostTensor::new(t.dtype(), t.shape(), self.fetch(t)?)
    }

    /// Makes buffers that no tensor needs any more available to later runs, once they could be as many bytes as the
    /// buffers in use and more than [`IDLE`].
    fn make_room(&mut self) -> Result<()> {
        let Runtime { engine, session, health, full } = self;
        if engine.counters().bytes <= *full {
            return Ok(());
        }
        health.guard(|| {
            engine.collect(&mut session.state());
            *full = engine.counters().bytes.saturating_sub(engine.idle_bytes()).saturating_mul(2).saturating_add(IDLE);
            Ok(())
        })
    }

    /// Runs a captured computation again, on the current contents of its buffers.
    pub fn replay(&mut self, r: &Replay) -> Result<Vec<Tensor>> {
        self.make_room()?;
        let Runtime { engine, session, health, .. } = self;
        let nodes = health.guard(|| engine.replay(&mut session.state(), r, &Default::default()))?;
        Ok(nodes.into_iter().map(|u| Tensor::from_node(session, u)).collect())
    }

    /// Overwrites a tensor that is a buffer. `data` are the bytes of its elements.
    pub fn write(&mut self, t: &Tensor, data: &[u8]) -> Result<()> {
        let Runtime { engine, session, health, .. } = self;
        let n = t.numel();
        let id = {
            let state = session.state();
            let flat = state.storage(state.node(t.root())).filter(|&u| state.graph.numel(u) == n as u64);
            flat.and_then(|u| state.buffer_id(u))
        };
        let id = id.ok_or_else(|| Error::value("write", "the tensor is no buffer"))?;
        if data.len() != n * t.dtype().size() {
            return Err(Error::value(
                "write",
                format!("{} bytes for shape {:?} of {}", data.len(), t.shape(), t.dtype()),
            ));
        }
        health.guard(|| engine.write(&mut session.state(), id, data))
    }

    /// Reads the bytes of a tensor that was computed.
    pub fn fetch(&mut self, t: &Tensor) -> Result<Vec<u8>> {
        let Runtime { engine, session, health, .. } = self;
        health.guard(|| {
            let (ticket, dtype, boxed) = engine.read_box(&mut session.state(), t.root())?;
            engine.device().sync()?;
            loop {
                if let Some(data) = engine.poll(ticket, dtype)? {
                    return Ok(match boxed {
                        Some(b) => b.cut(&data, dtype),
                        None => data,
                    });
                }
                std::thread::yield_now();
            }
        })
    }

    /// Computes a tensor and reads its elements. `T` must be the tensor's dtype.
    pub fn to_vec<T: Element>(&mut self, t: &Tensor) -> Result<Vec<T>> {
        if t.dtype() != T::DTYPE {
            let why = format!("the tensor is {}, {} was asked for", t.dtype(), T::DTYPE);
            return Err(Error::DType { op: "to_vec", dtype: t.dtype(), why });
        }
        let host = self.read(t)?;
        Ok(host.data.chunks_exact(T::DTYPE.size()).map(T::get).collect())
    }

    /// A copy of another runtime's tensor in this runtime: it is computed there, and its bytes are copied
    /// through the host.
    ///
    /// ```
    /// use gradloom::{Runtime, Tensor};
    /// let (mut here, mut there) = (Runtime::open("eval", 1)?, Runtime::open("auto", 1)?);
    /// let x = Tensor::new(here.session(), &[1.0f32, 2.0], &[2])?.mul(3.0)?;
    /// let y = there.bring(&x, &mut here)?.add(1.0)?;
    /// assert_eq!(there.to_vec::<f32>(&y)?, [4.0, 7.0]);
    /// # Ok::<(), gradloom::Error>(())
    /// ```
    pub fn bring(&mut self, t: &Tensor, from: &mut Runtime) -> Result<Tensor> {
        let host = from.read(t)?;
        Tensor::from_bytes(&self.session, host.dtype, &host.shape, Bytes::new(host.data))
    }

    /// Frees device memory that no tensor needs any more.
    pub fn collect(&mut self) {
        let Runtime { engine, session, health, .. } = self;
        // A failure will show in the next call that returns a result
        let _ = health.guard(|| {
            engine.collect(&mut session.state());
            engine.trim();
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_in_a_row_take_the_memory_of_those_before() {
        // the evaluator takes a second for each of these runs
        let device = crate::open("cpu", 1).or_else(|_| crate::open("eval", 1)).expect("a device");
        let mut rt = Runtime::with_host(device, NativeHost::without_cache());
        let x = Tensor::new(rt.session(), &vec![1.0f32; 1 << 20], &[1 << 20]).expect("a tensor");
        let y = x.add(1.0).expect("a sum");
        let step = rt.realize(&[&y]).expect("values");
        let mut last = Vec::new();
        for _ in 0..60 {
            last = rt.replay(&step).expect("values");
        }
        let peak = rt.counters().peak_bytes;
        assert!(peak < 2 * IDLE, "{peak} bytes for results of 4 MiB");
        assert_eq!(rt.to_vec::<f32>(&last[0]).expect("values")[..3], [2.0; 3]);
        assert_eq!(rt.to_vec::<f32>(&y).expect("values")[..3], [2.0; 3]);
    }

    /// A run's bindings are reused, except where arenas have grown, memory was returned, or another run holds them.
    #[test]
    fn captured_computations_run_on_the_memory_that_there_is() {
        for device in ["eval", "cpu"] {
            let device = crate::open(device, 1).expect("a device");
            let mut rt = Runtime::with_host(device, NativeHost::without_cache());
            let step = |rt: &mut Runtime, n: usize| {
                let x = Tensor::new(rt.session(), &vec![1.0f32; n], &[n]).expect("a tensor");
                let middle = x.mul(2.0).expect("a product").contiguous();
                let sum = middle.sum(&[0], true).expect("a sum").contiguous();
                let y = middle.div(&sum).expect("a quotient").add(1.0).expect("a sum");
                let step = rt.realize(&[&y]).expect("values");
                (x, step)
            };
            let given = |rt: &mut Runtime, (x, step): &(Tensor, Replay), by: f32| {
                let data: Vec<u8> = (0..x.numel()).flat_map(|i| (by + (i % 2) as f32).to_le_bytes()).collect();
                rt.write(x, &data).expect("a new input");
                let y = rt.replay(step).expect("values").remove(0);
                let first = (by / (by + 0.5) / x.numel() as f32) + 1.0;
                let got = rt.to_vec::<f32>(&y).expect("values")[0];
                assert!((got - first).abs() < 1e-5, "{got} for {first}");
                y
            };
            let small = step(&mut rt, 32);
            given(&mut rt, &small, 1.0);
            let kept = given(&mut rt, &small, 2.0);
            let large = step(&mut rt, 4096);
            for by in [3.0, 4.0, 5.0] {
                given(&mut rt, &large, by);
                given(&mut rt, &small, by);
                rt.collect();
            }
            let want = 2.0 / 2.5 / 32.0 + 1.0;
            assert!((rt.to_vec::<f32>(&kept).expect("values")[0] - want).abs() < 1e-5);
        }
    }

    #[test]
    fn a_captured_computation_keeps_what_it_reads() {
        let device = crate::open("eval", 1).expect("the evaluator");
        let mut rt = Runtime::with_host(device, NativeHost::without_cache());
        let step = {
            let x = Tensor::new(rt.session(), &[1.0f32, 2.0], &[2]).expect("a tensor");
            rt.realize(&[&x.add(&x).expect("a sum")]).expect("values")
        };
        rt.collect();
        let again = rt.replay(&step).expect("values of dropped inputs");
        assert_eq!(rt.to_vec::<f32>(&again[0]).expect("values"), [2.0, 4.0]);
        let held = rt.counters().bytes;
        drop((step, again));
        rt.collect();
        assert!(rt.counters().bytes < held, "what only the computation needed is free");
    }
}
