//! Captured plans that run repeatedly, as for each token of a language model. Belongs to a part of the module that
//! other pages do not load.

use crate::args::dtype;
use crate::runtime::{DeviceKind, Inner, Runtime, throw};
use gradloom_core::engine::Replay;
use gradloom_core::tensor::Tensor;
use gradloom_core::{Error, Result};
use js_sys::Uint8Array;
use std::rc::Rc;
use wasm_bindgen::prelude::*;

/// Zeros are written to a new buffer in pieces of this size.
const ZEROS_BYTES: usize = 1 << 16;

/// A captured computation: its plan and the tensors that it reads and writes.
#[wasm_bindgen]
pub struct Captured {
    inner: Rc<Inner>,
    replay: Replay,
    /// Keeps the tensors that the plan uses alive.
    _held: Vec<Tensor>,
}

#[wasm_bindgen]
impl Runtime {
    /// A one-axis tensor whose bytes are copied to the device immediately and kept nowhere else; zeros without `data`.
    pub fn upload(&self, dt: &str, len: u32, data: Option<Uint8Array>) -> std::result::Result<u32, JsValue> {
        let make = || -> Result<Tensor> {
            let (dt, len) = (dtype(dt)?, len as usize);
            let t = Tensor::empty(&self.inner.session, dt, &[len])?;
            let id = t.buffer().ok_or_else(|| Error::value("upload", "the tensor is no buffer"))?;
            let (mut engine, mut state) = (self.inner.engine.borrow_mut(), self.inner.session.state());
            let Some(data) = data else {
                // in pieces: a cache may be larger than what this module can allocate beside it
                let bytes = len.saturating_mul(engine.device().target().stored_as(dt)?.size());
                let zeros = vec![0; bytes.min(ZEROS_BYTES)];
                for at in (0..bytes).step_by(ZEROS_BYTES) {
                    engine.write_part(&mut state, id, at, &zeros[..(bytes - at).min(ZEROS_BYTES)])?;
                }
                drop(state);
                return Ok(t);
            };
            let is_stored_as_it_is = engine.device().target().stored_as(dt)? == dt;
            // JavaScript can write to the memory of the WASM device
            if let (DeviceKind::Wasm(_, memory), true) = (&self.inner.device_kind, is_stored_as_it_is)
                && let Some(at) = engine.place(&mut state, id, data.length() as usize)?
            {
                let to = Uint8Array::new_with_byte_offset_and_length(&memory.buffer(), at as u32, data.length());
                to.set(&data, 0);
            } else {
                engine.write(&mut state, id, &data.to_vec())?;
            }
            drop(state);
            Ok(t)
        };
        Ok(self.inner.add_tensor(make().map_err(throw)?))
    }

    /// Overwrites a tensor's buffer once pending work is done.
    pub async fn overwrite(&self, id: u32, data: Vec<u8>) -> std::result::Result<(), JsValue> {
        let inner = self.inner.clone();
        let t = inner.tensor(id).map_err(throw)?;
        let _guard = inner.lock().await;
        write(&inner, &t, &data).map_err(throw)
    }

    /// Writes `data` to the tensor `into`, computes the tensors `ids`, unless `abort` fires, and keeps the plan. `held`
    /// are the tensors that the plan reads and writes.
    pub async fn capture(
        &self,
        ids: Vec<u32>,
        held: Vec<u32>,
        into: u32,
        data: Vec<u8>,
        abort: JsValue,
    ) -> std::result::Result<Captured, JsValue> {
        let inner = self.inner.clone();
        let list = |ids: Vec<u32>| ids.into_iter().map(|i| inner.tensor(i)).collect::<Result<Vec<_>>>();
        let roots = list(ids).map_err(throw)?;
        let held = list(held).map_err(throw)?;
        write(&inner, &inner.tensor(into).map_err(throw)?, &data).map_err(throw)?;
        let replay = inner.realize(roots.iter().map(Tensor::root).collect(), &abort).await.map_err(throw)?;
        Ok(Captured { inner, replay, _held: held })
    }
}

#[wasm_bindgen]
impl Captured {
    /// Runs the plan again after writing `data` to the tensor `into`, and gives the bytes of the tensor `read`, if any.
    /// `abort` is checked only before the run.
    pub async fn run(
        &self,
        into: u32,
        data: Vec<u8>,
        read: Option<u32>,
        abort: JsValue,
    ) -> std::result::Result<Option<Uint8Array>, JsValue> {
        let (inner, replay) = (self.inner.clone(), self.replay.clone());
        let into = inner.tensor(into).map_err(throw)?;
        let read = read.map(|id| inner.tensor(id)).transpose().map_err(throw)?;
        let _guard = inner.lock().await;
        inner.scheduler.begin();
        inner.scheduler.yield_if_due(&abort).await.map_err(throw)?;
        inner.scheduler.wait_idle(&inner.engine).await.map_err(throw)?;
        write(&inner, &into, &data).map_err(throw)?;
        let again = || inner.engine.borrow_mut().launch_again(&mut inner.session.state(), &replay, &Default::default());
        let mut run = inner.time_running(again).map_err(throw)?;
        // once submitted, a run is completed, since it overwrites buffers
        inner.scheduler.submit(&inner.engine, &mut run, &JsValue::UNDEFINED).await.map_err(throw)?;
        match read {
            Some(t) => Ok(Some(inner.read_computed_to_js(&t).await.map_err(throw)?)),
            None => Ok(None),
        }
    }
}

fn write(inner: &Inner, t: &Tensor, data: &[u8]) -> Result<()> {
    let mut state = inner.session.state();
    let id = state.storage(state.node(t.root())).and_then(|u| state.buffer_id(u));
    let id = id.ok_or_else(|| Error::value("write", "the tensor is no buffer"))?;
    inner.engine.borrow_mut().write(&mut state, id, data)
}
