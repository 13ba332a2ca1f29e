//! Resolves names of Services and Pods in the network of a run, like the DNS server of a cluster.
//!
//! It follows "Kubernetes DNS-Based Service Discovery" 1.1.0 for A, CNAME and SRV records below `cluster.local`. Other
//! names do not exist.

use std::io;
use std::net::Ipv4Addr;

use domain::base::iana::Rcode;
use domain::base::message_builder::AnswerBuilder;
use domain::base::{Message, MessageBuilder, Name, Rtype, StaticCompressor, ToName, Ttl};
use domain::rdata::{A, Cname, Srv};
use fake_apiserver::ApiServer;
use serde_json::Value;
use tokio::net::UdpSocket;

/// The domain of the cluster.
const DOMAIN: &str = ".cluster.local";

/// Time for which clients may keep a record.
const TTL: Ttl = Ttl::from_secs(0);

/// Maximum size of a message over UDP.
const MESSAGE_BYTES: usize = 512;

/// Builder of an answer.
type Answer = AnswerBuilder<StaticCompressor<Vec<u8>>>;

/// The result of resolving a name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    addresses: Vec<Ipv4Addr>,
    /// The canonical name, if the queried name is an alias.
    alias: Option<String>,
    /// For an SRV query: ports, and names of the hosts that serve them.
    services: Vec<(u16, String)>,
    /// Ports of the Service at its cluster IP.
    ports: Vec<u16>,
}

/// Answers queries until the run ends. Calls `listen` with the ports of a Service before it answers a query for the
/// Service's name.
pub(crate) async fn serve(socket: UdpSocket, server: ApiServer, listen: impl Fn(&[u16]) -> io::Result<()> + Send) {
    let mut query = [0; MESSAGE_BYTES];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut query).await else {
            // The next receive fails if the client of an earlier answer no longer exists.
            continue;
        };
        let answer = answer(&server, &query[..length], &listen).await;
        if let Some(answer) = answer {
            // Ignore errors: the client may no longer exist.
            let _ = socket.send_to(&answer, client).await;
        }
    }
}

/// Returns the answer to a query; `None` if the query cannot be parsed.
async fn answer(server: &ApiServer, query: &[u8], listen: impl Fn(&[u16]) -> io::Result<()>) -> Option<Vec<u8>> {
    let query = Message::from_octets(query).ok().filter(|it| !it.header().qr())?;
    let question = query.sole_question().ok()?;
    let name: Name<Vec<u8>> = question.qname().to_name();
    let found = resolve(server, &name.to_string().to_lowercase()).await;
    let listens = found.as_ref().is_none_or(|it| listen(&it.ports).is_ok());
    let code = match (&found, listens) {
        (Some(_), true) => Rcode::NOERROR,
        (None, _) => Rcode::NXDOMAIN,
        (Some(_), false) => Rcode::SERVFAIL,
    };
    let mut builder = MessageBuilder::from_target(StaticCompressor::new(Vec::new())).ok()?;
    builder.set_push_limit(MESSAGE_BYTES);
    let mut answer = builder.start_answer(&query, code).ok()?;
    answer.header_mut().set_aa(true);
    answer.header_mut().set_ra(true);
    if let (Some(found), true) = (found, listens) {
        add(&mut answer, &name, question.qtype(), &found);
    }
    Some(answer.finish().into_target())
}

/// Adds the records of one type, as long as they fit into the message.
fn add(answer: &mut Answer, name: &Name<Vec<u8>>, kind: Rtype, found: &Found) {
    let parse = |text: &str| text.parse::<Name<Vec<u8>>>().ok();
    if let Some(alias) = found.alias.as_deref().and_then(parse) {
        let _ = answer.push((name, TTL, Cname::new(alias)));
    }
    match kind {
        Rtype::A => {
            for address in &found.addresses {
                if answer.push((name, TTL, A::new(*address))).is_err() {
                    return;
                }
            }
        }
        Rtype::SRV => {
            for (port, host) in &found.services {
                let Some(host) = parse(host) else { continue };
                if answer.push((name, TTL, Srv::new(0, 100, *port, host))).is_err() {
                    return;
                }
            }
        }
        _ => {}
    }
}

