//! Elements that go to one place: the best of a row, on every device.

use gradloom::tensor::Tensor;
use gradloom::{Result, Runtime, Session};
use gradloom_core::DType::{self, F32, I32, I64, U8};
use gradloom_tests::here;

const DEVICES: [&str; 7] = ["eval", "cpu", "cpu:avx2", "c", "llvm", "wgpu", "wgpu:hardware"];

fn rows(s: &Session, dt: DType, shape: &[usize]) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let all: Vec<i32> = (0..n as i32).map(|i| (i * 7919 + 13) % 101 + 1).collect();
    Tensor::new(s, &all, shape)?.cast(dt)
}

#[test]
fn the_first_of_a_row() {
    for (n, axis) in [(2, 1), (3, 1), (5, 0), (16, 1), (17, 0), (40, 1)] {
        for dt in [F32, I32, I64, U8] {
            for largest in [true, false] {
                let shape = if axis == 1 { [3, n] } else { [n, 3] };
                let number = |row: usize, i: usize| {
                    let flat = if axis == 1 { row * n + i } else { i * 3 + row };
                    (flat * 7919 + 13) % 101 + 1
                };
                let best = |row: usize| {
                    let all = 0..n;
                    match largest {
                        true => all.max_by_key(|&i| (number(row, i), n - i)),
                        false => all.min_by_key(|&i| (number(row, i), i)),
                    }
                };
                let want: Vec<(f32, f32)> =
                    (0..3).filter_map(|r| best(r).map(|i| (number(r, i) as f32, i as f32))).collect();
                for device in DEVICES {
                    let Some(mut rt) = here::device(device, Runtime::open(device, 2)) else { continue };
                    let x = rows(rt.session(), dt, &shape).expect("rows");
                    let (value, index) = x.topk(1, axis as i64, largest).expect("topk");
                    let [v, i] = [value, index].map(|t| {
                        let t = t.cast(F32).expect("a cast");
                        rt.to_vec::<f32>(&t).unwrap_or_else(|e| panic!("{n} of {dt} on {device}: {e}"))
                    });
                    let got: Vec<(f32, f32)> = v.into_iter().zip(i).collect();
                    assert_eq!(got, want, "{n} of {dt} along {axis} on {device}, the largest: {largest}");
                }
            }
        }
    }
}
