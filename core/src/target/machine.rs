//! Numbers of the machine below a target, which estimates of cost read: a kernel's schedule follows from them and from what the target
//! can do, never from the name of a back end. Units are nanoseconds and cycles of one core; a machine that nobody measured is given
//! [`Machine::generic`].

use super::{Caches, Prices, Workgroups};
use std::fmt;

/// A machine, as far as estimates of cost know it.
#[derive(Clone, Copy, PartialEq)]
pub struct Machine {
    /// Nanoseconds of launching a kernel.
    pub launch: f64,
    /// Nanoseconds of moving a byte from or to memory.
    pub byte: f64,
    /// Nanoseconds of an operation on one element.
    pub op: f64,
    /// Nanoseconds of loading an element that a cache holds.
    pub load: f64,
    /// Cycles from one multiply-add of a whole vector to the next.
    pub multiply_add: f64,
    /// Cycles of filling a whole vector with one element from memory, in units of a vector's load.
    pub broadcast: f64,
    /// Cycles of a load that a branch guards.
    pub guarded_load: f64,
    /// Nanoseconds that a multiply-add takes longer where its operand is read through padding, and where besides no more results than a
    /// vector holds share what is read.
    pub padded: [f64; 2],
    /// Bytes that are in a cache of the core's own between a kernel that stores them and the next one, which reads them.
    pub near: f64,
    /// Bytes of an operand that stay in the core's own caches from one run of a kernel to the next.
    pub kept: f64,
    /// Cycles of copying a vector to a panel; the same under a mask; under a mask where the panel is read once, at once; and of a
    /// vector of elements that were not side by side.
    pub copy: [f64; 4],
    /// How many times as long a product takes whose operand's lines drive each other out of the first cache, with results below 2 MB,
    /// below 4 MB, and more.
    pub thrashing: [f64; 3],
    /// Do columns go outermost where lines of an operand would do so, though there is no panel?
    pub columns_first: bool,
    /// Do loads of several rows wait less for each other than those of one?
    pub parallel_loads: bool,
    /// Does the compiler below begin all loads of a loop's body before it computes, so that they take registers at once?
    pub loads_first: bool,
    /// Is what lies behind the end of an axis that was rounded up read where it is in the buffer, rather than masked?
    pub reads_behind: bool,
    /// Vectors of a row that are computed side by side at most.
    pub row_vectors: usize,
    /// Numbers of vectors, besides the usual, that a product with nothing to use again may be wide.
    pub wide: &'static [usize],
    /// What programs are made of takes so long.
    pub prices: &'static Prices,
    /// What stays in the caches of a core.
    pub caches: &'static Caches,
    /// What fills a GPU, and what its workgroups cost.
    pub workgroups: &'static Workgroups,
}

/// Numbers as bits: keys are made of this text, and printing decimals takes some kilobytes of a page's module. All fields are named, so that
/// none can be forgotten.
impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[rustfmt::skip]
        let &Machine {
            launch, byte, op, load, multiply_add, broadcast, guarded_load, padded, near, kept, copy, thrashing,
            columns_first, parallel_loads, loads_first, reads_behind, row_vectors, wide, prices, caches, workgroups,
        } = self;
        let own = [launch, byte, op, load, multiply_add, broadcast, guarded_load, near, kept];
        let own = own.into_iter().chain(padded).chain(copy).chain(thrashing);
        for number in own.chain(prices.numbers()).chain(caches.numbers()).chain(workgroups.numbers()) {
            write!(f, "{:x} ", number.to_bits())?;
        }
        write!(f, "{columns_first} {parallel_loads} {loads_first} {reads_behind} {row_vectors} {wide:?}")
    }
}

impl Machine {
    /// A processor of `lanes` f32 in each of `registers` vector registers of which nothing else is known.
    pub fn generic(lanes: usize, registers: usize) -> Machine {
        // interpreters have no lanes, nor a speed that matters
        let vector = 0.25 / lanes.max(4) as f64;
        Machine {
            launch: 2_000.0,
            byte: 0.03,
            op: vector,
            load: vector,
            multiply_add: 0.5,
            broadcast: 1.0,
            guarded_load: 6.0,
            // on Emerald Rapids six convolutions took 4 to 46 % less time with stored padding, and one of 5 taps 13 % more
            padded: [0.2 * vector; 2],
            near: 0.0,
            kept: f64::from(4 << 20),
            copy: [2.0, 5.0, 5.0, 1.3 * lanes as f64],
            thrashing: [3.0; 3],
            columns_first: false,
            parallel_loads: false,
            loads_first: false,
            reads_behind: false,
            row_vectors: (registers / 8).clamp(1, 4),
            wide: &[],
            prices: &Prices::WIDE_X86,
            caches: &Caches::ZEN4,
            workgroups: &Workgroups::GPU,
        }
    }

