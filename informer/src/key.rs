//! `ObjectKey`: the namespace and name of an object.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use foldhash::fast::RandomState;
use kube::Resource;

/// Identifies an object among the objects of its type. Clones share the allocated string.
///
/// Keys are ordered by namespace, then by name. Keys of cluster-scoped objects are first.
///
/// ```
/// use informer::ObjectKey;
///
/// let key = ObjectKey::new("shop", "web-0");
/// assert_eq!(key.to_string(), "shop/web-0");
/// assert_eq!("shop/web-0".parse(), Ok(key));
/// assert_eq!(ObjectKey::cluster("node-1").to_string(), "node-1");
/// ```
#[derive(Clone)]
pub struct ObjectKey {
    /// `namespace/name`, or `name`. A single allocation with a single reference count.
    text: Arc<str>,
    /// Offset of the name in `text`; 0 for cluster-scoped objects.
    name: u32,
    /// Hash of the text, computed once because each key is looked up in several maps.
    hash: u32,
}

/// The hasher has a random seed in each process, so that users cannot choose names that collide.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// Returns a hash of `text`. The hash differs between processes.
pub(crate) fn hash_of(text: &str) -> u32 {
    let hash = HASHER.hash_one(text);
    (hash ^ hash >> 32) as u32
}

impl ObjectKey {
    /// Creates the key of a namespaced object.
    pub fn new(namespace: &str, name: &str) -> Self {
        let mut text = String::with_capacity(namespace.len() + 1 + name.len());
        text.push_str(namespace);
        text.push('/');
        text.push_str(name);
        Self::of_text(&text, namespace.len() + 1)
    }

    /// Creates the key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self::of_text(name, 0)
    }

    fn of_text(text: &str, name: usize) -> Self {
        Self {
            text: text.into(),
            // The conversion cannot fail, because no namespace has a length of four billion bytes.
            name: u32::try_from(name).unwrap_or_default(),
            hash: hash_of(text),
        }
    }

    /// Returns the key of an object; its name is empty if the object does not have one yet.
    ///
    /// ```
    /// use informer::ObjectKey;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let mut pod = Pod::default();
    /// pod.metadata.namespace = Some("shop".into());
    /// pod.metadata.name = Some("web-0".into());
    /// assert_eq!(ObjectKey::of(&pod), ObjectKey::new("shop", "web-0"));
    /// ```
    pub fn of(object: &impl Resource) -> Self {
        let meta = object.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        match meta.namespace.as_deref() {
            None | Some("") => Self::cluster(name),
            Some(namespace) => Self::new(namespace, name),
        }
    }

    /// Returns the namespace; `None` for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        let end = (self.name as usize).checked_sub(1)?;
        Some(&self.text[..end])
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.text[self.name as usize..]
    }

    /// Returns the hash of the key. The hash differs between processes.
    pub(crate) fn hash_code(&self) -> u32 {
        self.hash
    }
}

impl PartialEq for ObjectKey {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.name == other.name && self.text == other.text
    }
}

impl Eq for ObjectKey {}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let namespaces = self.namespace().cmp(&other.namespace());
        namespaces.then_with(|| self.name().cmp(other.name()))
    }
}

impl Hash for ObjectKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.hash);
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectKey")
            .field("namespace", &self.namespace())
            .field("name", &self.name())
            .finish()
    }
}

impl fmt::Display for ObjectKey {
    /// Formats the key as `namespace/name`, or `name` for cluster-scoped objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Error for a key with an empty part or with more than two parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseKeyError(String);

impl fmt::Display for ParseKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is neither \"name\" nor \"namespace/name\"", self.0)
    }
}

impl std::error::Error for ParseKeyError {}

impl FromStr for ObjectKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let parts: Vec<_> = text.split('/').collect();
        match parts[..] {
            [name] if !name.is_empty() => Ok(Self::cluster(name)),
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => Ok(Self::new(namespace, name)),
            _ => Err(ParseKeyError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_keys_sort_like_a_kubernetes_list() {
        let mut keys = ["b/a", "a/b", "a/a", "c"].map(|it| it.parse::<ObjectKey>().expect("the key is valid"));
        keys.sort();
        assert_eq!(keys.map(|it| it.to_string()), ["c", "a/a", "a/b", "b/a"]);
    }

    #[test]
    fn keys_with_different_namespaces_or_names_are_not_equal() {
        let keys = [
            ObjectKey::cluster("a"),
            ObjectKey::cluster("a/b"),
            ObjectKey::new("a", "b"),
            ObjectKey::new("", "a/b"),
            ObjectKey::new("a", ""),
        ];
        let parts = keys.each_ref().map(|it| (it.namespace(), it.name()));
        assert_eq!(
            parts,
            [
                (None, "a"),
                (None, "a/b"),
                (Some("a"), "b"),
                (Some(""), "a/b"),
                (Some("a"), "")
            ]
        );
        for (at, one) in keys.iter().enumerate() {
            for (other_at, other) in keys.iter().enumerate() {
                assert_eq!(one == other, at == other_at, "{one:?} {other:?}");
                assert_eq!(one.cmp(other), parts[at].cmp(&parts[other_at]), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn invalid_object_key_is_refused() {
        for text in ["", "/", "a/", "/a", "a/b/c"] {
            let err = text.parse::<ObjectKey>().expect_err(text);
            assert!(err.to_string().contains(text), "{err}");
        }
    }
}
