//! What each class of instruction, each byte and each launch takes on a machine: what `codegen/cost.rs` reads. Cycles are of one core or
//! unit, for a whole vector of the target ([`super::Target::lanes`] f32) where nothing else is said. They are throughputs, fitted to
//! times of kernels (`npm run bench:model -- --fit`), so that what a compiler below adds to an instruction is in its price.

/// Prices of a machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prices {
    /// Nanoseconds of a launch among others.
    pub launch: f64,
    /// Nanoseconds more where several threads share it.
    pub meet: f64,
    /// Nanoseconds of a launch for each of its buffers.
    pub argument: f64,
    /// Nanoseconds of a cycle.
    pub cycle: f64,
    /// An addition, comparison, choice or conversion.
    pub arithmetic: f64,
    /// A multiply-add to an accumulator.
    pub multiply_add: f64,
    /// As many products of 16-bit floats in a matrix tile as a vector has f32.
    pub matrix: f64,
    /// A division or square root.
    pub divide: f64,
    /// A division of one integer.
    pub integer_divide: f64,
    /// An operation on one integer, as addresses are made of.
    pub scalar: f64,
    /// Additions of half a vector to the other, each.
    pub fold: f64,
    /// A load of neighbours.
    pub vector_load: f64,
    /// A load of one element for all lanes.
    pub broadcast: f64,
    /// A load of one element for one lane.
    pub element_load: f64,
    /// Loads of neighbours that are then put in other places.
    pub permuted_load: f64,
    /// A branch around a load or store.
    pub guard: f64,
    /// A store of neighbours.
    pub vector_store: f64,
    /// A store of one element.
    pub element_store: f64,
    /// Storing and loading an accumulator that there is no register for.
    pub spill: f64,
    /// A turn of a loop, beside its body.
    pub turn: f64,
    /// From an accumulation to the next of the same accumulator.
    pub latency: f64,
    /// From a store to a load of the same place in the next turn.
    pub walk: f64,
    /// The part of its cycles that an instruction takes from others of other classes: 0 where all run side by side, 1 where none do.
    pub mixed: f64,
    /// The same of instructions and memory.
    pub overlap: f64,
    /// Bytes of each cache of a core, the nearest first, and nanoseconds of a byte that comes into it.
    pub caches: [(f64, f64); 3],
    /// A workgroup.
    pub group: f64,
    /// Threads that run in step: a workgroup takes as long as a multiple of them.
    pub warp: f64,
    /// Threads below which parts of a GPU are idle.
    pub busy: f64,
}

impl Prices {
    /// All of them, for keys.
    pub(super) fn numbers(&self) -> impl Iterator<Item = f64> {
        #[rustfmt::skip]
        let &Prices {
            launch, meet, argument, cycle, arithmetic, multiply_add, matrix, divide, integer_divide, scalar, fold, vector_load, broadcast,
            element_load, permuted_load, guard, vector_store, element_store, spill, turn, latency, walk, mixed, overlap, caches, group,
            warp, busy,
        } = self;
        #[rustfmt::skip]
        let numbers = [
            launch, meet, argument, cycle, arithmetic, multiply_add, matrix, divide, integer_divide, scalar, fold, vector_load, broadcast,
            element_load, permuted_load, guard, vector_store, element_store, spill, turn, latency, walk, mixed, overlap, group, warp, busy,
        ];
        numbers.into_iter().chain(caches.into_iter().flat_map(|(bytes, ns)| [bytes, ns]))
    }

