//! Tests of whole runs on the reference device: builds that stop for values, and random numbers; also of reports and
//! comparisons.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::build_tests::{constant, f32s, file, i64s, int, node, parse, port, subgraph};
use super::tensor::NoExternalData;
use super::*;
use crate::device::eval::EvalDevice;
use crate::dtype::DType;
use crate::engine::{Bytes, Engine};
use crate::error::{Error, Result};
use crate::interrupt::{Go, Interrupt};
use crate::io::HostTensor;
use crate::tensor::{Session, Tensor};

/// A model on the reference device.
struct Ran {
    engine: Engine,
    runner: Runner,
}

impl Ran {
    fn new(parts: &[Vec<u8>]) -> Ran {
        let runner = Runner::new(Arc::new(parse(parts).unwrap()), &Session::new());
        Ran { engine: Engine::new(Box::new(EvalDevice::default())), runner }
    }

    fn run(&mut self, inputs: &[(&str, HostTensor)]) -> Result<Vec<HostTensor>> {
        let run = self.runner.begin(&mut self.engine, inputs)?;
        self.finish(run)?.iter().map(|t| self.read(t)).collect()
    }

    fn run_on(&mut self, inputs: Vec<(&str, Input)>) -> Result<Vec<Tensor>> {
        let inputs = self.runner.inputs(inputs)?;
        let run = self.runner.begin_on(&mut self.engine, &inputs)?;
        self.finish(run)
    }

    fn finish(&mut self, mut run: Run) -> Result<Vec<Tensor>> {
        loop {
            while !self.runner.ready(&mut self.engine, &mut run)? {}
            if let Some(out) = self.runner.step(&mut self.engine, &mut run)? {
                return Ok(out.into_iter().map(|(_, t)| t).collect());
            }
        }
    }

    fn read(&mut self, t: &Tensor) -> Result<HostTensor> {
        let (ticket, dtype, _) = self.engine.read(&mut t.session().state(), t.root())?;
        let data = self.engine.poll(ticket, dtype)?.expect("this device does not wait");
        HostTensor::new(dtype, t.shape(), data)
    }
}

/// A loop that doubles `x` until its sum reaches 50, or (with a condition that is always true) endlessly.
fn doubling(go: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let body = [
        vec![port(11, "i", 7, &[]), port(11, "c", 9, &[]), port(11, "s", 1, &[2]), node("Add", "s s", "t", &[])],
        go.to_vec(),
        vec![port(12, "go", 9, &[]), port(12, "t", 1, &[2])],
    ]
    .concat();
    vec![
        port(11, "x", 1, &[2]),
        port(12, "y", 1, &[2]),
        constant("top", &f32s(&[], &[50.])),
        node("Loop", "_ _ x", "y", &[subgraph("body", &body.concat())]),
    ]
}

#[test]
fn a_loop_runs_until_its_values_say_so() {
    let go = [node("ReduceSum", "t", "sum", &[int("keepdims", 0)]), node("Less", "sum top", "go", &[])];
    let mut ran = Ran::new(&doubling(&go));
    let mut check = |x: [f32; 2], y: [f32; 2]| {
        assert_eq!(ran.run(&[("x", f32s(&[2], &x))]).unwrap(), [f32s(&[2], &y)]);
        ran.engine.counters().plans
    };
    let plans = check([1., 2.], [32., 64.]);
    // Another input with the same number of iterations needs no new plan.
    assert_eq!(check([1., 1.5], [32., 48.]), plans);
    check([30., 40.], [60., 80.]);
    check([1., 2.], [32., 64.]);
}

/// An interrupt that answers its check number `at` (from 0) with `last`, and all other checks with `others`.
fn at_look(at: usize, last: Result<Go>, others: Go) -> Interrupt {
    let looks = std::sync::atomic::AtomicUsize::new(0);
    Interrupt::asking(move || {
        let look = looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if look == at { last.clone() } else { Ok(others) }
    })
}

#[test]
fn a_build_that_pauses_wherever_it_can_gives_the_same() {
    let go = [node("ReduceSum", "t", "sum", &[int("keepdims", 0)]), node("Less", "sum top", "go", &[])];
    let mut ran = Ran::new(&doubling(&go));
    ran.engine.set_interrupt(at_look(usize::MAX, Ok(Go::On), Go::Pause));
    assert_eq!(ran.run(&[("x", f32s(&[2], &[1., 2.]))]).unwrap(), [f32s(&[2], &[32., 64.])]);
    let plans = ran.engine.counters().plans;
    assert_eq!(ran.run(&[("x", f32s(&[2], &[1., 1.5]))]).unwrap(), [f32s(&[2], &[32., 48.])]);
    assert_eq!(ran.engine.counters().plans, plans, "nothing is built again");
}

