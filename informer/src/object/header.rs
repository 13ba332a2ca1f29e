//! `Header`: the metadata that caches need. It is usually parsed in a single pass, which also checks that the object is
//! valid JSON.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, Visitor};
use serde_json::Error as JsonError;
use serde_json::value::RawValue;

use super::scan::{Lengths, Scanner, Stop};
use crate::{ObjectKey, ResourceVersion};

/// Metadata of an object, borrowed from its JSON text.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Header<'a> {
    #[serde(borrow, default)]
    pub(crate) metadata: Metadata<'a>,
    /// Set if the object has a kind.
    #[serde(default)]
    kind: Option<IgnoredAny>,
    /// Set if the object has a version of its type.
    #[serde(default, rename = "apiVersion")]
    api_version: Option<IgnoredAny>,
    /// Lengths of the arrays in the text, if [`Scanner`] could parse it.
    #[serde(skip)]
    pub(super) lengths: Option<Lengths>,
}

/// The fields of `ObjectMeta` that caches use.
#[derive(Debug, Default, PartialEq, Eq, serde::Deserialize)]
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
    pub(crate) deletion_timestamp: Option<Raw<'a>>,
    #[serde(borrow)]
    pub(crate) labels: Option<Raw<'a>>,
    #[serde(borrow)]
    pub(crate) annotations: Option<Raw<'a>>,
    #[serde(borrow)]
    pub(crate) owner_references: Option<Raw<'a>>,
    #[serde(borrow)]
    pub(crate) managed_fields: Option<Raw<'a>>,
}

impl<'a> Header<'a> {
    /// Parses the object at the beginning of `text`. Returns the header and the text of the object; `None` if the text
    /// ends before the object does.
    pub(crate) fn read(text: &'a [u8]) -> Result<Option<(Self, &'a str)>, JsonError> {
        match Self::scan(text) {
            Ok(read) => Ok(Some(read)),
            Err(Stop::Ended) => Ok(None),
            Err(Stop::Unusual) => Self::parse(text),
        }
    }

    /// Parses a text that contains the whole object.
    pub(crate) fn read_whole(text: &'a str) -> Result<(Self, &'a str), JsonError> {
        Self::read(text.as_bytes())?.ok_or_else(|| JsonError::custom("the object is incomplete"))
    }

    /// Parses JSON in the form in which servers write it.
    fn scan(bytes: &'a [u8]) -> Result<(Self, &'a str), Stop> {
        let mut scanner = Scanner::new(bytes);
        let (mut metadata, mut kind, mut api_version) = (None, None, None);
        scanner.fields(|scanner, name| {
            match name {
                b"metadata" => {}
                b"kind" => {
                    kind = Some(IgnoredAny);
                    return scanner.skip();
                }
                b"apiVersion" => {
                    api_version = Some(IgnoredAny);
                    return scanner.skip();
                }
                _ => return scanner.skip(),
            }
            // Objects with repeated fields are parsed by `serde_json`.
            match metadata.replace(Metadata::scan(scanner)?) {
                None => Ok(()),
                Some(_) => Err(Stop::Unusual),
            }
        })?;
        let text = text(&bytes[..scanner.at])?;
        let (mut metadata, managed) = metadata.unwrap_or_default();
        metadata.managed_fields = managed.and_then(|range| text.get(range)).and_then(Raw::of);
        let lengths = Some(*scanner.lengths());
        let header = Self {
            metadata,
            kind,
            api_version,
            lengths,
        };
        Ok((header, text))
    }

    /// Parses arbitrary JSON, using `serde_json`.
    #[cold]
    fn parse(bytes: &'a [u8]) -> Result<Option<(Self, &'a str)>, JsonError> {
        let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Self>();
        match values.next() {
            Some(Ok(header)) => {
                let text = std::str::from_utf8(&bytes[..values.byte_offset()]).map_err(JsonError::custom)?;
                Ok(Some((header, text)))
            }
            Some(Err(err)) if err.is_eof() => Ok(None),
            Some(Err(err)) => Err(err),
            None => Ok(None),
        }
    }

