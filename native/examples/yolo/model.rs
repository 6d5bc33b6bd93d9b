//! YOLOv8, the detector, from weights of any of its sizes with the names of Ultralytics' files, norms folded into convolutions as exports have it:
//! a backbone, a neck that goes up the pyramid and down again, and heads that place the sides of a box by distributions (Li et al., "Generalized
//! focal loss", 2020). How wide it is and how often blocks repeat, the weights say.

use gradloom::nn::StateDict;
use gradloom::tensor::{ConvOpts, Interpolate, PoolOpts, Session};
use gradloom::{DType, Error, Result, Tensor};

/// Places that a side may be in, in cells from the middle.
const BINS: usize = 16;

pub(crate) struct Yolo<'a> {
    pub(crate) session: Session,
    pub(crate) weights: &'a StateDict,
}

impl Yolo<'_> {
    fn get(&self, name: &str) -> Result<&Tensor> {
        let missing = || Error::Input { name: name.to_owned(), what: "missing from the weights".into() };
        self.weights.get(name).ok_or_else(missing)
    }

    /// A convolution that keeps the size, or halves it with a stride of 2.
    fn plain(&self, x: &Tensor, name: &str, stride: usize) -> Result<Tensor> {
        let w = self.get(&format!("{name}.weight"))?;
        let opts = ConvOpts::new().stride(&[stride; 2]).padding(&[w.shape()[2] / 2; 2]);
        x.conv(w, Some(self.get(&format!("{name}.bias"))?), &opts)
    }

    fn conv(&self, x: &Tensor, name: &str, stride: usize) -> Result<Tensor> {
        self.plain(x, &format!("{name}.conv"), stride)?.silu()
    }

    /// Half of the channels go through one block after the other, and all that is found on the way is mixed at the end. In the backbone a block
    /// adds to what it was given.
    fn blocks(&self, x: &Tensor, name: &str, adds: bool) -> Result<Tensor> {
        let mut all = self.conv(x, &format!("{name}.cv1"), 1)?.chunk(2, 1)?;
        let mut last = all[1].clone();
        for i in 0.. {
            let at = format!("{name}.m.{i}");
            if !self.weights.contains_key(&format!("{at}.cv1.conv.weight")) {
                break;
            }
            let y = self.conv(&self.conv(&last, &format!("{at}.cv1"), 1)?, &format!("{at}.cv2"), 1)?;
            last = if adds { last.add(y)? } else { y };
            all.push(last.clone());
        }
        self.conv(&cat(&all.iter().collect::<Vec<_>>())?, &format!("{name}.cv2"), 1)
    }

    /// Largest values within 5, 9 and 13 pixels, beside the map itself.
    fn pyramid_pool(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let pool = PoolOpts::new(&[5, 5]).stride(&[1, 1]).padding(&[2, 2]);
        let a = self.conv(x, &format!("{name}.cv1"), 1)?;
        let b = a.max_pool(&pool)?;
        let c = b.max_pool(&pool)?;
        let d = c.max_pool(&pool)?;
        self.conv(&cat(&[&a, &b, &c, &d])?, &format!("{name}.cv2"), 1)
    }

    /// What the heads make of one level, `[1, 64 + classes, places]`, and its rows and columns.
    fn head(&self, x: &Tensor, level: usize) -> Result<(Tensor, [usize; 2])> {
        let branch = |which: &str| -> Result<Tensor> {
            let at = |i: usize| format!("model.22.{which}.{level}.{i}");
            self.plain(&self.conv(&self.conv(x, &at(0), 1)?, &at(1), 1)?, &at(2), 1)
        };
        let y = cat(&[&branch("cv2")?, &branch("cv3")?])?.flatten(2, 3)?;
        Ok((y, [x.shape()[2], x.shape()[3]]))
    }

    /// `[1, 3, rows, columns]`, red, green and blue from 0 to 1, to `[1, 4 + classes, places]`: middle, width and height of a box in pixels, and how
    /// likely it holds each class. Sides are multiples of 32.
    pub(crate) fn forward(&self, image: &Tensor) -> Result<Tensor> {
        let x = self.conv(&self.conv(image, "model.0", 2)?, "model.1", 2)?;
        let x = self.blocks(&x, "model.2", true)?;
        let fine = self.blocks(&self.conv(&x, "model.3", 2)?, "model.4", true)?;
        let middle = self.blocks(&self.conv(&fine, "model.5", 2)?, "model.6", true)?;
        let x = self.blocks(&self.conv(&middle, "model.7", 2)?, "model.8", true)?;
        let coarse = self.pyramid_pool(&x, "model.9")?;

        let up = self.blocks(&cat(&[&twice(&coarse)?, &middle])?, "model.12", false)?;
        let fine = self.blocks(&cat(&[&twice(&up)?, &fine])?, "model.15", false)?;
        let middle = self.blocks(&cat(&[&self.conv(&fine, "model.16", 2)?, &up])?, "model.18", false)?;
        let coarse = self.blocks(&cat(&[&self.conv(&middle, "model.19", 2)?, &coarse])?, "model.21", false)?;

        let levels = [fine, middle, coarse];
        let heads = levels.iter().enumerate().map(|(i, x)| self.head(x, i)).collect::<Result<Vec<_>>>()?;
        let all = Tensor::cat(&heads.iter().map(|h| &h.0).collect::<Vec<_>>(), 2)?;
        let (mut places, mut strides) = ([Vec::new(), Vec::new()], Vec::new());
        for (_, [rows, columns]) in &heads {
            let stride = (image.shape()[2] / rows) as f32;
            for (y, x) in (0..*rows).flat_map(|y| (0..*columns).map(move |x| (y, x))) {
                places[0].push(x as f32 + 0.5);
                places[1].push(y as f32 + 0.5);
                strides.push(stride);
            }
        }
        let n = strides.len();
        let places = Tensor::new(&self.session, &places.concat(), &[1, 2, n])?;
        let strides = Tensor::new(&self.session, &strides, &[1, 1, n])?;
        let classes = all.shape()[1] - 4 * BINS;
        let bins = Tensor::arange(&self.session, 0.0, BINS as f64, 1.0, DType::F32)?.reshape(&[1, 1, BINS, 1])?;
        let sides = all.narrow(1, 0, 4 * BINS)?.reshape(&[1, 4, BINS, n])?.softmax(2)?;
        let sides = sides.mul(bins)?.sum(&[2], false)?;
        let (least, most) = (places.sub(sides.narrow(1, 0, 2)?)?, places.add(sides.narrow(1, 2, 2)?)?);
        let boxes = cat(&[&least.add(&most)?.mul(0.5)?, &most.sub(&least)?])?.mul(strides)?;
        cat(&[&boxes, &all.narrow(1, 4 * BINS, classes)?.sigmoid()?])
    }
}

fn cat(parts: &[&Tensor]) -> Result<Tensor> {
    Tensor::cat(parts, 1)
}

/// Every pixel four times.
fn twice(x: &Tensor) -> Result<Tensor> {
    x.interpolate(&[2 * x.shape()[2], 2 * x.shape()[3]], Interpolate::Nearest, false)
}