#[test]
fn a_run_that_is_ended_at_any_look_leaves_everything_as_it_was() {
    let go = [node("ReduceSum", "t", "sum", &[int("keepdims", 0)]), node("Less", "sum top", "go", &[])];
    let x = [("x", f32s(&[2], &[1., 2.]))];
    let mut ended = 0;
    let mut bytes = None;
    for at in 0.. {
        let mut ran = Ran::new(&doubling(&go));
        ran.engine.set_interrupt(at_look(at, Err(Error::Aborted), Go::Pause));
        match ran.run(&x) {
            Err(e) => assert_eq!(e, Error::Aborted, "at look {at}"),
            Ok(_) => break,
        }
        ended += 1;
        ran.engine.set_interrupt(Interrupt::default());
        assert_eq!(ran.run(&x).unwrap(), [f32s(&[2], &[32., 64.])], "after an end at look {at}");
        ran.runner.collect(&mut ran.engine);
        ran.engine.trim();
        let now = ran.engine.counters().bytes;
        assert_eq!(*bytes.get_or_insert(now), now, "after an end at look {at}");
    }
    assert!(ended > 40, "{ended} looks");
}

#[test]
fn a_loop_without_an_end_is_an_error() {
    let always = [node("Abs", "t", "a", &[]), node("ReduceSum", "a", "sum", &[int("keepdims", 0)])];
    let always = [&always[..], &[constant("less", &f32s(&[], &[-1.])), node("Less", "less sum", "go", &[])]].concat();
    let e = Ran::new(&doubling(&always)).run(&[("x", f32s(&[2], &[1., 2.]))]).unwrap_err();
    assert!(matches!(&e, Error::Model { .. }) && e.to_string().contains("more than 64 times"), "{e}");
}

#[test]
fn random_numbers_differ_from_run_to_run() {
    let parts = [port(11, "x", 1, &[8]), port(12, "y", 1, &[8]), node("RandomUniformLike", "x", "y", &[])];
    let mut ran = Ran::new(&parts);
    let x = [("x", f32s(&[8], &[0.; 8]))];
    let runs: Vec<Vec<f64>> = (0..3).map(|_| ran.run(&x).unwrap()[0].to_f64()).collect();
    assert!(runs.iter().flatten().all(|v| (0.0..1.0).contains(v)), "{runs:?}");
    assert!(runs[0] != runs[1] && runs[1] != runs[2], "{runs:?}");
}

#[test]
fn an_input_is_handed_through_in_the_shape_of_the_output() {
    let parts = [
        port(11, "x", 1, &[2, 2]),
        port(12, "y", 1, &[4]),
        constant("s", &i64s(&[1], &[4])),
        node("Reshape", "x s", "y", &[]),
    ];
    let mut ran = Ran::new(&parts);
    for v in [1., 2.] {
        assert_eq!(ran.run(&[("x", f32s(&[2, 2], &[v; 4]))]).unwrap(), [f32s(&[4], &[v; 4])]);
    }
}

/// A model with the outputs `y = x - h`, `n = y * c` and the constant `c` itself.
fn recurrent() -> Vec<Vec<u8>> {
    vec![
        port(11, "x", 1, &[2]),
        port(11, "h", 1, &[2]),
        port(12, "y", 1, &[2]),
        port(12, "n", 1, &[2]),
        port(12, "k", 1, &[2]),
        constant("c", &f32s(&[2], &[3., 4.])),
        node("Sub", "x h", "y", &[]),
        node("Mul", "y c", "n", &[]),
        node("Identity", "c", "k", &[]),
    ]
}

