//! What a case says of the service as a configuration file.

use std::fmt::Write as _;

use super::file::{Scenario, text};
use crate::case_file::{
    AllIdle, Config, Emit, FieldOrKafka, NaivePolicy, TimestampUnit, ValueType,
};

/// The configuration of all instances, without their names. `partial`: each publishes what its partitions give.
pub(super) fn config(
    scenario: &Scenario,
    bootstrap: &str,
    prefix: &str,
    partial: bool,
) -> Result<String, String> {
    let case = &scenario.service.config;
    let input = scenario.input();
    let (mut properties, mut transaction_timeout) = (String::new(), "15000".to_owned());
    for (name, value) in &scenario.service.kafka {
        let value = text(value);
        match (name.as_str(), value.as_str()) {
            // The only one there is.
            ("isolation.level", "read_committed") => {}
            ("transaction.timeout.ms", _) => transaction_timeout = value,
            _ => writeln!(properties, "{name:?} = {value:?}").unwrap(),
        }
    }
    let kafka = format!(
        r#"
[kafka]
bootstrap_servers = "{bootstrap}"
group_id = "{prefix}"
[kafka.properties]
{properties}
[results]
topic = "{prefix}-out"
[late]
topic = "{prefix}-late"
[dead_letter]
topic = "{prefix}-dead"
[delivery]
transaction_timeout = "{transaction_timeout}ms"
[service]
# The cases give a process nine or ten seconds for its end.
shutdown_timeout = "8s"
"#
    );
    // The count of missing records is there only for those who want to go on.
    let metrics = scenario.expect.get("metrics").map(ToString::to_string).unwrap_or_default();
    let on_missing = if metrics.contains("records_missing") { "continue" } else { "stop" };
    let source = format!(
        r#"
[[source]]
topic = "{prefix}-{input}"
on_missing = "{on_missing}"
{}{}{}"#,
        timestamp(case)?,
        format_args!(
            "watermark = {{ max_out_of_orderness = \"{}ms\", idle_timeout = \"{}\" }}\n",
            case.out_of_orderness_ms,
            or_off(case.idle_timeout_ms)
        ),
        fields(case)?,
    );
    Ok(kafka + &source + &windows(case, partial)?)
}

fn timestamp(case: &Config) -> Result<String, String> {
    let from = match case.timestamp_source {
        FieldOrKafka::Kafka => return Ok("timestamp = { from = \"record\" }\n".to_owned()),
        FieldOrKafka::Field => {
            case.timestamp_field.as_ref().ok_or("the config lacks timestamp_field")?
        }
    };
    let unit = match case.timestamp_unit {
        TimestampUnit::Ms => "ms",
        TimestampUnit::S => "s",
        TimestampUnit::Us => "us",
        TimestampUnit::Ns => "ns",
        TimestampUnit::Iso8601 => "rfc3339",
    };
    let naive = if case.naive_policy == NaivePolicy::Utc { ", naive = \"utc\"" } else { "" };
    Ok(format!("timestamp = {{ field = {from:?}, unit = \"{unit}\"{naive} }}\n"))
}

/// The logical names are the same whatever the case's are, so that results look alike.
fn fields(case: &Config) -> Result<String, String> {
    let key = match case.key_source {
        FieldOrKafka::Kafka => String::new(),
        FieldOrKafka::Field => {
            let field = case.key_field.as_ref().ok_or("the config lacks key_field")?;
            format!("key = {field:?}, ")
        }
    };
    Ok(format!("fields = {{ {key}value = {:?} }}\n", case.value_field))
}

fn windows(case: &Config, partial: bool) -> Result<String, String> {
    let key = match case.key_source {
        FieldOrKafka::Field => format!("fields = [\"key\"]\npartial = {partial}"),
        FieldOrKafka::Kafka => "from = \"message\"".to_owned(),
    };
    let emit = match case.emit {
        Emit::EachStep => 0,
        Emit::Periodic => case.emit_interval_ms,
    };
    let all_idle = match case.all_idle {
        AllIdle::Hold => "hold",
        AllIdle::FlushMax => "flush",
    };
    let value_type = match case.value_type {
        ValueType::I64 => "integer",
        ValueType::F64 => "float",
    };
    let min_timestamp = match case.min_timestamp_ms {
        None => "off".to_owned(),
        Some(ms) => jiff::Timestamp::from_millisecond(ms).map_err(|e| e.to_string())?.to_string(),
    };
    Ok(format!(
        r#"
[window]
size = "{}ms"
offset = "{}ms"
allowed_lateness = "{}ms"
[watermark]
emit_interval = "{emit}ms"
all_idle = "{all_idle}"
[key]
{key}
[[aggregate]]
name = "count"
function = "count"
[[aggregate]]
name = "sum"
function = "sum"
field = "value"
type = "{value_type}"
[guard]
max_future = "{}"
min_timestamp = "{min_timestamp}"
"#,
        case.window_ms,
        case.window_offset_ms,
        case.allowed_lateness_ms,
        or_off(case.max_future_ms),
    ))
}

fn or_off(ms: Option<u64>) -> String {
    ms.map_or_else(|| "off".to_owned(), |ms| format!("{ms}ms"))
}
