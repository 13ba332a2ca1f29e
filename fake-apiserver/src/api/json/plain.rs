//! `plain_len`: length of the part of a JSON string that needs no escapes.

/// Returns the number of bytes before the first byte that needs an escape: a quote, a backslash or a control character.
pub(crate) fn plain_len(text: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    // Sets the high bit of each byte below `limit`. Only the bits up to the first such byte are exact.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let is = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let special = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        (below(word, 0x20) | is(word, b'"') | is(word, b'\\')) & HIGH
    };
    let place = |found: u64| found.trailing_zeros() as usize / 8;
    let Some(last) = text.last_chunk() else {
        let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        return text.iter().position(is_special).unwrap_or(text.len());
    };
    let (words, _) = text.as_chunks();
    for (at, word) in words.iter().enumerate() {
        let found = special(word);
        if found != 0 {
            return at * 8 + place(found);
        }
    }
    // The last eight bytes may overlap the words before them.
    match special(last) {
        0 => text.len(),
        found => text.len() - 8 + place(found),
    }
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
