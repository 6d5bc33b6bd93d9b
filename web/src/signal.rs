//! Waiting for a device: every asynchronous event (a compiled pipeline, a readback, a loss) fires the device's signal;
//! code that has nothing to do awaits the signal and then checks its condition again.

use js_sys::Function;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use wasm_bindgen::JsValue;

/// A signal; clones share its state.
#[derive(Clone, Default)]
pub struct Signal(Rc<State>);

#[derive(Default)]
struct State {
    waiting: RefCell<Vec<Waker>>,
    lost: Cell<bool>,
    /// The page's function that is called once, with the reason, when the device is lost.
    when_lost: RefCell<Option<Function>>,
}

impl Signal {
    /// Wakes all current waiters.
    pub fn fire(&self) {
        let waiting = std::mem::take(&mut *self.0.waiting.borrow_mut());
        for w in waiting {
            w.wake();
        }
    }

    /// Marks the device as lost: every later request fails.
    pub fn lose(&self, why: &str) {
        self.0.lost.set(true);
        let tell = self.0.when_lost.borrow_mut().take();
        // exceptions of the page's function are ignored
        let _ = tell.map(|tell| tell.call1(&JsValue::UNDEFINED, &why.into()));
        self.fire();
    }

    /// Sets the function that is called when the device is lost.
    pub fn when_lost(&self, tell: Function) {
        *self.0.when_lost.borrow_mut() = Some(tell);
    }

    /// Whether the device is lost.
    pub fn is_lost(&self) -> bool {
        self.0.lost.get()
    }

    /// Waits for the next `fire`. As there is only one thread, nothing can fire between a check of the device and the
    /// first poll.
    pub fn wait(&self) -> impl Future<Output = ()> + use<> {
        Wait { signal: self.clone(), registered: false }
    }
}

struct Wait {
    signal: Signal,
    registered: bool,
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.registered {
            return Poll::Ready(());
        }
        self.registered = true;
        self.signal.0.waiting.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }
}
