//! Loops end where masks leave nothing: the results are those of the whole loops, by the evaluator of the tensor graph, also
//! where rows are masked as a whole or hold NaN and Inf.

use super::frontend::host::eval;
use gradloom::tensor::{Attention, Tensor};
use gradloom::{Result, Runtime, Session};
use gradloom_core::DType::I32;
use gradloom_core::uop::{AxisKind, Op};
use gradloom_tests::here;

/// Devices and their threads.
const DEVICES: [(&str, usize); 8] =
    [("cpu", 1), ("cpu", 4), ("cpu:avx2", 1), ("cpu:avx2", 2), ("llvm", 1), ("c", 1), ("wgpu", 1), ("eval", 1)];

fn noise(s: &Session, shape: &[usize], seed: usize) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let data: Vec<f32> = (0..n).map(|i| ((i * 7919 + seed * 613) % 1009) as f32 / 252.0 - 2.0).collect();
    Tensor::new(s, &data, shape)
}

/// `column + shift <= row` for each element of a matrix.
fn triangle(s: &Session, rows: usize, cols: usize, shift: i32) -> Result<Tensor> {
    let i = Tensor::arange(s, 0.0, rows as f64, 1.0, I32)?.reshape(&[rows, 1])?;
    let j = Tensor::arange(s, 0.0, cols as f64, 1.0, I32)?.reshape(&[1, cols])?;
    j.add(shift)?.le(i)
}

/// Compares all devices with the graph's value, and says if the first one has a loop with a bound that is computed.
fn check(what: &str, make: impl Fn(&Session) -> Result<Tensor>) -> bool {
    let want = eval(&[&make(&Session::new()).expect("a graph")]).remove(0).values;
    let mut shorter = false;
    for (device, threads) in DEVICES {
        let Some(mut rt) = here::device(device, Runtime::open(device, threads)) else { continue };
        let y = make(&rt.session().clone()).expect("a graph");
        let replay = rt.realize(&[&y]).unwrap_or_else(|e| panic!("{what} on {device}: {e}"));
        let got = rt.to_vec::<f32>(&y).expect("values");
        for (i, (&g, &w)) in got.iter().zip(&want).enumerate() {
            let same =
                f64::from(g) == w || g.is_nan() && w.is_nan() || (f64::from(g) - w).abs() <= 2e-4 * w.abs().max(1.0);
            assert!(same, "{what} on {device}, element {i}: {g} instead of {w}");
        }
        for c in &replay.plan().calls {
            let program = rt.engine().program(c.program).and_then(|p| p.program.clone());
            shorter |= device == "cpu"
                && program.is_some_and(|p| {
                    let computed = |u: &&gradloom_core::uop::UOp| p.g.const_int(p.g.src_at(**u, 0)).is_none();
                    let mut loops =
                        p.order.iter().filter(|u| p.g.op(**u) == Op::Range && p.g.kind(**u) != AxisKind::Grid(0));
                    loops.any(|u| computed(&u))
                });
        }
    }
    shorter
}

#[test]
fn masked_sums_and_maxima() {
    for (rows, cols, shift) in [(64, 64, 0), (70, 70, 1), (33, 100, -20), (100, 37, 5), (48, 96, 60), (1, 64, 0)] {
        let of = format!("{rows}x{cols} shifted by {shift}");
        let masked = |s: &Session, alt: f64| triangle(s, rows, cols, shift)?.select(noise(s, &[rows, cols], 1)?, alt);
        let by = |s: &Session| masked(s, 0.0)?.matmul(&noise(s, &[cols, 40], 2)?);
        check(&format!("a triangle times a matrix, {of}"), by);
        check(&format!("sums, {of}"), |s| masked(s, 0.0)?.sum(&[1], false));
        check(&format!("largest, {of}"), |s| masked(s, f64::NEG_INFINITY)?.max(&[1], false));
        check(&format!("softmax, {of}"), |s| masked(s, f64::NEG_INFINITY)?.softmax(-1));
        check(&format!("log of sums, {of}"), |s| masked(s, f64::NEG_INFINITY)?.logsumexp(&[1], false));
        check(&format!("the other triangle, {of}"), |s| {
            let upper = triangle(s, rows, cols, shift)?.select(0.0, noise(s, &[rows, cols], 1)?)?;
            upper.matmul(&noise(s, &[cols, 24], 3)?)
        });
    }
}

#[test]
fn long_masked_sums_are_shorter() {
    for shift in [0, 3, -200] {
        assert!(check("long sums", |s| noise(s, &[900, 900], 1)?.tril(shift)?.sum(&[1], false)));
    }
}

