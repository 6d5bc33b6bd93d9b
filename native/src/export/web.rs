//! Writes a recording for WebAssembly, and optionally one for WebGPU, as an ES module. The code that runs them,
//! `web/model.js`, is the same for all models; kernels, plans and weights are files beside it, and only those of the
//! device in use are loaded.
//!
//! Shaders use only what every WebGPU device has; kernels use SIMD128. Constants that both devices read in the same
//! layout are in one file.

use super::{Buffer, File, Place, Port, Recording, Step, blob, layout};
use gradloom_core::render::wasm::{self, Kernel, SLACK};
use gradloom_core::render::{self, Code};
use gradloom_core::target::Target;
use gradloom_core::{DType, Error, Result};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

const RUNTIME: &str = include_str!("web/model.js");

/// The alignment of buffers and constants in bytes.
const ALIGN: usize = 64;
const PAGE: usize = 64 << 10;

/// The files of weights: those that both devices read, and those of one device.
const COMMON: &str = "weights.bin";
const OF_WASM: &str = "weights.wasm.bin";
const OF_WEBGPU: &str = "weights.webgpu.bin";
/// The WebAssembly modules of kernels, without and with relaxed SIMD.
const PLAIN: &str = "kernels.wasm";
const RELAXED: &str = "kernels.relaxed.wasm";
/// The file of shaders, in readable form.
const SHADERS: &str = "kernels.wgsl";

/// The target of the WebAssembly kernels: one thread, SIMD128 without relaxed SIMD.
pub fn wasm_target() -> Target {
    Target::wasm(false, 1)
}

/// The same with relaxed SIMD.
pub fn relaxed_target() -> Target {
    Target::wasm(true, 1)
}

/// The target of the shaders: any WebGPU device.
pub fn webgpu_target() -> Target {
    Target::wgsl("webgpu")
}

/// For each constant of a recording, the file that contains it and its byte offset there.
struct ConstantLayout {
    places: Vec<(&'static str, usize)>,
    /// The constants that only this device reads.
    own: Vec<u8>,
}

/// Recordings of a model for each kind of device.
pub struct Recordings {
    /// For [`wasm_target`].
    pub wasm: Recording,
    /// For [`relaxed_target`]. Its kernels are used only if the plan is otherwise the same as that for [`wasm_target`].
    pub relaxed: Recording,
    /// For [`webgpu_target`], if shaders can compute the model.
    pub webgpu: Option<Recording>,
}

impl Recordings {
    /// Calls `record` for each target. If shaders cannot compute the model, calls `left_out` with the reason.
    pub fn new(
        mut record: impl FnMut(&Target) -> Result<Recording>,
        left_out: impl FnOnce(&Error),
    ) -> Result<Recordings> {
        let (wasm, relaxed) = (record(&wasm_target())?, record(&relaxed_target())?);
        let webgpu = match record(&webgpu_target()) {
            Ok(recording) => Some(recording),
            Err(e @ Error::Unsupported { .. }) => {
                left_out(&e);
                None
            }
            Err(e) => return Err(e),
        };
        Ok(Recordings { wasm, relaxed, webgpu })
    }