/// Resolves a name; `None` if it does not exist.
async fn resolve(server: &ApiServer, name: &str) -> Option<Found> {
    let name = name.trim_end_matches('.').strip_suffix(DOMAIN)?;
    let labels: Vec<&str> = name.split('.').collect();
    match labels.as_slice() {
        [name, namespace, "svc"] => service(server, namespace, name).await,
        [host, name, namespace, "svc"] if !host.starts_with('_') => {
            let endpoints = endpoints(server, namespace, name).await;
            let named = endpoints.into_iter().filter(|it| it.host() == *host);
            let addresses: Vec<_> = named.map(|it| it.address).collect();
            (!addresses.is_empty()).then(|| Found {
                addresses,
                ..Found::default()
            })
        }
        [port, protocol, name, namespace, "svc"] => {
            let (port, protocol) = (port.strip_prefix('_')?, protocol.strip_prefix('_')?);
            services(server, namespace, name, port, protocol).await
        }
        [address, _, "pod"] => {
            let address = address.replace('-', ".").parse().ok()?;
            Some(Found {
                addresses: vec![address],
                ..Found::default()
            })
        }
        _ => None,
    }
}

/// Resolves the name of a Service.
async fn service(server: &ApiServer, namespace: &str, name: &str) -> Option<Found> {
    let object = server.get("v1", "Service", namespace, name).await.ok()?;
    let spec = &object["spec"];
    if spec["type"] == "ExternalName" {
        let alias = spec["externalName"].as_str().map(str::to_owned);
        return Some(Found {
            alias,
            ..Found::default()
        });
    }
    if let Some(address) = cluster_ip(spec) {
        return Some(Found {
            addresses: vec![address],
            ports: ports(spec).map(|(port, _)| port).collect(),
            ..Found::default()
        });
    }
    let endpoints = endpoints(server, namespace, name).await;
    let mut addresses: Vec<_> = endpoints.into_iter().map(|it| it.address).collect();
    addresses.dedup();
    (!addresses.is_empty()).then(|| Found {
        addresses,
        ..Found::default()
    })
}

/// Finds the ports and hosts that serve a named port of a Service.
async fn services(server: &ApiServer, namespace: &str, name: &str, port: &str, protocol: &str) -> Option<Found> {
    let object = server.get("v1", "Service", namespace, name).await.ok()?;
    let spec = &object["spec"];
    let host = format!("{name}.{namespace}.svc{DOMAIN}");
    let services: Vec<_> = match cluster_ip(spec) {
        Some(_) => {
            let listed = spec["ports"].as_array().into_iter().flatten();
            let named = listed.filter(|it| is_port(it, port, protocol));
            let numbers = named.filter_map(|it| number(&it["port"]));
            numbers.map(|it| (it, host.clone())).collect()
        }
        None => {
            let endpoints = endpoints(server, namespace, name).await;
            let served = endpoints.into_iter().filter_map(|it| {
                let port = it.ports.iter().find(|it| is_port(it, port, protocol))?;
                Some((number(&port["port"])?, format!("{}.{host}", it.host())))
            });
            served.collect()
        }
    };
    (!services.is_empty()).then(|| Found {
        services,
        ..Found::default()
    })
}

/// Returns the address and port of a ready endpoint of the Service with this cluster IP and port.
pub(crate) async fn endpoint_of(server: &ApiServer, address: &str, port: u16) -> Option<(String, u16)> {
    let services = server.list("v1", "Service", "").await.ok()?;
    let address: Ipv4Addr = address.parse().ok()?;
    let service = services.iter().find(|it| cluster_ip(&it["spec"]) == Some(address))?;
    let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default();
    let (_, name) = ports(&service["spec"]).find(|(it, _)| *it == port)?;
    let endpoints = endpoints(server, text("namespace"), text("name")).await;
    endpoints.into_iter().find_map(|it| {
        let port = it
            .ports
            .iter()
            .find(|it| it["name"].as_str().unwrap_or_default() == name)?;
        Some((it.address.to_string(), number(&port["port"])?))
    })
}

