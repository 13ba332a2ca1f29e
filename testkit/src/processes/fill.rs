//! Fills in the placeholders of commands and environment variables, such as `${KUBECONFIG}` and `${PORT_METRICS}`.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

use crate::lock::lock;

/// Prefix of placeholders for a free port.
const PORT: &str = "PORT";

/// Prefix of placeholders for environment variables.
const ENVIRONMENT: &str = "env.";

/// Number of attempts to find a port that no run uses.
const ATTEMPTS: usize = 100;

/// Values of placeholders, by name. A port is chosen on first use and does not change.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) values: BTreeMap<String, String>,
}

impl Places {
    /// Replaces the placeholders in a string. The error contains the first placeholder without a value.
    pub(crate) fn fill(&mut self, text: &str) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            filled.push_str(&rest[..at]);
            let inner = &rest[at + 2..];
            let end = inner.find('}').ok_or_else(|| format!("`{text}` has no closing `}}`"))?;
            filled.push_str(&self.value(&inner[..end])?);
            rest = &inner[end + 1..];
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn value(&mut self, name: &str) -> Result<String, String> {
        if let Some(value) = self.values.get(name) {
            return Ok(value.clone());
        }
        if let Some(variable) = name.strip_prefix(ENVIRONMENT) {
            let value = std::env::var(variable);
            return value
                .map_err(|_| format!("`${{{name}}}` has no value: the environment variable {variable} is not set"));
        }
        let is_port = name
            .strip_prefix(PORT)
            .is_some_and(|it| it.is_empty() || it.starts_with('_'));
        if !is_port {
            let known = self.values.keys().map(|it| format!("${{{it}}}"));
            let known: Vec<String> = known.chain(["${PORT_…}", "${env.…}"].map(str::to_owned)).collect();
            return Err(format!(
                "`${{{name}}}` is not a known placeholder; the known ones are {}",
                known.join(", ")
            ));
        }
        let port = free_port().map_err(|err| format!("no free port: {err}"))?;
        self.values.insert(name.to_owned(), port.to_string());
        Ok(port.to_string())
    }
}

/// Returns a free port of the loopback interface that was not returned recently, so that concurrent runs do not share a
/// port.
fn free_port() -> io::Result<u16> {
    static TAKEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());
    let mut last = Err(io::ErrorKind::AddrInUse.into());
    for _ in 0..ATTEMPTS {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let mut taken = lock(&TAKEN);
        if !taken.contains(&port) {
            // Forget the ports of earlier runs, which have ended: the system only has tens of thousands of ports.
            if taken.len() > 4_000 {
                taken.clear();
            }
            taken.push(port);
            last = Ok(port);
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_and_ports_do_not_change() {
        let mut places = Places::default();
        places.values.insert("SERVER".to_owned(), "https://x".to_owned());
        assert_eq!(places.fill("--at=${SERVER}/v1").as_deref(), Ok("--at=https://x/v1"));
        let path = std::env::var("PATH").expect("PATH is set");
        assert_eq!(places.fill("${env.PATH}"), Ok(path));
        let port = places.fill("${PORT_A}").expect("a port is free");
        assert_eq!(places.fill(":${PORT_A}"), Ok(format!(":{port}")));
        assert_ne!(places.fill("${PORT}"), Ok(port));
    }

    #[rstest::rstest]
    #[case::unknown_name(
        "${HOST}",
        "`${HOST}` is not a known placeholder; the known ones are ${PORT_…}, ${env.…}"
    )]
    #[case::unknown_variable(
        "${env.NO_SUCH}",
        "`${env.NO_SUCH}` has no value: the environment variable NO_SUCH is not set"
    )]
    #[case::missing_closing_brace("a${PORT", "`a${PORT` has no closing `}`")]
    fn unknown_placeholders_are_refused(#[case] text: &str, #[case] error: &str) {
        assert_eq!(Places::default().fill(text), Err(error.to_owned()));
    }
}
