//! Printers of Services, Endpoints, Ingresses, network policies, and addresses.

use std::collections::BTreeSet;

use super::super::columns::{AGE, Column, NAME};
use super::super::read::{Field, TableRow, or_none, with_more};
use super::Printer;
use crate::api::json::Value;

pub(super) const SERVICE: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Type",
            "type determines how the Service is exposed. Defaults to ClusterIP. Valid options are ExternalName, \
             ClusterIP, NodePort, and LoadBalancer. \"ClusterIP\" allocates a cluster-internal IP address for \
             load-balancing to endpoints. Endpoints are determined by the selector or if that is not specified, \
             by manual construction of an Endpoints object or EndpointSlice objects. If clusterIP is \"None\", \
             no virtual IP is allocated and the endpoints are published as a set of endpoints rather than a \
             virtual IP. \"NodePort\" builds on ClusterIP and allocates a port on every node which routes to the \
             same endpoints as the clusterIP. \"LoadBalancer\" builds on NodePort and creates an external \
             load-balancer (if supported in the current cloud) which routes to the same endpoints as the \
             clusterIP. \"ExternalName\" aliases this service to the specified externalName. Several other \
             fields do not apply to ExternalName services. More info: \
             https://kubernetes.io/docs/concepts/services-networking/service/#publishing-services-service-types",
        ),
        Column::text(
            "Cluster-IP",
            "clusterIP is the IP address of the service and is usually assigned randomly. If an address is \
             specified manually, is in-range (as per system configuration), and is not in use, it will be \
             allocated to the service; otherwise creation of the service will fail. This field may not be \
             changed through updates unless the type field is also being changed to ExternalName (which requires \
             this field to be blank) or the type field is being changed from ExternalName (in which case this \
             field may optionally be specified, as describe above).  Valid values are \"None\", empty string \
             (\"\"), or a valid IP address. Setting this to \"None\" makes a \"headless service\" (no virtual \
             IP), which is useful when direct endpoint connections are preferred and proxying is not required.  \
             Only applies to types ClusterIP, NodePort, and LoadBalancer. If this field is specified when \
             creating a Service of type ExternalName, creation will fail. This field will be wiped when updating \
             a Service to type ExternalName. More info: \
             https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies",
        ),
        Column::text(
            "External-IP",
            "externalIPs is a list of IP addresses for which nodes in the cluster will also accept traffic for \
             this service.  These IPs are not managed by Kubernetes.  The user is responsible for ensuring that \
             traffic arrives at a node with this IP.  A common example is external load-balancers that are not \
             part of the Kubernetes system.",
        ),
        Column::text(
            "Port(s)",
            "The list of ports that are exposed by this service. More info: \
             https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies",
        ),
        AGE,
        Column::text(
            "Selector",
            "Route service traffic to pods with label keys and values matching this selector. If empty or not \
             present, the service is assumed to have an external process managing its endpoints, which \
             Kubernetes will not modify. Only applies to types ClusterIP, NodePort, and LoadBalancer. Ignored if \
             type is ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/",
        )
        .wide(),
    ],
    cells: |row| {
        let cluster_ip = row.at("spec.clusterIPs").items().next();
        vec![
            row.name(),
            row.at("spec.type").text().into(),
            cluster_ip.map_or("<none>", Field::text).into(),
            external_ip(row).into(),
            ports(row).into(),
            row.age(),
            row.at("spec.selector").labels().into(),
        ]
    },
};

fn external_ip(row: TableRow<'_>) -> String {
    let external = row.at("spec.externalIPs");
    match row.at("spec.type").text() {
        "ClusterIP" | "NodePort" => or_none(external.join(",")),
        "LoadBalancer" => {
            let mut addresses = load_balancer(row);
            addresses.extend(external.items().map(Field::text));
            match addresses.join(",") {
                none if none.is_empty() => "<pending>".to_owned(),
                addresses => addresses,
            }
        }
        "ExternalName" => row.at("spec.externalName").text().to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Returns the addresses or host names of the load balancer, sorted.
fn load_balancer<'a>(row: TableRow<'a>) -> Vec<&'a str> {
    let ingress = row.at("status.loadBalancer.ingress").items();
    let addresses = ingress.map(|it| it.at("ip").text_or(it.at("hostname").text()));
    let addresses: BTreeSet<&str> = addresses.filter(|it| !it.is_empty()).collect();
    addresses.into_iter().collect()
}

