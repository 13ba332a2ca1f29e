//! Objects that cannot be decoded, and panics in user code: the informer keeps running.

use std::time::Duration;

use informer::cache::{
    Body, FakeSource, ListOptions, ListWatch, QueueOrder, SharedInformer, SharedInformerBuilder, WatchOptions,
};
use informer::{Error, Storage};
use k8s_openapi::api::core::v1::ConfigMap;
use rstest::rstest;
use serde::{Deserialize, Serialize};

use crate::script::{Answer, Script, lines, list};
use crate::support::{Told, stored};

type Maps = SharedInformerBuilder<ConfigMap>;
type Configure = fn(Maps) -> Maps;

/// Returns `true` for a state that is marked as the last one. The transform refuses this state.
fn is_last(map: &ConfigMap) -> bool {
    map.data.as_ref().is_some_and(|it| it.contains_key("last"))
}

#[rstest]
#[case::another_type(serde_json::json!(7), |it: Maps| it.storage(Storage::Typed))]
#[case::transform_fails(serde_json::json!({"last": "yes"}), |it: Maps| it.transform(|map| match is_last(map) {
    true => Err("the object is refused"),
    false => Ok(()),
}))]
#[case::transform_panics(serde_json::json!({"last": "yes"}), |it: Maps| it.transform(|map: &mut ConfigMap| {
    assert!(!is_last(map), "the object is refused");
    Ok::<_, std::convert::Infallible>(())
}))]
#[tokio::test(start_paused = true)]
async fn deletion_with_an_unreadable_last_state_is_applied(
    #[case] data: serde_json::Value,
    #[case] configure: Configure,
) {
    let deleted = |name: &str, version: &str| {
        let object = serde_json::json!({"metadata": {"name": name, "resourceVersion": version}, "data": data});
        serde_json::json!({"type": "DELETED", "object": object}).to_string() + "\n"
    };
    // The object `b` is deleted before the cache contains it.
    let events = deleted("a", "8") + &lines(&[("ADDED", "b", 9)]) + &deleted("b", "10");
    let script = Script::new([
        list(7, &[("a", 3), ("c", 4)]),
        Answer::Late(Duration::from_millis(1), events),
    ]);
    let informer = configure(SharedInformer::builder(script)).build();
    let (informer, told) = (informer.expect("the options have no duplicates"), Told::default());
    informer
        .add_handler(told.handler())
        .expect("the informer has not stopped");
    let a_second = tokio::time::sleep(Duration::from_secs(1));
    informer.run(a_second).await.expect("the informer was not run before");
    assert_eq!(stored(&informer), ["c@4"]);
    assert_eq!(
        told.take(),
        ["initial a", "initial c", "vanished a", "added b", "deleted b"]
    );
    assert_eq!(informer.lister().resource_version().to_string(), "10");
}

type Bad = (serde_json::Value, Configure);

fn typed() -> Bad {
    (serde_json::json!(7), |it| it.storage(Storage::Typed))
}

fn refused() -> Bad {
    (serde_json::json!({"last": "yes"}), |it| {
        it.transform(|map| {
            if is_last(map) {
                Err("the object is refused")
            } else {
                Ok(())
            }
        })
    })
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn object_unreadable_in_a_later_list_is_kept_and_reported(
    #[values(typed, refused)] bad: fn() -> Bad,
    #[values(true, false)] streams: bool,
    #[values(QueueOrder::Arrival, QueueOrder::ByObject)] order: QueueOrder,
) {
    let (data, configure) = bad();
    let object = serde_json::json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "8"}, "data": data});
    let other = serde_json::json!({"metadata": {"name": "c", "uid": "w", "resourceVersion": "8"}, "data": data});
    let known = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"3"}}"#;
    let last = r#"{"metadata":{"name":"c","uid":"v","resourceVersion":"4"}}"#;
    let expired = crate::script::error_line(410, "Expired");
    let script = if streams {
        let line = |object: &str| format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n");
        let first = line(known) + &line(last) + &lines(&[("ADDED", "b", 4), ("END", "", 7)]) + &expired;
        let second = line(&object.to_string()) + &line(&other.to_string()) + &lines(&[("END", "", 9)]);
        Script::streaming([Answer::Text(first), Answer::Silent(second)])
    } else {
        let first = format!(
            r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{known},{{"metadata":{{"name":"b","resourceVersion":"4"}}}},{last}]}}"#
        );
        let second = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{object},{other}]}}"#);
        let silent = Answer::Silent(String::new());
        Script::new([Answer::Text(first), Answer::Text(expired), Answer::Text(second), silent])
    };
    let (errors, told) = (Told::default(), Told::default());
    let log = errors.clone();
    let informer = configure(SharedInformer::builder(script)).order(order);
    let informer = informer.on_error(move |err| log.push(err.to_string())).build();
    let informer = informer.expect("the options have no duplicates");
    informer
        .add_handler(told.handler())
        .expect("the informer has not stopped");
    let three_seconds = tokio::time::sleep(Duration::from_secs(3));
    informer
        .run(three_seconds)
        .await
        .expect("the informer was not run before");
    let mut told: Vec<_> = told.take().into_iter().filter(|it| !it.starts_with("same")).collect();
    told.sort();
    // An object with the same name but a different uid shows that the former object was deleted.
    assert_eq!(
        told,
        ["initial a", "initial b", "initial c", "vanished b", "vanished c"]
    );
    assert_eq!(stored(&informer), ["a@3"]);
    let errors = errors.take();
    assert_eq!(errors.iter().filter(|it| it.starts_with("a ")).count(), 1, "{errors:?}");
    assert_eq!(informer.lister().resource_version().to_string(), "9");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn object_with_another_uid_replaces_the_old_object_despite_the_same_version(
    #[values(true, false)] is_typed: bool,
) {
    let list = |uid: &str| {
        let object = format!(r#"{{"metadata":{{"name":"a","uid":"{uid}","resourceVersion":"3"}}}}"#);
        Answer::Text(format!(
            r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{object}]}}"#
        ))
    };
    let expired = || Answer::Text(crate::script::error_line(410, "Expired"));
    let silent = Answer::Silent(String::new());
    let script = Script::new([list("u"), expired(), list("v"), expired(), list("v"), silent]);
    let storage = if is_typed { Storage::Typed } else { Storage::Encoded };
    let informer = SharedInformer::<ConfigMap>::builder(script).storage(storage).build();
    let (informer, told) = (informer.expect("the options have no duplicates"), Told::default());
    let registration = informer
        .add_handler(told.handler())
        .expect("the informer has not stopped");
    let ten_seconds = tokio::time::sleep(Duration::from_secs(10));
    informer
        .run(ten_seconds)
        .await
        .expect("the informer was not run before");
    registration.ended().await;
    assert_eq!(informer.lister().list()[0].uid(), "v");
    let updates: Vec<_> = told.take().into_iter().filter(|it| it.starts_with("updated")).collect();
    assert_eq!(
        updates,
        ["updated a"],
        "another object with the same version replaces the old one"
    );
}

