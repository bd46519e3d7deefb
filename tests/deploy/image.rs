//! The Dockerfile against the package and the configuration; `tests/image/run` builds it.

use std::net::SocketAddr;

use crate::tools::text;

/// The value of an instruction's line that begins so.
fn line(start: &str) -> String {
    let text = text("Dockerfile");
    let found = text.lines().find_map(|line| line.trim().strip_prefix(start));
    found.unwrap_or_else(|| panic!("no line `{start}...` in the Dockerfile")).to_owned()
}

/// The address that the program listens at in the image.
pub(crate) fn listen() -> SocketAddr {
    let address = line("ENV TIDEGATE__HTTP__LISTEN=");
    address.trim_end_matches([' ', '\\']).parse().unwrap()
}

#[test]
fn it_builds_with_the_rust_that_the_package_asks_for() {
    let manifest = text("Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    let wanted = format!("/rust:{}-bookworm", version.trim_matches('"'));
    let base = line("ARG BUILD_IMAGE=");
    assert!(base.ends_with(&wanted), "{base} does not end in {wanted}");
    // The runtime has the C library of the same release.
    assert!(line("ARG RUNTIME_IMAGE=").ends_with("-debian12:nonroot"));
}

#[test]
fn it_says_the_version_and_the_licence_of_the_package() {
    let text = text("Dockerfile");
    for (label, value) in
        [("version", env!("CARGO_PKG_VERSION")), ("licenses", env!("CARGO_PKG_LICENSE"))]
    {
        let label = format!("org.opencontainers.image.{label}=\"{value}\"");
        assert!(text.contains(&label), "no {label}");
    }
}

#[test]
fn it_exposes_the_port_that_the_program_listens_at() {
    assert_eq!(line("EXPOSE "), listen().port().to_string());
    assert!(listen().ip().is_unspecified(), "{} cannot be reached from outside", listen());
}

#[test]
fn what_the_build_cuts_off_the_manifest_are_tests_and_benches_alone() {
    assert!(text("Dockerfile").contains(r"sed -i '/^\[\[/,$d' Cargo.toml"));
    let manifest = text("Cargo.toml");
    let cut = &manifest[manifest.find("\n[[").unwrap()..];
    for table in cut.lines().filter(|line| line.starts_with('[')) {
        assert!(
            ["[[test]]", "[[bench]]"].contains(&table),
            "{table} would be missing in the image"
        );
    }
}

#[test]
fn all_that_it_copies_is_let_through() {
    let ignored = text(".dockerignore");
    let let_through: Vec<_> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let dockerfile = text("Dockerfile");
    let copies = dockerfile.lines().filter_map(|line| line.strip_prefix("COPY "));
    let mut seen = 0;
    for copy in copies.filter(|copy| !copy.starts_with("--from=")) {
        let words: Vec<_> = copy.split_whitespace().collect();
        for source in &words[..words.len() - 1] {
            seen += 1;
            let source = source.trim_end_matches('/');
            assert!(let_through.contains(&source), "{source} is not in .dockerignore");
        }
    }
    assert_eq!(seen, let_through.len(), "and nothing else is");
}
