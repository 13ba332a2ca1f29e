//! `Mounts`: the ConfigMaps and Secrets that a container reads as files, and the paths that replace them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Files;
use super::rendered::{Manifests, data, namespace_of, text};

/// Directory of the token and the CA in a Pod, which `inCluster` mounts.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Placeholder for the directory of the certificate of webhooks.
pub(super) const CERTIFICATES: &str = "${CERT_DIR}";

/// Placeholder for the kubeconfig of the process.
const KUBECONFIG: &str = "${KUBECONFIG}";

/// The directory of the files, and the directory of their copies with filled-in placeholders.
const DIRECTORIES: [&str; 2] = ["${SCENARIO}/files/", "${FILES}/"];

/// The mounted files of a container.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    /// Mounted paths, longest first, because a path may contain another one. The other paths replace them; `None` if
    /// the content is not in the manifests.
    pub(super) places: Vec<(String, Option<String>)>,
    pub(super) files: Files,
    /// Set if files contain placeholders, so that the process reads copies.
    pub(super) are_templates: bool,
    /// Names of the files and directories for the mounted paths.
    names: BTreeSet<String>,
}

impl Mounts {
    /// Finds the mounted files of the container `spec`. Their directory is `files/NAME`.
    pub(super) fn of(
        manifests: &Manifests,
        (workload, spec): (&Value, &Value),
        name: &str,
        serves_webhooks: bool,
    ) -> Self {
        let mut mounts = Self::default();
        for mount in spec["volumeMounts"].as_array().into_iter().flatten() {
            let place = text(&mount["mountPath"]).trim_end_matches('/').to_owned();
            if place.is_empty() || place.starts_with(SERVICE_ACCOUNT) {
                continue;
            }
            let volumes = workload["spec"]["template"]["spec"]["volumes"].as_array();
            let mut volumes = volumes.into_iter().flatten();
            let Some(volume) = volumes.find(|it| it["name"] == mount["name"]) else {
                continue;
            };
            let (kind, source, object) = match (&volume["configMap"], &volume["secret"]) {
                (Value::Null, Value::Null) => continue,
                (Value::Null, secret) => ("Secret", secret, &secret["secretName"]),
                (map, _) => ("ConfigMap", map, &map["name"]),
            };
            match manifests.find(kind, namespace_of(workload), text(object)) {
                Some(object) => {
                    let content = projected(data(object), &source["items"]);
                    mounts.add(place, content, mount["subPath"].as_str(), name);
                }
                // cert-manager creates the Secret with the certificate of webhooks.
                None if is_certificate(&place, text(object)) && serves_webhooks => {
                    mounts.places.push((place, Some(CERTIFICATES.to_owned())));
                }
                None => mounts.places.push((place, None)),
            }
        }
        mounts.places.sort_by_key(|(place, _)| std::cmp::Reverse(place.len()));
        mounts.fill_in();
        mounts
    }

    /// Adds the content of a volume that is mounted at `place`: the file `key`, or all files. A kubeconfig is replaced,
    /// because it refers to another server.
    fn add(&mut self, place: String, content: BTreeMap<String, String>, key: Option<&str>, name: &str) {
        let path = format!("{name}/{}", self.file_name(&place));
        let below = |directory: &str, file: &str| match key {
            Some(_) => directory.to_owned(),
            None => format!("{directory}/{file}"),
        };
        let content = content.into_iter().filter(|it| key.is_none_or(|key| key == it.0));
        let (kubeconfigs, files): (Vec<_>, Vec<_>) = content.partition(|(_, text)| is_kubeconfig(text));
        let has_others = kubeconfigs.is_empty() || !files.is_empty();
        for (file, text) in files {
            self.files.push((format!("files/{}", below(&path, &file)), text));
        }
        for (file, _) in kubeconfigs {
            self.places.push((below(&place, &file), Some(KUBECONFIG.to_owned())));
        }
        if has_others {
            self.places.push((place, Some(format!("{}{path}", DIRECTORIES[0]))));
        }
    }

    /// Returns the name of the file or directory for a mounted path: the last component of the path, after a number if
    /// the container has another path with this component.
    fn file_name(&mut self, place: &str) -> String {
        let base = place.rsplit('/').next().unwrap_or_default();
        let numbered = (2_u32..).map(|it| format!("{it}-{base}"));
        let mut names = std::iter::once(base.to_owned()).chain(numbered);
        let name = names.find(|it| !self.names.contains(it)).unwrap_or_default();
        self.names.insert(name.clone());
        name
    }

