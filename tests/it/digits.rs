//! Layers whose loops are split by the digits of their indices, or that go another way than their definition says, on every device
//! beside the definition as plain loops: transposed, grouped and depthwise convolutions, pixel shuffles, padded convolutions,
//! large pools, and the few largest of a row.

use gradloom::tensor::{ConvOpts, ConvTransposeOpts, PoolOpts, Tensor};
use gradloom::{Result, Runtime, Session};
use gradloom_tests::here;

const DEVICES: [&str; 6] = ["cpu:guarded", "cpu:avx2", "c", "llvm", "wgpu", "wgpu:hardware"];

/// Small whole numbers, so that sums are exact in any order.
fn values(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + seed * 104729 + i / 7) % 17) as f32 - 8.0).collect()
}

/// Compares what `build` gives on each device with `want`.
fn check(name: &str, want: &[f32], build: impl Fn(&Session) -> Result<Tensor>) {
    check_within(0.0, name, want, build);
}

/// The same up to a difference.
fn check_within(slack: f32, name: &str, want: &[f32], build: impl Fn(&Session) -> Result<Tensor>) {
    for device in DEVICES {
        let Some(mut rt) = here::device(device, Runtime::open(device, 2)) else { continue };
        let y = build(rt.session()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let got = rt.to_vec::<f32>(&y).unwrap_or_else(|e| panic!("{name} on {device}: {e}"));
        let wrong = got.iter().zip(want).position(|(a, b)| a != b && !((a - b).abs() <= slack));
        assert!(got.len() == want.len() && wrong.is_none(), "{name} on {device}: element {wrong:?}");
    }
}

#[test]
fn transposed_convolutions() {
    // taps, stride, padding, output padding, dilation
    let cases = [
        (2, 2, 0, 0, 1),
        (3, 2, 1, 0, 1),
        (5, 2, 2, 0, 1),
        (4, 2, 1, 0, 1),
        (3, 2, 1, 1, 1),
        (3, 2, 0, 0, 1),
        (5, 3, 2, 1, 1),
        (4, 3, 0, 2, 1),
        (2, 4, 1, 0, 1),
        (3, 2, 2, 0, 3),
        (3, 2, 0, 0, 2),
    ];
    let few = cases.into_iter().map(|case| (case, (3, 5, 6, 7)));
    // with so many channels most may be products first, which are added where they overlap
    let many = cases.into_iter().map(|case| (case, (64, 3, 4, 5)));
    let large = [
        (cases[1], (24, 32, 14, 14)),
        (cases[2], (8, 20, 9, 21)),
        (cases[4], (64, 12, 7, 9)),
        ((9, 3, 4, 2, 1), (32, 1, 5, 6)),
    ];
    for ((taps, stride, pad, extra, dilation), (ci, co, h, w)) in few.chain(many).chain(large) {
        let (x, k) = (values(ci * h * w, 1), values(ci * co * taps * taps, 2));
        let out = |n: usize| (n - 1) * stride + dilation * (taps - 1) + extra + 1 - 2 * pad;
        let (oh, ow) = (out(h), out(w));
        let mut want = vec![0.0; co * oh * ow];
        for c in 0..ci {
            for o in 0..co {
                for (i, j) in (0..h * w).map(|p| (p / w, p % w)) {
                    for (a, b) in (0..taps * taps).map(|p| (p / taps, p % taps)) {
                        let (r, s) = (i * stride + a * dilation, j * stride + b * dilation);
                        if (pad..oh + pad).contains(&r) && (pad..ow + pad).contains(&s) {
                            want[(o * oh + r - pad) * ow + s - pad] +=
                                x[(c * h + i) * w + j] * k[((c * co + o) * taps + a) * taps + b];
                        }
                    }
                }
            }
        }
        for first in [false, true] {
            let name = format!("{taps} taps, stride {stride}, padding {pad}, dilation {dilation}, {first}");
            check(&name, &want, |s| {
                s.state().products_before_taps = first;
                let conv = ConvOpts {
                    stride: vec![stride],
                    padding: vec![(pad as i64, pad as i64)],
                    dilation: vec![dilation],
                    ..ConvOpts::default()
                };
                let opts = ConvTransposeOpts { conv, output_padding: vec![extra] };
                Tensor::new(s, &x, &[1, ci, h, w])?.conv_transpose(
                    &Tensor::new(s, &k, &[ci, co, taps, taps])?,
                    None,
                    &opts,
                )
            });
        }
    }
}

#[test]
fn transposed_convolutions_of_groups_and_batches() {
    let (batch, groups, ci, co, n) = (2, 3, 64, 2, 7);
    for (taps, stride, pad) in [(3, 2, 1), (5, 3, 0), (4, 4, 0), (1, 2, 0)] {
        let (x, k) = (values(batch * groups * ci * n, 1), values(groups * ci * co * taps, 2));
        let out = (n - 1) * stride + taps - 2 * pad;
        let mut want = vec![0.0; batch * groups * co * out];
        for (b, c) in (0..batch * groups * ci).map(|p| (p / (groups * ci), p % (groups * ci))) {
            for (o, i, a) in (0..co * n * taps).map(|p| (p / (n * taps), p / taps % n, p % taps)) {
                let at = i * stride + a;
                if (pad..out + pad).contains(&at) {
                    let row = (b * groups + c / ci) * co + o;
                    want[row * out + at - pad] += x[(b * groups * ci + c) * n + i] * k[(c * co + o) * taps + a];
                }
            }
        }
        check(&format!("{taps} taps, stride {stride}, {groups} groups"), &want, |s| {
            s.state().products_before_taps = true;
            let conv = ConvOpts::new().stride(&[stride]).padding(&[pad]).groups(groups);
            let opts = ConvTransposeOpts { conv, output_padding: Vec::new() };
            let k = Tensor::new(s, &k, &[groups * ci, co, taps])?;
            Tensor::new(s, &x, &[batch, groups * ci, n])?.conv_transpose(&k, None, &opts)
        });
    }
}

/// A convolution `[1, ci, n, n] * [co, ci/groups, k, k]` of padding `pad`.
fn convolved(x: &[f32], w: &[f32], ci: usize, co: usize, n: usize, k: usize, pad: usize, groups: usize) -> Vec<f32> {
    let (m, part) = (n + 2 * pad - k + 1, ci / groups);
    let mut out = vec![0.0; co * m * m];
    for (o, at) in (0..co * m * m).map(|i| (i / (m * m), i % (m * m))) {
        for c in 0..part {
            for (a, b) in (0..k * k).map(|p| (p / k, p % k)) {
                let (r, s) = (at / m + a, at % m + b);
                if (pad..n + pad).contains(&r) && (pad..n + pad).contains(&s) {
                    let from = o / (co / groups) * part + c;
                    out[o * m * m + at] += x[(from * n + r - pad) * n + s - pad] * w[((o * part + c) * k + a) * k + b];
                }
            }
        }
    }
    out
}

#[test]
fn grouped_and_padded_convolutions() {
    for (ci, co, n, k, pad, groups) in
        [(8, 12, 7, 3, 1, 2), (6, 6, 9, 5, 4, 3), (16, 48, 20, 5, 4, 1), (4, 40, 33, 4, 3, 1)]
    {
        let (x, w) = (values(ci * n * n, 3), values(co * ci / groups * k * k, 4));
        let want = convolved(&x, &w, ci, co, n, k, pad, groups);
        check(&format!("{ci} to {co} channels in {groups} groups"), &want, |s| {
            let opts = ConvOpts { padding: vec![(pad as i64, pad as i64)], groups, ..ConvOpts::default() };
            Tensor::new(s, &x, &[1, ci, n, n])?.conv(&Tensor::new(s, &w, &[co, ci / groups, k, k])?, None, &opts)
        });
    }
}

#[test]
fn shuffled_pixels_of_a_convolution() {
    let (ci, c, n, k) = (5, 6, 10, 3);
    let (x, w) = (values(ci * n * n, 5), values(4 * c * ci * k * k, 6));
    let y = convolved(&x, &w, ci, 4 * c, n, k, 1, 1);
    let mut want = vec![0.0; y.len()];
    for (o, r, s) in (0..y.len()).map(|i| (i / (n * n), i / n % n, i % n)) {
        let (own, up, left) = (o / 4, o / 2 % 2, o % 2);
        want[(own * 2 * n + 2 * r + up) * 2 * n + 2 * s + left] = y[(o * n + r) * n + s];
    }
    check("a pixel shuffle", &want, |s| {
        let opts = ConvOpts { padding: vec![(1, 1)], ..ConvOpts::default() };
        let y = Tensor::new(s, &x, &[1, ci, n, n])?.conv(&Tensor::new(s, &w, &[4 * c, ci, k, k])?, None, &opts)?;
        y.reshape(&[c, 2, 2, n, n])?.permute(&[0, 3, 1, 4, 2])?.reshape(&[1, c, 2 * n, 2 * n])
    });
}

#[test]
fn large_pools() {
    for (n, k, stride, pad) in [(21, 7, 1, 3), (20, 5, 2, 2), (24, 6, 3, 0)] {
        let x = values(2 * n * n, 7);
        let m = (n + 2 * pad - k) / stride + 1;
        let best = |i: usize| {
            let (c, r, s) = (i / (m * m), i / m % m * stride, i % m * stride);
            let window = (0..k * k).map(|p| (r + p / k, s + p % k));
            let inside = window.filter(|&(r, s)| (pad..n + pad).contains(&r) && (pad..n + pad).contains(&s));
            inside.map(|(r, s)| x[(c * n + r - pad) * n + s - pad]).fold(f32::NEG_INFINITY, f32::max)
        };
        let want: Vec<f32> = (0..2 * m * m).map(best).collect();
        check(&format!("windows of {k}, stride {stride}"), &want, |s| {
            Tensor::new(s, &x, &[1, 2, n, n])?.max_pool(&PoolOpts::new(&[k, k]).stride(&[stride]).padding(&[pad]))
        });
    }
}

#[test]
fn averages_of_large_windows() {
    for (n, k, stride, pad) in [(21, 7, 1, 3), (24, 9, 2, 2), (26, 8, 3, 0), (19, 5, 1, 2)] {
        let x = values(2 * n * n, 9);
        for (ceil_mode, count_include_pad) in [(false, false), (false, true), (true, false), (true, true)] {
            let reach = n + 2 * pad - k;
            let more = ceil_mode && reach % stride != 0 && (reach / stride + 1) * stride < n + pad;
            let m = reach / stride + 1 + usize::from(more);
            let mean = |i: usize| {
                let (c, r, s) = (i / (m * m), i / m % m * stride, i % m * stride);
                let window = (0..k * k).map(|p| (r + p / k, s + p % k));
                let inside = |&(r, s): &(usize, usize)| (pad..n + pad).contains(&r) && (pad..n + pad).contains(&s);
                let asked = |&(r, s): &(usize, usize)| r < n + 2 * pad && s < n + 2 * pad;
                let count = window.clone().filter(|p| if count_include_pad { asked(p) } else { inside(p) }).count();
                let sum: f64 = window.filter(inside).map(|(r, s)| f64::from(x[(c * n + r - pad) * n + s - pad])).sum();
                (sum / count as f64) as f32
            };
            let want: Vec<f32> = (0..2 * m * m).map(mean).collect();
            let what = format!("windows of {k}, stride {stride}, ceil {ceil_mode}, padding counts {count_include_pad}");
            // quotients are rounded
            check_within(1e-5, &what, &want, |s| {
                let opts = PoolOpts { ceil_mode, count_include_pad, ..PoolOpts::new(&[k, k]) };
                Tensor::new(s, &x, &[1, 2, n, n])?.avg_pool(&opts.stride(&[stride]).padding(&[pad]))
            });
        }
    }
}

/// Maps as small as windows, whose vectors are partly empty, or run along the channels; borders that tiles share and that they do not.
#[test]
fn depthwise_convolutions() {
    // channels, side, taps, stride, padding
    let cases = [
        (40, 7, 7, 1, 3),
        (37, 7, 5, 1, 2),
        (48, 14, 5, 2, 2),
        (20, 14, 7, 1, 3),
        (16, 13, 3, 2, 1),
        (3, 31, 7, 1, 3),
        (4, 40, 5, 1, 0),
        (2, 33, 3, 1, 1),
        (33, 4, 5, 1, 2),
    ];
    for (c, n, taps, stride, pad) in cases {
        let (x, k) = (values(2 * c * n * n, 9), values(c * taps * taps, 4));
        let m = (n + 2 * pad - taps) / stride + 1;
        let sum = |i: usize| {
            let (map, r, s) = (i / (m * m), i / m % m * stride, i % m * stride);
            let window = (0..taps * taps).map(|p| (p, r + p / taps, s + p % taps));
            let inside = window.filter(|&(_, r, s)| (pad..n + pad).contains(&r) && (pad..n + pad).contains(&s));
            let at = |r: usize, s: usize| x[(map * n + r - pad) * n + s - pad];
            inside.map(|(p, r, s)| at(r, s) * k[map % c * taps * taps + p]).sum()
        };
        let want: Vec<f32> = (0..2 * c * m * m).map(sum).collect();
        check(&format!("{c} maps of {n}, {taps} taps, stride {stride}, padding {pad}"), &want, |s| {
            let opts = ConvOpts::new().groups(c).stride(&[stride]).padding(&[pad]);
            Tensor::new(s, &x, &[2, c, n, n])?.conv(&Tensor::new(s, &k, &[c, 1, taps, taps])?, None, &opts)
        });
    }
}

#[test]
fn the_few_largest() {
    // two are enough for groups, and for one after the other in short rows; then dozens: by groups, of short rows and of long ones, and by the
    // bits of the last one, which are sorted by rank and by digits
    let few = [(3, 100, 5), (2, 700, 16), (1, 3000, 2), (9, 1000, 3), (260, 33, 5)];
    let dozens = [(6, 453, 40), (3, 2000, 20), (2, 1989, 33), (1, 5000, 700)];
    // many kernels each, which takes a compiler of C long: each of the dozens one way
    let dozens = dozens.into_iter().enumerate().map(|(i, case)| (case, vec![i % 2 == 0]));
    for ((rows, n, k), ways) in few.into_iter().map(|case| (case, vec![true, false])).chain(dozens) {
        for largest in ways {
            // many are equal, some are NaN, which counts as largest
            let x: Vec<f32> = values(rows * n, 8).iter().map(|&v| if v == 8.0 { f32::NAN } else { v }).collect();
            let key = |v: f32| if v.is_nan() { f32::INFINITY } else { v };
            let mut want = Vec::new();
            for r in 0..rows {
                let mut order: Vec<usize> = (0..n).collect();
                let at = |i: usize| key(x[r * n + i]);
                order.sort_by(|&i, &j| if largest { at(j).total_cmp(&at(i)) } else { at(i).total_cmp(&at(j)) });
                want.extend(order[..k].iter().map(|&i| i as f32));
            }
            check(&format!("{k} of {n}, the largest: {largest}"), &want, |s| {
                Tensor::new(s, &x, &[rows, n])?.topk(k, 1, largest)?.1.cast(gradloom_core::DType::F32)
            });
        }
    }
}
