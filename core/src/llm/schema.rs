//! Grammars of JSON texts from JSON Schema (draft 2020-12): the keywords that restrict texts and that a
//! grammar can express.
//!
//! Every text that fits the grammar fits the schema. The converse does not hold: properties must come in the schema's
//! order, properties that the schema does not list are not allowed if it lists any, white space is limited, and numbers
//! have at most 15 digits. An unknown keyword may restrict texts and is refused by name, and so is a known one where
//! no grammar is made of it: bounds of numbers that are no integers, and some patterns (`pattern.rs`).

use super::grammar::{Grammar, Item, Set};
use crate::error::{Error, Result};
use crate::io::json::{Json, write, write_str};
use rustc_hash::FxHashMap;

/// The deepest nesting of schemas.
pub(super) const MAX_DEPTH: usize = 128;
/// The largest bound of a length or a number of items; each of them is counted by rules of its own.
pub(super) const MOST_COUNTED: u64 = 4096;
/// The largest integer: 15 digits.
const MOST: i64 = 999_999_999_999_999;

/// Keywords that bound integers.
const BOUNDS: &[&str] = &["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"];

/// Known keywords: they restrict no text, or are handled where another keyword is.
const PASSED: &[&str] = &[
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "format",
    "strict",
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "pattern",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
];

impl Grammar {
    /// The grammar of the texts that fit a schema.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` for an unknown keyword, `E_VALUE` for a wrong value of a known one.
    pub fn from_schema(schema: &Json) -> Result<Grammar> {
        let mut b = Builder::new(schema)?;
        let start = b.schema(schema, 0)?;
        b.finish(start)
    }

    /// The grammar of any JSON object.
    pub fn json_object() -> Result<Grammar> {
        let schema = Json::Object(vec![("type".into(), Json::Str("object".into()))]);
        Grammar::from_schema(&schema)
    }
}

pub(super) struct Builder<'a> {
    pub(super) g: Grammar,
    root: &'a Json,
    refs: FxHashMap<String, u32>,
    pub(super) space: Item,
    character: Item,
    digit: Item,
    any: u32,
}

pub(super) fn one(list: &[(u8, u8)]) -> Item {
    Item::Set(Set::ranges(list))
}

pub(super) fn literal(text: &str) -> Vec<Item> {
    text.bytes().map(|b| one(&[(b, b)])).collect()
}

pub(super) fn wrong(key: &str, what: &str) -> Error {
    Error::value("schema", format!("`{key}` {what}"))
}

/// Is a value of this type of JSON Schema?
fn is_kind(v: &Json, kind: &str) -> bool {
    match v {
        Json::Null => kind == "null",
        Json::Bool(_) => kind == "boolean",
        Json::Int(_) => kind == "number" || kind == "integer",
        Json::Float(n) => kind == "number" || kind == "integer" && n.fract() == 0.0,
        Json::Str(_) => kind == "string",
        Json::Array(_) => kind == "array",
        Json::Object(_) => kind == "object",
    }
}

pub(super) fn lacks(what: String) -> Error {
    Error::Unsupported { what, context: "a JSON schema".into() }
}

