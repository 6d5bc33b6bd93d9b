//! The protobuf wire format: a pull reader that returns fields one by one, borrowed and without allocation; and a
//! writer.
//!
//! Schemas are elsewhere (see `onnx/proto.rs`). Callers ignore unknown fields; groups (deprecated but legal) are
//! skipped as a whole. Spec: <https://protobuf.dev/programming-guides/encoding/>.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::error::{Error, Result};

/// The deepest nesting of messages and groups that is accepted, the same as in protobuf's own libraries.
pub const MAX_DEPTH: u32 = 100;

/// A range of the file that was parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Number of bytes.
    pub len: usize,
}

impl Span {
    /// The bytes of this range in `file`, the slice that was parsed.
    pub fn of(self, file: &[u8]) -> Result<&[u8]> {
        let end = self.start.checked_add(self.len);
        let bytes = end.and_then(|end| file.get(self.start..end));
        bytes.ok_or_else(|| Error::format("protobuf", "a range lies outside the file", Some(self.start as u64)))
    }
}

/// A message, as a forward iterator over its fields. A copy iterates independently.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    file: &'a [u8],
    pos: usize,
    end: usize,
    depth: u32,
}

/// One field of a message.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// The field's number.
    pub number: u32,
    /// Offset of its tag in the file.
    pub at: usize,
    value: Value<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(Message<'a>),
    Group,
}

fn err(what: impl Into<String>, at: usize) -> Error {
    Error::format("protobuf", what, Some(at as u64))
}

impl<'a> Message<'a> {
    /// The outermost message: the whole file.
    pub fn new(file: &'a [u8]) -> Message<'a> {
        Message { file, pos: 0, end: file.len(), depth: 0 }
    }

    /// The range that is still unread.
    pub fn span(&self) -> Span {
        Span { start: self.pos, len: self.end - self.pos }
    }

    /// The bytes of a range that a field of this file reported.
    pub fn slice(&self, span: Span) -> Result<&'a [u8]> {
        span.of(self.file)
    }

    fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        let n = usize::try_from(n).ok().filter(|&n| n <= self.end - self.pos);
        let Some(n) = n else { return Err(err("a field is longer than its message", self.pos)) };
        let part = Span { start: self.pos, len: n }.of(self.file)?;
        self.pos += n;
        Ok(part)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut a = [0; N];
        a.copy_from_slice(self.take(N as u64)?);
        Ok(a)
    }

    fn varint(&mut self) -> Result<u64> {
        let start = self.pos;
        let mut v = 0u64;
        for shift in (0..70).step_by(7) {
            let [b] = self.array()?;
            // The tenth byte holds only bit 63.
            if shift == 63 && b > 1 {
                break;
            }
            v |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                return Ok(v);
            }
        }
        Err(err("a varint is longer than 64 bits", start))
    }

    fn tag(&mut self) -> Result<(u32, u8)> {
        let at = self.pos;
        let tag = self.varint()?;
        match u32::try_from(tag >> 3) {
            Ok(number) if (1..1 << 29).contains(&number) => Ok((number, (tag & 7) as u8)),
            _ => Err(err("a field number is out of range", at)),
        }
    }

    /// The next field, `None` at the end of the message.
    pub fn next_field(&mut self) -> Result<Option<Field<'a>>> {
        if self.pos >= self.end {
            return Ok(None);
        }
        let at = self.pos;
        let (number, wire) = self.tag()?;
        let value = match wire {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(self.array()?),
            2 => {
                let len = self.varint()?;
                let start = self.pos;
                self.take(len)?;
                Value::Bytes(Message { file: self.file, pos: start, end: self.pos, depth: self.depth })
            }
            3 => {
                self.skip_group(number)?;
                Value::Group
            }
            5 => Value::Fixed32(self.array()?),
            _ => return Err(err(format!("wire type {wire} does not exist here"), at)),
        };
        Ok(Some(Field { number, at, value }))
    }

    /// Skips a group up to and including its end tag, with a stack instead of recursion.
    fn skip_group(&mut self, number: u32) -> Result<()> {
        let mut open = vec![number];
        while let Some(&inner) = open.last() {
            let at = self.pos;
            let (number, wire) = self.tag()?;
            match wire {
                0 => drop(self.varint()?),
                1 => drop(self.take(8)?),
                2 => {
                    let len = self.varint()?;
                    self.take(len)?;
                }
                3 if open.len() as u32 + self.depth >= MAX_DEPTH => return Err(err("groups nest too deeply", at)),
                3 => open.push(number),
                4 if number == inner => drop(open.pop()),
                5 => drop(self.take(4)?),
                _ => return Err(err("a group is not closed properly", at)),
            }
        }
        Ok(())
    }
}

