//! The tools of `requirements.txt`, and YAML read with them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The package's folder: what the paths of these tests begin at.
pub(crate) fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file of the package.
pub(crate) fn text(name: &str) -> String {
    let path = package().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a tool in the package's folder and returns what it printed; it fails the test if the tool is not content.
pub(crate) fn tool(name: &str, arguments: &[&str]) -> String {
    // Where `tests/run` installs them.
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("linters/bin").join(name);
    let output = Command::new(&program).args(arguments).current_dir(package()).output();
    let output = output.unwrap_or_else(|error| {
        panic!("{}: {error}; `tests/run deploy` installs it", program.display())
    });
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}:\n{printed}{errors}");
    printed
}

/// The documents of a YAML file of the package.
pub(crate) fn yaml(name: &str) -> Vec<Value> {
    parse(package().join(name).to_str().unwrap())
}

/// What `kubectl kustomize` makes of a folder of the package.
pub(crate) fn kustomized(folder: &str) -> Vec<Value> {
    let path = rendered(folder);
    let documents = parse(path.to_str().unwrap());
    std::fs::remove_file(path).unwrap();
    documents
}

/// The same as a file, which the caller removes.
pub(crate) fn rendered(folder: &str) -> PathBuf {
    let text = tool("kubectl", &["kustomize", folder]);
    let name = format!("{}-{:?}.yaml", folder.replace('/', "-"), std::thread::current().id());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name.replace(['(', ')'], ""));
    std::fs::write(&path, text).unwrap();
    path
}

fn parse(path: &str) -> Vec<Value> {
    let program = "import json, sys, yaml\n\
                   print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1], encoding='utf-8')))))";
    serde_json::from_str(&tool("python3", &["-c", program, path])).unwrap()
}

/// The text at a place such as `/spec/template`.
pub(crate) fn at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("no text at {pointer} of {value}"))
}

/// The list at a place.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.unwrap_or_else(|| panic!("no list at {pointer} of {value}"))
}

/// What an image of ours is called: it has the package's version.
pub(crate) const IMAGE: &str = concat!("tidegate:", env!("CARGO_PKG_VERSION"));