#[test]
fn outputs_are_inputs_of_the_next_run() {
    let mut ran = Ran::new(&recurrent());
    let want = |x: [f32; 2], h: [f32; 2]| [0, 1].map(|i| [x[i] - h[i], (x[i] - h[i]) * [3., 4.][i]]);
    let host = |v: [f32; 2]| Input::Host(f32s(&[2], &v));
    let check = |ran: &mut Ran, x: (Input, [f32; 2]), h: (Input, [f32; 2])| {
        let out = ran.run_on(vec![("x", x.0), ("h", h.0)]).unwrap();
        let w = want(x.1, h.1);
        let got: Vec<HostTensor> = out.iter().map(|t| ran.read(t).unwrap()).collect();
        assert_eq!(got, [f32s(&[2], &w.map(|w| w[0])), f32s(&[2], &w.map(|w| w[1])), f32s(&[2], &[3., 4.])]);
        (out, w.map(|w| w[0]), w.map(|w| w[1]))
    };
    let (first, y, n) = check(&mut ran, (host([5., 7.]), [5., 7.]), (host([1., 2.]), [1., 2.]));
    // A device tensor instead of a host value for one input, then for both.
    let tensor = |t: &Tensor| Input::Tensor(t.clone());
    let (second, y2, n2) = check(&mut ran, (host([9., 9.]), [9., 9.]), (tensor(&first[0]), y));
    check(&mut ran, (tensor(&second[1]), n2), (tensor(&first[1]), n));
    check(&mut ran, (tensor(&first[1]), n), (tensor(&second[0]), y2));
    // Another runner whose first plan is made with such inputs.
    let runner = Runner::new(Arc::new(parse(&recurrent()).unwrap()), ran.runner.session());
    let mut other = Ran { engine: ran.engine, runner };
    check(&mut other, (tensor(&first[0]), y), (tensor(&second[0]), y2));
    check(&mut other, (host([0., 1.]), [0., 1.]), (tensor(&first[0]), y));
    // A buffer that the plan would read twice must be given by its values.
    assert!(other.runner.take("x", &first[0], &[("h", tensor(&second[0]))]).is_some());
    assert!(other.runner.take("x", &first[0], &[("h", tensor(&first[0]))]).is_none());
    assert!(other.runner.take("x", &first[2], &[]).is_none(), "a constant of the model");
    let lazy = first[0].neg().unwrap();
    assert!(other.runner.take("x", &lazy, &[]).is_none(), "not computed yet");
    for bad in [&lazy, &first[2]] {
        let e = other.run_on(vec![("x", tensor(bad)), ("h", tensor(&first[1]))]).unwrap_err();
        assert!(matches!(e, Error::Input { .. }), "{e}");
    }
    let e = other.run_on(vec![("x", tensor(&first[0])), ("h", tensor(&first[0]))]).unwrap_err();
    assert!(matches!(e, Error::Input { .. }), "{e}");
    // The run does not see an assignment that is made after `take`, even if it is computed before the run.
    let state = second[0].to_storage().unwrap();
    let p = other.engine.start(&mut state.session().state(), &[state.root()]).unwrap();
    other.engine.finish(&mut state.session().state(), p).unwrap();
    let taken = other.runner.take("h", &state, &[]).unwrap();
    state.assign(100).unwrap();
    let p = other.engine.start(&mut state.session().state(), &[state.root()]).unwrap();
    other.engine.finish(&mut state.session().state(), p).unwrap();
    check(&mut other, (host([1., 1.]), [1., 1.]), (taken, y2));
    assert_eq!(other.read(&state).unwrap(), f32s(&[2], &[100., 100.]));
}

