//! Answers with pages that are compiled into the program (`npm run native:pages` builds them from `www`).

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;

/// The content security policy of such a page: it may use only what it contains, and ask its own server.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The answer that is a page.
pub(crate) fn html(page: impl Into<Body>) -> Response {
    let mut r = Response::new(page.into());
    let h = r.headers_mut();
    h.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    h.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    h.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    r
}
