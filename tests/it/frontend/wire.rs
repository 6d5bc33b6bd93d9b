//! Graphs as bytes: every operator of the table, called on placeholders in a session of its own and handed over, gives the very
//! nodes that a call in place gives.

use gradloom_core::tensor::call::{Value, call};
use gradloom_core::tensor::wire;
use gradloom_core::uop::print::print;
use gradloom_core::{DType, Error, Session, Tensor};
use gradloom_tests::opinfo::{Types, samples};
use std::collections::{BTreeMap, BTreeSet};

/// The value with placeholders for its tensors, which are listed.
fn placeholders(session: &Session, v: &Value, found: &mut Vec<(Tensor, Tensor)>) -> Value {
    match v {
        Value::Tensor(t) => {
            let p = Tensor::empty(session, t.dtype(), &t.shape()).unwrap();
            found.push((t.clone(), p.clone()));
            Value::Tensor(p)
        }
        Value::List(l) => Value::List(l.iter().map(|v| placeholders(session, v, found)).collect()),
        v => v.clone(),
    }
}

#[test]
fn a_graph_made_elsewhere_is_the_graph_made_here() {
    let here = Session::new();
    here.manual_seed(7);
    let (mut ops, mut apart, mut unknown, mut draws) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new(), 0);
    for c in samples().into_iter().map(|s| s.read(&here, Types { float: DType::F32, int: DType::I32 })) {
        let before = here.state().draws;
        let Ok(direct) = call(&here, c.sample.name, &c.args, &c.named) else { continue };
        let after = here.state().draws;
        draws += after - before;
        let there = Session::new();
        there.manual_seed(7);
        there.state().draws = before;
        let mut found = Vec::new();
        let args: Vec<Value> = c.args.iter().map(|v| placeholders(&there, v, &mut found)).collect();
        let named: Vec<_> = c.named.iter().map(|(n, v)| (*n, placeholders(&there, v, &mut found))).collect();
        let outs = match call(&there, c.sample.name, &args, &named) {
            Ok(outs) => outs,
            // sizes that follow from values
            Err(e) => {
                unknown.insert(c.sample.name, e.to_string());
                here.state().draws = after;
                continue;
            }
        };
        let (real, stand_in): (Vec<Tensor>, Vec<Tensor>) = found.into_iter().unzip();
        let bytes = wire::write(&there, &outs, &stand_in).unwrap();
        here.state().draws = before;
        let got = wire::read(&here, &bytes, &real).unwrap();
        assert_eq!(here.state().draws, after, "{}", c.sample.name);
        let shapes = |list: &[Tensor]| list.iter().map(Tensor::shape).collect::<Vec<_>>();
        if c.sample.name == "bincount" && shapes(&got) != shapes(&direct) {
            continue;
        }
        let nodes = |list: &[Tensor]| list.iter().map(Tensor::node).collect::<Vec<_>>();
        if nodes(&got) != nodes(&direct) {
            // storage that an operator makes has an identity of its own, and so has what is computed with it
            let lines = |list: &[Tensor]| {
                let roots = nodes(list);
                let text = print(&here.state().graph, &roots);
                let plain = |l: &str| {
                    let words = l.split(' ').filter(|w| !w.starts_with('%'));
                    words.map(|w| w.split_once("[id=").map_or(w, |(op, _)| op)).collect()
                };
                let mut lines: Vec<String> = text.lines().map(plain).collect();
                lines.sort();
                lines
            };
            assert_eq!(lines(&got), lines(&direct), "{} (line {})", c.sample.name, c.sample.line);
            apart.insert(c.sample.name);
        }
        ops.insert(c.sample.name);
    }
    assert!(ops.len() > 350, "{} operators alone", ops.len());
    assert!(4 * apart.len() < ops.len(), "{apart:?}");
    assert!(
        unknown
            .keys()
            .all(|name| ["bincount", "nn.functional.one_hot", "repeat_interleave", "tensor_split"].contains(name)),
        "{unknown:?}"
    );
    assert_eq!(draws, 0, "samples of random operators are not compared here");
}

#[test]
fn random_draws_and_constants_come_along() {
    let (here, there) = (Session::new(), Session::new());
    for s in [&here, &there] {
        s.manual_seed(3);
    }
    let direct = [Tensor::rand(&here, &[5]).unwrap(), Tensor::randn(&here, &[2, 2]).unwrap()];
    let p = Tensor::empty(&there, DType::F32, &[3]).unwrap();
    let table = Tensor::new(&there, &[1.5f32, -2.0, 0.25], &[3]).unwrap();
    let made = [Tensor::rand(&there, &[5]).unwrap(), Tensor::randn(&there, &[2, 2]).unwrap(), p.mul(&table).unwrap()];
    let bytes = wire::write(&there, &made, std::slice::from_ref(&p)).unwrap();
    let x = Tensor::new(&here, &[2.0f32, 3.0, 4.0], &[3]).unwrap();
    let got = wire::read(&here, &bytes, std::slice::from_ref(&x)).unwrap();
    for (got, direct) in got.iter().zip(&direct) {
        let values = super::host::eval(&[got, direct]);
        assert_eq!(values[0].values, values[1].values);
    }
    assert_eq!(here.state().draws, there.state().draws);
    let values = super::host::eval(&[&got[2]]);
    assert_eq!(values[0].values, [3.0, -6.0, 1.0]);
}

#[test]
fn bytes_that_are_cut_or_of_another_build_are_refused() {
    let (here, there) = (Session::new(), Session::new());
    let p = Tensor::empty(&there, DType::F32, &[4]).unwrap();
    let y = p.add(1.0).unwrap().sum(&[], false).unwrap();
    let bytes = wire::write(&there, &[y], std::slice::from_ref(&p)).unwrap();
    let x = Tensor::empty(&here, DType::F32, &[4]).unwrap();
    for n in 0..bytes.len() {
        let e = wire::read(&here, &bytes[..n], std::slice::from_ref(&x)).unwrap_err();
        assert!(matches!(e, Error::Format { .. }), "{n}: {e}");
    }
    let mut other = bytes.clone();
    other[0] ^= 1;
    assert!(wire::read(&here, &other, std::slice::from_ref(&x)).is_err());
    assert!(wire::read(&here, &bytes, &[]).is_err());
    assert!(wire::read(&here, &bytes, &[x]).is_ok());
}