    /// An x86-64 core, measured on Zen 4: its widest vectors go through its units in halves. A vector of 64 bytes takes 6 cycles out of
    /// the second cache and 8 out of the third; under masks 13 if it is read once and at once, across the lines that were just stored. A
    /// panel pays from 64 tiles on that read it, and from fewer where there are many results, which drive out of the caches what is read.
    pub fn zen4(lanes: usize, registers: usize) -> Machine {
        let generic = Machine::generic(lanes, registers);
        Machine {
            multiply_add: if lanes == 16 { 1.0 } else { 0.5 },
            broadcast: if lanes == 16 { 2.0 } else { 1.0 },
            guarded_load: 3.5,
            copy: [0.5 * lanes as f64, 5.0, 0.8 * lanes as f64, 0.8 * lanes as f64],
            thrashing: [1.19, 1.5, 1.8],
            columns_first: true,
            parallel_loads: true,
            // depthwise windows of 5 and 7 took a quarter less time with vectors of 64 bytes, and of 32 bytes up to 1.6 times as long
            reads_behind: lanes == 16,
            padded: [generic.padded[0], 3.0 * generic.padded[0]],
            // three quarters of the second cache
            near: f64::from(768 << 10),
            // the second cache: rows of 1.2 MB in f16 came at 13 GB/s eight at a time, and at 31 one by one
            kept: f64::from(1 << 20),
            prices: if lanes == 16 { &Prices::HALVED_X86 } else { &Prices::WIDE_X86 },
            ..generic
        }
    }

    /// An x86-64 core with two units for its widest vectors, measured on Emerald Rapids; so have most of Intel's with AVX-512, and AMD's
    /// since Zen 5. What else it costs is taken from Zen 4.
    pub fn wide_x86(lanes: usize, registers: usize) -> Machine {
        Machine {
            multiply_add: 0.5,
            broadcast: 1.0,
            kept: f64::from(2 << 20),
            prices: &Prices::WIDE_X86,
            ..Machine::zen4(lanes, registers)
        }
    }

    /// An AArch64 core with two units for vectors, as small ones have; no such machine was measured.
    pub fn arm64() -> Machine {
        Machine { broadcast: 0.5, ..Machine::generic(4, 32) }
    }

    /// A WebAssembly engine: it holds one vector of a row's tile at a time, whatever their number. V8 computed in the order of what is wanted
    /// (TurboFan) until it had relaxed SIMD for a while, and in the order of the code since (Turboshaft): in Node 20 a product of 4 rows of 8,
    /// its turns not repeated, runs at 41 GFLOP/s on Zen 4, one of 5 rows of 8 at 25, and either four times repeated at 23 to 26; in Node
    /// 24 all of them run at 44 to 47.
    pub fn wasm_engine(relaxed_simd: bool) -> Machine {
        let vector = 0.3 / 4.0;
        // whole lines of a matrix at once, as many as there are registers for
        let wide = &[8, 12];
        Machine {
            launch: 1_000.0,
            byte: 0.05,
            op: vector,
            load: vector,
            loads_first: !relaxed_simd,
            row_vectors: 4,
            wide,
            prices: &Prices::WASM_ENGINE,
            ..Machine::generic(4, 14)
        }
    }

    /// A GPU of hardware: a guess, none was measured.
    pub fn gpu() -> Machine {
        Machine {
            launch: 5_000.0,
            byte: 0.01,
            op: 0.0005,
            load: 0.001,
            padded: [0.0; 2],
            row_vectors: 1,
            prices: &Prices::GPU,
            ..Machine::generic(4, 32)
        }
    }

    /// A GPU that a processor emulates (SwiftShader, llvmpipe).
    pub fn emulated_gpu() -> Machine {
        Machine { launch: 100_000.0, byte: 0.1, op: 0.3, load: 2.5, prices: &Prices::EMULATED_GPU, ..Machine::gpu() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_differ_in_one_number_have_different_texts() {
        static OTHER: Prices = Prices { turn: 9.0, ..Prices::GPU };
        static FULLER: Workgroups = Workgroups { all: 128, ..Workgroups::GPU };
        let gpu = Machine::gpu();
        let text = |m: Machine| format!("{m:?}");
        let others = [
            Machine { prices: &OTHER, ..gpu },
            Machine { workgroups: &FULLER, ..gpu },
            Machine { op: 1.0, ..gpu },
            Machine { row_vectors: 7, ..gpu },
        ];
        for other in others {
            assert_ne!(text(gpu), text(other));
        }
    }
}
