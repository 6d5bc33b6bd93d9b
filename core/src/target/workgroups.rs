//! Occupancy and cost numbers of a GPU, for choices of opts: how many threads keep it busy, how many of them share a
//! reduction, and what copies, barriers and registers of a tile cost. Like [`super::Prices`] these numbers belong to a
//! machine, not to the code that makes the choices. "Processor" means a multiprocessor of the GPU, and "tile" the block
//! of results that a thread holds in registers.

/// Numbers about the threads and workgroups of a GPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Workgroups {
    /// Threads that keep the whole GPU busy; where a kernel has fewer, several threads share a reduction.
    pub busy: usize,
    /// The same for kernels with larger units of work: threads, where each computes a tile of results; and subgroups,
    /// where each multiplies matrix tiles.
    pub busy_tiles: [usize; 2],
    /// The fewest threads with a tile each; with fewer the GPU is mostly idle, and threads share reductions instead of
    /// having tiles. For the whole GPU, and for each processor where the target says how many it has.
    pub least_tiles: [usize; 2],
    /// Threads that fill a small GPU, and threads that fill each processor where the target says how many it has.
    pub full: [usize; 2],
    /// For products of a vector with a large matrix: threads of each processor that are needed so that enough loads of
    /// the matrix are in flight, and words that each thread has in flight.
    pub rows: [usize; 2],
    /// A reduction is shared by more threads than usual while all threads, those that share reductions included, are
    /// fewer than this for each processor.
    pub shared_threads_per_processor: usize,
    /// Threads that share each reduction where there are so few of them that most processors would have none.
    pub threads_per_rare_reduction: usize,
    /// The usual size of a workgroup whose threads compute one reduction each, and the most threads that usually share
    /// one reduction.
    pub reduction_workgroup: usize,
    /// Threads of a workgroup in a kernel without reductions.
    pub elementwise_workgroup: usize,
    /// Bytes of contiguous memory that neighbouring threads should read together (a memory transaction).
    pub transaction_bytes: usize,
    /// With fewer workgroups than one for this many processors the GPU counts as idle, and a long sum is shared by more
    /// threads instead.
    pub idle_processors_per_workgroup: usize,
    /// The longest row, in elements, for which one kernel over whole rows pays even if there are few rows: a workgroup
    /// goes over such a row a few times in the time of two more launches.
    pub row: usize,
    /// f32 results for which all threads of a processor together have registers.
    pub registers: usize,
    /// Workgroup memory in bytes: what one workgroup may take so that others fit beside it; and what a processor has
    /// for each of the threads that keep it busy.
    pub memory: [usize; 2],
    /// f32 multiply-adds that a processor executes per cycle.
    pub lanes: usize,
    /// Cycles in which a warp reads 16 bytes for each thread from workgroup memory: where the threads that read the
    /// same address are neighbours, and where they are not. Last, the factor by which both grow where threads share a
    /// sum and so read different addresses.
    pub shared_read_cycles: [f64; 3],
    /// Cycles to start an asynchronous copy to workgroup memory, for each thread.
    pub copy: f64,
    /// Cycles of a loop over blocks of a sum: waiting for the first block and finishing after the last one; the fixed
    /// part of an iteration, whatever a warp computes in it; and adding up the partial sums of threads that share a
    /// sum, for 16 results of each.
    pub loop_overhead_cycles: [f64; 3],
    /// Warps that a processor executes at the same time.
    pub parallel_warps: f64,
    /// The number of warps on a processor at which it waits half of the time: for copies of 16 bytes, and for copies of
    /// single elements.
    pub half_stall_warps: [f64; 2],
    /// The largest factor by which rounding up to matrix tiles may increase the work while it is still faster than a
    /// kernel without them.
    pub tiles: f64,
    /// Cost of reading one row or column of a block's factors, where the multiply-adds of one result over the same
    /// terms cost 1: for a workgroup that reads from memory, for a subgroup that reads from workgroup memory, and for a
    /// workgroup that reads from memory while its matrix instructions take their factors directly from workgroup
    /// memory.
    pub tile_rows: [f64; 3],
    /// Time to start and finish a workgroup of matrix tiles that has a processor to itself, so that no other workgroup
    /// computes meanwhile; in terms of the sum.
    pub tile_begins: f64,
    /// Costs of attention with register tiles, in units of a vector load: a load of one element that is not contiguous
    /// between neighbouring threads; filling one vector of an array in workgroup memory; all other work on one vector
    /// of scores; and the work that each loop iteration does once.
    pub attention: [usize; 4],
}

impl Workgroups {
    /// Appends all numbers in a fixed order, for the text from which cache keys are made.
    pub(super) fn numbers(&self, out: &mut Vec<f64>) {
        #[rustfmt::skip]
        let &Workgroups {
            busy, busy_tiles, least_tiles, full, rows, shared_threads_per_processor, threads_per_rare_reduction,
            reduction_workgroup, elementwise_workgroup, transaction_bytes, idle_processors_per_workgroup, row,
            registers, memory, lanes, shared_read_cycles, copy, loop_overhead_cycles, parallel_warps,
            half_stall_warps, tiles, tile_rows, tile_begins, attention,
        } = self;
        #[rustfmt::skip]
        let own = [
            busy, shared_threads_per_processor, threads_per_rare_reduction, reduction_workgroup, elementwise_workgroup,
            transaction_bytes, idle_processors_per_workgroup, row, registers, lanes,
        ];
        let pairs = [busy_tiles, least_tiles, full, rows, memory];
        let whole: [&[usize]; 3] = [&own, pairs.as_flattened(), &attention];
        whole.into_iter().flatten().for_each(|&n| out.push(n as f64));
        let costs = [copy, parallel_warps, tiles, tile_begins];
        let lists: [&[f64]; 5] = [&costs, &half_stall_warps, &shared_read_cycles, &loop_overhead_cycles, &tile_rows];
        lists.into_iter().for_each(|list| out.extend_from_slice(list));
    }

    /// A hardware GPU. Determined on an H200, except for the values that apply to GPUs without asynchronous copies and
    /// matrix tiles, which are guesses.
    pub const GPU: Workgroups = Workgroups {
        busy: 32 << 10,
        busy_tiles: [16 << 10, 512],
        least_tiles: [1024, 16],
        full: [4096, 256],
        rows: [512, 8],
        shared_threads_per_processor: 64,
        threads_per_rare_reduction: 256,
        reduction_workgroup: 64,
        elementwise_workgroup: 128,
        transaction_bytes: 32,
        idle_processors_per_workgroup: 8,
        row: 1 << 13,
        registers: 32 << 10,
        memory: [12 << 10, 256],
        lanes: 128,
        shared_read_cycles: [2.0, 4.0, 1.75],
        copy: 8.0 / 32.0,
        loop_overhead_cycles: [3000.0, 200.0, 100.0],
        parallel_warps: 4.0,
        half_stall_warps: [0.5, 2.0],
        tiles: 4.0,
        tile_rows: [16.0, 16.0, 96.0],
        tile_begins: 500.0,
        attention: [3, 6, 24, 100],
    };
}
