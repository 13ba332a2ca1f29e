//! `FrontProxy`: a proxy that authenticates users and passes their names in headers.

/// Certificates and headers of authenticating proxies: the `--requestheader-*` options of kube-apiserver.
///
/// ```
/// use fake_apiserver::FrontProxy;
///
/// let proxy = FrontProxy {
///     allowed_names: vec!["front-proxy-client".to_owned()],
///     username_headers: vec!["X-Remote-User".to_owned()],
///     ..FrontProxy::default()
/// };
/// # drop(proxy);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontProxy {
    /// CA certificates that issue the client certificates of proxies, in PEM.
    pub client_ca: Vec<u8>,
    /// Permitted common names of proxies; an empty list permits every name.
    pub allowed_names: Vec<String>,
    /// Headers that contain the name of the user; the first header that is not empty is used.
    pub username_headers: Vec<String>,
    /// Headers that contain the uid of the user; the first header that is not empty is used.
    pub uid_headers: Vec<String>,
    /// Headers that contain the groups of the user; the values of all headers are used.
    pub group_headers: Vec<String>,
    /// Prefixes of headers with extra fields of the user. The remaining part of the header's name, in lower case and
    /// without percent-encoding, is the field's key.
    pub extra_headers_prefix: Vec<String>,
    /// Unused. End struct literals with `..FrontProxy::default()`, because fields may be added.
    #[doc(hidden)]
    pub _more: (),
}

#[cfg(feature = "tls")]
impl FrontProxy {
    /// Returns `true` if a proxy may have this common name.
    pub(crate) fn allows(&self, name: &str) -> bool {
        self.allowed_names.is_empty() || self.allowed_names.iter().any(|it| it == name)
    }
}

/// Request extension of requests whose client certificate does not identify a user, and that do not contain a user
/// passed by a front proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownCertificate;
