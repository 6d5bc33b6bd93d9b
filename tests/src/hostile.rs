//! ONNX files that are not what their operators expect: good models whose nodes, attributes and inputs are changed one at a
//! time. Whoever reads this module decides what must hold of them; here they are only made.

use gradloom_core::DType;
use gradloom_core::dtype::Scalar;
use gradloom_core::io::HostTensor;

/// A protobuf message, field by field.
#[derive(Clone, Default)]
pub struct Message(Vec<(u32, Field)>);

#[derive(Clone)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
    Fixed(Vec<u8>),
}

fn varint(mut v: u64, out: &mut Vec<u8>) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

fn read_varint(bytes: &[u8], at: &mut usize) -> u64 {
    let mut v = 0;
    for shift in (0..64).step_by(7) {
        let b = bytes[*at];
        *at += 1;
        v |= u64::from(b & 0x7f) << shift;
        if b < 0x80 {
            break;
        }
    }
    v
}

impl Message {
    /// Reads a file that is known to be good.
    pub fn read(bytes: &[u8]) -> Message {
        let mut out = Message::default();
        let mut at = 0;
        while at < bytes.len() {
            let tag = read_varint(bytes, &mut at);
            let mut take = |n: usize| {
                at += n;
                bytes[at - n..at].to_vec()
            };
            let field = match tag & 7 {
                1 => Field::Fixed(take(8)),
                5 => Field::Fixed(take(4)),
                2 => {
                    let n = read_varint(bytes, &mut at) as usize;
                    at += n;
                    Field::Bytes(bytes[at - n..at].to_vec())
                }
                _ => Field::Number(read_varint(bytes, &mut at)),
            };
            out.0.push(((tag >> 3) as u32, field));
        }
        out
    }

    /// As a file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, field) in &self.0 {
            let wire = match field {
                Field::Number(_) => 0,
                Field::Bytes(_) => 2,
                Field::Fixed(b) => {
                    if b.len() == 8 {
                        1
                    } else {
                        5
                    }
                }
            };
            varint(u64::from(*number) << 3 | wire, &mut out);
            match field {
                Field::Number(v) => varint(*v, &mut out),
                Field::Fixed(b) => out.extend(b),
                Field::Bytes(b) => {
                    varint(b.len() as u64, &mut out);
                    out.extend(b);
                }
            }
        }
        out
    }

    /// With a number appended.
    pub fn number(mut self, field: u32, v: i64) -> Message {
        self.0.push((field, Field::Number(v as u64)));
        self
    }

    /// With bytes, a text or a message appended.
    pub fn part(mut self, field: u32, bytes: impl AsRef<[u8]>) -> Message {
        self.0.push((field, Field::Bytes(bytes.as_ref().to_vec())));
        self
    }

    /// The places of a field.
    fn places(&self, field: u32) -> Vec<usize> {
        (0..self.0.len()).filter(|&i| self.0[i].0 == field).collect()
    }

    fn inner(&self, place: usize) -> Message {
        if let Field::Bytes(b) = &self.0[place].1 { Message::read(b) } else { Message::default() }
    }

    /// With another message at a place.
    fn with(&self, place: usize, inner: &Message) -> Message {
        let mut out = self.clone();
        out.0[place].1 = Field::Bytes(inner.bytes());
        out
    }

    fn without(&self, place: usize) -> Message {
        let mut out = self.clone();
        out.0.remove(place);
        out
    }
}

/// The model's graph, its place in the file.
const GRAPH: u32 = 7;

/// A file whose inputs may be of any dtype and rank: what it says of their types is gone.
pub fn untyped(file: &[u8]) -> Message {
    let model = Message::read(file);
    let Some(&at) = model.places(GRAPH).first() else { return model };
    let mut graph = model.inner(at);
    for input in graph.places(11) {
        let info = graph.inner(input);
        let open = info.places(2).iter().rev().fold(info.clone(), |info, &ty| {
            let is_tensor = !info.inner(ty).places(1).is_empty();
            if is_tensor { info.without(ty) } else { info }
        });
        graph = graph.with(input, &open);
    }
    model.with(at, &graph)
}

/// Numbers that no operator expects.
pub const NUMBERS: [i64; 9] = [0, -1, 1, 3, 1 << 26, i32::MAX as i64, 1 << 40, i64::MAX, i64::MIN];

/// Files that differ from this one in an attribute or an input of one node.
pub fn changed_nodes(model: &Message) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let Some(&at) = model.places(GRAPH).first() else { return out };
    let graph = model.inner(at);
    for place in graph.places(1) {
        let node = graph.inner(place);
        let mut add = |node: &Message| out.push(model.with(at, &graph.with(place, node)).bytes());
        for input in node.places(1) {
            let mut less = node.clone();
            less.0[input].1 = Field::Bytes(Vec::new());
            add(&less);
            // one input more, and one twice
            if let Field::Bytes(name) = &node.0[input].1 {
                let mut more = node.clone();
                more.0.insert(input, (1, Field::Bytes(name.clone())));
                add(&more);
            }
        }
        if let Some(&last) = node.places(1).last() {
            add(&node.without(last));
        }
        for a in node.places(5) {
            add(&node.without(a));
            let attr = node.inner(a);
            for changed in changed_attributes(&attr) {
                add(&node.with(a, &changed));
            }
        }
    }
    out
}

