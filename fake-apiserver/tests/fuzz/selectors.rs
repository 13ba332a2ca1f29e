//! Selectors and continue tokens.

use base64::Engine as _;
use proptest::prelude::*;
use rstest::rstest;

use crate::ask::Ask;
use crate::trial::{CONFIG_MAPS, ask_once, post, try_all};
use crate::values::objects;

/// Percent-encodes a string.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn selector() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "a",
        "b",
        "!",
        "=",
        "==",
        "!=",
        " in ",
        " notin ",
        "(",
        ")",
        ",",
        ">",
        "<",
        "1",
        "metadata.name",
        "a.b/c",
        "\\",
        " ",
        "é",
        "metadata.namespace",
        "spec.nodeName",
        "in",
        "\u{0}",
        "-",
        "a/b/c",
    ]);
    prop_oneof![
        4 => prop::collection::vec(token, 0..10).prop_map(|tokens| tokens.concat()),
        1 => "[ -~]{0,30}",
    ]
}

#[test]
fn random_selectors_do_not_break_the_server() {
    let (path, object) = objects().swap_remove(0);
    let keys = prop::sample::select(vec!["labelSelector", "fieldSelector"]);
    let verbs = prop::sample::select(vec!["GET", "GET", "DELETE"]);
    let prepare = [post(path, &object)];
    try_all(
        600,
        &prepare,
        &(keys, selector(), verbs),
        |server, (key, text, verb)| async move {
            let path = format!("{CONFIG_MAPS}?{key}={}", encoded(&text));
            Ask::new(verb, &path, "application/json", "").check(&server).await?;
            Ask::get(&format!("{path}&watch=1&timeoutSeconds=1"))
                .check(&server)
                .await
                .map(drop)
        },
    );
}

#[test]
fn random_continue_tokens_do_not_break_the_server() {
    let fields = (
        any::<i64>(),
        "[ -~\u{0}é/]{0,20}",
        prop::sample::select(vec!["meta.k8s.io/v1", "", "v9"]),
    );
    let tokens = prop_oneof![
        3 => fields.prop_map(|(rv, start, v)| {
            let json = serde_json::json!({"v": v, "rv": rv, "start": start}).to_string();
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json)
        }),
        1 => "[ -~]{0,30}",
    ];
    try_all(400, &[], &tokens, |server, token| async move {
        Ask::get(&format!("{CONFIG_MAPS}?limit=1&continue={}", encoded(&token)))
            .check(&server)
            .await
            .map(drop)
    });
}

#[rstest]
#[case::many_requirements(vec!["a=b"; 10_000].join(","), 200)]
#[case::many_values(format!("a in ({})", vec!["b"; 10_000].join(",")), 200)]
#[case::brackets(format!("a in {}", "(".repeat(20_000)), 400)]
#[case::long_value(format!("a={}", "b".repeat(64)), 400)]
fn large_label_selector_is_accepted_or_refused(#[case] selector: String, #[case] code: u16) {
    let answer = ask_once(
        &[],
        &Ask::get(&format!("{CONFIG_MAPS}?labelSelector={}", selector.replace(' ', "%20"))),
    );
    assert_eq!(answer.code, code, "{:.300}", answer.message());
}
