//! `ListReader` and `Lines`: parse a response incrementally, while it arrives. Objects are parsed one by one, and only
//! unparsed bytes are buffered.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny};
use serde_json::Error as JsonError;

use crate::object::{Cacheable, Header, ItemTypes, Text, plain_text};
use crate::{Error, ResourceVersion};

/// The annotation of the bookmark that marks the end of the initial events of a watch.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Bytes that have arrived but have not been parsed yet.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    at: usize,
}

impl Buffer {
    fn push(&mut self, piece: &[u8]) {
        // The remaining bytes are few: usually a part of one object.
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(piece);
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Skips white space, and returns the next byte without consuming it.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.rest();
        let blank = rest.iter().take_while(|it| it.is_ascii_whitespace()).count();
        self.at += blank;
        self.rest().first().copied()
    }
}

/// Parses the JSON value at the beginning of `bytes`. Returns it with its length in bytes.
fn value<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, usize), JsonError> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<T>();
    match values.next() {
        Some(value) => value.map(|value| (value, values.byte_offset())),
        None => Err(JsonError::custom("nothing")),
    }
}

/// Parses the JSON string at the beginning of `bytes`. Returns it with the length of its JSON text.
fn text(bytes: &[u8]) -> Result<(Cow<'_, str>, usize), JsonError> {
    match plain_text(bytes) {
        Some((text, length)) => Ok((Cow::Borrowed(text), length)),
        None => value::<Text<'_>>(bytes).map(|(text, length)| (text.0, length)),
    }
}

/// Metadata of a list, available after all of its objects have been read.
#[derive(Debug, Default)]
pub(crate) struct ListEnd {
    pub(crate) resource_version: ResourceVersion,
    /// Token of the next page; empty after the last page.
    pub(crate) continue_token: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta<'a> {
    #[serde(borrow)]
    resource_version: Text<'a>,
    #[serde(borrow, rename = "continue")]
    continue_token: Text<'a>,
}

/// Position of the reader within the list document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Begin,
    Name,
    Value(Field),
    Items,
    AfterValue,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Kind,
    ApiVersion,
    Metadata,
    Items,
    Other,
}

/// Parses a list document incrementally.
#[derive(Debug, Default)]
pub(crate) struct ListReader {
    kind: String,
    api_version: String,
    /// Returns the types of the items, given the kind and version of the list.
    types_of: Option<fn(&str, &str) -> ItemTypes>,
    types: ItemTypes,
    buffer: Buffer,
    place: Place,
    /// Number of bytes that must be buffered before the next attempt to parse.
    enough: usize,
    /// Set if the document is a list: it has `items`, or its kind ends in `List`.
    is_list: bool,
    end: ListEnd,
}

impl ListReader {
    /// Creates a reader that adds the types of items of type `K` to their texts, if they need them.
    pub(crate) fn new<K: Cacheable>() -> Self {
        Self {
            types_of: Some(ItemTypes::of_list::<K>),
            ..Self::default()
        }
    }

