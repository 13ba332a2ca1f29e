//! Fills in the placeholders of commands, environment variables and files, such as `${KUBECONFIG}` and
//! `${PORT_METRICS}`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::lock::lock;

/// Prefix of placeholders for a free port.
const PORT: &str = "PORT";

/// Prefix of placeholders for environment variables.
const ENVIRONMENT: &str = "env.";

/// Placeholder for the directory of a controller's files.
pub(crate) const FILES: &str = "FILES";

/// Placeholders that every process has, in the order of the values in [`Places::of_process`].
const OF_PROCESS: [&str; 6] = ["NAME", "SERVER", "TOKEN", "KUBECONFIG", "CA", "SCENARIO"];

/// Number of attempts to find a port that no run uses.
const ATTEMPTS: usize = 100;

/// Values of placeholders, by name. A port is chosen on first use and does not change.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) values: BTreeMap<String, String>,
}

impl Places {
    /// Returns the placeholders of a process: its name, the URL of its server, its token, the paths of its kubeconfig
    /// and of the server's CA, and the directory of the scenario.
    pub(crate) fn of_process(values: [String; 6]) -> Self {
        let names = OF_PROCESS.iter().map(|it| (*it).to_owned());
        Self {
            values: names.zip(values).collect(),
        }
    }

    /// Fails with a message if a placeholder in a string is unknown or not closed. Does not choose ports.
    pub(crate) fn check(&self, text: &str) -> Result<(), String> {
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let closed = rest[at + 2..].split_once('}');
            let (name, after) = closed.ok_or_else(|| not_closed(text))?;
            self.known(name)?;
            rest = after;
        }
        Ok(())
    }

    /// Replaces the placeholders in a string. The error contains the first placeholder without a value.
    pub(crate) fn fill(&mut self, text: &str) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            filled.push_str(&rest[..at]);
            let inner = &rest[at + 2..];
            let end = inner.find('}').ok_or_else(|| not_closed(text))?;
            filled.push_str(&self.value(&inner[..end])?);
            rest = &inner[end + 1..];
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// Replaces the known placeholders in a text. Other occurrences of `${…}` are kept, because they may belong to the
    /// program.
    fn fill_known(&mut self, text: &str) -> String {
        let mut pieces = text.split("${");
        let mut filled = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let placeholder = piece.split_once('}');
            match placeholder.and_then(|(name, rest)| Some((self.value(name).ok()?, rest))) {
                Some((value, rest)) => {
                    filled.push_str(&value);
                    filled.push_str(rest);
                }
                None => {
                    filled.push_str("${");
                    filled.push_str(piece);
                }
            }
        }
        filled
    }

    /// Copies a file, or a directory with all of its files, and replaces the known placeholders in text files.
    pub(crate) fn copy(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if is_directory(from)? {
            fs::create_dir_all(to)?;
            for entry in fs::read_dir(from)? {
                let entry = entry?;
                self.copy(&entry.path(), &to.join(entry.file_name()))?;
            }
            return Ok(());
        }
        let content = fs::read(from)?;
        let filled = match String::from_utf8(content) {
            Ok(text) => self.fill_known(&text).into_bytes(),
            Err(err) => err.into_bytes(),
        };
        fs::write(to, filled)?;
        // A script must be executable.
        fs::set_permissions(to, fs::metadata(from)?.permissions())
    }

    fn value(&mut self, name: &str) -> Result<String, String> {
        if let Some(value) = self.known(name)? {
            return Ok(value);
        }
        let port = free_port().map_err(|err| format!("no free port: {err}"))?;
        self.values.insert(name.to_owned(), port.to_string());
        Ok(port.to_string())
    }

    /// Returns the value of a placeholder; `None` for a port that has not been chosen yet.
    fn known(&self, name: &str) -> Result<Option<String>, String> {
        if let Some(value) = self.values.get(name) {
            return Ok(Some(value.clone()));
        }
        if let Some(variable) = name.strip_prefix(ENVIRONMENT) {
            let value = std::env::var(variable);
            return value
                .map(Some)
                .map_err(|_| format!("`${{{name}}}` has no value: the environment variable {variable} is not set"));
        }
        let is_port = name
            .strip_prefix(PORT)
            .is_some_and(|it| it.is_empty() || it.starts_with('_'));
        if is_port {
            return Ok(None);
        }
        let known = self.values.keys().map(|it| format!("${{{it}}}"));
        let known: Vec<String> = known.chain(["${PORT_…}", "${env.…}"].map(str::to_owned)).collect();
        Err(format!(
            "`${{{name}}}` is not a known placeholder; the known ones are {}",
            known.join(", ")
        ))
    }
}

