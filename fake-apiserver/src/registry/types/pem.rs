//! Parses PEM blocks in base64 fields, and returns Go's errors about certificates and keys in them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A PEM block.
pub(crate) struct PemBlock {
    /// The type after `BEGIN`.
    pub(crate) kind: String,
    /// Set if the block has headers.
    pub(crate) has_headers: bool,
    /// The decoded contents.
    pub(crate) der: Vec<u8>,
}

/// Returns the blocks of base64-encoded PEM data, as in byte fields in JSON.
pub(crate) fn pem_blocks(encoded: &str) -> impl Iterator<Item = PemBlock> + use<> {
    let text = STANDARD.decode(encoded).unwrap_or_default();
    pem_blocks_of_text(&String::from_utf8_lossy(&text))
}

/// Returns the blocks of PEM data.
pub(crate) fn pem_blocks_of_text(text: &str) -> impl Iterator<Item = PemBlock> + use<> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, Vec<String>)> = None;
    for line in text.lines().map(str::trim_end) {
        let marked = |mark: &str| {
            let kind = line.strip_prefix("-----")?.strip_prefix(mark)?.strip_suffix("-----")?;
            Some(kind.to_owned())
        };
        if let Some(kind) = marked("BEGIN ") {
            open = Some((kind, Vec::new()));
        } else if let Some(kind) = marked("END ") {
            let Some((_, lines)) = open.take().filter(|(begun, _)| *begun == kind) else {
                continue;
            };
            let (headers, body): (Vec<String>, Vec<String>) = lines.into_iter().partition(|it| it.contains(':'));
            if let Ok(der) = STANDARD.decode(body.concat()) {
                blocks.push(PemBlock {
                    kind,
                    has_headers: !headers.is_empty(),
                    der,
                });
            }
        } else if let Some((_, lines)) = &mut open {
            lines.push(line.to_owned());
        }
    }
    blocks.into_iter()
}

/// DER tag of a SEQUENCE, the outermost element of certificates and keys.
const SEQUENCE: u8 = 0x30;

/// Returns Go's error for a base64-encoded CA bundle without a certificate (`TLSConfigFor` of client-go). An empty
/// bundle is valid. Only the tag of the outermost DER element is checked.
pub(crate) fn bundle_error(bundle: &str) -> Option<String> {
    if bundle.is_empty() {
        return None;
    }
    let blocks: Vec<PemBlock> = pem_blocks(bundle).collect();
    let is_certificate = |it: &&PemBlock| it.kind == "CERTIFICATE" && !it.has_headers;
    let certificates: Vec<&PemBlock> = blocks.iter().filter(is_certificate).collect();
    if certificates.iter().any(|it| it.der.first() == Some(&SEQUENCE)) {
        return None;
    }
    let why = match (blocks.is_empty(), certificates.is_empty()) {
        (true, _) => "unable to parse bytes as PEM block",
        (false, true) => "no valid certificate authority data seen",
        (false, false) => "failed to parse certificate: x509: malformed certificate",
    };
    Some(format!("unable to load root certificates: {why}"))
}

/// Returns the error of Go's `tls.X509KeyPair` for a certificate and its key, both base64-encoded. Only the tag of the
/// outermost DER element is checked, so a key that does not belong to the certificate is not detected.
pub(crate) fn key_pair_error(certificate: &str, key: &str) -> Option<String> {
    let is_key = |kind: &str| kind == "PRIVATE KEY" || kind.ends_with(" PRIVATE KEY");
    let blocks: Vec<PemBlock> = pem_blocks(certificate).collect();
    let certificate = blocks.iter().find(|it| it.kind == "CERTIFICATE");
    let Some(certificate) = certificate else {
        let kinds: Vec<&str> = blocks.iter().map(|it| it.kind.as_str()).collect();
        return Some(match kinds.as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [kind] if kind.ends_with("PRIVATE KEY") => {
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM \
                 inputs may have been switched"
                    .to_owned()
            }
            _ => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
                 following types: [{}]",
                kinds.join(" ")
            ),
        });
    };
    let blocks: Vec<PemBlock> = pem_blocks(key).collect();
    let Some(key) = blocks.iter().find(|it| is_key(&it.kind)) else {
        let kinds: Vec<&str> = blocks.iter().map(|it| it.kind.as_str()).collect();
        return Some(match kinds.as_slice() {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            ["CERTIFICATE"] => "tls: found a certificate rather than a key in the PEM for the private key".to_owned(),
            _ => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM \
                 blocks of the following types: [{}]",
                kinds.join(" ")
            ),
        });
    };
    if certificate.der.first() != Some(&SEQUENCE) {
        return Some("x509: malformed certificate".to_owned());
    }
    (key.der.first() != Some(&SEQUENCE)).then(|| "tls: failed to parse private key".to_owned())
}
