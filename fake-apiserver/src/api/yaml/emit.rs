//! Writes YAML: block style with sorted keys and unindented lists, like go-yaml 2.

use std::cmp::Ordering;

use super::emitter::Emitter;
use super::scalar;
use crate::api::json::{Map, Value};

/// Maximum length of a simple key in bytes. Longer keys are written as `? key`.
const MAX_SIMPLE_KEY: usize = 128;

/// Formats a value as a YAML document with a trailing line feed.
pub(crate) fn to_string(value: &Value) -> String {
    let mut emitter = Emitter {
        out: String::new(),
        column: 0,
        whitespace: true,
        indention: true,
    };
    emitter.node(value, None, false);
    emitter.indent(0);
    emitter.out
}

impl Emitter {
    /// Writes a node inside a collection with this indentation (`None` at the root). `in_mapping` is set for the value
    /// of a key.
    fn node(&mut self, value: &Value, indent: Option<usize>, in_mapping: bool) {
        match value {
            Value::Object(map) if map.is_empty() => self.empty("{", "}"),
            Value::Array(list) if list.is_empty() => self.empty("[", "]"),
            Value::Object(map) => self.mapping(map, indent.map_or(0, |it| it + 2)),
            Value::Array(list) => {
                // A list that is the value of a key is not indented.
                let is_flush = in_mapping && !self.indention;
                let indent = indent.map_or(0, |it| if is_flush { it } else { it + 2 });
                for item in list {
                    self.indent(indent);
                    self.indicator("-", true, true);
                    self.node(item, Some(indent), false);
                }
            }
            Value::Null => self.plain("null"),
            Value::Bool(it) => self.plain(if *it { "true" } else { "false" }),
            Value::Number(it) => match it.as_f64() {
                Some(float) if it.is_f64() => self.plain(&scalar::float(float)),
                _ => self.plain(&it.to_string()),
            },
            Value::String(text) => scalar::write(self, text, indent.map_or(2, |it| it + 2), false),
        }
    }

    fn mapping(&mut self, map: &Map, indent: usize) {
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_by(|(a, _), (b, _)| key_order(a, b));
        for (key, value) in entries {
            self.indent(indent);
            if key.len() > MAX_SIMPLE_KEY || key.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']) {
                self.indicator("?", true, true);
                scalar::write(self, key, indent + 2, false);
                self.indent(indent);
                self.indicator(":", true, true);
            } else {
                scalar::write(self, key, indent + 2, true);
                self.indicator(":", false, false);
            }
            self.node(value, Some(indent), true);
        }
    }

    fn empty(&mut self, open: &str, close: &str) {
        self.indicator(open, true, false);
        self.whitespace = true;
        self.indicator(close, false, false);
    }

    fn plain(&mut self, text: &str) {
        if !self.whitespace {
            self.push(' ');
        }
        for c in text.chars() {
            self.push(c);
        }
        self.whitespace = false;
        self.indention = false;
    }
}

/// Compares keys in go-yaml's order: letters after all other characters, digits by their numeric value.
fn key_order(a: &str, b: &str) -> Ordering {
    let (left, right): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = left.iter().zip(&right).position(|(l, r)| l != r) else {
        return left.len().cmp(&right.len());
    };
    let (l, r) = (left[at], right[at]);
    match (l.is_alphabetic(), r.is_alphabetic()) {
        (true, true) => return l.cmp(&r),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // A zero is only significant after a digit other than zero in the same number.
    let is_inside_number = (l == '0' || r == '0')
        && left[..at]
            .iter()
            .rev()
            .take_while(|it| it.is_ascii_digit())
            .any(|it| *it != '0');
    let number = |chars: &[char]| {
        let digits = chars[at..].iter().map_while(|it| it.to_digit(10));
        digits.fold((i64::from(is_inside_number), at), |(sum, end), digit| {
            (sum.wrapping_mul(10).wrapping_add(i64::from(digit)), end + 1)
        })
    };
    number(&left).cmp(&number(&right)).then(l.cmp(&r))
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;
    use rstest::rstest;

    use super::super::parse;
    use super::*;

    #[test]
    fn config_map_is_written_as_in_go() {
        let object = json!({
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {
                "name": "a", "creationTimestamp": "2006-01-02T15:04:05Z", "resourceVersion": "12",
                "managedFields": [{"manager": "m", "fieldsV1": {"f:data": {".": {}, "f:k": {}}}}],
            },
            "data": {"k": "v", "multi": "a\nb\n", "n": "5"},
        });
        let expected = "\
apiVersion: v1
data:
  k: v
  multi: |
    a
    b
  \"n\": \"5\"
kind: ConfigMap
metadata:
  creationTimestamp: \"2006-01-02T15:04:05Z\"
  managedFields:
  - fieldsV1:
      f:data:
        .: {}
        f:k: {}
    manager: m
  name: a
  resourceVersion: \"12\"
";
        assert_eq!(to_string(&object), expected);
    }

    #[test]
    fn long_strings_are_folded() {
        let status = json!({
            "message": "only the following media types are accepted: application/json;stream=watch, \
                        application/vnd.kubernetes.protobuf;stream=watch",
            "code": 406,
        });
        let expected = "\
code: 406
message: 'only the following media types are accepted: application/json;stream=watch,
  application/vnd.kubernetes.protobuf;stream=watch'
";
        assert_eq!(to_string(&status), expected);
    }

    #[test]
    fn lists_are_not_indented_below_their_keys() {
        let value = json!({"rows": [{"cells": ["r", "", null, -1.5, [[]]], "object": null}], "e": [], "m": {}});
        let expected = "\
e: []
m: {}
rows:
- cells:
  - r
  - \"\"
  - null
  - -1.5
  - - []
  object: null
";
        assert_eq!(to_string(&value), expected);
    }

    #[rstest]
    #[case(json!({"a": "x\ny"}), "a: |-\n  x\n  y\n")]
    #[case(json!({"a": "x\n\n"}), "a: |+\n  x\n\n")]
    #[case(json!({"a": " x\n"}), "a: |2\n   x\n")]
    #[case(json!({"a": "x \n"}), "a: \"x \\n\"\n")]
    #[case(json!({"a": "tab\there"}), "a: \"tab\\there\"\n")]
    #[case(json!({"a": "1:30"}), "a: \"1:30\"\n")]
    #[case(json!({"a": "it's: b"}), "a: 'it''s: b'\n")]
    #[case(json!({"a": "- b"}), "a: '- b'\n")]
    #[case(json!({"a": "-b"}), "a: -b\n")]
    #[case(json!({"a": "é 😀"}), "a: \"é \\U0001F600\"\n")]
    #[case(json!({"a": 1e21}), "a: 1e+21\n")]
    #[case(json!({"a": 0.1}), "a: 0.1\n")]
    #[case(json!({"a10": 1, "a9": 2, "a-b": 3, "": 4}), "\"\": 4\na-b: 3\na9: 2\na10: 1\n")]
    #[case(json!("x"), "x\n")]
    #[case(json!({}), "{}\n")]
    fn values_are_printed_as_in_go(#[case] value: Value, #[case] expected: &str) {
        let text = to_string(&value);
        assert_eq!(text, expected);
        assert_eq!(parse(text.as_bytes()).expect("the text is valid YAML").value, value);
    }

    #[test]
    fn long_keys_are_written_as_complex_keys() {
        let key = "k".repeat(129);
        let text = to_string(&json!({&key: {"a": 1}}));
        assert_eq!(text, format!("? {key}\n: a: 1\n"));
    }
}