impl<'a> Builder<'a> {
    pub(super) fn new(root: &'a Json) -> Result<Builder<'a>> {
        let mut g = Grammar::default();
        let blank = one(&[(b' ', b' ')]);
        let mut indent = g.add(&[Vec::new()])?;
        for _ in 0..16 {
            indent = g.add(&[Vec::new(), vec![blank, indent]])?;
        }
        let space = g.add(&[Vec::new(), vec![blank], vec![one(&[(b'\n', b'\n')]), indent]])?;
        let hex = one(&[(b'0', b'9'), (b'a', b'f'), (b'A', b'F')]);
        // `\u` escapes must not be lone surrogates (U+D800 to U+DFFF)
        let low = one(&[(b'0', b'9'), (b'a', b'c'), (b'A', b'C'), (b'e', b'f'), (b'E', b'F')]);
        let escape = g.add(&[
            vec![one(&[
                (b'"', b'"'),
                (b'\\', b'\\'),
                (b'/', b'/'),
                (b'b', b'b'),
                (b'f', b'f'),
                (b'n', b'n'),
                (b'r', b'r'),
                (b't', b't'),
            ])],
            vec![one(&[(b'u', b'u')]), low, hex, hex, hex],
            vec![one(&[(b'u', b'u')]), one(&[(b'd', b'd'), (b'D', b'D')]), one(&[(b'0', b'7')]), hex, hex],
        ])?;
        let more = one(&[(0x80, 0xbf)]);
        let character = g.add(&[
            vec![one(&[(0x20, 0x21), (0x23, 0x5b), (0x5d, 0x7e)])],
            vec![one(&[(0xc2, 0xdf)]), more],
            vec![one(&[(0xe0, 0xe0)]), one(&[(0xa0, 0xbf)]), more],
            vec![one(&[(0xe1, 0xec), (0xee, 0xef)]), more, more],
            vec![one(&[(0xed, 0xed)]), one(&[(0x80, 0x9f)]), more],
            vec![one(&[(0xf0, 0xf0)]), one(&[(0x90, 0xbf)]), more, more],
            vec![one(&[(0xf1, 0xf3)]), more, more, more],
            vec![one(&[(0xf4, 0xf4)]), one(&[(0x80, 0x8f)]), more, more],
            vec![one(&[(b'\\', b'\\')]), escape],
        ])?;
        let any = g.reserve();
        let digit = one(&[(b'0', b'9')]);
        let mut b = Builder { g, root, refs: FxHashMap::default(), space, character, digit, any };
        let kinds = ["object", "array", "string", "number", "boolean", "null"];
        let kinds: Vec<Vec<Item>> =
            kinds.iter().map(|k| Ok(vec![b.kind(k, &Json::Null, 0)?])).collect::<Result<_>>()?;
        b.g.define(any, &kinds)?;
        Ok(b)
    }

    pub(super) fn finish(mut self, start: Item) -> Result<Grammar> {
        let rule = self.g.reserve();
        self.g.define(rule, &[vec![start]])?;
        self.g.set_start(rule);
        Ok(self.g)
    }

    /// The rule of a function's arguments: texts that fit the schema, or any object if there is none. A schema that
    /// cannot be expressed allows any object, too, unless `strict` is set.
    pub(super) fn arguments(&mut self, parameters: Option<&'a Json>, strict: bool) -> Result<Item> {
        let says =
            |p: &&Json| ["type", "properties", "$ref", "anyOf", "allOf", "oneOf"].iter().any(|k| p.get(k).is_some());
        let Some(schema) = parameters.filter(says) else { return self.kind("object", &Json::Null, 0) };
        self.root = schema;
        self.refs.clear();
        match self.schema(schema, 0) {
            Err(Error::Unsupported { .. }) if !strict => self.kind("object", &Json::Null, 0),
            made => made,
        }
    }

    /// `{"name": .., "arguments": {..}}`.
    pub(super) fn call(&mut self, name: &str, given: Item) -> Result<Item> {
        let space = self.space;
        let mut own = String::new();
        write_str(&mut own, name);
        let key = self.g.add(&[literal("\"arguments\""), literal("\"parameters\"")])?;
        let colon = [literal(":"), vec![space]].concat();
        let parts = [
            [literal("{"), vec![space], literal("\"name\""), colon.clone(), literal(&own), literal(",")].concat(),
            [vec![space, key], colon, vec![given, space], literal("}")].concat(),
        ];
        self.g.add(&[parts.concat()])
    }

    /// `name=value, name=value`, as Python has keyword arguments, with values in JSON's notation or Python's constants.
    pub(super) fn keywords(&mut self) -> Result<Item> {
        let letter = one(&[(b'A', b'Z'), (b'_', b'_'), (b'a', b'z')]);
        let other = one(&[(b'0', b'9'), (b'A', b'Z'), (b'_', b'_'), (b'a', b'z')]);
        let rest = self.g.repeated(&[other], &[], (0, None))?;
        let value = self.g.add(&[vec![Item::Rule(self.any)], literal("True"), literal("False"), literal("None")])?;
        let pair = [vec![letter, rest], literal("="), vec![value]].concat();
        self.g.repeated(&pair, &[literal(","), vec![self.space]].concat(), (0, None))
    }

    fn schema(&mut self, s: &'a Json, depth: usize) -> Result<Item> {
        if depth > MAX_DEPTH {
            return Err(Error::value("schema", format!("it is deeper than {MAX_DEPTH}")));
        }
        let fields = match s {
            Json::Bool(true) => return Ok(Item::Rule(self.any)),
            Json::Object(fields) => fields,
            _ => return Err(Error::value("schema", "a schema is an object")),
        };
        if let Some((key, _)) = fields.iter().find(|(k, _)| !PASSED.contains(&k.as_str())) {
            return Err(lacks(format!("keyword `{key}`")));
        }
        // What bounds values needs a type that says so, and nothing else that says which texts there are.
        let others = ["$ref", "const", "enum", "anyOf", "oneOf", "allOf"];
        let mut chosen = others.iter().filter(|k| s.get(k).is_some());
        if let (Some(one), Some(other)) = (chosen.next(), chosen.next()) {
            return Err(lacks(format!("`{other}` together with `{one}`")));
        }
        let has_other = others.iter().any(|k| s.get(k).is_some());
        if s.get("type").is_none() || has_other {
            for keys in [BOUNDS, &["pattern", "minLength", "maxLength"]] {
                refuse(s, keys, "without a plain `type`")?;
            }
        }
        if has_other || s.get("type").is_none() && s.get("items").is_none() {
            refuse(s, &["minItems", "maxItems"], "without a plain `type`")?;
        }
        if has_other {
            refuse(s, &["properties", "required", "additionalProperties", "items"], "beside a choice of values")?;
        }
        if let Some(r) = s.get("$ref") {
            refuse(s, &["type"], "beside `$ref`")?;
            return self.reference(r.as_str().ok_or_else(|| wrong("$ref", "is no string"))?, depth);
        }
        if let Some(v) = s.get("const") {
            return self.values(std::slice::from_ref(v), s);
        }
        if let Some(list) = s.get("enum") {
            let list = list.as_array().filter(|l| !l.is_empty()).ok_or_else(|| wrong("enum", "is no list"))?;
            return self.values(list, s);
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            let Some(list) = s.get(key) else { continue };
            let list = list.as_array().filter(|l| !l.is_empty()).ok_or_else(|| wrong(key, "is no list"))?;
            if (key == "allOf" && list.len() > 1) || s.get("type").is_some() {
                return Err(lacks(format!("`{key}` together with others")));
            }
            let all: Vec<Vec<Item>> =
                list.iter().map(|s| Ok(vec![self.schema(s, depth + 1)?])).collect::<Result<_>>()?;
            return self.g.add(&all);
        }
        match s.get("type") {
            Some(Json::Str(kind)) => self.kind(kind, s, depth),
            Some(Json::Array(kinds)) if !kinds.is_empty() => {
                let name = |k: &'a Json| k.as_str().ok_or_else(|| wrong("type", "has what is no string"));
                let all = kinds.iter().map(|k| Ok(vec![self.kind(name(k)?, s, depth)?])).collect::<Result<Vec<_>>>()?;
                self.g.add(&all)
            }
            Some(_) => Err(wrong("type", "is neither a string nor a list of strings")),
            None if s.get("properties").is_some() => self.kind("object", s, depth),
            None if s.get("items").is_some() => self.kind("array", s, depth),
            None => Ok(Item::Rule(self.any)),
        }
    }

    fn reference(&mut self, pointer: &str, depth: usize) -> Result<Item> {
        if let Some(rule) = self.refs.get(pointer) {
            return Ok(Item::Rule(*rule));
        }
        let unknown = || wrong("$ref", &format!("names `{pointer}`, which is not there"));
        let path = pointer.strip_prefix('#').ok_or_else(unknown)?;
        let mut target = self.root;
        for key in path.split('/').skip(1) {
            target = target.get(&key.replace("~1", "/").replace("~0", "~")).ok_or_else(unknown)?;
        }
        let rule = self.g.reserve();
        self.refs.insert(pointer.to_owned(), rule);
        let inner = self.schema(target, depth + 1)?;
        self.g.define(rule, &[vec![inner]])?;
        Ok(Item::Rule(rule))
    }

    /// The values of a list that have one of the types of the schema, if it names types.
    fn values(&mut self, list: &[Json], schema: &Json) -> Result<Item> {
        let kinds: Option<Vec<&str>> = schema.get("type").map(|kinds| match kinds {
            Json::Array(kinds) => kinds.iter().filter_map(Json::as_str).collect(),
            kind => kind.as_str().into_iter().collect(),
        });
        let fits = |v: &&Json| kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|kind| is_kind(v, kind)));
        let list: Vec<&Json> = list.iter().filter(fits).collect();
        if list.is_empty() {
            return Err(wrong("type", "is that of none of the values"));
        }
        let text = |v: &Json| {
            let mut out = String::new();
            write(&mut out, v);
            literal(&out)
        };
        let all: Vec<Vec<Item>> = list.into_iter().map(text).collect();
        self.g.add(&all)
    }

    fn kind(&mut self, kind: &str, s: &'a Json, depth: usize) -> Result<Item> {
        match kind {
            "object" => self.object(s, depth),
            "array" => {
                let item = match s.get("items") {
                    Some(s) => self.schema(s, depth + 1)?,
                    None => Item::Rule(self.any),
                };
                let comma = [literal(","), vec![self.space]].concat();
                let inner = self.g.repeated(&[item], &comma, range(s, "minItems", "maxItems")?)?;
                self.g.add(&[[literal("["), vec![self.space, inner, self.space], literal("]")].concat()])
            }
            "string" => {
                let character = self.character;
                let inner = match s.get("pattern") {
                    None => self.g.repeated(&[character], &[], range(s, "minLength", "maxLength")?)?,
                    Some(pattern) => {
                        refuse(s, &["minLength", "maxLength"], "beside `pattern`")?;
                        self.pattern(pattern.as_str().ok_or_else(|| wrong("pattern", "is no string"))?)?
                    }
                };
                self.g.add(&[[literal("\""), vec![inner], literal("\"")].concat()])
            }
            "integer" => match bounds(s)? {
                Some((low, high)) => self.integer_in(low, high),
                None => self.integer(),
            },
            "number" => {
                refuse(s, BOUNDS, "for what may be no integer")?;
                let (integer, digit) = (self.integer()?, self.digit);
                let digits = self.g.repeated(&[digit], &[], (1, Some(15)))?;
                let power = self.g.repeated(&[digit], &[], (1, Some(2)))?;
                let sign = self.g.add(&[Vec::new(), literal("+"), literal("-")])?;
                let part = self.g.add(&[Vec::new(), [literal("."), vec![digits]].concat()])?;
                let power = self.g.add(&[Vec::new(), vec![one(&[(b'e', b'e'), (b'E', b'E')]), sign, power]])?;
                self.g.add(&[vec![integer, part, power]])
            }
            "boolean" => self.g.add(&[literal("true"), literal("false")]),
            "null" => self.g.add(&[literal("null")]),
            kind => Err(wrong("type", &format!("is `{kind}`"))),
        }
    }

    fn integer(&mut self) -> Result<Item> {
        let digit = self.digit;
        let rest = self.g.repeated(&[digit], &[], (0, Some(14)))?;
        let sign = self.g.add(&[Vec::new(), literal("-")])?;
        self.g.add(&[[vec![sign], literal("0")].concat(), vec![sign, one(&[(b'1', b'9')]), rest]])
    }

    /// The integers from `low` to `high`, which are at most [`MOST`] from 0.
    fn integer_in(&mut self, low: i64, high: i64) -> Result<Item> {
        let mut all = Vec::new();
        for (sign, low, high) in [("", low.max(0), high), ("-", (-high).max(1), -low)] {
            // Those of each number of digits
            let (mut first, mut last) = (0, 9);
            while first <= high {
                let [from, to] = [first.max(low), last.min(high)];
                if from <= to {
                    let digits =
                        self.g.between(from.to_string().as_bytes(), to.to_string().as_bytes(), (b'0', b'9'))?;
                    all.push([literal(sign), vec![digits]].concat());
                }
                (first, last) = (last + 1, last * 10 + 9);
            }
        }
        self.g.add(&all)
    }

    fn object(&mut self, s: &'a Json, depth: usize) -> Result<Item> {
        let close = [vec![self.space], literal("}")].concat();
        let comma = [literal(","), vec![self.space]].concat();
        let colon = [literal(":"), vec![self.space]].concat();
        let required = match s.get("required") {
            Some(r) => r.as_array().ok_or_else(|| wrong("required", "is no list"))?,
            None => &[],
        };
        let properties = match s.get("properties") {
            Some(p) => p.as_object().ok_or_else(|| wrong("properties", "is no object"))?,
            None => &[],
        };
        if let Some(r) = required.iter().find(|r| !properties.iter().any(|p| Some(p.0.as_str()) == r.as_str())) {
            return Err(wrong(
                "required",
                &format!("has {:?}, which `properties` has not", r.as_str().unwrap_or_default()),
            ));
        }
        let open = [literal("{"), vec![self.space]].concat();
        if properties.is_empty() {
            let inner = match s.get("additionalProperties") {
                Some(Json::Bool(false)) => self.g.add(&[Vec::new()])?,
                other => {
                    let value = match other {
                        Some(s) => self.schema(s, depth + 1)?,
                        None => Item::Rule(self.any),
                    };
                    let key = self.kind("string", &Json::Null, depth)?;
                    let pair = [vec![key], colon, vec![value]].concat();
                    self.g.repeated(&pair, &comma, (0, None))?
                }
            };
            return self.g.add(&[[open, vec![inner], close].concat()]);
        }
        // From the last property to the first: what may follow if no property was written yet, and what may
        // follow otherwise
        let mut follow = [self.g.add(std::slice::from_ref(&close))?, self.g.add(&[close])?];
        for (name, schema) in properties.iter().rev() {
            let mut key = String::new();
            write_str(&mut key, name);
            let value = self.schema(schema, depth + 1)?;
            let pair = [literal(&key), colon.clone(), vec![value, follow[1]]].concat();
            let optional = !required.iter().any(|r| r.as_str() == Some(name));
            let mut next = |before: &[Item], without: Item| {
                let mut all = vec![[before, &pair[..]].concat()];
                all.extend(optional.then(|| vec![without]));
                self.g.add(&all)
            };
            follow = [next(&[], follow[0])?, next(&comma, follow[1])?];
        }
        self.g.add(&[[open, vec![follow[0]]].concat()])
    }
}