fn ports(row: TableRow<'_>) -> String {
    let ports = row.at("spec.ports").items().map(|port| {
        let (number, protocol) = (port.at("port").int(), port.at("protocol").text());
        match port.at("nodePort").int() {
            node_port if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    });
    or_none(ports.collect::<Vec<_>>().join(","))
}

pub(super) const ENDPOINTS: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Endpoints",
            "The set of all endpoints is the union of all subsets. Addresses are placed into subsets according to \
         the IPs they share. A single address with multiple ports, some of which are ready and some of which are \
         not (because they come from different containers) will result in the address being displayed in \
         different subsets for the different ports. No address will appear in both Addresses and \
         NotReadyAddresses in the same subset. Sets of addresses and ports that comprise a service.",
        ),
        AGE,
    ],
    cells: |row| vec![row.name(), endpoints(row).into(), row.age()],
};

fn endpoints(row: TableRow<'_>) -> String {
    let subsets = row.at("subsets");
    if subsets.count() == 0 {
        return "<none>".to_owned();
    }
    let mut list = Vec::new();
    for subset in subsets.items() {
        let addresses = subset.at("addresses");
        let texts = |port: Option<i64>| addresses.items().map(move |it| host_and_port(it.at("ip").text(), port));
        match subset.at("ports") {
            // A headless Service may have no ports.
            ports if ports.count() == 0 => list.extend(texts(None)),
            ports => ports
                .items()
                .for_each(|port| list.extend(texts(Some(port.at("port").int())))),
        }
    }
    with_more(&list, 3)
}

fn host_and_port(ip: &str, port: Option<i64>) -> String {
    match port {
        None => ip.to_owned(),
        Some(port) if ip.contains(':') => format!("[{ip}]:{port}"),
        Some(port) => format!("{ip}:{port}"),
    }
}

pub(super) const ENDPOINT_SLICE: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "AddressType",
            "addressType specifies the type of address carried by this EndpointSlice. All addresses in this \
             slice must be the same type. This field is immutable after creation. The following address types \
             are currently supported: * IPv4: Represents an IPv4 Address. * IPv6: Represents an IPv6 Address. * \
             FQDN: Represents a Fully Qualified Domain Name. (Deprecated) The EndpointSlice controller only \
             generates, and kube-proxy only processes, slices of addressType \"IPv4\" and \"IPv6\". No semantics \
             are defined for the \"FQDN\" type.",
        ),
        Column::text(
            "Ports",
            "ports specifies the list of network ports exposed by each endpoint in this slice. Each port must \
             have a unique name. Each slice may include a maximum of 100 ports. Services always have at least 1 \
             port, so EndpointSlices generated by the EndpointSlice controller will likewise always have at least \
             1 port. EndpointSlices used for other purposes may have an empty ports list.",
        ),
        Column::text(
            "Endpoints",
            "endpoints is a list of unique endpoints in this slice. Each slice may include a maximum of 1000 \
             endpoints.",
        ),
        AGE,
    ],
    cells: |row| {
        let port = |it: Field<'_>| match (it.at("port").is_set(), it.at("name").is_set()) {
            (true, _) => it.at("port").int().to_string(),
            (false, true) => it.at("name").text().to_owned(),
            (false, false) => "*".to_owned(),
        };
        let ports: Vec<String> = row.at("ports").items().map(port).collect();
        let endpoints = row.at("endpoints").items();
        let addresses = endpoints.flat_map(|it| it.at("addresses").items().map(|it| it.text().to_owned()));
        let addresses: Vec<String> = addresses.collect();
        vec![
            row.name(),
            row.at("addressType").text().into(),
            or_unset(with_more(&ports, 3)),
            or_unset(with_more(&addresses, 3)),
            row.age(),
        ]
    },
};

