//! Streams: work in order, which is done when somebody waits for it and no sooner. So a caller that reads too early, or writes again to
//! pinned memory that the GPU has not read yet, gets wrong numbers here as on a GPU. What is wrong with a launch goes to standard error,
//! since the driver has numbers only; the code comes with the next call that waits for the stream, and with all later ones.

use crate::exec::{self, Fault};
use crate::graph::Node;
use crate::parse::Entry;
use crate::state::{Code, ILLEGAL_ADDRESS, INVALID_HANDLE, INVALID_VALUE, LAUNCH_FAILED, SUCCESS, State};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// A launch with the bits of its parameters.
#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) entry: Arc<Entry>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of shared memory beside what the kernel declares.
    pub(crate) shared: usize,
    pub(crate) bits: Vec<u64>,
}

/// Something that the stream does.
pub(crate) enum Work {
    Fill {
        at: u64,
        value: u8,
        bytes: usize,
    },
    Write {
        to: u64,
        bytes: Vec<u8>,
    },
    FromPinned {
        from: usize,
        to: u64,
        bytes: usize,
    },
    ToHost {
        from: u64,
        to: usize,
        bytes: usize,
    },
    Copy {
        from: u64,
        to: u64,
        bytes: usize,
    },
    Free(u64),
    Record(usize),
    Launch(Launch),
    /// Nodes in an order that their dependencies allow.
    Graph(Vec<Node>),
}

/// What a stream has to do, and what went wrong in it.
#[derive(Default)]
pub(crate) struct Stream {
    queue: VecDeque<Work>,
    broken: Option<Code>,
}

/// A place in a stream, and when it was reached.
#[derive(Default)]
pub(crate) struct Event {
    pub(crate) stream: usize,
    pub(crate) reached: Option<Instant>,
}

impl State {
    /// Puts work at a stream's end.
    pub(crate) fn enqueue(&mut self, stream: usize, work: Work) -> Code {
        let Some(s) = self.streams.get_mut(&stream) else { return INVALID_HANDLE };
        if let Some(code) = s.broken {
            return code;
        }
        s.queue.push_back(work);
        SUCCESS
    }

    /// Does all work of a stream.
    pub(crate) fn flush(&mut self, stream: usize) -> Code {
        let Some(mut s) = self.streams.remove(&stream) else { return INVALID_HANDLE };
        while let Some(work) = s.queue.pop_front() {
            if s.broken.is_none()
                && let Err(code) = self.run(work)
            {
                s.broken = Some(code);
            }
        }
        let code = s.broken.unwrap_or(SUCCESS);
        self.streams.insert(stream, s);
        self.memory.trim(self.memory.pool.threshold);
        code
    }

    /// Does all work that there is.
    pub(crate) fn flush_all(&mut self) {
        let all: Vec<usize> = self.streams.keys().copied().collect();
        all.into_iter().for_each(|stream| _ = self.flush(stream));
    }

    fn run(&mut self, work: Work) -> Result<(), Code> {
        match work {
            Work::Fill { at, value, bytes } => self.memory.get_mut(at, bytes).ok_or(ILLEGAL_ADDRESS)?.fill(value),
            Work::Write { to, bytes } => {
                self.memory.get_mut(to, bytes.len()).ok_or(ILLEGAL_ADDRESS)?.copy_from_slice(&bytes);
            }
            Work::FromPinned { from, to, bytes } => {
                // SAFETY: it is inside memory of `cuMemAllocHost`, which is not freed before the queue is empty
                let data = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
                self.memory.get_mut(to, bytes).ok_or(ILLEGAL_ADDRESS)?.copy_from_slice(data);
            }
            Work::ToHost { from, to, bytes } => {
                let data = self.memory.get(from, bytes).ok_or(ILLEGAL_ADDRESS)?;
                // SAFETY: the caller of the copy keeps the memory until it has waited
                unsafe { std::slice::from_raw_parts_mut(to as *mut u8, bytes) }.copy_from_slice(data);
            }
            Work::Copy { from, to, bytes } => self.copy(from, to, bytes)?,
            Work::Free(at) => {
                if !self.memory.free(at) {
                    return Err(INVALID_VALUE);
                }
            }
            Work::Record(event) => {
                if let Some(event) = self.events.get_mut(&event) {
                    event.reached = Some(Instant::now());
                }
            }
            Work::Launch(l) => self.launch(&l)?,
            Work::Graph(nodes) => {
                for node in nodes {
                    match node {
                        Node::Kernel(l) => self.launch(&l)?,
                        Node::Copy { from, to, bytes } => self.copy(from, to, bytes)?,
                    }
                }
            }
        }
        Ok(())
    }

    fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), Code> {
        let data = self.memory.get(from, bytes).ok_or(ILLEGAL_ADDRESS)?.to_vec();
        self.memory.get_mut(to, bytes).ok_or(ILLEGAL_ADDRESS)?.copy_from_slice(&data);
        Ok(())
    }

    fn launch(&mut self, l: &Launch) -> Result<(), Code> {
        exec::launch(l, &mut self.memory).map(drop).map_err(|fault| {
            let (what, code) = match fault {
                Fault::Address(what) => (what, ILLEGAL_ADDRESS),
                Fault::Launch(what) | Fault::Race(what) => (what, LAUNCH_FAILED),
            };
            eprintln!("emulated GPU: {what}");
            code
        })
    }

    /// Is a region inside the host's memory that the GPU may use?
    pub(crate) fn is_pinned(&self, at: usize, bytes: usize) -> bool {
        self.pinned.range(..=at).next_back().is_some_and(|(start, len)| at + bytes <= start + len)
    }

    /// Forgets memory of the host; the driver does what is queued first.
    pub(crate) fn unpin(&mut self, at: usize) -> Code {
        self.flush_all();
        if self.pinned.remove(&at).is_some() { SUCCESS } else { INVALID_VALUE }
    }
}
