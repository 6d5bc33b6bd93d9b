//! Tells how good digits are that a network made: one that reads digits says which each is and how sure it is of that. Copies would be near those that
//! were learned from, and always the same few digits near the mean of those that are told alike.

use super::learn::{self, Digits};
use gradloom::nn::{Layer, Mode, Sequential};
use gradloom::{DType, Result, Runtime, Tensor};

/// Times that the reader goes through the digits.
const EPOCHS: usize = 6;
/// It is sure of what it gives a greater probability.
const SURE: f32 = 0.9;
const SIDE: usize = 28;
pub(crate) const PIXELS: usize = SIDE * SIDE;

pub(crate) struct Judge {
    reader: Sequential,
    /// What was learned from, `[n, pixels]`.
    known: Tensor,
    /// How varied unseen digits are.
    varied: f64,
}

/// What there is to say of some images.
struct Verdict {
    /// Which digit each most likely is.
    told: Vec<usize>,
    /// The part of them of which the reader is sure.
    sure: f64,
    /// How far they are from the nearest that was learned from, in the mean.
    far: f64,
    /// How far they are from the mean of those that are told to be the same digit.
    varied: f64,
}

impl Judge {
    /// Has a network learn to read, and says how it judges digits that it has not seen, and noise.
    pub(crate) fn new(rt: &mut Runtime, digits: &[Digits; 2]) -> Result<Judge> {
        let s = rt.session().clone();
        let learned = learn::learn(rt, digits, EPOCHS)?;
        let [known, unseen] = digits;
        let all = |d: &Digits| d.batch(&s, &(0..d.len()).collect::<Vec<_>>())?.0.flatten(1, -1)?.to_storage();
        let mut judge = Judge { reader: learned.net, known: all(known)?, varied: 0.0 };
        let last = learned.losses.last().copied().unwrap_or(f32::NAN);
        let right = 100.0 * learned.right as f64 / learned.all as f64;
        println!("the judge tells {right:.1} % of {} unseen digits right, its last loss was {last:.3}", learned.all);
        let real = judge.of(rt, &all(unseen)?)?;
        real.print("of the unseen digits");
        judge.varied = real.varied;
        let noise = Tensor::uniform(&s, -1.0, 1.0, &[unseen.len(), PIXELS])?;
        judge.of(rt, &noise)?.print("of noise");
        Ok(judge)
    }

    /// Of images `[n, pixels]` from -1 to 1.
    fn of(&self, rt: &mut Runtime, images: &Tensor) -> Result<Verdict> {
        let images = images.to_storage()?;
        let n = images.dim(0)?;
        let x = images.reshape(&[n, 1, SIDE, SIDE])?;
        let chances = self.reader.apply(&x, Mode::Eval)?.softmax(1)?;
        let (likely, told) = (chances.max(&[1], false)?, chances.argmax(1, false)?);
        let squares = |t: &Tensor| t.square()?.sum(&[1], true);
        let apart =
            squares(&images)?.add(squares(&self.known)?.t()?)?.sub(images.matmul(&self.known.t()?)?.mul(2.0)?)?;
        let far = apart.min(&[1], false)?.maximum(0.0)?.sqrt()?.mean(&[], false)?;
        let kinds = told.one_hot(10)?.cast(DType::F32)?;
        let means = kinds.t()?.matmul(&images)?.div(kinds.sum(&[0], false)?.maximum(1.0)?.unsqueeze(1)?)?;
        let varied = squares(&images.sub(kinds.matmul(&means)?)?)?.sqrt()?.mean(&[], false)?;
        let sure = rt.to_vec::<f32>(&likely)?.iter().filter(|&&p| p > SURE).count();
        Ok(Verdict {
            told: rt.to_vec::<i32>(&told)?.iter().map(|&t| t as usize).collect(),
            sure: sure as f64 / n as f64,
            far: f64::from(rt.to_vec::<f32>(&far)?[0]),
            varied: f64::from(rt.to_vec::<f32>(&varied)?[0]),
        })
    }

    /// Of images that were made when these digits were asked for. Prints it, and says whether that is learned: of how many, at the least, it is to be
    /// sure, and how many are to be what was asked for. They are to be at least three quarters as varied as real ones.
    pub(crate) fn made(&self, rt: &mut Runtime, images: &Tensor, asked: &[i32], least: [f64; 2]) -> Result<bool> {
        draw(&rt.to_vec::<f32>(images)?);
        let made = self.of(rt, images)?;
        made.print("of the digits that were made");
        let mut counts = [0; 10];
        made.told.iter().for_each(|&t| counts[t] += 1);
        let right =
            made.told.iter().zip(asked).filter(|(t, a)| **t == **a as usize).count() as f64 / asked.len() as f64;
        println!("{:.1} % are what was asked for; of each digit it tells {counts:?}", 100.0 * right);
        let learned = made.sure >= least[0] && right >= least[1] && made.varied >= 0.75 * self.varied;
        if !learned {
            let [sure, right] = least.map(|x| 100.0 * x);
            eprintln!(
                "that is not learned: it should be sure of {sure} %, {right} % should be right, and they should be varied"
            );
        }
        Ok(learned)
    }
}

impl Verdict {
    fn print(&self, what: &str) {
        let Verdict { sure, far, varied, .. } = self;
        println!(
            "  {what} it is sure of {:.1} %; they are {far:.1} from the nearest that was learned from,",
            100.0 * sure
        );
        println!("    {varied:.1} from the mean of those that it tells to be the same digit");
    }
}

/// The first images of `[n, pixels]` side by side, each character two pixels high.
fn draw(pixels: &[f32]) {
    for row in (0..SIDE).step_by(2) {
        let line = pixels.chunks(PIXELS).take(5).map(|image| {
            let ink = |x: usize| image[row * SIDE + x] + image[(row + 1) * SIDE + x] + 2.0;
            (0..SIDE).map(|x| [' ', '.', 'o', '#'][(ink(x) as usize).min(3)]).collect::<String>()
        });
        println!("{}", line.collect::<Vec<_>>().join(" "));
    }
}
