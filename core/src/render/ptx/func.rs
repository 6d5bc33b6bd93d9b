//! A PTX kernel under construction: its registers, instructions and arrays, and what is known about register contents,
//! so that addresses and packed pairs are computed once and asynchronous matrix products are waited for in time. It
//! knows nothing of the IR's ops.

use crate::DType;
use crate::target::Sm;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::Write as _;

/// The class of a register. Integers below 32 bits are held in 32-bit registers, sign- or zero-extended; 16-bit floats
/// are held as their bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Class {
    Pred,
    B16,
    B32,
    B64,
    F32,
    F64,
}

const CLASSES: [(Class, char, &str); 6] = [
    (Class::Pred, 'p', "pred"),
    (Class::B16, 'h', "b16"),
    (Class::B32, 'r', "b32"),
    (Class::B64, 'd', "b64"),
    (Class::F32, 'f', "f32"),
    (Class::F64, 'g', "f64"),
];

impl Class {
    pub(super) fn of(dt: DType) -> Class {
        match dt {
            DType::Bool => Class::Pred,
            DType::F16 | DType::BF16 => Class::B16,
            DType::I64 | DType::U64 => Class::B64,
            DType::F32 => Class::F32,
            DType::F64 => Class::F64,
            _ => Class::B32,
        }
    }

    /// The class of a register by its name; `None` for a literal.
    pub(super) fn named(x: &str) -> Option<Class> {
        let letter = x.strip_prefix('%')?.chars().next()?;
        CLASSES.iter().find(|c| c.1 == letter).map(|c| c.0)
    }

    /// The type suffix of instructions that treat the contents as untyped bits.
    pub(super) fn bits(self) -> &'static str {
        match self {
            Class::Pred => "pred",
            Class::B16 => "b16",
            Class::B32 => "b32",
            Class::B64 => "b64",
            Class::F32 => "f32",
            Class::F64 => "f64",
        }
    }
}

/// The state space of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Space {
    /// A buffer. Loads of one that no thread writes (`constant`) use the non-coherent path, `ld.global.nc`.
    Global {
        constant: bool,
    },
    Shared,
    Local,
}

/// One instruction or label. The destination is kept separately, so that `Func::assign` can change it later.
struct Line {
    guard: String,
    op: String,
    dest: String,
    rest: String,
}

impl Line {
    /// Is it one of the instructions for asynchronous products of matrices in workgroup memory?
    fn multiplies(&self) -> bool {
        self.op.starts_with("wgmma.")
    }

    /// The latest group of products that must be complete before it, given the registers that are in use
    /// (`Products::in_flight`).
    fn waits_for(&self, in_flight: &FxHashMap<String, (usize, bool)>) -> Option<usize> {
        let written = words(&self.dest).filter_map(|w| in_flight.get(w));
        let read = words(&self.rest).chain(words(&self.guard)).filter_map(|w| in_flight.get(w)).filter(|x| x.1);
        written.chain(read).map(|x| x.0).max()
    }
}

/// An address that was computed to a register, and the loop depth at which it was computed and is valid.
struct CachedAddress {
    array: String,
    base: String,
    register: String,
    depth: usize,
}

