//! Compares the external systems of two runs, by object and field.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::end_state::EndState;
use super::identities::{Identities, Referent, replace, replaced};
use super::key::resource_of;
use super::pair::{Field, Pair, number};
use super::times::hide_times;
use crate::text::shortened;

/// Maximum number of characters of a value in a message.
const VALUE_CHARS: usize = 200;

/// Substrings in the names of fields that contain a number for ordering writes, such as the version of an object or the
/// term of a leader.
const TOKENS: [&str; 6] = ["version", "revision", "token", "fenc", "epoch", "term"];

/// Placeholder for keys that differ between runs.
const ANY: &str = "*";

/// The objects of all systems, by system and key.
pub(super) type Objects = BTreeMap<String, Vec<Value>>;

impl Pair<'_> {
    /// Lists the differences between external systems, each with the key of the object and the field.
    pub(crate) fn fields_outside(&self) -> Vec<(Arc<str>, Field)> {
        let [expected, found] = [0, 1].map(|side| self.objects_outside(side));
        let keys: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
        let mut differences = Vec::new();
        for key in keys {
            let of = |all: &Objects| all.get(key).cloned().unwrap_or_default();
            let (left, right) = (of(&expected), of(&found));
            let resource = resource_of(key);
            let shown: Arc<str> = key.as_str().into();
            if left.len() != right.len() {
                let mut text = number(left.len(), right.len());
                if let ([], [one]) | ([one], []) = (&*left, &*right) {
                    text.push_str(&format!(": {}", shortened(&one.to_string(), VALUE_CHARS)));
                }
                differences.push((shown, Field::whole(text)));
                continue;
            }
            let fields = self.fields_of_values(resource, left, right).into_iter();
            differences.extend(fields.map(|it| (Arc::clone(&shown), it)));
        }
        differences
    }

    /// Returns the objects of one side, with canonical keys and values.
    pub(super) fn objects_outside(&self, side: usize) -> Objects {
        let state = self.state(side);
        let mut objects = Objects::new();
        for (system, kept) in state.externals() {
            let has_any_names = self.mask().hides_names(system);
            for (key, value) in &kept.objects {
                let words = |referent: &Referent| self.words(side, referent);
                let name = match kept.generated.contains(key) || has_any_names {
                    true => ANY.to_owned(),
                    false => match self.mask().templates.key(&format!("{system} /{key}")) {
                        Some(starred) => starred[system.len() + 2..].to_owned(),
                        None => replaced(key, state.identities(), &words).unwrap_or_else(|| key.clone()),
                    },
                };
                let mut value = value.clone();
                state.replace_tokens(&mut value);
                replace(&mut value, state.identities(), &words);
                objects.entry(format!("{system} {name}")).or_default().push(value);
            }
        }
        objects
    }
}

impl EndState {
    /// Lists the ids that external systems generated, each with a description of its object, which consists of the
    /// system and the content.
    pub(crate) fn ids_outside(&self, identities: &Identities) -> Vec<(String, String)> {
        let systems = self.externals().iter();
        let ids = systems.flat_map(|(system, kept)| kept.generated.iter().map(move |id| (system, id, kept)));
        let named = ids.filter_map(|(system, id, kept)| {
            let mut value = kept.objects.get(id)?.clone();
            hide_times(&mut value);
            self.replace_tokens(&mut value);
            replace(&mut value, identities, &|it| it.words(None));
            Some((id.clone(), format!("{system} {value}")))
        });
        named.collect()
    }

    /// Replaces versions of objects and terms of Leases with descriptions, in fields with a name that indicates such a
    /// number. Versions depend on the number of writes, and terms on the number of leaders.
    fn replace_tokens(&self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|it| self.replace_tokens(it)),
            Value::Object(fields) => {
                for (name, field) in fields.iter_mut() {
                    let name = name.to_ascii_lowercase();
                    let number = match &*field {
                        Value::String(text) => text.parse::<u64>().ok(),
                        field => field.as_u64(),
                    };
                    let is_token = TOKENS.iter().any(|it| name.contains(it));
                    match number.filter(|_| is_token).and_then(|it| self.token(it)) {
                        Some(words) => *field = words.into(),
                        None => self.replace_tokens(field),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Describes a number that orders writes, if it is a version of an object or a term of a Lease.
    fn token(&self, number: u64) -> Option<String> {
        if let Some(key) = self.versions().key(number) {
            return Some(format!("a version of {}", key.replace(" /", " ")));
        }
        self.last_term()
            .filter(|last| number <= last + 1)
            .map(|_| "a term of a Lease".to_owned())
    }
}
