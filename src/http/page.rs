//! The page and its parts, which are inside the program, and the headers that keep it to itself.

use std::hash::{DefaultHasher, Hasher};
use std::io::Write;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::{Compression, write::GzEncoder};

/// A file that is served as it is.
#[derive(Clone, Copy, Debug)]
struct Asset {
    path: &'static str,
    content_type: &'static str,
    content: &'static [u8],
}

const fn asset(path: &'static str, content_type: &'static str, content: &'static [u8]) -> Asset {
    Asset { path, content_type, content }
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Everything that the page is made of.
const ASSETS: [Asset; 12] = [
    asset("/", HTML, include_bytes!("../../web/index.html")),
    asset("/page/page.css", CSS, include_bytes!("../../web/page.css")),
    asset("/page/icon.svg", "image/svg+xml", include_bytes!("../../web/icon.svg")),
    asset("/page/page.js", SCRIPT, include_bytes!("../../web/page.js")),
    asset("/page/words.js", SCRIPT, include_bytes!("../../web/words.js")),
    asset("/page/lanes.js", SCRIPT, include_bytes!("../../web/lanes.js")),
    asset("/page/tables.js", SCRIPT, include_bytes!("../../web/tables.js")),
    asset("/page/charts.js", SCRIPT, include_bytes!("../../web/charts.js")),
    asset("/page/disorder.js", SCRIPT, include_bytes!("../../web/disorder.js")),
    asset("/page/connection.js", SCRIPT, include_bytes!("../../web/connection.js")),
    asset("/page/uPlot.js", SCRIPT, include_bytes!("../../web/vendor/uPlot/uPlot.iife.min.js")),
    asset("/page/uPlot.css", CSS, include_bytes!("../../web/vendor/uPlot/uPlot.min.css")),
];

/// Nothing from elsewhere, nothing inline, nothing that frames it; and no script may make markup of a text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Another one for each version of the page: one that is open reloads itself when a newer service answers it.
pub(super) fn version() -> String {
    let mut hasher = DefaultHasher::new();
    for asset in ASSETS {
        hasher.write(asset.content);
    }
    format!("{:016x}", hasher.finish())
}

pub(super) fn router() -> Router {
    ASSETS.into_iter().fold(Router::new(), |router, asset| {
        let served = Served::new(asset);
        router.route(asset.path, get(async move |headers: HeaderMap| served.answer(&headers)))
    })
}

/// A file as it is sent.
#[derive(Clone, Debug)]
struct Served {
    asset: Asset,
    /// Of the content, whether it is compressed or not: a weak one.
    tag: String,
    gzip: Option<Bytes>,
}

impl Served {
    fn new(asset: Asset) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(asset.content);
        let tag = format!("W/\"{:016x}\"", hasher.finish());
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Nothing goes wrong when memory is written to; if it did, it would be sent as it is.
        let gzip = encoder.write_all(asset.content).and_then(|()| encoder.finish());
        Self { asset, tag, gzip: gzip.ok().map(Bytes::from) }
    }

    /// The file, unless the client has it.
    fn answer(&self, asked: &HeaderMap) -> Response {
        let headers = [
            (header::CONTENT_TYPE, self.asset.content_type),
            (header::CACHE_CONTROL, "no-cache"),
            (header::VARY, "accept-encoding"),
            (header::ETAG, &self.tag),
        ];
        let has = |name, value: &str| {
            asked
                .get(name)
                .and_then(|held| held.to_str().ok())
                .is_some_and(|held| held.split(',').any(|one| one.trim() == value))
        };
        if has(header::IF_NONE_MATCH, &self.tag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        match &self.gzip {
            Some(gzip) if has(header::ACCEPT_ENCODING, "gzip") => {
                (headers, [(header::CONTENT_ENCODING, "gzip")], gzip.clone()).into_response()
            }
            _ => (headers, self.asset.content).into_response(),
        }
    }
}

/// What every answer carries, whoever shows it.
pub(super) async fn secure(mut response: Response) -> Response {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