/// The kernel so far.
pub(super) struct Func {
    pub(super) sm: Sm,
    lines: Vec<Line>,
    counts: [u32; CLASSES.len()],
    /// The registers of each variable; a name that is declared again refers to the latest declaration.
    variables: FxHashMap<String, String>,
    /// Registers that are assigned more than once.
    reassigned: FxHashSet<String>,
    /// Declarations of arrays.
    arrays: String,
    /// By array: its state space, the address where it lies, and an offset from there in bytes.
    spaces: FxHashMap<String, (Space, String, usize)>,
    addresses: Vec<CachedAddress>,
    /// Pairs of 16-bit values that are packed in one register: the pair, the register, the loop depth.
    pairs: Vec<(String, String, usize)>,
    /// Descriptors of matrices in workgroup memory: address register, other fields, descriptor register, loop depth.
    descriptors: Vec<(String, u64, String, usize)>,
    /// In kernels with products of matrices in workgroup memory: the state of those that may still run.
    pub(super) products: Option<Products>,
    /// Is the barrier of the loop split into arriving (`bar.arrive`) and waiting (`bar.sync`)? Two groups of four warps
    /// each arrive in the middle of the previous iteration, and wait for the other group where the barrier stands. So
    /// they run half an iteration apart, and one multiplies while the other does not (attention on an H200: 506 TFLOP/s
    /// instead of 472). It is safe because copies overwrite what was read two iterations ago, and a group in the middle
    /// of an iteration has waited for all products that were started before that iteration.
    pub(super) split: bool,
    /// Registers with a 16-bit float that was rounded from an f32 in a register that does not change: that register and
    /// the type.
    narrowed: FxHashMap<String, (String, &'static str)>,
    loops: Vec<Loop>,
    /// For each open jump: the lengths of `addresses`, `pairs` and `descriptors` where it begins.
    skips: Vec<(usize, usize, usize)>,
    labels: usize,
    constants: bool,
}

struct Loop {
    label: usize,
    counter: String,
    bound: String,
    ty: &'static str,
    /// Does it start products of matrices in workgroup memory?
    products: bool,
    /// The index of its first line, and the number of groups of products that were committed before it.
    first: usize,
    committed_groups: usize,
    /// The index of the line from which on no product of the previous iteration is running.
    waited: Option<usize>,
    /// Where its barrier is split ([`Func::split`]): the number of copy groups that may still run there. It is `None`
    /// again once the code that arrives at the barrier has been printed.
    barrier: Option<u32>,
}

/// The asynchronous products of matrices in workgroup memory (`wgmma`), which run while the program continues. They are
/// started in groups; a group is committed when it is complete, and groups are waited for in order, the oldest first.
#[derive(Default)]
pub(super) struct Products {
    /// Have products been started since the last group was committed?
    open: bool,
    /// Number of groups that have been committed.
    committed_groups: usize,
    /// Registers in use by running products: the number of their group, and whether they are its sums. Until that group
    /// is done they must not be written, and sums must not be read either.
    in_flight: FxHashMap<String, (usize, bool)>,
    /// Registers that were written since the last fence.
    written: FxHashSet<String>,
}

/// A predicate register that is true in all threads, since PTX has no literals for predicates.
pub(super) const TRUE: &str = "%ptrue";
/// A predicate register that is false in all threads; see [`TRUE`].
pub(super) const FALSE: &str = "%pfalse";

/// The name of the dynamic shared memory that a launch provides.
const DYNAMIC_SHARED: &str = "gl_parts";
/// The declaration of [`DYNAMIC_SHARED`].
pub(super) const DYNAMIC_SHARED_DECL: &str = ".extern .shared .align 1024 .b8 gl_parts[];\n\n";

impl Func {
    pub(super) fn new(sm: Sm) -> Func {
        Func {
            sm,
            lines: Vec::new(),
            counts: [0; CLASSES.len()],
            variables: FxHashMap::default(),
            reassigned: FxHashSet::default(),
            arrays: String::new(),
            spaces: FxHashMap::default(),
            addresses: Vec::new(),
            pairs: Vec::new(),
            descriptors: Vec::new(),
            products: None,
            split: false,
            narrowed: FxHashMap::default(),
            loops: Vec::new(),
            skips: Vec::new(),
            labels: 0,
            constants: false,
        }
    }

    // ---- registers

    pub(super) fn fresh(&mut self, class: Class) -> String {
        let i = CLASSES.iter().position(|c| c.0 == class).unwrap_or_default();
        self.counts[i] += 1;
        format!("%{}{}", CLASSES[i].1, self.counts[i])
    }

    /// A constant predicate; its registers are declared and set only if it is used.
    pub(super) fn constant_pred(&mut self, v: bool) -> String {
        self.constants = true;
        if v { TRUE } else { FALSE }.to_string()
    }

