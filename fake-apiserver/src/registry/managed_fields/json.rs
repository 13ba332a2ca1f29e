//! `fieldsV1`: field sets as JSON, processed without decoding the JSON into objects.

use std::borrow::Cow;

use super::element::{BadFields, Element};
use super::set::{FieldSet, Node};
use crate::api::json::{Map, Value, plain_len};
use crate::api::print::Printer;
use crate::api::read::encoded;
use crate::registry::types::schema::SchemaRef;

/// The key for a path with children that is itself in the set.
const SELF: &str = ".";

/// Parses the fields of an entry. Absent or null fields are an empty set.
pub(super) fn decode(fields: Option<&Value>) -> Result<FieldSet<'_>, BadFields> {
    match fields {
        None | Some(Value::Null) => Ok(FieldSet::new()),
        Some(Value::Object(map)) => match map.encoded() {
            Some(encoded) => Reader::new(encoded.text()).set(),
            // The fields may have a different format, because a client or a patch wrote them.
            None => Reader::new(&text(map)).set().map(FieldSet::into_owned),
        },
        Some(_) => Err(BadFields),
    }
}

/// Encodes a set of fields as `fieldsV1`.
pub(super) fn encode(set: &FieldSet<'_>) -> Map {
    let mut writer = Writer {
        out: Printer::new(0),
        key: String::new(),
    };
    writer.level(set, false);
    encoded(writer.out.as_text(), writer.out.deepest())
}

/// Returns `true` if a path of `set` is among the fields.
pub(super) fn touches(fields: &Map, set: &FieldSet<'_>) -> bool {
    !set.is_empty() && overlap(fields, set).is_ok_and(|it| it.any)
}

/// Returns `true` if the fields are equal to `set`.
pub(super) fn are(fields: &Map, set: &FieldSet<'_>) -> bool {
    *fields == encode(set)
}

/// Returns the fields without the paths of these sets; `None` if the fields do not contain any of the paths.
pub(super) fn subtract(fields: &Map, sets: &[&FieldSet<'_>]) -> Option<Map> {
    if !sets.iter().any(|set| touches(fields, set)) {
        return None;
    }
    let text = text(fields);
    let all = Reader::new(&text).set().ok()?;
    Some(encode(&sets.iter().fold(all, |left, set| left.difference(set))))
}

/// Returns the fields with the paths of `set` added; `None` if they already contain all of them.
pub(super) fn add(fields: &Map, set: &FieldSet<'_>) -> Option<Map> {
    if overlap(fields, set).is_ok_and(|it| it.all) {
        return None;
    }
    let text = text(fields);
    let all = Reader::new(&text).set().ok()?;
    Some(encode(&all.union(set.clone())))
}

fn overlap(fields: &Map, set: &FieldSet<'_>) -> Result<Overlap, BadFields> {
    Reader::new(&text(fields))
        .overlap(set, true)
        .map(|(overlap, _)| overlap)
}

/// Returns the fields as JSON text. Prints them only if they are not kept as encoded text.
fn text(fields: &Map) -> Cow<'_, str> {
    match fields.encoded() {
        Some(encoded) => Cow::Borrowed(encoded.text()),
        None => {
            let mut out = Printer::new(0);
            out.map(fields);
            Cow::Owned(out.as_text().to_owned())
        }
    }
}

/// Returns `true` unless the fields have paths below an atomic value of a schema.
pub(super) fn fit(schema: SchemaRef<'_>, fields: &Map) -> bool {
    Reader::new(&text(fields)).fits(schema).unwrap_or(true)
}

/// Writes field sets as `fieldsV1`.
struct Writer {
    out: Printer,
    /// Reused buffer for keys.
    key: String,
}

