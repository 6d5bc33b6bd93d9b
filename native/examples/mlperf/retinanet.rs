//! RetinaNet: Lin, Goyal, Girshick, He, Dollár, "Focal loss for dense object detection" (2017), on the ResNet beside it: a pyramid of features, two
//! heads that all of its levels share, anchors of nine shapes at each place, and the loss in which what is easily told apart hardly counts.

use super::resnet;
use super::weights::{Output, Weights};
use gradloom::tensor::ConvOpts;
use gradloom::{Result, Tensor};

const BATCH: usize = 2;
const SIDE: usize = 64;
/// Channels of the pyramid and of the heads.
const WIDTH: usize = 16;
const CLASSES: usize = 4;
/// Sides of the anchors of each level, from the finest on.
const SIZES: [f64; 5] = [8.0, 16.0, 24.0, 32.0, 48.0];
/// Heights over widths.
const RATIOS: [f64; 3] = [0.5, 1.0, 2.0];
/// Of the focal loss: the weight of what is there, and how little the easy counts.
const ALPHA: f64 = 0.25;
const GAMMA: f64 = 2.0;

/// Left, top, right, bottom.
type Box4 = [f64; 4];

/// What is in each picture: a box and its class.
const THINGS: [[(Box4, usize); 2]; BATCH] = [
    [([4.0, 6.0, 30.0, 28.0], 1), ([32.0, 30.0, 60.0, 62.0], 3)],
    [([10.0, 8.0, 22.0, 40.0], 0), ([40.0, 12.0, 56.0, 24.0], 2)],
];

fn conv(w: &Weights, x: &Tensor, name: &str, channels: usize, kernel: usize, stride: usize) -> Result<Tensor> {
    let opts = ConvOpts::new().stride(&[stride; 2]).padding(&[kernel / 2; 2]);
    w.conv_bias(x, name, channels, &[kernel; 2], opts)
}

/// Levels of one width: each is what the network found at its size, and what coarser levels know of the same place.
fn pyramid(w: &Weights, stages: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut levels: Vec<Tensor> = Vec::new();
    let mut above: Option<Tensor> = None;
    for (i, stage) in stages.iter().enumerate().rev() {
        let mut x = conv(w, stage, &format!("fpn.inner_blocks.{i}.0"), WIDTH, 1, 1)?;
        if let Some(above) = above {
            x = x.add(above.repeat_interleave(2, 2)?.repeat_interleave(2, 3)?)?;
        }
        levels.insert(0, conv(w, &x, &format!("fpn.layer_blocks.{i}.0"), WIDTH, 3, 1)?);
        above = Some(x);
    }
    let p6 = conv(w, stages.last().expect("a stage"), "fpn.extra_blocks.p6", WIDTH, 3, 2)?;
    let p7 = conv(w, &p6.relu()?, "fpn.extra_blocks.p7", WIDTH, 3, 2)?;
    levels.extend([p6, p7]);
    Ok(levels)
}

/// Four convolutions and one more, the same for all levels: `[batch, anchors of all levels, numbers of each]`.
fn head(w: &Weights, levels: &[Tensor], name: &str, last: &str, numbers: usize) -> Result<Tensor> {
    let anchors = 3 * RATIOS.len();
    let one = |x: &Tensor| -> Result<Tensor> {
        let mut x = x.clone();
        for i in 0..4 {
            x = conv(w, &x, &format!("{name}.conv.{i}.0"), WIDTH, 3, 1)?.relu()?;
        }
        let [h, v] = [x.shape()[2], x.shape()[3]];
        let x = conv(w, &x, &format!("{name}.{last}"), anchors * numbers, 3, 1)?;
        let x = x.reshape(&[BATCH, anchors, numbers, h, v])?.permute(&[0, 3, 4, 1, 2])?;
        x.reshape(&[BATCH, h * v * anchors, numbers])
    };
    let all = levels.iter().map(one).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&all.iter().collect::<Vec<_>>(), 1)
}

/// The anchors of all levels in the order of the heads.
fn anchors(levels: &[Tensor]) -> Vec<Box4> {
    let mut out = Vec::new();
    for (level, size) in levels.iter().zip(SIZES) {
        let [rows, columns] = [level.shape()[2], level.shape()[3]];
        let shape = |ratio: f64, octave: i32| {
            let (h, s) = (ratio.sqrt(), size * 2f64.powf(f64::from(octave) / 3.0));
            // corners are whole numbers
            [-s / h / 2.0, -s * h / 2.0, s / h / 2.0, s * h / 2.0].map(f64::round_ties_even)
        };
        let shapes: Vec<Box4> = RATIOS.iter().flat_map(|&r| (0..3).map(move |o| shape(r, o))).collect();
        for (y, x) in (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x))) {
            let (x, y) = ((x * (SIDE / columns)) as f64, (y * (SIDE / rows)) as f64);
            out.extend(shapes.iter().map(|s| [s[0] + x, s[1] + y, s[2] + x, s[3] + y]));
        }
    }
    out
}

