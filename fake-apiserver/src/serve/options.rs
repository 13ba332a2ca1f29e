//! `ServeOptions`: the options of a listener.

#[cfg(feature = "tls")]
use crate::api::front_proxy::FrontProxy;
#[cfg(feature = "tls")]
use crate::tls::TlsOptions;

/// Options of a listener: plain HTTP or TLS, and the accepted hosts.
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
    /// Returns options for plain HTTP.
    pub fn http() -> Self {
        Self {
            transport: Transport::Http,
            hosts: Vec::new(),
        }
    }

    /// Returns options for HTTPS with a certificate authority that is created for this server.
    #[cfg(feature = "tls")]
    pub fn tls() -> Self {
        Self {
            transport: Transport::Https(TlsOptions::default()),
            ..Self::http()
        }
    }

    /// Uses this certificate instead of a generated one. Both arguments are PEM: the certificate with its intermediate
    /// certificates, and its key. Plain HTTP ignores this option.
    #[cfg(feature = "tls")]
    pub fn certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        if let Transport::Https(tls) = &mut self.transport {
            tls.certificate = Some((chain.into(), key.into()));
        }
        self
    }

    /// Also accepts client certificates of these authorities, in PEM. The CN of a certificate is the name of
    /// the user, and each O is a group. Plain HTTP ignores this option.
    #[cfg(feature = "tls")]
    pub fn client_ca(mut self, authorities: impl Into<Vec<u8>>) -> Self {
        if let Transport::Https(tls) = &mut self.transport {
            tls.client_ca = Some(authorities.into());
        }
        self
    }

    /// Accepts the users that front proxies pass in headers. `proxy` contains the authorities of their client
    /// certificates; such certificates do not authenticate users. Plain HTTP ignores this option.
    #[cfg(feature = "tls")]
    pub fn front_proxy(mut self, proxy: FrontProxy) -> Self {
        if let Transport::Https(tls) = &mut self.transport {
            tls.front_proxy = Some(std::sync::Arc::new(proxy));
        }
        self
    }

    /// Accepts requests with one of these values of `Host`, in addition to loopback names and the address that the
    /// server listens on. A name that begins with `*.` matches all subdomains, `*` every host. Other requests are
    /// refused with 403, because a web page could otherwise reach a server on the user's machine through the page's own
    /// DNS name (DNS rebinding). A server that listens on all addresses accepts every IP address, since DNS rebinding
    /// requires a host name.
    pub fn accept_hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hosts.extend(hosts.into_iter().map(Into::into));
        self
    }
}
