//! `Arrival`: properties of a request that was received over a socket, and `Hosts`, the host names that requests may
//! use.
//!
//! A web page in a browser on the developer's machine can also send requests to loopback addresses. Such requests are
//! recognised by headers that a page cannot change: `Host`, which contains the name from which the page was loaded even
//! after DNS rebinding, `Origin`, and `Sec-Fetch-Site`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Request extension of requests that were received over a socket.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// IP address of the sender.
    pub(crate) peer: IpAddr,
    /// The accepted hosts.
    pub(crate) hosts: Arc<Hosts>,
    /// Set if the request has a body. A browser's write with a body must have a Content-Type.
    pub(crate) has_body: bool,
}

/// Accepted values of `Host`: loopback, the address of the server, and configured names.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    address: IpAddr,
    /// Names in lower case: `*` is every host, `*.example.com` every host below that domain.
    names: Vec<String>,
}

impl Hosts {
    /// Returns the accepted hosts of a server that listens on `address`: loopback, the address, and `names`.
    pub(crate) fn new(address: SocketAddr, names: &[String]) -> Self {
        Self {
            address: address.ip(),
            names: names.iter().map(|name| name.to_ascii_lowercase()).collect(),
        }
    }

    /// Returns `true` if the host of `authority` is accepted. `authority` is a host with an optional port.
    pub(crate) fn accept(&self, authority: &str) -> bool {
        let host = host_of(authority).to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        match host.parse::<IpAddr>() {
            // DNS rebinding requires a host name, so a server that listens on all addresses accepts every address
            // except the unspecified one.
            Ok(address) if self.address.is_unspecified() => !address.is_unspecified() || self.names_host(host),
            Ok(address) => address.is_loopback() || address == self.address || self.names_host(host),
            Err(_) => host == "localhost" || host.ends_with(".localhost") || self.names_host(host),
        }
    }

    fn names_host(&self, host: &str) -> bool {
        self.names.iter().any(|name| match name.strip_prefix('*') {
            Some("") => true,
            Some(domain) => domain.starts_with('.') && host.ends_with(domain) && host.len() > domain.len(),
            None => name == host,
        })
    }
}

/// Returns the host of `host`, `host:port`, `[::1]` or `[::1]:port`.
pub(crate) fn host_of(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split_once(']').map_or(authority, |(host, _)| host);
    }
    authority.split_once(':').map_or(authority, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::loopback("127.0.0.1:6443", &[], "127.0.0.1:6443", true)]
    #[case::localhost("127.0.0.1:6443", &[], "localhost", true)]
    #[case::uppercase_localhost("127.0.0.1:6443", &[], "LOCALHOST:1", true)]
    #[case::localhost_with_a_trailing_dot("127.0.0.1:6443", &[], "localhost.", true)]
    #[case::subdomain_of_localhost("127.0.0.1:6443", &[], "a.localhost", true)]
    #[case::ipv6("127.0.0.1:6443", &[], "[::1]:6443", true)]
    #[case::foreign_name("127.0.0.1:6443", &[], "evil.example:6443", false)]
    #[case::name_with_the_same_suffix("127.0.0.1:6443", &[], "notlocalhost", false)]
    #[case::name_with_the_same_prefix("127.0.0.1:6443", &[], "127.0.0.1.evil.example", false)]
    #[case::empty_host("127.0.0.1:6443", &[], "", false)]
    #[case::another_address("127.0.0.1:6443", &[], "192.0.2.7", false)]
    #[case::server_address("192.0.2.7:6443", &[], "192.0.2.7:6443", true)]
    #[case::any_address_on_a_wildcard_listener("0.0.0.0:6443", &[], "192.0.2.7:6443", true)]
    #[case::foreign_name_on_a_wildcard_listener("0.0.0.0:6443", &[], "evil.example", false)]
    #[case::configured_name("127.0.0.1:6443", &["api.Test"], "API.test:6443", true)]
    #[case::configured_domain("127.0.0.1:6443", &["*.test"], "a.b.test", true)]
    #[case::empty_label_below_a_configured_domain("127.0.0.1:6443", &["*.test"], ".test", false)]
    #[case::any_host_with_a_wildcard("127.0.0.1:6443", &["*"], "evil.example", true)]
    fn host_must_be_local_the_server_address_or_a_configured_name(
        #[case] address: &str,
        #[case] names: &[&str],
        #[case] authority: &str,
        #[case] expected: bool,
    ) {
        let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
        let hosts = Hosts::new(address.parse().expect("the address is valid"), &names);
        assert_eq!(hosts.accept(authority), expected);
    }
}