impl Writer {
    /// Writes a set as an object. `member` is set if the path of the object itself is a member.
    fn level(&mut self, set: &FieldSet<'_>, member: bool) {
        self.out.open(b'{');
        if member && !set.is_empty() {
            self.out.key(SELF);
            self.out.open(b'{');
            self.out.close(b'}');
            self.out.comma();
        }
        // Fields precede other elements, both in a set and in JSON.
        let (fields, others) = set.nodes().split_at(set.fields());
        for node in fields {
            self.write_key(node);
            self.node(node);
        }
        if let [node] = others {
            self.write_key(node);
            self.node(node);
        } else if !others.is_empty() {
            self.sorted(others);
        }
        self.out.close(b'}');
    }

    /// Writes nodes in the order of their keys, which differs from the order of a set.
    fn sorted(&mut self, nodes: &[Node<'_>]) {
        let mut keyed: Vec<(String, &Node<'_>)> = Vec::with_capacity(nodes.len());
        for node in nodes {
            self.write_key(node);
            keyed.push((self.key.clone(), node));
        }
        keyed.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (key, node) in keyed {
            self.key = key;
            self.node(node);
        }
    }

    fn write_key(&mut self, node: &Node<'_>) {
        self.key.clear();
        node.element.write(&mut self.key);
    }

    /// Writes the value of a node, after its key has been written.
    fn node(&mut self, node: &Node<'_>) {
        self.out.key(&self.key);
        self.level(&node.children, node.member);
        self.out.comma();
    }
}

/// Overlap of a set and the fields of an entry.
#[derive(Clone, Copy)]
struct Overlap {
    /// Set if at least one path is both in the set and among the fields.
    any: bool,
    /// Set if all paths of the set are in the fields.
    all: bool,
}

/// Parses text in the format of [`Printer`].
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Parses the entire input as a set.
    fn set(mut self) -> Result<FieldSet<'a>, BadFields> {
        self.children().map(|(children, _)| children)
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.text.as_bytes().get(self.at..);
        let found = rest.is_some_and(|rest| rest.starts_with(text.as_bytes()));
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn expect(&mut self, text: &str) -> Result<(), BadFields> {
        self.eat(text).then_some(()).ok_or(BadFields)
    }

    /// Returns `true` if the current object has another entry.
    fn goes_on(&mut self) -> Result<bool, BadFields> {
        match self.eat(",") {
            true => Ok(true),
            false => self.expect("}").map(|()| false),
        }
    }

    /// Parses the next key and its colon, without unescaping it.
    fn key(&mut self) -> Result<Key<'a>, BadFields> {
        let start = self.at + 1;
        let has_escapes = self.go_past_string()?;
        let text = self.text.get(start..self.at - 1).ok_or(BadFields)?;
        self.expect(":")?;
        Ok(Key { text, has_escapes })
    }

    /// Skips a string; returns `true` if it contains escapes.
    fn go_past_string(&mut self) -> Result<bool, BadFields> {
        self.expect("\"")?;
        let mut has_escapes = false;
        loop {
            let rest = self.text.as_bytes().get(self.at..).ok_or(BadFields)?;
            let len = plain_len(rest);
            self.at += len + 1;
            match rest.get(len) {
                Some(b'"') => return Ok(has_escapes),
                Some(b'\\') => {
                    has_escapes = true;
                    self.at += 1;
                }
                _ => return Err(BadFields),
            }
        }
    }

    /// Parses an object as a set. Also returns `true` if the path of the object itself is a member.
    fn children(&mut self) -> Result<(FieldSet<'a>, bool), BadFields> {
        let mut set = FieldSet::new();
        if self.eat("{}") || self.eat("null") {
            return Ok((set, true));
        }
        self.expect("{")?;
        let mut member = false;
        loop {
            let key = self.key()?;
            let (children, is_member) = self.children()?;
            if key.text == SELF {
                member = true;
            } else if let Some(element) = key.element()? {
                set.push(element, is_member, children);
            }
            if !self.goes_on()? {
                break;
            }
        }
        set.sort();
        member |= set.is_empty();
        Ok((set, member))
    }