    /// The value as a register, for operands that may not be literals.
    pub(super) fn register(&mut self, x: &str, class: Class) -> String {
        if x.starts_with('%') { x.to_string() } else { self.op(class, &format!("mov.{}", class.bits()), &[x]) }
    }

    // ---- instructions

    /// Appends an instruction with a new register as destination, which is returned.
    pub(super) fn op(&mut self, class: Class, op: &str, x: &[&str]) -> String {
        let dest = self.fresh(class);
        self.emit(op, &dest, x);
        dest
    }

    /// Appends an instruction with a destination.
    pub(super) fn emit(&mut self, op: &str, dest: &str, x: &[&str]) {
        self.guarded("", op, dest, x);
    }

    /// Appends an instruction that is executed where the predicate `guard` holds (always if it is empty). Waits first
    /// for running products that use its registers.
    pub(super) fn guarded(&mut self, guard: &str, op: &str, dest: &str, x: &[&str]) {
        let line = Line { guard: guard.into(), op: op.into(), dest: dest.into(), rest: x.join(", ") };
        if let Some(p) = &mut self.products
            && !line.multiplies()
        {
            let group = line.waits_for(&p.in_flight);
            p.written.extend(words(dest).map(String::from));
            if let Some(group) = group {
                self.wait_for_group(group);
            }
        }
        self.lines.push(line);
    }

    /// Appends an instruction without a destination.
    pub(super) fn effect(&mut self, guard: &str, op: &str, x: &[&str]) {
        self.guarded(guard, op, "", x);
    }

    fn label(&mut self, name: &str) {
        self.lines.push(Line {
            guard: String::new(),
            op: format!("{name}:"),
            dest: String::new(),
            rest: String::new(),
        });
    }

    // ---- variables

    pub(super) fn declare(&mut self, name: &str, dt: DType, value: &str) {
        let class = Class::of(dt);
        let mut all = Vec::new();
        for x in value.split(", ") {
            let r = self.fresh(class);
            self.emit(&format!("mov.{}", class.bits()), &r, &[x]);
            self.reassigned.insert(r.clone());
            all.push(r);
        }
        self.variables.insert(name.to_string(), all.join(", "));
    }

    /// A variable that has no value yet.
    pub(super) fn declare_unset(&mut self, name: &str, dt: DType) {
        let r = self.fresh(Class::of(dt));
        self.reassigned.insert(r.clone());
        self.variables.insert(name.to_string(), r);
    }

    /// The registers of a variable.
    pub(super) fn registers_of(&self, name: &str) -> String {
        self.variables.get(name).cloned().unwrap_or_default()
    }

    /// Assigns a value to a variable. If the instruction that computed the value is one of the last few, its
    /// destination is changed to the variable's register; else the value is copied.
    pub(super) fn assign(&mut self, name: &str, value: &str) {
        let target = self.registers_of(name);
        for (r, x) in target.split(", ").zip(value.split(", ")) {
            if r == x {
                continue;
            }
            let made = self.lines.iter().rposition(|l| l.dest == *x && l.guard.is_empty());
            let after = made.map_or(&[][..], |at| &self.lines[at + 1..]);
            let mentions = |l: &Line| l.dest == r || words(&l.rest).any(|w| w == r || w == x) || l.op.ends_with(':');
            let in_flight = self.products.as_ref().is_some_and(|p| p.in_flight.contains_key(r));
            match made {
                Some(at)
                    if !self.reassigned.contains(x)
                        && !in_flight
                        && after.len() < 16
                        && !after.iter().any(mentions) =>
                {
                    self.lines[at].dest = r.to_string();
                    if let Some(p) = &mut self.products {
                        p.written.insert(r.to_string());
                    }
                }
                _ => {
                    let class = Class::named(r).unwrap_or(Class::B32);
                    self.emit(&format!("mov.{}", class.bits()), r, &[x]);
                }
            }
        }
    }

    /// The value as it is now: registers that are assigned more than once are copied.
    pub(super) fn snapshot(&mut self, value: &str) -> String {
        let mut all = Vec::new();
        for x in value.split(", ") {
            let class = Class::named(x).filter(|_| self.reassigned.contains(x));
            all.push(match class {
                Some(class) => self.op(class, &format!("mov.{}", class.bits()), &[x]),
                None => x.to_string(),
            });
        }
        all.join(", ")
    }

