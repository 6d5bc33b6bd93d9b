//! The cache that outlives a process: plans, compiled kernels and tuned opts as bytes, and the [`Host`] that stores
//! them.
//!
//! An entry is an envelope (magic, key, length, checksum) around plain fields. Reading an entry trusts nothing: one
//! that is truncated, changed or made by another build counts as missing. Keys depend on the sources of this crate, the
//! whole target and the structure of what was compiled, so an entry is never out of date; it only stops being used.

use super::plan::{Call, Compiled, OutputInfo, Packed, Place, Plan};
use super::watch::Watcher;
use crate::DType;
use crate::codegen::live::{IterationCount, LaunchDim};
use crate::codegen::{Opt, ParamInfo, VarInfo};
use crate::render::{Code, Source};
use crate::target::{Caps, Limits, Target};
use crate::uop::hash::key_bytes;
use crate::uop::label;
use std::sync::OnceLock;

/// What an engine may ask of the process around it. The default methods do without: one thread, nothing stored.
pub trait Host: crate::device::MaySend {
    /// Calls `job` with each of `0..n`, in any order and on any threads; returns when all calls are done.
    fn each(&self, n: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..n).for_each(job);
    }

    /// How many jobs to give to one call of [`Host::each`]. Between two calls the engine's caller may do something
    /// else.
    fn at_once(&self) -> usize {
        1
    }

    /// The bytes saved under a key, by this process or another one. The kind is only a hint for the host and not part
    /// of the key.
    fn load(&mut self, _kind: Kind, _key: u128) -> Option<Vec<u8>> {
        None
    }

    /// Stores bytes under a key. The host may drop them at any time.
    fn save(&mut self, _kind: Kind, _key: u128, _bytes: Vec<u8>) {}

    /// A watcher that is to be told what the engine does; asked for once.
    fn watcher(&mut self) -> Option<Box<dyn Watcher>> {
        None
    }
}

/// The host of an engine that was given none: one thread, nothing stored.
pub struct Alone;

impl Host for Alone {}

/// Kinds of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A [`Plan`], by the key of its closed graph.
    Plan,
    /// A [`Compiled`] kernel, by the key of its graph and opts.
    Kernel,
    /// Tuned opts, by the key of the kernel's graph.
    Opts,
    /// Marks that a search for opts is finished, by the key of the kernel's graph.
    Searched,
}

/// The hash of this build and a target that is a part of all cache keys.
pub fn space(t: &Target) -> u128 {
    let text = format!("{} {} {t:?}", env!("CARGO_PKG_VERSION"), env!("GRADLOOM_SOURCES"));
    key_bytes(text.as_bytes())
}

/// The hash of a family of devices that is a part of the keys of tuned opts: these depend on the hardware, and neither
/// on the build nor on exact limits. All fields are named, so that a new one is either a part of the hash or said not
/// to be.
pub fn opts_space(t: &Target) -> u128 {
    #[rustfmt::skip]
    let Target { lang, caps, limits, machine, name: _ } = t;
    #[rustfmt::skip]
    let Caps {
        lanes, vector_registers, isa, storage, f16_arrays, has_local, subgroup, relaxed_simd, dots, matrix_tiles,
        // which device it is
        sm: _,
        // follow from the language and what is hashed of the hardware
        arithmetic: _, fma: _, functions: _, copies: _, permutes: _, interleaved_stores: _, half_vectors: _,
        wide_vectors: _, most_lanes: _, memory_operands: _, narrow_mask_constants: _, reassociates: _, shared_allocations: _, custom_kernels: _,
    } = caps;
    #[rustfmt::skip]
    let Limits {
        threads, max_local_total, workgroup_bytes,
        // these say whether opts fit and not which are fast
        max_grid: _, max_local: _, max_buffers: _, max_buffer_bytes: _, offset_alignment: _, max_loop_iterations: _,
    } = limits;
    // the rest of the machine are estimates, which tuning replaces by measured times
    let software = machine.software;
    let memory = (storage, f16_arrays);
    let family = (lang, lanes, isa, memory, has_local, threads.min(&2), max_local_total, software, relaxed_simd);
    // numbers that matter on GPUs only; lines for other targets are older than these and keep their keys
    let gpu = (vector_registers, dots, subgroup, workgroup_bytes, matrix_tiles);
    let text = if *has_local { format!("opts 2 {family:?} {gpu:?}") } else { format!("opts 1 {family:?}") };
    label::of_bytes(text.as_bytes())
}

