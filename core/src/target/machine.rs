//! Performance numbers of the machine behind a target. Cost estimates read them, so that a kernel's schedule follows
//! from these numbers and from what the target can do, never from the name of a back end. Units are nanoseconds, and
//! cycles of one core. A machine that nobody has measured gets [`Machine::generic`].

use super::{Caches, Prices, Workgroups};
use std::fmt;

/// The performance numbers of a machine that the scheduler and the choice of opts use.
#[derive(Clone, Copy, PartialEq)]
pub struct Machine {
    /// True if a CPU emulates the GPU (SwiftShader, llvmpipe, pocl).
    pub software: bool,
    /// Multiprocessors of a GPU, over which a kernel's workgroups are distributed; 0 if the number is unknown.
    pub processors: usize,
    /// Nanoseconds that the scheduler charges for a further kernel, where a value could be computed again instead or the
    /// steps of a recurrence looped over. It is more than the launch ([`Prices::launch`]): each kernel is a program that
    /// has to be compiled and kept, and a barrier for the threads of a processor, which the prices know of two threads
    /// alone. Charged with launches alone, processors would split the kernels of embeddings with their norms.
    pub extra_kernel: f64,
    /// Nanoseconds to move one byte from or to memory.
    pub ns_per_byte: f64,
    /// Nanoseconds of an arithmetic operation on one element (a vector operation divided by its lanes).
    pub ns_per_op: f64,
    /// Nanoseconds to load one element that a cache holds.
    pub load: f64,
    /// Cycles between the issue of one multiply-add of a whole vector and the next (its reciprocal throughput).
    pub multiply_add: f64,
    /// Cost of loading one element into all lanes of a whole vector, in units of a vector load.
    pub broadcast: f64,
    /// Cost of a load that is guarded by a branch, as where all lanes read one masked element, in units of a vector
    /// load.
    pub guarded_load: f64,
    /// Costs of converting elements of fewer than 32 bits to the lanes' 32, in units of a vector load: of a loaded
    /// vector, and of one element that is loaded, moved to a vector and converted before it is repeated in all lanes.
    pub narrow: [f64; 2],
    /// Vector operations that convert f16 to f32; 0 where one instruction does, as most processors have.
    pub half_ops: u32,
    /// Nanoseconds that a multiply-add takes longer where its operand is read through padding, under a mask: at least,
    /// and where the value that is read goes into the results of one vector.
    pub padded_load_ns: [f64; 2],
    /// Bytes of an operand that a core's private caches still hold from one run of a kernel to the next.
    pub resident_bytes: f64,
    /// Cycles to copy one vector to a packed panel: of contiguous elements; the same under a mask; under a mask where
    /// only one tile reads the panel, right after the copy; and of elements that were not contiguous.
    pub copy: [f64; 4],
    /// Factor by which a contraction slows down if the cache lines of an operand evict each other from L1, where its
    /// results have below 2 MB, below 4 MB, and more.
    pub thrashing: [f64; 3],
    /// Is the loop over columns of the result made the outermost one where lines of an operand would evict each other
    /// from L1, even if no panel is packed?
    pub columns_first: bool,
    /// Do independent loads of several rows overlap their latencies better than the loads of one row?
    pub parallel_loads: bool,
    /// Does the compiler that translates our code (a browser's WebAssembly engine) move all loads of a loop body before
    /// its arithmetic, so that all loaded values occupy registers at once?
    pub hoists_loads: bool,
    /// Does that compiler keep the values of a body of hundreds of operations on the stack, so that more iterations of
    /// a shorter body are faster even if they load some operands again? In Node 20 on a Xeon products of single vectors
    /// with quantised matrices took 18 to 43 % less time in bodies of 32 weights a row than in bodies of 128.
    pub spills_long_bodies: bool,
    /// Is a transposed convolution fastest as one product over the channels, whose results are added where filter taps
    /// overlap (`tensor/conv_transpose.rs`)? Measured in Node on AMD EPYC, 3x3 with stride 2: 64 to 256 channels took
    /// 0.54 to 0.9 of the time, where AVX-512 takes 1.2 to 1.6 times as long.
    pub products_before_taps: bool,
    /// For an axis that was rounded up: are elements beyond its end read from the buffer, where it has any there,
    /// instead of being masked? Results computed from them are never stored.
    pub reads_past_end: bool,
    /// The most vectors of a row that a row kernel computes at once, to hide the latency of accumulators.
    pub row_vectors: usize,
    /// Tile widths in vectors that are tried in addition to the usual ones for a product without any reuse of operands.
    pub extra_tile_widths: &'static [usize],
    /// Costs of instructions, memory traffic and launches, for `codegen/cost.rs`.
    pub prices: &'static Prices,
    /// The caches of a core.
    pub caches: &'static Caches,
    /// How many threads fill a GPU, and what its workgroups cost.
    pub workgroups: &'static Workgroups,
}