    // ---- loops

    pub(super) fn open_loop(&mut self, name: &str, dt: DType, bound: &str) {
        let (class, ty) = if dt == DType::I64 { (Class::B64, "s64") } else { (Class::B32, "s32") };
        self.labels += 1;
        if self.products.as_ref().is_some_and(|p| p.open || !p.in_flight.is_empty()) {
            self.commit_products();
            self.wait_for_products(0);
        }
        let (label, counter) = (self.labels, self.fresh(class));
        self.emit(&format!("mov.{}", class.bits()), &counter, &["0"]);
        if self.split {
            self.split_barrier("arrive", &counter, 0);
        }
        if !bound.parse::<i64>().is_ok_and(|n| n > 0) {
            let none = self.op(Class::Pred, &format!("setp.ge.{ty}"), &[&counter, bound]);
            self.effect(&none, "bra", &[&format!("$end{label}")]);
        }
        self.label(&format!("$loop{label}"));
        self.variables.insert(name.to_string(), counter.clone());
        let (first, committed_groups) = (self.lines.len(), self.products.as_ref().map_or(0, |p| p.committed_groups));
        let bound = bound.to_string();
        self.loops.push(Loop {
            label,
            counter,
            bound,
            ty,
            products: false,
            first,
            committed_groups,
            waited: None,
            barrier: None,
        });
    }

    pub(super) fn close_loop(&mut self) {
        self.commit_products();
        if let Some(pending) = self.loops.last_mut().and_then(|l| l.barrier.take()) {
            self.arrive_at_barrier(pending);
        }
        let Some(l) = self.loops.pop() else { return };
        if let Some(p) = &self.products {
            // products that run at the end of an iteration still run in the next one, up to the line where that waits
            // for them: no instruction before it may conflict with them
            let begin = &self.lines[l.first..l.waited.unwrap_or(self.lines.len())];
            if begin.iter().any(|line| !line.multiplies() && line.waits_for(&p.in_flight).is_some()) {
                self.wait_for_products(0);
            }
        }
        self.emit(&format!("add.{}", l.ty), &l.counter, &[&l.counter, "1"]);
        let more = self.op(Class::Pred, &format!("setp.lt.{}", l.ty), &[&l.counter, &l.bound]);
        self.effect(&more, "bra", &[&format!("$loop{}", l.label)]);
        self.label(&format!("$end{}", l.label));
        if l.products {
            self.wait_for_products(0);
        }
        if self.split {
            self.split_barrier("sync", &l.counter, 0);
        }
        let depth = self.loops.len();
        self.addresses.retain(|p| p.depth <= depth);
        self.pairs.retain(|p| p.2 <= depth);
        self.descriptors.retain(|d| d.3 <= depth);
    }

    /// Begins code that is skipped where the predicate `c` holds; returns the label for [`Func::close_skip`].
    pub(super) fn jump_if(&mut self, c: &str) -> usize {
        self.labels += 1;
        self.effect(c, "bra", &[&format!("$skip{}", self.labels)]);
        self.skips.push((self.addresses.len(), self.pairs.len(), self.descriptors.len()));
        self.labels
    }

    /// Ends code that may be skipped, and forgets the addresses, pairs and descriptors that were computed in it.
    pub(super) fn close_skip(&mut self, label: usize) {
        self.label(&format!("$skip{label}"));
        if let Some((addresses, pairs, descriptors)) = self.skips.pop() {
            self.addresses.truncate(addresses);
            self.pairs.truncate(pairs);
            self.descriptors.truncate(descriptors);
        }
    }

    // ---- matrices in workgroup memory