    /// Returns `true` if the object has a kind, or a version of its type.
    pub(crate) fn has_types(&self) -> bool {
        self.kind.is_some() || self.api_version.is_some()
    }

    /// Returns the namespace and name. Bookmarks have an empty name.
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

impl<'a> Metadata<'a> {
    /// Returns the fields other than `managedFields`, and the position of the value of `managedFields`. This value is
    /// long, and is only checked together with the whole text.
    fn scan(scanner: &mut Scanner<'a>) -> Result<(Self, Option<Range<usize>>), Stop> {
        let (mut it, mut managed) = (Self::default(), None);
        let mut seen = 0_u16;
        scanner.fields(|scanner, name| {
            let field = match name {
                b"name" => {
                    it.name = Text::scan(scanner)?;
                    1
                }
                b"namespace" => {
                    it.namespace = Text::scan(scanner)?;
                    1 << 1
                }
                b"resourceVersion" => {
                    it.resource_version = Text::scan(scanner)?;
                    1 << 2
                }
                b"uid" => {
                    it.uid = Text::scan(scanner)?;
                    1 << 3
                }
                b"generation" => {
                    it.generation = Some(count(scanner.value()?)?);
                    1 << 4
                }
                b"deletionTimestamp" => {
                    it.deletion_timestamp = Raw::scan(scanner)?;
                    1 << 5
                }
                b"labels" => {
                    it.labels = Raw::scan(scanner)?;
                    1 << 6
                }
                b"annotations" => {
                    it.annotations = Raw::scan(scanner)?;
                    1 << 7
                }
                b"ownerReferences" => {
                    it.owner_references = Raw::scan(scanner)?;
                    1 << 8
                }
                b"managedFields" => {
                    let value = scanner.value()?;
                    managed = Some(scanner.at - value.len()..scanner.at);
                    1 << 9
                }
                _ => return scanner.skip(),
            };
            let is_first = seen & field == 0;
            seen |= field;
            if is_first { Ok(()) } else { Err(Stop::Unusual) }
        })?;
        Ok((it, managed))
    }
}

fn text(bytes: &[u8]) -> Result<&str, Stop> {
    std::str::from_utf8(bytes).map_err(|_| Stop::Unusual)
}

fn count(bytes: &[u8]) -> Result<i64, Stop> {
    if !bytes.iter().all(u8::is_ascii_digit) {
        return Err(Stop::Unusual);
    }
    text(bytes)?.parse().map_err(|_| Stop::Unusual)
}

/// Returns the string at the beginning of `bytes`, with its length including quotes. Returns `None` if the string
/// contains escapes.
pub(crate) fn plain_text(bytes: &[u8]) -> Option<(&str, usize)> {
    let mut scanner = Scanner::new(bytes);
    let text = text(scanner.plain().ok()?).ok()?;
    Some((text, scanner.at))
}

/// JSON text of a value other than `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raw<'a>(pub(crate) &'a str);

impl<'a> Raw<'a> {
    fn scan(scanner: &mut Scanner<'a>) -> Result<Option<Self>, Stop> {
        Ok(Self::of(text(scanner.value()?)?))
    }

    fn of(value: &'a str) -> Option<Self> {
        (value != "null").then_some(Self(value))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Self(raw.get()))
    }
}

