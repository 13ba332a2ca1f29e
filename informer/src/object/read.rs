//! `read`: decodes the text of an object after a [`Scanner`] has scanned it, and allocates vectors with the exact
//! capacity.
//!
//! `serde_json` cannot provide the length of an array before its end, so vectors grow, starting with four elements. The
//! excess capacity is a quarter of the memory of a typed Pod (21.3 KB with excess capacity, 16.1 KB without). The
//! scanner has counted the items, and the reader passes these counts to `Deserialize` implementations. Managed fields
//! are skipped instead of being removed from a copy of the text. The reader only parses the structure; `serde_json`
//! parses numbers, escapes, enums and everything else. If the reader fails, `serde_json` parses the whole object again.
//!
//! Generic code is compiled in the user's crate once per type. To keep this code small, it only calls functions that do
//! not depend on the type.

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Error as JsonError;

use super::scan::{Lengths, Scanner, Stop};

/// Decodes the object in `text`, without the field with the name at offset `left_out`. Returns `None` if `serde_json`
/// has to decode the object.
pub(super) fn read<K: DeserializeOwned>(text: &str, lengths: &Lengths, left_out: Option<usize>) -> Option<K> {
    let mut reader = Reader {
        text,
        scanner: Scanner::new(text.as_bytes()),
        lengths,
        counted: 0,
        left_out,
    };
    let object = K::deserialize(&mut reader).ok()?;
    (reader.scanner.at == text.len()).then_some(object)
}

struct Reader<'a> {
    text: &'a str,
    scanner: Scanner<'a>,
    lengths: &'a Lengths,
    /// Number of entries of `lengths` that were used.
    counted: usize,
    left_out: Option<usize>,
}

impl From<Stop> for JsonError {
    fn from(_: Stop) -> Self {
        Self::custom("the text must be parsed by serde_json")
    }
}

impl<'a> Reader<'a> {
    /// Returns `true` if the next value begins with `byte`.
    fn begins_with(&mut self, byte: u8) -> Result<bool, JsonError> {
        Ok(self.scanner.peek()? == byte)
    }

    /// Advances to the name of the next field. Returns `false` at the end of the object.
    fn goes_to_field(&mut self, progress: &mut Progress) -> Result<bool, JsonError> {
        loop {
            if self.ends(b'}', progress)? {
                return Ok(false);
            }
            self.scanner.peek()?;
            if self.left_out != Some(self.scanner.at) {
                return Ok(true);
            }
            self.scanner.skip()?;
            self.scanner.expect(b':')?;
            self.scanner.skip()?;
        }
    }

    /// At the end of an object or array, consumes `bracket` and returns `true`. Otherwise consumes the comma before the
    /// next element, unless the next element is the first one.
    fn ends(&mut self, bracket: u8, progress: &mut Progress) -> Result<bool, JsonError> {
        if self.scanner.peek()? == bracket {
            self.scanner.at += 1;
            *progress = Progress::Over;
            return Ok(true);
        }
        match progress {
            Progress::Begun => *progress = Progress::Going,
            Progress::Going | Progress::Over => self.scanner.expect(b',')?,
        }
        Ok(false)
    }

    /// Consumes the closing bracket of an object or array, unless it was already consumed.
    fn close(&mut self, bracket: u8, progress: &Progress) -> Result<(), JsonError> {
        match progress {
            Progress::Over => Ok(()),
            Progress::Begun | Progress::Going => Ok(self.scanner.expect(bracket)?),
        }
    }

    fn colon(&mut self) -> Result<(), JsonError> {
        Ok(self.scanner.expect(b':')?)
    }

    /// Consumes the opening bracket of an array. Returns the number of its items, if they were counted.
    fn open_array(&mut self) -> Result<Option<usize>, JsonError> {
        let length = self.length();
        self.scanner.at += 1;
        Ok(if self.scanner.peek()? == b']' { Some(0) } else { length })
    }