/// A ConfigMap whose deserialization panics if its name is `a`, and whose serialization panics if its name is `b`.
struct Fragile(ConfigMap);

impl<'de> Deserialize<'de> for Fragile {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let map = ConfigMap::deserialize(from)?;
        assert_ne!(map.metadata.name.as_deref(), Some("a"), "the test panics on purpose");
        Ok(Self(map))
    }
}

impl Serialize for Fragile {
    fn serialize<S: serde::Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        assert_ne!(self.0.metadata.name.as_deref(), Some("b"), "the test panics on purpose");
        self.0.serialize(into)
    }
}

impl kube::Resource for Fragile {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind(_: &()) -> std::borrow::Cow<'_, str> {
        ConfigMap::kind(&())
    }

    fn group(_: &()) -> std::borrow::Cow<'_, str> {
        ConfigMap::group(&())
    }

    fn version(_: &()) -> std::borrow::Cow<'_, str> {
        ConfigMap::version(&())
    }

    fn plural(_: &()) -> std::borrow::Cow<'_, str> {
        ConfigMap::plural(&())
    }

    fn meta(&self) -> &kube::api::ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut kube::api::ObjectMeta {
        &mut self.0.metadata
    }
}

type Fragiles = SharedInformerBuilder<Fragile>;

#[rstest]
#[case::typed_storage(|it: Fragiles| it.storage(Storage::Typed), &["b@2", "c@3"])]
#[case::with_a_transform(|it: Fragiles| it.transform(|_| Ok::<_, std::convert::Infallible>(())), &["c@3"])]
#[tokio::test(start_paused = true)]
async fn object_whose_decoding_panics_is_dropped_and_others_are_kept(
    #[case] configure: fn(Fragiles) -> Fragiles,
    #[case] expected: &[&str],
) {
    let source = FakeSource::new();
    for name in ["a", "b", "c"] {
        source.add(serde_json::json!({"metadata": {"name": name}}));
    }
    let informer = configure(SharedInformer::builder(source.clone())).build();
    let informer = informer.expect("the options have no duplicates");
    let runs = informer.clone();
    tokio::spawn(async move { runs.run(std::future::pending()).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(stored(&informer), expected);
    source.add(serde_json::json!({"metadata": {"name": "d"}}));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(
        stored(&informer).contains(&"d@4".to_owned()),
        "later events are still delivered"
    );
}

/// A source that panics at its first call.
struct Panicking(FakeSource, std::sync::atomic::AtomicBool);

impl ListWatch for Panicking {
    async fn list(&self, options: &ListOptions) -> Result<Body, Error> {
        let is_first = !self.1.swap(true, std::sync::atomic::Ordering::Relaxed);
        assert!(!is_first, "the test panics on purpose");
        self.0.list(options).await
    }

    async fn watch(&self, options: &WatchOptions) -> Result<Body, Error> {
        self.0.watch(options).await
    }

    fn can_stream_lists(&self) -> bool {
        false
    }

    fn name(&self) -> String {
        "one that panics".to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn informer_continues_after_panics_of_its_source_and_error_handler() {
    let source = FakeSource::new();
    source.add(serde_json::json!({"metadata": {"name": "a"}}));
    let source = Panicking(source, std::sync::atomic::AtomicBool::new(false));
    let errors = Told::default();
    let told = errors.clone();
    let informer = SharedInformer::<ConfigMap>::builder(source).on_error(move |err| {
        told.push(err.to_string());
        panic!("the test panics on purpose");
    });
    let informer = informer.build().expect("the options have no duplicates");
    let five_seconds = tokio::time::sleep(Duration::from_secs(5));
    informer
        .run(five_seconds)
        .await
        .expect("the informer was not run before");
    assert_eq!(stored(&informer), ["a@1"]);
    assert_eq!(errors.take(), ["one that panics: panic: the test panics on purpose"]);
}
