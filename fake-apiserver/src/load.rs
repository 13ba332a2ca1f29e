//! Reads objects from files: hand-written manifests, and dumps in the format of `kubectl get -o yaml`.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = fake_apiserver::ApiServer::builder().start();
//! let manifests = fake_apiserver::load::read(["config/crd", "testdata/shop.yaml"])?;
//! server.load(manifests.into_iter().map(|manifest| manifest.object))?;
//! # Ok(()) }
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::api::yaml;

/// Extensions of the files that are read from a directory. A file that is passed by path may have any name.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Maximum nesting of directories, or of lists within lists; deeper nesting is an error.
const DEPTH_BOUND: usize = 32;

/// One object of a file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Manifest {
    /// Location of the manifest: the file, the document if the file has several, and the item if the document is a
    /// list.
    pub place: String,
    /// The object, with `apiVersion` and `kind`.
    pub object: Value,
}

/// Error for a file that cannot be read or parsed, or that contains values other than objects with a kind. The message
/// contains the location and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct ReadError {
    place: String,
    reason: String,
}

impl ReadError {
    fn new(place: impl Into<String>, reason: impl ToString) -> Self {
        let (place, reason) = (place.into(), reason.to_string());
        Self { place, reason }
    }
}

/// Formats objects as a stream of YAML documents, which [`from_text`] reads again.
///
/// ```
/// use fake_apiserver::load;
/// use serde_json::json;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
/// let text = load::to_text([&map]);
/// assert_eq!(load::from_text(&text)?[0].object, map);
/// # Ok(())
/// # }
/// ```
pub fn to_text<'a>(objects: impl IntoIterator<Item = &'a Value>) -> String {
    let documents = objects.into_iter();
    documents
        .map(|it| format!("---\n{}", yaml::to_string(&it.clone().into())))
        .collect()
}

/// Reads files and directories of YAML and JSON. A file may have several documents; the items of lists are read as
/// separate objects.
///
/// Directories are read recursively, in the order of names; their files must have the extension `yaml`, `yml` or
/// `json`, others are ignored. CustomResourceDefinitions are returned first, then namespaces, then the other objects,
/// each in the order of the files.
pub fn read<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Vec<Manifest>, ReadError> {
    let mut manifests = Vec::new();
    for path in paths {
        let mut files = Vec::new();
        find_files(path.as_ref(), 0, &mut files)?;
        for file in files {
            let text = fs::read_to_string(&file).map_err(|err| ReadError::new(file.display().to_string(), err))?;
            parse(&file.display().to_string(), &text, &mut manifests)?;
        }
    }
    manifests.sort_by_key(|manifest| rank(&manifest.object));
    Ok(manifests)
}

/// Reads a dump of a cluster from a directory, as written by `oc adm must-gather` or `kubectl cluster-info dump`. Files
/// for which [`read`] would fail, such as logs with the extension of a manifest, are skipped. Returns the objects, in
/// the order of [`read`], and a line for each skipped file.
pub fn read_dump(path: impl AsRef<Path>) -> Result<(Vec<Manifest>, Vec<String>), ReadError> {
    let (mut manifests, mut left_out, mut files) = (Vec::new(), Vec::new(), Vec::new());
    find_files(path.as_ref(), 0, &mut files)?;
    for file in files {
        let place = file.display().to_string();
        let read = fs::read_to_string(&file).map_err(|err| ReadError::new(place.as_str(), err));
        let mut found = Vec::new();
        match read.and_then(|text| parse(&place, &text, &mut found)) {
            Ok(()) => manifests.append(&mut found),
            Err(err) => left_out.push(err.to_string()),
        }
    }
    manifests.sort_by_key(|manifest| rank(&manifest.object));
    Ok((manifests, left_out))
}

/// Reads objects from a YAML or JSON string, in the same order as [`read`].
pub fn from_text(text: &str) -> Result<Vec<Manifest>, ReadError> {
    let mut manifests = Vec::new();
    parse("text", text, &mut manifests)?;
    manifests.sort_by_key(|manifest| rank(&manifest.object));
    Ok(manifests)
}

/// Returns the rank of an object in the order of creation: prerequisites first.
fn rank(object: &Value) -> u8 {
    match object["kind"].as_str() {
        Some("CustomResourceDefinition") => 0,
        Some("Namespace") => 1,
        _ => 2,
    }
}

