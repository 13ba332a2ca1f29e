//! A self-contained page that shows a trace.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

use super::Trace;

const SHELL: &str = include_str!("viewer.html");
const STYLE: &str = include_str!("viewer.css");
const MODEL: &str = include_str!("model.js");
const VIEWER: &str = include_str!("viewer.js");

impl Trace {
    /// Returns a self-contained HTML page that shows the document in any browser. The document is embedded as data that
    /// is not executed. The page's Content Security Policy only permits its own script and style and embedded images.
    /// It forbids access to the network and the conversion of strings to HTML.
    pub fn to_html(&self) -> String {
        let script = format!("{MODEL}\n{VIEWER}");
        let policy = format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
            hash(&script),
            hash(STYLE)
        );
        let parts = [
            ("@policy@", policy),
            ("@title@", escaped(&self.title)),
            ("@style@", STYLE.to_owned()),
            ("@data@", inert(&self.to_json().to_string())),
            ("@script@", script),
        ];
        filled(SHELL, &parts)
    }
}

/// Replaces placeholders, which must be in the order of `parts`. Inserted parts are not searched for placeholders.
fn filled(shell: &str, parts: &[(&str, String)]) -> String {
    let (mut page, mut rest) = (String::new(), shell);
    for (mark, text) in parts {
        let Some((before, after)) = rest.split_once(mark) else {
            continue;
        };
        page.push_str(before);
        page.push_str(text);
        rest = after;
    }
    page.push_str(rest);
    page
}

/// Escapes JSON so that it can neither end the enclosing script block nor start a comment in it. `<`, `>` and `&` only
/// occur in strings, in which they can be escaped.
fn inert(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for sign in json.chars() {
        match sign {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text.push_str(&format!("\\u{:04x}", u32::from(sign))),
            _ => text.push(sign),
        }
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}