    /// Adds the next chunk of the document, and calls `item` with each complete object.
    pub(crate) fn push(&mut self, piece: &[u8], item: &mut dyn FnMut(&str, &Header<'_>)) -> Result<(), Error> {
        self.buffer.push(piece);
        if self.buffer.rest().len() >= self.enough {
            self.read(false, item)?;
        }
        Ok(())
    }

    /// Parses the remaining document. Fails if it is incomplete or not a list.
    pub(crate) fn finish(mut self, item: &mut dyn FnMut(&str, &Header<'_>)) -> Result<ListEnd, Error> {
        self.read(true, item)?;
        let fault = match self.place {
            Place::End if self.buffer.peek().is_some() => "unexpected data after the end of the list",
            Place::End if !self.is_list => "not a list",
            Place::End => return Ok(self.end),
            Place::Begin | Place::Name | Place::Value(_) | Place::Items | Place::AfterValue => "the list is incomplete",
        };
        Err(Error::decode("a list", JsonError::custom(fault)))
    }

    fn read(&mut self, is_all: bool, item: &mut dyn FnMut(&str, &Header<'_>)) -> Result<(), Error> {
        self.enough = 0;
        while self.place != Place::End {
            match self.step(item) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(err) if err.is_eof() && !is_all => {
                    // Avoids parsing a long object from its start after every short chunk.
                    self.enough = self.buffer.rest().len() * 2;
                    return Ok(());
                }
                Err(err) => return Err(Error::decode("a list", err)),
            }
        }
        Ok(())
    }

    /// Parses the next token, value or object. Returns `false` if more bytes are needed.
    fn step(&mut self, item: &mut dyn FnMut(&str, &Header<'_>)) -> Result<bool, JsonError> {
        let Some(next) = self.buffer.peek() else {
            return Ok(false);
        };
        let (place, length) = match (self.place, next) {
            (Place::Begin, b'{') | (Place::AfterValue, b',') => (Place::Name, 1),
            (Place::AfterValue | Place::Name, b'}') => (Place::End, 1),
            (Place::Name, b'"') => {
                let (name, length) = value::<Text<'_>>(self.buffer.rest())?;
                let after = &self.buffer.rest()[length..];
                let blank = after.iter().take_while(|it| it.is_ascii_whitespace()).count();
                match after.get(blank) {
                    Some(b':') => (Place::Value(Field::of(&name.0)), length + blank + 1),
                    Some(_) => return Err(JsonError::custom("a field has no value")),
                    None => return Ok(false),
                }
            }
            (Place::Value(Field::Items), b'[') => {
                self.is_list = true;
                let types_of = self.types_of.map(|it| it(&self.kind, &self.api_version));
                self.types = types_of.unwrap_or_default();
                (Place::Items, 1)
            }
            (Place::Value(field), _) => {
                let length = self.field(field)?;
                if length == self.buffer.rest().len() {
                    // The next chunk may continue the number. A list document never ends with a number.
                    return Ok(false);
                }
                (Place::AfterValue, length)
            }
            (Place::Items, b',') => (Place::Items, 1),
            (Place::Items, b']') => (Place::AfterValue, 1),
            (Place::Items, _) => {
                let Some((header, object)) = Header::read(self.buffer.rest())? else {
                    // Avoids parsing a long object from its start after every short chunk.
                    self.enough = self.buffer.rest().len() * 2;
                    return Ok(false);
                };
                match self.types.add_to(object, &header) {
                    Some(whole) => item(&whole, &Header::read_whole(&whole)?.0),
                    None => item(object, &header),
                }
                (Place::Items, object.len())
            }
            (Place::Begin | Place::Name | Place::AfterValue | Place::End, _) => {
                return Err(JsonError::custom("no list"));
            }
        };
        self.buffer.at += length;
        self.place = place;
        Ok(true)
    }

    /// Parses the value of a field other than the array `items`. Returns its length in bytes.
    fn field(&mut self, field: Field) -> Result<usize, JsonError> {
        let bytes = self.buffer.rest();
        match field {
            Field::Kind => {
                let (kind, length) = value::<Text<'_>>(bytes)?;
                if kind.0 == "Table" {
                    return Err(JsonError::custom("a Table is not a list of objects"));
                }
                self.is_list |= kind.0.ends_with("List");
                self.kind = kind.0.into_owned();
                Ok(length)
            }
            Field::ApiVersion => {
                let (version, length) = value::<Text<'_>>(bytes)?;
                self.api_version = version.0.into_owned();
                Ok(length)
            }
            Field::Metadata => {
                let (metadata, length) = value::<ListMeta<'_>>(bytes)?;
                self.end = ListEnd {
                    resource_version: ResourceVersion::from(&*metadata.resource_version.0),
                    continue_token: metadata.continue_token.0.into_owned(),
                };
                Ok(length)
            }
            // Arrays are parsed by `step`; here `items` can only be null.
            Field::Items => value::<()>(bytes).map(|(_, length)| length),
            Field::Other => value::<IgnoredAny>(bytes).map(|(_, length)| length),
        }
    }
}

impl Field {
    fn of(name: &str) -> Self {
        match name {
            "kind" => Self::Kind,
            "apiVersion" => Self::ApiVersion,
            "metadata" => Self::Metadata,
            "items" => Self::Items,
            _ => Self::Other,
        }
    }
}

/// Splits a watch response into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    buffer: Buffer,
    /// Number of unread bytes that were searched and do not contain the end of a line.
    searched: usize,
}

impl Lines {
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.buffer.push(piece);
    }

    /// Returns the next complete, non-empty line.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        loop {
            let rest = self.buffer.rest();
            let Some(at) = memchr::memchr(b'\n', &rest[self.searched..]) else {
                self.searched = rest.len();
                return None;
            };
            let (start, length) = (self.buffer.at, self.searched + at);
            self.buffer.at += length + 1;
            self.searched = 0;
            if !self.buffer.bytes[start..start + length].trim_ascii().is_empty() {
                return self.buffer.bytes.get(start..start + length);
            }
        }
    }
}

