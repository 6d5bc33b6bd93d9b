//! Interprets the part of Python's pickle format that `torch.save` uses for tensors, as data: no class is looked up and
//! no code is executed.
//!
//! Globals must be names from a fixed list, a call of one of them is a case of [`Machine::call`], and everything else
//! is an error that names it. Lists and dictionaries live in tables and are referred to by index, so a pickle that
//! refers to itself is harmless. The number of values is limited by the length of the file. Spec: Python's
//! `pickletools`.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::MAX_RANK;
use crate::io::bytes::Cursor;
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// The number of values that any pickle may create; longer pickles may create more.
const FREE_VALUES: usize = 1 << 20;

/// The Python globals that are known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Global {
    OrderedDict,
    RebuildTensor,
    RebuildTensorV2,
    RebuildTensorV3,
    RebuildParameter,
    Size,
    Device,
    /// A typed storage, or a dtype.
    Typed(DType),
    Untyped,
}

/// A value. `Tuple`, `List` and `Dict` are indices into the machine's tables. Values that do not matter for tensors
/// carry no data.
#[derive(Clone, Debug)]
pub(super) enum Value {
    None,
    Bool,
    Int(i64),
    /// A long of more than 8 bytes, as its bytes: the magic number of the old format.
    Long(Rc<[u8]>),
    Float,
    Str(Rc<str>),
    Bytes,
    Tuple(usize),
    List(usize),
    Dict(usize),
    Global(Global),
    Storage(usize),
    Tensor(Rc<View>),
    Mark,
}

/// A tensor: strided elements of a storage.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct View {
    pub storage: usize,
    pub dtype: DType,
    pub offset: u64,
    pub shape: Vec<usize>,
    pub strides: Vec<u64>,
}

/// A storage that a pickle refers to. `dtype` is `None` for untyped bytes.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Storage {
    pub key: String,
    pub dtype: Option<DType>,
    pub elems: u64,
}

/// The interpreter. Storages and tables persist from one pickle to the next, since the old format has several in
/// sequence.
#[derive(Default)]
pub(super) struct Machine {
    pub storages: Vec<Storage>,
    pub tuples: Vec<Rc<[Value]>>,
    pub lists: Vec<Vec<Value>>,
    pub dicts: Vec<Vec<(Value, Value)>>,
    stack: Vec<Value>,
    memo: FxHashMap<u32, Value>,
    left: usize,
}

pub(super) fn err(what: impl Into<String>) -> Error {
    Error::format("torch", what, None)
}

impl Machine {
    /// Interprets one pickle to its end and returns its value.
    pub(super) fn run(&mut self, c: &mut Cursor<'_>, len: usize) -> Result<Value> {
        self.stack.clear();
        self.memo.clear();
        self.left = FREE_VALUES + len / 8;
        while !self.step(c)? {}
        let value = self.pop()?;
        if self.stack.is_empty() { Ok(value) } else { Err(c.error("values are left when the pickle ends")) }
    }