/// A string that borrows from the JSON text unless it contains escapes. `null` is decoded as an empty string.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'a> Text<'a> {
    fn scan(scanner: &mut Scanner<'a>) -> Result<Self, Stop> {
        Ok(Self(Cow::Borrowed(text(scanner.plain()?)?)))
    }
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::body::{Managed, keep, name_to_cut};
    use super::super::read::read;
    use super::*;

    /// Generates JSON texts with white space, escapes, and field names with a special meaning.
    fn value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            Just(r#""\ud800""#.to_owned()),
            Just(r#""a\u0062c\n""#.to_owned()),
            Just("01".to_owned()),
            any::<i64>().prop_map(|it| it.to_string()),
            any::<f64>().prop_map(|it| format!("{it:e}")),
            "[a-zä\"\\\\ /\u{1}{}\\[\\],:]{0,80}".prop_map(|it| serde_json::Value::from(it).to_string()),
            "[a-z]{0,12}".prop_map(|it| format!("\"{it}\"")),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                (prop::collection::vec(inner.clone(), 0..4), blank())
                    .prop_map(|(items, blank)| format!("[{}{blank}]", items.join(&format!("{blank},{blank}")))),
                object(inner),
            ]
        })
    }

    fn object(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
        let fields = prop::collection::vec((field_name(), inner), 0..6);
        (fields, blank()).prop_map(|(fields, blank)| {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("\"{name}\"{blank}:{blank}{value}{blank}"))
                .collect();
            format!("{{{blank}{}}}", fields.join(&format!(",{blank}")))
        })
    }

    fn field_name() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "metadata",
            "meta\\u0064ata",
            "name",
            "namespace",
            "resourceVersion",
            "uid",
            "generation",
            "deletionTimestamp",
            "labels",
            "annotations",
            "ownerReferences",
            "managedFields",
            "spec",
            "a\\\"b",
            "",
        ])
    }

    fn blank() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["", "", "", " ", "\n\t", "\r  "])
    }

    proptest! {
        /// If the scanner succeeds, its result equals the result of `serde_json`. If the scanner reports the end of the
        /// text, `serde_json` does the same.
        #[test]
        fn header_scanner_agrees_with_the_parser(
            texts in prop::collection::vec(object(prop_oneof![value(), object(value())]), 1..3),
            damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = texts.join(",").into_bytes();
            if let Some((at, byte)) = damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            match (Header::scan(&bytes), Header::parse(&bytes)) {
                (Ok((scanned, text)), Ok(Some((parsed, whole)))) => {
                    let typed = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
                    for managed in [Managed::Keep, Managed::Cut] {
                        let left_out = name_to_cut(text, &scanned, managed);
                        let lengths = scanned.lengths.as_ref().expect("the header was scanned");
                        if let Some(read) = read::<serde_json::Value>(text, lengths, left_out) {
                            prop_assert_eq!(Some(read), typed(&keep(text, &scanned, managed).0));
                        }
                    }
                    prop_assert_eq!((scanned.metadata, text), (parsed.metadata, whole));
                }
                (Ok(scanned), Ok(None)) => prop_assert!(false, "there is more to come after {:?}", scanned),
                (Ok(scanned), Err(err)) => prop_assert!(false, "{:?} is not JSON: {}", scanned, err),
                (Err(Stop::Ended), Ok(Some(parsed))) => prop_assert!(false, "it ends after {:?}", parsed),
                (Err(_), Ok(_) | Err(_)) => {}
            }
        }
    }

    #[test]
    fn scanner_reads_server_output() {
        let fields =
            r#""name":"a","namespace":"b","resourceVersion":"7","uid":"u","generation":3,"labels":{"a":"\"ä"}"#;
        for text in [
            format!(r#"{{"kind":"Pod","metadata":{{{fields}}},"spec":{{"n":[-1.5e+3,true,null,{{}},[]]}}}}"#),
            format!(
                "{{ \"metadata\" :\n{{ {fields} }} , \"x\": \"{}\" }}",
                "long ".repeat(40)
            ),
        ] {
            let (header, whole) = Header::scan(text.as_bytes()).expect("the text can be scanned");
            assert_eq!(whole, text);
            assert_eq!(header.key(), ObjectKey::new("b", "a"));
            assert_eq!(header.resource_version(), ResourceVersion::from("7"));
            assert_eq!(header.metadata.generation, Some(3));
            assert_eq!(header.metadata.labels, Some(Raw(r#"{"a":"\"ä"}"#)));
        }
    }

    #[test]
    fn deeply_nested_headers_are_read_by_serde_json() {
        for (depth, is_usual) in [(60, true), (100, false)] {
            let text = format!("{{\"spec\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
            assert_eq!(Header::scan(text.as_bytes()).is_ok(), is_usual, "{depth}");
            Header::read_whole(&text).expect("the text is valid JSON");
        }
    }
}