    /// Compares a set with the object. Also returns `true` if the path of the object itself is a member. If `is_whole`
    /// is set, parsing stops once all nodes of the set were found, for example after `f:metadata`.
    fn overlap(&mut self, set: &FieldSet<'_>, is_whole: bool) -> Result<(Overlap, bool), BadFields> {
        let mut found = Overlap { any: false, all: true };
        if self.eat("{}") || self.eat("null") {
            found.all = set.is_empty();
            return Ok((found, true));
        }
        self.expect("{")?;
        let (mut member, mut entries, mut common) = (false, 0, 0);
        loop {
            let key = self.key()?;
            if key.text == SELF {
                member = true;
                self.skip()?;
            } else if let Some(node) = key.node_of(set)? {
                let (below, is_member) = self.overlap(&node.children, false)?;
                found.any |= below.any || (node.member && is_member);
                found.all &= below.all && (is_member || !node.member);
                (entries, common) = (entries + 1, common + 1);
            } else {
                self.skip()?;
                entries += 1;
            }
            if (is_whole && common == set.nodes().len()) || !self.goes_on()? {
                break;
            }
        }
        found.all &= common == set.nodes().len();
        Ok((found, member || entries == 0))
    }

    /// Returns `true` unless the object has paths below an atomic value of its schema.
    fn fits(&mut self, schema: SchemaRef<'_>) -> Result<bool, BadFields> {
        if self.eat("{}") || self.eat("null") {
            return Ok(true);
        }
        self.expect("{")?;
        loop {
            let key = self.key()?;
            if !self.eat("{}") {
                let name = key.unescaped()?;
                let below = match name.strip_prefix("f:") {
                    Some(name) => schema.field(name),
                    None => Some(schema.items()),
                };
                match below {
                    Some(below) if below.is_atomic() => return Ok(false),
                    Some(below) if !self.fits(below)? => return Ok(false),
                    Some(_) => {}
                    None => self.skip()?,
                }
            }
            if !self.goes_on()? {
                return Ok(true);
            }
        }
    }

    /// Skips an object.
    fn skip(&mut self) -> Result<(), BadFields> {
        if self.eat("null") {
            return Ok(());
        }
        let mut level = 0_usize;
        loop {
            match self.text.as_bytes().get(self.at) {
                Some(b'"') => {
                    self.go_past_string()?;
                    continue;
                }
                Some(b'{') => level += 1,
                Some(b'}') => level = level.checked_sub(1).ok_or(BadFields)?,
                Some(b',' | b':') => {}
                _ => return Err(BadFields),
            }
            self.at += 1;
            if level == 0 {
                return Ok(());
            }
        }
    }
}

/// A key in its escaped form, without its quotes.
#[derive(Clone, Copy)]
struct Key<'a> {
    text: &'a str,
    has_escapes: bool,
}

