//! Warnings about overlapping file paths within a volume (`warningsForOverlappingVirtualPaths`).

use super::projected::CERTIFICATE_FILES;
use crate::api::field::quote;
use crate::api::json::Value;
use crate::registry::types::cursor::Cursor;

/// A file of a volume, and the name of its source if the volume is projected.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    path: String,
    source: String,
}

impl File {
    fn new(path: &str, source: &str) -> Self {
        Self {
            path: path.trim_end_matches('/').to_owned(),
            source: source.to_owned(),
        }
    }

    fn shown(&self) -> String {
        match self.source.is_empty() {
            true => quote(&self.path),
            false => format!("{} ({})", quote(&self.path), self.source),
        }
    }

    /// Returns `true` if the paths are equal, or if one is a directory that contains the other.
    fn overlaps(&self, other: &File) -> bool {
        let is_in = |path: &str, directory: &str| {
            let rest = path.strip_prefix(directory);
            rest.is_some_and(|it| it.is_empty() || it.starts_with('/'))
        };
        let (one, two) = (&*self.path, &*other.path);
        !one.is_empty() && !two.is_empty() && (is_in(one, two) || is_in(two, one))
    }
}

/// Adds warnings about overlapping paths within each volume of a pod, and about projections without a source.
pub(super) fn warn_of_overlaps(spec: &Cursor<'_>, warnings: &mut Vec<String>) {
    for volume in spec.items("volumes") {
        let name = volume.text("name");
        for (source, what, field) in [
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("downwardAPI", "DownwardAPI", ""),
        ] {
            let source = volume.at(source);
            if source.list("items").len() < 2 {
                continue;
            }
            let described = described(what, source.text(field), field);
            let files = source.items("items").map(|it| File::new(it.text("path"), ""));
            warn(name, &described, files, warnings);
        }
        for source in volume.items("projected.sources") {
            if source.map("").is_some_and(|it| it.values().all(Value::is_null)) {
                warnings.push(format!("volume {} (Projected) has no sources provided", quote(name)));
            }
        }
        let sources = volume.at("projected");
        let files: Vec<File> = sources.items("sources").flat_map(|it| projected_files(&it)).collect();
        warn(name, "Projected", files.into_iter(), warnings);
    }
}

fn described(what: &str, name: &str, field: &str) -> String {
    match field.is_empty() {
        true => what.to_owned(),
        false => format!("{what} {}", quote(name)),
    }
}

/// Returns the files of an entry in a projected volume. Only the first source of the entry is used.
fn projected_files(entry: &Cursor<'_>) -> Vec<File> {
    for (source, what, field) in [
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "name"),
        ("downwardAPI", "DownwardAPI", ""),
    ] {
        let source = entry.at(source);
        if source.is_set("items") {
            let described = described(what, source.text(field), field);
            let files = source.items("items");
            return files.map(|it| File::new(it.text("path"), &described)).collect();
        }
    }
    if let Some(token) = entry.present("serviceAccountToken") {
        return vec![File::new(token.text("path"), "ServiceAccountToken")];
    }
    let certificate = entry.at("podCertificate");
    let files = CERTIFICATE_FILES
        .iter()
        .filter(|(field, _)| !certificate.is_empty(field));
    files
        .map(|(field, what)| File::new(certificate.text(field), what))
        .collect()
}

fn warn(volume: &str, what: &str, files: impl Iterator<Item = File>, warnings: &mut Vec<String>) {
    let mut seen: Vec<File> = Vec::new();
    for file in files {
        for other in seen.iter().filter(|other| file.overlaps(other)) {
            warnings.push(format!(
                "volume {} ({what}): overlapping paths: {} with {}",
                quote(volume),
                file.shown(),
                other.shown()
            ));
        }
        seen.push(file);
    }
}
