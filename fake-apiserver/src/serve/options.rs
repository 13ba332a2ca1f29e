//! `ServeOptions`: how a server listens.

#[cfg(feature = "tls")]
use crate::api::front_proxy::FrontProxy;
#[cfg(feature = "tls")]
use crate::tls::TlsOptions;

/// Options of a listener: in the clear or over TLS, and the hosts it answers to.
///
/// ```
/// use fake_apiserver::ServeOptions;
///
/// let options = ServeOptions::http().accept_hosts(["api.test", "*.cluster.local"]);
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a server listens with them"]
pub struct ServeOptions {
    pub(super) transport: Transport,
    pub(super) hosts: Vec<String>,
}

/// Transport below HTTP.
#[derive(Clone, Debug)]
pub(super) enum Transport {
    /// Plain TCP.
    Http,
    /// TLS.
    #[cfg(feature = "tls")]
    Https(TlsOptions),
}

impl ServeOptions {
    /// Plain HTTP.
    pub fn http() -> Self {
        Self {
            transport: Transport::Http,
            hosts: Vec::new(),
        }
    }

    /// HTTPS with a certificate authority that is made for this server.
    #[cfg(feature = "tls")]
    pub fn tls() -> Self {
        Self {
            transport: Transport::Https(TlsOptions::default()),
            ..Self::http()
        }
    }

    /// Shows this certificate instead of one of the generated authority. Both are PEM: the certificate with those
    /// between it and its authority, and its key. Without effect on plain HTTP.
    #[cfg(feature = "tls")]
    pub fn certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        if let Transport::Https(tls) = &mut self.transport {
            tls.certificate = Some((chain.into(), key.into()));
        }
        self
    }

    /// Believes client certificates of these authorities, too, which are PEM: CN is the user, each O a group. Without
    /// effect on plain HTTP.
    #[cfg(feature = "tls")]
    pub fn client_ca(mut self, authorities: impl Into<Vec<u8>>) -> Self {
        if let Transport::Https(tls) = &mut self.transport {
            tls.client_ca = Some(authorities.into());
        }
        self
    }

    /// Believes proxies whose certificate is of these authorities when they name the user in headers. The authorities
    /// are none of users. Without effect on plain HTTP.
    #[cfg(feature = "tls")]
    pub fn front_proxy(mut self, proxy: FrontProxy) -> Self {
        if let Transport::Https(tls) = &mut self.transport {
            tls.front_proxy = Some(std::sync::Arc::new(proxy));
        }
        self
    }

    /// Answers requests whose `Host` is one of these, besides loopback names and the address it listens on. A name that
    /// begins with `*.` stands for all below it, `*` for every host. Others are refused with 403: a page in a browser
    /// reaches a server on its user's machine by a name of its own that leads there (DNS rebinding). A server that
    /// listens on all addresses answers to every address, since rebinding takes a name.
    pub fn accept_hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hosts.extend(hosts.into_iter().map(Into::into));
        self
    }
}