/// Prints each number as its bits: cache keys are made of this text, and code that prints decimals would add some
/// kilobytes to a page's wasm module. All fields are named, so that none can be forgotten.
impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[rustfmt::skip]
        let &Machine {
            extra_kernel, ns_per_byte, ns_per_op, load, multiply_add, broadcast, guarded_load, padded_load_ns,
            resident_bytes, copy, thrashing, columns_first, parallel_loads, hoists_loads, narrow, half_ops,
            spills_long_bodies, products_before_taps, reads_past_end, row_vectors, extra_tile_widths, prices, caches,
            workgroups, software, processors,
        } = self;
        #[rustfmt::skip]
        let own = [
            extra_kernel, ns_per_byte, ns_per_op, load, multiply_add, broadcast, guarded_load, resident_bytes,
            f64::from(half_ops),
        ];
        let lists: [&[f64]; 5] = [&own, &narrow, &padded_load_ns, &copy, &thrashing];
        let mut numbers = lists.concat();
        prices.numbers(&mut numbers);
        caches.numbers(&mut numbers);
        workgroups.numbers(&mut numbers);
        for number in numbers {
            write!(f, "{:x} ", number.to_bits())?;
        }
        #[rustfmt::skip]
        let flags = [
            columns_first, parallel_loads, hoists_loads, spills_long_bodies, products_before_taps, reads_past_end, software,
        ].map(u8::from);
        write!(f, "{flags:?} {row_vectors} {extra_tile_widths:?} {processors}")
    }
}

impl Machine {
    /// A CPU of which nothing is known but its `registers` vector registers of `lanes` f32.
    pub fn generic(lanes: usize, registers: usize) -> Machine {
        // interpreters have one lane, and their speed does not matter
        let vector = 0.25 / lanes.max(4) as f64;
        Machine {
            software: false,
            processors: 0,
            extra_kernel: 2_000.0,
            ns_per_byte: 0.03,
            ns_per_op: vector,
            load: vector,
            multiply_add: 0.5,
            broadcast: 1.0,
            guarded_load: 6.0,
            narrow: [0.0; 2],
            half_ops: 0,
            // on Emerald Rapids six convolutions took 4 to 46 % less time with stored padding, and one of 5 taps 13 % more
            padded_load_ns: [0.2 * vector; 2],
            resident_bytes: f64::from(4 << 20),
            copy: [2.0, 5.0, 5.0, 1.3 * lanes as f64],
            thrashing: [3.0; 3],
            columns_first: false,
            parallel_loads: false,
            hoists_loads: false,
            spills_long_bodies: false,
            products_before_taps: false,
            reads_past_end: false,
            row_vectors: (registers / 8).clamp(1, 4),
            extra_tile_widths: &[],
            prices: &Prices::WIDE_X86,
            caches: &Caches::ZEN4,
            workgroups: &Workgroups::GPU,
        }
    }

