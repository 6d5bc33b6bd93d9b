//! What every device promises besides right results: memory semantics and typed errors.

use crate::programs::{Data, samples};
use crate::runner::run_one;
use gradloom_core::codegen::Program;
use gradloom_core::device::{BufId, Device, Step, Ticket, View};
use gradloom_core::render::{Code, Renderer, Source};
use gradloom_core::target::Target;
use gradloom_core::{DType, Error, Result};
use std::sync::Arc;

/// Renders for the interpreter: the program itself.
pub struct EvalRenderer;

impl Renderer for EvalRenderer {
    fn render(&self, p: &Program, _t: &Target) -> Result<Code> {
        Ok(Code::Program(Arc::new(p.clone())))
    }
}

/// Allocations are zeroed, uploads and copies land where they should, views with offsets work, reads come back in any order
/// and see everything that was submitted before them.
pub fn memory(dev: &mut dyn Device, renderer: &dyn Renderer) {
    let step = dev.target().limits.offset_alignment.max(4);
    let buf = dev.alloc(3 * step + 12).unwrap();
    let all = View { buf, offset: 0, bytes: 3 * step + 12 };
    let t = dev.read(all).unwrap();
    assert_eq!(wait(dev, t).unwrap(), vec![0; 3 * step + 12], "fresh memory is zero");
    let data: Vec<u8> = (0..step).map(|i| (i * 7 + 1) as u8).collect();
    dev.upload(buf, step, &data).unwrap();
    let (src, dst) = (View { buf, offset: step, bytes: step }, View { buf, offset: 2 * step, bytes: step });
    let first = dev.read(src).unwrap();
    let other = dev.alloc(step).unwrap();
    let there = View { buf: other, offset: 0, bytes: step };
    dev.submit(&[Step::Copy { src, dst: there }, Step::Copy { src: there, dst }]).unwrap();
    let second = dev.read(dst).unwrap();
    dev.upload(buf, step, &vec![9; step]).unwrap();
    let third = dev.read(View { buf, offset: step + 4, bytes: 8 }).unwrap();
    dev.free(other);
    dev.sync().unwrap();
    assert_eq!(wait(dev, third).unwrap(), vec![9; 8]);
    assert_eq!(wait(dev, second).unwrap(), data, "copied before the second upload");
    assert_eq!(wait(dev, first).unwrap(), data, "read before the second upload");

    // two launches in one submission, the second reading what the first wrote, at offsets of one arena
    let t = dev.target().clone();
    let s = samples(&t).into_iter().find(|s| s.program.name == "neg_f32").expect("the sample is there");
    let bytes = s.data[0].bytes();
    let gap = bytes.len().next_multiple_of(step);
    let arena = dev.alloc(3 * gap).unwrap();
    let view = |i: usize| View { buf: arena, offset: i * gap, bytes: bytes.len() };
    dev.upload(arena, 0, &bytes).unwrap();
    let source = Source::new(&s.program, renderer.render(&s.program, &t).unwrap());
    let kernel = dev.compile(&[source]).unwrap()[0];
    while !dev.ready().unwrap() {}
    let run = |a: usize, b: usize| {
        let args = vec![view(a), view(b)];
        Step::Launch { kernel, args, grid: s.program.grid, vars: vec![] }
    };
    dev.submit(&[run(0, 1), run(1, 2)]).unwrap();
    let r = dev.read(view(2)).unwrap();
    let got = Data::from_bytes(DType::F32, &wait(dev, r).unwrap());
    for (g, w) in got.values.iter().zip(&s.data[0].values) {
        assert!(g == w || (g.as_f64().is_nan() && w.as_f64().is_nan()), "-(-{w:?}) gave {g:?}");
    }
    dev.release(kernel);
    dev.free(arena);
    dev.free(buf);
}

/// Wrong ids, ranges and texts are typed errors, and the device works afterwards.
pub fn misuse(dev: &mut dyn Device, renderer: &dyn Renderer) {
    let buf = dev.alloc(64).unwrap();
    assert!(dev.upload(buf, 60, &[0; 8]).is_err(), "upload past the end");
    assert!(dev.upload(BufId(9999), 0, &[0; 8]).is_err(), "upload to nothing");
    assert!(dev.read(View { buf, offset: 32, bytes: 64 }).is_err(), "read past the end");
    assert!(dev.poll(Ticket(9999)).is_err(), "a ticket nobody gave");
    let t = dev.target().clone();
    let s = samples(&t).into_iter().find(|s| s.program.name == "neg_f32").expect("the sample is there");
    let small = View { buf, offset: 0, bytes: 4 };
    let source = Source::new(&s.program, renderer.render(&s.program, &t).unwrap());
    if let Code::Text(_) = source.code {
        let broken = Source { code: Code::Text("this is no program".into()), ..source.clone() };
        let e = dev.compile(&[broken]).map(|_| ()).and_then(|()| dev.ready().map(|_| ()));
        assert!(matches!(e, Err(Error::Device { .. })), "{e:?}");
    }
    let kernel = dev.compile(&[source]).unwrap()[0];
    while !dev.ready().unwrap() {}
    let launch = |args: Vec<View>| [Step::Launch { kernel, args, grid: [1, 1, 1], vars: vec![] }];
    assert!(dev.submit(&launch(vec![small])).is_err(), "a buffer is missing");
    assert!(dev.submit(&launch(vec![small, small])).is_err(), "buffers are too small");
    dev.release(kernel);
    assert!(dev.submit(&launch(vec![small, small])).is_err(), "a released kernel");
    let too_much = dev.alloc(usize::MAX >> 12);
    assert!(matches!(too_much, Err(Error::OutOfMemory { .. })), "{too_much:?}");
    let bytes = s.data[0].bytes();
    let kernel = dev.compile(&[Source::new(&s.program, renderer.render(&s.program, &t).unwrap())]).unwrap()[0];
    while !dev.ready().unwrap() {}
    let got = run_one(dev, &s, kernel).unwrap();
    assert_eq!(got[0].len(), bytes.len());
    s.check(&got).unwrap();
    dev.free(buf);
}

fn wait(dev: &mut dyn Device, t: Ticket) -> Result<Vec<u8>> {
    for _ in 0..100_000_000 {
        if let Some(b) = dev.poll(t)? {
            return Ok(b);
        }
    }
    Err(Error::Internal("readback never arrives".into()))
}
