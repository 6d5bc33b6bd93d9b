//! Running candidates of one kernel on a device: buffers with the same random data for each, and a check whether the
//! results of two agree. Has no clock and does not wait: the driver of the search does both.

use super::plan::Compiled;
use crate::codegen::VarInfo;
use crate::device::{BufId, Device, KernelId, Step, View};
use crate::dtype::Scalar;
use crate::{DType, Error, Result};

/// Buffers with random data for the parameters of one kernel.
pub struct Bench {
    args: Vec<View>,
    types: Vec<(DType, bool)>,
    data: Vec<Vec<u8>>,
    vars: Vec<u32>,
}

/// A candidate on the device, with packed operands of its own.
pub struct Trying {
    steps: Vec<Step>,
    kernels: Vec<KernelId>,
    packed: Vec<BufId>,
}

impl Trying {
    /// The steps that pack its operands and then run it.
    pub fn first(&self) -> &[Step] {
        &self.steps
    }

    /// The step that runs it on operands which are packed already.
    pub fn again(&self) -> &[Step] {
        &self.steps[self.steps.len().saturating_sub(1)..]
    }

    /// Frees its kernels and packed operands.
    pub fn free(self, dev: &mut dyn Device) {
        self.kernels.into_iter().for_each(|k| dev.release(k));
        self.packed.into_iter().for_each(|b| dev.free(b));
    }
}

impl Bench {
    /// Allocates and fills buffers for the parameters of a kernel. All candidates for the kernel have the same
    /// parameters.
    pub fn new(dev: &mut dyn Device, c: &Compiled) -> Result<Bench> {
        let mut b = Bench { args: Vec::new(), types: Vec::new(), data: Vec::new(), vars: Vec::new() };
        b.vars = c.vars.iter().map(VarInfo::any_bits).collect();
        match b.fill(dev, c) {
            Ok(()) => Ok(b),
            Err(e) => {
                b.free(dev);
                Err(e)
            }
        }
    }

    fn fill(&mut self, dev: &mut dyn Device, c: &Compiled) -> Result<()> {
        let mut seed = 0x9E37_79B9_7F4A_7C15u64;
        for (slot, p) in (0u32..).zip(&c.source.params) {
            // a packed parameter gets a buffer in its original layout
            let original = c.packs.iter().find(|x| x.slot == slot).and_then(|x| x.compiled.source.params.get(1));
            let p = original.unwrap_or(p);
            let bytes = p.len * p.dtype.size();
            let buf = dev.alloc(bytes.max(4))?;
            self.args.push(View { buf, offset: 0, bytes });
            self.types.push((p.dtype, p.written && original.is_none()));
            self.data.push(random(p.dtype, p.len, &mut seed));
        }
        self.args.iter().zip(&self.data).try_for_each(|(view, data)| dev.upload(view.buf, 0, data))
    }

    /// Frees the buffers.
    pub fn free(&self, dev: &mut dyn Device) {
        self.args.iter().for_each(|a| dev.free(a.buf));
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> usize {
        self.args.iter().map(|a| a.bytes).sum()
    }

    /// Starts compiling a candidate, and allocates its packed operands.
    pub fn compile(&self, dev: &mut dyn Device, c: &Compiled) -> Result<Trying> {
        if c.source.params.len() != self.args.len() {
            return Err(Error::Internal("a candidate has other parameters".into()));
        }
        let packs = c.packs.iter().map(|p| &p.compiled.source);
        let kernels = dev.compile(&[&c.source].into_iter().chain(packs).cloned().collect::<Vec<_>>())?;
        let mut trying = Trying { steps: Vec::new(), kernels, packed: Vec::new() };
        match self.steps(dev, c, &mut trying) {
            Ok(()) => Ok(trying),
            Err(e) => {
                trying.free(dev);
                Err(e)
            }
        }
    }

    fn steps(&self, dev: &mut dyn Device, c: &Compiled, trying: &mut Trying) -> Result<()> {
        let mut args = self.args.clone();
        let mut kernels = trying.kernels.clone().into_iter();
        let kernel = kernels.next().ok_or_else(|| Error::Internal("one source, one kernel".into()))?;
        for (p, kernel) in c.packs.iter().zip(kernels) {
            let bytes = p.compiled.source.params.first().map_or(0, |to| to.len * to.dtype.size());
            let to = View { buf: dev.alloc(bytes.max(4))?, offset: 0, bytes };
            trying.packed.push(to.buf);
            let Some(arg) = args.get_mut(p.slot as usize) else { continue };
            let args = vec![to, std::mem::replace(arg, to)];
            trying.steps.push(Step::Launch { kernel, args, grid: p.compiled.grid, vars: Vec::new() });
        }
        trying.steps.push(Step::Launch { kernel, args, grid: c.grid, vars: self.vars.clone() });
        Ok(())
    }

    /// Restores the original data of buffers that candidates write.
    pub fn reset(&self, dev: &mut dyn Device) -> Result<()> {
        let written = self.args.iter().zip(&self.types).zip(&self.data).filter(|((_, t), _)| t.1);
        written.map(|((view, _), data)| dev.upload(view.buf, 0, data)).collect()
    }

    /// The buffers that candidates write.
    pub fn written(&self) -> Vec<View> {
        self.args.iter().zip(&self.types).filter(|(_, t)| t.1).map(|(view, _)| *view).collect()
    }

    /// Do the bytes that two candidates wrote agree, apart from the rounding of sums in another order?
    pub fn agree(&self, want: &[Vec<u8>], got: &[Vec<u8>]) -> bool {
        let types = self.types.iter().filter(|t| t.1).map(|t| t.0);
        want.len() == got.len() && types.zip(want.iter().zip(got)).all(|(dtype, (want, got))| same(dtype, want, got))
    }
}

fn same(dtype: DType, want: &[u8], got: &[u8]) -> bool {
    if !dtype.is_float() {
        return want == got;
    }
    let tolerance = match dtype {
        DType::F64 => 1e-10,
        DType::F32 => 1e-4,
        _ => 2e-2,
    };
    let value = |b: &[u8], i: usize| Scalar::read(dtype, &b[i * dtype.size()..]).as_f64();
    let n = want.len() / dtype.size();
    let scale = (0..n).map(|i| value(want, i).abs()).filter(|v| v.is_finite()).fold(0.0, f64::max).max(1e-30);
    want.len() == got.len()
        && (0..n).all(|i| {
            let (a, b) = (value(want, i), value(got, i));
            a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * scale
        })
}

/// Random numbers of small size: floats within -1 and 1, integers from 0 to 3.
fn random(dtype: DType, len: usize, seed: &mut u64) -> Vec<u8> {
    let mut out = vec![0; len * dtype.size()];
    for bytes in out.chunks_exact_mut(dtype.size()) {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        let bits = *seed >> 40;
        let value = match dtype {
            DType::Bool => Scalar::Int((bits & 1) as i64),
            d if d.is_float() => Scalar::float(bits as f64 / (1 << 23) as f64 - 1.0),
            _ => Scalar::Int((bits & 3) as i64),
        };
        value.write(dtype, bytes);
    }
    out
}
