//! Operators by torch's names, all of the table. The main module has the session with the data; here an operator is called on
//! placeholders, and what it built goes there as bytes.

use crate::throw;
use gradloom_core::tensor::call::{self, Value, table};
use gradloom_core::tensor::wire;
use gradloom_core::{DType, Error, Result, Session, Tensor};
use js_sys::{Array, JsString, Reflect};
use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::*;

/// `[name, whether it gives one tensor]` of every operator.
#[wasm_bindgen]
pub fn names() -> Array {
    let rows = table().flat_map(|e| e.names.iter().map(|&name| (name, e.out == "Tensor")));
    rows.filter(|(name, _)| !name.starts_with("__")).map(|(name, one)| Array::of2(&name.into(), &one.into())).collect()
}

/// The graph of a call. Arguments are numbers, bigints, booleans, strings, arrays and null; a tensor is `{input}`, its place
/// among `inputs`, each of which is `[dtype, ..shape]`. `named` is pairs; `seed` and `draws` are the random stream's.
#[wasm_bindgen]
pub fn graph(
    name: &str,
    args: &Array,
    named: &Array,
    inputs: &Array,
    seed: f64,
    draws: u32,
) -> std::result::Result<Vec<u8>, JsValue> {
    let run = || -> Result<Vec<u8>> {
        let session = Session::new();
        (session.state().seed, session.state().draws) = (seed as u64, draws);
        let inputs: Vec<Tensor> = inputs.iter().map(|i| placeholder(&session, &i)).collect::<Result<_>>()?;
        let args: Vec<Value> = args.iter().map(|v| value(&v, &inputs)).collect::<Result<_>>()?;
        let pairs: Vec<Array> = named.iter().map(|p| p.unchecked_into()).collect();
        let keys: Vec<String> = pairs.iter().map(|p| p.get(0).as_string().unwrap_or_default()).collect();
        let named = keys.iter().zip(&pairs).map(|(k, p)| Ok((k.as_str(), value(&p.get(1), &inputs)?)));
        let outs = call::call(&session, name, &args, &named.collect::<Result<Vec<_>>>()?)?;
        wire::write(&session, &outs, &inputs)
    };
    run().map_err(throw)
}

fn placeholder(session: &Session, of: &JsValue) -> Result<Tensor> {
    let parts: &Array = of.unchecked_ref();
    let dtype = parts.get(0).as_string().and_then(|n| DType::from_name(&n));
    let dtype = dtype.ok_or_else(|| Error::value("call", "a tensor without a dtype"))?;
    let shape: Vec<usize> = parts.iter().skip(1).map(|n| n.as_f64().unwrap_or(0.0) as usize).collect();
    Tensor::empty(session, dtype, &shape)
}

fn value(v: &JsValue, inputs: &[Tensor]) -> Result<Value> {
    let unknown = || Error::value("call", "an argument is no tensor, number, boolean, string or list");
    Ok(if v.is_null() || v.is_undefined() {
        Value::None
    } else if let Some(b) = v.as_bool() {
        Value::Bool(b)
    } else if let Some(n) = v.as_f64() {
        // JavaScript has one type of number: whole ones that are exact are integers
        if n.fract() == 0.0 && n.abs() < 9_007_199_254_740_992.0 { Value::Int(n as i64) } else { Value::Float(n) }
    } else if let Some(text) = v.dyn_ref::<JsString>() {
        Value::Text(text.into())
    } else if let Some(list) = v.dyn_ref::<Array>() {
        Value::List(list.iter().map(|v| value(&v, inputs)).collect::<Result<_>>()?)
    } else if v.is_bigint() {
        Value::Int(i64::try_from(v.clone()).map_err(|_| unknown())?)
    } else {
        let at = Reflect::get(v, &"input".into()).ok().and_then(|i| i.as_f64()).ok_or_else(unknown)?;
        Value::Tensor(inputs.get(at as usize).cloned().ok_or_else(unknown)?)
    })
}
