//! A pool of threads that divide the grid of a kernel: each thread has a share and then helps others with theirs. The
//! caller takes part; a worker that wakes up too late misses the job, so a launch never waits for a sleeping thread.
//! Between jobs workers spin for a short time, then sleep.
//!
//! All devices of a process with the same number of threads share one pool. One device at a time runs its kernel on all
//! threads; a device that finds the pool busy runs its kernel on the calling thread alone.

use crate::contain::message;
use crate::memory::Block;
use gradloom_core::{Error, Result};
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

// Kernels never unwind; the ABI that allows unwinding costs nothing, and lets `catch_unwind` catch a panic of `call`
#[cfg(target_arch = "x86_64")]
type Entry = unsafe extern "sysv64-unwind" fn(*const *mut u8, *const u32, u32, u32, *mut u8);
#[cfg(not(target_arch = "x86_64"))]
type Entry = unsafe extern "C-unwind" fn(*const *mut u8, *const u32, u32, u32, *mut u8);

/// How long a worker spins for the next job before it sleeps. It is longer than single-threaded kernels between two
/// jobs and than the pause between two runs usually are. Waking a worker takes as long as a small kernel.
const SPIN_TIME: Duration = Duration::from_micros(200);
/// Spins between two looks at the clock.
const SPINS: u32 = 64;
/// A thread takes 1/SLICES_PER_REST of what is left of its share at a time, so that slices are small towards the end
/// and others can help.
const SLICES_PER_REST: u32 = 4;
/// A slice is at least 1/MIN_SLICES of a share.
const MIN_SLICES: u32 = 32;
/// The stack of a worker in bytes. Kernels spill registers to it; their arrays are in scratch memory.
const STACK: usize = 4 << 20;
const MOST_THREADS: usize = 1 << 10;

/// One launch of a kernel.
#[derive(Clone, Copy)]
pub(super) struct Job {
    entry: Entry,
    bufs: *const *mut u8,
    vars: *const u32,
    grid: u32,
    threads: u32,
    scratch: usize,
}

impl Job {
    /// # Safety
    /// `entry` is the start of a kernel with the renderer's calling convention that needs `scratch` bytes of scratch memory;
    /// `bufs` and `vars` outlive the job.
    pub(super) unsafe fn new(entry: *const u8, bufs: &[*mut u8], vars: &[u32], grid: u32, scratch: usize) -> Job {
        // SAFETY: by contract `entry` is code of exactly this signature.
        let entry = unsafe { std::mem::transmute::<*const u8, Entry>(entry) };
        Job { entry, bufs: bufs.as_ptr(), vars: vars.as_ptr(), grid, threads: 1, scratch }
    }
}

/// The fields of `Shared::state`. Bit 0: the job may be entered. Bits 1..16: the number of workers inside. Bits 16..32:
/// the number of threads with a share of the job; only these may enter. Bits 32..64: the number of the job.
const OPEN: u64 = 1;
const INSIDE: u64 = 2;
const THREAD: u64 = 1 << 16;
const NUMBER: u64 = 1 << 32;

/// What is left of a thread's share of the grid: its end in the upper half, its beginning in the lower half. The
/// alignment gives each share cache lines of its own.
#[repr(align(128))]
struct Share(AtomicU64);

struct Shared {
    state: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    /// One share for each thread of the pool; the first is the caller's.
    shares: Vec<Share>,
    asleep: Mutex<usize>,
    wake: Condvar,
    stop: AtomicBool,
    /// The message of a panic on a worker during the current job.
    failure: Mutex<Option<String>>,
}

// SAFETY: `job` is written only by the one caller that has taken the pool, while the state is closed with nobody inside, and read only by workers
// that have entered an open state (their entry acquires what the opening released). Its pointers are valid as long as the
// job is open or somebody is inside, because `run` returns only after that.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// A fixed set of threads.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Whether some caller is running a job.
    taken: AtomicBool,
}

/// Held by the caller whose job is running. Its drop, also during a panic, returns only when no worker is
/// inside the job any more.
struct RunGuard<'a>(&'a Pool);

impl RunGuard<'_> {
    /// Closes the job and waits for the workers inside.
    fn close(&self) {
        let s = &*self.0.shared;
        s.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0u32;
        while s.state.load(Ordering::Acquire) % THREAD != 0 {
            pause(&mut spins);
        }
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        self.close();
        self.0.taken.store(false, Ordering::Release);
    }
}