impl<'a> Field<'a> {
    fn wrong(&self, want: &str) -> Error {
        err(format!("field {} is not a {want}", self.number), self.at)
    }

    /// A varint (uint64, bool, enum).
    pub fn u64(&self) -> Result<u64> {
        match self.value {
            Value::Varint(v) => Ok(v),
            _ => Err(self.wrong("varint")),
        }
    }

    /// An int64.
    pub fn i64(&self) -> Result<i64> {
        self.u64().map(|v| v as i64)
    }

    /// An int32 or enum: the low 32 bits, as protobuf reads them.
    pub fn i32(&self) -> Result<i32> {
        self.u64().map(|v| v as i32)
    }

    /// A float.
    pub fn f32(&self) -> Result<f32> {
        match self.value {
            Value::Fixed32(b) => Ok(f32::from_le_bytes(b)),
            _ => Err(self.wrong("float")),
        }
    }

    /// The byte range of a length-delimited field.
    pub fn span(&self) -> Result<Span> {
        match self.value {
            Value::Bytes(m) => Ok(m.span()),
            _ => Err(self.wrong("length-delimited field")),
        }
    }

    /// A nested message.
    pub fn message(&self) -> Result<Message<'a>> {
        match self.value {
            Value::Bytes(m) if m.depth + 1 >= MAX_DEPTH => Err(err("messages nest too deeply", self.at)),
            Value::Bytes(m) => Ok(Message { depth: m.depth + 1, ..m }),
            _ => Err(self.wrong("message")),
        }
    }

    /// The bytes of a length-delimited field.
    pub fn bytes(&self) -> Result<&'a [u8]> {
        match self.value {
            Value::Bytes(m) => m.span().of(m.file),
            _ => Err(self.wrong("length-delimited field")),
        }
    }

    /// A string; it must be UTF-8.
    pub fn str(&self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| err(format!("field {} is not UTF-8", self.number), self.at))
    }

    /// Calls `f` with each value of a repeated varint field, packed or not.
    pub fn varints(&self, mut f: impl FnMut(u64) -> Result<()>) -> Result<()> {
        match self.value {
            Value::Varint(v) => f(v),
            Value::Bytes(mut m) => {
                while m.pos < m.end {
                    f(m.varint()?)?;
                }
                Ok(())
            }
            _ => Err(self.wrong("repeated varint")),
        }
    }

    /// The little-endian bytes of a packed repeated float field.
    pub fn fixed32s(&self) -> Result<&'a [u8]> {
        self.fixed(4)
    }

    /// As [`Field::fixed32s`], for a packed repeated double field.
    pub fn fixed64s(&self) -> Result<&'a [u8]> {
        self.fixed(8)
    }

    fn fixed(&self, size: usize) -> Result<&'a [u8]> {
        match self.value {
            Value::Bytes(m) if m.span().len % size == 0 => m.span().of(m.file),
            Value::Bytes(_) => {
                Err(err(format!("field {} does not hold whole {size}-byte values", self.number), self.at))
            }
            _ => Err(self.wrong("packed field")),
        }
    }

    /// The value of an unpacked 4-byte field; `None` for a field of another wire type.
    pub fn single32(&self) -> Option<[u8; 4]> {
        match self.value {
            Value::Fixed32(b) => Some(b),
            _ => None,
        }
    }

    /// The value of an unpacked 8-byte field; `None` for a field of another wire type.
    pub fn single64(&self) -> Option<[u8; 8]> {
        match self.value {
            Value::Fixed64(b) => Some(b),
            _ => None,
        }
    }
}

