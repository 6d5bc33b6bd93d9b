//! Models on several threads: they move, they run at a time, they share the threads of the process, and those end with them.
//! One test, since it counts the threads of its process.

#![cfg(target_os = "linux")]

mod common;

use common::{Scratch, in_time, model_with_data, weight};
use gradloom::io::HostTensor;
use gradloom::text::{ChatTemplate, Tokenizer};
use gradloom::{NativeHost, OnnxModel, Runtime, Session, Tensor};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}

const THREADS: usize = 8;
const EACH: usize = 8;
/// Of each device; the caller is one of them.
const DEVICE_THREADS: usize = 3;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// A device with threads, where there is one.
fn device() -> Box<dyn gradloom::device::Device> {
    gradloom::open("cpu", DEVICE_THREADS).unwrap_or_else(|_| gradloom::open("auto", DEVICE_THREADS).unwrap())
}

fn add(model: &mut OnnxModel, by: f32) {
    let x = HostTensor::from_f32(vec![2], &[by, 2.0 * by]).unwrap();
    let y = model.run(&[("x", x)]).unwrap()[0].1.to_f64();
    assert_eq!(y, [f64::from(by) + 10.0, f64::from(2.0 * by) + 20.0]);
}

/// A product large enough to be worth all threads.
fn multiply(rt: &mut Runtime, by: f32) {
    const N: usize = 160;
    let x = Tensor::new(rt.session(), &vec![by; N * N], &[N, N]).unwrap();
    let eye = Tensor::eye(rt.session(), N, N, gradloom::DType::F32).unwrap();
    let y = x.matmul(&eye.mul(3.0).unwrap()).unwrap();
    assert!(rt.to_vec::<f32>(&y).unwrap().iter().all(|&v| v == 3.0 * by));
    drop((x, eye, y));
    rt.collect();
}

#[test]
fn models_share_the_threads_of_the_process() {
    is_send::<OnnxModel>();
    is_send::<Runtime>();
    is_send::<NativeHost>();
    is_send::<Tensor>();
    is_sync::<Tensor>();
    is_send::<Session>();
    is_sync::<Session>();
    is_send::<Tokenizer>();
    is_sync::<Tokenizer>();
    is_send::<ChatTemplate>();

    let dir = Scratch::new("threads");
    dir.file("w.bin", &weight([10.0, 20.0]));
    let path = dir.file("model.onnx", &model_with_data("Add", "w.bin"));
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    in_time(move || {
        let before = threads();
        let most = AtomicUsize::new(0);
        let alive = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (most, alive, path) = (&most, &alive, &path);
                scope.spawn(move || {
                    for i in 0..EACH {
                        let parsed = gradloom::model::parse(path).unwrap();
                        let mut model = OnnxModel::with_host(parsed, device(), NativeHost::without_cache());
                        let mut rt = Runtime::with_host(device(), NativeHost::without_cache());
                        for round in 0..3 {
                            let by = (thread * EACH + i + round) as f32;
                            add(&mut model, by);
                            multiply(&mut rt, by);
                            most.fetch_max(threads(), Ordering::Relaxed);
                        }
                        alive.lock().unwrap().push((model, rt));
                    }
                });
            }
        });
        let mut models = alive.into_inner().unwrap();
        assert_eq!(models.len(), THREADS * EACH);
        // ours, the devices', and those that compile for a moment
        let allowed = before + THREADS + (DEVICE_THREADS - 1) + cores;
        let most = most.into_inner();
        assert!(most <= allowed, "{most} threads, {before} at first");
        wait_for(before + DEVICE_THREADS - 1);

        // a model moves
        let (mut model, rt) = models.pop().unwrap();
        let moved = std::thread::spawn(move || {
            add(&mut model, 5.0);
            model
        });
        // or is shared
        let shared = Arc::new(Mutex::new(moved.join().unwrap()));
        let users: Vec<_> = (0..4).map(|i| (i, shared.clone())).collect();
        let users: Vec<_> = users
            .into_iter()
            .map(|(i, model)| std::thread::spawn(move || add(&mut model.lock().unwrap(), i as f32)))
            .collect();
        users.into_iter().for_each(|u| u.join().unwrap());

        // one session, tensors of several threads
        let mut rt = rt;
        let x = Tensor::new(rt.session(), &[1.0f32, 2.0], &[2]).unwrap();
        let sums: Vec<Tensor> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4)
                .map(|i| {
                    scope.spawn({
                        let x = &x;
                        move || x.add(i as f32).unwrap()
                    })
                })
                .collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        for (i, sum) in sums.iter().enumerate() {
            assert_eq!(rt.to_vec::<f32>(sum).unwrap(), [1.0 + i as f32, 2.0 + i as f32]);
        }

        // the threads end with the last device
        drop((models, shared, rt));
        wait_for(before);
    });
}

/// Threads that have ended are listed for a moment more.
fn wait_for(count: usize) {
    while threads() != count {
        std::thread::yield_now();
    }
}