/// One event of a watch.
#[derive(Debug)]
pub(crate) struct WatchLine<'a> {
    /// Type of the event, such as `ADDED`.
    pub(crate) kind: Cow<'a, str>,
    /// The JSON text of the object.
    pub(crate) object: &'a str,
    pub(crate) header: Header<'a>,
}

impl<'a> WatchLine<'a> {
    /// Parses a line as a watch event.
    pub(crate) fn read(line: &'a [u8]) -> Result<Self, JsonError> {
        let missing = || JsonError::custom("the line is not a watch event");
        let mut rest = line.trim_ascii_start().strip_prefix(b"{").ok_or_else(missing)?;
        let (mut kind, mut object) = (None, None);
        loop {
            let (name, length) = text(rest)?;
            rest = rest[length..]
                .trim_ascii_start()
                .strip_prefix(b":")
                .ok_or_else(missing)?
                .trim_ascii_start();
            let length = match &*name {
                "type" => {
                    let (text, length) = text(rest)?;
                    kind = Some(text);
                    length
                }
                "object" => {
                    let read = Header::read(rest)?.ok_or_else(missing)?;
                    let length = read.1.len();
                    object = Some(read);
                    length
                }
                _ => value::<IgnoredAny>(rest)?.1,
            };
            rest = rest[length..].trim_ascii_start();
            match rest.first() {
                Some(b',') => rest = rest[1..].trim_ascii_start(),
                Some(b'}') => break,
                Some(_) | None => return Err(missing()),
            }
        }
        let (Some(kind), Some((header, object))) = (kind, object) else {
            return Err(missing());
        };
        Ok(Self { kind, object, header })
    }

    /// Returns `true` for the bookmark that marks the end of the initial events.
    pub(crate) fn ends_initial_events(&self) -> bool {
        let annotations = self.header.metadata.annotations.map(|raw| raw.0).unwrap_or_default();
        let annotations: BTreeMap<Text<'_>, Text<'_>> = serde_json::from_str(annotations).unwrap_or_default();
        annotations
            .iter()
            .any(|(name, value)| name.0 == INITIAL_EVENTS_END && value.0 == "true")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#" {"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"ab\"c"},
        "items":[{"metadata":{"name":"ä","uid":"\u00e4"}} , {"metadata":{"name":"b"},"x":[1,{"a":"]}"}]}], "more": 12 }"#;

    fn read(pieces: &mut dyn Iterator<Item = &[u8]>) -> Result<(Vec<String>, ListEnd), Error> {
        let mut names = Vec::new();
        let mut item = |_: &str, header: &Header<'_>| names.push(header.key().to_string());
        let mut reader = ListReader::default();
        for piece in pieces {
            reader.push(piece, &mut item)?;
        }
        let end = reader.finish(&mut item)?;
        Ok((names, end))
    }

    #[test]
    fn list_may_arrive_in_chunks_of_any_size() {
        for size in 1..LIST.len() {
            let (names, end) = read(&mut LIST.as_bytes().chunks(size)).expect("the list can be read");
            assert_eq!(names, ["ä", "b"], "the list arrives in chunks of {size} bytes");
            assert_eq!(end.resource_version, ResourceVersion::from("9"));
            assert_eq!(end.continue_token, "ab\"c");
        }
    }

    #[test]
    fn body_that_is_not_a_list_is_refused() {
        for end in 0..LIST.len() - 1 {
            read(&mut [&LIST.as_bytes()[..end]].into_iter()).expect_err("the list is truncated");
        }
        for text in [
            "[]",
            "{\"kind\" 1}",
            r#"{"kind":"Table"}"#,
            r#"{"items":[1]}"#,
            r#"{"items":[{},}"#,
        ] {
            read(&mut [text.as_bytes()].into_iter()).expect_err(text);
        }
    }

    #[test]
    fn watch_lines_may_arrive_in_chunks_of_any_size() {
        let text = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n\n\
                    {\"object\":{\"metadata\":{\"name\":\"b\"}},\"type\":\"DELETED\"}\nhalf";
        for size in 1..text.len() {
            let (mut lines, mut seen) = (Lines::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                lines.push(piece);
                while let Some(line) = lines.next() {
                    let event = WatchLine::read(line).expect("the text is an event");
                    seen.push(format!("{} {}", event.kind, event.header.key()));
                }
            }
            assert_eq!(
                seen,
                ["ADDED a", "DELETED b"],
                "the lines arrive in chunks of {size} bytes"
            );
        }
    }
}