    /// The kernels with relaxed SIMD, if everything but the kernels is the same.
    fn relaxed_kernels(&self) -> Result<Option<Vec<Kernel>>> {
        let (a, b) = (&self.wasm, &self.relaxed);
        let same = a.steps == b.steps && a.constants == b.constants && a.arenas == b.arenas;
        same.then(|| kernels(b)).transpose()
    }
}

/// The files of a module: `model.js`, its type declarations, and what it loads. `from` is the model's
/// origin for comments.
///
/// # Errors
/// The errors of rendering, and [`Error::OutOfMemory`] for a model that does not fit a WebAssembly memory.
pub fn files(recordings: &Recordings, from: &str) -> Result<Vec<File>> {
    let (wasm, webgpu) = (&recordings.wasm, recordings.webgpu.as_ref());
    let theirs: BTreeSet<&Vec<u8>> = webgpu.iter().flat_map(|r| &r.constants).collect();
    let shared = |data: &Vec<u8>| webgpu.is_none() || theirs.contains(data);
    let common: Vec<&Vec<u8>> =
        wasm.constants.iter().filter(|d| shared(d)).collect::<BTreeSet<_>>().into_iter().collect();
    let (at, bytes) = blob(common.iter().copied(), ALIGN);
    let known: HashMap<&Vec<u8>, usize> = common.iter().copied().zip(at).collect();
    let of_wasm = lay_out_constants(wasm, &known, OF_WASM);
    let (plain, relaxed) = (kernels(wasm)?, recordings.relaxed_kernels()?);
    let scratch = plain.iter().chain(relaxed.iter().flatten()).map(|k| k.scratch as usize).max().unwrap_or(0);
    let (plan, pages) = wasm_plan(wasm, &of_wasm, bytes.len(), scratch)?;
    let mut names = vec![COMMON, PLAIN];
    let mut files = vec![File::new("wasm.js", plan), File::new(PLAIN, wasm::link(&plain, false, pages))];
    if let Some(relaxed) = relaxed {
        names.push(RELAXED);
        files.push(File::new(RELAXED, wasm::link(&relaxed, false, pages)));
    }
    if !of_wasm.own.is_empty() {
        names.push(OF_WASM);
        files.push(File::new(OF_WASM, of_wasm.own));
    }
    if let Some(r) = webgpu {
        let constant_layout = lay_out_constants(r, &known, OF_WEBGPU);
        let (plan, shaders) = webgpu_plan(r, &constant_layout)?;
        names.push(SHADERS);
        files.push(File::new("webgpu.js", plan));
        files.push(File::new(SHADERS, format!("// {}: shaders, in the order of webgpu.js.\n{shaders}", line(from))));
        if !constant_layout.own.is_empty() {
            names.push(OF_WEBGPU);
            files.push(File::new(OF_WEBGPU, constant_layout.own));
        }
    }
    files.push(File::new(COMMON, bytes));
    files.push(File::new("model.js", module(wasm, webgpu.is_some(), from, &names)));
    files.push(File::new("model.d.ts", types(wasm, from)));
    Ok(files)
}

fn lay_out_constants(r: &Recording, known: &HashMap<&Vec<u8>, usize>, file: &'static str) -> ConstantLayout {
    let own: Vec<&Vec<u8>> = r.constants.iter().filter(|d| !known.contains_key(d)).collect();
    let (at, bytes) = blob(own.iter().copied(), ALIGN);
    let mut at = at.into_iter();
    let place = |d: &Vec<u8>| match known.get(d) {
        Some(&at) => (COMMON, at),
        None => (file, at.next().unwrap_or(0)),
    };
    ConstantLayout { places: r.constants.iter().map(place).collect(), own: bytes }
}

/// A JavaScript array.
fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// A JavaScript string literal.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => _ = write!(out, "\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out + "\""
}

fn kernels(r: &Recording) -> Result<Vec<Kernel>> {
    r.kernels.iter().map(|p| wasm::render(p, &r.target)).collect()
}

/// The text of `wasm.js`, and the number of pages of its memory.
fn wasm_plan(r: &Recording, constant_layout: &ConstantLayout, common: usize, scratch: usize) -> Result<(String, u32)> {
    let words = |s: &Step| match s {
        Step::Launch { args, vars, .. } => 4 * (args.len() + vars.len()),
        Step::Copy { .. } => 0,
    };
    let tables: usize = r.steps.iter().map(words).sum();
    let ports = || r.inputs.iter().chain(&r.outputs).map(Port::bytes);
    // Kernels may read a few bytes before and after any buffer
    let sizes = [SLACK, common, constant_layout.own.len(), tables, scratch]
        .into_iter()
        .chain(ports())
        .chain(r.arenas.iter().copied());
    let (at, total) = layout(sizes, ALIGN);
    let pages = (total + SLACK).div_ceil(PAGE);
    if pages > wasm::MAX_PAGES as usize {
        return Err(Error::OutOfMemory { device: r.target.name.clone(), bytes: (pages * PAGE) as u64 });
    }
    let (inputs, outputs) = (5, 5 + r.inputs.len());
    let arenas = outputs + r.outputs.len();
    let address = |p: &Place| {
        let base = match p.buffer {
            Buffer::Constant(i) => match constant_layout.places[i] {
                (COMMON, offset) => at[1] + offset,
                (_, offset) => at[2] + offset,
            },
            Buffer::Input(i) => at[inputs + i],
            Buffer::Output(i) => at[outputs + i],
            Buffer::Arena(i) => at[arenas + i],
        };
        (base + p.offset).to_string()
    };
    let step = |s: &Step| match s {
        Step::Launch { kernel, args, grid, vars } => {
            let args = list(args.iter().map(address));
            let vars =
                if vars.is_empty() { String::new() } else { format!(",{}", list(vars.iter().map(u32::to_string))) };
            format!("[{kernel},{args},{}{vars}]", grid[0])
        }
        Step::Copy { from, to } => format!("[-1,{},{},{}]", address(to), address(from), to.bytes),
    };
    let edge = |(p, at): (&Port, &usize)| format!("[{at},{}]", quoted(p.stored.name()));
    let mut weights = vec![format!("[{},{}]", quoted(COMMON), at[1])];
    if !constant_layout.own.is_empty() {
        weights.push(format!("[{},{}]", quoted(OF_WASM), at[2]));
    }
    let plan = format!(
        "export default {{pages:{pages},scratch:{},tables:{},weights:{},\ninputs:{},\noutputs:{},\nsteps:{}}};\n",
        at[4],
        at[3],
        list(weights.into_iter()),
        list(r.inputs.iter().zip(&at[inputs..]).map(edge)),
        list(r.outputs.iter().zip(&at[outputs..]).map(edge)),
        list(r.steps.iter().map(step)),
    );
    Ok((plan, pages as u32))
}

