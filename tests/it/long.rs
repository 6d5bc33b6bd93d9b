//! Loops of more turns than a driver may make: Mesa's software driver ends all loops of a thread after 65,535 turns in all,
//! without a word. Values are whole numbers, so that results are exact in any order.

use gradloom::tensor::{ScatterOp, Tensor};
use gradloom::{Result, Runtime, Session};
use gradloom_core::DType::{self, F16, F32, I32, I64};
use gradloom_tests::here;

const DEVICES: [&str; 3] = ["cpu", "wgpu", "wgpu:hardware"];

/// `0, 1, .. 6, 0, ..`.
fn sevenths(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 7) as f32).collect()
}

/// What `make` gives on every device, as f32.
fn gives(what: &str, want: &[f32], make: impl Fn(&Session) -> Result<Tensor>) {
    for device in DEVICES {
        let Some(mut rt) = here::device(device, Runtime::open(device, 2)) else { continue };
        let session = rt.session().clone();
        let y = make(&session).and_then(|t| t.contiguous().cast(F32)).unwrap_or_else(|e| panic!("{what}: {e}"));
        let got = rt.to_vec::<f32>(&y).unwrap_or_else(|e| panic!("{what} on {device}: {e}"));
        assert_eq!(got.len(), want.len(), "{what} on {device}");
        let wrong = got.iter().zip(want).position(|(g, w)| g != w);
        assert!(
            wrong.is_none(),
            "{what} on {device}: {wrong:?}: {:?}, not {:?}",
            got[wrong.unwrap()],
            want[wrong.unwrap()]
        );
    }
}

#[test]
fn reductions_of_all_elements() {
    // the second one has no divisors that help
    for n in [524_288, 1_048_583] {
        let all = sevenths(n);
        let sum: f64 = all.iter().map(|x| *x as f64).sum();
        for dt in [F32, I32, I64] {
            gives(&format!("the sum of {n} {dt}"), &[sum as f32], |s| {
                Tensor::new(s, &all, &[n])?.cast(dt)?.sum(&[0], false)
            });
        }
        let mut last = all.clone();
        (last[n - 1], last[n - 2]) = (9.0, -9.0);
        gives(&format!("the largest of {n}"), &[9.0], |s| Tensor::new(s, &last, &[n])?.max(&[0], false));
        gives(&format!("the smallest of {n}"), &[-9.0], |s| Tensor::new(s, &last, &[n])?.cast(I32)?.min(&[0], false));
        gives(&format!("the place of the largest of {n}"), &[(n - 1) as f32], |s| {
            Tensor::new(s, &last, &[n])?.argmax(0, false)
        });
        let mut twos = vec![1.0f32; n];
        (twos[0], twos[n / 2], twos[n - 1]) = (2.0, -2.0, 2.0);
        gives(&format!("the product of {n}"), &[-8.0], |s| Tensor::new(s, &twos, &[n])?.prod(&[0], false));
    }
    // a sum of 16-bit floats is made in 32 bits
    let ones: Vec<f32> = (0..917_504).map(|i| if i % 1000 == 3 { 1.0 } else { 0.0 }).collect();
    gives("the sum of halves", &[918.0], |s| Tensor::new(s, &ones, &[ones.len()])?.cast(F16)?.sum(&[0], false));
}

#[test]
fn reductions_of_rows_and_of_several_axes() {
    let (rows, n) = (3, 131_101);
    let all: Vec<f32> = (0..rows * n).map(|i| (i % 7) as f32).collect();
    let row = |r: usize| (0..n).map(|i| all[r * n + i]).sum::<f32>();
    gives("sums of rows", &[row(0), row(1), row(2)], |s| Tensor::new(s, &all, &[rows, n])?.sum(&[1], false));
    let column = |c: usize| (0..n).map(|i| all[i * rows + c]).sum::<f32>();
    gives("sums of columns", &[column(0), column(1), column(2)], |s| {
        Tensor::new(s, &all, &[n, rows])?.sum(&[0], false)
    });
    let (a, b, c) = (37, 2, 20_011);
    let cube = sevenths(a * b * c);
    let want: Vec<f32> = (0..b)
        .map(|j| (0..a).flat_map(|i| (0..c).map(move |k| (i, k))).map(|(i, k)| cube[(i * b + j) * c + k]).sum())
        .collect();
    gives("sums of the first and last axes", &want, |s| Tensor::new(s, &cube, &[a, b, c])?.sum(&[0, 2], false));
}

