//! Speed of one register-tiled matmul kernel on one core, without optimiser or scheduler in the way:
//! `cargo run --release -p gradloom-tests --example matmul_tile [N]`. Prints GFLOP/s per tile and instruction set.
#![allow(missing_docs)]

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    eprintln!("needs x86-64 on unix");
}

#[cfg(target_arch = "x86_64")]
fn main() -> gradloom_core::Result<()> {
    use gradloom::cpu::{CpuDevice, detect};
    use gradloom_core::device::{Device, Step, View};
    use gradloom_core::render::{Code, Renderer, Source, x86::X86};
    use gradloom_core::target::{Isa, Target};
    use std::time::Instant;

    let args: Vec<String> = std::env::args().collect();
    let n: usize = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(512);
    for (isa, m, regs) in [
        (Isa::Avx2, 4, 2),
        (Isa::Avx2, 4, 3),
        (Isa::Avx2, 6, 2),
        (Isa::Avx2, 8, 2),
        (Isa::Avx512, 6, 2),
        (Isa::Avx512, 8, 2),
        (Isa::Avx512, 12, 2),
    ] {
        if detect().is_none_or(|have| have < isa) {
            continue;
        }
        let t = Target::x86(isa, 1);
        let (rows, cols) = (n.next_multiple_of(m), n.next_multiple_of(regs * t.caps.lanes));
        let program = tile::matmul(&t, rows, cols, n, m, regs);
        let start = Instant::now();
        let code = X86.render(&program, &t)?;
        let us = start.elapsed().as_secs_f64() * 1e6;
        if args.len() > 2
            && let Code::Bytes(b) = &code
        {
            print!("{}", gradloom::disasm::disassemble(b));
        }
        let mut dev = CpuDevice::with_isa(isa, 1)?;
        let kernel = dev.compile(&[Source::new(&program, code)])?[0];
        let mut views = Vec::new();
        for p in &program.params {
            let buf = dev.alloc(p.len * 4)?;
            dev.upload(buf, 0, &0.5f32.to_le_bytes().repeat(p.len))?;
            views.push(View { buf, offset: 0, bytes: p.len * 4 });
        }
        let step = [Step::Launch { kernel, args: views.clone(), grid: program.grid, vars: vec![] }];
        let mut best = f64::INFINITY;
        for _ in 0..12 {
            let start = Instant::now();
            dev.submit(&step)?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        let ticket = dev.read(views[2])?;
        let out = dev.poll(ticket)?.unwrap_or_default();
        let want = (0.25 * n as f32).to_le_bytes();
        assert!(out.chunks(4).all(|b| b == want), "wrong result");
        let gflops = 2.0 * (rows * cols * n) as f64 / best / 1e9;
        println!("{isa:?} tile {m}x{}: {gflops:.1} GFLOP/s, rendered in {us:.0} us", regs * t.caps.lanes);
    }
    Ok(())
}

#[cfg(target_arch = "x86_64")]
mod tile {
    use gradloom_core::DType::F32;
    use gradloom_core::codegen::Program;
    use gradloom_core::target::Target;
    use gradloom_core::uop::{AxisKind, Op, UOp};
    use gradloom_tests::nodes::MakeNodes;
    use gradloom_tests::programs::{Build, Data};

    pub(super) fn matmul(t: &Target, m: usize, n: usize, k: usize, rows: usize, regs: usize) -> Program {
        let l = t.caps.lanes;
        let data = |len| Data::new(F32, len, |_| 0.0);
        let mut b = Build::new(t);
        let (x, w, y) = (b.input(data(m * k)), b.input(data(k * n)), b.output(data(m * n)));
        let blocks = n / (regs * l);
        let g = b.launch(m / rows * blocks);
        let of = b.g.idx((m / rows) as i64);
        // neighbours in the grid share a panel of the right operand
        let (nb, mb) = (b.g.binary(Op::Idiv, g, of), b.g.binary(Op::Imod, g, of));
        let (mi, ni) = (b.tile(rows, AxisKind::Upcast, false), b.tile(regs, AxisKind::Upcast, false));
        let lane = b.tile(l, AxisKind::Upcast, true);
        let ns: Vec<(UOp, i64)> = vec![(ni, l as i64), (lane, 1)];
        let zero = b.g.float(0.0, F32);
        let acc = b.acc(0, zero, &[mi, ni, lane]);
        let r = b.open(k, AxisKind::Reduce);
        let row = b.times(mb, (rows * k) as i64);
        let col = b.times(nb, (regs * l) as i64);
        let (at_a, at_b) = (b.g.binary(Op::Add, row, r), b.lin(r, n as i64, col));
        let (av, bv) = (b.load(x, at_a, &[(mi, k as i64)], F32), b.load(w, at_b, &ns, F32));
        let u = b.mul_add(acc, av, bv);
        let e = b.end(r, &[u]);
        let v = b.read(acc, &[e]);
        let at = b.lin(mb, (rows * n) as i64, col);
        b.store(y, at, &[(mi, n as i64), (ni, l as i64), (lane, 1)], v);
        b.finish("matmul").program
    }
}
