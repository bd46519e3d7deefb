//! The page and its parts, which are inside the program, and the headers that keep it to itself.

use std::hash::{DefaultHasher, Hasher};

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

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
        let tag = asset.tag();
        router.route(asset.path, get(async move |headers: HeaderMap| asset.answer(&tag, &headers)))
    })
}

impl Asset {
    fn tag(self) -> String {
        let mut hasher = DefaultHasher::new();
        hasher.write(self.content);
        format!("\"{:016x}\"", hasher.finish())
    }

    /// The file, unless the client has it.
    fn answer(self, tag: &str, asked: &HeaderMap) -> Response {
        let headers = [
            (header::CONTENT_TYPE, self.content_type),
            (header::CACHE_CONTROL, "no-cache"),
            (header::ETAG, tag),
        ];
        if asked.get(header::IF_NONE_MATCH).is_some_and(|held| held.as_bytes() == tag.as_bytes()) {
            (StatusCode::NOT_MODIFIED, headers).into_response()
        } else {
            (headers, self.content).into_response()
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
