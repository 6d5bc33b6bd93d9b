//! Panics on purpose, at each layer: they come back as `E_INTERNAL`, end one model, and leave the others alone.

#![cfg(unix)]

mod common;

use common::{Scratch, model_with_data, weight};
use gradloom::device::{BufId, Device, EvalDevice, KernelId, Step, Ticket, View};
use gradloom::io::HostTensor;
use gradloom::io::onnx::{ExternalData, Model};
use gradloom::render::Source;
use gradloom::target::Target;
use gradloom::{Error, NativeHost, OnnxModel, Result, Runtime, Tensor};
use std::sync::Arc;

/// Panics in one of its calls.
struct Faulty(EvalDevice, &'static str);

impl Faulty {
    fn new(call: &'static str) -> Box<dyn Device> {
        Box::new(Faulty(EvalDevice::default(), call))
    }

    fn at(&self, call: &str) {
        assert!(self.1 != call, "the device fails to {call}");
    }
}

impl Device for Faulty {
    fn target(&self) -> &Target {
        self.0.target()
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        self.at("alloc");
        self.0.alloc(bytes)
    }

    fn free(&mut self, buf: BufId) {
        self.0.free(buf);
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        self.at("upload");
        self.0.upload(buf, offset, data)
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        self.at("compile");
        self.0.compile(sources)
    }

    fn release(&mut self, kernel: KernelId) {
        self.0.release(kernel);
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        self.at("submit");
        self.0.submit(steps)
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        self.at("read");
        self.0.read(view)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        self.at("poll");
        self.0.poll(ticket)
    }
}

const CALLS: [&str; 6] = ["alloc", "upload", "compile", "submit", "read", "poll"];

fn sum(model: &mut OnnxModel) -> Result<Vec<f64>> {
    let x = HostTensor::from_f32(vec![2], &[1.0, 2.0]).unwrap();
    Ok(model.run(&[("x", x)])?[0].1.to_f64())
}

fn internal<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Err(Error::Internal(what)) => what,
        other => panic!("E_INTERNAL was expected, not {other:?}"),
    }
}

#[test]
fn a_device_that_panics_ends_its_model_alone() {
    let dir = Scratch::new("faulty");
    dir.file("w.bin", &weight([10.0, 20.0]));
    let path = dir.file("model.onnx", &model_with_data("Add", "w.bin"));
    let on = |device| {
        let model = gradloom::model::parse(&path).unwrap();
        OnnxModel::with_host(model, device, NativeHost::without_cache())
    };
    let mut other = on(Faulty::new("nothing"));
    for call in CALLS {
        let mut model = on(Faulty::new(call));
        assert_eq!(internal(sum(&mut model)), format!("the device fails to {call}"));
        for _ in 0..2 {
            let again = internal(sum(&mut model));
            assert!(again.contains("cannot be used any more") && again.contains(call), "{again}");
        }
        internal(model.inputs(&[]).map(drop));
        internal(model.plan(&[]));
        model.collect();
        drop(model);
        assert_eq!(sum(&mut other).unwrap(), [11.0, 22.0], "after {call}");
    }
}

#[test]
fn a_device_that_panics_ends_its_runtime_alone() {
    for call in CALLS {
        let mut rt = Runtime::with_host(Faulty::new(call), NativeHost::without_cache());
        let x = Tensor::new(rt.session(), &[1.0f32, 2.0], &[2]).unwrap();
        let y = x.add(1.0).unwrap();
        assert_eq!(internal(rt.to_vec::<f32>(&y)), format!("the device fails to {call}"));
        assert!(internal(rt.to_vec::<f32>(&x)).contains("cannot be used any more"));
        rt.collect();
        // what needs no device goes on
        assert_eq!(y.shape(), [2]);
    }
}

/// Panics when it is asked.
struct NoData;

impl ExternalData for NoData {
    fn size(&self, _: &str) -> Result<u64> {
        panic!("no size")
    }

    fn read(&self, _: &str, _: u64, _: u64) -> Result<Vec<u8>> {
        panic!("no bytes")
    }
}

#[test]
fn external_data_that_panics_is_an_error() {
    let bytes = model_with_data("Add", "w.bin");
    let run = || {
        let model = gradloom::contain(|| Model::parse_with(bytes, Arc::new(NoData)))?;
        sum(&mut OnnxModel::with_host(model, Box::new(EvalDevice::default()), NativeHost::without_cache()))
    };
    assert_eq!(internal(run()), "no size");
}
