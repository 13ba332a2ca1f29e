//! Writes kubeconfig files for kubectl and client libraries.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// The name of the cluster, the user and the context.
const NAME: &str = "fake-apiserver";

/// Credentials with which a client verifies the server's TLS certificate and authenticates itself, all in PEM.
pub(crate) struct Credentials {
    /// The certificates that verify the server: the generated authority, or the configured certificate chain.
    pub(crate) ca: String,
    /// The administrator's client certificate, signed by the generated authority.
    pub(crate) certificate: String,
    /// The private key of the certificate.
    pub(crate) key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("ca", &self.ca)
            .finish_non_exhaustive()
    }
}

/// Returns a kubeconfig for the server at `url`, with credentials if the server uses TLS.
///
/// `other` is the name of an additional user and context, with the user's token.
///
/// Over TLS the user needs a certificate: without one, kubectl prompts for a name and a password.
pub(crate) fn kubeconfig(url: &str, credentials: Option<&Credentials>, other: Option<(&str, &str)>) -> String {
    let field = |name: &str, pem: &str| format!("\n    {name}: {}", BASE64_STANDARD.encode(pem));
    let (trust, user) = match credentials {
        Some(Credentials { ca, certificate, key }) => (
            field("certificate-authority-data", ca),
            field("client-certificate-data", certificate) + &field("client-key-data", key),
        ),
        None => (String::new(), " {}".to_owned()),
    };
    let (other_user, other_context) = match other {
        Some((name, token)) => (
            format!(
                "\n- name: {name}\n  user:\n    token: {}",
                serde_json::Value::from(token)
            ),
            format!("\n- name: {name}\n  context:\n    cluster: {NAME}\n    user: {name}\n    namespace: default"),
        ),
        None => (String::new(), String::new()),
    };
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {NAME}
  cluster:
    server: {url}{trust}
users:
- name: {NAME}
  user:{user}{other_user}
contexts:
- name: {NAME}
  context:
    cluster: {NAME}
    user: {NAME}
    namespace: default{other_context}
current-context: {NAME}
"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::api::yaml;

    #[test]
    fn kubeconfig_contains_the_server_and_credentials() {
        let credentials = Credentials {
            ca: "PEM".to_owned(),
            certificate: "cert".to_owned(),
            key: "key".to_owned(),
        };
        let text = kubeconfig("https://[::1]:6443", Some(&credentials), Some(("ops", "t: \"x")));
        let config = Value::from(yaml::parse(text.as_bytes()).expect("the text is valid YAML").value);
        let cluster = &config["clusters"][0];
        assert_eq!(cluster["name"], config["contexts"][0]["context"]["cluster"]);
        assert_eq!(cluster["cluster"]["server"], "https://[::1]:6443");
        assert_eq!(cluster["cluster"]["certificate-authority-data"], "UEVN");
        assert_eq!(config["users"][0]["user"]["client-certificate-data"], "Y2VydA==");
        assert_eq!(config["users"][0]["user"]["client-key-data"], "a2V5");
        assert_eq!(
            config["users"][1],
            serde_json::json!({"name": "ops", "user": {"token": "t: \"x"}})
        );
        assert_eq!(config["contexts"][1]["context"]["user"], "ops");
        assert_eq!(config["users"][0]["name"], config["contexts"][0]["context"]["user"]);
        assert_eq!(config["current-context"], config["contexts"][0]["name"]);
    }

    #[test]
    fn plain_http_does_not_require_credentials() {
        let text = kubeconfig("http://127.0.0.1:1", None, None);
        let config = Value::from(yaml::parse(text.as_bytes()).expect("the text is valid YAML").value);
        assert_eq!(
            config["clusters"][0]["cluster"],
            serde_json::json!({"server": "http://127.0.0.1:1"})
        );
        assert_eq!(config["users"][0]["user"], serde_json::json!({}));
    }
}
