//! `Value`: the values of expressions, with their maps, keys and library types.

use std::any::Any;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::times::{Duration, Time};

/// A CEL value. Clones share their contents.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    List(Arc<Vec<Value>>),
    Map(Map),
    Int(i64),
    UInt(u64),
    Float(f64),
    String(Arc<String>),
    Bytes(Arc<Vec<u8>>),
    Bool(bool),
    Duration(Duration),
    Timestamp(Time),
    /// An optional value, or a value with a type from one of Kubernetes' CEL libraries.
    Opaque(Arc<dyn Opaque>),
    Null,
}

/// A CEL map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Map {
    pub(crate) map: Arc<HashMap<Key, Value>>,
    /// Entries that expressions cannot read but that are part of the size and of comparisons, such as the undeclared
    /// fields of an object.
    pub(crate) hidden: Option<Arc<HashMap<Key, Value>>>,
}

impl Map {
    /// Returns the number of entries, including hidden entries.
    pub(crate) fn len(&self) -> usize {
        self.map.len() + self.hidden.as_ref().map_or(0, |it| it.len())
    }
}

impl From<HashMap<Key, Value>> for Map {
    fn from(entries: HashMap<Key, Value>) -> Self {
        Self {
            map: Arc::new(entries),
            hidden: None,
        }
    }
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Int(i64),
    Uint(u64),
    Bool(bool),
    String(Arc<String>),
}

/// A value whose type is not built into CEL, such as an optional value or a value of one of Kubernetes' CEL libraries.
pub(crate) trait Opaque: Any + IsSame + fmt::Debug + Send + Sync {
    /// Returns the name of the type in expressions.
    fn runtime_type_name(&self) -> &str;
}

/// Equality of type-erased values, implemented for every [`Opaque`] type with `Eq`.
pub(crate) trait IsSame {
    /// Returns `true` if the other value has the same type and is equal.
    fn is_same(&self, other: &dyn Opaque) -> bool;
}

impl<T: Opaque + Eq> IsSame for T {
    fn is_same(&self, other: &dyn Opaque) -> bool {
        other.downcast_ref::<T>().is_some_and(|it| self == it)
    }
}

impl dyn Opaque {
    /// Returns the value as a `T`, if it has this type.
    pub(crate) fn downcast_ref<T: Any>(&self) -> Option<&T> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}

/// An optional CEL value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OptionalValue(Option<Value>);

impl OptionalValue {
    pub(crate) fn of(value: Value) -> Self {
        Self(Some(value))
    }

    pub(crate) fn none() -> Self {
        Self(None)
    }

    pub(crate) fn value(&self) -> Option<&Value> {
        self.0.as_ref()
    }
}

impl Opaque for OptionalValue {
    fn runtime_type_name(&self) -> &str {
        "optional_type"
    }
}

/// Error for a value of the wrong type.
#[derive(Debug)]
pub(crate) struct OtherType;

impl<'a> TryFrom<&'a Value> for &'a OptionalValue {
    type Error = OtherType;

    fn try_from(value: &'a Value) -> Result<Self, OtherType> {
        match value {
            Value::Opaque(opaque) => opaque.downcast_ref().ok_or(OtherType),
            _ => Err(OtherType),
        }
    }
}

impl Value {
    /// Returns the kind of a value for error messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Int(_) => "int",
            Value::UInt(_) => "uint",
            Value::Float(_) => "float",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Bool(_) => "bool",
            Value::Duration(_) => "duration",
            Value::Timestamp(_) => "timestamp",
            Value::Opaque(_) => "opaque",
            Value::Null => "null",
        }
    }
}

/// Numbers of all types are compared by value.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Map(one), Value::Map(other)) => one == other,
            (Value::List(one), Value::List(other)) => one == other,
            (Value::Bytes(one), Value::Bytes(other)) => one == other,
            (Value::Opaque(one), Value::Opaque(other)) => one.is_same(&**other),
            (Value::Null, Value::Null) => true,
            _ => self.partial_cmp(other) == Some(Ordering::Equal),
        }
    }
}

impl Eq for Value {}

/// Compares values of types that support `<`; numbers of all types are compared by value.
impl PartialOrd for Value {
    #[expect(clippy::cast_precision_loss, reason = "cel-go compares as precisely")]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Value::Int(one), Value::Int(other)) => Some(one.cmp(other)),
            (Value::UInt(one), Value::UInt(other)) => Some(one.cmp(other)),
            (Value::Float(one), Value::Float(other)) => one.partial_cmp(other),
            (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
            (Value::Bool(one), Value::Bool(other)) => Some(one.cmp(other)),
            (Value::Duration(one), Value::Duration(other)) => Some(one.cmp(other)),
            (Value::Timestamp(one), Value::Timestamp(other)) => Some(one.cmp(other)),
            (Value::Int(one), Value::UInt(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
            (Value::UInt(one), Value::Int(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
            (Value::Int(one), Value::Float(other)) => (*one as f64).partial_cmp(other),
            (Value::UInt(one), Value::Float(other)) => (*one as f64).partial_cmp(other),
            (Value::Float(one), Value::Int(other)) => one.partial_cmp(&(*other as f64)),
            (Value::Float(one), Value::UInt(other)) => one.partial_cmp(&(*other as f64)),
            _ => None,
        }
    }
}

impl TryFrom<Value> for Key {
    type Error = OtherType;

    fn try_from(value: Value) -> Result<Self, OtherType> {
        match value {
            Value::Int(number) => Ok(Key::Int(number)),
            Value::UInt(number) => Ok(Key::Uint(number)),
            Value::Bool(flag) => Ok(Key::Bool(flag)),
            Value::String(text) => Ok(Key::String(text)),
            _ => Err(OtherType),
        }
    }
}

impl From<&Key> for Value {
    fn from(key: &Key) -> Self {
        match key {
            Key::Int(number) => Value::Int(*number),
            Key::Uint(number) => Value::UInt(*number),
            Key::Bool(flag) => Value::Bool(*flag),
            Key::String(text) => Value::String(Arc::clone(text)),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Int(number) => number.fmt(f),
            Key::Uint(number) => number.fmt(f),
            Key::Bool(flag) => flag.fmt(f),
            Key::String(text) => f.write_str(text),
        }
    }
}
