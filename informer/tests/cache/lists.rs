//! Lists of a reflector: requested versions, pages, and recovery from expired versions.

use std::time::Duration;

use informer::cache::{ReflectorOptions, SharedInformer};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use rstest::rstest;

use crate::script::{
    Answer, Script, ending, error_event, error_line, failing, lines, list, options, page, silent, too_large,
};
use crate::support::stored;

#[tokio::test(start_paused = true)]
async fn first_list_accepts_any_version_and_the_watch_starts_at_the_version_of_the_list() {
    let script = Script::new([list(7, &[("a", 3), ("b", 5)]), silent(&[])]);
    let (informer, asked) = script.run_for(1).await;
    assert_eq!(asked, ["0.0 list \"0\" limit=500", "0.0 watch \"7\""]);
    assert_eq!(stored(&informer), ["a@3", "b@5"]);
    assert_eq!(informer.last_sync_resource_version().to_string(), "7");
    assert_eq!(informer.lister().resource_version().to_string(), "7");
}

#[tokio::test(start_paused = true)]
async fn relist_requests_the_last_version_or_newer_without_pages() {
    let script = Script::new([
        list(7, &[("a", 3)]),
        error_event(&[("MODIFIED", "a", 9)], 410, "Expired"),
        list(12, &[("a", 12)]),
        silent(&[]),
    ]);
    let (informer, asked) = script.run_for(2).await;
    let expected = [
        "0.0 list \"0\" limit=500",
        "0.0 watch \"7\"",
        "0.8 list \"9\" limit=0",
        "0.8 watch \"12\"",
    ];
    assert_eq!(asked, expected);
    assert_eq!(stored(&informer), ["a@12"]);
}

#[rstest]
#[case::expired(failing(410, "Expired"))]
#[case::gone(failing(410, "Gone"))]
#[case::too_large(too_large())]
#[tokio::test(start_paused = true)]
async fn expired_list_is_retried_immediately_with_the_newest_version(#[case] answer: Answer) {
    let script = Script::new([
        list(7, &[("a", 3)]),
        error_event(&[], 410, "Expired"),
        answer.clone(),
        list(20, &[("b", 20)]),
        // Success resets the state, so the next list requests the last version again.
        error_event(&[("BOOKMARK", "", 21)], 410, "Expired"),
        list(22, &[]),
        silent(&[]),
    ]);
    let (informer, asked) = script.run_for(4).await;
    let expected = [
        "0.0 list \"0\" limit=500",
        "0.0 watch \"7\"",
        "0.8 list \"7\" limit=0",
        "0.8 list \"\" limit=500",
        "0.8 watch \"20\"",
        "2.4 list \"21\" limit=0",
        "2.4 watch \"22\"",
    ];
    assert_eq!(asked, expected);
    assert!(stored(&informer).is_empty());
}

#[tokio::test(start_paused = true)]
async fn failed_list_of_the_newest_version_is_retried_with_the_newest_version() {
    let script = Script::new([
        failing(410, "Expired"),
        failing(410, "Expired"),
        list(3, &[]),
        silent(&[]),
    ]);
    let (_, asked) = script.run_for(2).await;
    let expected = [
        "0.0 list \"0\" limit=500",
        "0.0 list \"\" limit=500",
        "0.8 list \"\" limit=500",
        "0.8 watch \"3\"",
    ];
    assert_eq!(asked, expected);
}

#[tokio::test(start_paused = true)]
async fn pages_are_joined_into_one_list() {
    let script = Script::new([
        page(7, &[("a", 3)], "one"),
        page(7, &[("b", 4)], "two"),
        list(7, &[("c", 5)]),
        error_event(&[], 410, "Expired"),
        list(9, &[("a", 3)]),
        silent(&[]),
    ]);
    let (informer, asked) = script.run_for(2).await;
    let expected = [
        "0.0 list \"0\" limit=500",
        "0.0 list \"0\" limit=500 continue=one",
        "0.0 list \"0\" limit=500 continue=two",
        "0.0 watch \"7\"",
        // A server that splits a list at version 0 into pages has no watch cache, so later lists request pages.
        "0.8 list \"7\" limit=500",
        "0.8 watch \"9\"",
    ];
    assert_eq!(asked, expected);
    assert_eq!(stored(&informer), ["a@3"]);
}

#[tokio::test(start_paused = true)]
async fn expired_page_is_replaced_by_a_full_list_with_the_first_version() {
    let script = Script::new([
        page(7, &[("a", 3)], "one"),
        failing(410, "Expired"),
        list(9, &[("a", 3), ("b", 8)]),
        silent(&[]),
    ]);
    let (informer, asked) = script.run_for(1).await;
    let expected = [
        "0.0 list \"0\" limit=500",
        "0.0 list \"0\" limit=500 continue=one",
        "0.0 list \"0\" limit=0",
        "0.0 watch \"9\"",
    ];
    assert_eq!(asked, expected);
    assert_eq!(stored(&informer), ["a@3", "b@8"]);
}

#[tokio::test(start_paused = true)]
async fn configured_page_size_applies_to_every_list() {
    let script = Script::new([
        list(7, &[]),
        error_event(&[], 410, "Expired"),
        list(8, &[]),
        silent(&[]),
    ]);
    let mut options = options();
    options.page_size = Some(20);
    let (_, asked) = script.run_with(2, options).await;
    assert_eq!(
        [&asked[0], &asked[2]],
        ["0.0 list \"0\" limit=20", "0.8 list \"7\" limit=20"]
    );
}

