//! Protobuf messages as lists of fields that can be changed, and the few field numbers of an ONNX model that a change needs to
//! know. Never: what must hold of a changed model.

/// One field: its number and what it holds.
pub type Field = (u32, Wire);

/// What a field holds. Which of these bytes are a message, the reader must know.
#[derive(Clone, Debug, PartialEq)]
pub enum Wire {
    /// A varint.
    Number(u64),
    /// Eight bytes.
    Eight([u8; 8]),
    /// Bytes, a text, a message or packed numbers.
    Bytes(Vec<u8>),
    /// Four bytes.
    Four([u8; 4]),
}

/// A message: its fields in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message(
    /// The fields.
    pub Vec<Field>,
);

/// The graph of a model.
pub const MODEL_GRAPH: u32 = 7;
/// A node of a graph.
pub const GRAPH_NODE: u32 = 1;
/// A constant of a graph.
pub const GRAPH_INITIALIZER: u32 = 5;
/// An input of a graph.
pub const GRAPH_INPUT: u32 = 11;
/// An output of a graph.
pub const GRAPH_OUTPUT: u32 = 12;
/// The name of a node's input.
pub const NODE_INPUT: u32 = 1;
/// The name of a node's output.
pub const NODE_OUTPUT: u32 = 2;
/// A node's operator.
pub const NODE_OP: u32 = 4;
/// An attribute of a node.
pub const NODE_ATTRIBUTE: u32 = 5;
/// The domain of a node's operator.
pub const NODE_DOMAIN: u32 = 7;

/// A number in seven bits a byte, from `at` on.
pub fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut v = 0u64;
    for shift in (0..64).step_by(7) {
        let b = *bytes.get(*at)?;
        *at += 1;
        v |= u64::from(b & 127) << shift;
        if b < 128 {
            return Some(v);
        }
    }
    None
}

/// Appends a number in seven bits a byte.
pub fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v > 127 {
        out.push(v as u8 | 128);
        v >>= 7;
    }
    out.push(v as u8);
}

impl Message {
    /// The fields of these bytes, if they are a message.
    pub fn read(bytes: &[u8]) -> Option<Message> {
        let (mut at, mut fields) = (0, Vec::new());
        while at < bytes.len() {
            let key = varint(bytes, &mut at)?;
            let mut take = |n: usize| {
                let part = bytes.get(at..at.checked_add(n)?)?;
                at += n;
                Some(part)
            };
            let wire = match key & 7 {
                0 => Wire::Number(varint(bytes, &mut at)?),
                1 => Wire::Eight(take(8)?.try_into().ok()?),
                2 => {
                    let n = varint(bytes, &mut at)? as usize;
                    let part = bytes.get(at..at.checked_add(n)?)?;
                    at += n;
                    Wire::Bytes(part.to_vec())
                }
                5 => Wire::Four(take(4)?.try_into().ok()?),
                _ => return None,
            };
            fields.push((u32::try_from(key >> 3).ok()?, wire));
        }
        Some(Message(fields))
    }

    /// As bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, wire) in &self.0 {
            let key = u64::from(*number) << 3;
            match wire {
                Wire::Number(v) => {
                    put_varint(&mut out, key);
                    put_varint(&mut out, *v);
                }
                Wire::Eight(b) => {
                    put_varint(&mut out, key | 1);
                    out.extend_from_slice(b);
                }
                Wire::Bytes(b) => {
                    put_varint(&mut out, key | 2);
                    put_varint(&mut out, b.len() as u64);
                    out.extend_from_slice(b);
                }
                Wire::Four(b) => {
                    put_varint(&mut out, key | 5);
                    out.extend_from_slice(b);
                }
            }
        }
        out
    }

    /// A message with bytes appended under a number.
    pub fn with(mut self, number: u32, bytes: impl Into<Vec<u8>>) -> Message {
        self.0.push((number, Wire::Bytes(bytes.into())));
        self
    }

    /// A message with a number appended.
    pub fn with_number(mut self, number: u32, v: u64) -> Message {
        self.0.push((number, Wire::Number(v)));
        self
    }

    /// Places of the fields of a number.
    pub fn places(&self, number: u32) -> Vec<usize> {
        (0..self.0.len()).filter(|&i| self.0[i].0 == number).collect()
    }

    /// The message in a field.
    pub fn inner(&self, place: usize) -> Option<Message> {
        match &self.0.get(place)?.1 {
            Wire::Bytes(b) => Message::read(b),
            _ => None,
        }
    }

    /// Another message in a field.
    pub fn set_inner(&mut self, place: usize, m: &Message) {
        self.0[place].1 = Wire::Bytes(m.bytes());
    }

    /// A message without one of its fields.
    pub fn without(&self, place: usize) -> Message {
        let mut out = self.clone();
        out.0.remove(place);
        out
    }

    /// The same with another message in a field.
    pub fn exchanged(&self, place: usize, m: &Message) -> Message {
        let mut out = self.clone();
        out.set_inner(place, m);
        out
    }

    /// Text of the first field of a number.
    pub fn text(&self, number: u32) -> String {
        let first = self.0.iter().find(|f| f.0 == number);
        match first {
            Some((_, Wire::Bytes(b))) => String::from_utf8_lossy(b).into_owned(),
            _ => String::new(),
        }
    }
}