/// Finds the files to read: `path` itself, or the manifests below it if it is a directory.
fn find_files(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), ReadError> {
    let place = || path.display().to_string();
    let fail = |err: std::io::Error| ReadError::new(place(), err);
    if !fs::metadata(path).map_err(fail)?.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    if depth == DEPTH_BOUND {
        return Err(ReadError::new(place(), "directories are nested too deeply"));
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(fail)? {
        entries.push(entry.map_err(fail)?.path());
    }
    entries.sort();
    for entry in entries {
        let is_manifest = entry
            .extension()
            .is_some_and(|it| EXTENSIONS.iter().any(|extension| it.eq_ignore_ascii_case(extension)));
        if is_manifest || entry.is_dir() {
            find_files(&entry, depth + 1, found)?;
        }
    }
    Ok(())
}

/// Parses all objects of a file: a stream of JSON values, or YAML documents.
fn parse(file: &str, text: &str, manifests: &mut Vec<Manifest>) -> Result<(), ReadError> {
    if text.trim_start().starts_with('{') {
        let documents: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
        match documents {
            Ok(documents) => {
                let several = documents.len() > 1;
                for (index, document) in documents.into_iter().enumerate() {
                    flatten(&place(file, index, several), document, 0, manifests)?;
                }
                return Ok(());
            }
            Err(err) if file.ends_with(".json") => return Err(ReadError::new(file, err)),
            // YAML may start with a brace as well.
            Err(_) => {}
        }
    }
    let documents: Vec<_> = yaml::documents(text).collect();
    let several = documents.len() > 1;
    for (index, document) in documents.into_iter().enumerate() {
        let place = place(file, index, several);
        let document = document.map_err(|reason| ReadError::new(place.as_str(), reason))?;
        flatten(&place, document.into(), 0, manifests)?;
    }
    Ok(())
}

/// Returns the location of a document for errors: only the file if it has one document.
fn place(file: &str, index: usize, several: bool) -> String {
    if several {
        format!("{file}, document {}", index + 1)
    } else {
        file.to_owned()
    }
}

/// Adds the object, or the items of a list of objects.
fn flatten(place: &str, document: Value, depth: usize, manifests: &mut Vec<Manifest>) -> Result<(), ReadError> {
    let mut object = match document {
        Value::Object(object) => object,
        other => {
            return Err(ReadError::new(
                place,
                format!("expected an object, found {}", noun(&other)),
            ));
        }
    };
    if let Some(Value::Array(items)) = object.get_mut("items").map(Value::take) {
        if depth == DEPTH_BOUND {
            return Err(ReadError::new(place, "lists are nested too deeply"));
        }
        for (index, mut item) in items.into_iter().enumerate() {
            if let Value::Object(item) = &mut item {
                inherit_type(&object, item);
            }
            flatten(&format!("{place}, item {}", index + 1), item, depth + 1, manifests)?;
        }
        return Ok(());
    }
    for field in ["apiVersion", "kind"] {
        match object.get(field) {
            Some(Value::String(text)) if !text.is_empty() => {}
            Some(Value::String(_)) | None => return Err(ReadError::new(place, format!("`{field}` is missing"))),
            Some(other) => {
                let reason = format!("`{field}` must be a string, not {}", noun(other));
                return Err(ReadError::new(place, reason));
            }
        }
    }
    manifests.push(Manifest {
        place: place.to_owned(),
        object: Value::Object(object),
    });
    Ok(())
}

/// Adds the type to an item of a typed list such as `PodList`, because kube-apiserver omits it there.
fn inherit_type(list: &Map<String, Value>, item: &mut Map<String, Value>) {
    let kind = list.get("kind").and_then(Value::as_str).unwrap_or_default();
    let (Some(item_kind), Some(api_version)) = (kind.strip_suffix("List"), list.get("apiVersion")) else {
        return;
    };
    if !item_kind.is_empty() && !item.contains_key("kind") && !item.contains_key("apiVersion") {
        item.insert("kind".to_owned(), item_kind.into());
        item.insert("apiVersion".to_owned(), api_version.clone());
    }
}

/// Returns the name of a value's type for error messages.
fn noun(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn parsed(text: &str) -> Result<Vec<Manifest>, String> {
        let mut manifests = Vec::new();
        parse("f.yaml", text, &mut manifests).map_err(|err| err.to_string())?;
        Ok(manifests)
    }

    fn names(manifests: &[Manifest]) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        manifests
            .iter()
            .map(|it| format!("{}/{}", text(&it.object["kind"]), text(&it.object["metadata"]["name"])))
            .collect()
    }

    const SEVERAL: &str = "\
%YAML 1.1
---
{kind: A, apiVersion: v1, metadata: {name: a}}
--- # two
kind: B
apiVersion: v1
...
";
    const LIST: &str = "\
kind: List
apiVersion: v1
items:
- {kind: A, apiVersion: v1}
- {kind: List, apiVersion: v1, items: [{kind: B, apiVersion: v1}]}
";
    const TYPED_LIST: &str = r#"{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}]}"#;
    const JSON_STREAM: &str = r#"{"kind":"A","apiVersion":"v1"} {"kind":"B","apiVersion":"v1"}"#;

    #[rstest]
    #[case::single_object("kind: Pod\napiVersion: v1\nmetadata: {name: a}\n", &["Pod/a"])]
    #[case::flow_style("{kind: Pod, apiVersion: v1}\n--- # two\n{kind: Pod, apiVersion: v1}\n", &["Pod/?", "Pod/?"])]
    #[case::empty_documents("# nothing\n---\n\n---\n# more\n", &[])]
    #[case::null("---\nnull\n", &[])]
    #[case::several_documents(SEVERAL, &["A/a", "B/?"])]
    #[case::list(LIST, &["A/?", "B/?"])]
    #[case::typed_list(TYPED_LIST, &["Pod/a"])]
    #[case::json_stream(JSON_STREAM, &["A/?", "B/?"])]
    #[case::separator_in_a_string("kind: A\napiVersion: v1\ndata: |\n  x\n  ---\n  y\n", &["A/?"])]
    fn documents_lists_and_json_streams_are_read(#[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(names(&parsed(text).unwrap()), expected);
    }

    #[test]
    fn yaml_numbers_are_parsed_as_in_kubernetes() {
        let object = &parsed("kind: A\napiVersion: v1\nmode: 0644\non: yes\nsize: 1.5\n").unwrap()[0].object;
        assert_eq!(object["mode"], 420);
        assert_eq!(object["size"], 1.5);
    }

    #[rstest]
    #[case::missing_kind("apiVersion: v1\n", "f.yaml: `kind` is missing")]
    #[case::kind_of_the_wrong_type("apiVersion: v1\nkind: [a]\n", "f.yaml: `kind` must be a string, not a list")]
    #[case::not_an_object("- a\n", "f.yaml: expected an object, found a list")]
    #[case::second_document(
        "kind: A\napiVersion: v1\n---\nhello\n",
        "f.yaml, document 2: expected an object, found a string"
    )]
    #[case::item_that_is_not_an_object(
        "kind: List\napiVersion: v1\nitems: [1]\n",
        "f.yaml, item 1: expected an object, found a number"
    )]
    #[case::item_without_an_api_version(
        "kind: List\napiVersion: v1\nitems: [{}]\n",
        "f.yaml, item 1: `apiVersion` is missing"
    )]
    fn errors_contain_the_file_and_the_document(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(parsed(text).unwrap_err(), expected);
    }

    #[test]
    fn syntax_error_contains_the_line_in_the_file() {
        let err = parsed("kind: A\napiVersion: v1\n---\nkind: B\na: [\n").unwrap_err();
        assert!(err.starts_with("f.yaml, document 2: "), "{err}");
        assert!(err.contains("line 5") || err.contains("line 6"), "{err}");
        let err = parse("f.json", "{\"kind\": \"A\",\n]", &mut Vec::new())
            .unwrap_err()
            .to_string();
        assert!(err.starts_with("f.json: ") && err.contains("line 2"), "{err}");
    }

    #[test]
    fn crds_and_namespaces_are_ranked_before_other_objects() {
        let ranks =
            ["ConfigMap", "Namespace", "CustomResourceDefinition"].map(|kind| rank(&serde_json::json!({"kind": kind})));
        assert_eq!(ranks, [2, 1, 0]);
    }

    #[test]
    fn error_contains_the_missing_file() {
        let err = read(["no/such/file.yaml"]).unwrap_err().to_string();
        assert!(err.starts_with("no/such/file.yaml: "), "{err}");
    }
}
