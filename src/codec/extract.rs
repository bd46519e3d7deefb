//! Finds the few fields that are read in a JSON record, without building a tree of the rest.

use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{FieldPath, Reason, Refusal};

/// Where in the payload a field's raw text stands; `None` if the record lacks it.
pub(super) type Slot = Option<Range<usize>>;

/// Levels of nesting that a record may have, the outermost object included.
const MAX_DEPTH: usize = 127;

/// The paths of all fields that are read, as a tree.
#[derive(Debug, Default)]
pub(super) struct Extractor {
    nodes: Vec<Node>,
    slots: Vec<Slot>,
    /// By node: whether it was met in this record.
    met: Vec<bool>,
}

#[derive(Debug, Default)]
struct Node {
    name: String,
    /// The name as a place in an array, where it is a number.
    index: Option<usize>,
    children: Vec<usize>,
    slot: Option<usize>,
}

impl Extractor {
    /// The slot of a path; the same for the same path.
    pub(super) fn slot(&mut self, path: &FieldPath) -> usize {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let mut at = 0;
        for segment in path.segments() {
            let children = self.nodes.get(at).map_or(&[][..], |node| &node.children);
            let known = children.iter().copied().find(|child| self.name(*child) == segment);
            let child = known.unwrap_or_else(|| {
                self.nodes.push(Node {
                    name: segment.clone(),
                    index: segment.parse().ok(),
                    ..Node::default()
                });
                let child = self.nodes.len() - 1;
                if let Some(node) = self.nodes.get_mut(at) {
                    node.children.push(child);
                }
                child
            });
            at = child;
        }
        self.met = vec![false; self.nodes.len()];
        let next = self.slots.len();
        let slot = self.nodes.get_mut(at).map_or(next, |node| *node.slot.get_or_insert(next));
        if slot == next {
            self.slots.push(None);
        }
        slot
    }

    fn name(&self, node: usize) -> &str {
        self.nodes.get(node).map_or("", |node| &node.name)
    }

    /// Reads one record; afterwards [`Self::get`] has its fields.
    pub(super) fn extract(&mut self, text: &str) -> Result<(), Refusal> {
        self.slots.fill(None);
        self.met.fill(false);
        if nests_too_deep(text.as_bytes()) {
            return Err(Refusal::new(
                Reason::TooDeep,
                format!("nested in more than {MAX_DEPTH} levels"),
            ));
        }
        let mut found = Found {
            nodes: &self.nodes,
            slots: &mut self.slots,
            met: &mut self.met,
            text,
            fault: None,
        };
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let read = Level { node: 0, found: &mut found }
            .deserialize(&mut deserializer)
            .and_then(|()| deserializer.end());
        match (found.fault, read) {
            // Reading ended there; what follows may still show that the text is not JSON at all.
            (Some(fault), _) => Err(serde_json::from_str::<IgnoredAny>(text)
                .map_or_else(|error| Refusal::new(Reason::BadJson, error.to_string()), |_| fault)),
            (None, Err(error)) => Err(Refusal::new(Reason::BadJson, error.to_string())),
            (None, Ok(())) => Ok(()),
        }
    }

    /// The raw text of a field: JSON, with its quotes if it is a text.
    pub(super) fn get<'t>(&self, text: &'t str, slot: usize) -> Option<&'t str> {
        text.get(self.slots.get(slot)?.clone()?)
    }
}

/// Counts before it looks closer: a record with few brackets cannot be deep.
fn nests_too_deep(bytes: &[u8]) -> bool {
    let opens = |byte: u8| byte == b'[' || byte == b'{';
    if bytes.len() <= MAX_DEPTH || bytes.iter().filter(|byte| opens(**byte)).count() <= MAX_DEPTH {
        return false;
    }
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

struct Found<'f, 't> {
    nodes: &'f [Node],
    slots: &'f mut [Slot],
    met: &'f mut [bool],
    text: &'t str,
    fault: Option<Refusal>,
}

impl<'t> Found<'_, 't> {
    fn children(&self, node: usize) -> impl Iterator<Item = (usize, &Node)> {
        let children = self.nodes.get(node).map_or(&[][..], |node| &node.children);
        children.iter().filter_map(|child| Some((*child, self.nodes.get(*child)?)))
    }

    /// Notes a field that is read; the second one of a name is a fault.
    fn meet(&mut self, node: usize) -> Result<(), ()> {
        let Some(met) = self.met.get_mut(node) else { return Ok(()) };
        if std::mem::replace(met, true) {
            let name = self.nodes.get(node).map_or("", |node| &node.name);
            self.fault = Some(Refusal::new(
                Reason::DuplicateField,
                format!("field `{name}` stands there twice"),
            ));
            return Err(());
        }
        Ok(())
    }

    fn keep(&mut self, slot: usize, raw: &'t RawValue) {
        // The raw value is a piece of the text, so its place in it is the distance of the two.
        let start = raw.get().as_ptr().addr().wrapping_sub(self.text.as_ptr().addr());
        if let Some(held) = self.slots.get_mut(slot) {
            *held = Some(start..start + raw.get().len());
        }
    }
}

