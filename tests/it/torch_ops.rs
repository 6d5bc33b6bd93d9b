//! `web/ts/src/torch-ops.ts`, the declarations of all operators in TypeScript, is what the table gives.

use gradloom_core::tensor::call::{Entry, Param, table};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// A group of operators: those of its own, and groups in it.
#[derive(Default)]
struct Space {
    ops: BTreeMap<&'static str, &'static Entry>,
    inner: BTreeMap<&'static str, Space>,
}

fn name_of(p: &Param) -> String {
    // words that TypeScript does not take for a parameter
    if ["in", "function", "var"].contains(&p.name) { format!("{}_", p.name) } else { p.name.to_string() }
}

/// Parameters in torch's order, and with those that have defaults in one object.
fn signatures(e: &Entry) -> Vec<Vec<String>> {
    let params: Vec<&Param> = e.params.iter().filter(|p| !p.ty.is_empty()).collect();
    let last_required = params.iter().rposition(|p| !p.optional).map_or(0, |i| i + 1);
    let one = |p: &Param, optional: bool| {
        let or_null = if p.optional && !optional { " | null" } else { "" };
        format!("{}{}: {}{or_null}", name_of(p), if optional { "?" } else { "" }, p.ty)
    };
    let inline: Vec<String> =
        params.iter().enumerate().map(|(i, p)| one(p, p.optional && i >= last_required)).collect();
    let mut out = vec![inline.clone()];
    let rest = &params[last_required..];
    if !rest.is_empty() {
        let named: Vec<String> = rest.iter().map(|p| format!("{}?: {}", p.name, p.ty)).collect();
        let mut list = inline[..last_required].to_vec();
        list.push(format!("named: {{ {} }}", named.join("; ")));
        out.push(list);
    }
    out
}

/// One declaration, cut where it is long.
fn member(out: &mut String, indent: &str, name: &str, params: &[String], result: &str) {
    let line = format!("{indent}{name}({}): {result};", params.join(", "));
    if line.len() <= 140 {
        let _ = writeln!(out, "{line}");
        return;
    }
    let _ = writeln!(out, "{indent}{name}(");
    for p in params {
        let p = if p.len() > 120 { p.replace("; ", &format!(";\n{indent}    ")) } else { p.clone() };
        let _ = writeln!(out, "{indent}  {p},");
    }
    let _ = writeln!(out, "{indent}): {result};");
}

fn write(out: &mut String, space: &Space, depth: usize) {
    let indent = "  ".repeat(depth);
    for (name, e) in &space.ops {
        if space.inner.contains_key(name) {
            continue;
        }
        for s in signatures(e) {
            member(out, &indent, name, &s, e.out);
        }
    }
    for (name, inner) in &space.inner {
        let _ = writeln!(out, "{indent}{name}: {{");
        if let Some(e) = space.ops.get(name) {
            for s in signatures(e) {
                member(out, &format!("{indent}  "), "", &s, e.out);
            }
        }
        write(out, inner, depth + 1);
        let _ = writeln!(out, "{indent}}};");
    }
}

#[test]
fn declarations_are_those_of_the_table() {
    let mut root = Space::default();
    for e in table() {
        // `__radd__` and its kin say nothing in JavaScript
        for name in e.names.iter().filter(|n| !n.starts_with("__")) {
            let mut space = &mut root;
            let mut parts = name.split('.').peekable();
            while let Some(part) = parts.next() {
                if parts.peek().is_none() {
                    assert!(space.ops.insert(part, e).is_none(), "{name} is there twice");
                } else {
                    space = space.inner.entry(part).or_default();
                }
            }
        }
    }
    let mut text = String::from(
        "// Generated from the table of operators: `BLESS=1 cargo test -p gradloom-tests --test it torch_ops`.\n\
         import type { DType } from \"./dtype.js\";\n\
         import type { Tensor } from \"./tensor.js\";\n\n\
         /** Operators by torch's names. */\nexport interface Torch {\n",
    );
    write(&mut text, &root, 1);
    text.push_str("}\n");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web/ts/src/torch-ops.ts");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(there == text, "run with BLESS=1");
}
