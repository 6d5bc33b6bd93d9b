//! What a model is given: tensors of its device, where they are, and values that go there.

use crate::args::{bytes_of, dtype, host_value, id_of, shape_of};
use crate::face::{Inner, Side};
use gradloom_core::Result;
use gradloom_core::io::onnx::{Input, Runner};
use gradloom_core::tensor::Tensor;
use js_sys::{Array, Uint8Array};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;

/// Bytes of an input that are sent to the device together: few enough to stay in a core's caches in between.
const PIECE: u32 = 64 << 10;

impl Inner {
    /// An input of a model: a tensor of this device where it is, if a run can use it so, or else values.
    pub(crate) async fn input(
        self: &Rc<Inner>,
        runner: &RefCell<Runner>,
        name: &str,
        i: &Array,
        others: &[(&str, Input)],
        abort: &JsValue,
    ) -> Result<Input> {
        let Some(id) = id_of(i) else {
            let takes = |t: &Tensor| runner.borrow().take(name, t, others);
            return self.sent(i, takes)?.map_or_else(|| host_value(name, i).map(Input::Host), Ok);
        };
        let t = self.tensor(id)?;
        if runner.borrow().take(name, &t, others).is_none() && !t.is_readable() {
            self.realize(vec![t.root()], abort).await?;
        }
        if let Some(input) = runner.borrow().take(name, &t, others) {
            return Ok(input);
        }
        self.host(t, abort).await.map(Input::Host)
    }

    /// The values of an input on the device, if they are many, it has them as they are, and a run takes a tensor there: no copy of them is made
    /// on the way where the device's memory can be written here, and elsewhere they go there a piece at a time.
    fn sent(&self, i: &Array, takes: impl Fn(&Tensor) -> Option<Input>) -> Result<Option<Input>> {
        // where another run is under way, writing would wait for all of it
        let free = !self.busy.get();
        let Some(data) = bytes_of(i).filter(|d| free && d.length() >= 2 * PIECE) else { return Ok(None) };
        let (dtype, shape) = (dtype(&i.get(1).as_string().unwrap_or_default())?, shape_of(&i.get(2)));
        let mut engine = self.engine.borrow_mut();
        let bytes = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d));
        if bytes != Some(data.length() as usize) || engine.device().target().stored_as(dtype)? != dtype {
            return Ok(None);
        }
        let t = Tensor::empty(&self.session, dtype, &shape)?;
        let (Some(input), Some(id)) = (takes(&t), t.buffer()) else { return Ok(None) };
        if let Side::Wasm(_, memory) = &self.side
            && let Some(at) = engine.place(&mut self.session.state(), id, data.length() as usize)?
        {
            let to = Uint8Array::new_with_byte_offset_and_length(&memory.buffer(), at as u32, data.length());
            to.set(&data, 0);
            return Ok(Some(input));
        }
        let mut piece = vec![0; PIECE as usize];
        for at in (0..data.length()).step_by(PIECE as usize) {
            let end = data.length().min(at.saturating_add(PIECE));
            let part = &mut piece[..(end - at) as usize];
            data.subarray(at, end).copy_to(part);
            engine.write_part(&mut self.session.state(), id, at as usize, part)?;
        }
        Ok(Some(input))
    }
}
