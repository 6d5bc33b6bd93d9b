//! Dot products: quadruples of bytes into i32, both signed (`sdot`) or both unsigned (`udot`).

use super::Lower;
use super::table;
use crate::DType::*;
use crate::Result;
use crate::render::linear::dot::{Dot, Factor, Form, Step};
use crate::render::linear::mir::VReg;

impl Lower<'_> {
    pub(super) fn dot_step(&mut self, d: &Dot, mut s: Step) -> Result<()> {
        let (a, b) = (self.group(d.a, &mut s)?, self.group(d.b, &mut s)?);
        let add = |l: &mut Self, code, acc: VReg, a, b| {
            let ops = [acc, a, b].map(|r| l.opnd(r));
            l.f.update(code, &ops);
        };
        let (signed, a, b) = match (d.a.dt, d.b.dt) {
            (U8, U8) => {
                add(self, table::UDOT, s.acc, a, b);
                return Ok(());
            }
            (I8, I8) => {
                add(self, table::SDOT, s.acc, a, b);
                return Ok(());
            }
            (I8, _) => ((d.a, a), a, self.shifted(d.b, b, &mut s)?),
            _ => ((d.b, b), self.shifted(d.a, a, &mut s)?, b),
        };
        // the unsigned factor is shifted by -128 to a signed one, and what that subtracts, 128 times the sum of the
        // signed factor, is added back
        add(self, table::SDOT, s.acc, a, b);
        let correction = self.correction(signed.0, signed.1, &mut s);
        let [acc, correction] = [s.acc, correction].map(|r| self.opnd(r));
        self.f.update(table::SUB_V, &[acc, acc, correction]);
        Ok(())
    }

    /// The correction for a shifted other factor: -128 times the sum of each group of signed bytes.
    fn correction(&mut self, x: Factor, from: VReg, s: &mut Step) -> VReg {
        let key = self.group_key(x, s, Form::Correction);
        if let Some(&r) = s.known.get(&key) {
            return r;
        }
        let (r, half) = (self.vector(), self.lanes(0x8080_8080));
        self.zero(r);
        let ops = [r, from, half].map(|r| self.opnd(r));
        self.f.update(table::SDOT, &ops);
        s.known.insert(key, r);
        r
    }
}
