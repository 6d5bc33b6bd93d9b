//! Cases of the ONNX backend suite, from the zip file that `tests/conformance/onnx_cases.py` writes, and what counts as right.
//!
//! An output is right if its dtype and shape are the expected ones and every element lies within the case's own tolerance. For
//! bf16 that is at least 2^-6, as the suite has it, for f16 one unit in the last place.

use gradloom_core::io::onnx::Model;
use gradloom_core::io::onnx::tensor::{self, TensorData};
use gradloom_core::io::{HostTensor, zip::Zip};
use gradloom_core::{DType, Error, Result};

/// Tensors by name.
pub type Named = Vec<(String, HostTensor)>;

/// A tensor of a case: strings become one in the model they are for.
#[derive(Clone)]
enum Given {
    Tensor(HostTensor),
    Strings(Vec<usize>, Vec<String>),
}

impl Given {
    fn on(&self, model: &Model) -> Result<HostTensor> {
        match self {
            Given::Tensor(t) => Ok(t.clone()),
            Given::Strings(shape, texts) => model.strings(shape.clone(), texts),
        }
    }
}

type Set = (Vec<(String, Given)>, Vec<(String, Given)>);

/// One case.
pub struct Case {
    /// Kind and name: `node/test_abs`.
    pub name: String,
    /// The model file.
    pub model: Vec<u8>,
    /// Relative and absolute tolerance.
    pub tolerance: (f64, f64),
    /// Inputs and expected outputs, or why they can not be read.
    sets: Vec<Result<Set>>,
}

/// Operators whose values are random: only dtypes and shapes are compared.
const RANDOM: [&[u8]; 6] =
    [b"Bernoulli", b"RandomUniform", b"RandomUniformLike", b"RandomNormal", b"RandomNormalLike", b"Multinomial"];

/// Cases whose expected values hold the rounding noise of an f32 transform where zero is right, and the noise to allow.
const NOISE: [(&str, f64); 2] = [("node/test_dft_inverse", 1e-6), ("node/test_dft_inverse_opset19", 1e-6)];

impl Case {
    /// Inputs and expected outputs for the case's model.
    pub fn sets<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = Result<(Named, Named)>> + 'a {
        let on = move |list: &[(String, Given)]| -> Result<Named> {
            list.iter().map(|(n, g)| Ok((n.clone(), g.on(model)?))).collect()
        };
        self.sets.iter().map(move |set| {
            let (inputs, outputs) = set.as_ref().map_err(Clone::clone)?;
            Ok((on(inputs)?, on(outputs)?))
        })
    }

    /// Are the outputs random?
    pub fn is_random(&self) -> bool {
        let has = |what: &[u8]| self.model.windows(what.len()).any(|w| w == what);
        RANDOM.iter().any(|op| has(op)) || self.name.contains("training_dropout") && !self.name.contains("zero_ratio")
    }

    /// What is wrong with these outputs, if anything is.
    pub fn check(&self, got: &[(String, HostTensor)], want: &[(String, HostTensor)]) -> Result<(), String> {
        if got.len() != want.len() {
            return Err(format!("{} outputs, not {}", got.len(), want.len()));
        }
        let noise = NOISE.iter().find(|n| n.0 == self.name).map_or(0.0, |n| n.1);
        let tolerance = (self.tolerance.0, self.tolerance.1.max(noise));
        for ((name, g), (_, w)) in got.iter().zip(want) {
            if (g.dtype, &g.shape) != (w.dtype, &w.shape) {
                return Err(format!("`{name}` is {} {:?}, not {} {:?}", g.dtype, g.shape, w.dtype, w.shape));
            }
            if !self.is_random() {
                close(g, w, tolerance).map_err(|e| format!("`{name}`{e}"))?;
            }
        }
        Ok(())
    }
}

/// The first element outside of the tolerance.
fn close(got: &HostTensor, want: &HostTensor, (rtol, atol): (f64, f64)) -> Result<(), String> {
    let rtol = match want.dtype {
        DType::BF16 => rtol.max(1.0 / 64.0),
        DType::F16 => rtol.max(1.0 / 1024.0),
        _ => rtol,
    };
    if !want.dtype.is_float() {
        let at = got.scalars().zip(want.scalars()).position(|(g, w)| g != w);
        return at.map_or(Ok(()), |i| {
            let v = |t: &HostTensor| t.scalars().nth(i);
            Err(format!("[{i}] is {:?}, not {:?}", v(got), v(want)))
        });
    }
    for (i, (g, w)) in got.to_f64().into_iter().zip(want.to_f64()).enumerate() {
        if !(g == w || g.is_nan() && w.is_nan() || (g - w).abs() <= atol + rtol * w.abs()) {
            return Err(format!("[{i}] is {g}, not {w}"));
        }
    }
    Ok(())
}

/// All cases of the file, in its order.
pub fn read(file: &[u8]) -> Result<Vec<Case>> {
    let zip = Zip::parse(file)?;
    let mut cases: Vec<Case> = Vec::new();
    for entry in zip.entries() {
        let bad = || Error::format("suite", format!("no case has a file {}", entry.name), None);
        let mut parts = entry.name.splitn(3, '/');
        let (Some(kind), Some(name), Some(file)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(bad());
        };
        let (name, data) = (format!("{kind}/{name}"), zip.read(entry)?);
        if file == "model.onnx" {
            cases.push(Case { name, model: data.into_owned(), tolerance: (0.0, 0.0), sets: Vec::new() });
            continue;
        }
        let case = cases.last_mut().filter(|c| c.name == name).ok_or_else(bad)?;
        if file == "tolerance" {
            let text = String::from_utf8_lossy(&data).into_owned();
            let mut numbers = text.split(' ').filter_map(|n| n.parse().ok());
            case.tolerance = numbers.next().zip(numbers.next()).ok_or_else(bad)?;
            continue;
        }
        let (set, file) = file.split_once('/').ok_or_else(bad)?;
        let set: usize = set.parse().map_err(|_| bad())?;
        case.sets.resize_with(case.sets.len().max(set + 1), || Ok((Vec::new(), Vec::new())));
        if file.ends_with("_none") {
            continue;
        }
        let read = || {
            let t = tensor::parse(&data)?;
            let given = match &t.data {
                TensorData::Strings(list) => {
                    let texts = list.iter().map(|s| String::from_utf8_lossy(s).into_owned());
                    Given::Strings(t.shape.clone(), texts.collect())
                }
                _ => Given::Tensor(t.to_host(&data, &tensor::NoExternalData)?),
            };
            Ok((t.name.clone(), given))
        };
        match (&mut case.sets[set], read()) {
            (Ok((ins, outs)), Ok(t)) => (if file.starts_with("in") { ins } else { outs }).push(t),
            (slot @ Ok(_), Err(e)) => *slot = Err(e),
            (Err(_), _) => {}
        }
    }
    Ok(cases)
}
