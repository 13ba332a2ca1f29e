//! `Encoded`: an object that remains JSON text until it is accessed.

use std::sync::OnceLock;

use super::plain::plain_len;

/// JSON text of an object that contains only objects, such as `fieldsV1` in `managedFields`. `fieldsV1` contains about
/// half of an object's keys, and most writes only copy, compare and print it.
///
/// The JSON has the server's format, so that equal objects have equal JSON.
#[derive(Debug)]
pub(crate) struct Encoded<M> {
    text: Box<str>,
    levels: usize,
    /// The decoded object, after the first access.
    map: OnceLock<M>,
    read: fn(&str) -> M,
}

impl<M> Encoded<M> {
    /// Creates an object from its JSON text, its number of nested levels, and the function that decodes the text.
    pub(crate) fn new(text: &str, levels: usize, read: fn(&str) -> M) -> Self {
        Self {
            text: text.into(),
            levels,
            map: OnceLock::new(),
            read,
        }
    }

    /// Returns the JSON text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number of nested levels of objects.
    pub(crate) fn levels(&self) -> usize {
        self.levels
    }

    /// Returns `true` if the object is empty.
    pub(crate) fn is_empty(&self) -> bool {
        &*self.text == "{}"
    }

    /// Returns the object, which is decoded on the first access.
    pub(crate) fn map(&self) -> &M {
        self.map.get_or_init(|| (self.read)(&self.text))
    }
}

/// Returns the length in bytes and the depth of the object at the start of `text`. Returns `None` unless the object
/// contains only objects, has the server's format, does not contain empty keys, and has at most `levels_max` levels.
pub(crate) fn encoded_len(text: &str, levels_max: usize) -> Option<(usize, usize)> {
    let mut walk = Walk {
        text: text.as_bytes(),
        at: 0,
        level: 0,
        levels: 0,
        levels_max,
    };
    walk.object()?;
    Some((walk.at, walk.levels))
}

struct Walk<'a> {
    text: &'a [u8],
    at: usize,
    level: usize,
    levels: usize,
    levels_max: usize,
}

impl<'a> Walk<'a> {
    fn next(&mut self) -> Option<u8> {
        let byte = self.text.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn object(&mut self) -> Option<()> {
        self.expect(b'{')?;
        self.level += 1;
        self.levels = self.levels.max(self.level);
        if self.level > self.levels_max {
            return None;
        }
        if self.text.get(self.at) == Some(&b'}') {
            self.at += 1;
        } else {
            let mut before = Key::default();
            loop {
                let key = self.key()?;
                if !before.text.is_empty() && !before.is_before(&key) {
                    return None;
                }
                self.expect(b':')?;
                self.object()?;
                match self.next()? {
                    b',' => before = key,
                    b'}' => break,
                    _ => return None,
                }
            }
        }
        self.level -= 1;
        Some(())
    }

    fn key(&mut self) -> Option<Key<'a>> {
        self.expect(b'"')?;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            self.at += plain_len(self.text.get(self.at..)?);
            match self.next()? {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    // Other escapes are rare, and not all of them have the server's format.
                    if !matches!(self.next()?, b'"' | b'\\') {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        let text = self.text.get(start..self.at - 1)?;
        (!text.is_empty()).then_some(Key { text, has_escapes })
    }
}

/// A key in its escaped form, without its quotes.
#[derive(Clone, Copy, Default)]
struct Key<'a> {
    text: &'a [u8],
    has_escapes: bool,
}

impl Key<'_> {
    /// Returns `true` if this key, unescaped, is sorted before the other key.
    fn is_before(&self, other: &Self) -> bool {
        if self.has_escapes || other.has_escapes {
            return self.bytes().lt(other.bytes());
        }
        self.text < other.text
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        let mut bytes = self.text.iter().copied();
        std::iter::from_fn(move || match bytes.next()? {
            b'\\' => bytes.next(),
            byte => Some(byte),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::api::json::{Map, Value, json};
    use crate::api::print::Printer;
    use crate::api::read::{encoded, read};

    fn owned() -> impl Strategy<Value = Map> {
        let key = r#"[fkv]:(a|b|"|\\|\{"a":1\}|\{"a":"b"\}|é){0,2}|\."#;
        let leaf = Just(Map::new());
        leaf.prop_recursive(4, 30, 5, move |inner| {
            proptest::collection::vec((key, inner.prop_map(Value::Object)), 0..5)
                .prop_map(|entries| entries.into_iter().collect())
        })
    }

    fn printed(map: &Map) -> (String, usize) {
        let mut out = Printer::new(0);
        out.map(map);
        let levels = out.deepest();
        (out.as_text().to_owned(), levels)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn encoded_object_equals_the_parsed_object(map in owned()) {
            let (text, levels) = printed(&map);
            prop_assert_eq!(encoded_len(&text, 127), Some((text.len(), levels)));
            let encoded = encoded(&text, levels);
            prop_assert_eq!(encoded.is_empty(), map.is_empty());
            prop_assert_eq!(printed(&encoded), (text, levels));
            prop_assert_eq!(encoded, map);
        }

        #[test]
        fn encoded_object_is_printed_unchanged(
            text in r#"(\{|\}|"f:a":|"f:b":|"k:\\"":|"\\u0041":|,|:| |1|\{\}|"){0,12}"#,
        ) {
            if let Some((len, levels)) = encoded_len(&text, 127) {
                let Some(Value::Object(map)) = read(&text[..len]).map(|it| it.value) else {
                    return Err(TestCaseError::fail("an encoding is not an object"));
                };
                prop_assert_eq!(printed(&map), (text[..len].to_owned(), levels));
            }
        }
    }

    #[rstest]
    #[case::space("{ }")]
    #[case::value("{\"f:a\":1}")]
    #[case::null("{\"f:a\":null}")]
    #[case::unsorted("{\"f:b\":{},\"f:a\":{}}")]
    #[case::unsorted_without_escapes("{\"k:{\\\"a\\\":\\\"b\\\"}\":{},\"k:{\\\"a\\\":!}\":{}}")]
    #[case::duplicate_key("{\"f:a\":{},\"f:a\":{}}")]
    #[case::escaped_letter("{\"\\u0066:a\":{}}")]
    #[case::truncated("{\"f:a\":{}")]
    #[case::too_deep("{\"f:a\":{\"f:a\":{\"f:a\":{}}}}")]
    fn only_compact_sorted_objects_without_scalars_stay_encoded(#[case] text: &str) {
        assert_eq!(encoded_len(text, 3), None);
    }

    #[test]
    fn encoded_object_is_read_and_changed_like_a_parsed_object() {
        let object = json!({"f:a": {".": {}, "k:{\"b\":\"c\"}": {}}});
        let mut encoded = Value::Object(encoded(&object.to_string(), 3));
        assert_eq!(encoded, object);
        assert_eq!(object, encoded);
        assert_eq!(encoded, encoded.clone());
        assert_ne!(encoded, json!({"f:a": {}}));
        assert_eq!(encoded["f:a"]["."], json!({}));
        assert_eq!(
            serde_json::Value::from(encoded.clone()),
            serde_json::Value::from(object)
        );
        encoded["f:a"] = json!({});
        encoded["f:b"] = json!({});
        assert_eq!(encoded.to_string(), "{\"f:a\":{},\"f:b\":{}}");
    }
}
