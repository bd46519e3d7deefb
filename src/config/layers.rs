//! The layers of the settings, merged: the reference, files, the environment, the command line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use ::config::{ConfigError, File, FileFormat, Source, Value};

use super::fault::ConfigFault;
use super::key_path::KeyPath;
use super::load::default_toml;
use super::properties::{FILE_SUFFIX, name_of_variable};
use super::tree::{self, Table};
use crate::event_time::NamedStrategy;

/// Where settings come from; a later field wins over the one before.
///
/// Nothing but the files is read from the surroundings: the environment and the host name are handed in.
#[derive(Clone, Default)]
pub struct Sources {
    /// TOML files, a later one over the one before.
    pub files: Vec<PathBuf>,
    /// The variables of the environment; those that do not begin with `TIDEGATE_` are not looked at.
    pub environment: BTreeMap<String, String>,
    /// Settings of the command line, each written `section.key=value`.
    pub overrides: Vec<String>,
    /// The name of the host, for `kafka.instance_id = "hostname"`; `None` if it is not known.
    pub host_name: Option<String>,
    /// Watermark strategies of the library's user, known to `source.watermark.strategy` by their names.
    pub strategies: Vec<NamedStrategy>,
}

impl fmt::Debug for Sources {
    /// Names of variables and overrides alone, since their values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.overrides.iter().map(|text| text.split('=').next().unwrap_or_default());
        f.debug_struct("Sources")
            .field("files", &self.files)
            .field("environment", &self.environment.keys())
            .field("overrides", &keys.collect::<Vec<_>>())
            .field("host_name", &self.host_name)
            .field("strategies", &self.strategies)
            .finish()
    }
}

/// The layers merged.
pub(super) struct Merged {
    /// A table; every value in it knows where it was written.
    pub(super) root: Value,
    /// What was read, in words, for keys that nobody wrote.
    pub(super) read: String,
    /// Sources that could not be read.
    pub(super) faults: Vec<ConfigFault>,
    /// Variables that look like settings and are none.
    pub(super) unread: Vec<ConfigFault>,
}

/// Reads and merges all layers.
pub(super) fn merge(sources: &Sources) -> Merged {
    // Nine tenths of what a small file takes; tests read thousands of those.
    static REFERENCE: LazyLock<Result<Layer, ConfigFault>> =
        LazyLock::new(|| parse(default_toml(), DEFAULTS));
    let mut faults = Vec::new();
    let mut layers = Vec::new();
    layers.extend(noted(REFERENCE.clone(), &mut faults));
    for path in &sources.files {
        layers.extend(noted(read_file(path), &mut faults));
    }
    let (environment, unread) = environment_layers(&sources.environment);
    layers.extend(environment);
    layers.extend(override_layers(&sources.overrides, &mut faults));

    let mut root: Value = Table::new().into();
    for layer in layers {
        forget_twins(&mut root, &layer.0);
        if let Err(error) = layer.collect_to(&mut root) {
            faults.push(ConfigFault::new(DEFAULTS, None, error.to_string()));
        }
    }
    fill_lists(&mut root);
    Merged { root, read: read_in_words(&sources.files), faults, unread }
}

/// Where values come from that nobody wrote.
pub(super) const DEFAULTS: &str = "the defaults";

/// Where values of the command line come from.
const COMMAND_LINE: &str = "the command line";

fn read_in_words(files: &[PathBuf]) -> String {
    let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    if files.is_empty() {
        "no file given, the environment".to_owned()
    } else {
        format!("{}, the environment", files.join(", "))
    }
}

fn noted<T>(read: Result<T, ConfigFault>, faults: &mut Vec<ConfigFault>) -> Option<T> {
    read.map_err(|fault| faults.push(fault)).ok()
}

/// One layer: a table whose keys may be paths such as `source[0].topic`.
#[derive(Clone, Debug)]
struct Layer(Value);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Table, ConfigError> {
        self.0.clone().into_table()
    }
}

fn read_file(path: &Path) -> Result<Layer, ConfigFault> {
    let origin = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text, &origin),
        Err(error) => Err(ConfigFault::new(origin, None, format!("cannot be read: {error}"))),
    }
}

