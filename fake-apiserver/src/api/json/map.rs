//! `SortedMap`: the fields of a JSON object, sorted by name.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::sync::Arc;

use smol_str::SmolStr;

use super::encoded::Encoded;

/// Maximum number of entries in a sorted slice. Larger maps are trees, so that many inserts in any order stay fast.
const FEW_MAX: usize = 128;

/// Maximum number of entries of a map that is searched linearly: comparing lengths and bytes of short names is faster
/// than a binary search.
const SCANNED_MAX: usize = 16;

/// The fields of a JSON object, always sorted by name, regardless of serde_json's features.
///
/// Objects usually have few fields, so maps of up to 128 entries are sorted slices. Larger maps are trees. Names of up
/// to 23 bytes are stored inline.
///
/// An object that contains only objects may remain text until it is accessed ([`Encoded`]).
///
/// Copies only share long strings and encoded objects. Sharing other unchanged parts had no measurable benefit, because
/// defaulting accesses the whole object mutably.
#[derive(Clone)]
pub(crate) struct SortedMap<V> {
    /// Bits of the keys that are or were in the map; all bits for encoded text. An unset bit proves that a key is
    /// absent, which saves a search: validation rules look up many more fields than an object has.
    marks: u64,
    entries: Entries<V>,
}

#[derive(Clone)]
#[expect(
    clippy::box_collection,
    reason = "a map, and with it every value, is a quarter smaller"
)]
enum Entries<V> {
    Few(Vec<(SmolStr, V)>),
    Many(Box<BTreeMap<SmolStr, V>>),
    /// The JSON text of a map that has not been modified yet.
    Text(Arc<Encoded<SortedMap<V>>>),
}

/// The borrowed entries of a map.
enum View<'a, V> {
    Few(&'a [(SmolStr, V)]),
    Many(&'a BTreeMap<SmolStr, V>),
}

/// The mutably borrowed entries of a map.
enum ViewMut<'a, V> {
    Few(&'a mut Vec<(SmolStr, V)>),
    Many(&'a mut BTreeMap<SmolStr, V>),
}

impl<V> Default for SortedMap<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: PartialEq> PartialEq for SortedMap<V> {
    fn eq(&self, other: &Self) -> bool {
        if let (Entries::Text(one), Entries::Text(other)) = (&self.entries, &other.entries) {
            return one.text() == other.text();
        }
        match (self.view(), other.view()) {
            (View::Few(few), View::Few(other)) => few == other,
            (View::Many(many), View::Many(other)) => many == other,
            _ => self.len() == other.len() && self.iter().eq(other.iter()),
        }
    }
}

/// Returns the bit that represents a key. It depends on the first four bytes up to a dot, so that a dotted path has the
/// bit of its first step.
fn mark(way: &str) -> u64 {
    let head = match *way.as_bytes() {
        [a, b, c, d, ..] => [a, b, c, d],
        [a, b, c] => [a, b, c, 0],
        [a, b] => [a, b, 0, 0],
        [a] => [a, 0, 0, 0],
        [] => [0; 4],
    };
    let mut head = u32::from_le_bytes(head);
    let dots = dots(head.into()) as u32;
    if dots != 0 {
        // Keep the bytes before the first dot.
        head &= (1 << (dots.trailing_zeros() - 7)) - 1;
    }
    1 << (((u64::from(head) * 0x9e37_79b1) >> 26) & 63)
}

/// Sets the high bit of each byte that is a dot. No sum of two bytes carries into the next byte.
fn dots(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const LOW: u64 = ONES * 0x7f;
    let others = word ^ (ONES * b'.' as u64);
    !(((others & LOW) + LOW) | others | LOW)
}

/// Splits a dotted path into its first step and the remaining path. Usually a path is one step of about twelve bytes,
/// so eight bytes are compared at a time.
pub(super) fn next_step(way: &str) -> (&str, &str) {
    let bytes = way.as_bytes();
    let mut at = 0;
    while let Some(word) = bytes[at..].first_chunk() {
        let dots = dots(u64::from_le_bytes(*word));
        if dots != 0 {
            at += dots.trailing_zeros() as usize / 8;
            return (&way[..at], &way[at + 1..]);
        }
        at += 8;
    }
    while at < bytes.len() {
        if bytes[at] == b'.' {
            return (&way[..at], &way[at + 1..]);
        }
        at += 1;
    }
    (way, "")
}

impl<V> SortedMap<V> {
    /// Creates an empty map without allocating.
    pub(crate) const fn new() -> Self {
        Self {
            marks: 0,
            entries: Entries::Few(Vec::new()),
        }
    }

    fn view(&self) -> View<'_, V> {
        match &self.entries {
            Entries::Few(few) => View::Few(few),
            Entries::Many(many) => View::Many(many),
            Entries::Text(encoded) => encoded.map().view(),
        }
    }

    /// Returns the encoded object, if the map is still JSON text.
    pub(crate) fn encoded(&self) -> Option<&Encoded<Self>> {
        match &self.entries {
            Entries::Text(encoded) => Some(encoded),
            Entries::Few(_) | Entries::Many(_) => None,
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        match self.view() {
            View::Few(few) => few.len(),
            View::Many(many) => many.len(),
        }
    }

    /// Returns `true` if the map is empty.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.entries {
            Entries::Few(few) => few.is_empty(),
            Entries::Many(many) => many.is_empty(),
            Entries::Text(encoded) => encoded.is_empty(),
        }
    }

    /// Returns `false` if the map certainly lacks the key with which `way` begins. It only compares the marks (a Bloom
    /// filter), so `true` may be wrong.
    pub(super) fn may_lead(&self, way: &str) -> bool {
        self.marks & mark(way) != 0
    }

    /// Returns the value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&V> {
        if !self.may_lead(key) {
            return None;
        }
        self.find(key)
    }

    /// Returns the value of a key, without checking the marks first.
    pub(super) fn find(&self, key: &str) -> Option<&V> {
        match self.view() {
            View::Few(few) => place(few, key).map(|at| &few[at].1),
            View::Many(many) => many.get(key),
        }
    }

    /// Returns the key as it is stored, with its value.
    pub(crate) fn get_key_value(&self, key: &str) -> Option<(&SmolStr, &V)> {
        match self.view() {
            View::Few(few) => place(few, key).map(|at| (&few[at].0, &few[at].1)),
            View::Many(many) => many.get_key_value(key),
        }
    }

    /// Returns `true` if the map contains the key.
    pub(crate) fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Iterates over the entries in the order of their keys.
    pub(crate) fn iter(&self) -> Iter<'_, V> {
        match self.view() {
            View::Few(few) => Iter::Few(few.iter()),
            View::Many(many) => Iter::Many(many.iter()),
        }
    }

    /// Iterates over the keys in order.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = &SmolStr> + DoubleEndedIterator {
        self.iter().map(|(key, _)| key)
    }

    /// Iterates over the values in the order of their keys.
    pub(crate) fn values(&self) -> impl ExactSizeIterator<Item = &V> + DoubleEndedIterator {
        self.iter().map(|(_, value)| value)
    }
}