/// The name of a kernel in a line of tuned opts, from the kernel's label and the family of the device.
pub(super) fn line_label(t: &Target, label: u128) -> u64 {
    let mut bytes = [Kind::Opts as u8; 33];
    bytes[1..17].copy_from_slice(&opts_space(t).to_le_bytes());
    bytes[17..].copy_from_slice(&label.to_le_bytes());
    (label::of_bytes(&bytes) >> 64) as u64
}

/// The key under which an entry is stored.
pub fn entry_key(space: u128, kind: Kind, key: u128) -> u128 {
    let mut bytes = [0; 33];
    bytes[0] = kind as u8;
    bytes[1..17].copy_from_slice(&space.to_le_bytes());
    bytes[17..].copy_from_slice(&key.to_le_bytes());
    key_bytes(&bytes)
}

/// The key of a kernel compiled with given opts.
pub fn with_opts(key: u128, opts: Option<&[Opt]>) -> u128 {
    let Some(opts) = opts else { return key };
    let mut bytes = key.to_le_bytes().to_vec();
    put_opts(opts, &mut bytes);
    key_bytes(&bytes)
}

const MAGIC: [u8; 8] = *b"gradloom";

/// Wraps the fields of an entry in its envelope.
fn seal(key: u128, payload: Vec<u8>) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 48);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&key.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(&key_bytes(&payload).to_le_bytes());
    out.extend_from_slice(&payload);
    out
}

/// The fields of an entry if it is complete, undamaged and was saved under this key.
fn open(key: u128, bytes: &[u8]) -> Option<&[u8]> {
    let mut r = Reader(bytes);
    let whole = r.take(8)? == MAGIC && r.u128()? == key && r.u64()? == (bytes.len() as u64).checked_sub(48)?;
    let sum = r.u128()?;
    (whole && key_bytes(r.0) == sum).then_some(r.0)
}

/// A plan as an entry.
pub fn save_plan(key: u128, p: &Plan) -> Vec<u8> {
    let Plan { calls, arenas, arena_bound, outputs, roots, vars } = p;
    let mut w = Vec::new();
    put(&mut w, calls.len());
    for Call { program, label, args, scalars } in calls {
        w.extend_from_slice(&program.to_le_bytes());
        w.extend_from_slice(&label.to_le_bytes());
        put_places(&mut w, args);
        put(&mut w, scalars.len());
        scalars.iter().for_each(|s| w.extend_from_slice(&s.to_le_bytes()));
    }
    put(&mut w, arenas.len());
    arenas.iter().for_each(|&n| put(&mut w, n));
    put(&mut w, *arena_bound);
    put(&mut w, outputs.len());
    for OutputInfo { dtype, len } in outputs {
        w.push(*dtype as u8);
        put(&mut w, *len);
    }
    put_places(&mut w, roots);
    put_vars(&mut w, vars);
    seal(key, w)
}

/// The plan of an entry, if it is one for a graph with this many parameters.
pub fn load_plan(key: u128, bytes: &[u8], n_params: usize) -> Option<Plan> {
    let mut r = Reader(open(key, bytes)?);
    let calls = r.list(|r| {
        let (program, label, args) = (r.u128()?, r.u128()?, r.places()?);
        let scalars = r.list(|r| r.array().map(i32::from_le_bytes))?;
        Some(Call { program, label, args, scalars })
    })?;
    let arenas = r.list(Reader::size)?;
    let arena_bound = r.size()?;
    let outputs = r.list(|r| Some(OutputInfo { dtype: r.dtype()?, len: r.size()? }))?;
    let roots = r.places()?;
    let vars = r.vars()?;
    let known = |p: &Place| match *p {
        Place::External(slot) => (slot as usize) < n_params,
        Place::Output(o) => (o as usize) < outputs.len(),
        Place::Arena { arena, offset, bytes } => {
            let end = offset.checked_add(bytes);
            arenas.get(arena).zip(end).is_some_and(|(&have, end)| end <= have)
        }
    };
    let sound = r.0.is_empty() && calls.iter().flat_map(|c| &c.args).chain(&roots).all(known);
    sound.then_some(Plan { calls, arenas, arena_bound, outputs, roots, vars })
}

