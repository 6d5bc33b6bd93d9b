//! Values of launch variables are checked at every run, on every device: kernels leave out checks that the bounds make needless.

use gradloom::tensor::{Attention, Session, Tensor};
use gradloom::{NativeHost, Result, Runtime};
use gradloom_core::DType;
use gradloom_core::dtype::Scalar;
use gradloom_core::uop::{Op, UOp};
use gradloom_tests::here;

/// The devices of this machine that run in its own memory or take code of it.
fn runtimes() -> Vec<Runtime> {
    ["cpu:guarded", "llvm", "c", "eval"].iter().filter_map(|name| Runtime::open(name, 1).ok()).collect()
}

fn table(rt: &Runtime) -> Tensor {
    let list: Vec<f32> = (0..12).map(|i| i as f32).collect();
    Tensor::new(rt.session(), &list, &[12]).expect("a table")
}

/// Four elements from place `n` of the table.
fn window(rt: &Runtime, min: i32, max: i32) -> Result<Tensor> {
    table(rt).narrow_at(0, &Tensor::variable(rt.session(), "n", min, max)?, 4)?.add(1.0)
}

fn refused(rt: &mut Runtime, t: &Tensor, value: Scalar, what: &str) {
    rt.engine().set_var("n", value);
    let e = rt.realize(&[t]).err().unwrap_or_else(|| panic!("{value:?} ran"));
    assert_eq!(e.code(), "E_INPUT");
    assert!(e.to_string().contains("`n`") && e.to_string().contains(what), "{e}");
}

#[test]
fn values_outside_of_a_variables_bounds_are_refused() {
    for mut rt in runtimes() {
        let y = window(&rt, 0, 8).unwrap();
        assert!(rt.realize(&[&y]).err().is_some_and(|e| e.to_string().contains("no value")));
        for value in [9, 100, -1, -5, 1_000_000_000, 1 << 32, i64::MIN, i64::MAX] {
            refused(&mut rt, &y, Scalar::Int(value), &format!("{value} is outside of the variable's bounds 0..=8"));
        }
        for value in [f64::NAN, f64::INFINITY, 2.5, -1e300] {
            refused(&mut rt, &y, Scalar::float(value), "not a whole number");
        }
        refused(&mut rt, &y, Scalar::float(9.0), "9");
        for (value, want) in [(Scalar::Int(8), 9.0), (Scalar::float(3.0), 4.0)] {
            rt.engine().set_var("n", value);
            let y = window(&rt, 0, 8).unwrap();
            assert_eq!(rt.to_vec::<f32>(&y).unwrap(), [want, want + 1.0, want + 2.0, want + 3.0]);
        }
    }
}

#[test]
fn replays_check_values_too() {
    for mut rt in runtimes() {
        rt.engine().set_var("n", Scalar::Int(2));
        let y = window(&rt, 0, 8).unwrap();
        let replay = rt.realize(&[&y]).unwrap();
        rt.engine().set_var("n", Scalar::Int(400));
        let session = rt.session().clone();
        let again = rt.engine().replay(&mut session.state(), &replay, &Default::default());
        assert_eq!(again.unwrap_err().code(), "E_INPUT");
    }
}

/// One computation may have several variables of one name: the value must suit them all. A kernel that no longer holds the
/// variable, because its bounds decided everything, has its value checked as well.
#[test]
fn every_variable_of_a_name_must_allow_the_value() {
    for mut rt in runtimes() {
        let both = window(&rt, 0, 8).unwrap().add(&window(&rt, -2, 5).unwrap()).unwrap();
        refused(&mut rt, &both, Scalar::Int(6), "6 is outside of the variable's bounds 0..=5");
        refused(&mut rt, &both, Scalar::Int(-1), "0..=5");
        let decided = Tensor::variable(rt.session(), "n", 0, 8).unwrap().lt(9).unwrap();
        refused(&mut rt, &decided, Scalar::Int(20), "0..=8");
        let float = Tensor::variable_f32(rt.session(), "n").add(&both).unwrap();
        refused(&mut rt, &float, Scalar::Int(3), "of f32 and of i32");
    }
}