impl<V: Clone> SortedMap<V> {
    /// Builds a map from entries in any order. If a key occurs twice, the last value is kept.
    pub(crate) fn of_entries(entries: Vec<(SmolStr, V)>) -> Self {
        if entries.len() > FEW_MAX || !entries.is_sorted_by(|(one, _), (other, _)| one < other) {
            return entries.into_iter().collect();
        }
        Self {
            marks: entries.iter().fold(0, |marks, (key, _)| marks | mark(key)),
            entries: Entries::Few(entries),
        }
    }

    /// Decodes the JSON text, if the map is not decoded yet.
    fn open(&mut self) {
        if let Entries::Text(encoded) = &self.entries {
            *self = encoded.map().clone();
        }
    }

    fn view_mut(&mut self) -> ViewMut<'_, V> {
        self.open();
        match &mut self.entries {
            Entries::Few(few) => ViewMut::Few(few),
            Entries::Many(many) => ViewMut::Many(many),
            Entries::Text(_) => unreachable!("the text was decoded above"),
        }
    }

    /// Returns a mutable reference to the value of a key.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        if !self.may_lead(key) {
            return None;
        }
        match self.view_mut() {
            ViewMut::Few(few) => place(few, key).map(|at| &mut few[at].1),
            ViewMut::Many(many) => many.get_mut(key),
        }
    }

    /// Sets the value of a key; returns the previous value.
    pub(crate) fn insert(&mut self, key: SmolStr, value: V) -> Option<V> {
        self.open();
        self.marks |= mark(&key);
        let few = match self.view_mut() {
            ViewMut::Few(few) => few,
            ViewMut::Many(many) => return many.insert(key, value),
        };
        // Fast path: entries usually arrive in the order of their keys.
        let at = match few.last() {
            Some((last, _)) if last.as_str() >= key.as_str() => search(few, &key),
            _ => Err(few.len()),
        };
        match at {
            Ok(at) => return Some(std::mem::replace(&mut few[at].1, value)),
            Err(at) if few.len() < FEW_MAX => few.insert(at, (key, value)),
            Err(_) => {
                let mut many: BTreeMap<SmolStr, V> = std::mem::take(few).into_iter().collect();
                many.insert(key, value);
                self.entries = Entries::Many(Box::new(many));
            }
        }
        None
    }

    /// Removes a key; returns its value.
    pub(crate) fn remove(&mut self, key: &str) -> Option<V> {
        if !self.contains_key(key) {
            return None;
        }
        match self.view_mut() {
            ViewMut::Few(few) => place(few, key).map(|at| few.remove(at).1),
            ViewMut::Many(many) => many.remove(key),
        }
    }

    /// Keeps the entries for which `keep` returns `true`.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&SmolStr, &mut V) -> bool) {
        match self.view_mut() {
            ViewMut::Few(few) => few.retain_mut(|(key, value)| keep(key, value)),
            ViewMut::Many(many) => many.retain(keep),
        }
    }

    /// Returns the entry of a key, which may be vacant.
    pub(crate) fn entry(&mut self, key: impl Into<SmolStr>) -> Entry<'_, V> {
        Entry {
            map: self,
            key: key.into(),
        }
    }

    /// Iterates over the entries in the order of their keys, with mutable values.
    pub(crate) fn iter_mut(&mut self) -> IterMut<'_, V> {
        match self.view_mut() {
            ViewMut::Few(few) => IterMut::Few(few.iter_mut()),
            ViewMut::Many(many) => IterMut::Many(many.iter_mut()),
        }
    }

    /// Iterates mutably over the values in the order of their keys.
    pub(crate) fn values_mut(&mut self) -> impl ExactSizeIterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }
}

