//! `ObjectKey`: namespace and name, the word all layers share.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use kube::Resource;

/// Names an object among those of its type. Copies share the text.
///
/// Keys are ordered as the API server lists objects: by namespace, then by name.
///
/// ```
/// use informer::ObjectKey;
///
/// let key = ObjectKey::new("shop", "web-0");
/// assert_eq!(key.to_string(), "shop/web-0");
/// assert_eq!("shop/web-0".parse(), Ok(key));
/// assert_eq!(ObjectKey::cluster("node-1").to_string(), "node-1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// `None` for objects of the cluster.
    namespace: Option<Arc<str>>,
    name: Arc<str>,
}

impl ObjectKey {
    /// An object in a namespace.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: Some(namespace.into()),
            name: name.into(),
        }
    }

    /// An object of the cluster.
    pub fn cluster(name: &str) -> Self {
        Self {
            namespace: None,
            name: name.into(),
        }
    }

    /// The key of an object; its name is empty if the object has none yet.
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
        Self {
            namespace: meta.namespace.as_deref().filter(|it| !it.is_empty()).map(Arc::from),
            name: meta.name.as_deref().unwrap_or_default().into(),
        }
    }

    /// The namespace; `None` for objects of the cluster.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ObjectKey {
    /// `namespace/name`, or `name` for objects of the cluster.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A text that is no key: it has an empty part, or more than two.
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
    fn keys_are_in_the_order_of_a_list() {
        let mut keys = ["b/a", "a/b", "a/a", "c"].map(|it| it.parse::<ObjectKey>().expect("a key"));
        keys.sort();
        assert_eq!(keys.map(|it| it.to_string()), ["c", "a/a", "a/b", "b/a"]);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "/", "a/", "/a", "a/b/c"] {
            let err = text.parse::<ObjectKey>().expect_err(text);
            assert!(err.to_string().contains(text), "{err}");
        }
    }
}