fn changed_attributes(attr: &Message) -> Vec<Message> {
    let mut out = Vec::new();
    for i in 0..attr.0.len() {
        let (field, value) = &attr.0[i];
        let mut set = |v: Field| {
            let mut changed = attr.clone();
            changed.0[i].1 = v;
            out.push(changed);
        };
        match (field, value) {
            (3 | 8, Field::Number(_)) => NUMBERS.iter().for_each(|&n| set(Field::Number(n as u64))),
            // packed
            (8, Field::Bytes(b)) => {
                let mut at = 0;
                let mut list = Vec::new();
                while at < b.len() {
                    list.push(read_varint(b, &mut at));
                }
                for k in 0..list.len() {
                    for n in NUMBERS {
                        let mut bytes = Vec::new();
                        list.iter()
                            .enumerate()
                            .for_each(|(j, &v)| varint(if j == k { n as u64 } else { v }, &mut bytes));
                        set(Field::Bytes(bytes));
                    }
                }
            }
            (2, Field::Fixed(_)) => {
                for v in [0.0, -1.0, 1e-30, 1e30, f32::NAN, f32::INFINITY] {
                    set(Field::Fixed(f32::to_le_bytes(v).to_vec()));
                }
            }
            (4, Field::Bytes(_)) => {
                set(Field::Bytes(Vec::new()));
                set(Field::Bytes(b"x".to_vec()));
            }
            _ => continue,
        }
        if *field == 8 {
            out.push(attr.without(i));
            let mut more = attr.clone();
            more.0.insert(i, attr.0[i].clone());
            out.push(more);
        }
    }
    out
}

/// The elements of a tensor again and again, until they fill another shape.
fn reshaped(t: &HostTensor, shape: Vec<usize>) -> HostTensor {
    let n = shape.iter().product::<usize>() * t.dtype.size();
    let source = if t.data.is_empty() { vec![0; t.dtype.size()] } else { t.data.clone() };
    HostTensor { dtype: t.dtype, shape, data: source.into_iter().cycle().take(n).collect() }
}

/// Tensors in its place: other ranks, lengths and dtypes, nothing at all, and numbers that are no sizes.
pub fn changed_tensors(t: &HostTensor) -> Vec<HostTensor> {
    let mut shapes: Vec<Vec<usize>> = (0..7).flat_map(|rank| [vec![1; rank], vec![2; rank]]).collect();
    for axis in 0..=t.shape.len() {
        let mut longer = t.shape.clone();
        longer.insert(axis, 1);
        shapes.push(longer);
        for size in [0, 1, 7] {
            let mut other = t.shape.clone();
            if let Some(d) = other.get_mut(axis) {
                *d = size;
                shapes.push(other);
            }
        }
        let mut less = t.shape.clone();
        if axis < less.len() {
            less.remove(axis);
            shapes.push(less);
        }
    }
    shapes.retain(|s| s.iter().product::<usize>() <= 1 << 16);
    let mut out: Vec<HostTensor> = shapes.into_iter().map(|s| reshaped(t, s)).collect();
    for dtype in [DType::F32, DType::F16, DType::F64, DType::I64, DType::I32, DType::U8, DType::Bool] {
        if dtype != t.dtype {
            let list: Vec<Scalar> = t.scalars().map(|s| s.cast(t.dtype, dtype)).collect();
            out.extend(HostTensor::from_scalars(dtype, t.shape.clone(), &list));
        }
    }
    for n in NUMBERS {
        let list = vec![Scalar::from_i64(n, t.dtype); t.len()];
        out.extend(HostTensor::from_scalars(t.dtype, t.shape.clone(), &list));
    }
    out
}

/// A model of one node, of opset 21, whose known inputs are constants `c0`, `c1`, .. and whose other input is `x`.
pub fn one_node(
    op: &str,
    inputs: &[&str],
    outputs: usize,
    attributes: &[(&str, i64)],
    constants: &[HostTensor],
) -> Vec<u8> {
    let mut node = inputs.iter().fold(Message::default(), |m, name| m.part(1, name));
    node = (0..outputs).fold(node, |m, i| m.part(2, format!("y{i}")));
    node = node.part(3, format!("the_{op}")).part(4, op);
    for (name, v) in attributes {
        node = node.part(5, Message::default().part(1, name).number(3, *v).number(20, 2).bytes());
    }
    let mut graph = Message::default().part(1, node.bytes()).part(2, "g");
    for (i, t) in constants.iter().enumerate() {
        let elem = match t.dtype {
            DType::F32 => 1,
            DType::I32 => 6,
            _ => 7,
        };
        let m = t.shape.iter().fold(Message::default(), |m, &d| m.number(1, d as i64));
        graph = graph.part(5, m.number(2, elem).part(8, format!("c{i}")).part(9, &t.data).bytes());
    }
    if inputs.contains(&"x") {
        graph = graph.part(11, Message::default().part(1, "x").bytes());
    }
    graph = (0..outputs).fold(graph, |g, i| g.part(12, Message::default().part(1, format!("y{i}")).bytes()));
    let opset = Message::default().number(2, 21).bytes();
    Message::default().number(1, 8).part(8, opset).part(GRAPH, graph.bytes()).bytes()
}
