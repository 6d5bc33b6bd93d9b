//! Writes a recording as C: one file with the kernels and the plan, a header, and the weights as an array
//! or in a separate file.
//!
//! The code allocates no memory, starts no threads, keeps no state but its weights, and needs only libm. With vectors
//! it is GNU C, which gcc and clang compile for any processor; without ([`Style::Standard`]) it is C99. Numbers are
//! little-endian.

use super::{Buffer, File, Place, Port, Recording, Step, blob, identifiers, layout};
use gradloom_core::render::c::{Function, prelude};
use gradloom_core::target::{Caps, Machine, Target, functions};
use gradloom_core::{DType, Result};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The dialect of C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// With the vector extensions of gcc and clang.
    Gnu {
        /// The f32 values in a vector register of the processors that run the code: 4 (SSE, NEON), 8 (AVX2) or 16
        /// (AVX-512). With less the code runs as well; longer vectors than registers are slow.
        lanes: usize,
    },
    /// C99 without extensions.
    Standard,
}

/// Where the weights are written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Weights {
    /// Into the code if they are small, else into a file.
    #[default]
    BySize,
    /// Into the code.
    Array,
    /// Into a separate file.
    File,
}

/// The most bytes of weights that [`Weights::BySize`] writes into the code.
const FEW_BYTES: usize = 1 << 20;

/// The alignment of weights, arenas and scratch memory in bytes.
const ALIGN: usize = 64;

/// Vectors of this processor, but at most of 8 lanes.
impl Default for Style {
    fn default() -> Style {
        Style::Gnu { lanes: crate::vectors::lanes_in_c() }
    }
}

impl Style {
    /// The target that kernels are compiled for.
    pub fn target(self) -> Target {
        match self {
            Style::Gnu { lanes } => Target::c(lanes, if lanes < 16 { 16 } else { 32 }, 1),
            Style::Standard => {
                let gnu = Target::c(8, 16, 1);
                let caps = Caps { lanes: 1, most_lanes: None, functions: functions::C, ..gnu.caps };
                Target { caps, machine: Machine::generic(1, 16), ..gnu }
            }
        }
    }
}

/// The files of a model: `NAME.c`, `NAME.h` and possibly `NAME.weights`. `name` becomes an identifier; `from` is the
/// model's origin for comments.
///
/// # Errors
/// The errors of rendering.
pub fn files(r: &Recording, name: &str, from: &str, weights: Weights) -> Result<Vec<File>> {
    let (name, from) = (identifiers(std::iter::once(name)).remove(0), &comment(from));
    let (at, bytes) = blob(r.constants.iter(), ALIGN);
    let array = match weights {
        Weights::BySize => bytes.len() <= FEW_BYTES,
        Weights::Array => true,
        Weights::File => false,
    };
    let unit = Unit::new(r, &name, at, bytes.len(), array);
    let code = unit.code(from, &bytes)?;
    let mut files = vec![File::new(format!("{name}.c"), code), File::new(format!("{name}.h"), unit.header(from))];
    if !array {
        files.push(File::new(format!("{name}.weights"), bytes));
    }
    Ok(files)
}

/// The C file that is being written.
struct Unit<'a> {
    r: &'a Recording,
    name: &'a str,
    /// The name in capitals, for macros.
    caps: String,
    /// The names of the function's parameters.
    inputs: Vec<String>,
    outputs: Vec<String>,
    constants: Vec<usize>,
    arenas: Vec<usize>,
    scratch: usize,
    work_bytes: usize,
    weight_bytes: usize,
    array: bool,
}