    /// Replaces the mounted paths in the files.
    fn fill_in(&mut self) {
        let filled = |content: &str| {
            let known = self.places.iter().filter_map(|it| Some((&*it.0, it.1.as_deref()?)));
            known.fold(content.to_owned(), |text, (place, file)| replaced(&text, place, file))
        };
        let contents: Vec<String> = self.files.iter().map(|it| filled(&it.1)).collect();
        self.are_templates = contents.iter().zip(&self.files).any(|(new, old)| *new != old.1);
        if !self.are_templates {
            return;
        }
        let [original, copy] = DIRECTORIES;
        for ((_, content), new) in self.files.iter_mut().zip(contents) {
            *content = new.replace(original, copy);
        }
        for (_, file) in &mut self.places {
            *file = file.take().map(|it| it.replace(original, copy));
        }
    }
}

/// Replaces a path in a text, but not as a part of other paths and words.
fn replaced(text: &str, path: &str, by: &str) -> String {
    let is_part = |it: char| it.is_alphanumeric() || matches!(it, '_' | '-' | '.');
    let mut replaced = String::new();
    let mut end = 0;
    for (at, _) in text.match_indices(path) {
        let (before, after) = (&text[..at], &text[at + path.len()..]);
        let continues = before.ends_with(|it: char| is_part(it) || matches!(it, '/' | '}'));
        if !continues && !after.starts_with(is_part) {
            replaced.push_str(&text[end..at]);
            replaced.push_str(by);
            end = at + path.len();
        }
    }
    replaced.push_str(&text[end..]);
    replaced
}

/// Returns `true` if a file is a kubeconfig.
fn is_kubeconfig(content: &str) -> bool {
    let has = |start: &str| content.lines().any(|it| it.trim_end().starts_with(start));
    has("kind: Config") && has("clusters:")
}

/// Returns `true` if the path or the name of a mounted Secret is the name of a certificate.
fn is_certificate(place: &str, secret: &str) -> bool {
    let words = ["cert", "tls"];
    words.iter().any(|it| place.contains(it) || secret.contains(it))
}

/// Selects and renames keys, as the `items` of a volume do.
fn projected(mut data: BTreeMap<String, String>, items: &Value) -> BTreeMap<String, String> {
    let Some(items) = items.as_array() else { return data };
    let items = items.iter();
    items
        .filter_map(|it| Some((it["path"].as_str()?.to_owned(), data.remove(it["key"].as_str()?)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_volume_without_files_is_replaced() {
        let mut mounts = Mounts::default();
        let settings = BTreeMap::from([("a.yaml".to_owned(), "level: 3\n".to_owned())]);
        mounts.add("/etc/web/more".to_owned(), settings, None, "web");
        mounts.add("/etc/web".to_owned(), BTreeMap::new(), None, "web");
        let places: Vec<&str> = mounts.places.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(places, ["/etc/web/more", "/etc/web"]);
    }

    #[test]
    fn directories_of_paths_with_the_same_last_component_differ() {
        let mut mounts = Mounts::default();
        for (place, level) in [("/etc/a/config", "1"), ("/etc/b/config", "2")] {
            let settings = BTreeMap::from([("a.yaml".to_owned(), level.to_owned())]);
            mounts.add(place.to_owned(), settings, None, "web");
        }
        let files: Vec<(&str, &str)> = mounts.files.iter().map(|it| (&*it.0, &*it.1)).collect();
        assert_eq!(
            files,
            [("files/web/config/a.yaml", "1"), ("files/web/2-config/a.yaml", "2")]
        );
        let places: Vec<Option<&str>> = mounts.places.iter().map(|it| it.1.as_deref()).collect();
        assert_eq!(
            places,
            [
                Some("${SCENARIO}/files/web/config"),
                Some("${SCENARIO}/files/web/2-config")
            ]
        );
    }

    #[rstest::rstest]
    #[case::directory("dir: /certs\n", "dir: X\n")]
    #[case::file_in_the_directory("file=\"/certs/tls.key\"", "file=\"X/tls.key\"")]
    #[case::two_paths("/certs:/certs", "X:X")]
    #[case::longer_name("/certs-old /certs.d /certs2", "/certs-old /certs.d /certs2")]
    #[case::part_of_another_path("/etc/certs ${HOME}/certs", "/etc/certs ${HOME}/certs")]
    fn only_whole_paths_are_replaced(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(replaced(text, "/certs", "X"), expected);
    }
}
