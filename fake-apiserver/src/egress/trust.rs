//! Certificates for connections to webhooks and to aggregated API servers.

#![cfg_attr(
    not(feature = "tls"),
    allow(dead_code, reason = "certificates are only used over TLS")
)]

/// A certificate chain and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

/// The certificates of a connection: authorities that verify the server, and the client's own certificate.
pub(super) struct Trust<'a> {
    /// The authorities that may have signed the server's certificate, in PEM.
    pub(super) ca_bundle: &'a [u8],
    /// Set if every certificate of the server is accepted without verification.
    pub(super) skips_checks: bool,
    /// The client certificate.
    pub(super) identity: Option<&'a Identity>,
}