/// A ready endpoint of a Service.
struct Endpoint {
    address: Ipv4Addr,
    hostname: Option<String>,
    ports: Vec<Value>,
}

impl Endpoint {
    /// Returns the first label of the endpoint's DNS name.
    fn host(&self) -> String {
        let name = self.hostname.clone();
        name.unwrap_or_else(|| self.address.to_string().replace('.', "-"))
    }
}

/// Returns the ready endpoints of a Service, sorted by address.
async fn endpoints(server: &ApiServer, namespace: &str, service: &str) -> Vec<Endpoint> {
    let slices = server.list("discovery.k8s.io/v1", "EndpointSlice", namespace).await;
    let slices = slices.unwrap_or_default().into_iter();
    let of_service = slices.filter(|it| it["metadata"]["labels"]["kubernetes.io/service-name"] == service);
    let endpoints = of_service.flat_map(|slice| {
        let ports = slice["ports"].as_array().cloned().unwrap_or_default();
        let all = slice["endpoints"].as_array().cloned().unwrap_or_default().into_iter();
        let ready = all.filter(|it| it["conditions"]["ready"] != false);
        let endpoints = ready.filter_map(move |it| {
            Some(Endpoint {
                address: it["addresses"][0].as_str()?.parse().ok()?,
                hostname: it["hostname"].as_str().map(str::to_owned),
                ports: ports.clone(),
            })
        });
        endpoints.collect::<Vec<_>>()
    });
    let mut endpoints: Vec<_> = endpoints.collect();
    endpoints.sort_by_key(|it| it.address);
    endpoints
}

/// Returns the address of a Service; `None` for a headless Service.
fn cluster_ip(spec: &Value) -> Option<Ipv4Addr> {
    spec["clusterIP"].as_str()?.parse().ok()
}

/// Returns the numbers and names of a Service's TCP ports.
fn ports(spec: &Value) -> impl Iterator<Item = (u16, &str)> {
    let ports = spec["ports"].as_array().into_iter().flatten();
    let tcp = ports.filter(|it| it["protocol"].as_str().is_none_or(|it| it == "TCP"));
    tcp.filter_map(|it| Some((number(&it["port"])?, it["name"].as_str().unwrap_or_default())))
}

/// Returns `true` if a port has this name and this protocol, ignoring case.
fn is_port(port: &Value, name: &str, protocol: &str) -> bool {
    let is_protocol = port["protocol"]
        .as_str()
        .unwrap_or("TCP")
        .eq_ignore_ascii_case(protocol);
    is_protocol && port["name"] == name
}