/// The text of `webgpu.js`, and that of its shaders.
fn webgpu_plan(r: &Recording, constant_layout: &ConstantLayout) -> Result<(String, String)> {
    let (outputs, constants) = (r.inputs.len(), r.inputs.len() + r.outputs.len());
    let arenas = constants + r.constants.len();
    let mut places: Vec<Place> = Vec::new();
    let mut number = HashMap::new();
    let mut place = |p: &Place| {
        let next = places.len();
        let i = *number.entry(*p).or_insert(next);
        if i == next {
            places.push(*p);
        }
        i.to_string()
    };
    let (mut shaders, mut code): (Vec<String>, String) = (Vec::new(), String::new());
    // Shaders by kernel, and by whether all buffers are declared as writable
    let mut shader_of: HashMap<(usize, bool), usize> = HashMap::new();
    let mut steps = Vec::new();
    for s in &r.steps {
        match s {
            Step::Launch { grid, .. } if grid.contains(&0) => {}
            Step::Launch { kernel, args, grid, vars } => {
                let params = &r.kernels[*kernel].params;
                let writes = |b: Buffer| args.iter().zip(params).any(|(a, p)| p.written && a.buffer == b);
                let alias = args.iter().zip(params).any(|(a, p)| !p.written && writes(a.buffer));
                let next = shaders.len();
                let shader = *shader_of.entry((*kernel, alias)).or_insert(next);
                if shader == next {
                    let (signature, text) = self::shader(r, *kernel, alias)?;
                    let _ = write!(code, "\n//// {shader} {}\n{text}", line(&r.kernels[*kernel].name));
                    shaders.push(signature);
                }
                let args = list(args.iter().map(&mut place));
                let vars =
                    if vars.is_empty() { String::new() } else { format!(",{}", list(vars.iter().map(u32::to_string))) };
                steps.push(format!("[{shader},{args},[{},{},{}]{vars}]", grid[0], grid[1], grid[2]));
            }
            Step::Copy { from, to } => steps.push(format!("[-1,[{},{}]]", place(to), place(from))),
        }
    }
    let buffer = |b: Buffer| match b {
        Buffer::Input(i) => i,
        Buffer::Output(i) => outputs + i,
        Buffer::Constant(i) => constants + i,
        Buffer::Arena(i) => arenas + i,
    };
    let mut weights = vec![quoted(COMMON)];
    if !constant_layout.own.is_empty() {
        weights.push(quoted(OF_WEBGPU));
    }
    let constant = |((file, at), data): (&(&str, usize), &Vec<u8>)| format!("[{},{at},{}]", quoted(file), data.len());
    let dtype = |p: &Port| quoted(p.stored.name());
    let plan = format!(
        "export default {{weights:{},\ninputs:{},\noutputs:{},\narenas:{},\nconstants:{},\nplaces:{},\nsteps:{},\nshaders:{}}};\n",
        list(weights.into_iter()),
        list(r.inputs.iter().map(dtype)),
        list(r.outputs.iter().map(dtype)),
        list(r.arenas.iter().map(usize::to_string)),
        list(constant_layout.places.iter().zip(&r.constants).map(constant)),
        list(places.iter().map(|p| format!("[{},{},{}]", buffer(p.buffer), p.offset, p.bytes))),
        list(steps.into_iter()),
        list(shaders.into_iter()),
    );
    Ok((plan, code))
}

