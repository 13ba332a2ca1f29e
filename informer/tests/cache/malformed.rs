//! Malformed responses: the informer keeps the known state, retries the request, and does not hang.

use std::time::Duration;

use informer::cache::SharedInformer;
use k8s_openapi::api::core::v1::ConfigMap;
use rstest::rstest;

use crate::script::{Answer, Script, error_line, lines, list, silent};
use crate::support::{Told, stored};

/// The text of a list at version 9, up to its items.
const LIST: &str = r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"9"},"items":"#;

const A: &str = r#"{"metadata":{"name":"a","resourceVersion":"8"}}"#;

/// Returns the events without resyncs, and the cached objects, after an informer with the objects `a` and `b` has
/// received the responses `second`.
async fn told_after(second: Vec<Answer>) -> (Vec<String>, Vec<String>) {
    let first = [
        list(7, &[("a", 3), ("b", 4)]),
        Answer::Late(Duration::from_millis(1), error_line(410, "Expired")),
    ];
    let last = [list(11, &[("a", 8), ("b", 4)]), silent(&[])];
    let script = Script::new(first.into_iter().chain(second).chain(last));
    let told = Told::default();
    let informer = SharedInformer::<ConfigMap>::new(script);
    informer
        .add_handler(told.handler())
        .expect("the informer has not stopped");
    let ten = tokio::time::sleep(Duration::from_secs(60));
    informer.run(ten).await.expect("the informer was not run before");
    let told = told.take().into_iter().filter(|it| !it.starts_with("same"));
    (told.collect(), stored(&informer))
}

#[rstest]
#[case::number_as_item(format!("{LIST}[{A},5]}}"))]
#[case::null_item(format!("{LIST}[{A},null]}}"))]
#[case::number_as_metadata(format!(r#"{LIST}[{A},{{"metadata":5}}]}}"#))]
#[case::number_as_name(format!(r#"{LIST}[{A},{{"metadata":{{"name":5}}}}]}}"#))]
#[case::number_as_items(format!("{LIST}5}}"))]
#[case::truncated_in_an_item(format!(r#"{LIST}[{A},{{"metadata":{{"na"#))]
#[case::truncated_after_an_item(format!("{LIST}[{A}"))]
#[case::truncated_before_the_last_brace(format!("{LIST}[{A}]"))]
#[case::two_lists(format!("{LIST}[{A}]}}{LIST}[{A}]}}"))]
#[case::html_page(" <html>502</html>".to_owned())]
#[case::empty_body(String::new())]
#[case::status_object(r#"{"kind":"Status","metadata":{},"status":"Failure"}"#.to_owned())]
#[case::single_object(r#"{"kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"9"}}"#.to_owned())]
#[case::empty_object("{}".to_owned())]
#[tokio::test(start_paused = true)]
async fn malformed_list_does_not_delete_cached_objects(#[case] text: String) {
    let (told, stored) = told_after(vec![Answer::Text(text)]).await;
    assert_eq!(told, ["initial a", "initial b", "updated a"]);
    assert_eq!(stored, ["a@8", "b@4"]);
}

#[rstest]
#[case::no_items(r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"9"}}"#)]
#[case::null(r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"9"},"items":null}"#)]
#[case::array(r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"9"},"items":[]}"#)]
#[tokio::test(start_paused = true)]
async fn list_without_items_is_empty(#[case] text: &str) {
    let script = Script::new([Answer::Text(text.to_owned()), silent(&[])]);
    let (informer, asked) = script.run_for(10).await;
    assert!(informer.lister().is_empty() && asked.len() == 2, "{asked:?}");
}

#[rstest]
#[case::number("5\n")]
#[case::event_without_an_object("{\"type\":\"ADDED\"}\n")]
#[case::null_object("{\"type\":\"ADDED\",\"object\":null}\n")]
#[case::number_as_metadata("{\"type\":\"MODIFIED\",\"object\":{\"metadata\":5}}\n")]
#[case::malformed_deletion("{\"type\":\"DELETED\",\"object\":{\"metadata\":5}}\n")]
#[case::malformed_bookmark("{\"type\":\"BOOKMARK\",\"object\":5}\n")]
#[case::malformed_error("{\"type\":\"ERROR\",\"object\":5}\n")]
#[case::error_without_a_status("{\"type\":\"ERROR\",\"object\":null}\n")]
#[case::number_as_event_type("{\"type\":5,\"object\":{}}\n")]
#[case::blank_lines("\n\n\n")]
#[case::truncated_event("{\"type\":\"ADDED\",\"obj")]
#[tokio::test(start_paused = true)]
async fn malformed_watch_stream_is_resumed_or_relisted(#[case] line: &str) {
    let text = format!("{line}{}", lines(&[("ADDED", "c", 10)]));
    let after = [list(7, &[]), Answer::Silent(text), list(10, &[("c", 10)]), silent(&[])];
    let script = Script::new(after);
    let (informer, asked) = script.run_for(20).await;
    assert_eq!(stored(&informer), ["c@10"]);
    assert!(asked.len() <= 4, "{asked:?}");
}
