//! `Body`: the form in which an object is stored, and the positions of facts in its text.

use std::borrow::Cow;
use std::sync::Arc;

use super::header::{Header, Raw};

/// The form in which a cache stores objects. The crate's documentation has measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// As JSON, decoded on use; a decoded object is shared while it is in use. This is the default: it takes a quarter
    /// of the memory, and unused objects are never decoded.
    #[default]
    Encoded,
    /// Decoded on arrival, without the text; vectors have exactly the required capacity. For small sets that are read
    /// often.
    Typed,
    /// As compressed JSON: a third of the memory of `Encoded`, for a few microseconds per read.
    #[cfg(feature = "compression")]
    Compressed,
}

/// Treatment of `metadata.managedFields`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Managed {
    /// Kept.
    #[default]
    Keep,
    /// Removed from the text before any other processing.
    Cut,
}

/// Options for keeping the objects of an informer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keep {
    pub(crate) storage: Storage,
    pub(crate) managed: Managed,
    #[cfg(feature = "compression")]
    pub(crate) dictionary: super::compressed::Dictionary,
}

/// The object itself.
pub(crate) enum Body<K> {
    Json(Box<str>),
    Typed(Arc<K>),
    #[cfg(feature = "compression")]
    Compressed(super::compressed::Compressed),
}

/// Range of the text; empty if the part is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    length: u32,
}

impl Span {
    /// Returns the span of `part` within `text`. Texts above 4 GiB do not have spans; objects are never that large.
    fn of(text: &str, part: &str) -> Self {
        let start = (part.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
        match (u32::try_from(start), u32::try_from(part.len())) {
            (Ok(start), Ok(length)) if start as usize + part.len() <= text.len() => Self { start, length },
            (Ok(_) | Err(_), Ok(_) | Err(_)) => Self::default(),
        }
    }

    /// Returns the part of the text.
    pub(crate) fn slice(self, text: &str) -> &str {
        let start = self.start as usize;
        text.get(start..start + self.length as usize).unwrap_or_default()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Returns the span after the removal of `cut`.
    fn without(self, cut: Span) -> Self {
        let start = if self.start > cut.start {
            self.start - cut.length
        } else {
            self.start
        };
        Self { start, ..self }
    }
}

/// The spans of facts that are read individually.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    pub(crate) uid: Span,
    pub(crate) labels: Span,
    pub(crate) annotations: Span,
    pub(crate) owners: Span,
}

impl Places {
    /// Returns the places in `text`, from which `header` was read.
    fn read(text: &str, header: &Header<'_>) -> Self {
        let metadata = &header.metadata;
        let of = |raw: Option<Raw<'_>>| raw.map_or_else(Span::default, |raw| Span::of(text, raw.0));
        Self {
            // A uid with escapes does not have a place; Kubernetes does not generate such uids.
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

/// Returns the text of an object to store, with the spans of its facts.
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

/// Returns the text without its managed fields.
pub(crate) fn cut_managed_fields<'a>(text: &'a str, header: &Header<'_>) -> Cow<'a, str> {
    keep(text, header, Managed::Cut).0
}

/// Returns the text before the name of the managed fields, which have the value `raw`.
fn before_name<'a>(text: &'a str, raw: Raw<'_>) -> Option<&'a str> {
    let value = Span::of(text, raw.0);
    if value.is_empty() {
        return None;
    }
    let before = text[..value.start as usize].trim_end().strip_suffix(':')?.trim_end();
    before.strip_suffix("\"managedFields\"")
}

/// Returns the offset of the name of the managed fields, if they must be removed.
pub(super) fn name_to_cut(text: &str, header: &Header<'_>, managed: Managed) -> Option<usize> {
    match managed {
        Managed::Keep => None,
        Managed::Cut => before_name(text, header.metadata.managed_fields?).map(str::len),
    }
}

/// Returns the span of the field with the value `raw`, including its name and one adjacent comma.
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
            // servers do not write escaped names: the field is kept
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
