//! `Body`: the stored form of an object, and the positions of some fields in its JSON text.

use std::borrow::Cow;
use std::sync::Arc;

use super::header::{Header, Raw};

/// The form in which a cache stores objects. `benches/README.md` in the repository contains measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// JSON text that is decoded on use; concurrent users share the decoded object. This is the default: it needs a
    /// quarter of the memory of [`Typed`](Self::Typed), and unused objects are never decoded.
    #[default]
    Encoded,
    /// Objects that are decoded on arrival and stored without the text. Vectors do not have excess capacity. Suitable
    /// for small sets of objects that are read often.
    Typed,
    /// Compressed JSON text. Needs a third of the memory of `Encoded`, and takes a few microseconds longer per read.
    #[cfg(feature = "compression")]
    Compressed,
}

/// Handling of `metadata.managedFields`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Managed {
    /// Managed fields are kept.
    #[default]
    Keep,
    /// Managed fields are removed before any other processing.
    Cut,
}

/// Options for storing the objects of an informer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keep {
    pub(crate) storage: Storage,
    pub(crate) managed: Managed,
    #[cfg(feature = "compression")]
    pub(crate) dictionary: super::compressed::Dictionary,
}

/// The stored form of an object.
pub(crate) enum Body<K> {
    Json(Box<str>),
    Typed(Arc<K>),
    #[cfg(feature = "compression")]
    Compressed(super::compressed::Compressed),
}

/// Range of bytes in a JSON text; empty if the field is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    length: u32,
}

impl Span {
    /// Returns the position of `part`, which must be a slice of `text`. Returns an empty span if the position is beyond
    /// 4 GiB; objects are never that large.
    fn of(text: &str, part: &str) -> Self {
        let start = (part.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
        match (u32::try_from(start), u32::try_from(part.len())) {
            (Ok(start), Ok(length)) if start as usize + part.len() <= text.len() => Self { start, length },
            (Ok(_) | Err(_), Ok(_) | Err(_)) => Self::default(),
        }
    }

    /// Returns the slice of `text` at this span.
    pub(crate) fn slice(self, text: &str) -> &str {
        let start = self.start as usize;
        text.get(start..start + self.length as usize).unwrap_or_default()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Returns the span of the same bytes after `cut` was removed from the text.
    fn without(self, cut: Span) -> Self {
        let start = if self.start > cut.start {
            self.start - cut.length
        } else {
            self.start
        };
        Self { start, ..self }
    }
}

/// Positions of fields in the text of an object. The fields can be read without decoding the object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    pub(crate) uid: Span,
    pub(crate) labels: Span,
    pub(crate) annotations: Span,
    pub(crate) owners: Span,
}

impl Places {
    /// Returns the positions of fields in `text`. `header` must have been parsed from this text.
    fn read(text: &str, header: &Header<'_>) -> Self {
        let metadata = &header.metadata;
        let of = |raw: Option<Raw<'_>>| raw.map_or_else(Span::default, |raw| Span::of(text, raw.0));
        Self {
            // If the uid contains escapes, its span is empty. Kubernetes does not generate such uids.
            uid: Span::of(text, &metadata.uid.0),
            labels: of(metadata.labels),
            annotations: of(metadata.annotations),
            owners: of(metadata.owner_references),
        }
    }

    fn without(self, cut: Span) -> Self {
        Self {
            uid: self.uid.without(cut),
            labels: self.labels.without(cut),
            annotations: self.annotations.without(cut),
            owners: self.owners.without(cut),
        }
    }
}

/// Returns the text to store, together with the positions of fields in it.
pub(crate) fn keep<'a>(text: &'a str, header: &Header<'_>, managed: Managed) -> (Cow<'a, str>, Places) {
    let places = Places::read(text, header);
    let cut = match managed {
        Managed::Keep => None,
        Managed::Cut => header.metadata.managed_fields.and_then(|raw| field_around(text, raw)),
    };
    let Some(cut) = cut else {
        return (Cow::Borrowed(text), places);
    };
    let (start, end) = (cut.start as usize, (cut.start + cut.length) as usize);
    let mut kept = String::with_capacity(text.len() - (end - start));
    kept.push_str(&text[..start]);
    kept.push_str(&text[end..]);
    (Cow::Owned(kept), places.without(cut))
}

/// Returns the text without `metadata.managedFields`.
pub(crate) fn cut_managed_fields<'a>(text: &'a str, header: &Header<'_>) -> Cow<'a, str> {
    keep(text, header, Managed::Cut).0
}

/// Returns the text before the name `"managedFields"`. `raw` is the value of this field.
fn before_name<'a>(text: &'a str, raw: Raw<'_>) -> Option<&'a str> {
    let value = Span::of(text, raw.0);
    if value.is_empty() {
        return None;
    }
    let before = text[..value.start as usize].trim_end().strip_suffix(':')?.trim_end();
    before.strip_suffix("\"managedFields\"")
}

/// Returns the offset of the name `"managedFields"`, if managed fields must be removed.
pub(super) fn name_to_cut(text: &str, header: &Header<'_>, managed: Managed) -> Option<usize> {
    match managed {
        Managed::Keep => None,
        Managed::Cut => before_name(text, header.metadata.managed_fields?).map(str::len),
    }
}

/// Returns the span of `managedFields`, including its name and an adjacent comma. `raw` is the value of this field.
fn field_around(text: &str, raw: Raw<'_>) -> Option<Span> {
    let before = before_name(text, raw)?;
    let value = Span::of(text, raw.0);
    let end = (value.start + value.length) as usize;
    let (start, end) = match before.trim_end().strip_suffix(',') {
        Some(before) => (before.len(), end),
        None => {
            let after = text[end..].trim_start();
            let after = after.strip_prefix(',').unwrap_or(after);
            (before.len(), text.len() - after.len())
        }
    };
    Some(Span {
        start: u32::try_from(start).ok()?,
        length: u32::try_from(end - start).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_fields_are_removed_at_any_position() {
        for (text, kept) in [
            (r#"{"metadata":{"managedFields":[{"a":1}]}}"#, r#"{"metadata":{}}"#),
            (
                r#"{"metadata":{"managedFields":[],"name":"a"}}"#,
                r#"{"metadata":{"name":"a"}}"#,
            ),
            (
                r#"{"metadata":{"name":"a","managedFields":[]}}"#,
                r#"{"metadata":{"name":"a"}}"#,
            ),
            (
                r#"{"metadata":{"name":"a" , "managedFields" : [] , "uid":"u"}}"#,
                r#"{"metadata":{"name":"a"  , "uid":"u"}}"#,
            ),
            // Servers do not escape field names. If the name is escaped, the field is kept.
            (
                r#"{"metadata":{"managed\u0046ields":[1]}}"#,
                r#"{"metadata":{"managed\u0046ields":[1]}}"#,
            ),
        ] {
            let (header, whole) = Header::read_whole(text).expect(text);
            assert_eq!(whole, text);
            let (cut, places) = keep(text, &header, Managed::Cut);
            assert_eq!(&*cut, kept);
            serde_json::from_str::<serde_json::Value>(&cut).expect(kept);
            assert_eq!(places.uid.slice(&cut), &*header.metadata.uid.0, "{text}");
        }
    }
}