fn not_closed(text: &str) -> String {
    format!("`{text}` is missing a closing `}}`")
}

/// Returns the content of a text file, or of all text files in a directory. Other files are skipped.
pub(crate) fn texts(path: &Path) -> Vec<String> {
    match is_directory(path) {
        Ok(true) => entries(path).flat_map(|it| texts(&it)).collect(),
        Ok(false) => fs::read_to_string(path).into_iter().collect(),
        Err(_) => Vec::new(),
    }
}

/// Returns an error for the first file that cannot be copied, at this path or in this directory.
pub(crate) fn wrong_file(path: &Path) -> Option<String> {
    match is_directory(path) {
        Ok(true) => entries(path).find_map(|it| wrong_file(&it)),
        Ok(false) => None,
        Err(err) => Some(err.to_string()),
    }
}

/// Returns the paths of the files in a directory, sorted. A directory that cannot be read counts as empty.
fn entries(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|it| it.path()).collect();
    paths.sort();
    paths.into_iter()
}

/// Returns `true` for a directory and `false` for a regular file. Fails for other files, such as pipes, because reading
/// them may never end. Also fails for links to directories, because the directory may contain the link.
fn is_directory(path: &Path) -> io::Result<bool> {
    let shown = path.display();
    let named = |err: io::Error| io::Error::new(err.kind(), format!("{shown}: {err}"));
    let is_link = fs::symlink_metadata(path).map_err(named)?.is_symlink();
    let found = fs::metadata(path).map_err(named)?;
    match (found.is_dir(), found.is_file()) {
        (true, _) if is_link => Err(io::Error::other(format!("{shown} is a link to a directory"))),
        (true, _) => Ok(true),
        (false, true) => Ok(false),
        (false, false) => Err(io::Error::other(format!("{shown} is neither a file nor a directory"))),
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
    #[case::known_placeholder("at: ${SERVER}/v1\n", "at: https://x/v1\n")]
    #[case::placeholder_of_the_program("${HOST} ${SERVER}", "${HOST} https://x")]
    #[case::open_brace("${SERVER} ${ ${", "https://x ${ ${")]
    #[case::placeholder_inside_of_another_one("${HOST:-${SERVER}}", "${HOST:-https://x}")]
    #[case::placeholder_inside_of_a_port("${PORT_${SERVER}}", "${PORT_https://x}")]
    #[case::known_name_of_a_variable_of_the_program("$SERVER ${SERVER:-}", "$SERVER ${SERVER:-}")]
    fn unknown_placeholders_in_files_are_kept(#[case] text: &str, #[case] filled: &str) {
        let mut places = Places::default();
        places.values.insert("SERVER".to_owned(), "https://x".to_owned());
        assert_eq!(places.fill_known(text), filled);
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
    #[case::missing_closing_brace("a${PORT", "`a${PORT` is missing a closing `}`")]
    fn unknown_placeholders_are_refused(#[case] text: &str, #[case] error: &str) {
        assert_eq!(Places::default().fill(text), Err(error.to_owned()));
        assert_eq!(Places::default().check(text), Err(error.to_owned()));
    }

    #[test]
    fn placeholder_of_a_port_is_known_before_the_port_is_chosen() {
        assert_eq!(Places::default().check("--metrics=:${PORT_METRICS}"), Ok(()));
    }
}