#[test]
fn plans_out_of_a_cache_keep_the_bounds() {
    let folder = std::env::temp_dir().join(format!("gradloom-variables-{}", std::process::id()));
    for round in 0..2 {
        let Ok(device) = gradloom::open("cpu:guarded", 1) else { return };
        let mut rt = Runtime::with_host(device, NativeHost::with_cache(&folder, 1 << 30));
        let y = window(&rt, 0, 8).unwrap();
        refused(&mut rt, &y, Scalar::Int(100), "0..=8");
        assert_eq!(rt.counters().cache_hits > 0, round == 1, "the second one finds what the first one saved");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn float_variables_take_any_number() {
    for mut rt in runtimes() {
        let x = Tensor::variable_f32(rt.session(), "rate").mul(2.0).unwrap();
        assert_eq!(x.dtype(), DType::F32);
        rt.engine().set_var("rate", Scalar::Int(3));
        assert_eq!(rt.to_vec::<f32>(&x).unwrap(), [6.0]);
    }
}

/// 0, 1, 2 ..
fn counted(s: &Session, n: usize) -> Result<Tensor> {
    Tensor::arange(s, 0.0, n as f64, 1.0, DType::I32)
}

/// The buffer that a tensor is.
fn buffer(t: &Tensor) -> Option<u32> {
    let state = t.session().state();
    state.graph.reachable(&[state.node(t.root())]).into_iter().find_map(|u| state.buffer_id(u))
}

/// One step of attention over a cache of keys and values that grows by `rows` at the variable `position`.
struct Step {
    inputs: [Tensor; 3],
    caches: [Tensor; 2],
}

const KV_HEADS: usize = 2;
const WIDTH: usize = 16;

impl Step {
    fn new(s: &Session, group: usize, rows: usize, room: usize) -> Result<Step> {
        let empty = |heads: usize| Tensor::zeros(s, DType::F32, &[heads, rows, WIDTH])?.to_storage();
        let inputs = [empty(KV_HEADS * group)?, empty(KV_HEADS)?, empty(KV_HEADS)?];
        let cache = || Tensor::full(s, 1e30, DType::F32, &[KV_HEADS, room, WIDTH])?.to_storage();
        Ok(Step { inputs, caches: [cache()?, cache()?] })
    }

    fn graph(
        s: &Session,
        rows: usize,
        room: usize,
        [q, k, v]: &[Tensor; 3],
        [keys, values]: &[Tensor; 2],
    ) -> Result<Tensor> {
        let position = Tensor::variable(s, "position", 0, (room - rows) as i32)?;
        let at = counted(s, rows)?.add(&position)?;
        keys.assign_at(1, &at, k)?;
        values.assign_at(1, &at, v)?;
        let seen = counted(s, room)?.le(at.reshape(&[rows, 1])?)?;
        // rows to come hold huge numbers: the mask alone keeps them out
        q.attention(keys, values, &Attention { mask: Some(&seen), ..Attention::default() })
    }

    /// The same of all steps so far, with plain loops.
    fn want(history: &[[Vec<f32>; 3]], group: usize, rows: usize) -> Vec<f64> {
        let last = &history[history.len() - 1][0];
        let row = |list: usize, head: usize, at: usize| {
            &history[at / rows][list][(head * rows + at % rows) * WIDTH..][..WIDTH]
        };
        let mut out = Vec::new();
        for h in 0..KV_HEADS * group {
            for r in 0..rows {
                let q = &last[(h * rows + r) * WIDTH..][..WIDTH];
                let n = (history.len() - 1) * rows + r + 1;
                let dot = |k: &[f32]| q.iter().zip(k).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() / 4.0;
                let scores: Vec<f64> = (0..n).map(|at| dot(row(1, h / group, at)).exp()).collect();
                let all: f64 = scores.iter().sum();
                for c in 0..WIDTH {
                    out.push((0..n).map(|at| scores[at] * f64::from(row(2, h / group, at)[c])).sum::<f64>() / all);
                }
            }
        }
        out
    }
}

fn values(step: usize, which: usize, n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + which * 613 + step * 4241) % 1009) as f32 / 252.0 - 2.0).collect()
}