#[tokio::test(start_paused = true)]
async fn failed_lists_are_retried_with_increasing_pauses() {
    let script = Script::new((0..5).map(|_| failing(500, "InternalError")));
    let (informer, asked) = script.run_for(20).await;
    let at: Vec<_> = asked
        .iter()
        .map(|it| it.split(' ').next().expect("the line begins with a time"))
        .collect();
    assert_eq!(at, ["0.0", "0.8", "2.4", "5.6", "12.0"]);
    assert!(!informer.has_synced());
}

#[tokio::test(start_paused = true)]
async fn relists_are_delayed_even_after_successful_lists() {
    let script = Script::new([
        list(1, &[]),
        error_event(&[], 410, "Expired"),
        list(2, &[]),
        error_event(&[], 410, "Expired"),
        list(3, &[]),
        silent(&[]),
    ]);
    let (_, asked) = script.run_for(5).await;
    assert_eq!(
        [&asked[2], &asked[4]],
        ["0.8 list \"1\" limit=0", "2.4 list \"2\" limit=0"]
    );
}

#[tokio::test(start_paused = true)]
async fn body_that_is_not_a_list_fails_instead_of_emptying_the_cache() {
    let script = Script::new([
        list(1, &[("a", 1)]),
        error_event(&[], 410, "Expired"),
        Answer::Text(r#"{"kind":"Table","metadata":{"resourceVersion":"5"},"rows":[]}"#.to_owned()),
        Answer::Text(r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":"#.to_owned()),
        Answer::Broken(r#"{"metadata":{"resourceVersion":"5"},"items":["#.to_owned()),
    ]);
    let (informer, asked) = script.run_for(13).await;
    assert_eq!(asked.len(), 6, "{asked:?}");
    assert_eq!(stored(&informer), ["a@1"]);
}

#[tokio::test(start_paused = true)]
async fn error_handler_receives_the_error_of_a_failed_list() {
    let told = crate::support::Told::default();
    let log = told.clone();
    let script = Script::new([failing(403, "Forbidden"), list(1, &[]), ending(&[])]);
    let options: ReflectorOptions<_> = options().on_error(move |err| log.push(err.code().unwrap_or(0).to_string()));
    script.run_with(1, options).await;
    assert_eq!(told.take(), ["403"]);
}

#[tokio::test(start_paused = true)]
async fn unchanged_object_is_reused_after_a_relist() {
    let end = lines(&[("BOOKMARK", "", 8)]) + &error_line(410, "Expired");
    let script = Script::new([
        list(7, &[("a", 3), ("b", 5)]),
        Answer::Late(Duration::from_secs(10), end),
        list(9, &[("a", 3), ("b", 9)]),
        silent(&[]),
    ]);
    let informer = SharedInformer::<ConfigMap>::new(script);
    let lister = informer.lister();
    tokio::spawn(async move { informer.run(std::future::pending()).await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = lister.list();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let after = lister.list();
    assert!(before[0].ptr_eq(&after[0]), "a relist reuses unchanged objects");
    assert!(!before[1].ptr_eq(&after[1]));
}

#[tokio::test(start_paused = true)]
async fn relist_replaces_objects_that_changed_without_a_new_version() {
    // A default in a new version of a CRD changes the objects, but not their versions.
    let defaulted = r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"9"},"items":[
        {"metadata":{"name":"a","resourceVersion":"3"},"data":{"x":"1"}}]}"#;
    let script = Script::new([
        list(7, &[("a", 3)]),
        error_event(&[], 410, "Expired"),
        Answer::Text(defaulted.to_owned()),
        silent(&[]),
    ]);
    let told = crate::support::Told::default();
    let informer = SharedInformer::<ConfigMap>::new(script);
    informer
        .add_handler(told.handler())
        .expect("the informer has not stopped");
    informer
        .run(tokio::time::sleep(Duration::from_secs(5)))
        .await
        .expect("the informer was not run before");
    let stored = informer.lister().list()[0].typed().expect("the object is a ConfigMap");
    assert_eq!(
        stored.data.as_ref().and_then(|it| it.get("x")).map(String::as_str),
        Some("1")
    );
    assert_eq!(told.take(), ["initial a", "same a"]);
}

#[tokio::test(start_paused = true)]
async fn listed_dynamic_objects_have_the_kind_of_their_list() {
    // kube-apiserver sends the kind of built-in types only once, with the list.
    let pods = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[
        {"metadata":{"name":"a","resourceVersion":"3","uid":"u","labels":{"app":"web"}},"spec":{"nodeName":"n"}},
        {"kind":"Other","apiVersion":"example.com/v1","metadata":{"name":"b","resourceVersion":"4"}}]}"#;
    let script = Script::new([Answer::Text(pods.to_owned()), silent(&[])]);
    let informer = SharedInformer::<DynamicObject>::new(script);
    informer
        .run(tokio::time::sleep(Duration::from_secs(1)))
        .await
        .expect("the informer was not run before");
    let listed = informer.lister().list();
    assert_eq!(listed[0].uid(), "u");
    let types = listed
        .iter()
        .map(|it| it.typed().expect("the object is valid").types.clone());
    let types: Vec<_> = types.map(|it| it.expect("the object has a kind")).collect();
    let types: Vec<_> = types
        .iter()
        .map(|it| (it.api_version.as_str(), it.kind.as_str()))
        .collect();
    assert_eq!(types, [("v1", "Pod"), ("example.com/v1", "Other")]);
}