    /// Prepares the start of a product with these sums and these registers of its left factor: marks them as in use,
    /// and appends a fence if threads wrote to them since the last one.
    pub(super) fn begin_product(&mut self, sums: &[String], held: &[String]) {
        let Some(p) = &mut self.products else { return };
        let fence = !p.open || sums.iter().chain(held).any(|r| p.written.contains(r));
        if fence {
            p.written.clear();
        }
        p.open = true;
        for (list, sum) in [(sums, true), (held, false)] {
            p.in_flight.extend(list.iter().map(|r| (r.clone(), (p.committed_groups, sum))));
        }
        if fence {
            self.effect("", "wgmma.fence.sync.aligned", &[]);
        }
        self.loops.iter_mut().for_each(|l| l.products = true);
    }

    /// Commits the group of the products that were started, if there are any.
    pub(super) fn commit_products(&mut self) {
        if let Some(p) = &mut self.products
            && p.open
        {
            (p.open, p.committed_groups) = (false, p.committed_groups + 1);
            self.effect("", "wgmma.commit_group.sync.aligned", &[]);
        }
    }

    /// Waits for all groups of products except the last `but`.
    pub(super) fn wait_for_products(&mut self, but: usize) {
        let Some(p) = &mut self.products else { return };
        let done = p.committed_groups.saturating_sub(but);
        p.in_flight.retain(|_, x| x.0 >= done);
        let (committed_groups, line) = (p.committed_groups, self.lines.len());
        for l in self.loops.iter_mut().filter(|l| but <= committed_groups - l.committed_groups) {
            l.waited = l.waited.or(Some(line));
        }
        self.effect("", "wgmma.wait_group.sync.aligned", &[&but.to_string()]);
        if let Some(l) = self.loops.last_mut()
            && l.waited.is_some()
            && let Some(pending) = l.barrier.take()
        {
            self.arrive_at_barrier(pending);
        }
    }

    /// If the loop's barrier is split, appends the wait for the other group, after which no thread reads what the
    /// copies of this iteration overwrite, and returns true. Otherwise returns false.
    pub(super) fn wait_at_barrier(&mut self, pending: Option<u32>) -> bool {
        let Some(pending) = pending.filter(|_| self.split) else { return false };
        let Some(l) = self.loops.last_mut() else { return false };
        l.barrier = Some(pending);
        let counter = l.counter.clone();
        self.split_barrier("sync", &counter, 0);
        true
    }

    /// Arrives at the barrier of the next iteration, after waiting for the copies that it will read; products that were
    /// started before this iteration are complete here.
    fn arrive_at_barrier(&mut self, pending: u32) {
        let Some(counter) = self.loops.last().map(|l| l.counter.clone()) else { return };
        self.effect("", "cp.async.commit_group", &[]);
        self.effect("", "cp.async.wait_group", &[&pending.to_string()]);
        self.effect("", "fence.proxy.async.shared::cta", &[]);
        self.split_barrier("arrive", &counter, 1);
    }

    /// Appends `bar.arrive` or `bar.sync` on one of four hardware barriers: each group has two, for even and odd
    /// iterations. A group waits (`sync`) at its own barrier and arrives at the other group's; `later` is 1 for the
    /// next iteration.
    fn split_barrier(&mut self, what: &str, counter: &str, later: i64) {
        let b = Class::B32;
        let turn = self.op(b, "add.s32", &[counter, &later.to_string()]);
        let turn = self.op(b, "and.b32", &[&turn, "1"]);
        let group = self.op(b, "mov.u32", &["%tid.y"]);
        let group = if what == "sync" { group } else { self.op(b, "sub.s32", &["1", &group]) };
        let first = self.op(b, "add.s32", &[&turn, "1"]);
        let number = self.op(b, "mad.lo.s32", &[&group, "2", &first]);
        self.effect("", &format!("bar.{what}"), &[&number, "256"]);
    }

    fn wait_for_group(&mut self, group: usize) {
        self.commit_products();
        let committed_groups = self.products.as_ref().map_or(0, |p| p.committed_groups);
        self.wait_for_products(committed_groups.saturating_sub(group + 1));
    }

    /// May products be running here? In a loop they may be those of the previous iteration.
    pub(super) fn multiplies(&self) -> bool {
        self.products.as_ref().is_some_and(|p| p.open || !p.in_flight.is_empty() || !self.loops.is_empty())
    }