#[test]
fn a_run_like_the_one_before_goes_straight_to_its_plan() {
    let mut ran = Ran::new(&recurrent());
    let host = |v: [f32; 2]| f32s(&[2], &v);
    ran.run(&[("x", host([5., 7.])), ("h", host([1., 2.]))]).unwrap();
    let number = ran.runner.repeatable().unwrap();
    assert_eq!(ran.runner.repeatable_inputs(number).unwrap(), [(DType::F32, vec![2]), (DType::F32, vec![2])]);
    let plans = ran.engine.counters().plans;
    let data = |v: [f32; 2]| Again::Data(host(v).data);
    let tensor = |t: &Tensor| Again::Tensor(t.clone());
    let again = |ran: &mut Ran, x: Again, h: Again| ran.runner.again(&mut ran.engine, number, vec![x, h]).unwrap();
    let read = |ran: &mut Ran, out: &[Tensor]| out.iter().map(|t| ran.read(t).unwrap()).collect::<Vec<_>>();

    let first = again(&mut ran, data([9., 9.]), data([1., 2.])).unwrap();
    let second = again(&mut ran, tensor(&first[0]), data([1., 1.])).unwrap();
    let third = again(&mut ran, tensor(&second[0]), tensor(&first[1])).unwrap();
    assert_eq!(read(&mut ran, &first), [host([8., 7.]), host([24., 28.]), host([3., 4.])]);
    assert_eq!(read(&mut ran, &second), [host([7., 6.]), host([21., 24.]), host([3., 4.])]);
    assert_eq!(read(&mut ran, &third), [host([-17., -22.]), host([-51., -88.]), host([3., 4.])]);
    assert_eq!(ran.engine.counters().plans, plans);

    // inputs that need the long way: one buffer twice, a constant of the model, a value that is not computed yet, another
    // type, another shape, another number of bytes or inputs
    let session = ran.runner.session().clone();
    let other = |shape: &[usize], dtype| Tensor::from_bytes(&session, dtype, shape, Bytes::new(vec![0; 8])).unwrap();
    let wrong = [
        (tensor(&first[0]), tensor(&first[0])),
        (tensor(&first[2]), data([1., 1.])),
        (tensor(&first[0].neg().unwrap()), data([1., 1.])),
        (tensor(&other(&[2], DType::I32)), data([1., 1.])),
        (tensor(&other(&[1, 2], DType::F32)), data([1., 1.])),
        (Again::Data(vec![0; 4]), data([1., 1.])),
    ];
    for (x, h) in wrong {
        assert!(again(&mut ran, x, h).is_none());
    }
    assert!(ran.runner.again(&mut ran.engine, number, vec![data([1., 1.])]).unwrap().is_none());

    // after a run with its inputs in another order only that one may be repeated
    ran.run(&[("h", host([1., 2.])), ("x", host([5., 7.]))]).unwrap();
    assert!(again(&mut ran, data([9., 9.]), data([1., 2.])).is_none());
    let turned = ran.runner.repeatable().unwrap();
    let out = ran.runner.again(&mut ran.engine, turned, vec![data([1., 2.]), data([9., 9.])]).unwrap().unwrap();
    assert_eq!(ran.read(&out[0]).unwrap(), host([8., 7.]));

    // neither a run that draws random numbers nor one that looks at values may be repeated
    let random = [port(11, "x", 1, &[8]), port(12, "y", 1, &[8]), node("RandomUniformLike", "x", "y", &[])];
    let mut ran = Ran::new(&random);
    ran.run(&[("x", f32s(&[8], &[0.; 8]))]).unwrap();
    assert_eq!(ran.runner.repeatable(), None);
    let go = [node("ReduceSum", "t", "sum", &[int("keepdims", 0)]), node("Less", "sum top", "go", &[])];
    let mut ran = Ran::new(&doubling(&go));
    ran.run(&[("x", host([1., 2.]))]).unwrap();
    assert_eq!(ran.runner.repeatable(), None);
}

#[test]
fn a_report_lists_all_that_is_refused() {
    let inner = [node("Foo", "x", "r", &[]), port(12, "r", 1, &[2])].concat();
    let parts = [
        port(11, "x", 1, &[-1, 2]),
        port(11, "complex", 14, &[1]),
        port(12, "y", 1, &[]),
        port(12, "z", 1, &[]),
        constant("odd", &i64s(&[1], &[3])),
        node("Relu", "x", "a", &[]),
        node("Bar", "a", "b", &[]),
        node("Neg", "b", "c", &[]),
        node("Reshape", "a odd", "d", &[]),
        node("ReduceMax", "a", "m", &[int("keepdims", 0)]),
        node("Cast", "m", "n", &[int("to", 7)]),
        node("Unsqueeze", "n axes", "s", &[]),
        constant("axes", &i64s(&[1], &[0])),
        node("Reshape", "a s", "e", &[]),
        node("Less", "m m", "cond", &[]),
        node("If", "cond", "f", &[subgraph("then_branch", &inner), subgraph("else_branch", &inner)]),
        node("Concat", "c d e f", "y", &[int("axis", 0)]),
        node("Identity", "a", "z", &[]),
    ];
    let sizes = BTreeMap::from([("d1".to_owned(), 5)]);
    let r = inspect(file(&parts), Arc::new(NoExternalData), &sizes).unwrap();
    assert!(!r.is_supported());
    let state = |name: &str| r.nodes.iter().find(|n| n.node.contains(name)).unwrap();
    assert_eq!(state("n_a").state, State::Supported);
    assert_eq!(state("n_a").outputs, [("a".to_owned(), Some(("f32".to_owned(), vec![5, 2])))]);
    assert!(matches!(&state("n_b").state, State::Refused(why) if why.contains("Bar")));
    assert!(matches!(&state("n_d").state, State::Refused(why) if why.contains("reshape")), "{:?}", state("n_d").state);
    assert_eq!(state("n_c").state, State::Follows);
    assert_eq!(state("n_e").state, State::AtRunTime);
    assert_eq!(state("n_z").state, State::Supported);
    assert_eq!(r.problems.len(), 3, "{:?}", r.problems);
    assert!(r.problems[0].contains("complex64") && r.problems[1].contains("Foo"), "{:?}", r.problems);
    assert_eq!(r.sizes, [("x".to_owned(), "d1".to_owned(), 5)]);
    // A failure with an assumed size is no reason to refuse the node.
    let r = inspect(file(&parts), Arc::new(NoExternalData), &BTreeMap::new()).unwrap();
    assert!(r.nodes.iter().any(|n| matches!(&n.state, State::Unfit(why) if why.contains("reshape"))));
}

