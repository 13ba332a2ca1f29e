//! `KeyedItems`: the stored items of a list of type `map`, searched by their keys.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::api::json::Value;

/// The stored items of a list of type `map` (`MapList` of k8s.io/apiserver).
#[derive(Debug)]
pub(super) struct KeyedItems<'a> {
    keys: &'a [String],
    items: &'a [Value],
    /// The first item with each combination of keys. Filled by the first search for an item that has moved, because
    /// comparing each item with each other item would be quadratic.
    by_keys: OnceCell<BTreeMap<String, &'a Value>>,
}

impl<'a> KeyedItems<'a> {
    pub(super) fn new(keys: &'a [String], items: &'a [Value]) -> Self {
        Self {
            keys,
            items,
            by_keys: OnceCell::new(),
        }
    }

    /// Returns the stored item with the keys of `item`, which has this index in the new list.
    pub(super) fn get(&self, index: usize, item: &Value) -> Option<&'a Value> {
        let is_same = |it: &&Value| self.keys.iter().all(|key| it.get(key) == item.get(key));
        // In most cases, the item has the same index.
        if let Some(found) = self.items.get(index).filter(is_same) {
            return Some(found);
        }
        let by_keys = self.by_keys.get_or_init(|| {
            let mut first = BTreeMap::new();
            for it in self.items {
                first.entry(self.text(it)).or_insert(it);
            }
            first
        });
        by_keys.get(&self.text(item)).copied()
    }

    /// Returns the keys of an item as text. A missing key differs from null.
    fn text(&self, item: &Value) -> String {
        let mut text = String::new();
        for key in self.keys {
            if let Some(value) = item.get(key) {
                let _ = write!(text, "{value}");
            }
            text.push(',');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;

    use super::*;

    #[rstest::rstest]
    #[case::same_index(1, json!({"a": 2, "b": "x"}), Some("second"))]
    #[case::moved(0, json!({"a": 2, "b": "x"}), Some("second"))]
    #[case::first_of_equal_keys(7, json!({"a": 1, "b": "x"}), Some("first"))]
    #[case::missing_key(0, json!({"a": 1}), Some("without b"))]
    #[case::null_key(0, json!({"a": 1, "b": null}), None)]
    #[case::key_of_another_type(0, json!({"a": "1", "b": "x"}), None)]
    #[case::separator_in_a_key(0, json!({"a": 1, "b": "x,"}), None)]
    fn items_are_found_by_all_keys(#[case] index: usize, #[case] item: Value, #[case] expected: Option<&str>) {
        let items = [
            json!({"a": 1, "b": "x", "v": "first"}),
            json!({"a": 2, "b": "x", "v": "second"}),
            json!({"a": 1, "b": "x", "v": "third"}),
            json!({"a": 1, "v": "without b"}),
        ];
        let keys = ["a".to_owned(), "b".to_owned()];
        let found = KeyedItems::new(&keys, &items).get(index, &item);
        assert_eq!(found.and_then(|it| it.get("v")?.as_str()), expected);
    }
}
