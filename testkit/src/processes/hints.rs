//! Hints about errors in the output of controllers that are caused by the network of a run.

use std::collections::BTreeSet;

/// Beginning of the addresses of simulated Pods.
const PODS: &str = "10.244.";

/// Message of the operating system about a port that another process uses, in lower case.
const IN_USE: &str = "address already in use";

/// Hint about a port that another process uses.
const FREE_PORTS: &str = "a controller could not listen, because its address was already in use: runs are concurrent, so \
                          pass free ports such as `${PORT_METRICS}` to the program, or set `network: private`";

/// Returns hints about the output of the controllers: one for each port of Pods at which connections were refused, and
/// one if a port was in use.
pub(crate) fn hints<'a>(mut lines: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let ports: BTreeSet<u16> = lines.clone().filter_map(refused).collect();
    let hint = |port| {
        format!("connections to port {port} of Pods were refused; `cluster.stubs` runs programs on the ports of Pods")
    };
    let in_use = lines.any(is_in_use).then(|| FREE_PORTS.to_owned());
    ports.into_iter().map(hint).chain(in_use).collect()
}

/// Returns the port of the first address of a Pod in a line about a refused connection.
fn refused(line: &str) -> Option<u16> {
    if !line.contains("refused") {
        return None;
    }
    let (_, rest) = line.split_once(PODS)?;
    let (address, rest) = rest.split_once(':')?;
    let is_address = address.chars().all(|it| it.is_ascii_digit() || it == '.');
    let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok().filter(|_| is_address)
}

/// Returns `true` for a line about an address that is already in use.
fn is_in_use(line: &str) -> bool {
    line.to_ascii_lowercase().contains(IN_USE)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::go("dial tcp 10.244.0.2:3306: connect: connection refused", Some(3306))]
    #[case::java("Connection refused: /10.244.0.2:3306", Some(3306))]
    #[case::other_failure("dial tcp 10.244.0.2:3306: i/o timeout", None)]
    #[case::other_address("dial tcp 10.0.0.2:3306: connect: connection refused", None)]
    #[case::without_a_port("10.244.0.2 refused the connection: retrying", None)]
    fn ports_of_pods_are_found_in_lines_about_refused_connections(#[case] line: &str, #[case] port: Option<u16>) {
        assert_eq!(refused(line), port);
    }

    #[test]
    fn each_port_has_one_hint() {
        let line = "dial tcp 10.244.0.2:3306: connect: connection refused";
        assert_eq!(hints([line, line].into_iter()).len(), 1);
    }

    #[rstest]
    #[case::go("listen tcp 127.0.0.1:8080: bind: address already in use", true)]
    #[case::java("java.net.BindException: Address already in use", true)]
    #[case::python("OSError: [Errno 98] Address already in use", true)]
    #[case::other_failure("listen tcp 127.0.0.1:80: bind: permission denied", false)]
    fn address_in_use_has_a_hint_about_free_ports(#[case] line: &str, #[case] has_hint: bool) {
        let expected: Vec<String> = has_hint.then(|| FREE_PORTS.to_owned()).into_iter().collect();
        assert_eq!(hints([line, line].into_iter()), expected);
    }
}