#[test]
fn the_first_node_that_drifts_is_named() {
    let parts = [
        port(11, "x", 1, &[2]),
        port(12, "y", 1, &[2]),
        node("Relu", "x", "a", &[]),
        node("Add", "a x", "b", &[]),
        node("Neg", "b", "y", &[]),
    ];
    let every = parse(&parts).unwrap().with_every_value();
    let want = every.evaluate(&[("x", f32s(&[2], &[1., -2.]))]).unwrap();
    assert_eq!(want.iter().map(|w| w.0.as_str()).collect::<Vec<_>>(), ["a", "b", "y"]);
    let drifts = |got: &[(String, HostTensor)]| every.drifts(got, &want, 1e-3);
    assert!(drifts(&want).iter().all(|d| !d.drifts && d.max_abs == 0.0));
    let mut got = want.clone();
    got[1].1 = f32s(&[2], &[2.0, -2.5]);
    got[2].1 = f32s(&[2], &[-2.0, f32::NAN]);
    let d = drifts(&got);
    assert_eq!(d.iter().map(|d| d.drifts).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(
        (d[1].node.as_deref(), d[1].max_abs, d[1].max_rel, d[1].at),
        (Some("`n_b` (Add)"), 0.5, 0.25, (1, -2.5, -2.0))
    );
    assert_eq!(d[2].max_abs, f64::INFINITY);
}

#[test]
fn inner_values_are_outputs_where_they_are_asked_for() {
    let parts = [
        port(11, "x", 1, &[2]),
        port(12, "y", 1, &[2]),
        constant("w", &f32s(&[2], &[10., 20.])),
        node("Mul", "x w", "a", &[]),
        node("Split", "a", "b c", &[int("axis", 0), int("num_outputs", 2)]),
        node("Neg", "a", "d", &[]),
        node("Concat", "b c", "e", &[int("axis", 0)]),
        node("Add", "d e", "y", &[]),
    ];
    let mut ran = Ran::new(&parts);
    let x = f32s(&[2], &[1., 2.]);
    assert_eq!(ran.run(&[("x", x.clone())]).unwrap(), [f32s(&[2], &[0., 0.])]);
    let names = ["c", "y", "d"].map(String::from);
    let other = ran.runner.with_outputs(&names).unwrap();
    assert_eq!(other.model().outputs().iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), names);
    // Only the nodes that the outputs need remain.
    assert_eq!(ran.runner.with_outputs(&["d".into()]).unwrap().model().nodes().len(), 2);
    ran.runner = other;
    let want = [f32s(&[1], &[40.]), f32s(&[2], &[0., 0.]), f32s(&[2], &[-10., -40.])];
    assert_eq!(ran.run(&[("x", x)]).unwrap(), want);
    for names in [vec!["x"], vec!["w"], vec![""], vec!["d", "d"], vec!["nothing"], vec![]] {
        let names: Vec<String> = names.into_iter().map(String::from).collect();
        assert_eq!(ran.runner.with_outputs(&names).map(drop).unwrap_err().code(), "E_VALUE", "{names:?}");
    }
}

/// Runs shapes one after the other, with one plan for all lengths and with separate plans: the results must agree, and
/// no plan may be made after the second shape. Returns the notes about lengths.
#[track_caller]
fn any_length(parts: &[Vec<u8>], lengths: Lengths, runs: &[Vec<(&str, HostTensor)>]) -> Vec<String> {
    let (mut any, mut alone) = (Ran::new(parts), Ran::new(parts));
    any.runner.set_lengths(lengths).unwrap();
    let mut plans = 0;
    for (i, run) in runs.iter().enumerate() {
        let (got, want) = (any.run(run).unwrap(), alone.run(run).unwrap());
        for (got, want) in got.iter().zip(&want) {
            assert_eq!(got.shape, want.shape, "run {i}");
            let (got, want) = (got.to_f64(), want.to_f64());
            assert!(
                got.iter().zip(&want).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0)),
                "run {i}: {got:?} {want:?}"
            );
        }
        match i {
            1 => plans = any.engine.counters().plans,
            _ => assert!(i < 1 || any.engine.counters().plans == plans, "run {i}: {:?}", any.runner.notes()),
        }
    }
    any.runner.notes()
}

