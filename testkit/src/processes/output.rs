//! Reads the output of a process line by line.

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::task::JoinHandle;

/// Maximum number of bytes of a line that are kept.
const LINE_BYTES: usize = 2_000;

/// Prefixes of the first lines of a panic in several languages.
const PANICS: [&str; 4] = [
    "panic: ",
    "fatal error: ",
    "Traceback (most recent call last)",
    "Exception in thread \"main\"",
];

/// Passes each line that a process writes to `take`. The task ends when the output ends.
pub(crate) fn read_output(child: &mut Child, take: impl Fn(String) + Send + Sync + 'static) -> JoinHandle<()> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    tokio::spawn(async move {
        tokio::join!(read_lines(stdout, &take), read_lines(stderr, &take));
    })
}

/// Reads lines until the end, and passes each to `take`.
async fn read_lines(source: Option<impl AsyncRead + Unpin>, mut take: impl FnMut(String)) {
    let Some(mut source) = source else { return };
    let (mut line, mut buffer) = (Vec::new(), vec![0; 8 << 10]);
    loop {
        let read = match source.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        for byte in &buffer[..read] {
            match byte {
                b'\n' => take(text(&mut line)),
                byte if line.len() < LINE_BYTES => line.push(*byte),
                _ => {}
            }
        }
    }
    if !line.is_empty() {
        take(text(&mut line));
    }
}

fn text(line: &mut Vec<u8>) -> String {
    let text = String::from_utf8_lossy(line).trim_end().to_owned();
    line.clear();
    text
}

/// Returns `true` for the first line of a panic in a Go, Rust, Python or Java program.
pub(crate) fn is_panic(line: &str) -> bool {
    PANICS.iter().any(|it| line.starts_with(it)) || (line.starts_with("thread '") && line.contains("panicked at"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_lines_are_truncated_and_an_unterminated_last_line_is_read() {
        let input = format!("a\r\n{}\nlast", "x".repeat(3_000));
        let mut lines = Vec::new();
        read_lines(Some(input.as_bytes()), |line| lines.push(line)).await;
        assert_eq!(lines[0], "a");
        assert_eq!(lines[1].len(), LINE_BYTES);
        assert_eq!(lines[2], "last");
    }

    #[rstest::rstest]
    #[case::panic_of_go("panic: runtime error: invalid memory address", true)]
    #[case::panic_of_rust("thread 'main' panicked at src/main.rs:4:5:", true)]
    #[case::log_line_about_panics("level=info msg=\"no panic: all is well\"", false)]
    fn panics_are_recognised_by_their_first_line(#[case] line: &str, #[case] expected: bool) {
        assert_eq!(is_panic(line), expected);
    }
}
