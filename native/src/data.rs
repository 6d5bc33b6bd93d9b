//! Data sets for native programs: batches that a thread loads ahead of time, the files of MNIST and CIFAR, and (with
//! the feature `images`) folders of images.

use crate::contain::{contain, message};
use crate::model::read_file;
use gradloom_core::io::HostTensor;
use gradloom_core::io::dataset::{Arrays, BatchOpts, Dataset};
use gradloom_core::io::images::{self, Cifar};
use gradloom_core::{Error, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

/// Reads MNIST, Fashion-MNIST or a data set in the same format from a file of images and one of labels, gzipped or not:
/// u8 `[n, 1, rows, columns]` and `[n]`.
///
/// # Errors
/// `E_INPUT` for a file that cannot be read, `E_FORMAT` for one that is not an IDX file, `E_VALUE` if the
/// two do not belong together.
pub fn mnist(images: &Path, labels: &Path) -> Result<Arrays> {
    let read = |path| contain(|| images::idx(&read_file(path)?));
    let (mut x, y) = (read(images)?, read(labels)?);
    if x.shape.len() != 3 || y.shape.len() != 1 {
        return Err(Error::value("mnist", format!("images {:?} and labels {:?}", x.shape, y.shape)));
    }
    x.shape.insert(1, 1);
    Arrays::new(vec![x, y])
}

/// Reads CIFAR-10 or CIFAR-100 from its binary files: u8 `[n, 3, 32, 32]` and `[n]`.
///
/// # Errors
/// `E_INPUT` for a file that cannot be read, `E_FORMAT` for one that is not CIFAR's.
pub fn cifar(files: &[&Path], set: Cifar) -> Result<Arrays> {
    let mut all = Vec::new();
    for file in files {
        all.extend_from_slice(&read_file(file)?);
    }
    let set = contain(|| images::cifar(&all, set))?;
    Arrays::new(vec![set.images, set.labels])
}

/// Loads batches of a data set on a thread, while earlier batches are in use.
pub struct Loader {
    data: Arc<dyn Dataset + Send + Sync>,
    /// Sizes and order of the batches.
    pub opts: BatchOpts,
    /// The number of batches that may be loaded ahead.
    pub ahead: usize,
}

impl Loader {
    /// A loader that is up to two batches ahead.
    pub fn new(data: impl Dataset + Send + Sync + 'static, opts: BatchOpts) -> Loader {
        Loader { data: Arc::new(data), opts, ahead: 2 }
    }

    /// The batches of an epoch. Dropping them early stops the thread.
    pub fn epoch(&self, epoch: u32) -> Batches {
        let (data, order) = (self.data.clone(), self.opts.epoch(self.data.len(), epoch));
        let (send, receive) = sync_channel(self.ahead);
        let thread = std::thread::spawn(move || {
            for rows in order {
                // An error means that the batches were dropped
                if send.send(data.batch(&rows)).is_err() {
                    return;
                }
            }
        });
        Batches { receive: Some(receive), thread: Some(thread) }
    }
}

/// The batches of an epoch; each has one tensor for each part of the examples.
pub struct Batches {
    receive: Option<Receiver<Result<Vec<HostTensor>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Iterator for Batches {
    type Item = Result<Vec<HostTensor>>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.receive.as_ref()?.recv().ok();
        if batch.is_none() {
            self.receive = None;
            if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                return Some(Err(Error::Internal(message(&*panic))));
            }
        }
        batch
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.receive = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