/// For one kernel, which buffers are written and whether it has launch scalars, as JavaScript; and the text of its
/// shader. WebGPU forbids that one launch reads a buffer in one binding and writes it in another, unless both bindings
/// are declared as writable (`alias`).
fn shader(r: &Recording, kernel: usize, alias: bool) -> Result<(String, String)> {
    let p = &r.kernels[kernel];
    let Code::Text(mut code) = render::render(p, &r.target)? else {
        return Err(Error::Internal(format!("{} is not a shader", p.name)));
    };
    if !code.ends_with('\n') {
        code.push('\n');
    }
    if alias {
        code = code.replace("var<storage, read>", "var<storage, read_write>");
    }
    let written = list(p.params.iter().map(|p| u8::from(p.written || alias).to_string()));
    Ok((format!("[{written},{}]", u8::from(!p.vars.is_empty())), code))
}

/// The text of `model.js`.
fn module(r: &Recording, webgpu: bool, from: &str, names: &[&str]) -> String {
    let port = |p: &Port| {
        let shape = list(p.shape.iter().map(usize::to_string));
        format!("{{ name: {}, dtype: {}, shape: {shape} }}", quoted(&p.name), quoted(p.dtype.name()))
    };
    let mut out = format!("// {}, compiled by gradloom {}.\n", line(from), env!("CARGO_PKG_VERSION"));
    for (name, ports) in [("INPUTS", &r.inputs), ("OUTPUTS", &r.outputs)] {
        let _ = writeln!(out, "const {name} = {};", list(ports.iter().map(port)));
    }
    out.push_str("const FILES = {\n");
    for name in names {
        // Bundlers look for URLs in this form
        let _ = writeln!(out, "  \"{name}\": () => new URL(\"./{name}\", import.meta.url),");
    }
    let _ = write!(out, "}};\nconst HAS_WEBGPU = {webgpu};\n");
    // A module that is valid only if the engine has relaxed SIMD
    let probe = if names.contains(&RELAXED) { wasm::relaxed_simd_probe() } else { Vec::new() };
    let _ = write!(out, "const PROBE = {};\n\n", list(probe.iter().map(u8::to_string)));
    if webgpu { out + RUNTIME } else { out + &RUNTIME.replace("import(\"./webgpu.js\")", "Promise.reject()") }
}

/// The text of `model.d.ts`.
fn types(r: &Recording, from: &str) -> String {
    let mut out = format!("// {}, compiled by gradloom {}.\n\n", line(from), env!("CARGO_PKG_VERSION"));
    for (name, what, ports) in [
        ("Inputs", "What a run takes. On WebGPU an input may be a GPUBuffer of the same device too.", &r.inputs),
        ("Outputs", "What a run gives.", &r.outputs),
    ] {
        let _ = write!(out, "/** {what} */\nexport interface {name} {{\n");
        for p in ports {
            let or = if name == "Inputs" { " | GpuBuffer" } else { "" };
            let _ = writeln!(out, "  /** {} {:?} */\n  {}: {}{or};", p.dtype, p.shape, quoted(&p.name), array(p.dtype));
        }
        out.push_str("}\n\n");
    }
    out + TYPES
}

fn array(dt: DType) -> &'static str {
    match dt {
        DType::I8 => "Int8Array",
        DType::I16 => "Int16Array",
        DType::I32 => "Int32Array",
        DType::I64 => "BigInt64Array",
        DType::U16 | DType::BF16 => "Uint16Array",
        DType::U32 => "Uint32Array",
        DType::U64 => "BigUint64Array",
        // Float16Array if the host has it
        DType::F16 => "Uint16Array | (ArrayBufferView & ArrayLike<number>)",
        DType::F32 => "Float32Array",
        DType::F64 => "Float64Array",
        _ => "Uint8Array",
    }
}

/// The name on a single line.
fn line(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '_' } else { c }).collect()
}

const TYPES: &str = "/** A GPUBuffer, as far as it matters. */
export interface GpuBuffer {
  readonly size: number;
  mapAsync(mode: number): Promise<unknown>;
}

/** An input or output. */
export interface Port {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
}

export interface Options {
  /** `auto`, which is what is taken without, is WebGPU where there is a GPU, else WebAssembly. */
  device?: \"auto\" | \"webgpu\" | \"wasm\";
  /** A GPUDevice to run on. It stays the caller's. */
  gpuDevice?: object;
  /** Reads one of the module's files, where fetching it from beside the module does not do. */
  read?: (name: string) => Promise<Uint8Array>;
}

/** The model on a device. */
export interface Model {
  readonly device: \"webgpu\" | \"wasm\";
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  /** Runs it. Runs that are asked for at the same time are done one after the other. */
  run(inputs: Inputs): Promise<Outputs>;
  /** Frees what it holds of a GPU. */
  dispose(): void;
}

export declare const inputs: readonly Port[];
export declare const outputs: readonly Port[];
export declare function load(options?: Options): Promise<Model>;
";
