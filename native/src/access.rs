//! Who may ask a server on this machine, so that a page that a person visits can neither read its answers nor use it. A
//! request must name the server by an IP address, as localhost, or by an allowed name: a page whose own name was made to
//! resolve to this machine (DNS rebinding) is of the same origin for a browser, but sends that name in `Host`
//! (RFC 9110, section 7.2). Answers allow pages of no other origin (`fetch.spec.whatwg.org/#http-cors-protocol`) but the
//! allowed ones. Never here: what a server answers, and accounts.

use crate::{Error, Result};
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;

/// The names and the origins from which a server may be asked, beside IP addresses and localhost.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// In lower case, without a port and a final dot.
    hosts: Vec<String>,
    origins: Origins,
}

/// Whose pages may read answers, beside the server's own.
#[derive(Clone, Debug)]
enum Origins {
    Any,
    These(Vec<String>),
}

impl Default for Origins {
    fn default() -> Origins {
        Origins::These(Vec::new())
    }
}

impl Access {
    /// Allows the names `hosts` (`box.local`) of this server, and pages of the origins `origins` (`https://example.com`), all of them
    /// if one is `*`.
    ///
    /// # Errors
    /// `E_VALUE` for what is no name of a host, or no origin.
    pub fn new(hosts: &[String], origins: &[String]) -> Result<Access> {
        let hosts = hosts.iter().map(|h| host(h)).collect::<Result<_>>()?;
        let origins = match origins.iter().any(|o| o == "*") {
            true => Origins::Any,
            false => Origins::These(origins.iter().map(|o| origin(o)).collect::<Result<_>>()?),
        };
        Ok(Access { hosts, origins })
    }

    /// Whether a request is addressed to this server; the error is the name that it is addressed to.
    fn admits(&self, headers: &HeaderMap, version: Version) -> std::result::Result<(), String> {
        let Some(value) = headers.get(header::HOST) else {
            // Checks of load balancers have no such field, which only HTTP/1.1 requires; every browser sends it
            return if version == Version::HTTP_10 { Ok(()) } else { Err(String::new()) };
        };
        let written = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let Ok(authority) = Authority::try_from(value.as_bytes()) else { return Err(written) };
        let name = bare(authority.host());
        let is_local = name == "localhost" || name.ends_with(".localhost");
        let is_address = || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        match is_local || is_address() || self.hosts.contains(&name) {
            true => Ok(()),
            false => Err(name),
        }
    }

    /// The origin of the page that asks, if its origin is allowed.
    fn allowed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let from = headers.get(header::ORIGIN)?;
        let is_allowed = match &self.origins {
            Origins::Any => true,
            Origins::These(list) => list.iter().any(|o| o.as_bytes() == from.as_bytes()),
        };
        is_allowed.then(|| from.clone())
    }

    fn has_origins(&self) -> bool {
        !matches!(&self.origins, Origins::These(list) if list.is_empty())
    }
}

/// Passes on what may be asked; `refuse` makes the answer to other requests, whose status becomes 403, of the reason.
pub(crate) async fn check<R: IntoResponse>(
    access: Arc<Access>,
    refuse: fn(String) -> R,
    request: Request,
    next: Next,
) -> Response {
    if let Err(name) = access.admits(request.headers(), request.version()) {
        let what = match name.as_str() {
            "" => "the request names no host".to_owned(),
            name => format!(
                "this server is not known as {name:?}: use its IP address or localhost, or start it with --allow-host {name}"
            ),
        };
        return (StatusCode::FORBIDDEN, refuse(what)).into_response();
    }
    let origin = access.allowed_origin(request.headers());
    let wanted = request.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let is_preflight =
        request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut answer = match is_preflight && origin.is_some() {
        true => StatusCode::NO_CONTENT.into_response(),
        false => next.run(request).await,
    };
    let h = answer.headers_mut();
    if access.has_origins() {
        // Caches must not give the answer for one origin to another
        h.append(header::VARY, HeaderValue::from_static("origin"));
    }
    let Some(origin) = origin else { return answer };
    h.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    if is_preflight {
        h.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        h.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        // Clients send fields of their own
        wanted.and_then(|names| h.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names));
    }
    answer
}

fn bare(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    host.strip_suffix('.').map_or(host.clone(), str::to_owned)
}

fn host(text: &str) -> Result<String> {
    // No port, no user, no pattern
    match !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) {
        true => Ok(bare(text)),
        false => Err(Error::value("access", format!("{text:?} is no name of a host, such as box.local"))),
    }
}

/// An origin as browsers write it: a scheme, a host, perhaps a port.
fn origin(text: &str) -> Result<String> {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let is_made_of = |part: &str, others: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
    };
    match is_made_of(scheme, "+-.") && is_made_of(rest, "-._:[]") {
        true => Ok(format!("{scheme}://{rest}").to_ascii_lowercase()),
        false => Err(Error::value("access", format!("{text:?} is no origin, such as https://example.com"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(hosts: &[&str], origins: &[&str]) -> Result<Access> {
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        Access::new(&owned(hosts), &owned(origins))
    }

    fn headers(name: header::HeaderName, value: &[u8]) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_bytes(value).expect("a value"))])
    }

    #[test]
    fn hosts_are_addresses_loopback_names_and_allowed_ones() {
        let access = access(&["Box.local"], &[]).expect("names");
        for (host, is_admitted) in [
            ("127.0.0.1", true),
            ("127.0.0.1:8080", true),
            ("192.168.1.7:80", true),
            ("[::1]:8080", true),
            ("[::1]", true),
            ("localhost", true),
            ("LOCALHOST:8080", true),
            ("localhost.:8080", true),
            ("app.localhost:8080", true),
            ("box.local:8080", true),
            ("BOX.local.", true),
            ("evil.example", false),
            ("evil.example:8080", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
            ("notlocalhost", false),
            ("a.box.local", false),
            ("box.local.evil.example", false),
            ("localhost:80:evil.example", false),
            ("evil.example/@localhost", false),
            ("::1", false),
            ("\u{e9}.example", false),
            ("", false),
        ] {
            let admitted = access.admits(&headers(header::HOST, host.as_bytes()), Version::HTTP_11);
            assert_eq!(admitted.is_ok(), is_admitted, "{host}: {admitted:?}");
        }
        assert!(access.admits(&HeaderMap::new(), Version::HTTP_10).is_ok());
        assert!(access.admits(&HeaderMap::new(), Version::HTTP_11).is_err());
    }

    #[test]
    fn origins_are_the_allowed_ones() {
        let one = access(&[], &["https://Example.com/"]).expect("an origin");
        for (access, from, is_allowed) in [
            (&Access::default(), "http://localhost:3000", false),
            (&one, "https://example.com", true),
            (&one, "http://example.com", false),
            (&one, "https://example.com.evil.example", false),
            (&one, "https://example.com:444", false),
            (&one, "null", false),
            (&access(&[], &["http://a.example", "*"]).expect("all"), "null", true),
        ] {
            let got = access.allowed_origin(&headers(header::ORIGIN, from.as_bytes()));
            assert_eq!(got.is_some(), is_allowed, "{from}");
        }
    }

    #[test]
    fn what_is_no_name_and_no_origin_is_refused() {
        for wrong in ["", "box:80", "http://box", "a b", "me@box", "box/", "*"] {
            assert!(access(&[wrong], &[]).is_err(), "{wrong}");
        }
        for wrong in ["", "example.com", "https://", "https://a/b", "https://me@a", "null", "://a", "https://a b"] {
            assert!(access(&[], &[wrong]).is_err(), "{wrong}");
        }
    }
}
