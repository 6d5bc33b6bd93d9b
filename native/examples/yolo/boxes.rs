//! Boxes from what a detector gives, and frames around them in a picture.

use super::pictures::Picture;

/// Something that was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Left, top, right, bottom, in pixels.
    pub(crate) sides: [f32; 4],
    pub(crate) score: f32,
    pub(crate) class: usize,
}

/// What two boxes share, as a part of what either covers.
pub(crate) fn overlap(a: [f32; 4], b: [f32; 4]) -> f32 {
    let area = |s: [f32; 4]| (s[2] - s[0]).max(0.0) * (s[3] - s[1]).max(0.0);
    let both = area([a[0].max(b[0]), a[1].max(b[1]), a[2].min(b[2]), a[3].min(b[3])]);
    if both > 0.0 { both / (area(a) + area(b) - both) } else { 0.0 }
}

/// Of `[4 + classes, places]` the boxes that are as likely as `least`, best first; of two of one class that overlap by more than `iou` only the
/// better one. `scale` is how many pixels of the picture one of the network's is.
pub(crate) fn found(values: &[f32], places: usize, least: f32, iou: f32, scale: f32) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for at in 0..places {
        let number = |row: usize| values[row * places + at];
        let (class, score) = (4..values.len() / places)
            .map(|row| (row - 4, number(row)))
            .fold((0, f32::NEG_INFINITY), |best, one| if one.1 > best.1 { one } else { best });
        if score >= least {
            let [x, y, w, h] = [0, 1, 2, 3].map(|row| number(row) * scale);
            all.push(Found { sides: [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0], score, class });
        }
    }
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut kept: Vec<Found> = Vec::new();
    for one in all {
        if kept.iter().all(|k| k.class != one.class || overlap(k.sides, one.sides) <= iou) {
            kept.push(one);
        }
    }
    kept
}

/// Colours of classes, which repeat.
const COLOURS: [[u8; 3]; 6] =
    [[230, 60, 60], [40, 160, 70], [50, 110, 230], [240, 170, 20], [160, 60, 200], [20, 180, 190]];

/// A frame two pixels wide around each box, inside the picture.
pub(crate) fn draw(picture: &mut Picture, boxes: &[Found]) {
    let (width, height) = (picture.width, picture.height);
    for one in boxes {
        let inside = |x: f32, n: usize| (x.round().max(0.0) as usize).min(n - 1);
        let [left, right] = [0, 2].map(|i| inside(one.sides[i], width));
        let [top, bottom] = [1, 3].map(|i| inside(one.sides[i], height));
        for (y, x) in (top..=bottom).flat_map(|y| (left..=right).map(move |x| (y, x))) {
            if y < top + 2 || y + 2 > bottom || x < left + 2 || x + 2 > right {
                picture.pixels[3 * (y * width + x)..][..3].copy_from_slice(&COLOURS[one.class % COLOURS.len()]);
            }
        }
    }
}
