//! Runs GPU kernels on this processor: a kernel printed in a C-like language for a GPU is compiled as C++, after a
//! header that defines that language's words, and run thread by thread. This tests the printers without the hardware;
//! it is slow.

use super::error;
use gradloom_core::render::{Source, gpu_c};
use gradloom_core::target::{Lang, MatrixTile, Target};
use gradloom_core::{Error, Result};
use std::fmt::Write as _;

/// Runs a kernel for all workgroups of a grid. Arguments: views, launch scalars, grid. Returns an error
/// number (see [`check`]), or 0.
pub(super) type Groups = unsafe extern "C" fn(*const *mut u8, *const u32, *const u32) -> i32;

/// A GPU language whose kernels can be run on the processor.
pub(super) struct Language {
    pub(super) name: &'static str,
    lang: Lang,
    /// The header that defines its words in C++.
    words: &'static str,
    /// The include line of its standard library in kernels' texts. It is removed, because there is no such file.
    includes: &'static str,
    pub(super) target: fn(&str) -> Target,
}

/// Metal, CUDA C++ and HIP C++.
pub(super) static LANGUAGES: [Language; 3] = [
    Language {
        name: "metal",
        lang: Lang::Metal,
        words: include_str!("host/metal.h"),
        includes: "#include <metal_stdlib>\n",
        target: Target::metal,
    },
    Language {
        name: "cuda",
        lang: Lang::CudaC,
        words: include_str!("host/cuda.h"),
        includes: "",
        target: |name| Target::cuda_c(name, 80),
    },
    Language {
        name: "hip",
        lang: Lang::Hip,
        words: include_str!("host/hip.h"),
        includes: "",
        target: |name| Target::hip(name, 32, MatrixTile::rdna3()),
    },
];

/// The language in which kernels of a target are printed.
pub(super) fn language(lang: Lang) -> Option<&'static Language> {
    LANGUAGES.iter().find(|l| l.lang == lang)
}

impl Language {
    /// The text of a C++ unit, with a function `gl_run_{i}` of type [`Groups`] for each source.
    pub(super) fn unit(&self, sources: &[Source]) -> Result<String> {
        let kernels = gpu_c::unit(sources)?.replace(self.includes, "");
        let mut unit = [include_str!("host/groups.h"), self.words, &kernels].concat();
        for (i, s) in sources.iter().enumerate() {
            let mut args: Vec<String> =
                (0..s.params.len()).map(|slot| format!("host::Buffer{{host::buffers[{slot}]}}")).collect();
            match self.name {
                "metal" if s.vars.is_empty() => {}
                "metal" => args.push("host::scalars".into()),
                _ => args.extend((0..s.vars.len()).map(|i| format!("host::Word{{host::scalars[{i}]}}"))),
            }
            if self.name == "metal" {
                args.extend(["host::group".into(), "host::index".into()]);
            }
            let [x, y, z] = s.local;
            let _ = writeln!(
                unit,
                "extern \"C\" int gl_run_{i}(void* const* views, const uint32_t* words, const uint32_t* grid) {{\n\
                 static const unsigned local[] = {{{x}, {y}, {z}}};\n\
                 return host::launch([] {{ {}({}); }}, local, views, words, grid);\n}}",
                gpu_c::kernel_name(i),
                args.join(", ")
            );
        }
        Ok(unit)
    }
}

/// Converts an error number of [`Groups`].
pub(super) fn check(kernel: &str, wrong: i32) -> Result<()> {
    match wrong {
        0 => Ok(()),
        1 => Err(error(format!("{kernel}: threads of a group do not come to the same barriers"))),
        2 => Err(error(format!("{kernel}: a thread reads what one outside of its group has"))),
        _ => Err(Error::OutOfMemory { device: "c".into(), bytes: 256 << 20 }),
    }
}
