//! The numeric contract: what operators give at the edges of their types, on every device that is here, against torch's values and
//! onnxruntime's (`src/numerics.rs`).
//!
//! With `BLESS=1`, `docs/numerics.md` is written from what was measured (`npm run numerics`).

use gradloom::{OnnxModel, Runtime};
use gradloom_core::dtype::Scalar;
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::Model;
use gradloom_core::tensor::call::{Value, call};
use gradloom_core::{DType, Result, Tensor};
use gradloom_tests::here;
use gradloom_tests::numerics::{EDGES, Grid, Measured, Tally};
use gradloom_tests::programs::powers;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const DEVICES: [&str; 6] = ["eval", "cpu", "cpu:avx2", "llvm", "c", "wgpu"];

/// By operator and type, of each device.
type Table = BTreeMap<(String, String), BTreeMap<String, Measured>>;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(rt: &mut Runtime, t: &Tensor) -> Result<Vec<f64>> {
    Ok(rt.read(t)?.to_f64())
}

#[test]
fn edges_of_every_type_are_as_the_contract_says() {
    let grid = Grid::read();
    let mut used = vec![0usize; grid.rules.len()];
    let mut tables = [Table::new(), Table::new()];
    let (mut failures, mut devices) = (Vec::new(), Vec::new());
    for device in DEVICES {
        let Some(mut rt) = here::device(device, Runtime::open(device, 1)) else { continue };
        devices.push(device.to_string());
        let s = rt.session().clone();
        let made: Vec<Result<Vec<Tensor>>> = grid.cases.iter().map(|c| grid.outputs(&s, c)).collect();
        let all: Vec<&Tensor> = made.iter().flatten().flatten().collect();
        // at once where that works: compilers start seldom then
        _ = rt.realize(&all);
        let mut torch = Tally::new(&grid, device);
        for (case, outs) in grid.cases.iter().zip(&made) {
            let got = match outs {
                Ok(outs) => outs.iter().map(|t| rt.read(t)).collect::<Result<Vec<_>>>(),
                Err(e) => Err(e.clone()),
            };
            torch.case(case, got);
        }
        let mut onnx = Tally::new(&grid, device);
        let mut model = OnnxModel::new(Model::parse(EDGES.to_vec()).unwrap(), gradloom::open(device, 1).unwrap());
        let inputs: Vec<(&str, HostTensor)> = grid.edge_inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        onnx.edges(&model.run(&inputs).unwrap());
        for (tally, table) in [torch, onnx].into_iter().zip(&mut tables) {
            used.iter_mut().zip(&tally.used).for_each(|(all, n)| *all += n);
            failures.extend(tally.failures);
            tally.table.into_iter().for_each(|(k, m)| _ = table.entry(k).or_default().insert(device.to_string(), m));
        }
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(folder("../docs/numerics.md"), document(&tables, &devices, &grid)).expect("docs is there");
    }
    if let Some(file) = std::env::var_os("NUMERICS_LOG") {
        std::fs::write(file, failures.join("\n")).expect("a file for the list");
    }
    let first: Vec<&String> = failures.iter().take(40).collect();
    assert!(failures.is_empty(), "{} differences that are not listed:\n{first:#?}", failures.len());
    let idle: Vec<&str> =
        grid.rules.iter().zip(&used).filter(|(_, n)| **n == 0).filter_map(|(r, _)| r.everywhere()).collect();
    assert!(idle.is_empty(), "differences.txt has lines that nothing needs: {idle:#?}");
}

/// Functions that are made of steps; a 16-bit float goes through them in f32.
const COMPOSED: &str = "exp expm1 log log10 log1p asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid
    nn.functional.silu nn.functional.gelu nn.functional.softplus nn.functional.logsigmoid nn.functional.mish
    nn.functional.elu";

