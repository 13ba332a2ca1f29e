//! Watches of a reflector: resuming, relisting, and pauses.

use std::time::Duration;

use informer::cache::{QueueOrder, SharedInformer};
use k8s_openapi::api::core::v1::ConfigMap;
use rstest::rstest;

use crate::script::{Answer, Script, ending, error_event, error_line, failing, lines, list, options, silent};
use crate::support::stored;

/// Returns the requests after the first list.
async fn after_a_list(seconds: u64, answers: impl IntoIterator<Item = Answer>) -> (Vec<String>, Vec<String>, String) {
    let first = [list(7, &[("a", 3)])];
    let script = Script::new(first.into_iter().chain(answers));
    let (informer, asked) = script.run_for(seconds).await;
    let last = informer.last_sync_resource_version().to_string();
    (asked[1..].to_vec(), stored(&informer), last)
}

#[tokio::test(start_paused = true)]
async fn ended_watch_is_resumed_immediately_from_the_last_version() {
    let watches = [
        ending(&[("ADDED", "b", 8), ("MODIFIED", "a", 9)]),
        ending(&[("DELETED", "b", 10)]),
        ending(&[("BOOKMARK", "", 40)]),
        silent(&[]),
    ];
    let (asked, stored, last) = after_a_list(1, watches).await;
    assert_eq!(
        asked,
        [
            "0.0 watch \"7\"",
            "0.0 watch \"9\"",
            "0.0 watch \"10\"",
            "0.0 watch \"40\""
        ]
    );
    assert_eq!(stored, ["a@9"]);
    assert_eq!(last, "40");
}

#[rstest]
#[case::connection_refused(Answer::Refused)]
#[case::too_many_requests(failing(429, "TooManyRequests"))]
#[tokio::test(start_paused = true)]
async fn watch_that_cannot_start_is_retried_with_an_unchanged_version(#[case] answer: Answer) {
    let (asked, ..) = after_a_list(3, [answer.clone(), answer, silent(&[])]).await;
    assert_eq!(asked, ["0.0 watch \"7\"", "0.8 watch \"7\"", "2.4 watch \"7\""]);
}

#[tokio::test(start_paused = true)]
async fn forbidden_watch_causes_a_relist() {
    let (asked, ..) = after_a_list(2, [failing(403, "Forbidden"), list(9, &[]), silent(&[])]).await;
    assert_eq!(asked, ["0.0 watch \"7\"", "0.8 list \"7\" limit=0", "0.8 watch \"9\""]);
}

#[tokio::test(start_paused = true)]
async fn throttled_watch_is_resumed_after_a_pause() {
    let watch = error_event(&[("ADDED", "b", 8)], 429, "TooManyRequests");
    let (asked, stored, _) = after_a_list(2, [watch, silent(&[])]).await;
    assert_eq!(asked, ["0.0 watch \"7\"", "0.8 watch \"8\""]);
    assert_eq!(stored, ["a@3", "b@8"]);
}

#[rstest]
#[case::ends_immediately(ending(&[]))]
#[case::internal_error(error_event(&[], 500, "InternalError"))]
#[case::unknown_error(error_event(&[], 400, "BadRequest"))]
#[case::malformed_event(Answer::Text("{\"type\": 1}\n".to_owned()))]
#[tokio::test(start_paused = true)]
async fn failed_watch_causes_a_relist_after_a_pause(#[case] answer: Answer) {
    let (asked, ..) = after_a_list(2, [answer, list(9, &[]), silent(&[])]).await;
    assert_eq!(asked, ["0.0 watch \"7\"", "0.8 list \"7\" limit=0", "0.8 watch \"9\""]);
}

#[tokio::test(start_paused = true)]
async fn empty_watch_that_lasted_a_second_is_resumed() {
    let (asked, ..) = after_a_list(3, [Answer::Late(Duration::from_secs(1), String::new()), silent(&[])]).await;
    assert_eq!(asked, ["0.0 watch \"7\"", "1.0 watch \"7\""]);
}

