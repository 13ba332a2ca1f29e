//! Converts built-in objects between protobuf and JSON, with the generated table of field numbers (rule M1).

mod write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

use crate::api::json::{Map, Value};
use crate::registry::types::schema::builtin::{Kind, Shape, StructType};

#[cfg(test)]
use write::encode;
pub(crate) use write::encode_value;

/// Prefix of every protobuf body.
const MAGIC: &[u8] = b"k8s\0";
/// Maximum nesting of messages, which also limits recursion. Deeper messages are refused.
const MOST_LEVELS: usize = 100;

/// A protobuf body: the declared kind, and the message of that kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Envelope<'a> {
    /// `apiVersion`; may be empty.
    pub(crate) api_version: String,
    /// `kind`; may be empty.
    pub(crate) kind: String,
    /// The encoded object, without its kind and apiVersion.
    pub(crate) message: &'a [u8],
}

/// Parses the envelope of a body.
pub(crate) fn open(raw: &[u8]) -> Result<Envelope<'_>, String> {
    if raw.is_empty() {
        return Err("empty data".to_owned());
    }
    let Some(rest) = raw.strip_prefix(MAGIC) else {
        return Err(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".to_owned(),
        );
    };
    let mut envelope = Envelope {
        api_version: String::new(),
        kind: String::new(),
        message: &[],
    };
    let mut reader = Reader { bytes: rest };
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => {
                let mut names = Reader { bytes };
                while let Some((number, wire)) = names.next()? {
                    match number {
                        1 => envelope.api_version = wire.text()?,
                        2 => envelope.kind = wire.text()?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => envelope.message = bytes,
            _ => {}
        }
    }
    Ok(envelope)
}

/// Decodes a message of a built-in type to JSON, without `kind` and `apiVersion`. The result must be converted like any
/// other body, because protobuf also contains zero values that JSON omits.
pub(crate) fn decode(shape: &'static Shape, message: &[u8]) -> Result<Map, String> {
    let structure = shape
        .structure()
        .ok_or_else(|| format!("{} is not a message type", shape.go_type()))?;
    let mut map = Map::new();
    read_struct(structure, message, 0, &mut map, 0)?;
    Ok(map)
}

/// An encoded value.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn bytes(self) -> Result<&'a [u8], String> {
        match self {
            Wire::Bytes(bytes) => Ok(bytes),
            Wire::Varint(_) | Wire::Fixed(_) => Err("proto: wrong wireType, want 2".to_owned()),
        }
    }

    fn varint(self) -> Result<u64, String> {
        match self {
            Wire::Varint(number) => Ok(number),
            Wire::Fixed(_) | Wire::Bytes(_) => Err("proto: wrong wireType, want 0".to_owned()),
        }
    }

    fn text(self) -> Result<String, String> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(u64, Wire<'a>)>, String> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed(u64::from_le_bytes(self.array()?)),
            2 => {
                let len = self.varint()?;
                Wire::Bytes(self.take(usize::try_from(len).unwrap_or(usize::MAX))?)
            }
            5 => Wire::Fixed(u64::from(u32::from_le_bytes(self.array()?))),
            other => return Err(format!("proto: illegal wireType {other}")),
        };
        Ok(Some((tag >> 3, wire)))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (head, rest) = self.bytes.split_at_checked(len).ok_or("unexpected EOF")?;
        self.bytes = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        <[u8; N]>::try_from(self.take(N)?).map_err(|_| "unexpected EOF".to_owned())
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("proto: integer overflow".to_owned())
    }
}

fn read_struct(
    structure: &'static StructType,
    bytes: &[u8],
    prefix: u32,
    map: &mut Map,
    level: usize,
) -> Result<(), String> {
    if level > MOST_LEVELS {
        return Err("exceeded max depth".to_owned());
    }
    let mut reader = Reader { bytes };
    while let Some((number, wire)) = reader.next()? {
        let found = structure.fields().iter().find_map(|field| {
            let (own, last) = field.protobuf(prefix)?;
            (u64::from(own) == number).then_some((field, own, last))
        });
        match found {
            Some((field, _, true)) => {
                let before = map.remove(field.name());
                let value = read_value(field.shape(), wire, before, level + 1)?;
                map.insert(field.name().into(), value);
            }
            // An inlined struct, whose fields belong to the enclosing object in JSON.
            Some((_, own, false)) => {
                read_struct(structure, wire.bytes()?, prefix << 8 | u32::from(own), map, level + 1)?;
            }
            None => {}
        }
    }
    Ok(())
}

