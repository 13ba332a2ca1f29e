//! The kubeconfig that leads kubectl and every client library to a server.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// The name of the cluster, the user and the context.
const NAME: &str = "fake-apiserver";

/// A kubeconfig for the server at `url`, trusting `ca` (PEM) where the server speaks TLS.
///
/// The user has no credentials: who sends none may do everything, unless the server is told to ask.
pub(crate) fn kubeconfig(url: &str, ca: Option<&str>) -> String {
    let trust = match ca {
        Some(pem) => format!("    certificate-authority-data: {}\n", BASE64_STANDARD.encode(pem)),
        None => String::new(),
    };
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {NAME}
  cluster:
    server: {url}
{trust}users:
- name: {NAME}
  user: {{}}
contexts:
- name: {NAME}
  context:
    cluster: {NAME}
    user: {NAME}
    namespace: default
current-context: {NAME}
"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn it_is_yaml_with_the_server_and_its_ca() {
        let text = kubeconfig("https://[::1]:6443", Some("PEM"));
        let config: Value = serde_saphyr::from_str(&text).expect("it is YAML");
        let cluster = &config["clusters"][0];
        assert_eq!(cluster["name"], config["contexts"][0]["context"]["cluster"]);
        assert_eq!(cluster["cluster"]["server"], "https://[::1]:6443");
        assert_eq!(cluster["cluster"]["certificate-authority-data"], "UEVN");
        assert_eq!(config["users"][0]["name"], config["contexts"][0]["context"]["user"]);
        assert_eq!(config["current-context"], config["contexts"][0]["name"]);
    }

    #[test]
    fn plain_http_names_no_ca() {
        assert!(!kubeconfig("http://127.0.0.1:1", None).contains("certificate"));
    }
}