#[test]
fn functions_of_sixteen_bit_floats_round_once() {
    for device in DEVICES {
        let Some(mut rt) = here::device(device, Runtime::open(device, 1)) else { continue };
        let s = rt.session().clone();
        // every magnitude that both types have, and neighbours of 1
        let values: Vec<f32> = (-24..=15)
            .flat_map(|e| [1.0f32, 1.0009766, 1.4345703, 1.9990234].map(|m| m * 2f32.powi(e)))
            .flat_map(|v| [v, -v])
            .collect();
        for dt in [DType::F16, DType::BF16] {
            let x = Tensor::new(&s, &values, &[values.len()]).unwrap().cast(dt).unwrap();
            let wide = x.cast(DType::F32).unwrap();
            let of = |op: &str, x: &Tensor| call(&s, op, &[Value::Tensor(x.clone())], &[]).unwrap().swap_remove(0);
            let pairs: Vec<[Tensor; 2]> = COMPOSED
                .split_whitespace()
                .map(|op| [of(op, &x), of(op, &wide).cast(dt).unwrap()].map(|t| t.cast(DType::F32).unwrap()))
                .collect();
            _ = rt.realize(&pairs.iter().flatten().collect::<Vec<_>>());
            for (op, pair) in COMPOSED.split_whitespace().zip(&pairs) {
                let [got, want] = [&pair[0], &pair[1]].map(|t| read(&mut rt, t).unwrap());
                for ((g, w), x) in got.iter().zip(&want).zip(&values) {
                    assert!(g == w || g.is_nan() && w.is_nan(), "{device}: {op} of {dt} {x}: {g}, {w} wanted");
                }
            }
        }
    }
}

/// By how many units in the last place of f32 two numbers differ.
fn f32_ulps(got: f64, want: f64) -> f64 {
    if got == want || got.is_nan() && want.is_nan() {
        return 0.0;
    }
    let exponent = want.abs().log2().floor().clamp(-126.0, 127.0) as i32;
    (got - want).abs() / 2f64.powi(exponent - 23)
}

#[test]
fn powers_are_within_two_units_in_the_last_place() {
    for device in DEVICES {
        let Some(mut rt) = here::device(device, Runtime::open(device, 1)) else { continue };
        let s = rt.session().clone();
        let (mut xs, mut ys) = (Vec::new(), Vec::new());
        for (x, y) in powers() {
            let lost = [x, y, f64::from(x).powf(f64::from(y)) as f32].iter().any(|v| v.is_subnormal());
            if !(device == "wgpu" && lost) {
                xs.push(x);
                ys.push(y);
            }
        }
        let (x, y) = (Tensor::new(&s, &xs, &[xs.len()]).unwrap(), Tensor::new(&s, &ys, &[xs.len()]).unwrap());
        // of two tensors, of known exponents, of a known base; gelu's, a norm's and some without a name
        let known = [0.75, -0.75, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 50.0, -1.0, -2.0, -3.0, -7.5, 1.0 / 3.0];
        type F = Box<dyn Fn(f64, f64) -> f64>;
        let mut all: Vec<(String, Tensor, F)> = vec![("x^y".into(), x.pow(&y).unwrap(), Box::new(f64::powf))];
        for n in known {
            let n32 = f64::from(n as f32);
            all.push((format!("x^{n}"), x.pow(n).unwrap(), Box::new(move |x, _| x.powf(n32))));
        }
        for base in [2.0, 10.0, 0.9] {
            let b32 = f64::from(base as f32);
            let t = Tensor::full(&s, base, DType::F32, &[xs.len()]).unwrap().pow(&y).unwrap();
            all.push((format!("{base}^y"), t, Box::new(move |_, y| b32.powf(y))));
        }
        for (name, t, f) in &all {
            for ((g, x), y) in read(&mut rt, t).unwrap().into_iter().zip(&xs).zip(&ys) {
                let want = f(f64::from(*x), f64::from(*y));
                if device == "wgpu" && ((want as f32).is_subnormal() || g.abs() < f64::from(f32::MIN_POSITIVE)) {
                    continue;
                }
                let (nearest, off) = (f64::from(want as f32), f32_ulps(g, want));
                // a shader's reciprocals are within 2.5 units
                let limit = if device == "wgpu" && name.starts_with("x^-") { 6.0 } else { 2.0 };
                assert!(
                    off <= limit || g == nearest,
                    "{device}: {name} of {x:e}, {y:e}: {g:e}, {want:e} wanted ({off} ulp)"
                );
            }
        }
    }
}