/// Refuses a schema that has one of these keywords.
fn refuse(s: &Json, keys: &[&str], place: &str) -> Result<()> {
    match keys.iter().find(|key| s.get(key).is_some()) {
        Some(key) => Err(lacks(format!("keyword `{key}` {place}"))),
        None => Ok(()),
    }
}

/// The least and the largest integer that a schema allows, if it has bounds.
fn bounds(s: &Json) -> Result<Option<(i64, i64)>> {
    let read = |key: &str| match s.get(key) {
        None => Ok(None),
        // Draft 4
        Some(Json::Bool(_)) => Err(lacks(format!("keyword `{key}` with a bool"))),
        // Bounds beyond all integers stay beyond them
        Some(n) => n.as_f64().map(|n| Some(n.clamp(-1e16, 1e16))).ok_or_else(|| wrong(key, "is no number")),
    };
    if BOUNDS.iter().all(|key| s.get(key).is_none()) {
        return Ok(None);
    }
    let (mut low, mut high) = (-MOST, MOST);
    for n in [read("minimum")?.map(f64::ceil), read("exclusiveMinimum")?.map(|n| n.floor() + 1.0)].iter().flatten() {
        low = low.max(*n as i64);
    }
    for n in [read("maximum")?.map(f64::floor), read("exclusiveMaximum")?.map(|n| n.ceil() - 1.0)].iter().flatten() {
        high = high.min(*n as i64);
    }
    match low <= high {
        true => Ok(Some((low, high))),
        false if low > MOST || high < -MOST => Err(lacks("`minimum` and `maximum` of more than 15 digits".into())),
        false => Err(Error::value("schema", format!("no integer is between {low} and {high}"))),
    }
}

