//! `plain_len`: length of the part of a JSON string that needs no escapes.

/// Returns the number of bytes before the first byte that needs an escape: a quote, a backslash or a control character.
///
/// This function scans each string of an object several times. In builds without optimisation, which most tests use, a
/// call of an iterator costs more than the comparison of eight bytes, so the loop calls few functions.
pub(crate) fn plain_len(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = text[at..].first_chunk() {
        let found = escaped_in(*word);
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while at < text.len() && !matches!(text[at], b'"' | b'\\' | 0..0x20) {
        at += 1;
    }
    at
}

/// Sets the high bit of each byte that needs an escape. No sum of two bytes carries into the next byte.
fn escaped_in(word: [u8; 8]) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const LOW: u64 = ONES * 0x7f;
    const QUOTE: u64 = ONES * b'"' as u64;
    const BACKSLASH: u64 = ONES * b'\\' as u64;
    let word = u64::from_le_bytes(word);
    let (quote, backslash) = (word ^ QUOTE, word ^ BACKSLASH);
    let is_no_control = ((word & LOW) + ONES * 0x60) | word;
    let is_no_quote = ((quote & LOW) + LOW) | quote;
    let is_no_backslash = ((backslash & LOW) + LOW) | backslash;
    !(is_no_control & is_no_quote & is_no_backslash | LOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_len_stops_at_the_first_byte_that_needs_escaping() {
        for special in [b'"', b'\\', 0, 0x1f] {
            for len in 0..20 {
                let mut text = [b'!', b' ', 0x7f, 0x80, 0xff, b'#', b'[', b']'].repeat(3);
                assert_eq!(plain_len(&text[..len]), len);
                text[len] = special;
                assert_eq!(plain_len(&text), len, "{special}");
            }
        }
    }
}
