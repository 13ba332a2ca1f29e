//! Streaming lists: lists that arrive as watch events.

use std::time::Duration;

use rstest::rstest;

use crate::script::{Answer, Script, ending, error_event, failing, list, silent, too_large};
use crate::support::{Told, stored};

#[tokio::test(start_paused = true)]
async fn streaming_list_continues_as_a_watch() {
    let events = [
        ("ADDED", "b", 5),
        ("ADDED", "a", 3),
        ("DELETED", "b", 6),
        ("END", "", 7),
        ("ADDED", "c", 8),
    ];
    let script = Script::streaming([silent(&events)]);
    let (informer, asked) = script.run_for(1).await;
    assert_eq!(asked, ["0.0 stream \"\""]);
    assert_eq!(stored(&informer), ["a@3", "c@8"]);
    assert_eq!(informer.last_sync_resource_version().to_string(), "8");
}

#[tokio::test(start_paused = true)]
async fn cache_is_empty_until_the_end_of_the_initial_events() {
    let script = Script::streaming([silent(&[("ADDED", "a", 3), ("BOOKMARK", "", 4)])]);
    let (informer, _) = script.run_for(5).await;
    assert!(!informer.has_synced());
    assert!(stored(&informer).is_empty());
    assert_eq!(
        informer.last_sync_resource_version().to_string(),
        "",
        "initial events do not set the version"
    );
}

#[tokio::test(start_paused = true)]
async fn relist_streams_from_the_last_version() {
    let script = Script::streaming([
        error_event(
            &[("ADDED", "a", 3), ("END", "", 7), ("MODIFIED", "a", 9)],
            410,
            "Expired",
        ),
        silent(&[("ADDED", "a", 9), ("END", "", 12)]),
    ]);
    let (informer, asked) = script.run_for(2).await;
    assert_eq!(asked, ["0.0 stream \"\"", "0.8 stream \"9\""]);
    assert_eq!(informer.last_sync_resource_version().to_string(), "12");
}

#[rstest]
#[case::refused_as_invalid(failing(422, "Invalid"))]
#[case::ends_immediately(ending(&[]))]
#[case::error_event(error_event(&[("ADDED", "a", 1)], 400, "BadRequest"))]
#[tokio::test(start_paused = true)]
async fn failed_streaming_list_is_followed_by_a_list(#[case] answer: Answer) {
    let script = Script::streaming([answer, list(7, &[("b", 2)]), silent(&[])]);
    let (informer, asked) = script.run_for(1).await;
    assert_eq!(
        asked,
        ["0.0 stream \"\"", "0.0 list \"0\" limit=500", "0.0 watch \"7\""]
    );
    assert_eq!(stored(&informer), ["b@2"]);
}

#[rstest]
#[case::connection_refused(Answer::Refused)]
#[case::too_many_requests(failing(429, "TooManyRequests"))]
#[tokio::test(start_paused = true)]
async fn busy_server_is_retried_after_a_pause(#[case] answer: Answer) {
    let script = Script::streaming([answer, silent(&[("END", "", 7)])]);
    let (informer, asked) = script.run_for(1).await;
    assert_eq!(asked, ["0.0 stream \"\"", "0.8 stream \"\""]);
    assert!(informer.has_synced());
}

#[rstest]
#[case::expired(failing(410, "Expired"))]
#[case::too_large(too_large())]
#[case::expired_event(error_event(&[], 410, "Expired"))]
#[tokio::test(start_paused = true)]
async fn expired_streaming_list_is_retried_immediately_with_the_newest_version(#[case] answer: Answer) {
    let script = Script::streaming([
        error_event(&[("END", "", 7)], 410, "Expired"),
        answer,
        silent(&[("END", "", 20)]),
    ]);
    let (_, asked) = script.run_for(2).await;
    assert_eq!(asked, ["0.0 stream \"\"", "0.8 stream \"7\"", "0.8 stream \"\""]);
}

#[tokio::test(start_paused = true)]
async fn streaming_list_that_ends_early_is_discarded_and_restarted() {
    let script = Script::streaming([
        ending(&[("ADDED", "a", 3)]),
        silent(&[("ADDED", "b", 5), ("END", "", 7)]),
    ]);
    let (informer, asked) = script.run_for(1).await;
    assert_eq!(asked, ["0.0 stream \"\"", "0.0 stream \"\""]);
    assert_eq!(stored(&informer), ["b@5"]);
}

#[tokio::test(start_paused = true)]
async fn server_without_an_end_bookmark_is_listed_without_streaming_afterwards() {
    let script = Script::streaming([
        silent(&[("ADDED", "a", 3)]),
        list(7, &[("a", 3)]),
        error_event(&[], 410, "Expired"),
        list(8, &[("a", 3)]),
        silent(&[]),
    ]);
    let (informer, asked) = script.run_for(70).await;
    let expected = [
        "0.0 stream \"\"",
        "60.0 list \"0\" limit=500",
        "60.0 watch \"7\"",
        "60.8 list \"7\" limit=0",
        "60.8 watch \"8\"",
    ];
    assert_eq!(asked, expected);
    assert_eq!(stored(&informer), ["a@3"]);
}

#[tokio::test(start_paused = true)]
async fn streamed_objects_count_as_initial_and_relists_deliver_deletions() {
    let told = Told::default();
    let script = Script::streaming([
        error_event(&[("ADDED", "a", 3), ("ADDED", "b", 4), ("END", "", 7)], 410, "Expired"),
        silent(&[("ADDED", "b", 9), ("ADDED", "c", 8), ("END", "", 12)]),
    ]);
    let informer = informer::cache::SharedInformer::<k8s_openapi::api::core::v1::ConfigMap>::builder(script)
        .reflector(crate::script::options())
        .build()
        .expect("the options have no duplicates");
    informer
        .add_handler(told.handler())
        .expect("the informer has not stopped");
    informer
        .run(tokio::time::sleep(Duration::from_secs(2)))
        .await
        .expect("the informer was not run before");
    assert_eq!(
        told.take(),
        ["initial a", "initial b", "vanished a", "updated b", "added c"]
    );
}
