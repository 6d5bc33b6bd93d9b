//! Prices for the cost model in `codegen/cost.rs`: what each class of instruction, each byte moved and each launch
//! costs on a machine. Unless a field says otherwise, a price is in cycles of one core or unit, for one whole vector of
//! the target ([`super::Caps::lanes`] f32). Prices are reciprocal throughputs fitted to measured kernel times (`npm
//! run bench:model -- --fit`), so they include what the compiler below (a browser's, a driver's) adds to an
//! instruction.

/// The prices of a machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prices {
    /// Nanoseconds of a launch in a sequence of launches. What the scheduler charges for a further kernel is more
    /// ([`super::Machine::extra_kernel`]).
    pub launch: f64,
    /// Additional nanoseconds of a launch that several threads share, which have to be started and joined.
    pub fork_join: f64,
    /// Additional nanoseconds of a launch for each of its buffers.
    pub argument: f64,
    /// Nanoseconds of one cycle.
    pub cycle: f64,
    /// An addition, comparison, select or conversion.
    pub arithmetic: f64,
    /// A multiply-add to an accumulator.
    pub multiply_add: f64,
    /// Multiply-adds of 16-bit floats in a matrix tile, as many as a vector has f32 lanes.
    pub matrix: f64,
    /// A division or square root.
    pub divide: f64,
    /// A division of one integer.
    pub integer_divide: f64,
    /// A scalar integer operation, as in address arithmetic.
    pub scalar: f64,
    /// One step of a horizontal sum: adding one half of a vector to the other.
    pub horizontal_step: f64,
    /// A vector load of contiguous elements.
    pub vector_load: f64,
    /// A load of one element into all lanes.
    pub broadcast: f64,
    /// A load of one element into one lane.
    pub element_load: f64,
    /// Loads of contiguous elements that are then permuted, such as every other element.
    pub permuted_load: f64,
    /// A branch that guards a load or store.
    pub guard: f64,
    /// A vector store to contiguous elements.
    pub vector_store: f64,
    /// A store of one element.
    pub element_store: f64,
    /// Spilling one vector of an accumulator for which no register is left; counted once as a load and once as a store.
    pub spill: f64,
    /// Loop control of one iteration, without the body.
    pub loop_overhead: f64,
    /// Latency from one accumulation to the next into the same accumulator.
    pub latency: f64,
    /// In a loop whose iterations must run in order (scan, scatter): latency from a store to the load of the same
    /// address in the next iteration.
    pub store_to_load_latency: f64,
    /// How little classes of instructions (arithmetic, loads, stores) overlap: the fraction of the cycles of the other
    /// classes that is added to those of the slowest class. 0 if all run in parallel, 1 if they run one after the
    /// other.
    pub mixed: f64,
    /// The same fraction for instructions and memory traffic: the shorter of both times counts with this factor.
    pub overlap: f64,
    /// The cache levels of a core, L1 first: capacity in bytes, and nanoseconds for each byte that is brought into it.
    /// What comes into the last one comes from memory.
    pub caches: [(f64, f64); 3],
    /// Starting one workgroup.
    pub group: f64,
    /// Number of threads that run in lockstep; a workgroup costs as much as the next multiple of it.
    pub warp: f64,
    /// Number of threads of a launch below which a part of the GPU is idle.
    pub busy: f64,
}

impl Prices {
    /// Appends all numbers in a fixed order, for the text from which cache keys are made.
    pub(super) fn numbers(&self, out: &mut Vec<f64>) {
        #[rustfmt::skip]
        let &Prices {
            launch, fork_join, argument, cycle, arithmetic, multiply_add, matrix, divide, integer_divide, scalar,
            horizontal_step, vector_load, broadcast, element_load, permuted_load, guard, vector_store, element_store,
            spill, loop_overhead, latency, store_to_load_latency, mixed, overlap, caches, group, warp, busy,
        } = self;
        #[rustfmt::skip]
        let numbers = [
            launch, fork_join, argument, cycle, arithmetic, multiply_add, matrix, divide, integer_divide, scalar,
            horizontal_step, vector_load, broadcast, element_load, permuted_load, guard, vector_store, element_store,
            spill, loop_overhead, latency, store_to_load_latency, mixed, overlap, group, warp, busy,
        ];
        out.extend_from_slice(&numbers);
        caches.into_iter().for_each(|(bytes, ns)| out.extend_from_slice(&[bytes, ns]));
    }