/// A kernel that calls the Rust function to which the first buffer points with each number of the slice.
#[cfg(target_arch = "x86_64")]
unsafe extern "sysv64-unwind" fn call(bufs: *const *mut u8, _: *const u32, lo: u32, hi: u32, _: *mut u8) {
    // SAFETY: by contract.
    unsafe { call_some(bufs, lo, hi) };
}

/// A kernel that calls the Rust function to which the first buffer points with each number of the slice.
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C-unwind" fn call(bufs: *const *mut u8, _: *const u32, lo: u32, hi: u32, _: *mut u8) {
    // SAFETY: by contract.
    unsafe { call_some(bufs, lo, hi) };
}

unsafe fn call_some(bufs: *const *mut u8, lo: u32, hi: u32) {
    // SAFETY: the first buffer is the function's reference, as `Pool::each` made it.
    let f = unsafe { *(*bufs).cast::<&(dyn Fn(u32) + Sync)>() };
    (lo..hi).for_each(f);
}

impl Pool {
    /// The process's pool of `threads` threads, including the caller. It is made for the first device and
    /// dropped with the last one.
    pub(super) fn shared(threads: usize) -> Result<Arc<Pool>> {
        static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());
        let threads = threads.clamp(1, MOST_THREADS);
        let mut pools = lock(&POOLS);
        pools.retain(|p| p.strong_count() > 0);
        if let Some(pool) = pools.iter().filter_map(Weak::upgrade).find(|p| p.threads() == threads) {
            return Ok(pool);
        }
        let pool = Arc::new(Pool::new(threads)?);
        pools.push(Arc::downgrade(&pool));
        Ok(pool)
    }

    /// Makes a pool of `threads` threads in all, including the caller.
    fn new(threads: usize) -> Result<Pool> {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            shares: (0..threads).map(|_| Share(AtomicU64::new(0))).collect(),
            asleep: Mutex::new(0),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
        });
        let mut pool = Pool { shared, workers: Vec::new(), taken: AtomicBool::new(false) };
        for i in 1..threads {
            let shared = pool.shared.clone();
            let handle = std::thread::Builder::new()
                .name(format!("gradloom-{i}"))
                .stack_size(STACK)
                .spawn(move || work(&shared, i))
                .map_err(|e| Error::Device { device: "cpu".into(), what: format!("no thread: {e}") })?;
            pool.workers.push(handle);
        }
        Ok(pool)
    }

    pub(super) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f` with each number below `n`, on as many threads as the pool has.
    pub(super) fn each(&self, n: u32, f: &(dyn Fn(u32) + Sync)) -> Result<(), String> {
        let bufs = [(&raw const f).cast_mut().cast::<u8>()];
        let (vars, threads) = ([], self.threads().min(n as usize));
        let job = Job { entry: call, bufs: bufs.as_ptr(), vars: vars.as_ptr(), grid: n, threads: 1, scratch: 0 };
        // SAFETY: `call` reads the one buffer, which is `f` and stays until `run` returns; any number may be called on any thread.
        unsafe { self.run(&job, threads, std::ptr::null_mut()) }
    }

    /// Runs a job on up to `threads` threads; returns when it is done. An error is the message of a panic on another
    /// thread; the job is then incomplete.
    ///
    /// # Safety
    /// The job's kernel may run on its buffers now, on several slices of its grid at a time; `scratch` has the bytes it needs
    /// and is the caller's alone.
    pub(super) unsafe fn run(&self, job: &Job, threads: usize, scratch: *mut u8) -> Result<(), String> {
        if threads <= 1 || self.workers.is_empty() || self.taken.swap(true, Ordering::Acquire) {
            // SAFETY: by contract.
            unsafe { (job.entry)(job.bufs, job.vars, 0, job.grid, scratch) };
            return Ok(());
        }
        let guard = RunGuard(self);
        let s = &*self.shared;
        let job = Job { threads: threads as u32, ..*job };
        // SAFETY: the state is closed and nobody is inside: nobody reads `job`.
        unsafe { *s.job.get() = Some(job) };
        let edge = |i: usize| job.grid as u64 * i as u64 / threads as u64;
        for (i, share) in s.shares.iter().enumerate() {
            let (lo, hi) = if i < threads { (edge(i), edge(i + 1)) } else { (0, 0) };
            share.0.store(hi << 32 | lo, Ordering::Relaxed);
        }
        let number = (s.state.load(Ordering::Relaxed) / NUMBER + 1) * NUMBER;
        s.state.store(number | threads as u64 * THREAD | OPEN, Ordering::Release);
        if *lock(&s.asleep) > 0 {
            s.wake.notify_all();
        }
        // SAFETY: by contract; slices are disjoint.
        unsafe { slices(s, &job, 0, scratch) };
        guard.close();
        match lock(&s.failure).take() {
            Some(what) => Err(what),
            None => Ok(()),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        drop(lock(&self.shared.asleep));
        self.shared.wake.notify_all();
        for w in self.workers.drain(..) {
            // A worker ends only by returning; if it panicked, there is no state left to protect
            let _ = w.join();
        }
    }
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

fn pause(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(64) { std::thread::yield_now() } else { std::hint::spin_loop() }
}

/// Runs slices until none is left: first from the beginning of the thread's own share, then from the ends of the
/// others'. So a thread has the same part of the grid in every kernel, whose data are in its core's caches, and no
/// thread waits for one that is late.
///
/// # Safety
/// The job's kernel may run on its buffers now; `scratch` has the bytes it needs and is this thread's alone.
unsafe fn slices(s: &Shared, job: &Job, own: usize, scratch: *mut u8) {
    let threads = job.threads as usize;
    let least = (job.grid / (job.threads * MIN_SLICES)).max(1);
    for i in 0..threads {
        let share = &s.shares[(own + i) % threads].0;
        let mut now = share.load(Ordering::Relaxed);
        loop {
            let (lo, hi) = (now as u32, (now >> 32) as u32);
            if lo >= hi {
                break;
            }
            let (n, left) = match i {
                0 => {
                    let n = ((hi - lo) / SLICES_PER_REST).max(least).min(hi - lo);
                    (lo..lo + n, lo + n..hi)
                }
                _ => {
                    let n = ((hi - lo) / 2).max(least).min(hi - lo);
                    (hi - n..hi, lo..hi - n)
                }
            };
            let then = u64::from(left.end) << 32 | u64::from(left.start);
            match share.compare_exchange_weak(now, then, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    // SAFETY: by contract.
                    unsafe { (job.entry)(job.bufs, job.vars, n.start, n.end, scratch) };
                    now = share.load(Ordering::Relaxed);
                }
                Err(changed) => now = changed,
            }
        }
    }
}

fn work(s: &Shared, me: usize) {
    let mut seen = 0;
    let mut spins = 0u32;
    let mut idle: Option<Instant> = None;
    let mut own: Option<Block> = None;
    // Is there a new job in which this thread has a share?
    let mine =
        |state: u64, seen: u64| state & OPEN != 0 && state / NUMBER != seen && (me as u64) < state % NUMBER / THREAD;
    while !s.stop.load(Ordering::Acquire) {
        let state = s.state.load(Ordering::Acquire);
        if mine(state, seen) {
            if s.state.compare_exchange(state, state + INSIDE, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            seen = state / NUMBER;
            // SAFETY: entered while open, so the caller waits for us and does not write `job`.
            let job = unsafe { *s.job.get() };
            if let Some(job) = job {
                if own.as_ref().is_none_or(|b| b.len() < job.scratch) {
                    own = Block::zeroed(job.scratch);
                }
                // If there is no memory for scratch, this worker leaves the job to the others
                if let Some(own) = &own {
                    // SAFETY: the caller of `run` vouches for the job while it is open or somebody is inside.
                    let all = AssertUnwindSafe(|| unsafe { slices(s, &job, me, own.at(0)) });
                    if let Err(panic) = catch_unwind(all) {
                        lock(&s.failure).get_or_insert(message(&*panic));
                        // The job has failed, so what is left of it is dropped
                        s.shares.iter().for_each(|share| share.0.store(0, Ordering::Relaxed));
                    }
                }
            }
            s.state.fetch_sub(INSIDE, Ordering::AcqRel);
            idle = None;
            continue;
        }
        spins = spins.wrapping_add(1);
        if !spins.is_multiple_of(SPINS) || idle.get_or_insert_with(Instant::now).elapsed() < SPIN_TIME {
            std::hint::spin_loop();
            continue;
        }
        let mut asleep = lock(&s.asleep);
        // A job that was opened meanwhile is seen here, because its caller reads `asleep` only after opening it
        let state = s.state.load(Ordering::Acquire);
        if !s.stop.load(Ordering::Acquire) && !mine(state, seen) {
            *asleep += 1;
            asleep = s.wake.wait(asleep).unwrap_or_else(|e| e.into_inner());
            *asleep -= 1;
        }
        drop(asleep);
        idle = None;
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// Increments the counter of each grid index that is run; the first buffer holds the counters.
    unsafe extern "sysv64-unwind" fn count(bufs: *const *mut u8, _: *const u32, lo: u32, hi: u32, _: *mut u8) {
        // SAFETY: the tests give one buffer of as many counters as the grid is long
        let counters = unsafe { (*bufs).cast::<AtomicU32>() };
        for i in lo..hi {
            // SAFETY: as above
            unsafe { (*counters.add(i as usize)).fetch_add(1, Ordering::Relaxed) };
        }
    }

    /// As `count`, but panics on workers.
    unsafe extern "sysv64-unwind" fn fail(bufs: *const *mut u8, vars: *const u32, lo: u32, hi: u32, own: *mut u8) {
        assert!(std::thread::current().name().is_none_or(|n| !n.starts_with("gradloom-")), "a worker fails");
        // gives a worker time to enter while some of the job is left
        std::thread::yield_now();
        // SAFETY: as for `count`
        unsafe { count(bufs, vars, lo, hi, own) };
    }

    fn run(pool: &Pool, entry: Entry, counters: &[AtomicU32]) -> Result<(), String> {
        let bufs = [counters.as_ptr().cast_mut().cast::<u8>()];
        let mut scratch = [0u8; 64];
        // SAFETY: the entry has the signature; the buffer has a counter for each place of the grid; no scratch is needed
        unsafe {
            let job = Job::new(entry as *const u8, &bufs, &[], counters.len() as u32, 0);
            pool.run(&job, pool.threads(), scratch.as_mut_ptr())
        }
    }

    fn counters(n: usize) -> Vec<AtomicU32> {
        (0..n).map(|_| AtomicU32::new(0)).collect()
    }

    #[test]
    fn callers_on_several_threads_share_a_pool() {
        let pool = Pool::shared(3).unwrap();
        assert!(Arc::ptr_eq(&pool, &Pool::shared(3).unwrap()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..200 {
                        let all = counters(100 + round);
                        run(&pool, count, &all).unwrap();
                        assert!(all.iter().all(|c| c.load(Ordering::Relaxed) == 1));
                    }
                });
            }
        });
    }

    #[test]
    fn a_function_is_called_with_each_number_once() {
        for threads in [1, 3] {
            let pool = Pool::new(threads).unwrap();
            for n in [0, 1, 2, 100] {
                let all = counters(n);
                pool.each(n as u32, &|i| _ = all[i as usize].fetch_add(1, Ordering::Relaxed)).unwrap();
                assert!(all.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{n} on {threads}");
            }
        }
    }

    #[test]
    fn a_panic_on_a_worker_ends_the_job_with_an_error() {
        let pool = Pool::new(2).unwrap();
        // whether the worker enters in time for one job depends on the system
        let begin = Instant::now();
        let failed = loop {
            match run(&pool, fail, &counters(1 << 12)) {
                Err(what) => break what,
                Ok(()) => assert!(begin.elapsed() < Duration::from_secs(120), "no worker came"),
            }
        };
        assert_eq!(failed, "a worker fails");
        let all = counters(1000);
        run(&pool, count, &all).unwrap();
        assert!(all.iter().all(|c| c.load(Ordering::Relaxed) == 1), "the pool goes on");
    }

    #[test]
    fn a_panic_of_the_caller_waits_for_the_others() {
        unsafe extern "sysv64-unwind" fn own(_: *const *mut u8, _: *const u32, _: u32, _: u32, _: *mut u8) {
            assert!(std::thread::current().name().is_some_and(|n| n.starts_with("gradloom-")), "the caller fails");
        }
        let pool = Pool::new(2).unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| run(&pool, own, &counters(64)))).unwrap_err();
        assert_eq!(message(&*panic), "the caller fails");
        let all = counters(1000);
        run(&pool, count, &all).unwrap();
        assert!(all.iter().all(|c| c.load(Ordering::Relaxed) == 1), "the pool goes on");
    }
}