/// One object or array on the way to a field.
struct Level<'l, 'f, 't> {
    node: usize,
    found: &'l mut Found<'f, 't>,
}

impl<'t> Level<'_, '_, 't> {
    /// The value of a child that is read.
    fn value<E>(&mut self, child: usize, next: impl ValueAccess<'t, E>) -> Result<(), E>
    where
        E: serde::de::Error,
    {
        self.found.meet(child).map_err(|()| E::custom("duplicate field"))?;
        let (slot, leaf) =
            self.found.nodes.get(child).map_or((None, true), |n| (n.slot, n.children.is_empty()));
        let Some(slot) = slot else {
            return next.descend(Level { node: child, found: self.found });
        };
        let raw = next.raw()?;
        self.found.keep(slot, raw);
        if leaf {
            return Ok(());
        }
        // A field that is read whole and has fields below it that are read too.
        let mut inner = serde_json::Deserializer::from_str(raw.get());
        Level { node: child, found: self.found }.deserialize(&mut inner).map_err(E::custom)
    }

    fn scalar<E: serde::de::Error>(self) -> Result<(), E> {
        if self.node != 0 {
            return Ok(());
        }
        self.found.fault =
            Some(Refusal::new(Reason::NotObject, "the record is JSON, but no object"));
        Err(E::custom("not an object"))
    }
}

/// The value that stands next in a map or a sequence.
trait ValueAccess<'t, E> {
    fn raw(self) -> Result<&'t RawValue, E>;
    fn descend(self, level: Level<'_, '_, 't>) -> Result<(), E>;
}

struct MapValue<'m, M>(&'m mut M);

impl<'t, M: MapAccess<'t>> ValueAccess<'t, M::Error> for MapValue<'_, M> {
    fn raw(self) -> Result<&'t RawValue, M::Error> {
        self.0.next_value()
    }
    fn descend(self, level: Level<'_, '_, 't>) -> Result<(), M::Error> {
        self.0.next_value_seed(level)
    }
}

impl<'t> DeserializeSeed<'t> for Level<'_, '_, 't> {
    type Value = ();
    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'t> Visitor<'t> for Level<'_, '_, 't> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'t>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(child) =
            map.next_key_seed(ChildName { node: self.node, found: self.found })?
        {
            match child {
                Some(child) => self.value(child, MapValue(&mut map))?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'t>>(mut self, mut sequence: A) -> Result<(), A::Error> {
        if self.node == 0 {
            return self.scalar();
        }
        for place in 0.. {
            let child = self
                .found
                .children(self.node)
                .find(|(_, node)| node.index == Some(place))
                .map(|(child, _)| child);
            let Some(child) = child else {
                if sequence.next_element::<IgnoredAny>()?.is_none() {
                    break;
                }
                continue;
            };
            let Some(raw) = sequence.next_element::<&'t RawValue>()? else { break };
            self.value(child, Element(raw, std::marker::PhantomData))?;
        }
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.scalar()
    }
    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.scalar()
    }
    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        self.scalar()
    }
    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.scalar()
    }
    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        self.scalar()
    }
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.scalar()
    }
}

struct Element<'t, E>(&'t RawValue, std::marker::PhantomData<E>);

impl<'t, E: serde::de::Error> ValueAccess<'t, E> for Element<'t, E> {
    fn raw(self) -> Result<&'t RawValue, E> {
        Ok(self.0)
    }
    fn descend(self, level: Level<'_, '_, 't>) -> Result<(), E> {
        level.deserialize(&mut serde_json::Deserializer::from_str(self.0.get())).map_err(E::custom)
    }
}

/// A name in an object, as the child that is read under it.
struct ChildName<'l, 'f, 't> {
    node: usize,
    found: &'l Found<'f, 't>,
}

impl<'t> DeserializeSeed<'t> for ChildName<'_, '_, '_> {
    type Value = Option<usize>;
    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for ChildName<'_, '_, '_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self
            .found
            .children(self.node)
            .find(|(_, node)| node.name == name)
            .map(|(child, _)| child))
    }
}
