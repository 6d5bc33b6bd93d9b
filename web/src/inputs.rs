//! Inputs of a model: tensors that are already on its device, and values that have to be copied there.

use crate::args::{bytes_of, dtype, host_value, id_of, shape_of};
use crate::runtime::{DeviceKind, Inner};
use gradloom_core::io::onnx::{Again, Input, Runner};
use gradloom_core::tensor::Tensor;
use gradloom_core::{DType, Error, Result};
use js_sys::{Array, Uint8Array};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;

/// Bytes of an input that are copied to the device at a time: few enough to stay in a core's caches between the two
/// copies.
const CHUNK_BYTES: u32 = 64 << 10;
/// Bytes from which values are written to the memory of the WASM device without an intermediate copy.
const LARGE_BYTES: u32 = 4 << 10;

impl Inner {
    /// Converts an input: a tensor on this device is used in place if the run can take it; otherwise its values are
    /// read.
    pub(crate) async fn input(
        self: &Rc<Inner>,
        runner: &RefCell<Runner>,
        name: &str,
        i: &Array,
        others: &[(&str, Input)],
        abort: &JsValue,
    ) -> Result<Input> {
        let Some(id) = id_of(i) else {
            if bytes_of(i).is_some_and(|data| self.is_large(&data)) {
                self.scheduler.wait_idle(&self.engine).await?;
            }
            let accept = |t: &Tensor| runner.borrow().take(name, t, others);
            return self.upload_input(i, accept)?.map_or_else(|| host_value(name, i).map(Input::Host), Ok);
        };
        let t = self.tensor(id)?;
        if runner.borrow().take(name, &t, others).is_none() && !t.is_readable() {
            self.realize(vec![t.root()], abort).await?;
        }
        if let Some(input) = runner.borrow().take(name, &t, others) {
            return Ok(input);
        }
        self.host_tensor(t, abort).await.map(Input::Host)
    }

    /// Copies the values of a large input directly to a device buffer, if the run takes a tensor there.
    fn upload_input(&self, i: &Array, accept: impl Fn(&Tensor) -> Option<Input>) -> Result<Option<Input>> {
        let Some(data) = bytes_of(i).filter(|d| self.is_large(d)) else { return Ok(None) };
        let (dtype, shape) = (dtype(&i.get(1).as_string().unwrap_or_default())?, shape_of(&i.get(2)));
        let Some(t) = self.tensor_for(&data, dtype, &shape)? else { return Ok(None) };
        let Some(input) = accept(&t) else { return Ok(None) };
        self.fill(&t, &data)?;
        Ok(Some(input))
    }

    /// Whether values are worth a copy to the device that avoids an intermediate one.
    fn is_large(&self, data: &Uint8Array) -> bool {
        let least = match self.device_kind {
            DeviceKind::Wasm(..) => LARGE_BYTES,
            DeviceKind::WebGpu(..) => 2 * CHUNK_BYTES,
        };
        // while another run is in progress, writing would block until it ends
        data.length() >= least && !self.locked.get()
    }

    /// A tensor without values for these bytes, if the device stores the dtype as it is.
    fn tensor_for(&self, data: &Uint8Array, dtype: DType, shape: &[usize]) -> Result<Option<Tensor>> {
        let bytes = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d));
        if bytes != Some(data.length() as usize)
            || self.engine.borrow_mut().device().target().stored_as(dtype)? != dtype
        {
            return Ok(None);
        }
        Tensor::empty(&self.session, dtype, shape).map(Some)
    }

    /// Copies values to the buffer of a tensor. Where the device's memory is accessible to JavaScript (WASM), they are
    /// written to it without an intermediate copy; elsewhere in pieces.
    fn fill(&self, t: &Tensor, data: &Uint8Array) -> Result<()> {
        let id = t.buffer().ok_or_else(|| Error::Internal("an input has no buffer".into()))?;
        let mut engine = self.engine.borrow_mut();
        if let DeviceKind::Wasm(_, memory) = &self.device_kind
            && let Some(at) = engine.place(&mut self.session.state(), id, data.length() as usize)?
        {
            let to = Uint8Array::new_with_byte_offset_and_length(&memory.buffer(), at as u32, data.length());
            to.set(data, 0);
            return Ok(());
        }
        let mut piece = vec![0; CHUNK_BYTES as usize];
        for at in (0..data.length()).step_by(CHUNK_BYTES as usize) {
            let end = data.length().min(at.saturating_add(CHUNK_BYTES));
            let part = &mut piece[..(end - at) as usize];
            data.subarray(at, end).copy_to(part);
            engine.write_part(&mut self.session.state(), id, at as usize, part)?;
        }
        Ok(())
    }

    /// An input of a run like the one before it, whose input of this dtype and shape it replaces: a tensor's id, or
    /// bytes.
    pub(crate) fn input_again(&self, i: &JsValue, dtype: DType, shape: &[usize]) -> Result<Again> {
        if let Some(id) = i.as_f64() {
            return self.tensor(id as u32).map(Again::Tensor);
        }
        let data: &Uint8Array = i.unchecked_ref();
        if self.is_large(data)
            && let Some(t) = self.tensor_for(data, dtype, shape)?
        {
            self.fill(&t, data)?;
            return Ok(Again::Tensor(t));
        }
        Ok(Again::Data(data.to_vec()))
    }
}