    /// Consumes the next value, and returns a deserializer for it.
    fn value(&mut self) -> Result<serde_json::Deserializer<serde_json::de::StrRead<'a>>, JsonError> {
        self.scanner.peek()?;
        let start = self.scanner.at;
        self.scanner.skip()?;
        let text = self.text.get(start..self.scanner.at).unwrap_or_default();
        Ok(serde_json::Deserializer::from_str(text))
    }

    /// Consumes and returns the next string. Consumes nothing and returns `None` if it contains escapes.
    fn plain(&mut self) -> Option<&'a str> {
        let start = self.scanner.at;
        let Ok(bytes) = self.scanner.plain() else {
            self.scanner.at = start;
            return None;
        };
        let end = self.scanner.at - 1;
        self.text.get(end - bytes.len()..end)
    }

    /// Returns the length of the array that begins at the current position, if its items were counted.
    fn length(&mut self) -> Option<usize> {
        let at = self.scanner.at;
        while self.lengths.get(self.counted).is_some_and(|(begin, _)| begin < at) {
            self.counted += 1;
        }
        let (begin, length) = self.lengths.get(self.counted)?;
        (begin == at).then_some(length)
    }

    fn map<V: Visitor<'a>>(&mut self, visitor: V) -> Result<V::Value, JsonError> {
        self.scanner.at += 1;
        let mut fields = Fields {
            reader: self,
            progress: Progress::Begun,
        };
        let value = visitor.visit_map(&mut fields)?;
        let Fields { reader, progress } = fields;
        reader.close(b'}', &progress)?;
        Ok(value)
    }

    fn seq<V: Visitor<'a>>(&mut self, visitor: V) -> Result<V::Value, JsonError> {
        let left = self.open_array()?;
        let mut items = Items {
            reader: self,
            left,
            progress: Progress::Begun,
        };
        let value = visitor.visit_seq(&mut items)?;
        let Items { reader, progress, .. } = items;
        reader.close(b']', &progress)?;
        Ok(value)
    }
}

/// Implements methods of `Deserializer` by delegating to `serde_json`.
macro_rules! left_to_serde_json {
    ($($name:ident)*) => {$(
        fn $name<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, JsonError> {
            self.value()?.$name(visitor)
        }
    )*};
}

/// Returns `true` for names that `serde_json` uses to identify its own types, such as `RawValue`.
fn is_private(name: &str) -> bool {
    name.starts_with("$serde_json::")
}

