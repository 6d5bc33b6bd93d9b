//! The reference device: runs programs in the interpreter, which checks every memory access.

use super::{BufId, Device, KernelId, Step, Ticket, View};
use crate::dtype::Scalar;
use crate::render::{Code, Interpreted, Renderer, Source};
use crate::target::Target;
use crate::uop::eval::program::eval_program;
use crate::{DType, Error, Result};
use rustc_hash::FxHashMap;

/// Buffers are host bytes, kernels are programs.
pub struct EvalDevice {
    target: Target,
    buffers: FxHashMap<u32, Vec<u8>>,
    kernels: Vec<Option<Source>>,
    reads: FxHashMap<u32, Vec<u8>>,
    next: u32,
}

impl Default for EvalDevice {
    fn default() -> Self {
        EvalDevice::new(Target::eval())
    }
}

impl EvalDevice {
    /// An interpreter with the limits and dtypes of `target`, whose `lang` must be Eval.
    pub fn new(target: Target) -> EvalDevice {
        EvalDevice { target, buffers: FxHashMap::default(), kernels: Vec::new(), reads: FxHashMap::default(), next: 0 }
    }

    fn bad(&self, what: impl Into<String>) -> Error {
        Error::Device { device: self.target.name.clone(), what: what.into() }
    }

    fn bytes(&self, v: &View) -> Result<&[u8]> {
        let b = self.buffers.get(&v.buf.0).ok_or_else(|| self.bad(format!("no buffer {:?}", v.buf)))?;
        b.get(v.offset..v.offset + v.bytes).ok_or_else(|| self.bad(format!("{v:?} is outside of {} bytes", b.len())))
    }

    fn put(&mut self, v: &View, data: &[u8]) -> Result<()> {
        let bad = self.bad(format!("{v:?} is not writable"));
        let b = self.buffers.get_mut(&v.buf.0).ok_or(bad.clone())?;
        b.get_mut(v.offset..v.offset + v.bytes).ok_or(bad)?.copy_from_slice(&data[..v.bytes]);
        Ok(())
    }

    fn launch(&mut self, kernel: KernelId, args: &[View], grid: [u32; 3], vars: &[u32]) -> Result<()> {
        let source = self.kernels.get(kernel.0 as usize).cloned().flatten();
        let Some(Source { code: Code::Program(p), .. }) = source else {
            return Err(self.bad(format!("{kernel:?} is not a program")));
        };
        let mut data: Vec<Vec<u8>> = args.iter().map(|v| Ok(self.bytes(v)?.to_vec())).collect::<Result<_>>()?;
        let named: Vec<(&str, Scalar)> = p
            .vars
            .iter()
            .zip(vars)
            .map(|(v, &bits)| {
                let value = match v.dtype {
                    DType::F32 => Scalar::float(f32::from_bits(bits) as f64),
                    _ => Scalar::Int(bits as i32 as i64),
                };
                (&*v.name, value)
            })
            .collect();
        eval_program(&p.g, &p.order, &mut data, &named, grid)?;
        for ((v, d), info) in args.iter().zip(&data).zip(&p.params) {
            if info.written {
                self.put(v, d)?;
            }
        }
        Ok(())
    }
}

impl Device for EvalDevice {
    fn target(&self) -> &Target {
        &self.target
    }

    fn renderer(&self) -> &'static dyn Renderer {
        &Interpreted
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let mut data = Vec::new();
        let refused = |_| Error::OutOfMemory { device: self.target.name.clone(), bytes: bytes as u64 };
        data.try_reserve_exact(bytes).map_err(refused)?;
        data.resize(bytes, 0);
        self.next += 1;
        self.buffers.insert(self.next, data);
        Ok(BufId(self.next))
    }

    fn free(&mut self, buf: BufId) {
        self.buffers.remove(&buf.0);
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        self.put(&View { buf, offset, bytes: data.len() }, data)
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        let first = self.kernels.len() as u32;
        self.kernels.extend(sources.iter().cloned().map(Some));
        Ok((first..self.kernels.len() as u32).map(KernelId).collect())
    }

    fn release(&mut self, kernel: KernelId) {
        if let Some(k) = self.kernels.get_mut(kernel.0 as usize) {
            *k = None;
        }
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        for s in steps {
            match s {
                Step::Launch { kernel, args, grid, vars } => self.launch(*kernel, args, *grid, vars)?,
                Step::Copy { src, dst } => {
                    let data = self.bytes(src)?.to_vec();
                    self.put(dst, &data)?;
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        let data = self.bytes(&view)?.to_vec();
        self.next += 1;
        self.reads.insert(self.next, data);
        Ok(Ticket(self.next))
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        self.reads.remove(&ticket.0).map(Some).ok_or_else(|| self.bad("this ticket was read already"))
    }
}
