//! The files of a deployment, as the tools for each kind see them.

use crate::rules::promtool;
use crate::tools::{package, rendered, tool};

#[test]
fn hadolint_takes_the_dockerfile() {
    tool("hadolint", &["Dockerfile"]);
}

#[test]
fn the_compose_file_is_one_by_its_schema() {
    tool("check-jsonschema", &["--builtin-schema", "vendor.compose-spec", "docker-compose.yml"]);
}

#[test]
fn yamllint_takes_all_yaml() {
    tool("yamllint", &["--strict", "docker-compose.yml", "deploy"]);
}

#[test]
fn kubernetes_takes_the_manifests() {
    for folder in ["base", "example", "example-standby"] {
        let path = rendered(&format!("deploy/kubernetes/{folder}"));
        tool("kubernetes-validate", &["--strict", path.to_str().unwrap()]);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn promtool_takes_the_configuration_of_prometheus() {
    let path = package().join("deploy/compose/prometheus.yml");
    // The rules are where the container has them.
    promtool(&["check", "config", "--syntax-only", path.to_str().unwrap()]);
}

#[test]
fn dependencies_have_licences_and_sources_that_are_allowed() {
    // What is locked has been fetched to build this test.
    tool("cargo-deny", &["--locked", "--offline", "check", "licenses", "bans", "sources"]);
}
