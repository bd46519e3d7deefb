//! Properties that are handed to librdkafka, with secrets among them.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

/// librdkafka properties by name; what looks like a secret is never shown.
///
/// ```
/// use tidegate::config::Properties;
///
/// let properties: Properties = [("sasl.username", "me"), ("sasl.password", "hush")].into();
/// assert_eq!(properties.get("sasl.password"), Some("hush"));
/// assert_eq!(format!("{properties:?}"), r#"{"sasl.password": "***", "sasl.username": "me"}"#);
/// ```
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Properties(BTreeMap<String, String>);

impl Properties {
    /// The value of one of them.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown =
            self.iter().map(|(name, value)| (name, if is_secret(name) { HIDDEN } else { value }));
        f.debug_map().entries(shown).finish()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Properties {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(properties: I) -> Self {
        Self(properties.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl<const COUNT: usize> From<[(&str, &str); COUNT]> for Properties {
    fn from(properties: [(&str, &str); COUNT]) -> Self {
        properties.into_iter().collect()
    }
}

/// Whether the value of a property must not be shown. The path of a file that holds a secret is none.
///
/// Wider than librdkafka's list of today on purpose: a name that is new tomorrow should rather be hidden for nothing.
pub(super) fn is_secret(name: &str) -> bool {
    let holds = |part| name.contains(part);
    let last = name.rsplit('.').next().unwrap_or_default();
    let path = name.ends_with(FILE_SUFFIX) || last == "file" || last == "location";
    let key = name == "token"
        || name.ends_with("key.pem")
        || name == "sasl.oauthbearer.config"
        || holds("jaas");
    !path && (key || holds("password") || holds("secret") || holds("passphrase"))
}

/// The property that a variable's name stands for: `_` is a dot and `__` an underscore, so `SASL_PASSWORD` is
/// `sasl.password`; `_FILE` at the end asks for the value from a file.
pub(super) fn name_of_variable(rest: &str) -> String {
    // No property name holds this character, so it can stand in for the underscore meanwhile.
    const UNDERSCORE: &str = "\u{0}";
    let name = rest.to_lowercase().replace("__", UNDERSCORE).replace('_', ".");
    let name = name.replace(UNDERSCORE, "_");
    match name.strip_suffix(".file") {
        Some(base) if !FILE_PROPERTIES.contains(&name.as_str()) => format!("{base}{FILE_SUFFIX}"),
        _ => name,
    }
}

/// What is shown instead of a secret.
pub(super) const HIDDEN: &str = "***";

/// What a property's name ends in if its value is in a file.
pub(super) const FILE_SUFFIX: &str = "_file";

/// librdkafka's own properties that end in `.file`.
const FILE_PROPERTIES: [&str; 3] = [
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.assertion.private.key.file",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_their_names() {
        for secret in [
            "sasl.password",
            "ssl.key.password",
            "ssl.keystore.password",
            "ssl.key.pem",
            "sasl.oauthbearer.config",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.private.key.pem",
        ] {
            assert!(is_secret(secret), "{secret}");
        }
        for shown in ["sasl.username", "sasl.password_file", "ssl.key.location", "ssl.ca.pem"] {
            assert!(!is_secret(shown), "{shown}");
        }
    }

    #[test]
    fn a_variable_names_a_property() {
        assert_eq!(name_of_variable("SASL_PASSWORD"), "sasl.password");
        assert_eq!(name_of_variable("LOG__LEVEL"), "log_level");
        assert_eq!(name_of_variable("SASL_PASSWORD_FILE"), "sasl.password_file");
        assert_eq!(name_of_variable("SASL_PASSWORD__FILE"), "sasl.password_file");
        assert_eq!(
            name_of_variable("SASL_OAUTHBEARER_ASSERTION_FILE"),
            "sasl.oauthbearer.assertion.file"
        );
    }
}
