//! Reading values back: from the device to the core, and to JavaScript.

use crate::runtime::{DeviceKind, Inner};
use gradloom_core::device::Ticket;
use gradloom_core::io::HostTensor;
use gradloom_core::tensor::Tensor;
use gradloom_core::{DType, Result};
use js_sys::Uint8Array;
use std::rc::Rc;
use wasm_bindgen::JsValue;

impl Inner {
    pub(crate) async fn bytes(self: &Rc<Inner>, t: Tensor, abort: &JsValue) -> Result<Vec<u8>> {
        if let Some(read) = self.read_padded.get().and_then(|read| read(self, &t)) {
            return read.await;
        }
        self.compute(std::slice::from_ref(&t), abort).await?;
        self.scheduler.begin();
        self.read_computed(&t).await
    }

    /// The bytes of a tensor for JavaScript, computed first if necessary.
    pub(crate) async fn js_bytes(self: &Rc<Inner>, t: Tensor, abort: &JsValue) -> Result<Uint8Array> {
        if let Some(read) = self.read_padded.get().and_then(|read| read(self, &t)) {
            return Ok(Uint8Array::from(&*read.await?));
        }
        self.compute(std::slice::from_ref(&t), abort).await?;
        self.scheduler.begin();
        self.read_computed_to_js(&t).await
    }

    /// The bytes of a computed tensor for JavaScript.
    pub(crate) async fn read_computed_to_js(&self, t: &Tensor) -> Result<Uint8Array> {
        self.scheduler.wait_idle(&self.engine).await?;
        let Some(stored) = self.time_running(|| self.stored(t))? else {
            return Ok(Uint8Array::from(&*self.read_computed(t).await?));
        };
        let copy = stored.slice(0, stored.length());
        self.scheduler.yield_before_result().await;
        Ok(copy)
    }

    /// The memory of a computed tensor where JavaScript can read it, which saves copies: that of the WASM device, if it
    /// stores the dtype as it is.
    fn stored(&self, t: &Tensor) -> Result<Option<Uint8Array>> {
        let DeviceKind::Wasm(_, memory) = &self.device_kind else { return Ok(None) };
        let mut engine = self.engine.borrow_mut();
        if engine.device().target().stored_as(t.dtype())? != t.dtype() {
            return Ok(None);
        }
        let view = engine.view(&mut self.session.state(), t.root())?;
        let at = engine.device().place(view.buf, view.bytes)?;
        let bytes = view.bytes as u32;
        Ok(at.map(|at| Uint8Array::new_with_byte_offset_and_length(&memory.buffer(), at as u32, bytes)))
    }

    /// The bytes of a computed tensor.
    pub(crate) async fn read_computed(&self, t: &Tensor) -> Result<Vec<u8>> {
        self.scheduler.wait_idle(&self.engine).await?;
        let read = || self.engine.borrow_mut().read(&mut self.session.state(), t.root());
        let (ticket, dtype, _) = self.time_running(read)?;
        self.readback_elements(ticket, dtype).await
    }

    /// Waits for the elements of a readback.
    pub(crate) async fn readback_elements(&self, ticket: Ticket, dtype: DType) -> Result<Vec<u8>> {
        loop {
            let arrived = self.engine.borrow_mut().poll(ticket, dtype)?;
            if let Some(b) = arrived {
                self.scheduler.yield_before_result().await;
                return Ok(b);
            }
            self.signal.wait().await;
        }
    }

    pub(crate) async fn host_tensor(self: &Rc<Inner>, t: Tensor, abort: &JsValue) -> Result<HostTensor> {
        let (dtype, shape) = (t.dtype(), t.shape());
        HostTensor::new(dtype, shape, self.bytes(t, abort).await?)
    }

    /// Waits for the bytes of a readback.
    pub(crate) async fn readback_bytes(&self, ticket: Ticket) -> Result<Vec<u8>> {
        loop {
            if let Some(b) = self.engine.borrow_mut().device().poll(ticket)? {
                return Ok(b);
            }
            self.signal.wait().await;
        }
    }
}
