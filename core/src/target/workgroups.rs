//! What fills a GPU and what its workgroups cost, for choices of opts: how many threads are enough, how many share what, and what copies,
//! barriers and registers of a tile take. As [`super::Prices`], these are numbers of a machine, and no choice has any of its own.

/// Workgroups of a GPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Workgroups {
    /// Threads that keep the whole GPU busy; with fewer, several share a reduction.
    pub busy: usize,
    /// The same where each thread computes a tile of results, and subgroups where each multiplies matrix tiles.
    pub busy_tiles: [usize; 2],
    /// Threads with tiles below which the GPU is empty, and each processor of one that says how many it has: they share reductions instead.
    pub least_tiles: [usize; 2],
    /// Threads that fill a small GPU, and each processor of one that says how many it has.
    pub full: [usize; 2],
    /// Threads of each processor that have all of a matrix on its way from memory, and words that a thread has on their way.
    pub rows: [usize; 2],
    /// Threads of each processor, of those that share reductions, below which more share them.
    pub few: usize,
    /// Threads that share a reduction of which there are so few that most processors have none.
    pub all: usize,
    /// Threads of a workgroup that work on one reduction each, and most that share one.
    pub group: usize,
    /// Threads of a workgroup that share nothing.
    pub wide: usize,
    /// Bytes that neighbouring threads should read of one piece of memory.
    pub piece: usize,
    /// One workgroup for so many processors leaves the GPU empty.
    pub idle: usize,
    /// Elements of a row that a workgroup goes through, some times, in the time of two more launches.
    pub row: usize,
    /// Results of f32 that all threads of a processor have registers for.
    pub registers: usize,
    /// Bytes of workgroup memory that leave room for other workgroups beside it, and that a processor has for each of the threads that keep it
    /// busy.
    pub memory: [usize; 2],
    /// Multiply-adds of f32 that a processor does in a cycle.
    pub lanes: usize,
    /// Cycles in which a warp reads 16 bytes a thread from workgroup memory, where all threads that read the same are neighbours and where they
    /// are not; and how many times as long threads read that share a sum.
    pub read: [f64; 3],
    /// Cycles of starting a copy to workgroup memory, for each thread.
    pub copy: f64,
    /// Cycles until the first block of a sum is there and after the last one, of a turn, whatever a warp does in it, and of adding up what
    /// threads share.
    pub turns: [f64; 3],
    /// Warps that a processor goes through side by side.
    pub side: f64,
    /// Warps with which it waits half of the time, for 16 bytes that are copied at once and for elements that are copied one by one.
    pub waiting: [f64; 2],
    /// How much more work with matrix tiles is still faster than without.
    pub tiles: f64,
    /// What reading a row of a block costs in the time in which a row of matrix tiles is multiplied: a workgroup from memory, a subgroup from
    /// workgroup memory, and a workgroup from memory where it multiplies at once what lies in workgroup memory.
    pub tile_rows: [f64; 3],
    /// Terms of a sum in whose time a workgroup of matrix tiles begins and ends that nothing is computed beside.
    pub tile_begins: f64,
    /// Of attention with tiles of registers, in loads of a vector: a load of one element that neighbouring threads do not have side by side,
    /// filling a vector of an array, what is done for a vector of scores besides, and what is done once in each turn of the loop.
    pub attention: [usize; 4],
}

impl Workgroups {
    /// All of them, for keys.
    pub(super) fn numbers(&self) -> impl Iterator<Item = f64> {
        #[rustfmt::skip]
        let &Workgroups {
            busy, busy_tiles, least_tiles, full, rows, few, all, group, wide, piece, idle, row, registers, memory, lanes, read, copy, turns,
            side, waiting, tiles, tile_rows, tile_begins, attention,
        } = self;
        let pairs = [busy_tiles, least_tiles, full, rows, memory].into_iter().flatten();
        let whole =
            [busy, few, all, group, wide, piece, idle, row, registers, lanes].into_iter().chain(pairs).chain(attention);
        let costs = [copy, side, tiles, tile_begins].into_iter().chain(waiting);
        whole.map(|n| n as f64).chain(costs).chain(read).chain(turns).chain(tile_rows)
    }

    /// A GPU of hardware: found on an H200, but for what GPUs without workgroup copies and matrix tiles read, which is a guess.
    pub const GPU: Workgroups = Workgroups {
        busy: 32 << 10,
        busy_tiles: [16 << 10, 512],
        least_tiles: [1024, 16],
        full: [4096, 256],
        rows: [512, 8],
        few: 64,
        all: 256,
        group: 64,
        wide: 128,
        piece: 32,
        idle: 8,
        row: 1 << 13,
        registers: 32 << 10,
        memory: [12 << 10, 256],
        lanes: 128,
        read: [2.0, 4.0, 1.75],
        copy: 8.0 / 32.0,
        turns: [3000.0, 200.0, 100.0],
        side: 4.0,
        waiting: [0.5, 2.0],
        tiles: 4.0,
        tile_rows: [16.0, 16.0, 96.0],
        tile_begins: 500.0,
        attention: [3, 6, 24, 100],
    };
}
