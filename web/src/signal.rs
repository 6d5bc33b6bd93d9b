//! Waiting for a device: everything that ends later (a pipeline, a readback, a loss) fires the device's signal, and whoever
//! found nothing to do awaits it and looks again.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A signal; clones are the same one.
#[derive(Clone, Default)]
pub struct Signal(Rc<RefCell<Vec<Waker>>>);

impl Signal {
    /// Wakes all who wait now.
    pub fn fire(&self) {
        let waiting = std::mem::take(&mut *self.0.borrow_mut());
        for w in waiting {
            w.wake();
        }
    }

    /// Until the next `fire`. There is one thread, so nothing fires between a look at the device and the first poll.
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
        self.signal.0.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }
}
