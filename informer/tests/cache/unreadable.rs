//! What cannot be read, and user code that panics: the informer goes on.

use std::time::Duration;

use informer::Storage;
use informer::cache::{SharedInformer, SharedInformerBuilder};
use k8s_openapi::api::core::v1::ConfigMap;
use rstest::rstest;

use crate::script::{Answer, Script, lines, list};
use crate::support::{Told, stored};

type Maps = SharedInformerBuilder<ConfigMap>;
type Configure = fn(Maps) -> Maps;

/// Refuses the state that is marked as the last.
fn is_last(map: &ConfigMap) -> bool {
    map.data.as_ref().is_some_and(|it| it.contains_key("last"))
}

#[rstest]
#[case::not_of_its_type(serde_json::json!(7), |it: Maps| it.storage(Storage::Typed))]
#[case::refused(serde_json::json!({"last": "yes"}), |it: Maps| it.transform(|map| match is_last(map) {
    true => Err("not this one"),
    false => Ok(()),
}))]
#[case::panics(serde_json::json!({"last": "yes"}), |it: Maps| it.transform(|map: &mut ConfigMap| {
    assert!(!is_last(map), "not this one");
    Ok::<_, std::convert::Infallible>(())
}))]
#[tokio::test(start_paused = true)]
async fn what_is_deleted_goes_also_if_its_last_state_cannot_be_read(
    #[case] data: serde_json::Value,
    #[case] configure: Configure,
) {
    let deleted = |name: &str, version: &str| {
        let object = serde_json::json!({"metadata": {"name": name, "resourceVersion": version}, "data": data});
        serde_json::json!({"type": "DELETED", "object": object}).to_string() + "\n"
    };
    // The second is not in the cache yet when its deletion comes.
    let events = deleted("a", "8") + &lines(&[("ADDED", "b", 9)]) + &deleted("b", "10");
    let script = Script::new([
        list(7, &[("a", 3), ("c", 4)]),
        Answer::Late(Duration::from_millis(1), events),
    ]);
    let informer = configure(SharedInformer::builder(script)).build();
    let (informer, told) = (informer.expect("nothing is there twice"), Told::default());
    informer.add_handler(told.handler()).expect("it is new");
    let a_second = tokio::time::sleep(Duration::from_secs(1));
    informer.run(a_second).await.expect("it is new");
    assert_eq!(stored(&informer), ["c@4"]);
    assert_eq!(
        told.take(),
        ["initial a", "initial c", "vanished a", "added b", "deleted b"]
    );
    assert_eq!(informer.lister().resource_version().to_string(), "10");
}