    fn push(&mut self, v: Value) -> Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(|| err("the pickle has too many values"))?;
        self.stack.push(v);
        Ok(())
    }

    fn pop(&mut self) -> Result<Value> {
        match self.stack.pop() {
            None | Some(Value::Mark) => Err(err("the pickle takes a value that is not there")),
            Some(v) => Ok(v),
        }
    }

    /// Pops the values above the last mark, and the mark.
    fn pop_mark(&mut self) -> Result<Vec<Value>> {
        let at = self.stack.iter().rposition(|v| matches!(v, Value::Mark)).ok_or_else(|| err("a mark is missing"))?;
        let items = self.stack.split_off(at + 1);
        self.stack.pop();
        Ok(items)
    }

    fn pop_n(&mut self, n: usize) -> Result<Vec<Value>> {
        let mut items = (0..n).map(|_| self.pop()).collect::<Result<Vec<_>>>()?;
        items.reverse();
        Ok(items)
    }

    fn tuple(&mut self, items: Vec<Value>) -> Result<()> {
        self.tuples.push(items.into());
        self.push(Value::Tuple(self.tuples.len() - 1))
    }

    /// The items of a tuple; `None` for any other value.
    pub(super) fn items(&self, v: &Value) -> Option<Rc<[Value]>> {
        if let Value::Tuple(i) = v { self.tuples.get(*i).cloned() } else { None }
    }

    fn list(&mut self, items: Vec<Value>) -> Result<()> {
        self.lists.push(items);
        self.push(Value::List(self.lists.len() - 1))
    }

    fn dict(&mut self, items: Vec<(Value, Value)>) -> Result<()> {
        self.dicts.push(items);
        self.push(Value::Dict(self.dicts.len() - 1))
    }

    fn append(&mut self, items: Vec<Value>) -> Result<()> {
        match self.stack.last() {
            Some(Value::List(i)) => self.lists.get_mut(*i).map(|l| l.extend(items)),
            _ => None,
        }
        .ok_or_else(|| err("an append to what is no list"))
    }

    fn set_items(&mut self, items: Vec<Value>) -> Result<()> {
        let items = pairs(items)?;
        match self.stack.last() {
            Some(Value::Dict(i)) => self.dicts.get_mut(*i).map(|d| d.extend(items)),
            _ => None,
        }
        .ok_or_else(|| err("an item for what is no dictionary"))
    }

    fn put(&mut self, at: u32) -> Result<()> {
        let top = self.stack.last().cloned().ok_or_else(|| err("nothing to remember"))?;
        self.left = self.left.checked_sub(1).ok_or_else(|| err("the pickle remembers too much"))?;
        self.memo.insert(at, top);
        Ok(())
    }

    fn get(&mut self, at: u32) -> Result<()> {
        let v = self.memo.get(&at).cloned().ok_or_else(|| err("the pickle recalls what it did not remember"))?;
        self.push(v)
    }

    /// Executes one instruction; true at the end of the pickle.
    fn step(&mut self, c: &mut Cursor<'_>) -> Result<bool> {
        let op = c.u8()?;
        match op {
            b'.' => return Ok(true),
            0x80 => {
                let version = c.u8()?;
                if version > 5 {
                    return Err(c.error(format!("pickle protocol {version}")));
                }
            }
            0x95 => drop(c.take(8)?), // a frame's length
            b'(' => self.push(Value::Mark)?,
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_mark()?),
            b'2' => {
                let top = self.stack.last().cloned().ok_or_else(|| err("nothing to repeat"))?;
                self.push(top)?;
            }
            b'N' => self.push(Value::None)?,
            0x88 | 0x89 => self.push(Value::Bool)?,
            b'I' => {
                let v = match line(c)? {
                    "00" | "01" => Value::Bool,
                    t => Value::Int(t.parse().map_err(|_| c.error("a bad number"))?),
                };
                self.push(v)?;
            }
            b'L' => {
                let t = line(c)?.trim_end_matches('L');
                self.push(Value::Int(t.parse().map_err(|_| c.error("a bad number"))?))?;
            }
            b'J' => {
                let v = c.u32()? as i32;
                self.push(Value::Int(v.into()))?;
            }
            b'K' => {
                let v = c.u8()?;
                self.push(Value::Int(v.into()))?;
            }
            b'M' => {
                let v = c.u16()?;
                self.push(Value::Int(v.into()))?;
            }
            0x8a => {
                let n = c.u8()?;
                let raw = c.take(n.into())?;
                self.push(long(raw))?;
            }
            b'F' => {
                line(c)?.parse::<f64>().map_err(|_| c.error("a bad number"))?;
                self.push(Value::Float)?;
            }
            b'G' => {
                c.take(8)?;
                self.push(Value::Float)?;
            }
            b'T' | b'X' => {
                let n = c.u32()?;
                self.text(c, n.into())?;
            }
            b'U' | 0x8c => {
                let n = c.u8()?;
                self.text(c, n.into())?;
            }
            0x8d => {
                let n = c.u64()?;
                self.text(c, n)?;
            }
            b'V' => {
                let t = line(c)?;
                self.push(Value::Str(t.into()))?;
            }
            b'B' | b'C' | 0x8e | 0x96 => {
                let n = match op {
                    b'B' => c.u32()?.into(),
                    b'C' => c.u8()?.into(),
                    _ => c.u64()?,
                };
                c.take(usize::try_from(n).map_err(|_| c.error("bytes without end"))?)?;
                self.push(Value::Bytes)?;
            }
            b']' => self.list(Vec::new())?,
            b'l' => {
                let items = self.pop_mark()?;
                self.list(items)?;
            }
            b'a' => {
                let v = self.pop()?;
                self.append(vec![v])?;
            }
            b'e' => {
                let items = self.pop_mark()?;
                self.append(items)?;
            }
            b')' => self.tuple(Vec::new())?,
            b't' => {
                let items = self.pop_mark()?;
                self.tuple(items)?;
            }
            0x85..=0x87 => {
                let items = self.pop_n(usize::from(op - 0x84))?;
                self.tuple(items)?;
            }
            b'}' => self.dict(Vec::new())?,
            b'd' => {
                let items = self.pop_mark()?;
                self.dict(pairs(items)?)?;
            }
            b's' => {
                let items = self.pop_n(2)?;
                self.set_items(items)?;
            }
            b'u' => {
                let items = self.pop_mark()?;
                self.set_items(items)?;
            }
            b'c' => {
                let (module, name) = (line(c)?, line(c)?);
                self.push(Value::Global(global(module, name)?))?;
            }
            0x93 => match &*self.pop_n(2)? {
                [Value::Str(module), Value::Str(name)] => self.push(Value::Global(global(module, name)?))?,
                _ => return Err(c.error("a global without a name")),
            },
            b'R' => {
                let (args, f) = (self.pop()?, self.pop()?);
                let v = self.call(f, args)?;
                self.push(v)?;
            }
            b'b' => self.build()?,
            b'Q' => {
                let id = self.pop()?;
                let v = self.storage(id)?;
                self.push(v)?;
            }
            b'q' => {
                let at = c.u8()?;
                self.put(at.into())?;
            }
            b'r' => {
                let at = c.u32()?;
                self.put(at)?;
            }
            b'p' => {
                let at = line(c)?.parse().map_err(|_| c.error("a bad number"))?;
                self.put(at)?;
            }
            0x94 => self.put(self.memo.len() as u32)?,
            b'h' => {
                let at = c.u8()?;
                self.get(at.into())?;
            }
            b'j' => {
                let at = c.u32()?;
                self.get(at)?;
            }
            b'g' => {
                let at = line(c)?.parse().map_err(|_| c.error("a bad number"))?;
                self.get(at)?;
            }
            op => {
                let what = format!("pickle instruction {:?}", char::from(op));
                return Err(Error::Unsupported { what, context: "torch files hold tensors here, not objects".into() });
            }
        }
        Ok(false)
    }

    fn text(&mut self, c: &mut Cursor<'_>, n: u64) -> Result<()> {
        let raw = c.take(usize::try_from(n).map_err(|_| c.error("a text without end"))?)?;
        let t = std::str::from_utf8(raw).map_err(|_| c.error("a text is not UTF-8"))?;
        self.push(Value::Str(t.into()))
    }

    /// The result of calling one of the known globals.
    fn call(&mut self, f: Value, args: Value) -> Result<Value> {
        let (Value::Global(f), Some(args)) = (f, self.items(&args)) else {
            return Err(err("a call of what is no function"));
        };
        match (f, &*args) {
            (Global::OrderedDict, []) => {
                self.dicts.push(Vec::new());
                Ok(Value::Dict(self.dicts.len() - 1))
            }
            (Global::OrderedDict, [Value::List(i)]) => {
                let mut items = Vec::new();
                for item in self.lists.get(*i).into_iter().flatten() {
                    match item {
                        Value::Tuple(i) => {
                            items.extend(self.tuples.get(*i).into_iter().flat_map(|t| t.iter()).take(2).cloned())
                        }
                        Value::List(i) => items.extend(self.lists.get(*i).into_iter().flatten().take(2).cloned()),
                        _ => return Err(err("a dictionary of what are no pairs")),
                    }
                }
                self.left = self.left.checked_sub(items.len()).ok_or_else(|| err("the pickle has too many values"))?;
                self.dicts.push(pairs(items)?);
                Ok(Value::Dict(self.dicts.len() - 1))
            }
            (Global::RebuildParameter, [data @ Value::Tensor(_), ..]) => Ok(data.clone()),
            (Global::Size, [t @ Value::Tuple(_)]) => Ok(t.clone()),
            (Global::Device, _) => Ok(Value::None),
            (Global::RebuildTensor, [s, o, size, stride]) => self.tensor(s, o, size, stride, None),
            (Global::RebuildTensorV2, [s, o, size, stride, _, _, ..]) => self.tensor(s, o, size, stride, None),
            (Global::RebuildTensorV3, [s, o, size, stride, _, _, Value::Global(Global::Typed(dt)), ..]) => {
                self.tensor(s, o, size, stride, Some(*dt))
            }
            _ => Err(err(format!("{f:?} is called with {} values that do not suit it", args.len()))),
        }
    }

    fn tensor(&self, s: &Value, o: &Value, size: &Value, stride: &Value, dt: Option<DType>) -> Result<Value> {
        let bad = || err("a tensor is made of what is no storage, offset, size and stride");
        let (Value::Storage(storage), Value::Int(offset)) = (s, o) else { return Err(bad()) };
        let (shape, strides) = (self.numbers(size).ok_or_else(bad)?, self.numbers(stride).ok_or_else(bad)?);
        if shape.len() != strides.len() || shape.len() > MAX_RANK {
            return Err(err(format!("a tensor of {} sizes and {} strides", shape.len(), strides.len())));
        }
        let held = self.storages.get(*storage).and_then(|s| s.dtype);
        let shape = shape.into_iter().map(usize::try_from).collect::<Result<_, _>>().map_err(|_| bad())?;
        Ok(Value::Tensor(Rc::new(View {
            storage: *storage,
            dtype: dt.or(held).ok_or_else(|| err("a tensor of untyped bytes"))?,
            offset: u64::try_from(*offset).map_err(|_| bad())?,
            shape,
            strides,
        })))
    }

    fn numbers(&self, v: &Value) -> Option<Vec<u64>> {
        let one = |v: &Value| if let Value::Int(i) = v { u64::try_from(*i).ok() } else { None };
        self.items(v)?.iter().map(one).collect()
    }

    /// Discards the state of a dictionary or tensor (Python attributes), which does not affect weights; any other
    /// object with a state is an error.
    fn build(&mut self) -> Result<()> {
        self.pop()?;
        match self.stack.last() {
            Some(Value::Dict(_) | Value::Tensor(_)) => Ok(()),
            _ => Err(Error::Unsupported { what: "an object with a state".into(), context: "torch".into() }),
        }
    }

    /// Resolves a persistent id `('storage', type, key, device, elements, view)`.
    fn storage(&mut self, id: Value) -> Result<Value> {
        let bad = || err("a persistent id that is no storage");
        let id = self.items(&id).ok_or_else(bad)?;
        let (Some(Value::Str(kind)), Some(Value::Global(dtype)), Some(Value::Str(key)), Some(Value::Int(elems))) =
            (id.first(), id.get(1), id.get(2), id.get(4))
        else {
            return Err(bad());
        };
        let dtype = match dtype {
            Global::Typed(dt) => Some(*dt),
            Global::Untyped => None,
            _ => return Err(bad()),
        };
        if &**kind != "storage" || !matches!(id.get(5), None | Some(Value::None)) {
            return Err(bad());
        }
        let new = Storage { key: key.to_string(), dtype, elems: u64::try_from(*elems).map_err(|_| bad())? };
        // Searched from the newest, since tensors that share a storage are usually close together.
        let known = self.storages.iter().rposition(|s| s.key == new.key);
        match known {
            Some(i) if self.storages.get(i) == Some(&new) => Ok(Value::Storage(i)),
            Some(_) => Err(err(format!("storage `{}` is described twice", new.key))),
            None => {
                self.storages.push(new);
                Ok(Value::Storage(self.storages.len() - 1))
            }
        }
    }
}