    /// An x86-64 core that executes two operations on its widest vectors per cycle; fitted on Emerald Rapids.
    pub const WIDE_X86: Prices = Prices {
        launch: 122.0,
        fork_join: 40.0,
        argument: 13.6,
        cycle: 0.267,
        arithmetic: 0.77,
        multiply_add: 0.45,
        matrix: 0.45,
        divide: 5.7,
        integer_divide: 6.0,
        scalar: 0.46,
        horizontal_step: 1.2,
        vector_load: 0.46,
        broadcast: 0.56,
        element_load: 1.0,
        permuted_load: 2.95,
        guard: 0.21,
        vector_store: 0.57,
        element_store: 0.82,
        spill: 0.86,
        loop_overhead: 0.21,
        latency: 1.65,
        store_to_load_latency: 4.5,
        mixed: 0.67,
        overlap: 0.17,
        caches: [(29e3, 0.008), (1.84e6, 0.0235), (108e6, 0.08)],
        group: 0.0,
        warp: 1.0,
        busy: 0.0,
    };

    /// An x86-64 core that executes its widest vectors in two halves. Not fitted.
    pub const HALVED_X86: Prices = Prices {
        arithmetic: 2.0 * Prices::WIDE_X86.arithmetic,
        multiply_add: 2.0 * Prices::WIDE_X86.multiply_add,
        divide: 2.0 * Prices::WIDE_X86.divide,
        vector_load: 2.0 * Prices::WIDE_X86.vector_load,
        vector_store: 2.0 * Prices::WIDE_X86.vector_store,
        ..Prices::WIDE_X86
    };

    /// A WebAssembly engine; fitted to V8 on Emerald Rapids.
    pub const WASM_ENGINE: Prices = Prices {
        launch: 8.0,
        fork_join: 1500.0,
        argument: 1.2,
        arithmetic: 0.53,
        multiply_add: 0.97,
        divide: 1.6,
        scalar: 0.39,
        horizontal_step: 0.5,
        vector_load: 0.11,
        element_load: 0.75,
        guard: 0.83,
        vector_store: 0.58,
        element_store: 0.59,
        spill: 0.05,
        loop_overhead: 0.51,
        latency: 1.9,
        mixed: 0.71,
        overlap: 0.6,
        caches: [(113e3, 0.0057), (2.5e6, 0.0256), (66e6, 0.115)],
        ..Prices::WIDE_X86
    };

    /// A hardware GPU. Guessed numbers: none was measured. A cycle is one of all its units together.
    pub const GPU: Prices = Prices {
        launch: 5_000.0,
        fork_join: 0.0,
        argument: 0.0,
        cycle: 0.0016,
        arithmetic: 1.0,
        multiply_add: 1.0,
        matrix: 0.0625,
        divide: 8.0,
        integer_divide: 8.0,
        scalar: 0.25,
        horizontal_step: 1.0,
        vector_load: 2.0,
        broadcast: 1.0,
        element_load: 1.0,
        permuted_load: 4.0,
        guard: 0.5,
        vector_store: 2.0,
        element_store: 1.0,
        spill: 4.0,
        loop_overhead: 1.0,
        latency: 0.0,
        store_to_load_latency: 50.0,
        mixed: 0.5,
        overlap: 0.2,
        caches: [(4e6, 0.0005), (40e6, 0.0025), (1e12, 0.0)],
        group: 50.0,
        warp: 32.0,
        busy: 4096.0,
    };

    /// A GPU emulated by a CPU; fitted to lavapipe on two cores of Emerald Rapids, where the threads of a workgroup are
    /// vector lanes.
    pub const EMULATED_GPU: Prices = Prices {
        launch: 77_000.0,
        argument: 5.0,
        cycle: 1.0,
        arithmetic: 0.16,
        multiply_add: 1.28,
        divide: 0.81,
        integer_divide: 6.0,
        scalar: 0.36,
        horizontal_step: 2.0,
        vector_load: 0.53,
        broadcast: 2.5,
        element_load: 1.08,
        permuted_load: 2.5,
        guard: 0.45,
        vector_store: 3.5,
        element_store: 1.73,
        spill: 0.0,
        loop_overhead: 1.08,
        store_to_load_latency: 3.5,
        mixed: 1.0,
        overlap: 0.74,
        caches: [(46e3, 0.012), (2.1e6, 0.24), (60e6, 0.08)],
        group: 35.0,
        warp: 4.0,
        busy: 0.0,
        ..Prices::GPU
    };
}