#[test]
fn causal_attention() {
    for (heads, rows, keys, width) in
        [(2, 64, 64, 16), (1, 70, 70, 32), (2, 33, 80, 17), (2, 80, 48, 16), (3, 96, 96, 24)]
    {
        let of = format!("{heads} heads, {rows} queries, {keys} keys of {width}");
        let parts = |s: &Session| -> Result<[Tensor; 3]> {
            let key = |seed| noise(s, &[1, heads, keys, width], seed);
            Ok([noise(s, &[1, heads, rows, width], 5)?, key(6)?, key(7)?])
        };
        let shorter = check(&of, |s| {
            let [q, k, v] = parts(s)?;
            q.attention(&k, &v, &Attention { causal: true, ..Attention::default() })
        });
        assert!(shorter, "{of}: all blocks are computed");
        // the first queries look at nothing
        check(&format!("{of}, with blind queries"), |s| {
            let [q, k, v] = parts(s)?;
            let mask = triangle(s, rows, keys, 19)?;
            q.attention(&k, &v, &Attention { mask: Some(&mask), ..Attention::default() })
        });
        // scores of NaN and Inf where they count, for one query or for all, in an even and an odd shape
        let odd_values =
            [(f32::NAN, 0), (f32::INFINITY, 3 * width), (f32::NEG_INFINITY, 0), (f32::NAN, width * (rows - 1))];
        for (value, at) in odd_values.into_iter().filter(|_| rows == 64 || rows == 33) {
            check(&format!("{of}, with {value} at {at}"), |s| {
                let [q, k, v] = parts(s)?;
                let mut odd = vec![0f32; heads * rows * width];
                odd[at] = value;
                let q = q.add(&Tensor::new(s, &odd, &[1, heads, rows, width])?)?;
                q.attention(&k, &v, &Attention { causal: true, ..Attention::default() })
            });
        }
    }
}

#[test]
fn lengths_that_are_data_end_loops() {
    // the texts of a batch have lengths of their own, which a buffer holds; some rows see nothing at all
    let attention = |s: &Session| {
        let lens = Tensor::new(s, &[3i32, 50, 97, -60], &[4, 1, 1])?;
        let (q, k, v) = (noise(s, &[4, 40, 16], 1)?, noise(s, &[4, 97, 16], 2)?, noise(s, &[4, 97, 16], 3)?);
        let i = Tensor::arange(s, 0.0, 40.0, 1.0, I32)?.reshape(&[1, 40, 1])?;
        let j = Tensor::arange(s, 0.0, 97.0, 1.0, I32)?.reshape(&[1, 1, 97])?;
        let allowed = j.le(i.add(&lens.maximum(-40)?.minimum(97)?)?)?;
        let scores = q.matmul(&k.permute(&[0, 2, 1])?)?.mul(0.25)?;
        let p = allowed.select(scores, f64::NEG_INFINITY)?.softmax(-1)?;
        let blind = allowed.any(&[2], true)?.logical_not()?;
        blind.select(0.0, p)?.matmul(&v)
    };
    assert!(check("attention of texts with lengths", attention));
    // a length that the kernel itself overwrites is not known before its loops
    let sums = |s: &Session| {
        let n = Tensor::new(s, &[5i32, 40, 64, 0], &[4, 1])?;
        let j = Tensor::arange(s, 0.0, 64.0, 1.0, I32)?.reshape(&[1, 64])?;
        j.lt(n.maximum(0)?.minimum(64)?)?.select(noise(s, &[4, 64], 4)?, 0.0)?.sum(&[1], false)
    };
    check("sums of the first elements", sums);
}

#[test]
fn layers_share_a_mask_and_heads_share_keys() {
    // three layers; in each three heads of queries read the same keys, in the order in which a product stores them
    let (groups, heads, rows, keys, width) = (3, 3, 90, 130, 32);
    let layers = |s: &Session| {
        let len = Tensor::new(s, &[40i32], &[1, 1])?.maximum(0)?.minimum(40)?;
        let i = Tensor::arange(s, 0.0, rows as f64, 1.0, I32)?.reshape(&[rows, 1])?;
        let j = Tensor::arange(s, 0.0, keys as f64, 1.0, I32)?.reshape(&[1, keys])?;
        let allowed = j.le(i.add(&len)?)?;
        let mut x = noise(s, &[rows, groups * heads * width], 1)?;
        for layer in 0..3 {
            let q = x.reshape(&[rows, groups, heads, width])?.permute(&[1, 2, 0, 3])?;
            let [k, v] = [2, 3].map(|seed| noise(s, &[groups, 1, keys, width], seed + 2 * layer));
            let scores = q.matmul(&k?.permute(&[0, 1, 3, 2])?)?.mul(0.17)?;
            let y = allowed.select(scores, f64::NEG_INFINITY)?.softmax(-1)?.matmul(&v?)?;
            x = y.permute(&[2, 0, 1, 3])?.reshape(&[rows, groups * heads * width])?.contiguous();
        }
        Ok(x)
    };
    assert!(check("layers with one mask", layers));
    for target in ["null:wasm", "cpu", "cpu:avx2"] {
        let Some(mut rt) = here::device(target, Runtime::open(target, 1)) else { continue };
        let x = layers(&rt.session().clone()).expect("a graph");
        let kernels = rt.realize(&[&x]).expect("a plan").plan().calls.len();
        assert_eq!(kernels, 3, "{target}: the mask is computed where it is read");
    }
}
