//! Inputs of a model: tensors that are already on its device, and values that have to be copied there.

use crate::args::{bytes_of, dtype, host_value, id_of, shape_of};
use crate::runtime::{DeviceKind, Inner};
use gradloom_core::Result;
use gradloom_core::io::onnx::{Input, Runner};
use gradloom_core::tensor::Tensor;
use js_sys::{Array, Uint8Array};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;

/// Bytes of an input that are copied to the device at a time: few enough to stay in a core's caches between the two
/// copies.
const CHUNK_BYTES: u32 = 64 << 10;

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

    /// Copies the values of a large input directly to a device buffer, if the device stores the dtype as it is and the
    /// run takes a tensor there. Where the device's memory is accessible to JavaScript (WASM), they are written to it
    /// without an intermediate copy; elsewhere in pieces.
    fn upload_input(&self, i: &Array, accept: impl Fn(&Tensor) -> Option<Input>) -> Result<Option<Input>> {
        // while another run is in progress, writing would block until it ends
        let free = !self.locked.get();
        let Some(data) = bytes_of(i).filter(|d| free && d.length() >= 2 * CHUNK_BYTES) else { return Ok(None) };
        let (dtype, shape) = (dtype(&i.get(1).as_string().unwrap_or_default())?, shape_of(&i.get(2)));
        let mut engine = self.engine.borrow_mut();
        let bytes = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d));
        if bytes != Some(data.length() as usize) || engine.device().target().stored_as(dtype)? != dtype {
            return Ok(None);
        }
        let t = Tensor::empty(&self.session, dtype, &shape)?;
        let (Some(input), Some(id)) = (accept(&t), t.buffer()) else { return Ok(None) };
        if let DeviceKind::Wasm(_, memory) = &self.device_kind
            && let Some(at) = engine.place(&mut self.session.state(), id, data.length() as usize)?
        {
            let to = Uint8Array::new_with_byte_offset_and_length(&memory.buffer(), at as u32, data.length());
            to.set(&data, 0);
            return Ok(Some(input));
        }
        let mut piece = vec![0; CHUNK_BYTES as usize];
        for at in (0..data.length()).step_by(CHUNK_BYTES as usize) {
            let end = data.length().min(at.saturating_add(CHUNK_BYTES));
            let part = &mut piece[..(end - at) as usize];
            data.subarray(at, end).copy_to(part);
            engine.write_part(&mut self.session.state(), id, at as usize, part)?;
        }
        Ok(Some(input))
    }
}