    /// Records that `r` holds the value of the f32 register `from`, rounded to the 16-bit type `ty`.
    pub(super) fn narrow(&mut self, r: &str, from: &str, ty: &'static str) {
        if !self.reassigned.contains(from) {
            self.narrowed.insert(r.to_string(), (from.to_string(), ty));
        }
    }

    /// The register with the descriptor of a matrix that begins at the address `base`; `fixed` has the descriptor's
    /// other fields.
    pub(super) fn descriptor_register(&mut self, base: &str, fixed: u64) -> String {
        if let Some(d) = self.descriptors.iter().find(|d| d.0 == base && d.1 == fixed) {
            return d.2.clone();
        }
        let at = self.register(base, Class::B32);
        let at = self.op(Class::B32, "shr.u32", &[&at, "4"]);
        let at = self.op(Class::B64, "cvt.u64.u32", &[&at]);
        let made = self.op(Class::B64, "or.b64", &[&at, &format!("{fixed:#x}")]);
        if !self.reassigned.contains(base) {
            self.descriptors.push((base.to_string(), fixed, made.clone(), self.loops.len()));
        }
        made
    }

    /// A 32-bit register that holds two 16-bit values.
    pub(super) fn pair(&mut self, low: &str, high: &str) -> String {
        let source = format!("{{{low}, {high}}}");
        let unchanging = ![low, high].iter().any(|x| self.reassigned.contains(*x));
        if let Some(p) = self.pairs.iter().find(|p| p.0 == source && unchanging) {
            return p.1.clone();
        }
        let both = [low, high].map(|x| self.narrowed.get(x).cloned());
        let r = match both {
            // a single instruction rounds both values from f32 and packs them
            [Some((x, a)), Some((y, b))] if a == b => self.op(Class::B32, &format!("cvt.rn.{a}x2.f32"), &[&y, &x]),
            _ => self.op(Class::B32, "mov.b32", &[&source]),
        };
        if unchanging {
            self.pairs.push((source, r.clone(), self.loops.len()));
        }
        r
    }

    /// Unpacks the two 16-bit values of a register.
    pub(super) fn halves(&mut self, pair: &str) -> [String; 2] {
        let [low, high] = [0; 2].map(|_| self.fresh(Class::B16));
        let source = format!("{{{low}, {high}}}");
        self.emit("mov.b32", &source, &[pair]);
        self.pairs.push((source, pair.to_string(), self.loops.len()));
        [low, high]
    }

    // ---- memory

    /// Loads the pointer of a buffer from its parameter.
    pub(super) fn buffer(&mut self, name: &str, constant: bool) {
        let generic = self.op(Class::B64, "ld.param.u64", &[&format!("[p{name}]")]);
        let global = self.op(Class::B64, "cvta.to.global.u64", &[&generic]);
        self.spaces.insert(name.to_string(), (Space::Global { constant }, global, 0));
    }

    /// Declares an array in shared or local memory.
    pub(super) fn array(&mut self, name: &str, space: Space, bytes: usize) {
        let word = if space == Space::Shared { "shared" } else { "local" };
        let align = if self.products.is_some() && space == Space::Shared { 1024 } else { 16 };
        let _ = writeln!(self.arrays, "\t.{word} .align {align} .b8 {name}[{bytes}];");
        self.spaces.insert(name.to_string(), (space, name.to_string(), 0));
    }

    /// Places a workgroup array in the dynamic shared memory, `at` bytes from its beginning.
    pub(super) fn dynamic_array(&mut self, name: &str, at: usize) {
        self.spaces.insert(name.to_string(), (Space::Shared, DYNAMIC_SHARED.to_string(), at));
    }

    /// The state space of an array, which `ld` and `st` name.
    pub(super) fn space(&self, name: &str) -> Space {
        self.spaces.get(name).map_or(Space::Local, |s| s.0)
    }

