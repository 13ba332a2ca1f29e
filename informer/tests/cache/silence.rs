//! Requests without a response: each request has a time limit, and the cache recovers.

use std::time::Duration;

use informer::cache::SharedInformer;
use k8s_openapi::api::core::v1::ConfigMap;
use rstest::rstest;

use crate::script::{Answer, Script, ending, lines, list, options, page, silent, too_large};
use crate::support::{Told, stored};

#[tokio::test(start_paused = true)]
async fn watch_that_does_not_open_within_90_s_causes_a_relist() {
    let script = Script::new([list(7, &[("a", 3)]), Answer::Never, list(9, &[("b", 9)]), silent(&[])]);
    let (informer, asked) = script.run_for(100).await;
    let expected = ["0.0 watch \"7\"", "90.8 list \"7\" limit=0", "90.8 watch \"9\""];
    assert_eq!(asked[1..], expected);
    assert_eq!(stored(&informer), ["b@9"]);
}

#[tokio::test(start_paused = true)]
async fn watch_opens_if_a_proxy_sends_the_headers_with_the_first_bookmark() {
    let first = Answer::Delayed(Duration::from_secs(61), lines(&[("BOOKMARK", "", 8)]));
    let (informer, asked) = Script::new([list(7, &[("a", 3)]), first]).run_for(200).await;
    assert_eq!(asked[1..], ["0.0 watch \"7\""]);
    assert_eq!(informer.last_sync_resource_version().to_string(), "8");
}

#[tokio::test(start_paused = true)]
async fn watch_that_opened_late_and_ended_without_an_event_is_resumed() {
    let late = Answer::DelayedEnd(Duration::from_secs(2));
    let (_, asked) = Script::new([list(7, &[]), late, silent(&[])]).run_for(4).await;
    assert_eq!(asked[1..], ["0.0 watch \"7\"", "2.0 watch \"7\""]);
}

#[tokio::test(start_paused = true)]
async fn streaming_list_that_does_not_open_in_time_is_replaced_by_a_list() {
    let script = Script::streaming([Answer::Never, list(7, &[("a", 3)]), silent(&[])]);
    let (informer, asked) = script.run_for(40).await;
    let expected = ["0.0 stream \"\"", "30.0 list \"0\" limit=500", "30.0 watch \"7\""];
    assert_eq!(asked, expected);
    assert_eq!(stored(&informer), ["a@3"]);
}

#[rstest]
#[case::no_response(Answer::Never)]
#[case::incomplete_page(Answer::Silent(r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"#.to_owned()))]
#[tokio::test(start_paused = true)]
async fn page_that_receives_no_data_for_a_minute_is_requested_again(
    #[case] answer: Answer,
    #[values(true, false)] first: bool,
) {
    let before = if first {
        vec![]
    } else {
        vec![page(7, &[("a", 3)], "more")]
    };
    let pages = before.len();
    let answers = before.into_iter().chain([answer, list(8, &[("b", 8)]), silent(&[])]);
    let (informer, asked) = Script::new(answers).run_for(70).await;
    let expected = ["60.8 list \"0\" limit=500", "60.8 watch \"8\""];
    assert_eq!(asked[pages + 1..], expected);
    assert_eq!(stored(&informer), ["b@8"]);
}

#[tokio::test(start_paused = true)]
async fn slow_page_is_requested_again_after_five_minutes() {
    let trickle = Answer::Endless(Duration::from_secs(50), " ".to_owned());
    let script = Script::new([trickle, list(8, &[("b", 8)]), silent(&[])]);
    let (_, asked) = script.run_for(310).await;
    assert_eq!(asked[1], "300.8 list \"0\" limit=500");
}

#[tokio::test(start_paused = true)]
async fn time_limits_are_derived_from_the_request_timeout() {
    let mut options = options();
    options.request_timeout = Duration::from_secs(4);
    let script = Script::streaming([Answer::Never, Answer::Never, Answer::Never, list(7, &[]), silent(&[])]);
    let (_, asked) = script.run_with(20, options).await;
    let expected = [
        "2.0 list \"0\" limit=500",
        "6.8 stream \"\"",
        "8.8 list \"0\" limit=500",
        "8.8 watch \"7\"",
    ];
    assert_eq!(asked[1..], expected);
}