impl<'a> Key<'a> {
    fn unescaped(self) -> Result<Cow<'a, str>, BadFields> {
        if !self.has_escapes {
            return Ok(Cow::Borrowed(self.text));
        }
        let text = serde_json::from_str(&format!("\"{}\"", self.text));
        text.map(Cow::Owned).map_err(|_| BadFields)
    }

    /// Returns the element; `None` for an unknown element type.
    fn element(self) -> Result<Option<Element<'a>>, BadFields> {
        match self.unescaped()? {
            Cow::Borrowed(text) => Element::parse(text),
            Cow::Owned(text) => Element::parse(&text).map(|it| it.map(Element::into_owned)),
        }
    }

    /// Returns the node of a set that has this key.
    fn node_of<'s, 'n>(self, set: &'s FieldSet<'n>) -> Result<Option<&'s Node<'n>>, BadFields> {
        match self.text.strip_prefix("f:") {
            Some(name) if !self.has_escapes => Ok(set.child(&Element::field(name))),
            _ if set.fields() == set.nodes().len() && !self.text.starts_with("f:") => Ok(None),
            _ => Ok(self.element()?.and_then(|element| set.child(&element))),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::api::json::json;
    use crate::api::nesting;

    fn map(value: &Value) -> &Map {
        value.as_object().expect("the value is an object")
    }

    fn as_text(value: &Value) -> Value {
        Value::Object(encoded(&text(map(value)), nesting::levels(value)))
    }

    #[rstest]
    #[case::empty_set(json!({}))]
    #[case::member_with_children(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}))]
    #[case::keys(json!({"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}}, "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": {}}}))]
    #[case::values(json!({"f:finalizers": {".": {}, "v:\"a\"": {}, "v:\"b\"": {}}}))]
    #[case::escaped_names(json!({"f:data": {"f:a\"\\\u{1}é": {}}}))]
    fn field_set_round_trips_through_json(#[case] fields: Value) {
        // A node without children is encoded as `{}`, without `.`.
        let expected = fields.to_string().replace("{\".\":{}}", "{}");
        for form in [as_text(&fields), fields] {
            let set = decode(Some(&form)).expect("the fields can be decoded");
            assert_eq!(Value::Object(encode(&set)).to_string(), expected);
            let text = form.to_string();
            assert_eq!(are(map(&form), &set), text == expected);
        }
    }

    #[rstest]
    #[case::not_an_object(json!([]))]
    #[case::number(json!({"f:a": 1}))]
    #[case::unknown_prefix(json!({"a": {}}))]
    #[case::invalid_index(json!({"i:x": {}}))]
    fn invalid_field_sets_are_refused(#[case] fields: Value) {
        assert!(decode(Some(&fields)).is_err());
    }

    #[test]
    fn field_set_elements_of_unknown_types_are_dropped() {
        let fields = json!({"f:a": {}, "x:b": {"f:c": {}}});
        let set = decode(Some(&fields)).expect("the fields can be decoded");
        assert_eq!(Value::Object(encode(&set)).to_string(), "{\"f:a\":{}}");
    }

    #[rstest]
    #[case::member(json!({"f:a": {}}), true, true)]
    #[case::ancestor_and_member(json!({"f:b": {"f:c": {}}}), true, true)]
    #[case::ancestor_of_a_member_only(json!({"f:b": {}}), false, false)]
    #[case::field_below_a_member(json!({"f:a": {"f:x": {}}}), false, false)]
    #[case::item(json!({"f:l": {"k:{\"name\":\"x\"}": {}}}), true, true)]
    #[case::another_item(json!({"f:l": {"k:{\"name\":\"y\"}": {}}}), false, false)]
    #[case::one_of_two_members(json!({"f:a": {}, "f:z": {}}), true, false)]
    #[case::empty_set(json!({}), false, true)]
    fn field_sets_are_compared_with_encoded_fields(#[case] set: Value, #[case] any: bool, #[case] all: bool) {
        let fields = json!({"f:a": {}, "f:b": {"f:c": {}}, "f:l": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}}}});
        let set = decode(Some(&set)).expect("the fields can be decoded");
        let fields = as_text(&fields);
        let fields = map(&fields);
        assert_eq!(touches(fields, &set), any);
        assert_eq!(add(fields, &set).is_none(), all);
        assert_eq!(subtract(fields, &[&set]).is_some(), any);
    }

    #[test]
    fn parent_field_that_is_not_owned_is_removed_with_its_last_child() {
        let fields = as_text(&json!({"f:a": {"f:b": {}}, "f:c": {".": {}, "f:d": {}}}));
        let (one, other) = (json!({"f:a": {"f:b": {}}}), json!({"f:c": {"f:d": {}}}));
        let (one, other) = (
            decode(Some(&one)).expect("the fields can be decoded"),
            decode(Some(&other)).expect("the fields can be decoded"),
        );
        let left = subtract(map(&fields), &[&one, &other]).expect("the fields can be changed");
        assert_eq!(Value::Object(left).to_string(), "{\"f:c\":{}}");
    }
}