    /// An x86-64 core, measured on Zen 4, which executes 64-byte vectors in two halves. A vector of 64 bytes takes 6
    /// cycles from L2 and 8 from L3; under masks 13, if it is read once right after the copy, across the lines that
    /// were just stored. A panel pays off if at least 64 tiles read it, and with fewer where there are many results,
    /// which evict the operand from the caches.
    pub fn zen4(lanes: usize, registers: usize) -> Machine {
        let generic = Machine::generic(lanes, registers);
        Machine {
            multiply_add: if lanes == 16 { 1.0 } else { 0.5 },
            broadcast: if lanes == 16 { 2.0 } else { 1.0 },
            guarded_load: 3.5,
            narrow: [1.0, 3.0],
            copy: [0.5 * lanes as f64, 5.0, 0.8 * lanes as f64, 0.8 * lanes as f64],
            thrashing: [1.19, 1.5, 1.8],
            columns_first: true,
            parallel_loads: true,
            // depthwise convolutions with windows of 5 and 7 took a quarter less time with vectors of 64 bytes, and up
            // to 1.6 times as long with 32 bytes
            reads_past_end: lanes == 16,
            padded_load_ns: [generic.padded_load_ns[0], 3.0 * generic.padded_load_ns[0]],
            // the size of L2: rows of 1.2 MB in f16 were read at 13 GB/s eight at a time, and at 31 GB/s one by one
            resident_bytes: f64::from(1 << 20),
            prices: if lanes == 16 { &Prices::HALVED_X86 } else { &Prices::WIDE_X86 },
            ..generic
        }
    }

    /// An x86-64 core that executes two operations on its widest vectors per cycle, measured on Emerald Rapids. Most
    /// Intel cores with AVX-512 are of this kind, and AMD's since Zen 5. All numbers not set here are taken from Zen 4.
    pub fn wide_x86(lanes: usize, registers: usize) -> Machine {
        Machine {
            multiply_add: 0.5,
            broadcast: 1.0,
            resident_bytes: f64::from(2 << 20),
            prices: &Prices::WIDE_X86,
            ..Machine::zen4(lanes, registers)
        }
    }

    /// An AArch64 core with two vector units, as small cores have. Not measured.
    pub fn arm64() -> Machine {
        Machine { broadcast: 0.5, ..Machine::generic(4, 32) }
    }

    /// A WebAssembly engine. It has one vector of a row's tile in a register at a time, however many there are. Before
    /// relaxed SIMD, and for a while after, V8 scheduled instructions by what their users need (TurboFan); since then
    /// it keeps the order of the code (Turboshaft). Measured on Zen 4: in Node 20 a product with tiles of 4 rows of 8
    /// elements, loop not unrolled, runs at 41 GFLOP/s, one with tiles of 5 rows of 8 at 25, and either unrolled four
    /// times at 23 to 26; in Node 24 all of them run at 44 to 47.
    pub fn wasm_engine(relaxed_simd: bool) -> Machine {
        let vector = 0.3 / 4.0;
        // whole cache lines of a matrix at once, as many as there are registers for
        let extra_tile_widths = &[8, 12];
        Machine {
            extra_kernel: 1_000.0,
            ns_per_byte: 0.05,
            ns_per_op: vector,
            load: vector,
            hoists_loads: !relaxed_simd,
            spills_long_bodies: true,
            products_before_taps: true,
            half_ops: 7,
            row_vectors: 4,
            extra_tile_widths,
            prices: &Prices::WASM_ENGINE,
            ..Machine::generic(4, 14)
        }
    }

    /// A hardware GPU. Guessed numbers: none was measured.
    pub fn gpu() -> Machine {
        Machine {
            extra_kernel: 5_000.0,
            ns_per_byte: 0.01,
            ns_per_op: 0.0005,
            load: 0.001,
            padded_load_ns: [0.0; 2],
            row_vectors: 1,
            prices: &Prices::GPU,
            ..Machine::generic(4, 32)
        }
    }

    /// A GPU emulated by a CPU (SwiftShader, llvmpipe).
    pub fn emulated_gpu() -> Machine {
        Machine {
            software: true,
            extra_kernel: 100_000.0,
            ns_per_byte: 0.1,
            ns_per_op: 0.3,
            load: 2.5,
            prices: &Prices::EMULATED_GPU,
            ..Machine::gpu()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_differ_in_one_number_have_different_texts() {
        static OTHER: Prices = Prices { loop_overhead: 9.0, ..Prices::GPU };
        static FULLER: Workgroups = Workgroups { threads_per_rare_reduction: 128, ..Workgroups::GPU };
        let gpu = Machine::gpu();
        let text = |m: Machine| format!("{m:?}");
        let others = [
            Machine { prices: &OTHER, ..gpu },
            Machine { workgroups: &FULLER, ..gpu },
            Machine { ns_per_op: 1.0, ..gpu },
            Machine { row_vectors: 7, ..gpu },
        ];
        for other in others {
            assert_ne!(text(gpu), text(other));
        }
    }
}