/// A kernel as an entry; `None` if its code is a program for the interpreter, which cannot be stored.
pub fn save_kernel(key: u128, c: &Compiled) -> Option<Vec<u8>> {
    let Compiled { source, grid, extents, vars, flops, bytes, packs, program: _ } = c;
    let Source { name, code, local, params, vars: _, scratch } = source;
    let mut w = Vec::new();
    put_bytes(&mut w, name.as_bytes());
    match code {
        Code::Text(t) => {
            w.push(0);
            put_bytes(&mut w, t.as_bytes());
        }
        Code::Bytes(b) => {
            w.push(1);
            put_bytes(&mut w, b);
        }
        Code::Program(_) => return None,
    }
    local.iter().chain(grid).for_each(|n| w.extend_from_slice(&n.to_le_bytes()));
    match ENDS.get() {
        Some(ends) => (ends.put)(&mut w, extents),
        None => w.push(0),
    }
    put(&mut w, params.len());
    for ParamInfo { dtype, len, read, written } in params {
        w.extend_from_slice(&[*dtype as u8, *read as u8, *written as u8]);
        put(&mut w, *len);
    }
    put_vars(&mut w, vars);
    put(&mut w, *scratch);
    w.extend_from_slice(&flops.to_le_bytes());
    w.extend_from_slice(&bytes.to_le_bytes());
    put(&mut w, packs.len());
    for Packed { slot, key, compiled } in packs {
        w.extend_from_slice(&slot.to_le_bytes());
        w.extend_from_slice(&key.to_le_bytes());
        put_bytes(&mut w, &save_kernel(*key, compiled)?);
    }
    Some(seal(key, w))
}

/// The kernel of an entry.
pub fn load_kernel(key: u128, bytes: &[u8]) -> Option<Compiled> {
    load_nested(key, bytes, 0)
}

fn load_nested(key: u128, bytes: &[u8], depth: usize) -> Option<Compiled> {
    let mut r = Reader(open(key, bytes)?);
    let name = r.text()?;
    let code = match r.u8()? {
        0 => Code::Text(r.text()?),
        1 => Code::Bytes(r.bytes()?.to_vec()),
        _ => return None,
    };
    let local = [r.u32()?, r.u32()?, r.u32()?];
    let grid = [r.u32()?, r.u32()?, r.u32()?];
    let extents = match ENDS.get() {
        Some(ends) => (ends.read)(&mut r)?,
        None => (r.u8()? == 0).then(Default::default)?,
    };
    let params =
        r.list(|r| Some(ParamInfo { dtype: r.dtype()?, read: r.u8()? == 1, written: r.u8()? == 1, len: r.size()? }))?;
    let vars = r.vars()?;
    let types = vars.iter().map(|v| v.dtype).collect();
    let (scratch, flops, moved) = (r.size()?, r.u64()?, r.u64()?);
    let packs = r.list(|r| {
        let (slot, key, entry) = (r.u32()?, r.u128()?, r.bytes()?);
        // a packing kernel copies from one buffer to another and has no packed operands itself
        let compiled = Box::new((depth == 0).then(|| load_nested(key, entry, 1))??);
        let sound = (slot as usize) < params.len() && compiled.source.params.len() == 2;
        sound.then_some(Packed { slot, key, compiled })
    })?;
    let source = Source { name, code, local, params, vars: types, scratch };
    r.0.is_empty().then_some(Compiled { source, grid, extents, vars, flops, bytes: moved, packs, program: None })
}

/// Opts as an entry.
pub fn save_opts(key: u128, opts: &[Opt]) -> Vec<u8> {
    let mut w = Vec::new();
    put_opts(opts, &mut w);
    seal(key, w)
}

/// The opts of an entry.
pub fn load_opts(key: u128, bytes: &[u8]) -> Option<Vec<Opt>> {
    let mut r = Reader(open(key, bytes)?);
    let opts = Opt::parse_list(&r.text()?)?;
    r.0.is_empty().then_some(opts)
}