/// Decodes one value. `before` is the result of earlier occurrences of the field.
fn read_value(shape: &'static Shape, wire: Wire<'_>, before: Option<Value>, level: usize) -> Result<Value, String> {
    Ok(match shape.kind() {
        Kind::String => Value::from(wire.text()?),
        Kind::Bool => Value::from(wire.varint()? != 0),
        // Negative 32-bit integers are sign-extended to 64 bits.
        Kind::Int32 | Kind::Int64 => Value::from(wire.varint()?.cast_signed()),
        Kind::Float64 => match wire {
            Wire::Fixed(bits) => Value::from(f64::from_bits(bits)),
            Wire::Varint(_) | Wire::Bytes(_) => return Err("proto: wrong wireType, want 1".to_owned()),
        },
        Kind::Bytes => Value::from(STANDARD.encode(wire.bytes()?)),
        Kind::Quantity => {
            let mut text = "0".to_owned();
            let mut reader = Reader { bytes: wire.bytes()? };
            while let Some((number, wire)) = reader.next()? {
                if number == 1 {
                    text = wire.text()?;
                }
            }
            Value::from(text)
        }
        Kind::IntOrString => read_int_or_string(wire.bytes()?)?,
        Kind::Time | Kind::MicroTime => read_time(wire.bytes()?, shape.kind() == Kind::MicroTime)?,
        Kind::Raw | Kind::Json => read_raw(wire.bytes()?)?,
        Kind::SchemaOrArray(_) | Kind::SchemaOrBool(_) | Kind::SchemaOrStrings(_) => {
            read_alternative(shape, wire.bytes()?, level)?
        }
        Kind::List(_) => read_list(shape, wire, before, level)?,
        Kind::Map(_) => {
            let mut map = match before {
                Some(Value::Object(map)) => map,
                _ => Map::new(),
            };
            if let Some(values) = shape.values() {
                let (key, value) = read_entry(values, wire.bytes()?, level)?;
                map.insert(key.into(), value);
            }
            Value::Object(map)
        }
        Kind::Struct(_) => {
            let mut map = match before {
                Some(Value::Object(map)) => map,
                _ => Map::new(),
            };
            if let Some(structure) = shape.structure() {
                read_struct(structure, wire.bytes()?, 0, &mut map, level)?;
            }
            Value::Object(map)
        }
    })
}

fn read_list(shape: &'static Shape, wire: Wire<'_>, before: Option<Value>, level: usize) -> Result<Value, String> {
    let mut items = match before {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let Some(item) = shape.items() else {
        return Ok(Value::Array(items));
    };
    match (wire, item.kind()) {
        (Wire::Bytes(bytes), _) if shape.is_wrapped() => {
            let mut reader = Reader { bytes };
            while let Some((number, wire)) = reader.next()? {
                if number == 1 {
                    items.push(read_value(item, wire, None, level)?);
                }
            }
            // Protobuf does not distinguish empty from absent lists; Go decodes them as absent.
            if items.is_empty() {
                return Ok(Value::Null);
            }
        }
        // Repeated integers and booleans may be packed into one value.
        (Wire::Bytes(bytes), Kind::Int32 | Kind::Int64 | Kind::Bool) => {
            let mut reader = Reader { bytes };
            while !reader.bytes.is_empty() {
                let number = Wire::Varint(reader.varint()?);
                items.push(read_value(item, number, None, level)?);
            }
        }
        _ => items.push(read_value(item, wire, None, level)?),
    }
    Ok(Value::Array(items))
}

fn read_entry(values: &'static Shape, bytes: &[u8], level: usize) -> Result<(String, Value), String> {
    let (mut key, mut value) = (String::new(), Value::Null);
    let mut reader = Reader { bytes };
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => key = wire.text()?,
            2 => value = read_value(values, wire, None, level + 1)?,
            _ => {}
        }
    }
    Ok((key, value))
}

fn read_int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    let mut reader = Reader { bytes };
    while let Some((at, wire)) = reader.next()? {
        match at {
            1 => is_text = wire.varint()? != 0,
            2 => number = wire.varint()?.cast_signed(),
            3 => text = wire.text()?,
            _ => {}
        }
    }
    Ok(if is_text {
        Value::from(text)
    } else {
        Value::from(number)
    })
}

fn read_time(bytes: &[u8], micros: bool) -> Result<Value, String> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader { bytes };
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => seconds = wire.varint()?.cast_signed(),
            2 => nanos = wire.varint()?.cast_signed(),
            _ => {}
        }
    }
    let nanos = i32::try_from(nanos)
        .ok()
        .filter(|it| (0..1_000_000_000).contains(it))
        .unwrap_or(0);
    let time = Timestamp::new(seconds, nanos).map_err(|error| error.to_string())?;
    let layout = if micros {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Ok(Value::from(time.strftime(layout).to_string()))
}

fn read_raw(bytes: &[u8]) -> Result<Value, String> {
    let mut value = Value::Null;
    let mut reader = Reader { bytes };
    while let Some((number, wire)) = reader.next()? {
        if let (1, Wire::Bytes(bytes)) = (number, wire)
            && !bytes.is_empty()
        {
            value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        }
    }
    Ok(value)
}

/// Decodes a part of a CRD's schema that may be a schema or another value.
fn read_alternative(shape: &'static Shape, bytes: &[u8], level: usize) -> Result<Value, String> {
    let Some(schema) = shape.alternative() else {
        return Ok(Value::Null);
    };
    let schema_number = if matches!(shape.kind(), Kind::SchemaOrBool(_)) {
        2
    } else {
        1
    };
    let (mut whole, mut items, mut allows) = (None, Vec::new(), false);
    let mut reader = Reader { bytes };
    while let Some((number, wire)) = reader.next()? {
        match shape.kind() {
            _ if number == schema_number => whole = Some(read_value(schema, wire, whole, level + 1)?),
            Kind::SchemaOrBool(_) if number == 1 => allows = wire.varint()? != 0,
            Kind::SchemaOrArray(_) if number == 2 => items.push(read_value(schema, wire, None, level + 1)?),
            Kind::SchemaOrStrings(_) if number == 2 => items.push(Value::from(wire.text()?)),
            _ => {}
        }
    }
    Ok(match (whole, shape.kind()) {
        (Some(schema), _) => schema,
        (None, Kind::SchemaOrBool(_)) => Value::from(allows),
        (None, _) => Value::Array(items),
    })
}

#[cfg(test)]
mod tests;