    /// An x86-64 core with two units for its widest vectors: fitted on Emerald Rapids.
    pub const WIDE_X86: Prices = Prices {
        launch: 122.0,
        meet: 40.0,
        argument: 13.6,
        cycle: 0.267,
        arithmetic: 0.77,
        multiply_add: 0.45,
        matrix: 0.45,
        divide: 5.7,
        integer_divide: 6.0,
        scalar: 0.46,
        fold: 1.2,
        vector_load: 0.46,
        broadcast: 0.56,
        element_load: 1.0,
        permuted_load: 2.95,
        guard: 0.21,
        vector_store: 0.57,
        element_store: 0.82,
        spill: 0.86,
        turn: 0.21,
        latency: 1.65,
        walk: 4.5,
        mixed: 0.67,
        overlap: 0.17,
        caches: [(29e3, 0.008), (1.84e6, 0.0235), (108e6, 0.08)],
        group: 0.0,
        warp: 1.0,
        busy: 0.0,
    };

    /// One whose widest vectors go through its units in halves. Not fitted.
    pub const HALVED_X86: Prices = Prices {
        arithmetic: 2.0 * Prices::WIDE_X86.arithmetic,
        multiply_add: 2.0 * Prices::WIDE_X86.multiply_add,
        divide: 2.0 * Prices::WIDE_X86.divide,
        vector_load: 2.0 * Prices::WIDE_X86.vector_load,
        vector_store: 2.0 * Prices::WIDE_X86.vector_store,
        ..Prices::WIDE_X86
    };

    /// A WebAssembly engine: fitted to V8's on Emerald Rapids.
    pub const WASM_ENGINE: Prices = Prices {
        launch: 8.0,
        meet: 1500.0,
        argument: 1.2,
        arithmetic: 0.53,
        multiply_add: 0.97,
        divide: 1.6,
        scalar: 0.39,
        fold: 0.5,
        vector_load: 0.11,
        element_load: 0.75,
        guard: 0.83,
        vector_store: 0.58,
        element_store: 0.59,
        spill: 0.05,
        turn: 0.51,
        latency: 1.9,
        mixed: 0.71,
        overlap: 0.6,
        caches: [(113e3, 0.0057), (2.5e6, 0.0256), (66e6, 0.115)],
        ..Prices::WIDE_X86
    };

    /// A GPU of hardware: a guess, none was measured. A cycle is one of all its units together.
    pub const GPU: Prices = Prices {
        launch: 5_000.0,
        meet: 0.0,
        argument: 0.0,
        cycle: 0.0016,
        arithmetic: 1.0,
        multiply_add: 1.0,
        matrix: 0.0625,
        divide: 8.0,
        integer_divide: 8.0,
        scalar: 0.25,
        fold: 1.0,
        vector_load: 2.0,
        broadcast: 1.0,
        element_load: 1.0,
        permuted_load: 4.0,
        guard: 0.5,
        vector_store: 2.0,
        element_store: 1.0,
        spill: 4.0,
        turn: 1.0,
        latency: 0.0,
        walk: 50.0,
        mixed: 0.5,
        overlap: 0.2,
        caches: [(4e6, 0.0005), (40e6, 0.0025), (1e12, 0.0)],
        group: 50.0,
        warp: 32.0,
        busy: 4096.0,
    };

    /// A GPU that a processor emulates: fitted to lavapipe on two cores of Emerald Rapids. Threads of a workgroup are lanes there.
    pub const EMULATED_GPU: Prices = Prices {
        launch: 77_000.0,
        argument: 5.0,
        cycle: 1.0,
        arithmetic: 0.16,
        multiply_add: 1.28,
        divide: 0.81,
        integer_divide: 6.0,
        scalar: 0.36,
        fold: 2.0,
        vector_load: 0.53,
        broadcast: 2.5,
        element_load: 1.08,
        permuted_load: 2.5,
        guard: 0.45,
        vector_store: 3.5,
        element_store: 1.73,
        spill: 0.0,
        turn: 1.08,
        walk: 3.5,
        mixed: 1.0,
        overlap: 0.74,
        caches: [(46e3, 0.012), (2.1e6, 0.24), (60e6, 0.08)],
        group: 35.0,
        warp: 4.0,
        busy: 0.0,
        ..Prices::GPU
    };
}
