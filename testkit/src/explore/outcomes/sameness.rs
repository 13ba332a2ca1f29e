//! Comparison of two stored objects by their bytes, without the fields that always differ between runs. Most objects
//! are equal, and decoding would dominate the cost of comparing end states.

use fake_apiserver::StoredObject;
use memchr::memmem;

/// Returns `true` if the objects are equal except for their own uids, creation times and managed fields, and if they
/// have the same owners. If the result is `false`, the objects may still be equal, and must be decoded.
///
/// `means_the_same` compares the uid of an owner in the first object with the uid of an owner in the other object.
pub(crate) fn are_the_same(objects: [&StoredObject; 2], means_the_same: &dyn Fn(&str, &str) -> bool) -> bool {
    let [mut left, mut right] = objects.map(Text::of);
    loop {
        let (one, other) = (left.next(), right.next());
        let is_same = match (one, other) {
            (None, None) => return true,
            (Some(Part::Own(one)), Some(Part::Own(other))) => one == other,
            (Some(Part::Owner(one)), Some(Part::Owner(other))) => means_the_same(one, other),
            (Some(Part::Text(one)), Some(Part::Text(other))) => one == other,
            _ => false,
        };
        if !is_same {
            return false;
        }
    }
}

/// Returns the uids of an object's owners.
pub(crate) fn owners(object: &StoredObject) -> Vec<String> {
    if memmem::find(object.stored_bytes(), b"\"ownerReferences\"").is_none() {
        return Vec::new();
    }
    let mut text = Text::of(object);
    let parts = std::iter::from_fn(|| text.next()).take_while(|it| !matches!(it, Part::Unclear));
    let owner = |part| match part {
        Part::Owner(uid) => Some(uid.to_owned()),
        Part::Text(_) | Part::Own(_) | Part::Unclear => None,
    };
    parts.filter_map(owner).collect()
}

/// A token of an object's JSON.
#[derive(Clone, Copy)]
enum Part<'a> {
    /// A string with its quotes, or the bytes between two strings.
    Text(&'a [u8]),
    /// The name of a field that always differs between runs, such as `uid` or `creationTimestamp`.
    Own(&'a [u8]),
    /// The uid of an owner.
    Owner(&'a str),
    /// Bytes that do not have the form of a stored object.
    Unclear,
}

/// The JSON text of a stored object, split into parts one at a time.
struct Text<'a> {
    rest: &'a [u8],
    depth: u32,
    is_metadata: bool,
}

impl<'a> Text<'a> {
    fn of(object: &'a StoredObject) -> Self {
        // The bytes of a stored object begin within its metadata.
        Self {
            rest: object.stored_bytes(),
            depth: 1,
            is_metadata: true,
        }
    }

    /// Returns the next part; `None` at the end.
    fn next(&mut self) -> Option<Part<'a>> {
        let first = *self.rest.first()?;
        Some(self.part(first).unwrap_or(Part::Unclear))
    }

    /// Returns the next part; `None` if an expected string is missing.
    fn part(&mut self, first: u8) -> Option<Part<'a>> {
        let string = match first {
            b'"' => self.string()?,
            _ => {
                let end = self.rest.iter().position(|it| *it == b'"').unwrap_or(self.rest.len());
                let text = self.take(end);
                for byte in text {
                    match byte {
                        b'{' | b'[' => self.depth += 1,
                        b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                        _ => {}
                    }
                }
                self.is_metadata &= self.depth > 0;
                return Some(Part::Text(text));
            }
        };
        if !self.is_metadata || self.rest.first() != Some(&b':') {
            return Some(Part::Text(string));
        }
        match (string, self.depth) {
            (b"\"uid\"" | b"\"creationTimestamp\"", 1) => {
                self.take(1);
                self.string()?;
                Some(Part::Own(string))
            }
            (b"\"managedFields\"", 1) => {
                self.take(1);
                self.skip_value();
                Some(Part::Own(string))
            }
            // An owner is an object in an array of the metadata. Other objects at this depth do not have a uid.
            (b"\"uid\"", 3) => {
                self.take(1);
                let uid = std::str::from_utf8(self.string()?).ok()?;
                Some(Part::Owner(uid.trim_matches('"')))
            }
            _ => Some(Part::Text(string)),
        }
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Reads a string with its quotes; returns `None` if the rest does not begin with a string.
    fn string(&mut self) -> Option<&'a [u8]> {
        if self.rest.first() != Some(&b'"') {
            return None;
        }
        let mut at = 1;
        loop {
            match self.rest.get(at)? {
                b'"' => return Some(self.take(at + 1)),
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
    }

    /// Skips an array or an object.
    fn skip_value(&mut self) {
        let mut depth = 0_u32;
        while let Some(byte) = self.rest.first() {
            match byte {
                b'"' => {
                    if self.string().is_none() {
                        return;
                    }
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.take(1);
            if depth == 0 {
                return;
            }
        }
    }
}
