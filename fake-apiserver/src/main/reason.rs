//! Reports the reason for a failed start on the stderr of the parent process, if the parent discards this program's
//! output. envtest does so, and only reports a timeout itself.

/// Writes a message to the stderr of the parent process, if this program's stderr is `/dev/null`. Does nothing without
/// `/proc`.
#[cfg(unix)]
pub(crate) fn tell_parent(text: &str) {
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;
    use std::os::unix::process::parent_id;
    use std::path::Path;

    let is_dropped = fs::read_link("/proc/self/fd/2").is_ok_and(|it| it == Path::new("/dev/null"));
    let parent = format!("/proc/{}/fd/2", parent_id());
    if let (true, Ok(mut stderr)) = (is_dropped, OpenOptions::new().append(true).open(parent)) {
        let program = std::env::args().next().unwrap_or_default();
        // The program also prints the message on its own stderr.
        let _ = stderr.write_all(format!("{program}: {text}").as_bytes());
    }
}

/// Does nothing: this system does not have `/proc`.
#[cfg(not(unix))]
pub(crate) fn tell_parent(_: &str) {}