fn number(port: &Value) -> Option<u16> {
    port.as_u64().and_then(|it| u16::try_from(it).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Creates a server with Services, and with EndpointSlices as the workers write them.
    fn server() -> ApiServer {
        let server = ApiServer::start();
        let service = |name: &str, address: &str| {
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"},
                "spec": {
                    "clusterIP": address, "selector": {"app": "db"},
                    "ports": [{"name": "sql", "port": 80, "targetPort": 5432}],
                },
            })
        };
        let slice = |service: &str| {
            let endpoint = |address: &str, name: Option<&str>, is_ready: bool| json!({"addresses": [address], "hostname": name, "conditions": {"ready": is_ready}});
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {
                    "name": format!("{service}-1"), "namespace": "shop",
                    "labels": {"kubernetes.io/service-name": service},
                },
                "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
                "endpoints": [
                    endpoint("10.244.0.7", Some("db-1"), true),
                    endpoint("10.244.0.6", None, true),
                    endpoint("10.244.0.8", Some("db-2"), false),
                ],
            })
        };
        let objects = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
            service("db", "10.0.0.7"),
            service("pods", "None"),
            slice("db"),
            slice("pods"),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "out", "namespace": "shop"},
                "spec": {"type": "ExternalName", "externalName": "example.com"},
            }),
        ];
        server.load(objects).expect("the objects are valid");
        server
    }

    fn found(addresses: &[&str]) -> Option<Found> {
        let addresses = addresses.iter().map(|it| it.parse().expect("the address is valid"));
        Some(Found {
            addresses: addresses.collect(),
            ..Found::default()
        })
    }

    #[rstest::rstest]
    #[case::pods_of_a_headless_service("pods.shop.svc.cluster.local.", found(&["10.244.0.6", "10.244.0.7"]))]
    #[case::pod_by_its_hostname("db-1.pods.shop.svc.cluster.local.", found(&["10.244.0.7"]))]
    #[case::pod_without_a_hostname("10-244-0-6.pods.shop.svc.cluster.local.", found(&["10.244.0.6"]))]
    #[case::unready_pod("db-2.pods.shop.svc.cluster.local.", None)]
    #[case::pod_by_its_address("10-244-0-9.shop.pod.cluster.local.", found(&["10.244.0.9"]))]
    #[case::unknown_service("web.shop.svc.cluster.local.", None)]
    #[case::another_namespace("db.default.svc.cluster.local.", None)]
    #[case::another_domain("example.com.", None)]
    #[tokio::test]
    async fn dns_names_of_pods_are_resolved(#[case] name: &str, #[case] expected: Option<Found>) {
        assert_eq!(resolve(&server(), name).await, expected);
    }

    #[tokio::test]
    async fn service_name_resolves_to_its_address_and_ports() {
        let expected = found(&["10.0.0.7"]).map(|it| Found { ports: vec![80], ..it });
        assert_eq!(resolve(&server(), "db.shop.svc.cluster.local").await, expected);
    }

    #[tokio::test]
    async fn external_name_is_resolved_to_an_alias() {
        let found = resolve(&server(), "out.shop.svc.cluster.local").await;
        assert_eq!(found.and_then(|it| it.alias).as_deref(), Some("example.com"));
    }

    #[rstest::rstest]
    #[case::port_of_a_service("_sql._tcp.db.shop.svc.cluster.local", &[(80, "db.shop.svc.cluster.local")])]
    #[case::ports_of_pods(
        "_sql._tcp.pods.shop.svc.cluster.local",
        &[(5432, "10-244-0-6.pods.shop.svc.cluster.local"), (5432, "db-1.pods.shop.svc.cluster.local")],
    )]
    #[case::another_protocol("_sql._udp.db.shop.svc.cluster.local", &[])]
    #[tokio::test]
    async fn named_ports_are_resolved(#[case] name: &str, #[case] expected: &[(u16, &str)]) {
        let found = resolve(&server(), name).await.unwrap_or_default();
        let services: Vec<_> = found
            .services
            .iter()
            .map(|(port, host)| (*port, host.as_str()))
            .collect();
        assert_eq!(services, expected);
    }

    #[tokio::test]
    async fn port_of_a_service_is_routed_to_the_first_ready_endpoint() {
        let server = server();
        let found = endpoint_of(&server, "10.0.0.7", 80).await;
        assert_eq!(found, Some(("10.244.0.6".to_owned(), 5432)));
        assert_eq!(endpoint_of(&server, "10.0.0.7", 5432).await, None);
    }

    #[rstest::rstest]
    #[case::addresses("pods.shop.svc.cluster.local", Rcode::NOERROR, 2)]
    #[case::unknown_name("web.shop.svc.cluster.local", Rcode::NXDOMAIN, 0)]
    #[tokio::test]
    async fn dns_query_receives_matching_records(#[case] name: &str, #[case] code: Rcode, #[case] count: u16) {
        let name: Name<Vec<u8>> = name.parse().expect("the name is valid");
        let mut query = MessageBuilder::new_vec().question();
        query.push((name, Rtype::A)).expect("the query fits into the message");
        let answer = answer(&server(), query.as_slice(), |_| Ok(()))
            .await
            .expect("the query is valid");
        let answer = Message::from_octets(answer).expect("the answer is valid");
        assert_eq!(
            (answer.header().rcode(), answer.header_counts().ancount()),
            (code, count)
        );
    }

    #[tokio::test]
    async fn bytes_that_are_not_a_dns_query_receive_no_response() {
        for bytes in [&[][..], &[0; 11], &[0xff; 40]] {
            assert_eq!(answer(&server(), bytes, |_| Ok(())).await, None);
        }
    }
}