/// Returns the index of a key in a sorted slice.
fn place<V>(few: &[(SmolStr, V)], key: &str) -> Option<usize> {
    if few.len() > SCANNED_MAX {
        return search(few, key).ok();
    }
    // Without optimisation, an iterator would cost more than the comparisons.
    let mut at = 0;
    while at < few.len() {
        let name = &few[at].0;
        if name.len() == key.len() && name.as_str() == key {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// Searches for a key in a sorted slice. Returns its index, or the index at which it would be inserted.
fn search<V>(few: &[(SmolStr, V)], key: &str) -> Result<usize, usize> {
    few.binary_search_by(|(it, _)| it.as_str().cmp(key))
}

impl<V> From<Encoded<Self>> for SortedMap<V> {
    fn from(encoded: Encoded<Self>) -> Self {
        Self {
            marks: u64::MAX,
            entries: Entries::Text(Arc::new(encoded)),
        }
    }
}

/// An entry of a map, from [`SortedMap::entry`].
pub(crate) struct Entry<'a, V> {
    map: &'a mut SortedMap<V>,
    key: SmolStr,
}

impl<'a, V: Clone> Entry<'a, V> {
    /// Returns the value of the key, after inserting `value` if the key is absent.
    pub(crate) fn or_insert(self, value: V) -> &'a mut V {
        self.or_insert_with(|| value)
    }

    /// Returns the value of the key, after inserting the result of `make` if the key is absent.
    pub(crate) fn or_insert_with(self, make: impl FnOnce() -> V) -> &'a mut V {
        if !self.map.contains_key(&self.key) {
            self.map.insert(self.key.clone(), make());
        }
        self.map.get_mut(&self.key).expect("the value was just inserted")
    }
}

impl<V: fmt::Debug> fmt::Debug for SortedMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

/// If a key occurs twice, the last value is kept.
impl<K: Into<SmolStr>, V: Clone> FromIterator<(K, V)> for SortedMap<V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<K: Into<SmolStr>, V: Clone> Extend<(K, V)> for SortedMap<V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key.into(), value);
        }
    }
}

/// The entries of a map in the order of their keys.
#[derive(Clone, Debug)]
pub(crate) enum Iter<'a, V> {
    Few(std::slice::Iter<'a, (SmolStr, V)>),
    Many(btree_map::Iter<'a, SmolStr, V>),
}

impl<'a, V> Iterator for Iter<'a, V> {
    type Item = (&'a SmolStr, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Few(few) => few.next().map(|(key, value)| (key, value)),
            Self::Many(many) => many.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Few(few) => few.size_hint(),
            Self::Many(many) => many.size_hint(),
        }
    }
}

impl<V> DoubleEndedIterator for Iter<'_, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::Few(few) => few.next_back().map(|(key, value)| (key, value)),
            Self::Many(many) => many.next_back(),
        }
    }
}