impl<'a> Unit<'a> {
    fn new(r: &'a Recording, name: &'a str, constants: Vec<usize>, weight_bytes: usize, array: bool) -> Unit<'a> {
        let ports = r
            .inputs
            .iter()
            .map(|p| format!("in_{}", p.name))
            .chain(r.outputs.iter().map(|p| format!("out_{}", p.name)));
        let ports: Vec<String> = ports.collect();
        let mut inputs = identifiers(ports.iter().map(String::as_str));
        let outputs = inputs.split_off(r.inputs.len());
        let scratch = r.kernels.iter().map(|p| p.scratch().1).max().unwrap_or(0);
        let (mut arenas, work_bytes) = layout(r.arenas.iter().copied().chain([scratch]), ALIGN);
        let scratch = arenas.pop().unwrap_or(0);
        let caps = name.to_uppercase();
        Unit { r, name, caps, inputs, outputs, constants, arenas, scratch, work_bytes, weight_bytes, array }
    }

    fn header(&self, from: &str) -> String {
        let Unit { name, caps, .. } = self;
        let mut out = format!(
            "/* {from}, compiled by gradloom {}. Compile {name}.c with\n     cc {} -c {name}.c\n   and link with -lm. */\n\
             #ifndef {caps}_H\n#define {caps}_H\n#include <stddef.h>\n#include <stdint.h>\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n",
            env!("CARGO_PKG_VERSION"),
            self.options(),
        );
        for (i, (p, id)) in
            self.r.inputs.iter().zip(&self.inputs).chain(self.r.outputs.iter().zip(&self.outputs)).enumerate()
        {
            let kind = if i < self.inputs.len() { "Input" } else { "Output" };
            let _ = writeln!(out, "/* {kind} {}: {}{} {:?} */", comment(&p.name), p.dtype, bits(p.dtype), p.shape);
            let _ = writeln!(out, "#define {caps}_{}_LEN {}", id.to_uppercase(), p.len());
        }
        let _ = write!(
            out,
            "\n/* Bytes of memory that a run works in, at a multiple of 64. */\n#define {caps}_WORK_BYTES {}\n\n",
            self.work_bytes.max(ALIGN)
        );
        if !self.array {
            let _ = write!(
                out,
                "/* Bytes of {name}.weights. Give them, at a multiple of 64, before the first run; they are read where they are. */\n\
                 #define {caps}_WEIGHT_BYTES {}\nvoid {name}_weights(const void *bytes);\n\n",
                self.weight_bytes
            );
        }
        let _ = write!(
            out,
            "/* Runs the model in memory of the caller's, which no array may overlap: any number of runs at a time,\n   each in its own. */\n\
             void {name}_run_in(void *work, {0});\n\n\
             #ifndef {caps}_NO_STATIC\n/* The same in static memory: one run at a time. */\nvoid {name}_run({0});\n#endif\n\n\
             #ifdef __cplusplus\n}}\n#endif\n#endif\n",
            self.parameters()
        );
        out
    }

    fn options(&self) -> &'static str {
        if self.r.target.caps.lanes > 1 {
            "-std=gnu11 -O3 -march=native -fwrapv -fno-math-errno"
        } else {
            "-std=c99 -O3"
        }
    }

    /// The parameter list of the model's function.
    fn parameters(&self) -> String {
        let inputs = self.r.inputs.iter().zip(&self.inputs).map(|(p, id)| format!("const {} *{id}", ty(p)));
        let outputs = self.r.outputs.iter().zip(&self.outputs).map(|(p, id)| format!("{} *{id}", ty(p)));
        inputs.chain(outputs).collect::<Vec<_>>().join(", ")
    }

    fn code(&self, from: &str, weights: &[u8]) -> Result<String> {
        let Unit { r, name, caps, .. } = self;
        let mut out = format!(
            "/* {from}, compiled by gradloom {}: see {name}.h. */\n#include \"{name}.h\"\n#include <string.h>\n",
            env!("CARGO_PKG_VERSION")
        );
        if r.target.caps.lanes == 1 {
            out.push_str("#define GL_STANDARD\n");
        }
        out.push_str(&prelude());
        let mut kernels = Vec::new();
        let mut types = BTreeSet::new();
        for (i, p) in r.kernels.iter().enumerate() {
            let mut p = (**p).clone();
            p.name = format!("{name}_k{i}");
            let f = Function::new(&p, &r.target)?;
            types.extend(f.types);
            kernels.push(f.text);
        }
        out.extend(types);
        out.push('\n');
        for text in kernels {
            let _ = write!(out, "static {text}\n");
        }
        self.weights(&mut out, weights);
        let _ = write!(
            out,
            "void {name}_run_in(void *work, {}) {{\n  unsigned char *const m = (unsigned char *)work;\n",
            self.parameters()
        );
        let s = if self.scratch < self.work_bytes { format!("m + {}", self.scratch) } else { "m".into() };
        for step in &r.steps {
            match step {
                Step::Launch { kernel, args, grid, vars } => {
                    let args: Vec<String> = args.iter().map(|p| self.place(p)).collect();
                    let vars: Vec<String> = vars.iter().map(|v| format!("{v}u")).collect();
                    let (declared, v) = match vars.len() {
                        0 => (String::new(), "0"),
                        _ => (format!(" const unsigned v[] = {{{}}};", vars.join(", ")), "v"),
                    };
                    let _ = writeln!(
                        out,
                        "  {{ void *const b[] = {{{}}};{declared} {name}_k{kernel}(b, {v}, 0, {}, {s}); }}",
                        args.join(", "),
                        grid[0]
                    );
                }
                Step::Copy { from, to } => {
                    let _ = writeln!(out, "  memcpy({}, {}, {});", self.place(to), self.place(from), to.bytes);
                }
            }
        }
        let names: Vec<&str> = self.inputs.iter().chain(&self.outputs).map(String::as_str).collect();
        let unused: String = names.iter().map(|n| format!(" (void){n};")).collect();
        let _ = write!(
            out,
            "  (void)m;{unused}\n}}\n\n#ifndef {caps}_NO_STATIC\n#ifdef __GNUC__\n__attribute__((aligned({ALIGN})))\n#endif\n\
             static uint64_t {name}_work[{caps}_WORK_BYTES / 8];\nvoid {name}_run({}) {{\n  {name}_run_in({name}_work, {});\n}}\n#endif\n",
            self.parameters(),
            names.join(", ")
        );
        Ok(out)
    }

    fn weights(&self, out: &mut String, bytes: &[u8]) {
        let name = self.name;
        if !self.array {
            let _ = write!(
                out,
                "static const unsigned char *{name}_w;\nvoid {name}_weights(const void *bytes) {{ {name}_w = (const unsigned char *)bytes; }}\n\n"
            );
            return;
        }
        let n = bytes.len().div_ceil(8).max(1);
        let _ = write!(
            out,
            "#ifdef __GNUC__\n__attribute__((aligned({ALIGN})))\n#endif\nstatic const uint64_t {name}_array[{n}] = {{"
        );
        for (i, word) in bytes.chunks(8).enumerate() {
            let mut full = [0; 8];
            full[..word.len()].copy_from_slice(word);
            let _ = write!(out, "{}{:#x},", if i % 8 == 0 { "\n" } else { "" }, u64::from_le_bytes(full));
        }
        if bytes.is_empty() {
            out.push('0');
        }
        let _ = write!(out, "}};\n#define {name}_w ((const unsigned char *){name}_array)\n\n");
    }

    fn place(&self, p: &Place) -> String {
        let at = |base: &str, offset: usize| {
            if offset == 0 { format!("(void *)({base})") } else { format!("(void *)({base} + {offset})") }
        };
        match p.buffer {
            Buffer::Constant(i) => at(&format!("{}_w", self.name), self.constants[i] + p.offset),
            Buffer::Arena(i) => at("m", self.arenas[i] + p.offset),
            Buffer::Input(i) => at(&format!("(const char *){}", self.inputs[i]), p.offset),
            Buffer::Output(i) => at(&format!("(char *){}", self.outputs[i]), p.offset),
        }
    }
}

fn ty(p: &Port) -> &'static str {
    match p.stored {
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::I32 => "int32_t",
        DType::I64 => "int64_t",
        DType::U16 | DType::F16 | DType::BF16 => "uint16_t",
        DType::U32 => "uint32_t",
        DType::U64 => "uint64_t",
        DType::F32 => "float",
        DType::F64 => "double",
        _ => "uint8_t",
    }
}

/// The explanation of types that C lacks, for comments.
fn bits(dt: DType) -> &'static str {
    match dt {
        DType::F16 | DType::BF16 => " (its bits)",
        DType::Bool => " (0 or 1)",
        _ => "",
    }
}

/// The name without characters that could end a comment or begin another one.
fn comment(name: &str) -> String {
    name.chars().map(|c| if c == '*' || c.is_control() { '_' } else { c }).collect()
}