#[test]
fn means_of_sixteen_bit_floats_do_not_overflow() {
    for device in DEVICES {
        let Some(mut rt) = here::device(device, Runtime::open(device, 1)) else { continue };
        let s = rt.session().clone();
        // neither the count nor the sum is a number of the type
        let n = 70_000;
        let x = Tensor::full(&s, 3.0, DType::F16, &[2, n]).unwrap().contiguous();
        let large = Tensor::full(&s, 60000.0, DType::F16, &[2, 8]).unwrap().contiguous();
        let pool = gradloom_core::tensor::PoolOpts::new(&[8]);
        let of = [
            (x.mean(&[-1], false).unwrap(), 3.0),
            (x.var(&[-1], 0, false).unwrap(), 0.0),
            (x.softmax(-1).unwrap().narrow(1, 0, 1).unwrap(), half(1.0 / n as f64)),
            (large.mean(&[-1], false).unwrap(), 60000.0),
            (large.avg_pool(&pool).unwrap(), 60000.0),
            (large.adaptive_avg_pool(&[3]).unwrap(), 60000.0),
            (large.standardize(&[-1], 1e-5).unwrap(), 0.0),
        ];
        for (i, (t, want)) in of.iter().enumerate() {
            let got = read(&mut rt, t).unwrap();
            assert!(got.iter().all(|g| g == want), "{device}: result {i} is {}, {want} wanted", got[0]);
        }
    }
}

fn half(v: f64) -> f64 {
    Scalar::from_f64(v, DType::F16).as_f64_of(DType::F16)
}

/// What was measured on devices of JavaScript hosts (`tests/lib/numerics.mjs`): their names, and their cells by `torch` or `onnx`,
/// operator and type.
fn hosts() -> (Vec<String>, BTreeMap<[String; 3], Vec<String>>) {
    let text = std::fs::read_to_string(folder("fixtures/numerics/hosts.txt")).expect("the columns of other hosts");
    let mut rows = text.lines().map(|l| {
        let mut key: Vec<String> = l.split('\t').map(str::to_string).collect();
        let cells = key.split_off(3);
        (<[String; 3]>::try_from(key).expect("three fields of a row's name"), cells)
    });
    (rows.next().expect("a line of titles").1, rows.collect())
}

/// `docs/numerics.md`.
fn document(tables: &[Table; 2], devices: &[String], grid: &Grid) -> String {
    let (hosts, elsewhere) = hosts();
    let none = vec![String::new(); hosts.len()];
    let mut out = std::fs::read_to_string(folder("fixtures/numerics/contract.md")).expect("the contract's text");
    out.push_str("\n## What may differ\n\n| device | operators | types | when | why |\n|---|---|---|---|---|\n");
    grid.rules.iter().for_each(|r| _ = writeln!(out, "{}", r.row()));
    out.push_str("\n## As measured\n\n");
    out.push_str("The largest distance from the wanted value in units in the last place over the edge values; `=` where every \
        result is the wanted one, bit for bit (of NaN any will do); `+ n` where n more results differ as listed above; `-` where \
        the device has no such operator on that type.\n\n");
    let titles = ["Operators of the frontend, against torch", "ONNX operators, against onnxruntime"];
    for ((title, kind), table) in titles.iter().zip(["torch", "onnx"]).zip(tables) {
        let _ = write!(out, "### {title}\n\n| operator | of |");
        devices.iter().chain(&hosts).for_each(|d| _ = write!(out, " {d} |"));
        let _ = writeln!(out, "\n|---|---|{}", "---|".repeat(devices.len() + hosts.len()));
        for ((op, dtype), row) in table {
            let _ = write!(out, "| {} | {dtype} |", op.trim_start_matches("nn.functional."));
            for d in devices {
                let _ = write!(out, " {} |", row.get(d).map_or(String::new(), Measured::cell));
            }
            let key = [kind, op, dtype].map(str::to_string);
            elsewhere.get(&key).unwrap_or(&none).iter().for_each(|cell| _ = write!(out, " {cell} |"));
            out.push('\n');
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len() + 1);
    out
}
