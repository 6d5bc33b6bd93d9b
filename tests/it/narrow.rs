//! Tensors of 8 and 16 bits in memory: what a device stores is what the evaluator stores, whole words or not.

use gradloom::tensor::{PadMode, Tensor};
use gradloom::{Result, Runtime, Session};
use gradloom_core::DType::{self, BF16, F16, F32, I8, I16, U8, U16};
use gradloom_tests::here;

const DEVICES: [&str; 4] = ["cpu", "wgpu", "wgpu:hardware", "c"];

/// `n` values of a dtype; subnormal halves and the largest ones are among them.
fn values(s: &Session, dt: DType, shape: &[usize], seed: usize) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let number = |i: usize| {
        let k = ((i * 7919 + seed * 104_729) ^ (i >> 2)) % 65_536;
        match dt {
            I8 | I16 => k as f32 - 32_768.0,
            U8 | U16 => k as f32,
            _ if i % 11 == 3 => (k % 1024) as f32 * 2f32.powi(-24),
            _ if i % 13 == 5 => 65_504.0,
            _ => (k as f32 - 32_768.0) / 16.0,
        }
    };
    let all: Vec<f32> = (0..n).map(number).collect();
    let wide = Tensor::new(s, &all, shape)?;
    // bytes take the low bits
    let wide = if dt.is_float() { wide } else { wide.cast(DType::I32)? };
    Ok(wide.cast(dt)?.contiguous())
}

/// What the values of `dt` are as f32.
fn read(rt: &mut Runtime, t: &Tensor) -> Vec<f32> {
    let t = t.contiguous().cast(F32).expect("a cast");
    rt.to_vec::<f32>(&t).expect("a result")
}

fn same(what: &str, make: impl Fn(&Session, DType) -> Result<Tensor>) {
    for dt in [I8, U8, I16, U16, F16, BF16] {
        let run = |device: &str| {
            let mut rt = here::device(device, Runtime::open(device, 1))?;
            let s = rt.session().clone();
            let y = make(&s, dt).unwrap_or_else(|e| panic!("{what} of {dt}: {e}"));
            Some(read(&mut rt, &y))
        };
        let want = run("eval").expect("the evaluator");
        assert!(want.iter().any(|v| *v != 0.0), "{what} of {dt}: only zeros");
        for device in DEVICES {
            if let Some(got) = run(device) {
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&got), bits(&want), "{what} of {dt} on {device}");
            }
        }
    }
}

#[test]
fn infinite_values() {
    for n in [1, 2, 4, 9] {
        same(&format!("{n} infinite values"), |s, dt| {
            let far = [f32::INFINITY, f32::NEG_INFINITY, 7e4, -1.0];
            let all: Vec<f32> = (0..n).map(|i| if dt.is_float() { far[i % 4] } else { i as f32 + 1.0 }).collect();
            Ok(Tensor::new(s, &all, &[n])?.cast(dt)?.contiguous())
        });
    }
}

#[test]
fn copies_of_any_length() {
    for n in [1, 2, 3, 4, 5, 7, 8, 31, 64, 130, 1003] {
        same(&format!("{n} values"), |s, dt| values(s, dt, &[n], 1));
        same(&format!("{n} values turned round"), |s, dt| values(s, dt, &[n], 2)?.flip(&[0]));
    }
}

#[test]
fn views_and_joints() {
    for shape in [[3, 5], [4, 8], [7, 12], [16, 9]] {
        same(&format!("{shape:?} transposed"), |s, dt| values(s, dt, &shape, 3)?.transpose(0, 1));
        same(&format!("{shape:?} from its second column"), |s, dt| {
            values(s, dt, &shape, 4)?.narrow(1, 1, shape[1] - 1)
        });
        same(&format!("{shape:?} twice"), |s, dt| {
            let (a, b) = (values(s, dt, &shape, 5)?, values(s, dt, &[shape[0], 3], 6)?);
            Tensor::cat(&[&a, &b], 1)
        });
        same(&format!("{shape:?} padded"), |s, dt| {
            values(s, dt, &shape, 7)?.pad(&[(1, 2), (3, 1)], PadMode::Constant, 5.0)
        });
        same(&format!("the largest of {shape:?}"), |s, dt| values(s, dt, &shape, 8)?.max(&[1], false));
    }
}

/// Stores to a part of a buffer leave the neighbours in their words as they are.
#[test]
fn parts_are_written_alone() {
    for (from, to) in [(1, 3), (2, 9), (4, 8), (5, 6), (0, 10)] {
        same(&format!("{from}..{to} of ten"), |s, dt| {
            let all = values(s, dt, &[3, 10], 9)?.to_storage()?;
            let part = all.narrow(1, from, to - from)?;
            part.assign(&values(s, dt, &[3, to - from], 10)?)?;
            Ok(all)
        });
    }
}