/// A message under construction.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// A bare number, without a field's tag.
    pub fn varint(&mut self, mut v: u64) {
        while v > 0x7f {
            self.0.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.0.push(v as u8);
    }

    /// An integer.
    pub fn int(&mut self, field: u64, v: i64) {
        self.varint(field << 3);
        self.varint(v as u64);
    }

    /// The tag and length of a length-delimited field, whose `len` bytes the caller appends next.
    pub fn begin(&mut self, field: u64, len: usize) {
        self.varint(field << 3 | 2);
        self.varint(len as u64);
    }

    /// Bytes, or a message.
    pub fn bytes(&mut self, field: u64, v: &[u8]) {
        self.begin(field, v.len());
        self.0.extend_from_slice(v);
    }

    /// Text.
    pub fn text(&mut self, field: u64, v: &str) {
        self.bytes(field, v.as_bytes());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::io::testing::mutate;

    /// Field 1 varint 300, field 2 "hi", field 3 f32 1.5, field 4 packed [1, 300], field 5 group {1: 7}, field 6 f64 2.0.
    const SAMPLE: &[u8] = &[
        0x08, 0xac, 0x02, 0x12, 0x02, b'h', b'i', 0x1d, 0, 0, 0xc0, 0x3f, 0x22, 0x03, 0x01, 0xac, 0x02, 0x2b, 0x08,
        0x07, 0x2c, 0x31, 0, 0, 0, 0, 0, 0, 0, 0x40,
    ];

    fn walk(file: &[u8]) -> Result<u64> {
        let mut sum = 0;
        let mut m = Message::new(file);
        while let Some(f) = m.next_field()? {
            sum += u64::from(f.number);
            if f.number == 4 {
                f.varints(|v| {
                    sum = sum.wrapping_add(v);
                    Ok(())
                })?;
            }
            let _ = (f.str(), f.f32(), f.fixed32s(), f.message().and_then(|mut m| m.next_field()));
        }
        Ok(sum)
    }

    #[test]
    fn fields_are_read() {
        let mut m = Message::new(SAMPLE);
        let mut next = || m.next_field().unwrap().unwrap();
        assert_eq!(next().u64().unwrap(), 300);
        let s = next();
        assert_eq!(s.str().unwrap(), "hi");
        assert_eq!(s.span().unwrap(), Span { start: 5, len: 2 });
        assert!(s.f32().is_err());
        assert_eq!(next().f32().unwrap(), 1.5);
        let mut seen = vec![];
        next()
            .varints(|v| {
                seen.push(v);
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, [1, 300]);
        assert_eq!(next().number, 5);
        assert_eq!(next().single64(), Some(2f64.to_le_bytes()));
        assert!(m.next_field().unwrap().is_none());
    }

    #[test]
    fn truncation_inside_a_field_is_an_error() {
        let ends = [0, 3, 7, 12, 17, 21, SAMPLE.len()];
        for n in 0..=SAMPLE.len() {
            assert_eq!(walk(&SAMPLE[..n]).is_ok(), ends.contains(&n), "at {n}");
        }
    }

    #[test]
    fn hostile_encodings_are_errors() {
        let bad: [&[u8]; 7] = [
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], // 65 bits
            &[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], // length 2^64-1
            &[0x00],                                                             // field number 0
            &[0x0c],                                                             // end of a group that is not open
            &[0x0f],                                                             // wire type 7
            &[0x0b; 200],                                                        // groups without end
        ];
        for b in bad {
            assert!(walk(b).is_err(), "{b:x?}");
        }
        let mut nested = vec![0x0b; 99];
        nested.extend([0x0c; 99]);
        assert!(walk(&nested).is_ok());
    }

    #[test]
    fn message_depth_is_limited() {
        let mut file = vec![];
        for _ in 0..120 {
            let mut outer = vec![0x0a];
            let mut n = file.len();
            while n >= 0x80 {
                outer.push((n & 0x7f) as u8 | 0x80);
                n >>= 7;
            }
            outer.push(n as u8);
            outer.extend(&file);
            file = outer;
        }
        fn dive(mut m: Message<'_>) -> Result<u32> {
            match m.next_field()? {
                Some(f) => Ok(1 + dive(f.message()?)?),
                None => Ok(0),
            }
        }
        assert!(dive(Message::new(&file)).is_err());
    }

    #[test]
    fn mutations_never_panic() {
        mutate(SAMPLE, 20_000, |m| drop(walk(m)));
    }
}
