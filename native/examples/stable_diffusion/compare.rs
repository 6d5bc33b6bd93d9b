//! What diffusers gave for these networks, what is given here, and how far that is from it.

use super::around::{self, Steps, VOCABULARY, WIDTH, WORDS};
use super::noise::Weights;
use super::unet::{Unet, Wanted};
use gradloom::io::npz;
use gradloom::{DType, Error, Result, Runtime, Tensor};
use std::path::Path;

/// How far anything may be off, as a part of the largest of its kind.
pub(crate) const LIMIT: f64 = 1e-4;
/// Rows and columns of the latents.
const SIDE: usize = 16;
const STEPS: usize = 3;
/// How much more than without the text the noise goes where the text wants it.
const GUIDANCE: f64 = 7.5;
/// Of a picture every so many values are recorded.
const EVERY: usize = 37;

/// Values by name.
pub(crate) type Given = Vec<(&'static str, Vec<f32>)>;

/// Stable Diffusion 1 from a text to a picture: an empty text and one of words, latents that are noise, three steps, and the picture of them. The second
/// number is how many plans the steps after the second made.
pub(crate) fn sd(rt: &mut Runtime) -> Result<(Given, u64)> {
    let w = Weights::new(rt.session());
    let text = around::text(&w, &w.labels("words", &[2, WORDS], VOCABULARY)?)?;
    let mut latents = w.input("latents", &[1, 4, SIDE, SIDE])?;
    rt.realize(&[&text, &latents])?;
    let (unet, steps) = (Unet::sd(), Steps::new(STEPS));
    let (mut first, mut before) = (None, 0);
    for (i, &time) in steps.times.iter().enumerate() {
        let at = Tensor::new(&w.session, &[time as f32], &[1])?;
        let shares = Tensor::new(&w.session, &steps.shares(time), &[4])?;
        let both = unet.forward(&w, &latents.expand(&[2, 4, SIDE, SIDE])?, &at, &text, None)?;
        let (without, with_text) = (both.narrow(0, 0, 1)?, both.narrow(0, 1, 1)?);
        let noise = without.add(with_text.sub(&without)?.mul(GUIDANCE)?)?;
        let next = Steps::step(&latents, &noise, &shares)?;
        rt.realize(&[&both, &next])?;
        if first.is_none() {
            first = Some(rt.to_vec::<f32>(&both)?);
        }
        // the first step's plan stores the weights too
        if i == 1 {
            before = rt.counters().plans;
        }
        latents = next;
    }
    let later = rt.counters().plans - before;
    let picture = rt.to_vec::<f32>(&around::picture(&w, &latents)?)?;
    let given = vec![
        ("text", rt.to_vec::<f32>(&text)?),
        ("noise", first.unwrap_or_default()),
        ("latents", rt.to_vec::<f32>(&latents)?),
        ("picture", picture.into_iter().step_by(EVERY).collect()),
    ];
    Ok((given, later))
}

/// One run of XL's network, with a text of numbers and sizes that are wanted.
pub(crate) fn sdxl(rt: &mut Runtime) -> Result<Given> {
    let w = Weights::new(rt.session());
    let sizes = [1024f32, 768.0, 0.0, 16.0, 1024.0, 1024.0];
    let sizes = Tensor::new(&w.session, &[sizes, sizes].concat(), &[2, 6])?;
    let wanted = Wanted { pooled: &w.input("pooled", &[2, 16])?, sizes: &sizes };
    let time = Tensor::new(&w.session, &[481i32], &[1])?.cast(DType::F32)?;
    let (latents, text) = (w.input("latents", &[2, 4, SIDE, SIDE])?, w.input("words", &[2, WORDS, WIDTH])?);
    let noise = Unet::sdxl().forward(&w, &latents, &time, &text, Some(&wanted))?;
    Ok(vec![("noise", rt.to_vec::<f32>(&noise)?)])
}

/// How far values are from those that were recorded, each as a part of the largest of its kind.
///
/// # Errors
/// `E_INPUT` where the recording is missing, or has other values.
pub(crate) fn off(name: &str, given: &Given) -> Result<Vec<(&'static str, f64)>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/fixtures/stable_diffusion/{name}.npz"));
    let bad = |what: String| Error::Input { name: path.display().to_string(), what };
    let arrays = npz::read(&std::fs::read(&path).map_err(|e| bad(e.to_string()))?)?;
    let one = |(key, got): &(&'static str, Vec<f32>)| {
        let want = arrays.iter().find(|a| a.0 == *key).ok_or_else(|| bad(format!("has no {key}")))?.1.to_f64();
        if want.len() != got.len() {
            return Err(bad(format!("has {} of {key}, and there are {}", want.len(), got.len())));
        }
        let scale = want.iter().fold(0f64, |m, x| m.max(x.abs()));
        // a value that is no number is as far off as can be
        let off = |(a, b): (&f32, &f64)| if a.is_finite() { (f64::from(*a) - b).abs() / scale } else { f64::INFINITY };
        Ok((*key, got.iter().zip(&want).map(off).fold(0.0, f64::max)))
    };
    given.iter().map(one).collect()
}
