//! `Header`: what is read off an encoded object in one pass over its text, which is also the check that it is JSON.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde_json::value::RawValue;

use crate::{ObjectKey, ResourceVersion};

/// The facts of an object that lie in its text.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Header<'a> {
    #[serde(borrow, default)]
    pub(crate) metadata: Metadata<'a>,
}

/// Of `ObjectMeta`, what the cache itself looks at. The rest is found by its place.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    namespace: Text<'a>,
    #[serde(borrow)]
    resource_version: Text<'a>,
    #[serde(borrow)]
    pub(crate) uid: Text<'a>,
    pub(crate) generation: Option<i64>,
    #[serde(borrow)]
    pub(crate) deletion_timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) labels: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) owner_references: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) managed_fields: Option<&'a RawValue>,
}

impl<'a> Header<'a> {
    /// Reads the object that `text` begins with; answers its length, too. An error of the category `Eof` says that the
    /// text ends before the object does.
    pub(crate) fn read(text: &'a [u8]) -> Result<(Self, usize), serde_json::Error> {
        let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Self>();
        match values.next() {
            Some(Ok(header)) => Ok((header, values.byte_offset())),
            Some(Err(err)) => Err(err),
            None => Err(serde_json::Error::custom("no object")),
        }
    }

    /// Namespace and name; the name is empty in a bookmark.
    pub(crate) fn key(&self) -> ObjectKey {
        let metadata = &self.metadata;
        if metadata.namespace.0.is_empty() {
            ObjectKey::cluster(&metadata.name.0)
        } else {
            ObjectKey::new(&metadata.namespace.0, &metadata.name.0)
        }
    }

    pub(crate) fn resource_version(&self) -> ResourceVersion {
        ResourceVersion::from(&*self.metadata.resource_version.0)
    }
}

/// A text that is copied only if it has escapes; `null` is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Text::default())
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Text::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}