fn pairs(items: Vec<Value>) -> Result<Vec<(Value, Value)>> {
    if items.len() % 2 != 0 {
        return Err(err("a key without a value"));
    }
    let mut items = items.into_iter();
    Ok(std::iter::from_fn(|| items.next().zip(items.next())).collect())
}

fn long(raw: &[u8]) -> Value {
    let Some(&last) = raw.last() else { return Value::Int(0) };
    if raw.len() > 8 {
        return Value::Long(raw.into());
    }
    let mut wide = [if last >= 0x80 { 0xff } else { 0 }; 8];
    wide.iter_mut().zip(raw).for_each(|(w, b)| *w = *b);
    Value::Int(i64::from_le_bytes(wide))
}

fn line<'a>(c: &mut Cursor<'a>) -> Result<&'a str> {
    let mut rest = *c;
    let mut n = 0;
    while rest.u8()? != b'\n' {
        n += 1;
    }
    let text = c.take(n)?;
    c.take(1)?;
    std::str::from_utf8(text).map_err(|_| c.error("a line is not UTF-8"))
}

fn global(module: &str, name: &str) -> Result<Global> {
    let typed = |name: &str| {
        Some(match name {
            "FloatStorage" | "float32" => DType::F32,
            "DoubleStorage" | "float64" => DType::F64,
            "HalfStorage" | "float16" => DType::F16,
            "BFloat16Storage" | "bfloat16" => DType::BF16,
            "LongStorage" | "int64" => DType::I64,
            "IntStorage" | "int32" => DType::I32,
            "ShortStorage" | "int16" => DType::I16,
            "CharStorage" | "int8" => DType::I8,
            "ByteStorage" | "uint8" => DType::U8,
            "BoolStorage" | "bool" => DType::Bool,
            "uint16" => DType::U16,
            "uint32" => DType::U32,
            "uint64" => DType::U64,
            _ => return None,
        })
    };
    Ok(match (module, name) {
        ("collections", "OrderedDict") => Global::OrderedDict,
        ("torch._utils", "_rebuild_tensor") => Global::RebuildTensor,
        ("torch._utils", "_rebuild_tensor_v2") => Global::RebuildTensorV2,
        ("torch._utils", "_rebuild_tensor_v3") => Global::RebuildTensorV3,
        ("torch._utils", "_rebuild_parameter") => Global::RebuildParameter,
        ("torch", "Size") => Global::Size,
        ("torch", "device") => Global::Device,
        ("torch.storage", "UntypedStorage") | ("torch", "UntypedStorage") => Global::Untyped,
        ("torch", _) if typed(name).is_some() => typed(name).map_or(Global::Untyped, Global::Typed),
        _ => {
            let what = format!("the Python object `{module}.{name}`");
            return Err(Error::Unsupported {
                what,
                context: "torch file: only tensors and plain containers are read".into(),
            });
        }
    })
}