#[tokio::test(start_paused = true)]
async fn broken_connection_is_resumed_and_partial_events_are_ignored() {
    let broken = Answer::Broken(lines(&[("ADDED", "b", 8)]) + r#"{"type":"ADDED","object":{"metadata"#);
    let (asked, stored, _) = after_a_list(1, [broken, silent(&[])]).await;
    assert_eq!(asked, ["0.0 watch \"7\"", "0.0 watch \"8\""]);
    assert_eq!(stored, ["a@3", "b@8"]);
}

#[tokio::test(start_paused = true)]
async fn internal_errors_are_retried_immediately_for_a_limited_time() {
    let script = Script::new([
        list(7, &[]),
        error_event(&[], 500, "InternalError"),
        error_event(&[], 500, "InternalError"),
        Answer::Late(Duration::from_secs(6), crate::script::error_line(500, "InternalError")),
        list(9, &[]),
        silent(&[]),
    ]);
    let mut options = options();
    options.internal_error_retry = Duration::from_secs(5);
    let (_, asked) = script.run_with(10, options).await;
    let expected = [
        "0.0 watch \"7\"",
        "0.0 watch \"7\"",
        "0.0 watch \"7\"",
        "6.8 list \"7\" limit=0",
        "6.8 watch \"9\"",
    ];
    assert_eq!(asked[1..], expected);
}

#[tokio::test(start_paused = true)]
async fn dead_connection_is_dropped_after_the_watch_timeout() {
    let (asked, ..) = after_a_list(700, [silent(&[]), silent(&[])]).await;
    assert_eq!(asked.len(), 2, "{asked:?}");
    let at: f64 = asked[1]
        .split(' ')
        .next()
        .and_then(|it| it.parse().ok())
        .expect("the time is valid");
    assert!((330.0..=630.0).contains(&at), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn invalid_events_are_skipped() {
    let nameless = "{\"type\":\"ADDED\",\"object\":{\"kind\":\"ConfigMap\"}}\n";
    let strange = lines(&[("SURPRISE", "x", 8)]) + "\n" + nameless + &lines(&[("ADDED", "b", 9)]);
    let (_, stored, last) = after_a_list(1, [Answer::Silent(strange)]).await;
    assert_eq!(stored, ["a@3", "b@9"]);
    assert_eq!(last, "9");
}

#[tokio::test(start_paused = true)]
async fn cache_contents_distinguish_additions_from_updates() {
    let told = crate::support::Told::default();
    let events = [("ADDED", "a", 8), ("MODIFIED", "b", 9), ("DELETED", "never-seen", 10)];
    let script = Script::new([list(7, &[("a", 3)]), silent(&events)]);
    let informer = informer::cache::SharedInformer::<k8s_openapi::api::core::v1::ConfigMap>::new(script);
    informer
        .add_handler(told.handler())
        .expect("the informer has not stopped");
    informer
        .run(tokio::time::sleep(Duration::from_secs(1)))
        .await
        .expect("the informer was not run before");
    assert_eq!(told.take(), ["initial a", "updated a", "added b"]);
}

#[tokio::test(start_paused = true)]
async fn retry_pauses_are_reset_after_two_minutes() {
    let mut answers: Vec<_> = (0..3).map(|_| failing(500, "InternalError")).collect();
    answers.extend([
        list(7, &[]),
        Answer::Late(Duration::from_secs(150), crate::script::error_line(410, "Expired")),
    ]);
    answers.extend([list(8, &[]), silent(&[])]);
    let (_, asked) = Script::new(answers).run_for(200).await;
    let at: Vec<_> = asked
        .iter()
        .map(|it| it.split(' ').next().expect("the line begins with a time"))
        .collect();
    assert_eq!(at, ["0.0", "0.8", "2.4", "5.6", "5.6", "156.4", "156.4"]);
}

#[tokio::test(start_paused = true)]
async fn initial_events_of_a_watch_without_a_version_do_not_change_the_version() {
    let script = Script::new([
        list(0, &[]),
        ending(&[("ADDED", "b", 9), ("ADDED", "a", 4)]),
        ending(&[("ADDED", "b", 9), ("MODIFIED", "a", 11), ("ADDED", "c", 12)]),
        silent(&[]),
    ]);
    let (informer, asked) = script.run_for(1).await;
    let expected = [
        "0.0 list \"0\" limit=500",
        "0.0 watch \"0\"",
        "0.0 watch \"0\"",
        "0.0 watch \"12\"",
    ];
    assert_eq!(asked, expected);
    assert_eq!(stored(&informer), ["a@11", "b@9", "c@12"]);
}

#[rstest]
#[case::arrival(QueueOrder::Arrival, ["added a", "added b", "updated a", "deleted b", "deleted a"])]
#[case::by_object(QueueOrder::ByObject, ["added a", "updated a", "deleted a", "added b", "deleted b"])]
#[tokio::test(start_paused = true)]
async fn changes_are_ordered_by_arrival_or_by_object(#[case] order: QueueOrder, #[case] expected: [&str; 5]) {
    let told = crate::support::Told::default();
    let events = [
        ("ADDED", "a", 8),
        ("ADDED", "b", 9),
        ("MODIFIED", "a", 10),
        ("DELETED", "b", 11),
        ("DELETED", "a", 12),
        ("DELETED", "a", 13),
    ];
    let script = Script::new([
        list(7, &[]),
        Answer::Late(Duration::from_millis(10), lines(&events)),
        silent(&[]),
    ]);
    let informer = SharedInformer::<ConfigMap>::builder(script)
        .order(order)
        .build()
        .expect("the options have no duplicates");
    informer
        .add_handler(told.handler())
        .expect("the informer has not stopped");
    informer
        .run(tokio::time::sleep(Duration::from_secs(1)))
        .await
        .expect("the informer was not run before");
    assert_eq!(told.take(), expected);
}

#[tokio::test(start_paused = true)]
async fn missing_response_does_not_delay_shutdown() {
    let hour = Duration::from_secs(3600);
    let began = tokio::time::Instant::now();
    let (informer, asked) = Script::new([Answer::Late(hour, String::new())]).run_for(5).await;
    assert_eq!((asked.len(), began.elapsed()), (1, Duration::from_secs(5)));
    assert!(informer.is_stopped() && !informer.has_synced());
}

#[tokio::test(start_paused = true)]
async fn event_with_an_old_version_does_not_lower_the_version() {
    let watches = [ending(&[("MODIFIED", "b", 60), ("DELETED", "a", 3)]), silent(&[])];
    let script = Script::new([list(7, &[("a", 3)])].into_iter().chain(watches));
    let (informer, asked) = script.run_for(1).await;
    assert_eq!(asked[1..], ["0.0 watch \"7\"", "0.0 watch \"60\""]);
    assert_eq!(stored(&informer), ["b@60"]);
    assert_eq!(informer.lister().resource_version().to_string(), "60");
    assert_eq!(informer.last_sync_resource_version().to_string(), "60");
}

/// A server sends an error event if it cannot decode an object. Events after this event must not hide that a change is
/// missing (kubernetes/kubernetes#130898).
#[rstest]
#[case::too_many_requests(429, "TooManyRequests", &["0.0 watch \"7\"", "0.8 watch \"7\""])]
#[case::internal_error(500, "InternalError", &["0.0 watch \"7\"", "0.8 list \"7\" limit=0", "0.8 watch \"7\""])]
#[tokio::test(start_paused = true)]
async fn events_after_an_error_are_ignored(#[case] code: u16, #[case] reason: &str, #[case] requests: &[&str]) {
    let watch = Answer::Text(error_line(code, reason) + &lines(&[("ADDED", "c", 9), ("BOOKMARK", "", 10)]));
    let (again, other) = (list(7, &[("a", 3)]), silent(&[]));
    let answers = if code == 429 {
        vec![watch, other]
    } else {
        vec![watch, again, other]
    };
    let (asked, stored, last) = after_a_list(2, answers).await;
    assert_eq!(asked, requests);
    assert_eq!((stored, last.as_str()), (vec!["a@3".to_owned()], "7"));
}

#[rstest]
#[case::arrival(QueueOrder::Arrival)]
#[case::by_object(QueueOrder::ByObject)]
#[tokio::test(start_paused = true)]
async fn version_includes_changes_that_arrive_with_the_end_of_a_list(#[case] order: QueueOrder) {
    let script = Script::streaming([silent(&[("ADDED", "a", 90), ("END", "", 100), ("MODIFIED", "a", 101)])]);
    let informer = SharedInformer::<ConfigMap>::builder(script)
        .order(order)
        .build()
        .expect("the options have no duplicates");
    informer
        .run(tokio::time::sleep(Duration::from_secs(1)))
        .await
        .expect("the informer was not run before");
    assert_eq!(stored(&informer), ["a@101"]);
    assert_eq!(informer.lister().resource_version().to_string(), "101");
}

#[tokio::test(start_paused = true)]
async fn deletion_with_an_old_version_is_noticed_by_waiting_readers() {
    let deleted = Answer::Delayed(Duration::from_secs(1), lines(&[("DELETED", "a", 5)]));
    let informer = SharedInformer::<ConfigMap>::new(Script::new([list(9, &[("a", 9)]), deleted]));
    let lister = informer.lister();
    tokio::spawn(async move { informer.run(std::future::pending()).await });
    let key = informer::ObjectKey::cluster("a");
    let gone = lister.await_condition(&key, |it| it.is_none());
    let gone = tokio::time::timeout(Duration::from_secs(10), gone).await;
    gone.expect("the reader is woken").expect("the informer runs");
}
