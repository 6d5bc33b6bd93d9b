//! Kernels of the WASM device, for `tests/bench/model/wasm.mjs`: one module, the driver, and what each launch takes.

use super::Job;
use gradloom_core::engine::Compiled;
use gradloom_core::render::Code;
use gradloom_core::render::wasm::{Kernel, MAX_PAGES, SLACK, Wasm, driver, link};
use gradloom_core::target::Target;
use std::path::Path;

/// Writes them to a folder.
pub(crate) fn record(jobs: &[Job], t: &Target, folder: &Path) {
    let mut kernels = Vec::new();
    let mut rows = Vec::new();
    for job in jobs {
        let Ok(c) = Compiled::new(job.program.clone(), t, &Wasm) else { continue };
        let Code::Bytes(bytes) = &c.source.code else { continue };
        let kernel = Kernel::from_bytes(bytes).expect("a kernel");
        let params: Vec<String> =
            c.source.params.iter().map(|p| format!("[\"{:?}\",{},{}]", p.dtype, p.dtype.size(), p.len)).collect();
        let vars: Vec<String> = c.vars.iter().map(|v| v.any_bits().to_string()).collect();
        rows.push(format!(
            "{{\"key\":\"{:032x}\",\"params\":[{}],\"vars\":[{}],\"grid\":{},\"scratch\":{}}}",
            job.key,
            params.join(","),
            vars.join(","),
            c.grid[0],
            kernel.scratch
        ));
        kernels.push(kernel);
    }
    std::fs::create_dir_all(folder).expect("the folder is writable");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).expect("the folder is writable");
    write("kernels.wasm", &link(&kernels, false, MAX_PAGES));
    write("driver.wasm", &driver(false, MAX_PAGES));
    write("list.json", format!("{{\"slack\":{SLACK},\"list\":[\n{}]}}\n", rows.join(",\n")).as_bytes());
}