fn range(s: &Json, least: &str, most: &str) -> Result<(u64, Option<u64>)> {
    let read = |key: &str| match s.get(key) {
        None => Ok(None),
        Some(v) => match v.as_u64() {
            Some(n) if n <= MOST_COUNTED => Ok(Some(n)),
            _ => Err(wrong(key, &format!("is no number up to {MOST_COUNTED}"))),
        },
    };
    let (low, high) = (read(least)?.unwrap_or(0), read(most)?);
    match high.is_some_and(|h| h < low) {
        true => Err(wrong(most, &format!("is less than `{least}`"))),
        false => Ok((low, high)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::grammar::tests::fits;
    use super::*;
    use std::sync::Arc;

    fn grammar(schema: &str) -> Result<Arc<Grammar>> {
        Grammar::from_schema(&Json::parse(schema.as_bytes()).unwrap()).map(Arc::new)
    }

    #[test]
    fn integers_keep_to_their_bounds() {
        for (low, high) in [(0, 9), (1, 1), (-1, 1), (-105, 103), (-40, -7), (7, 40), (98, 1003), (0, 199), (300, 309)]
        {
            let g = grammar(&format!(r#"{{"type": "integer", "minimum": {low}, "maximum": {high}}}"#)).unwrap();
            for n in (-120..=120).chain(290..=310).chain(990..=1010) {
                assert_eq!(fits(&g, &n.to_string()), (low..=high).contains(&n), "{n} from {low} to {high}");
            }
            ["", "-", "-0", "00", "01", "-01", "1.0", "1e1", "+1"].iter().for_each(|t| assert!(!fits(&g, t), "{t}"));
        }
        for (schema, good, bad) in [
            (r#"{"type": "integer", "minimum": 12}"#, "12|99|100|999999999999999", "0|11|-12|1000000000000000"),
            (r#"{"type": "integer", "maximum": -12}"#, "-12|-999999999999999", "0|-11|12"),
            (r#"{"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3}"#, "1|2", "0|3"),
            (r#"{"type": "integer", "minimum": 0.5, "exclusiveMaximum": 2.5}"#, "1|2", "0|3"),
            (r#"{"type": "integer", "minimum": 3, "exclusiveMinimum": 1, "maximum": 1e300}"#, "3|1234567", "2|-3"),
            (r#"{"type": ["integer", "null"], "minimum": 3}"#, "3|null", "2"),
            (r#"{"type": "string", "minimum": 3}"#, "\"1\"", "3"),
            (r#"{"type": ["string", "integer"], "enum": ["a", 1, 2.5, null]}"#, "\"a\"|1", "2.5|null"),
        ] {
            let g = grammar(schema).unwrap();
            good.split('|').for_each(|t| assert!(fits(&g, t), "{schema} refuses {t}"));
            bad.split('|').for_each(|t| assert!(!fits(&g, t), "{schema} takes {t}"));
        }
    }

    #[test]
    fn bounds_that_no_grammar_has_are_refused_by_name() {
        for (schema, code, name) in [
            (r#"{"type": "number", "minimum": 0}"#, "E_UNSUPPORTED", "minimum"),
            (r#"{"exclusiveMaximum": 3}"#, "E_UNSUPPORTED", "exclusiveMaximum"),
            (r#"{"type": "integer", "enum": [1, 5], "maximum": 3}"#, "E_UNSUPPORTED", "maximum"),
            (r#"{"type": "integer", "multipleOf": 3}"#, "E_UNSUPPORTED", "multipleOf"),
            (r#"{"enum": ["a", "bcd"], "minLength": 2}"#, "E_UNSUPPORTED", "minLength"),
            (r#"{"minLength": 2}"#, "E_UNSUPPORTED", "minLength"),
            (r#"{"const": [1], "maxItems": 0}"#, "E_UNSUPPORTED", "maxItems"),
            (
                r##"{"$ref": "#/$defs/a", "minItems": 1, "$defs": {"a": {"type": "array"}}}"##,
                "E_UNSUPPORTED",
                "minItems",
            ),
            (
                r##"{"$ref": "#/$defs/a", "type": "string", "$defs": {"a": {"type": "string"}}}"##,
                "E_UNSUPPORTED",
                "type",
            ),
            (r#"{"const": 1, "enum": [1, 2]}"#, "E_UNSUPPORTED", "`enum` together with `const`"),
            (r#"{"anyOf": [{"type": "object"}], "required": ["a"]}"#, "E_UNSUPPORTED", "required"),
            (r#"{"type": "string", "enum": [1, null]}"#, "E_VALUE", "none of the values"),
            (r#"{"type": "integer", "minimum": "3"}"#, "E_VALUE", "minimum"),
            (r#"{"type": "integer", "minimum": 3, "exclusiveMaximum": 3}"#, "E_VALUE", "between 3 and 2"),
            (r#"{"type": "integer", "minimum": 1e15}"#, "E_UNSUPPORTED", "minimum"),
            (r#"{"type": "integer", "minimum": 1, "exclusiveMinimum": true}"#, "E_UNSUPPORTED", "exclusiveMinimum"),
        ] {
            let e = grammar(schema).unwrap_err();
            assert!(e.code() == code && e.to_string().contains(name), "{schema}: {e}");
        }
    }
}
