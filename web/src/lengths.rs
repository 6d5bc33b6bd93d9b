//! Models with variable input lengths, which one plan serves. Only this file refers to the code behind it, so that it
//! becomes a part of the module which is loaded only for such models.

use crate::args::{name_of, shape_of};
use crate::runtime::{Inner, Runtime, throw};
use gradloom_core::Result;
use gradloom_core::io::onnx::Lengths;
use gradloom_core::tensor::Tensor;
use js_sys::Array;
use std::pin::Pin;
use std::rc::Rc;
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
impl Runtime {
    /// Makes lengths of a model's inputs launch scalars. `names` are dimensions and `bounds` the least and the largest
    /// value of each; with an empty list all dimensions that are seen to change; without a list those of them that are
    /// no batch dimensions. `seen` are the inputs of the previous run, `[name, shape]` each, if there was one.
    #[wasm_bindgen(js_name = setLengths)]
    pub fn set_lengths(
        &self,
        id: u32,
        names: Option<Vec<String>>,
        bounds: &[u32],
        seen: Array,
    ) -> std::result::Result<(), JsValue> {
        let runner = self.inner.runner(id).map_err(throw)?;
        let range = |(name, b): (String, &[u32])| (name, (b[0] as usize, b[1] as usize));
        let lengths = match names {
            None => Lengths::Inner,
            Some(names) if names.is_empty() => Lengths::Seen,
            Some(names) => Lengths::Bounds(names.into_iter().zip(bounds.chunks_exact(2)).map(range).collect()),
        };
        runner.borrow_mut().set_lengths(lengths).map_err(throw)?;
        self.inner.read_padded.set(Some(read_padded));
        let one = |i: JsValue| {
            let i: &Array = i.unchecked_ref();
            (name_of(i), shape_of(&i.get(1)))
        };
        let seen: Vec<(String, Vec<usize>)> = seen.iter().map(one).collect();
        if !seen.is_empty() {
            runner.borrow().record_shapes(&seen).map_err(throw)?;
        }
        Ok(())
    }

    /// The reasons why lengths of a model need separate plans, if any.
    #[wasm_bindgen(js_name = lengthNotes)]
    pub fn length_notes(&self, id: u32) -> std::result::Result<Vec<String>, JsValue> {
        let runner = self.inner.runner(id).map_err(throw)?;
        let notes = runner.borrow().notes();
        Ok(notes)
    }
}

/// Outputs are stored in arrays of the largest lengths. A kernel that extracts the actual values would have to be
/// compiled for each size, so the whole array is read and the host extracts them.
fn read_padded(inner: &Rc<Inner>, t: &Tensor) -> Option<Pin<Box<dyn Future<Output = Result<Vec<u8>>>>>> {
    let (inner, root) = (inner.clone(), t.clone());
    let state = inner.session.state();
    let node = state.node(root.root());
    let is_padded = state.array_box(node).is_some() && state.is_readable(node);
    drop(state);
    is_padded.then(|| -> Pin<Box<dyn Future<Output = _>>> {
        Box::pin(async move {
            inner.scheduler.wait_idle(&inner.engine).await?;
            let read = || inner.engine.borrow_mut().read_box(&mut inner.session.state(), root.root());
            let (ticket, dtype, array_box) = inner.time_running(read)?;
            let data = inner.readback_elements(ticket, dtype).await?;
            Ok(match array_box {
                Some(b) => b.cut(&data, dtype),
                None => data,
            })
        })
    })
}
