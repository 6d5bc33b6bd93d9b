//! The bodies of answers and errors, in OpenAI's format.

use crate::Error;
use crate::io::json::{self, Json};
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::time::{SystemTime, UNIX_EPOCH};

/// The kind of endpoint.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    Chat,
    Text,
}

/// An error answer: a refused request, or a text that failed.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// The class of the error, by which clients distinguish errors.
    pub(super) kind: &'static str,
    /// The field of the request that is wrong.
    pub(super) param: Option<String>,
    pub(super) code: Option<String>,
    pub(super) message: String,
}

impl Refusal {
    /// An error about a field of the request.
    pub(super) fn field(param: &str, message: impl Into<String>) -> Refusal {
        Refusal { param: Some(param.to_owned()), ..Refusal::new(400, "invalid_request_error", message) }
    }

    pub(super) fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { status, kind, param: None, code: None, message: message.into() }
    }

    pub(super) fn code(self, code: &str) -> Refusal {
        Refusal { code: Some(code.to_owned()), ..self }
    }

    pub(super) fn json(&self) -> Json {
        let text = |t: &Option<String>| t.clone().map_or(Json::Null, Json::Str);
        let error = object(vec![
            ("message", Json::Str(self.message.clone())),
            ("type", Json::Str(self.kind.into())),
            ("param", text(&self.param)),
            ("code", text(&self.code)),
        ]);
        object(vec![("error", error)])
    }
}

/// An error of the model is the client's fault, unless it is a bug or a lost device.
impl From<Error> for Refusal {
    fn from(e: Error) -> Refusal {
        let (status, kind) = match e {
            Error::Value { .. } | Error::Unsupported { .. } | Error::Format { .. } | Error::Model { .. } => {
                (400, "invalid_request_error")
            }
            _ => (500, "server_error"),
        };
        Refusal::new(status, kind, e.to_string()).code(e.code())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut r = body(status, &self.json());
        if matches!(self.status, 429 | 503) {
            r.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        r
    }
}

pub(super) fn body(status: StatusCode, json: &Json) -> Response {
    let mut r = Response::new(Body::from(write(json)));
    *r.status_mut() = status;
    r.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    r
}

pub(super) fn object(fields: Vec<(&str, Json)>) -> Json {
    Json::Object(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
}

pub(super) fn count(n: usize) -> Json {
    Json::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

pub(super) fn text(t: &str) -> Json {
    Json::Str(t.to_owned())
}

/// JSON on a single line.
pub(super) fn write(json: &Json) -> String {
    let mut out = String::new();
    json::write(&mut out, json);
    out
}

/// Seconds since 1970.
pub(super) fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Little-endian f32 values in base64 (RFC 4648, section 4), a format that clients can request.
pub(super) fn base64(values: &[f32]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for c in bytes.chunks(3) {
        let word = c.iter().enumerate().fold(0u32, |w, (i, b)| w | u32::from(*b) << (16 - 8 * i));
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= c.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json() {
        let json = Json::parse(br#"{"a":[1,-2.5,null,true],"b":"x\"\n","c":{}}"#).expect("JSON");
        assert_eq!(write(&json), r#"{"a":[1,-2.5,null,true],"b":"x\"\n","c":{}}"#);
        assert_eq!(write(&Json::Float(f64::NAN)), "null");
        let e = Refusal::field("n", "n is 2").code("x");
        assert_eq!(
            write(&e.json()),
            r#"{"error":{"message":"n is 2","type":"invalid_request_error","param":"n","code":"x"}}"#
        );
    }

    #[test]
    fn vectors_in_base64() {
        assert_eq!(base64(&[1.0]), "AACAPw==");
        assert_eq!(base64(&[1.0, -2.0]), "AACAPwAAAMA=");
        assert_eq!(base64(&[1.0, -2.0, 0.5]), "AACAPwAAAMAAAAA/");
    }
}