#[test]
fn contractions() {
    let k = 1 << 20;
    let (a, b) = (sevenths(2 * k), vec![1.0f32; 3 * k]);
    let row = |r: usize| a[r * k..(r + 1) * k].iter().sum::<f32>();
    let want = [row(0), row(0), row(0), row(1), row(1), row(1)];
    gives("a matrix product", &want, |s| Tensor::new(s, &a, &[2, k])?.matmul(&Tensor::new(s, &b, &[k, 3])?));
}

/// A row's reductions and what reads them are one kernel where rows are short.
#[test]
fn rows_that_are_read_again() {
    let n = 1 << 18;
    let mut x = vec![0.0f32; n];
    x[n - 1] = 80.0;
    let mut want = vec![0.0; n];
    want[n - 1] = 1.0;
    // the other elements are 1.8e-35 each
    gives("a softmax", &want, |s| {
        Tensor::new(s, &x, &[1, n])?.softmax(1)?.mul(65_536.0)?.round()?.div(65_536.0)?.reshape(&[n as i64])
    });
}

#[test]
fn running_reductions() {
    for n in [200_003, 1 << 20] {
        let all = sevenths(n);
        let mut sum = 0.0;
        let sums: Vec<f32> = all
            .iter()
            .map(|x| {
                sum += x;
                sum
            })
            .collect();
        gives("a running sum", &sums, |s| Tensor::new(s, &all, &[n])?.cumsum(0));
    }
    let n = 140_001;
    let signs: Vec<f32> = (0..n).map(|i| if i % 5 == 2 { -1.0 } else { 1.0 }).collect();
    let mut product = 1.0;
    let products: Vec<f32> = signs
        .iter()
        .map(|x| {
            product *= x;
            product
        })
        .collect();
    gives("a running product", &products, |s| Tensor::new(s, &signs, &[n])?.cumprod(0));
    // each element is in all later products
    let mut later = 0.0;
    let mut slopes: Vec<f32> = products
        .iter()
        .zip(&signs)
        .rev()
        .map(|(p, x)| {
            later += p;
            later * x
        })
        .collect();
    slopes.reverse();
    gives("the gradient of a running product", &slopes, |s| {
        let x = Tensor::new(s, &signs, &[n])?;
        Ok(x.cumprod(0)?.sum(&[0], false)?.grad(&[&x])?.swap_remove(0))
    });
}

#[test]
fn updates_in_order() {
    let (n, places) = (140_001, 11);
    let index: Vec<i32> = (0..n).map(|i| ((i * 7919) % places) as i32).collect();
    let at = |p: usize| (0..n).filter(move |i| (i * 7919) % places == p);
    let of = |s: &Session, how: ScatterOp, values: &[f32], dt: DType| {
        let (index, values) = (Tensor::new(s, &index, &[n])?, Tensor::new(s, values, &[n])?.cast(dt)?);
        Tensor::ones(s, dt, &[places])?.scatter(0, &index, &values, how)
    };
    let values = sevenths(n);
    let sums: Vec<f32> = (0..places).map(|p| 1.0 + at(p).map(|i| values[i]).sum::<f32>()).collect();
    gives("sums by place", &sums, |s| of(s, ScatterOp::Add, &values, F32));
    gives("whole sums by place", &sums, |s| of(s, ScatterOp::Add, &values, I32));
    let last: Vec<f32> = (0..places).map(|p| values[at(p).last().unwrap()]).collect();
    gives("the last of each place", &last, |s| of(s, ScatterOp::Set, &values, F32));
    // products of floats are not made in pieces
    let signs: Vec<f32> = (0..n).map(|i| if i % 5 == 2 { -1.0 } else { 1.0 }).collect();
    let products: Vec<f32> = (0..places).map(|p| at(p).map(|i| signs[i]).product()).collect();
    gives("products by place", &products, |s| of(s, ScatterOp::Mul, &signs, F32));
}

/// A quotient of 64-bit integers is a loop of its own in WGSL.
#[test]
fn loops_inside_of_loops() {
    let n = 5_000;
    let all: Vec<i64> = (0..n).map(|i| i * 1_000_003 + (i << 40)).collect();
    let by: Vec<i64> = (0..n).map(|i| i % 13 + 7).collect();
    let want: i64 = all.iter().zip(&by).map(|(a, b)| a.rem_euclid(*b)).sum();
    gives("a sum of remainders", &[want as f32], |s| {
        let (a, b) = (Tensor::new(s, &all, &[n as usize])?, Tensor::new(s, &by, &[n as usize])?);
        a.modulo(&b)?.sum(&[0], false)
    });
}
