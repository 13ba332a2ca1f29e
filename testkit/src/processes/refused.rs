//! Hints about connections to Pods that were refused, because no stub serves the port.

use std::collections::BTreeSet;

/// Beginning of the addresses of simulated Pods.
const PODS: &str = "10.244.";

/// Returns a hint for each port of Pods at which connections were refused, according to the output of the controllers.
pub(crate) fn hints<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let ports: BTreeSet<u16> = lines.filter_map(refused).collect();
    let hint = |port| {
        format!("connections to port {port} of Pods were refused; `cluster.stubs` runs programs on the ports of Pods")
    };
    ports.into_iter().map(hint).collect()
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
}
