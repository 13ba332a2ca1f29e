//! Checks if image references have the tag `latest`, which determines the default pull policy.

/// Maximum length of the path of a repository, in bytes.
const REPOSITORY_MAX: usize = 255;

/// Returns the default pull policy of an image: `Always` if its tag is `latest`, explicitly or by default, and
/// otherwise `IfNotPresent`.
pub(crate) fn default_pull_policy(image: &str) -> &'static str {
    if names_latest(image) { "Always" } else { "IfNotPresent" }
}

/// Returns `true` if the reference is well formed and its tag is `latest`, explicitly or by default.
fn names_latest(image: &str) -> bool {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return false;
    }
    let path_start = name.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match name[path_start..].split_once(':') {
        Some((last, tag)) => (&name[..path_start + last.len()], Some(tag)),
        None => (name, None),
    };
    if !is_repository(repository)
        || is_too_long(repository)
        || (digest.is_none() && tag.is_none() && is_identifier(repository))
    {
        return false;
    }
    match tag {
        Some(tag) => tag == "latest",
        None => digest.is_none(),
    }
}

/// Returns `true` if the path of a repository, without the domain, has more than 255 bytes. A name without a slash is
/// prefixed with `library/`.
fn is_too_long(repository: &str) -> bool {
    let path = match repository.split_once('/') {
        Some((first, rest)) if is_domain_like(first) => rest.len(),
        Some(_) => repository.len(),
        None => "library/".len() + repository.len(),
    };
    path > REPOSITORY_MAX
}

/// Returns `true` for 64 hexadecimal digits. This is the format of an image ID, which is not a valid name.
fn is_identifier(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns `true` for a digest of SHA-256, SHA-384 or SHA-512; other algorithms are refused.
fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else {
        return false;
    };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length
        && hex
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns `true` for a repository of the form `[domain/]component[/component…]`.
fn is_repository(text: &str) -> bool {
    let path = match text.split_once('/') {
        Some((first, rest)) if is_domain_like(first) => {
            if !is_domain(first) {
                return false;
            }
            rest
        }
        _ => text,
    };
    path.split('/').all(is_component)
}

fn is_domain_like(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && !text.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port_fits = port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return port_fits && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
    }
    port_fits
        && host.split('.').all(|label| {
            let bytes = label.as_bytes();
            let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            ends(bytes.first())
                && ends(bytes.last())
                && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        })
}

/// Returns `true` for lower-case words separated by `.`, `_`, `__` or any number of `-`.
fn is_component(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    word(*first)
        && word(*last)
        && text
            .split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            .all(|separator| matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-'))
}

#[cfg(test)]
mod tests {
    use super::default_pull_policy;
    use rstest::rstest;

    #[rstest]
    #[case::no_tag("nginx", "Always")]
    #[case::latest("img:latest", "Always")]
    #[case::tag("img:1", "IfNotPresent")]
    #[case::port_without_a_tag("reg.example.com:5000/img", "Always")]
    #[case::port_and_tag("localhost:5000/a/b:v1", "IfNotPresent")]
    #[case::digest(
        "img@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "IfNotPresent"
    )]
    #[case::tag_and_digest(
        "i:latest@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "Always"
    )]
    #[case::leading_space(" img", "IfNotPresent")]
    #[case::uppercase_name("Img", "IfNotPresent")]
    #[case::empty_name("", "IfNotPresent")]
    #[case::image_identifier("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "IfNotPresent")]
    fn t1_default_pull_policy_depends_on_the_tag(#[case] image: &str, #[case] policy: &str) {
        assert_eq!(default_pull_policy(image), policy);
    }

    #[rstest]
    #[case::longest_path(10, 255, "Always")]
    #[case::too_long_path(10, 256, "IfNotPresent")]
    #[case::long_domain(300, 10, "Always")]
    #[case::longest_path_in_library(0, 247, "Always")]
    #[case::too_long_path_in_library(0, 248, "IfNotPresent")]
    fn only_the_path_of_a_repository_has_a_maximum_length(
        #[case] domain: usize,
        #[case] path: usize,
        #[case] policy: &str,
    ) {
        let domain = match domain {
            0 => String::new(),
            length => format!("{}.com/", "a".repeat(length - 4)),
        };
        assert_eq!(default_pull_policy(&format!("{domain}{}", "a".repeat(path))), policy);
    }
}
