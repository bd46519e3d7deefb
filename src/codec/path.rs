//! Where a field stands in a JSON record.

use std::fmt;

/// The way to a field: names of nested objects, or places in arrays, outermost first.
///
/// Written dotted (`airport.from`) or, where a name has a dot or a slash in it, as a JSON Pointer
/// (`/airport.code/from`, RFC 6901: `~1` is a slash, `~0` a tilde).
///
/// ```
/// use tidegate::codec::FieldPath;
///
/// let dotted: FieldPath = "airport.from".parse().unwrap();
/// assert_eq!(dotted, "/airport/from".parse().unwrap());
/// let with_a_dot: FieldPath = "/airport.from".parse().unwrap();
/// assert_eq!(with_a_dot.segments(), ["airport.from"]);
/// assert!("airport..from".parse::<FieldPath>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath {
    segments: Vec<String>,
}

/// Why a text is no field path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldPathFault {
    /// Nothing there.
    #[error("is empty; give a field name, a dotted path (`a.b`) or a JSON Pointer (`/a/b`)")]
    Empty,
    /// Two dots in a row, or one at an end.
    #[error(
        "has an empty name between dots; a field name that has dots is written as a JSON Pointer (`/a.b`)"
    )]
    EmptySegment,
    /// A `~` that is neither `~0` nor `~1`.
    #[error("has a `~` that is neither `~0` (a tilde) nor `~1` (a slash), see RFC 6901")]
    BadEscape,
}

impl FieldPath {
    /// The names, outermost first; at least one.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }
}

impl std::str::FromStr for FieldPath {
    type Err = FieldPathFault;

    fn from_str(text: &str) -> Result<Self, FieldPathFault> {
        let segments = if let Some(pointer) = text.strip_prefix('/') {
            pointer.split('/').map(unescape).collect::<Result<Vec<_>, _>>()?
        } else if text.is_empty() {
            return Err(FieldPathFault::Empty);
        } else {
            text.split('.').map(str::to_owned).collect()
        };
        let dotted = !text.starts_with('/');
        if dotted && segments.iter().any(String::is_empty) {
            return Err(FieldPathFault::EmptySegment);
        }
        Ok(Self { segments })
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |segment: &String| !segment.is_empty() && !segment.contains(['.', '/']);
        if self.segments.iter().all(plain) {
            return f.write_str(&self.segments.join("."));
        }
        for segment in &self.segments {
            write!(f, "/{}", segment.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

fn unescape(segment: &str) -> Result<String, FieldPathFault> {
    let mut name = String::with_capacity(segment.len());
    let mut characters = segment.chars();
    while let Some(character) = characters.next() {
        name.push(match character {
            '~' => match characters.next() {
                Some('0') => '~',
                Some('1') => '/',
                _ => return Err(FieldPathFault::BadEscape),
            },
            other => other,
        });
    }
    Ok(name)
}
