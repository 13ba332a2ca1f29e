//! `Recorder`: decides whether to write a new Event, to increment the count of an existing one, or to drop it because
//! its source writes too many Events about one object. Modelled on client-go's recorder, which in addition combines
//! similar Events.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;

use super::plan::{Note, Regarding};
use crate::api::json::{Value, json};
use crate::entropy;

/// Maximum number of cached Events and sources, as in client-go; above it the oldest entry is dropped.
const REMEMBERED: usize = 4096;

/// Maximum burst of Events about one object from one source, as in client-go.
const BURST: u32 = 25;
/// Seconds after which one more Event about an object is allowed, as in client-go.
const REFILL_SECONDS: i64 = 300;

/// An Event to write.
#[derive(Debug, PartialEq)]
pub(crate) struct Recorded {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Increments the count of the Event, if it has occurred before.
    pub(crate) patch: Option<Value>,
    /// The whole Event, to create it unless it exists.
    pub(crate) event: Value,
}

/// A cached Event.
#[derive(Debug)]
struct Known {
    name: String,
    count: i64,
    /// Time of the first occurrence.
    first: String,
}

#[derive(Debug)]
struct Tokens {
    left: u32,
    since: Timestamp,
}

type EventKey = (Regarding, &'static str, Cow<'static, str>, String);

/// The Events of all controllers.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    known: Bounded<EventKey, Known>,
    sources: Bounded<(&'static str, String), Tokens>,
    /// Number of Events so far, which makes their names unique.
    count: u64,
}

impl Recorder {
    /// Returns the Event to write; `None` if its source has written too many. Dropped occurrences are counted, as in
    /// client-go.
    pub(crate) fn record(&mut self, note: &Note, now: Timestamp) -> Option<Recorded> {
        let about = &note.about;
        let namespace = if about.namespace.is_empty() {
            "default"
        } else {
            &about.namespace
        };
        let stamp = entropy::seconds(now);
        let versionless = Regarding {
            resource_version: String::new(),
            ..about.clone()
        };
        let key = (versionless, note.component, note.reason.clone(), note.message.clone());
        if self.known.get(&key).is_none() {
            let nanos = u128::try_from(now.as_nanosecond()).unwrap_or(0) + u128::from(self.count);
            self.count += 1;
            let new = Known {
                name: format!("{}.{nanos:x}", about.name),
                count: 0,
                first: stamp.clone(),
            };
            self.known.put(key.clone(), new);
        }
        let known = self.known.get(&key)?;
        known.count += 1;
        let (name, count, first) = (known.name.clone(), known.count, known.first.clone());
        if !self.is_heard(note, now) {
            return None;
        }
        let mut object = json!({
            "kind": about.kind, "namespace": about.namespace, "name": about.name, "uid": about.uid,
            "apiVersion": about.api_version, "resourceVersion": about.resource_version,
        });
        if !about.field_path.is_empty() {
            object["fieldPath"] = about.field_path.as_str().into();
        }
        let mut source = json!({"component": note.component});
        if !note.host.is_empty() {
            source["host"] = note.host.as_str().into();
        }
        Some(Recorded {
            namespace: namespace.to_owned(),
            event: json!({
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": object, "reason": note.reason, "message": note.message, "source": source,
                "firstTimestamp": first, "lastTimestamp": stamp, "count": count,
                "type": if note.is_warning { "Warning" } else { "Normal" },
                "reportingComponent": note.component, "reportingInstance": note.host,
            }),
            patch: (count > 1).then(|| json!({"count": count, "lastTimestamp": stamp})),
            name,
        })
    }

    /// Returns `true` if the source may write another Event about the object.
    fn is_heard(&mut self, note: &Note, now: Timestamp) -> bool {
        let key = (note.component, note.about.uid.clone());
        let Some(tokens) = self.sources.get(&key) else {
            self.sources.put(
                key,
                Tokens {
                    left: BURST - 1,
                    since: now,
                },
            );
            return true;
        };
        let passed = now.duration_since(tokens.since).as_secs() / REFILL_SECONDS;
        if passed > 0 {
            let gained = u32::try_from(passed).unwrap_or(u32::MAX);
            tokens.left = tokens.left.saturating_add(gained).min(BURST);
            tokens.since = super::pods::plus(tokens.since, passed * REFILL_SECONDS);
        }
        let is_heard = tokens.left > 0;
        tokens.left = tokens.left.saturating_sub(1);
        is_heard
    }
}

/// A map that drops its oldest entries when it is full.
#[derive(Debug)]
struct Bounded<K, V> {
    entries: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Bounded<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<K: Clone + Eq + std::hash::Hash, V> Bounded<K, V> {
    fn get(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    /// Adds a new entry.
    fn put(&mut self, key: K, value: V) {
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        self.order.push_back(key.clone());
        self.entries.insert(key, value);
    }
}