/// The graph of a model.
pub fn graph(model: &Message) -> Option<(usize, Message)> {
    let place = *model.places(MODEL_GRAPH).first()?;
    Some((place, model.inner(place)?))
}

/// A value's name, element type and sizes as a `ValueInfoProto`.
pub fn value(name: &str, elem: u64, dims: &[i64]) -> Message {
    let mut shape = Message::default();
    for &d in dims {
        shape = shape.with(1, Message::default().with_number(1, d as u64).bytes());
    }
    let tensor = Message::default().with_number(1, elem).with(2, shape.bytes());
    Message::default().with(1, name).with(2, Message::default().with(1, tensor.bytes()).bytes())
}

/// A constant of whole numbers, in one of the element types f32, u8, i32 and i64.
pub fn constant(name: &str, elem: u64, dims: &[i64], values: &[i64]) -> Message {
    let mut t = Message::default();
    for &d in dims {
        t = t.with_number(1, d as u64);
    }
    let bytes = |&v: &i64| match elem {
        1 => (v as f32).to_le_bytes().to_vec(),
        2 => vec![v as u8],
        6 => (v as i32).to_le_bytes().to_vec(),
        _ => v.to_le_bytes().to_vec(),
    };
    t.with_number(2, elem).with(8, name).with(9, values.iter().flat_map(bytes).collect::<Vec<u8>>())
}

/// A model of one node, of inputs with their element types and sizes.
pub fn model_of(domain: &str, op: &str, inputs: &[(u64, Vec<i64>)]) -> Message {
    model_with(domain, op, inputs, &[], &[])
}

/// A constant's element type, sizes and values.
pub type Constant<'a> = (u64, &'a [i64], &'a [i64]);

/// A model of one node, whose inputs come before its constants; its attributes are lists of integers.
pub fn model_with(
    domain: &str,
    op: &str,
    inputs: &[(u64, Vec<i64>)],
    constants: &[Constant<'_>],
    attributes: &[(&str, &[i64])],
) -> Message {
    let names: Vec<String> = (0..inputs.len() + constants.len()).map(|i| format!("x{i}")).collect();
    let mut node = Message::default();
    for n in &names {
        node = node.with(NODE_INPUT, n.as_str());
    }
    node = node.with(NODE_OUTPUT, "y").with(NODE_OP, op).with(NODE_DOMAIN, domain);
    for (name, ints) in attributes {
        let a = ints.iter().fold(Message::default().with(1, *name), |a, &v| a.with_number(8, v as u64));
        node = node.with(NODE_ATTRIBUTE, a.with_number(20, 7).bytes());
    }
    let mut g = Message::default().with(GRAPH_NODE, node.bytes()).with(2, "g");
    let (given, fixed) = names.split_at(inputs.len());
    for (n, (elem, dims, values)) in fixed.iter().zip(constants) {
        g = g.with(GRAPH_INITIALIZER, constant(n, *elem, dims, values).bytes());
    }
    for (n, (elem, dims)) in given.iter().zip(inputs) {
        g = g.with(GRAPH_INPUT, value(n, *elem, dims).bytes());
    }
    g = g.with(GRAPH_OUTPUT, Message::default().with(1, "y").bytes());
    let mut m = Message::default().with_number(1, 9).with(MODEL_GRAPH, g.bytes());
    for (domain, version) in [("", 22), ("com.microsoft", 1), ("ai.onnx.ml", 5)] {
        m = m.with(8, Message::default().with(1, domain).with_number(2, version).bytes());
    }
    m
}