fn put_opts(opts: &[Opt], w: &mut Vec<u8>) {
    // as text, because opts are used by other builds too
    put_bytes(w, Opt::list(opts).as_bytes());
}

fn put(w: &mut Vec<u8>, n: usize) {
    w.extend_from_slice(&(n as u64).to_le_bytes());
}

fn put_bytes(w: &mut Vec<u8>, b: &[u8]) {
    put(w, b.len());
    w.extend_from_slice(b);
}

fn put_vars(w: &mut Vec<u8>, vars: &[VarInfo]) {
    put(w, vars.len());
    for VarInfo { name, dtype, min, max } in vars {
        w.push(*dtype as u8);
        put_bytes(w, name.as_bytes());
        [min, max].into_iter().for_each(|n| w.extend_from_slice(&n.to_le_bytes()));
    }
}

/// Functions that write and read the extents of launches that end early, after a byte that says whether there are any.
/// They are set at run time, as the table in `codegen/live.rs` is, so that pages without variable lengths do not load
/// them.
struct Ends {
    put: fn(&mut Vec<u8>, &[LaunchDim; 3]),
    read: fn(&mut Reader<'_>) -> Option<[LaunchDim; 3]>,
}

static ENDS: OnceLock<Box<Ends>> = OnceLock::new();

/// Enables entries for launches that end early.
pub(crate) fn enable() {
    ENDS.get_or_init(|| Box::new(Ends { put: put_extents, read: read_extents }));
}

fn read_extents(r: &mut Reader<'_>) -> Option<[LaunchDim; 3]> {
    match r.u8()? {
        0 => Some(Default::default()),
        _ => Some([r.extent()?, r.extent()?, r.extent()?]),
    }
}

fn put_extents(w: &mut Vec<u8>, extents: &[LaunchDim; 3]) {
    let any = extents.iter().any(|e| !e.is_empty());
    w.push(u8::from(any));
    for turns in extents.iter().filter(|_| any) {
        put(w, turns.len());
        for IterationCount { sums, step, most } in turns {
            put(w, sums.len());
            for sum in sums {
                put(w, sum.len());
                for (times, names) in sum {
                    w.extend_from_slice(&times.to_le_bytes());
                    put(w, names.len());
                    names.iter().for_each(|n| put_bytes(w, n.as_bytes()));
                }
            }
            w.extend_from_slice(&step.to_le_bytes());
            w.extend_from_slice(&most.to_le_bytes());
        }
    }
}

fn put_places(w: &mut Vec<u8>, places: &[Place]) {
    put(w, places.len());
    for p in places {
        match *p {
            Place::External(slot) => {
                w.push(0);
                put(w, slot as usize);
            }
            Place::Arena { arena, offset, bytes } => {
                w.push(1);
                [arena, offset, bytes].into_iter().for_each(|n| put(w, n));
            }
            Place::Output(o) => {
                w.push(2);
                put(w, o as usize);
            }
        }
    }
}

/// Reads fields from the front of the bytes; each method gives `None` once they run out.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|b| b[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(self.u64()?).ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.size()?;
        self.take(n)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn dtype(&mut self) -> Option<DType> {
        let code = self.u8()?;
        DType::ALL.iter().copied().find(|&d| d as u8 == code)
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let n = self.size()?;
        // every item takes at least one byte
        if n > self.0.len() {
            return None;
        }
        (0..n).map(|_| item(self)).collect()
    }

    fn vars(&mut self) -> Option<Vec<VarInfo>> {
        self.list(|r| {
            let (dtype, name) = (r.dtype()?, r.text()?.into_boxed_str());
            Some(VarInfo { name, dtype, min: r.u64()? as i64, max: r.u64()? as i64 })
        })
    }

    fn extent(&mut self) -> Option<LaunchDim> {
        self.list(|r| {
            let sums =
                r.list(|r| r.list(|r| Some((r.u64()? as i64, r.list(|r| Some(r.text()?.into_boxed_str()))?))))?;
            let (step, most) = (r.u64()? as i64, r.u32()?);
            (step > 0 && most > 0).then_some(IterationCount { sums, step, most })
        })
    }

