//! Windows and other systems: the keys of the standard library's maps stay random.

pub(super) const REMEDY: Option<&str> = Some(
    "HashMaps of the standard library have random keys in each run on this platform; only Linux and macOS can fix \
     them. Use maps with fixed keys in your code:\n    \
     use std::{collections::hash_map::DefaultHasher, hash::BuildHasherDefault};\n    \
     type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;",
);

pub(super) fn link() {}