    /// The address `plus` bytes after element `base` of an array, as an operand. `size` is the size of an element, and
    /// `wide` says that `base` has 64 bits.
    pub(super) fn address(&mut self, name: &str, base: &str, wide: bool, size: usize, plus: i64) -> String {
        let Some((space, start, first)) = self.spaces.get(name).cloned() else { return format!("[{name}]") };
        let (mut at, mut plus) = (start.clone(), plus + first as i64);
        if let Ok(c) = base.parse::<i64>() {
            plus += c * size as i64;
        } else {
            let depth = self.loops.len();
            let known = self.addresses.iter().find(|p| p.array == name && p.base == base);
            at = match known {
                Some(p) => p.register.clone(),
                None => {
                    let register = self.element_address(space, &start, base, wide, size);
                    if !self.reassigned.contains(base) {
                        let (array, base, register) = (name.to_string(), base.to_string(), register.clone());
                        self.addresses.push(CachedAddress { array, base, register, depth });
                    }
                    register
                }
            };
        }
        if i32::try_from(plus).is_err() {
            let far = plus.to_string();
            return format!("[{}]", self.op(Class::B64, "add.s64", &[&at, &far]));
        }
        if plus == 0 { format!("[{at}]") } else { format!("[{at}+{plus}]") }
    }

    fn element_address(&mut self, space: Space, start: &str, base: &str, wide: bool, size: usize) -> String {
        let size = size.to_string();
        if space == Space::Shared {
            // shared memory has at most some hundred kB, so 32-bit addresses are enough
            let base = if wide { self.op(Class::B32, "cvt.u32.u64", &[base]) } else { base.to_string() };
            let start = self.op(Class::B32, "mov.u32", &[start]);
            return self.op(Class::B32, "mad.lo.s32", &[&base, &size, &start]);
        }
        let start = match space {
            Space::Local => self.op(Class::B64, "mov.u64", &[start]),
            _ => start.to_string(),
        };
        let op = if wide { "mad.lo.s64" } else { "mad.wide.s32" };
        self.op(Class::B64, op, &[base, &size, &start])
    }

    // ---- text

    /// The text of the whole module.
    pub(super) fn module(&self, name: &str, parameters: &[String], local: [u32; 3]) -> String {
        let mut out = format!(".version {}\n.target {}\n.address_size 64\n\n", self.sm.isa(), self.sm.name());
        if self.spaces.values().any(|s| s.1 == DYNAMIC_SHARED) {
            out.push_str(DYNAMIC_SHARED_DECL);
        }
        let _ = writeln!(out, ".visible .entry {name}(");
        let _ = writeln!(out, "\t{}\n)", parameters.join(",\n\t"));
        let _ = writeln!(out, ".reqntid {}, {}, {}\n{{", local[0], local[1], local[2]);
        for ((_, letter, ty), n) in CLASSES.iter().zip(self.counts) {
            if n > 0 {
                let _ = writeln!(out, "\t.reg .{ty} %{letter}<{}>;", n + 1);
            }
        }
        if self.constants {
            let _ = writeln!(out, "\t.reg .pred {TRUE}, {FALSE};");
        }
        out.push_str(&self.arrays);
        if self.constants {
            let _ = writeln!(out, "\tsetp.eq.s32 {TRUE}, 0, 0;\n\tsetp.ne.s32 {FALSE}, 0, 0;");
        }
        for l in &self.lines {
            if l.op.ends_with(':') {
                let _ = writeln!(out, "{}", l.op);
                continue;
            }
            out.push('\t');
            if !l.guard.is_empty() {
                let _ = write!(out, "@{} ", l.guard);
            }
            let comma = if l.dest.is_empty() || l.rest.is_empty() { "" } else { ", " };
            let blank = if l.dest.is_empty() && l.rest.is_empty() { "" } else { " " };
            let _ = writeln!(out, "{}{blank}{}{comma}{};", l.op, l.dest, l.rest);
        }
        out.push_str("\tret;\n}\n");
        out
    }
}

/// The names in a list of operands.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '%' | '_' | '$'))).filter(|w| !w.is_empty())
}