fn parse(text: &str, origin: &str) -> Result<Layer, ConfigFault> {
    match File::from_str(text, FileFormat::Toml).collect() {
        Ok(table) => Ok(Layer(tree::with_origin(Value::new(None, table), &origin.to_owned()))),
        Err(error) => {
            // The parser quotes the line it stumbles over, which may hold a secret.
            let quote = |line: &&str| {
                line.trim_start_matches([' ', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
                    .starts_with('|')
            };
            let message = error.to_string();
            let kept: Vec<&str> =
                message.lines().filter(|line| !quote(line) && !line.is_empty()).collect();
            Err(ConfigFault::new(origin, None, kept.join(": ")))
        }
    }
}

/// librdkafka properties of a layer, kept apart because their names have dots in them.
#[derive(Default)]
struct PropertyTables {
    all: Table,
    consumer: Table,
    producer: Table,
}

impl PropertyTables {
    /// The table that a key belongs to, and the rest of the key, if it is that of a property.
    fn find<'k>(&mut self, key: &'k str, dot: &str) -> Option<(&mut Table, &'k str)> {
        let after = |section: &[&str]| {
            let prefix = section.join(dot) + dot;
            let head = key.get(..prefix.len())?;
            head.eq_ignore_ascii_case(&prefix).then(|| key.get(prefix.len()..))?
        };
        if let Some(name) = after(&["kafka", "properties"]) {
            Some((&mut self.all, name))
        } else if let Some(name) = after(&["kafka", "consumer", "properties"]) {
            Some((&mut self.consumer, name))
        } else {
            after(&["kafka", "producer", "properties"]).map(|name| (&mut self.producer, name))
        }
    }

    /// Tables without properties are left out: they would take the place of something else under their name.
    fn into_layer(self) -> Layer {
        let table = |name: &str, inner: Table| {
            let entry = (!inner.is_empty()).then(|| (name.to_owned(), Value::from(inner)));
            entry.into_iter().collect::<Table>()
        };
        let mut kafka = table("properties", self.all);
        kafka.extend(table("consumer", table("properties", self.consumer)));
        kafka.extend(table("producer", table("properties", self.producer)));
        Layer(table("kafka", kafka).into())
    }
}

/// The settings and the properties among the variables, and those that look like one and are none.
fn environment_layers(environment: &BTreeMap<String, String>) -> ([Layer; 2], Vec<ConfigFault>) {
    let (mut layer, mut properties) = (Table::new(), PropertyTables::default());
    let mut unread = Vec::new();
    for (variable, text) in environment {
        let origin = format!("the environment ({variable})");
        let value = Value::new(Some(&origin), text.as_str());
        if let Some(rest) = variable.strip_prefix("TIDEGATE_RDKAFKA_") {
            properties.all.insert(name_of_variable(rest), value);
        } else if let Some(rest) = variable.strip_prefix("TIDEGATE__") {
            if let Some((table, rest)) = properties.find(rest, "__") {
                table.insert(name_of_variable(rest), value);
            } else {
                layer.insert(key_of_variable(rest), value);
            }
        } else if variable.starts_with("TIDEGATE_") && !is_service_link(variable) {
            let problem = "is not read; settings are written TIDEGATE__SECTION__KEY, with two underscores, and \
                           librdkafka properties TIDEGATE_RDKAFKA_...";
            unread.push(ConfigFault::new(origin, None, problem));
        }
    }
    ([Layer(layer.into()), properties.into_layer()], unread)
}

/// `SOURCE__0__TOPIC` as `source[0].topic`.
fn key_of_variable(rest: &str) -> String {
    let mut key = String::with_capacity(rest.len());
    for step in rest.to_lowercase().split("__") {
        if !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit()) {
            key.extend(["[", step, "]"]);
        } else {
            key.push_str(if key.is_empty() { "" } else { "." });
            key.push_str(step);
        }
    }
    key
}

/// Whether the variable is one of those that Kubernetes sets for a Service named `tidegate`.
fn is_service_link(variable: &str) -> bool {
    let link = |prefix| variable.starts_with(prefix);
    link("TIDEGATE_SERVICE_") || variable == "TIDEGATE_PORT" || link("TIDEGATE_PORT_")
}

fn override_layers(overrides: &[String], faults: &mut Vec<ConfigFault>) -> [Layer; 2] {
    let (mut layer, mut properties) = (Table::new(), PropertyTables::default());
    for text in overrides {
        let Some((key, value)) = text.split_once('=') else {
            let problem = format!("`{text}` has no `=`; write `section.key=value`");
            faults.push(ConfigFault::new(COMMAND_LINE, None, problem));
            continue;
        };
        let (key, value) = (key.trim(), Value::new(Some(&COMMAND_LINE.to_owned()), value.trim()));
        if let Some((table, name)) = properties.find(key, ".") {
            table.insert(name.trim_matches('"').to_owned(), value);
        } else {
            layer.insert(key.to_owned(), value);
        }
    }
    [Layer(layer.into()), properties.into_layer()]
}

/// A secret in a file replaces one written out in an earlier layer, and the other way round.
fn forget_twins(root: &mut Value, layer: &Value) {
    for path in SECRET_TABLES.map(KeyPath::of) {
        let names = path.find(layer).and_then(tree::table).map(Table::keys);
        for name in names.into_iter().flatten() {
            let twin = name
                .strip_suffix(FILE_SUFFIX)
                .map_or_else(|| format!("{name}{FILE_SUFFIX}"), str::to_owned);
            path.key(&twin).take_out(root);
        }
    }
}

/// The tables that may hold secrets: those of librdkafka properties, the client credentials, the database, and the admin
/// listener.
pub(super) const SECRET_TABLES: [&str; 6] = [
    "kafka.properties",
    "kafka.consumer.properties",
    "kafka.producer.properties",
    "kafka.oauth",
    "export.postgres",
    "admin",
];

/// Writes the defaults of list entries, which no layer below could hold.
fn fill_lists(root: &mut Value) {
    for source in entries(root, "source") {
        default(source, "start", "earliest");
        default(source, "on_missing", "stop");
        if let Some(timestamp) = table_of(source, "timestamp")
            && !timestamp.contains_key("from")
        {
            default(timestamp, "unit", "ms");
        }
        if let Some(watermark) = table_of(source, "watermark") {
            default(watermark, "strategy", "bounded_out_of_orderness");
            default(watermark, "idle_timeout", "30s");
        }
    }
    for aggregate in entries(root, "aggregate") {
        if aggregate.contains_key("field") {
            default(aggregate, "type", "number");
            default(aggregate, "missing", "refuse");
        }
    }
}

fn entries<'v>(root: &'v mut Value, list: &str) -> impl Iterator<Item = &'v mut Table> {
    let entries = KeyPath::of(list).find_mut(root).and_then(tree::list_mut);
    entries.into_iter().flatten().filter_map(tree::table_mut)
}

/// The table under this name, made if there is nothing; `None` if there is something else.
fn table_of<'t>(table: &'t mut Table, name: &str) -> Option<&'t mut Table> {
    tree::table_mut(table.entry(name.to_owned()).or_insert_with(|| Table::new().into()))
}

fn default(table: &mut Table, name: &str, text: &str) {
    table.entry(name.to_owned()).or_insert_with(|| Value::new(Some(&DEFAULTS.to_owned()), text));
}
