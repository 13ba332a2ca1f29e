//! `ItemTypes`: the kind and version of the items of a list.

use std::any::TypeId;
use std::borrow::Cow;

use serde_json::json;

use super::Cacheable;
use super::header::Header;

/// Kind and version of the items of a list. For built-in types, kube-apiserver sends them only with the list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ItemTypes {
    /// JSON text of the fields, with a trailing comma; empty if the items do not need them, or they are unknown.
    fields: String,
}

impl ItemTypes {
    /// Returns the types of the items of a list, for items of type `K`. Only types that are not known at compile time
    /// need them.
    pub(crate) fn of_list<K: Cacheable>(kind: &str, api_version: &str) -> Self {
        let is_known = TypeId::of::<K::DynamicType>() == TypeId::of::<()>();
        let kind = kind.strip_suffix("List").unwrap_or(kind);
        if is_known || kind.is_empty() || api_version.is_empty() {
            return Self::default();
        }
        let fields = format!("\"kind\":{},\"apiVersion\":{},", json!(kind), json!(api_version));
        Self { fields }
    }

    /// Returns the text of an item with kind and version, if they are needed.
    pub(crate) fn of_item<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let whole = Header::read_whole(text)
            .ok()
            .and_then(|(header, _)| self.add_to(text, &header));
        whole.map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// Returns the text of an item with kind and version; `None` if they are not needed, or `text` contains one of
    /// them.
    pub(crate) fn add_to(&self, text: &str, header: &Header<'_>) -> Option<String> {
        let fields = text.strip_prefix('{')?;
        let needs_types = !self.fields.is_empty() && !header.has_types() && !fields.trim_start().starts_with('}');
        needs_types.then(|| format!("{{{}{fields}", self.fields))
    }
}
