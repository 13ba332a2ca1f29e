//! Parses and writes the subset of DER that certificates, keys and signatures use: elements of definite length.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// Returns the content of the first element, which must have this tag, and the bytes after the element.
pub(super) fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = any_element(der)?;
    (found == tag).then_some((content, rest))
}

/// Returns the tag and the content of the first element, and the bytes after it.
pub(super) fn any_element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], mut rest) = der.split_first_chunk()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        // The long form: `first` contains the number of bytes of the length. Four bytes suffice for any certificate.
        let (bytes, after) = rest
            .split_at_checked(usize::from(first & 0x7f))
            .filter(|(bytes, _)| bytes.len() <= 4)?;
        length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Returns the content of a BIT STRING of whole bytes, and the bytes after it.
pub(super) fn bit_string(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (content, rest) = element(der, BIT_STRING)?;
    Some((content.strip_prefix(&[0])?, rest))
}

/// Returns the bytes of a positive INTEGER without leading zeros, and the bytes after it.
pub(super) fn integer(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (content, rest) = element(der, INTEGER)?;
    let zeros = content.iter().take_while(|byte| **byte == 0).count();
    Some((&content[zeros..], rest))
}

/// Encodes an element with this tag that contains `parts`.
pub(super) fn write(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut der = vec![tag];
    match content.len().to_be_bytes().iter().position(|byte| *byte != 0) {
        _ if content.len() < 0x80 => der.push(content.len() as u8),
        first => {
            let bytes = content.len().to_be_bytes();
            let bytes = &bytes[first.unwrap_or(0)..];
            der.push(0x80 | bytes.len() as u8);
            der.extend(bytes);
        }
    }
    der.extend(content);
    der
}

/// Encodes a positive INTEGER from its bytes, the most significant first.
pub(super) fn write_integer(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let bytes = &bytes[zeros.min(bytes.len().saturating_sub(1))..];
    let sign: &[u8] = if bytes.first().is_some_and(|byte| *byte >= 0x80) {
        &[0]
    } else {
        &[]
    };
    write(INTEGER, &[sign, bytes])
}
