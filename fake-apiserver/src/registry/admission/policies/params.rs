//! Finds the parameters of a policy: the objects that a binding refers to. The policy is evaluated once for each object
//! (rule P7).

use super::super::attributes::Attributes;
use crate::api::json::{Map, Value};
use crate::api::selector::LabelSelector;
use crate::registry::reader::Reader;
use crate::registry::scheme::codec;
use crate::registry::types::cursor::Cursor;
use crate::storage::{Key, KeyRange};

/// Kind of a policy's parameters: `apiVersion` and `kind`.
pub(super) type ParamKind = (String, String);

/// Returns the kind of a policy's parameters.
pub(super) fn kind_of(spec: &Cursor<'_>) -> Option<ParamKind> {
    let kind = spec.present("paramKind")?;
    Some((kind.text("apiVersion").to_owned(), kind.text("kind").to_owned()))
}

/// Returns the error of a policy with a `paramKind` that does not exist.
pub(super) fn missing_kind(reader: &Reader, kind: Option<&ParamKind>) -> Option<String> {
    let (api_version, kind) = kind?;
    let is_missing = reader.scheme().lookup_kind(api_version, kind).is_none();
    is_missing.then(|| {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        format!(
            "failed to configure policy: failed to find resource referenced by paramKind: '{group}/{version}, \
             Kind={kind}'"
        )
    })
}

/// Returns the parameters for a request. Fails with the reason if the reference is invalid, or if required parameters
/// do not exist. Without a `paramKind` or `paramRef`, returns one null.
pub(super) fn find(
    reader: &Reader,
    kind: Option<&ParamKind>,
    binding: &Map,
    attributes: &Attributes<'_>,
) -> Result<Vec<Value>, String> {
    let Some((api_version, kind)) = kind else {
        return Ok(vec![Value::Null]);
    };
    let binding = Cursor::root(binding);
    let Some(reference) = binding.present("paramRef") else {
        return Ok(vec![Value::Null]);
    };
    let scheme = reader.scheme();
    let row = scheme
        .lookup_kind(api_version, kind)
        .ok_or_else(|| format!("kind {kind} of {api_version} no longer exists"))?;
    let given = reference.text("namespace");
    let namespace = match (row.info.is_namespaced(), given) {
        (true, "") if attributes.namespace.is_empty() => {
            let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(why.to_owned());
        }
        (true, "") => attributes.namespace.as_str(),
        (true, given) => given,
        (false, "") => "",
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
    };
    let shown = |stored: &crate::storage::Stored| Value::Object(codec::decode(&row, stored).0);
    let found: Vec<Value> = match reference.text("name") {
        "" => {
            let selector = reference
                .get("selector")
                .and_then(|it| LabelSelector::from_object(it).ok().flatten());
            let range = KeyRange::of((!namespace.is_empty()).then_some(namespace));
            let snapshot = reader.store.snapshot(&row.storage);
            let selects = |stored: &&std::sync::Arc<crate::storage::Stored>| {
                selector.as_ref().is_some_and(|it| it.matches(|key| stored.label(key)))
            };
            snapshot.range(&range).filter(selects).map(|it| shown(it)).collect()
        }
        name => {
            let stored = reader.store.get(&row.storage, &Key::new(namespace, name));
            stored.iter().map(|it| shown(it)).collect()
        }
    };
    if found.is_empty() && reference.text("parameterNotFoundAction") == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}