impl<V> ExactSizeIterator for Iter<'_, V> {}

/// The entries of a map, with mutable values.
#[derive(Debug)]
pub(crate) enum IterMut<'a, V> {
    Few(std::slice::IterMut<'a, (SmolStr, V)>),
    Many(btree_map::IterMut<'a, SmolStr, V>),
}

impl<'a, V> Iterator for IterMut<'a, V> {
    type Item = (&'a SmolStr, &'a mut V);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Few(few) => few.next().map(|(key, value)| (&*key, value)),
            Self::Many(many) => many.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Few(few) => few.size_hint(),
            Self::Many(many) => many.size_hint(),
        }
    }
}

impl<V> ExactSizeIterator for IterMut<'_, V> {}

/// Iterator over the entries of a map that it consumes.
#[derive(Debug)]
pub(crate) enum IntoIter<V> {
    Few(std::vec::IntoIter<(SmolStr, V)>),
    Many(btree_map::IntoIter<SmolStr, V>),
}

impl<V> Iterator for IntoIter<V> {
    type Item = (SmolStr, V);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Few(few) => few.next(),
            Self::Many(many) => many.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Few(few) => few.size_hint(),
            Self::Many(many) => many.size_hint(),
        }
    }
}

impl<V> ExactSizeIterator for IntoIter<V> {}

impl<V: Clone> IntoIterator for SortedMap<V> {
    type Item = (SmolStr, V);
    type IntoIter = IntoIter<V>;

    fn into_iter(self) -> IntoIter<V> {
        match self.entries {
            Entries::Few(few) => IntoIter::Few(few.into_iter()),
            Entries::Many(many) => IntoIter::Many(many.into_iter()),
            Entries::Text(encoded) => encoded.map().clone().into_iter(),
        }
    }
}

impl<'a, V> IntoIterator for &'a SortedMap<V> {
    type Item = (&'a SmolStr, &'a V);
    type IntoIter = Iter<'a, V>;

    fn into_iter(self) -> Iter<'a, V> {
        self.iter()
    }
}

impl<'a, V: Clone> IntoIterator for &'a mut SortedMap<V> {
    type Item = (&'a SmolStr, &'a mut V);
    type IntoIter = IterMut<'a, V>;

    fn into_iter(self) -> IterMut<'a, V> {
        self.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A change to a map.
    #[derive(Clone, Debug)]
    enum Change {
        Insert(String, u64),
        Remove(String),
        Default(String),
        Retain(u64),
    }

    fn change() -> impl Strategy<Value = Change> {
        // Enough names for maps of all three sizes.
        let name = || "[a-z]{1,2}";
        prop_oneof![
            8 => (name(), any::<u64>()).prop_map(|(name, value)| Change::Insert(name, value)),
            2 => name().prop_map(Change::Remove),
            1 => name().prop_map(Change::Default),
            1 => (20..100u64).prop_map(Change::Retain),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn map_behaves_like_a_btree_map(changes in prop::collection::vec(change(), 0..400), name in "[a-z]{1,2}") {
            let (mut map, mut tree) = (SortedMap::new(), BTreeMap::new());
            for change in changes {
                match change {
                    Change::Insert(name, value) => {
                        let old = map.insert(name.as_str().into(), value);
                        prop_assert_eq!(old, tree.insert(name, value));
                    }
                    Change::Remove(name) => prop_assert_eq!(map.remove(&name), tree.remove(&name)),
                    Change::Default(name) => {
                        let value = map.entry(name.as_str()).or_insert(7).to_owned();
                        prop_assert_eq!(value, tree.entry(name).or_insert(7).to_owned());
                    }
                    Change::Retain(part) => {
                        let keeps = |value: &u64| *value % 100 < part;
                        map.retain(|_, value| keeps(value));
                        tree.retain(|_, value| keeps(value));
                    }
                }
                prop_assert_eq!(map.len(), tree.len());
            }
            prop_assert_eq!(map.get(&name), tree.get(&name));
            prop_assert_eq!(map.get_key_value(&name).map(|it| it.1), tree.get(&name));
            prop_assert!(map.keys().eq(tree.keys()) && map.values().eq(tree.values()));
            prop_assert!(map.iter().rev().map(|(key, _)| key.as_str()).eq(tree.keys().rev()));
            // A map that was large before equals a map that was never large.
            let again: SortedMap<u64> = tree.into_iter().collect();
            prop_assert_eq!(&map, &again);
            prop_assert!(map.into_iter().eq(again));
        }
    }
}