fn or_unset(text: String) -> Value {
    if text.is_empty() { "<unset>".into() } else { text.into() }
}

pub(super) const INGRESS: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Class",
            "The name of the IngressClass resource that should be used for additional configuration",
        ),
        Column::text(
            "Hosts",
            "Hosts that incoming requests are matched against before the ingress rule",
        ),
        Column::text(
            "Address",
            "Address is a list containing ingress points for the load-balancer",
        ),
        Column::text("Ports", "Ports of TLS configurations that open"),
        AGE,
    ],
    cells: |row| {
        let class = row.at("spec.ingressClassName");
        let is_secure = row.at("spec.tls").count() > 0;
        vec![
            row.name(),
            if class.is_set() { class.text() } else { "<none>" }.into(),
            hosts(row.at("spec.rules")).into(),
            load_balancer(row).join(",").into(),
            if is_secure { "80, 443" } else { "80" }.into(),
            row.age(),
        ]
    },
};

/// Returns the first three hosts. If further rules follow the third host, appends the number of rules minus three.
fn hosts(rules: Field<'_>) -> String {
    let mut list = Vec::new();
    let mut more = false;
    for rule in rules.items() {
        more |= list.len() == 3;
        let host = rule.at("host").text();
        if !more && !host.is_empty() {
            list.push(host);
        }
    }
    match (list.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, false) => list.join(","),
        (false, true) => format!("{} + {} more...", list.join(","), rules.count() - 3),
    }
}

pub(super) const INGRESS_CLASS: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Controller", "Controller that is responsible for handling this class"),
        Column::text("Parameters", "A reference to a resource with additional parameters"),
        AGE,
    ],
    cells: |row| {
        let parameters = row.at("spec.parameters");
        let group = parameters.at("apiGroup");
        let (kind, name) = (parameters.at("kind").text(), parameters.at("name").text());
        let text = match (parameters.is_set(), group.is_set()) {
            (false, _) => "<none>".to_owned(),
            (true, true) => format!("{kind}.{}/{name}", group.text()),
            (true, false) => format!("{kind}/{name}"),
        };
        vec![
            row.class_name(&["ingressclass.kubernetes.io/is-default-class"]),
            row.at("spec.controller").text().into(),
            text.into(),
            row.age(),
        ]
    },
};

pub(super) const NETWORK_POLICY: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Pod-Selector",
            "podSelector selects the pods to which this NetworkPolicy object applies. The array of rules is applied \
         to any pods selected by this field. An empty selector matches all pods in the policy's namespace. \
         Multiple network policies can select the same set of pods. In this case, the ingress rules for each are \
         combined additively. This field is optional. If it is not specified, it defaults to an empty selector.",
        ),
        AGE,
    ],
    cells: |row| vec![row.name(), row.at("spec.podSelector").selector().into(), row.age()],
};

pub(super) const SERVICE_CIDR: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "CIDRs",
            "CIDRs defines the IP blocks in CIDR notation (e.g. \"192.168.0.0/24\" or \"2001:db8::/64\") from which \
         to assign service cluster IPs. Max of two CIDRs is allowed, one of each IP family. This field is \
         immutable.",
        ),
        AGE,
    ],
    cells: |row| vec![row.name(), row.at("spec.cidrs").join(",").into(), row.age()],
};

/// kube-apiserver returns three cells for two columns.
pub(super) const IP_ADDRESS: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "ParentRef",
            "ParentRef references the resource that an IPAddress is attached to. An IPAddress must reference a \
         parent object.",
        ),
    ],
    cells: |row| {
        let parent = row.at("spec.parentRef");
        let mut text = parent.at("resource").text().to_lowercase();
        for (separator, part) in [(".", "group"), ("/", "namespace"), ("/", "name")] {
            let part = parent.at(part).text();
            if !part.is_empty() {
                text.push_str(separator);
                text.push_str(part);
            }
        }
        vec![row.name(), or_none(text).into(), row.age()]
    },
};