#[tokio::test(start_paused = true)]
async fn time_limits_can_be_disabled() {
    let mut options = options();
    (options.request_timeout, options.page_size) = (Duration::MAX, Some(1));
    let script = Script::new([list(7, &[("a", 3)]), silent(&[])]);
    let informer = SharedInformer::<ConfigMap>::builder(script)
        .reflector(options)
        .resync_period(Duration::MAX)
        .build()
        .expect("the options have no duplicates");
    informer
        .add_handler(Told::default().handler())
        .expect("the informer has not stopped");
    informer
        .run(tokio::time::sleep(Duration::from_secs(1)))
        .await
        .expect("the informer was not run before");
    assert_eq!(stored(&informer), ["a@3"]);
}

#[tokio::test(start_paused = true)]
async fn watch_is_reopened_three_minutes_after_the_last_bookmark() {
    let script = Script::new([list(7, &[]), silent(&[("BOOKMARK", "", 8)]), silent(&[])]);
    let (_, asked) = script.run_for(200).await;
    assert_eq!(asked[1..], ["0.0 watch \"7\"", "180.0 watch \"8\""]);
}

#[tokio::test(start_paused = true)]
async fn second_watch_without_bookmarks_causes_a_relist() {
    let script = Script::new([
        list(7, &[]),
        silent(&[("BOOKMARK", "", 8)]),
        silent(&[]),
        too_large(),
        list(3, &[("a", 2)]),
        silent(&[]),
    ]);
    let (informer, asked) = script.run_for(400).await;
    let expected = [
        "180.0 watch \"8\"",
        "360.8 list \"8\" limit=0",
        "360.8 list \"\" limit=500",
        "360.8 watch \"3\"",
    ];
    assert_eq!(asked[2..], expected);
    assert_eq!(stored(&informer), ["a@2"]);
}

#[tokio::test(start_paused = true)]
async fn busy_streaming_list_without_an_end_bookmark_is_replaced_by_a_list_after_a_minute() {
    let busy = Answer::Endless(Duration::from_secs(7), lines(&[("MODIFIED", "a", 5)]));
    let script = Script::streaming([busy, list(7, &[("a", 5)]), silent(&[])]);
    let (informer, asked) = script.run_for(70).await;
    let expected = ["0.0 stream \"\"", "60.0 list \"0\" limit=500", "60.0 watch \"7\""];
    assert_eq!(asked, expected);
    assert_eq!(stored(&informer), ["a@5"]);
}

#[tokio::test(start_paused = true)]
async fn streaming_list_that_always_breaks_is_retried_with_pauses_and_replaced_by_a_list() {
    let cut = std::iter::repeat_n(ending(&[("ADDED", "a", 3)]), 8);
    let script = Script::streaming(cut.chain([list(7, &[("a", 3)]), silent(&[])]));
    let (informer, asked) = script.run_for(70).await;
    let times: Vec<_> = asked
        .iter()
        .map(|it| it.split(' ').next().unwrap_or_default())
        .collect();
    assert_eq!(
        times,
        [
            "0.0", "0.0", "0.8", "2.4", "5.6", "12.0", "24.8", "50.4", "60.0", "60.0"
        ]
    );
    assert_eq!(stored(&informer), ["a@3"]);
}

/// Ways in which an informer can end before it has started.
#[derive(Clone, Copy, Debug)]
enum Way {
    HandlerRemoved,
    InformerDropped,
    RunNotPolled,
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn waiting_for_a_handler_that_never_starts_fails(
    #[values(Way::HandlerRemoved, Way::InformerDropped, Way::RunNotPolled)] way: Way,
) {
    let informer = SharedInformer::<ConfigMap>::new(Script::new([]));
    let registration = informer
        .add_handler(Told::default().handler())
        .expect("the informer has not stopped");
    match way {
        Way::HandlerRemoved => informer.remove_handler(&registration),
        Way::InformerDropped => drop(informer),
        Way::RunNotPolled => drop(informer.run(std::future::pending())),
    }
    let both = async {
        registration.ended().await;
        registration.synced().await
    };
    let synced = tokio::time::timeout(Duration::from_secs(1), both).await;
    assert!(synced.expect("both waits return").is_err());
}
