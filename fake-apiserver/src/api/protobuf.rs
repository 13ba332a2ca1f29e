//! Writes fields in the wire format of protobuf.

pub(crate) fn write_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Writes a field of wire type 0: integers and flags.
pub(crate) fn write_number(out: &mut Vec<u8>, field: u64, number: u64) {
    write_varint(out, field << 3);
    write_varint(out, number);
}

pub(crate) fn write_text(out: &mut Vec<u8>, field: u64, text: &str) {
    write_bytes(out, field, text.as_bytes());
}

/// Writes a field of wire type 2: strings, bytes and messages.
pub(crate) fn write_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    write_varint(out, field << 3 | 2);
    // A length in memory fits 64 bits.
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
