//! Which scenarios run against the real broker, and why not the others.

use serde_json::Value;

/// Why a scenario cannot be run by a test that has a broker and processes of the service, and nothing else.
pub(crate) fn not_run(scenario: &Value) -> Option<&'static str> {
    let actions = scenario.get("actions").and_then(Value::as_array);
    let container = scenario.pointer("/expect/container").is_some_and(|value| *value == true);
    actions
        .into_iter()
        .flatten()
        .find_map(action)
        .or_else(|| container.then_some("needs a container runtime"))
}

fn action(action: &Value) -> Option<&'static str> {
    let repeated = action.get("actions").and_then(Value::as_array);
    let moves = action.get("broker").is_some_and(|to| *to == "move_to_new_address");
    let own = WANTING.iter().find(|(name, _)| action.get(name).is_some()).map(|(_, why)| *why);
    own.or(moves.then_some("needs a broker that moves to another address"))
        .or_else(|| repeated.into_iter().flatten().find_map(self::action))
}

/// Actions that are not done here.
const WANTING: [(&str, &str); 4] = [
    ("broker_quota", "needs a broker with a quota for the service"),
    ("container_stop", "needs a container runtime"),
    ("dns", "needs a name server that can be broken"),
    ("proxy", "needs a proxy between the service and its broker"),
];
