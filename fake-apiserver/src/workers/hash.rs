//! Computes the hashes in the names of objects that are created from a template. They have the format of Kubernetes'
//! hashes but different values, because Kubernetes hashes the printed form of a Go struct.

use crate::api::json::{Map, Value};

/// Alphabet without vowels, so that hashes do not form words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// 32-bit FNV-1a hash.
struct Fnv(u32);

impl Fnv {
    fn new() -> Self {
        Self(0x811c_9dc5)
    }

    fn eat(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }

    /// Adds a value to the hash, independent of the order of its fields.
    fn eat_value(&mut self, value: &Value) {
        match value {
            Value::Object(map) => self.eat_map(map),
            Value::Array(list) => {
                self.eat(b"[");
                for item in list {
                    self.eat_value(item);
                    self.eat(b",");
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.eat(value.to_string().as_bytes());
            }
        }
    }

    fn eat_map(&mut self, map: &Map) {
        let mut fields: Vec<_> = map.iter().filter(|(_, value)| !value.is_null()).collect();
        fields.sort_by_key(|(key, _)| key.as_str());
        self.eat(b"{");
        for (key, value) in fields {
            self.eat(key.as_bytes());
            self.eat(b":");
            self.eat_value(value);
        }
    }
}

/// Returns the hash of a template; `collisions` changes the hash after a collision.
pub(crate) fn template_hash(template: &Map, collisions: Option<i64>) -> u32 {
    let mut hash = Fnv::new();
    hash.eat_map(template);
    if let Some(count) = collisions {
        hash.eat(&count.to_le_bytes());
    }
    hash.0
}

/// Encodes a number for a name, like Kubernetes: each digit becomes a letter of a safe alphabet.
pub(crate) fn safe_text(number: u32) -> String {
    let digits = number.to_string();
    digits
        .bytes()
        .map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]))
        .collect()
}

/// Returns a long hexadecimal string derived from short strings, such as the id of a container.
pub(crate) fn long_hex(parts: &[&str]) -> String {
    use sha2::{Digest as _, Sha256};
    let digest = Sha256::digest(parts.join("\n").as_bytes());
    digest.iter().fold(String::with_capacity(64), |mut text, byte| {
        let digit = |it: u8| char::from_digit(u32::from(it), 16).unwrap_or('0');
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
        text
    })
}
