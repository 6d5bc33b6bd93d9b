//! Shortens the names of a module's imports. wasm-bindgen ends each name with 16 hash digits, in the module and in its
//! script, which do not compress; replacing the names by numbers makes a page's download 3 kB smaller (brotli,
//! measured).

use std::collections::BTreeMap;
use std::convert::Infallible;
use wasm_encoder::reencode::{Error, Reencode};
use wasm_encoder::{ImportSection, Module};
use wasmparser::{Import, Imports, Parser, Payload};

/// Takes a module and the script that wasm-bindgen wrote for it, and gives both with numbers in place of import names
/// that end with a hash.
pub(crate) fn number_imports(module: &[u8], script: &str) -> Result<(Vec<u8>, String), String> {
    let fail = |e: &dyn std::fmt::Display| format!("names of imports: {e}");
    let mut names = BTreeMap::new();
    for payload in Parser::new(0).parse_all(module) {
        let Payload::ImportSection(section) = payload.map_err(|e| fail(&e))? else { continue };
        for import in section.into_imports() {
            let name = import.map_err(|e| fail(&e))?.name;
            if ends_with_hash(name) {
                let number = format!("_{}", names.len());
                names.entry(name.to_owned()).or_insert(number);
            }
        }
    }
    let mut script = script.to_owned();
    for (name, number) in &names {
        // the names as keys of the import object in the script
        let (key, replacement) = (format!(" {name}: "), format!(" {number}: "));
        if script.matches(&key).count() != 1 {
            return Err(fail(&format!("the script does not have `{name}` once")));
        }
        script = script.replace(&key, &replacement);
    }
    let mut out = Module::new();
    ImportNumbering(names).parse_core_module(&mut out, Parser::new(0), module).map_err(|e| fail(&e))?;
    Ok((out.finish(), script))
}

fn ends_with_hash(name: &str) -> bool {
    name.rsplit_once('_').is_some_and(|(_, hash)| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Maps old names to new ones.
struct ImportNumbering(BTreeMap<String, String>);

impl Reencode for ImportNumbering {
    type Error = Infallible;

    fn parse_imports(&mut self, out: &mut ImportSection, imports: Imports<'_>) -> Result<(), Error<Infallible>> {
        for import in imports {
            let (_, Import { module, name, ty }) = import?;
            let ty = self.entity_type(ty)?;
            out.import(module, self.0.get(name).map_or(name, String::as_str), ty);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasm_encoder::{EntityType, TypeSection, ValType};

    #[test]
    fn module_and_script_agree() {
        let (mut types, mut imports) = (TypeSection::new(), ImportSection::new());
        types.ty().function([], [ValType::I32]);
        imports.import("./a_bg.js", "__wbg_get_208446807d0d1e30", EntityType::Function(0));
        imports.import("./a_bg.js", "__wbindgen_init_externref_table", EntityType::Function(0));
        imports.import("./a_bg.js", "__wbg_get_4f1baf9a00be3c74", EntityType::Function(0));
        let mut module = Module::new();
        module.section(&types).section(&imports);
        let script = "return { __wbg_get_208446807d0d1e30: a, __wbindgen_init_externref_table: b, __wbg_get_4f1baf9a00be3c74: c };";

        let (out, renamed) = number_imports(&module.finish(), script).unwrap();
        wasmparser::validate(&out).unwrap();
        assert_eq!(renamed, "return { _0: a, __wbindgen_init_externref_table: b, _1: c };");
        let mut names = Vec::new();
        for payload in Parser::new(0).parse_all(&out) {
            let Payload::ImportSection(section) = payload.unwrap() else { continue };
            names.extend(section.into_imports().map(|import| import.unwrap().name.to_owned()));
        }
        assert_eq!(names, ["_0", "__wbindgen_init_externref_table", "_1"]);
        assert!(number_imports(&out, "nothing").is_ok_and(|(same, _)| same == out));
    }
}