fn floats(shape: &[usize]) -> HostTensor {
    let n: usize = shape.iter().product();
    f32s(shape, &(0..n).map(|i| (i * 7 % 23) as f32 * 0.25 - 2.0).collect::<Vec<_>>())
}

#[test]
fn a_slice_that_takes_all_of_a_table_at_the_largest_length_is_one_for_every_length() {
    let parts = [
        port(11, "x", 1, &[-1]),
        port(12, "y", 1, &[-1]),
        constant("table", &floats(&[64])),
        constant("zero", &i64s(&[1], &[0])),
        constant("one", &i64s(&[1], &[1])),
        node("Shape", "x", "shape", &[]),
        node("Slice", "table zero shape zero one", "places", &[]),
        node("Add", "x places", "y", &[]),
    ];
    let runs: Vec<_> = [3, 40, 64, 5].map(|n| vec![("x", floats(&[n]))]).into();
    let bounds = Lengths::Bounds([("d1".to_owned(), (1, 64))].into());
    assert_eq!(any_length(&parts, bounds, &runs), Vec::<String>::new());
}

#[test]
fn the_end_of_a_table_is_the_longest_length() {
    // A length of 33 would normally get an upper bound of 64, but the table has 50 rows.
    let parts = [
        port(11, "x", 1, &[-1]),
        port(12, "y", 1, &[-1]),
        constant("table", &floats(&[50])),
        constant("zero", &i64s(&[1], &[0])),
        constant("one", &i64s(&[1], &[1])),
        node("Shape", "x", "shape", &[]),
        node("Slice", "table zero shape zero one", "places", &[]),
        node("Add", "x places", "y", &[]),
    ];
    let runs: Vec<_> = [3, 33, 50, 41].map(|n| vec![("x", floats(&[n]))]).into();
    assert_eq!(any_length(&parts, Lengths::Seen, &runs), Vec::<String>::new());
    let mut ran = Ran::new(&parts);
    ran.runner.set_lengths(Lengths::Seen).unwrap();
    for n in [3, 33] {
        ran.run(&[("x", floats(&[n]))]).unwrap();
    }
    assert_eq!(ran.run(&[("x", floats(&[51]))]).unwrap_err().code(), "E_MODEL");
}

#[test]
fn a_few_numbers_made_of_lengths_are_a_table_for_every_length() {
    // The rows begin at the offsets 0, n and 2 n.
    let parts = [
        port(11, "x", 1, &[3, -1]),
        port(12, "y", 1, &[3]),
        constant("zero", &i64s(&[], &[0])),
        constant("rows", &i64s(&[3], &[0, 1, 2])),
        constant("flat", &i64s(&[1], &[-1])),
        node("Shape", "x", "shape", &[int("start", 1)]),
        node("Mul", "rows shape", "begin", &[]),
        node("Reshape", "x flat", "all", &[]),
        node("Gather", "all begin", "y", &[int("axis", 0)]),
    ];
    let runs: Vec<_> = [4, 9, 30, 17].map(|n| vec![("x", floats(&[3, n]))]).into();
    let bounds = Lengths::Bounds([("d1".to_owned(), (1, 32))].into());
    assert_eq!(any_length(&parts, bounds, &runs), Vec::<String>::new());
}

#[test]
fn what_repeats_along_an_axis_that_was_made_of_several_is_made_of_the_same() {
    // A bias is added to the rows of a fixed number of texts, after batch and length were merged into one axis.
    let parts = [
        port(11, "x", 1, &[3, -1, 4]),
        port(12, "y", 1, &[-2, 4]),
        constant("rows", &i64s(&[2], &[-1, 4])),
        constant("bias", &floats(&[4])),
        constant("w", &floats(&[4, 4])),
        node("Reshape", "x rows", "flat", &[]),
        node("Gemm", "flat w bias", "y", &[]),
    ];
    let runs: Vec<_> = [4, 9, 30, 17].map(|n| vec![("x", floats(&[3, n, 4]))]).into();
    let bounds = Lengths::Bounds([("d1".to_owned(), (1, 32))].into());
    assert_eq!(any_length(&parts, bounds, &runs), Vec::<String>::new());
}