    fn places(&mut self) -> Option<Vec<Place>> {
        self.list(|r| {
            Some(match r.u8()? {
                0 => Place::External(u32::try_from(r.u64()?).ok()?),
                1 => Place::Arena { arena: r.size()?, offset: r.size()?, bytes: r.size()? },
                2 => Place::Output(u32::try_from(r.u64()?).ok()?),
                _ => return None,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable() -> VarInfo {
        VarInfo { name: "n".into(), dtype: DType::I32, min: -3, max: 1 << 30 }
    }

    fn plan() -> Plan {
        let arena = Place::Arena { arena: 0, offset: 64, bytes: 16 };
        Plan {
            calls: vec![Call {
                program: 7 << 100,
                label: 9,
                args: vec![Place::Output(0), Place::External(1), arena],
                scalars: vec![5],
            }],
            arenas: vec![80],
            arena_bound: 70,
            outputs: vec![OutputInfo { dtype: DType::F16, len: 3 }],
            roots: vec![Place::Output(0)],
            vars: vec![variable()],
        }
    }

    fn kernel() -> Compiled {
        let params = vec![ParamInfo { dtype: DType::F32, len: 9, read: false, written: true }];
        let source = Source {
            name: "e_9".into(),
            code: Code::Bytes(vec![1, 2, 3]),
            local: [1, 2, 3],
            params,
            vars: vec![DType::I32],
            scratch: 64,
        };
        let plain = Compiled {
            source,
            grid: [4, 5, 6],
            extents: [
                LaunchDim::new(),
                vec![IterationCount {
                    sums: vec![vec![(3, vec!["n".into(), "m".into()]), (-1, vec![])]],
                    step: 4,
                    most: 5,
                }],
                vec![IterationCount::all(6)],
            ],
            vars: vec![variable()],
            flops: 10,
            bytes: 11,
            packs: vec![],
            program: None,
        };
        let mut copy = plain.clone();
        copy.source.params.push(copy.source.params[0].clone());
        let packs = vec![Packed { slot: 0, key: 5, compiled: Box::new(copy) }];
        Compiled { packs, ..plain }
    }

    #[test]
    fn entries_come_back_as_they_were() {
        let p = plan();
        assert_eq!(load_plan(1, &save_plan(1, &p), 2), Some(p));
        enable();
        let k = kernel();
        let saved = save_kernel(2, &k).unwrap();
        let back = load_kernel(2, &saved).unwrap();
        assert_eq!(save_kernel(2, &back).unwrap(), saved);
        assert_eq!(back.extents, k.extents);
        assert_eq!((back.grid, &back.vars, back.source.local), (k.grid, &k.vars, k.source.local));
        let opts = vec![Opt::lane(3, 16), Opt::pad(0, 2)];
        assert_eq!(load_opts(3, &save_opts(3, &opts)), Some(opts));
    }

    #[test]
    fn damaged_or_foreign_entries_are_none() {
        let saved = save_plan(1, &plan());
        assert!(load_plan(2, &saved, 2).is_none(), "another key");
        assert!(load_plan(1, &saved, 1).is_none(), "a parameter that is not there");
        let kernel = save_kernel(1, &kernel()).unwrap();
        assert!(load_plan(1, &kernel, 2).is_none(), "another kind");
        for entry in [saved, kernel] {
            for n in 0..entry.len() {
                assert!(open(1, &entry[..n]).is_none(), "cut to {n}");
                let mut bad = entry.clone();
                bad[n] ^= 0x10;
                assert!(open(1, &bad).is_none(), "byte {n} changed");
            }
        }
    }

    #[test]
    fn keys_tell_targets_kinds_and_opts_apart() {
        let (a, b) = (Target::x86(crate::target::Isa::Avx2, 1), Target::x86(crate::target::Isa::Avx2, 2));
        assert_ne!(space(&a), space(&b));
        assert_ne!(entry_key(1, Kind::Plan, 1), entry_key(1, Kind::Kernel, 1));
        let opts = [Opt::lane(3, 16)];
        assert_ne!(with_opts(1, Some(&opts)), with_opts(1, None));
        assert_ne!(with_opts(1, Some(&[])), with_opts(1, None));
    }
}