impl<'a> Deserializer<'a> for &mut Reader<'a> {
    type Error = JsonError;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.scanner.peek()? {
            b'"' => self.deserialize_str(visitor),
            b'{' => self.map(visitor),
            b'[' => self.seq(visitor),
            _ => self.value()?.deserialize_any(visitor),
        }
    }

    fn deserialize_str<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.plain() {
            Some(text) => visitor.visit_borrowed_str(text),
            None => self.value()?.deserialize_str(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, JsonError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, JsonError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, JsonError> {
        if self.begins_with(b'n')? {
            return self.value()?.deserialize_option(visitor);
        }
        visitor.visit_some(self)
    }

    fn deserialize_map<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, JsonError> {
        if self.begins_with(b'{')? {
            return self.map(visitor);
        }
        self.value()?.deserialize_map(visitor)
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        if self.begins_with(b'{')? && !is_private(name) {
            return self.map(visitor);
        }
        self.value()?.deserialize_struct(name, fields, visitor)
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, JsonError> {
        if self.begins_with(b'[')? {
            return self.seq(visitor);
        }
        self.value()?.deserialize_seq(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(self, name: &'static str, visitor: V) -> Result<V::Value, JsonError> {
        if is_private(name) {
            self.value()?.deserialize_newtype_struct(name, visitor)
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        self.value()?.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, length: usize, visitor: V) -> Result<V::Value, JsonError> {
        self.value()?.deserialize_tuple(length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'a>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        self.value()?.deserialize_tuple_struct(name, length, visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'a>>(self, name: &'static str, visitor: V) -> Result<V::Value, JsonError> {
        self.value()?.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, JsonError> {
        self.scanner.skip()?;
        visitor.visit_unit()
    }

    left_to_serde_json! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_bytes deserialize_byte_buf deserialize_unit
    }
}

/// Progress within an object or array.
enum Progress {
    Begun,
    Going,
    Over,
}

/// Access to the fields of an object.
struct Fields<'r, 'a> {
    reader: &'r mut Reader<'a>,
    progress: Progress,
}

impl<'a> MapAccess<'a> for Fields<'_, 'a> {
    type Error = JsonError;

    fn next_key_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, JsonError> {
        if self.reader.goes_to_field(&mut self.progress)? {
            return seed.deserialize(Name(self.reader)).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<S::Value, JsonError> {
        self.reader.colon()?;
        seed.deserialize(&mut *self.reader)
    }
}

/// Deserializer for the name of a field.
struct Name<'r, 'a>(&'r mut Reader<'a>);

impl<'de> Deserializer<'de> for Name<'_, 'de> {
    type Error = JsonError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        self.0.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        let text = self.0.plain().ok_or(Stop::Unusual)?;
        visitor.visit_enum(BorrowedStrDeserializer::new(text))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// Access to the elements of an array.
struct Items<'r, 'a> {
    reader: &'r mut Reader<'a>,
    left: Option<usize>,
    progress: Progress,
}

impl<'a> SeqAccess<'a> for Items<'_, 'a> {
    type Error = JsonError;

    fn next_element_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, JsonError> {
        if self.reader.ends(b']', &mut self.progress)? {
            return Ok(None);
        }
        self.left = self.left.and_then(|it| it.checked_sub(1));
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::Pod;
    use serde::Deserialize;
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::*;

    fn read_all<K: DeserializeOwned>(text: &str) -> Option<K> {
        let mut scanner = Scanner::new(text.as_bytes());
        scanner.skip().expect("the text can be scanned");
        read(text, scanner.lengths(), None)
    }

    #[derive(Debug, PartialEq, Deserialize)]
    enum Policy {
        Always,
        Limited(u8),
    }

    #[derive(Debug, Deserialize)]
    struct Odd {
        policies: Vec<Policy>,
        by_policy: BTreeMap<String, Option<(u8, bool)>>,
        raw: Box<RawValue>,
        #[serde(flatten)]
        rest: BTreeMap<String, Value>,
    }

    #[test]
    fn values_of_all_types_are_decoded_as_in_serde_json() {
        let text =
            r#"{"policies":["Always",{"Limited":3}], "by_policy": {"a\"":[1,true],"b":null}, "raw": {"a" : 1.50},
            "x":[[1,-2],[3e2,"\u00e4"],[]],"y":{"z":18446744073709551615}} "#
                .trim_end();
        let (ours, theirs): (Odd, Odd) = (
            read_all(text).expect("the read succeeds"),
            serde_json::from_str(text).expect("the text is valid JSON"),
        );
        assert_eq!(ours.policies, theirs.policies);
        assert_eq!(ours.by_policy, theirs.by_policy);
        assert_eq!(ours.raw.get(), theirs.raw.get());
        assert_eq!(ours.rest, theirs.rest);
    }

    #[test]
    fn decoded_vectors_have_the_exact_capacity() {
        let text = r#"{"metadata":{"finalizers":["a","b"]},"spec":{"containers":[{"name":"a","args":["1","2","3"]}]}}"#;
        let pod: Pod = read_all(text).expect("the object is a Pod");
        assert_eq!(pod, serde_json::from_str(text).expect("the object is a Pod"));
        assert_eq!(pod.metadata.finalizers.as_ref().map(Vec::capacity), Some(2));
        let containers = pod.spec.expect("the object has a spec").containers;
        assert_eq!(containers[0].args.as_ref().map(Vec::capacity), Some(3));
    }

    #[test]
    fn read_returns_none_for_invalid_objects() {
        assert!(read_all::<BTreeMap<i32, u8>>(r#"{"1":2}"#).is_none());
        assert!(read_all::<Pod>(r#"{"spec":{"containers":1}}"#).is_none());
    }
}