/// A decoder's steps: one plan and one set of kernels for all lengths of the cache, of which only the new rows are written. So many
/// queries share keys. Gives the launches of a step, and whether one has a loop whose end is computed.
fn grows(device: &str, group: usize, rows: usize, room: usize, steps: usize) -> Option<(usize, bool)> {
    let mut rt = here::device(device, Runtime::open(device, 2))?;
    let s = rt.session().clone();
    let step = Step::new(&s, group, rows, room).expect("a graph");
    rt.realize(&step.caches.iter().collect::<Vec<_>>()).expect("caches");
    let mut first = None;
    let mut history: Vec<[Vec<f32>; 3]> = Vec::new();
    let mut compiled = 0;
    for i in 0..steps {
        rt.engine().set_var("position", Scalar::Int((i * rows) as i64));
        let data = [0, 1, 2].map(|w| values(i, w, step.inputs[w].numel()));
        history.push(data.clone());
        let got = match &first {
            None => {
                for (t, v) in step.inputs.iter().zip(&data) {
                    t.assign(Tensor::new(&s, v, &t.shape()).expect("rows")).expect("rows fit");
                }
                rt.realize(&step.inputs.iter().collect::<Vec<_>>()).expect("inputs");
                let graph = Step::graph(&s, rows, room, &step.inputs, &step.caches).expect("a graph");
                let all = [&graph, &step.caches[0], &step.caches[1]];
                let replay = rt.realize(&all).unwrap_or_else(|e| panic!("{device}: {e}"));
                first = Some(replay);
                rt.to_vec::<f32>(&graph).expect("values")
            }
            Some(replay) => {
                for (t, v) in step.inputs.iter().zip(&data) {
                    let bytes: Vec<u8> = v.iter().flat_map(|x| x.to_le_bytes()).collect();
                    let id = buffer(t).expect("a buffer");
                    rt.engine().write(&mut s.state(), id, &bytes).expect("written");
                }
                let out = rt.engine().replay(&mut s.state(), replay, &Default::default()).expect("runs");
                let y = Tensor::from_node(&s, out[0]);
                rt.to_vec::<f32>(&y).expect("values")
            }
        };
        for (at, (g, w)) in got.iter().zip(Step::want(&history, group, rows)).enumerate() {
            assert!((f64::from(*g) - w).abs() < 1e-5, "{device}, {rows} rows, step {i}, element {at}: {g}, not {w}");
        }
        match i {
            1 => compiled = rt.counters().programs,
            _ => assert!(i == 0 || rt.counters().programs == compiled, "{device}: step {i} compiled kernels"),
        }
    }
    let calls = first?.plan().calls.clone();
    let bounded = calls.iter().any(|c| {
        let program = rt.engine().program(c.program).and_then(|p| p.program.clone());
        program.is_some_and(|p| {
            let computed = |u: &UOp| p.g.op(*u) == Op::Range && p.g.const_int(p.g.src_at(*u, 0)).is_none();
            p.order.iter().any(computed)
        })
    });
    Some((calls.len(), bounded))
}

#[test]
fn a_cache_of_keys_grows_without_new_kernels() {
    for device in ["cpu:guarded", "cpu:avx2", "llvm", "c", "vulkan", "wgpu", "eval"] {
        for group in [1, 2] {
            grows(device, group, 1, 70, 40);
            grows(device, group, 5, 100, 20);
        }
    }
}

/// A step writes a row of keys and one of values, and one kernel goes through the keys that there are.
#[test]
#[cfg(target_arch = "x86_64")]
fn attention_of_a_token_ends_where_the_text_does() {
    for group in [1, 2] {
        assert_eq!(grows("cpu", group, 1, 512, 500), Some((2, true)), "{group} queries share keys");
    }
}

#[test]
fn rows_are_assigned_where_an_index_says() {
    for device in ["cpu:guarded", "llvm", "c", "vulkan", "wgpu", "eval"] {
        let Some(mut rt) = here::device(device, Runtime::open(device, 1)) else { continue };
        let s = rt.session().clone();
        let t = Tensor::zeros(&s, DType::F32, &[2, 6, 3]).unwrap().to_storage().unwrap();
        rt.realize(&[&t]).unwrap();
        let before = buffer(&t);
        // 9 is out of range, -1 the last row
        let index = Tensor::new(&s, &[4i64, 9, -1, 0], &[4]).unwrap();
        let rows: Vec<f32> = (1..=24).map(|i| i as f32).collect();
        t.assign_at(1, &index, Tensor::new(&s, &rows, &[2, 4, 3]).unwrap()).unwrap();
        let sums = t.sum(&[-1], false).unwrap();
        t.assign_at(-1, &counted(&s, 1).unwrap().add(1).unwrap(), 100).unwrap();
        assert_eq!(
            rt.to_vec::<f32>(&sums).unwrap(),
            [33.0, 0.0, 0.0, 0.0, 6.0, 24.0, 69.0, 0.0, 0.0, 0.0, 42.0, 60.0],
            "{device}: what was computed before the second assign"
        );
        let got = rt.to_vec::<f32>(&t).unwrap();
        let want = [
            10.0, 100.0, 12.0, 0.0, 100.0, 0.0, 0.0, 100.0, 0.0, 0.0, 100.0, 0.0, 1.0, 100.0, 3.0, 7.0, 100.0, 9.0,
            22.0, 100.0, 24.0, 0.0, 100.0, 0.0, 0.0, 100.0, 0.0, 0.0, 100.0, 0.0, 13.0, 100.0, 15.0, 19.0, 100.0, 21.0,
        ];
        assert_eq!(got, want, "{device}");
        assert_eq!(buffer(&t), before, "{device}: in place");
        let e = t.assign_at(1, &sums, 1).unwrap_err();
        assert!(e.to_string().contains("assign_at"), "{e}");
        assert_eq!(t.assign_at(3, &index, 1).unwrap_err().code(), "E_AXIS");
        assert_eq!(
            t.assign_at(1, &index, Tensor::zeros(&s, DType::F32, &[2, 3, 3]).unwrap()).unwrap_err().code(),
            "E_SHAPE"
        );
    }
}