fn area(b: &Box4) -> f64 {
    (b[2] - b[0]).max(0.0) * (b[3] - b[1]).max(0.0)
}

/// What two boxes share, as a part of what either covers.
fn overlap(a: &Box4, b: &Box4) -> f64 {
    let both = area(&[a[0].max(b[0]), a[1].max(b[1]), a[2].min(b[2]), a[3].min(b[3])]);
    both / (area(a) + area(b) - both)
}

/// What an anchor is to learn.
#[derive(Clone, Copy, PartialEq)]
enum Match {
    Thing(usize),
    Nothing,
    /// Too close to call.
    Either,
}

/// A thing belongs to the anchors that overlap it by half, and to those that overlap it most; below 0.4 there is nothing.
fn matches(anchors: &[Box4], things: &[(Box4, usize)]) -> Vec<Match> {
    let most: Vec<f64> = things.iter().map(|t| anchors.iter().map(|a| overlap(&t.0, a)).fold(0.0, f64::max)).collect();
    let one = |a: &Box4| {
        let all: Vec<f64> = things.iter().map(|t| overlap(&t.0, a)).collect();
        let best = (0..things.len()).fold(0, |best, i| if all[i] > all[best] { i } else { best });
        match all[best] {
            n if n >= 0.5 || all.iter().zip(&most).any(|(n, most)| n == most) => Match::Thing(best),
            n if n < 0.4 => Match::Nothing,
            _ => Match::Either,
        }
    };
    anchors.iter().map(one).collect()
}

/// A box as seen from an anchor: offsets of the centre in its sides, and logarithms of how much larger it is.
fn seen_from(anchor: &Box4, thing: &Box4) -> [f64; 4] {
    let parts = |b: &Box4| [(b[0] + b[2]) / 2.0, (b[1] + b[3]) / 2.0, b[2] - b[0], b[3] - b[1]];
    let (a, t) = (parts(anchor), parts(thing));
    [(t[0] - a[0]) / a[2], (t[1] - a[1]) / a[3], (t[2] / a[2]).ln(), (t[3] / a[3]).ln()]
}

/// `-alpha (1 - p)^gamma ln p` of what is said of what is there, and the same of what is not.
fn focal(logits: &Tensor, there: &Tensor) -> Result<Tensor> {
    let p = logits.sigmoid()?;
    let not = there.neg()?.add(1.0)?;
    let right = p.mul(there)?.add(p.neg()?.add(1.0)?.mul(&not)?)?;
    let weight = there.mul(ALPHA)?.add(not.mul(1.0 - ALPHA)?)?;
    let plain = logits.bce_logits_each(there, None)?;
    plain.mul(right.neg()?.add(1.0)?.pow(GAMMA)?)?.mul(weight)
}

pub(crate) fn network(w: &Weights) -> Result<Output> {
    let x = w.input("photo", &[BATCH, 3, SIDE, SIDE])?;
    // of the classifier of the whole picture nothing is used
    let levels = pyramid(w, &resnet::stages(w, &x)?[1..])?;
    let classes = head(w, &levels, "head.classification_head", "cls_logits", CLASSES)?;
    let boxes = head(w, &levels, "head.regression_head", "bbox_reg", 4)?;
    let anchors = anchors(&levels);
    let n = anchors.len();
    let mut loss = Tensor::zeros(&w.session, x.dtype(), &[])?;
    for (i, things) in THINGS.iter().enumerate() {
        let found = matches(&anchors, things);
        let things_of = |m: &Match| if let Match::Thing(t) = m { Some(things[*t]) } else { None };
        let count = found.iter().filter_map(things_of).count().max(1) as f64;
        let there =
            found.iter().flat_map(|m| (0..CLASSES).map(move |c| f32::from(things_of(m).is_some_and(|t| t.1 == c))));
        let counts: Vec<f32> = found.iter().map(|m| f32::from(*m != Match::Either)).collect();
        let has: Vec<f32> = found.iter().map(|m| f32::from(things_of(m).is_some())).collect();
        let goal = |(m, a)| things_of(m).map_or([0.0; 4], |t| seen_from(a, &t.0));
        let goals: Vec<f32> = found.iter().zip(&anchors).flat_map(goal).map(|x| x as f32).collect();
        let tensor = |data: &[f32], columns| Tensor::new(&w.session, data, &[n, columns]);
        let said = focal(&classes.select_at(0, i as i64)?, &tensor(&there.collect::<Vec<_>>(), CLASSES)?)?;
        let said = said.mul(tensor(&counts, 1)?)?.sum(&[], false)?;
        let off = boxes.select_at(0, i as i64)?.sub(tensor(&goals, 4)?)?.abs()?;
        let off = off.mul(tensor(&has, 1)?)?.sum(&[], false)?;
        loss = loss.add(said.add(off)?.div(count * BATCH as f64)?)?;
    }
    Ok(Output { prediction: Tensor::cat(&[&classes, &boxes], 2)?, loss })
}
