//! Responses in protobuf, for clients that prefer it: objects, lists and the frames of watches.

use axum::body::Body;
use fake_apiserver::ApiServer;
use futures::StreamExt as _;
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::ask::{CONFIG_MAPS, config_map, send};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Builds a request like client-go for built-in kinds.
fn asked(path: &str, accept: &str) -> Request<String> {
    let asked = Request::get(path).header("accept", accept);
    asked.body(String::new()).expect("the request is valid")
}

/// Returns the first field with this number in a message.
fn field(message: &[u8], number: u64) -> Option<&[u8]> {
    let mut rest = message;
    loop {
        let (key, after) = varint(rest)?;
        let (value, after) = varint(after)?;
        let (found, left) = match key & 7 {
            2 => after.split_at_checked(usize::try_from(value).ok()?)?,
            _ => (&[][..], after),
        };
        if key >> 3 == number {
            return Some(found);
        }
        rest = left;
    }
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0)?;
    let number = bytes[..=end]
        .iter()
        .rev()
        .fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    Some((number, &bytes[end + 1..]))
}

/// Returns the kind and the message in Kubernetes' envelope.
fn open(bytes: &[u8]) -> (String, &[u8]) {
    let unknown = bytes
        .strip_prefix(b"k8s\0")
        .expect("the body begins with the magic number");
    let kind = field(field(unknown, 1).expect("the message has a type"), 2).expect("the type has a kind");
    let kind = String::from_utf8(kind.to_vec()).expect("the text is UTF-8");
    (kind, field(unknown, 2).expect("the envelope has a message"))
}

/// Returns `metadata.name` of an object.
fn name(message: &[u8]) -> Option<&[u8]> {
    field(field(message, 1)?, 1)
}

async fn server() -> ApiServer {
    let server = ApiServer::start();
    assert_eq!(send(&server, "POST", CONFIG_MAPS, config_map("a")).await, 201);
    server
}

#[rstest]
#[case::only_protobuf(PROTOBUF.to_owned())]
#[case::before_json(format!("{PROTOBUF},application/json"))]
#[case::before_any_type(format!("{PROTOBUF}, */*"))]
#[tokio::test(start_paused = true)]
async fn objects_and_lists_are_protobuf_if_preferred(#[case] accept: String) {
    let server = server().await;
    let one = server.call(asked(&format!("{CONFIG_MAPS}/a"), &accept)).await;
    assert_eq!(one.headers()["content-type"], PROTOBUF);
    let (kind, message) = open(one.body());
    assert_eq!((kind.as_str(), name(message)), ("ConfigMap", Some(&b"a"[..])));
    let data = field(message, 2).expect("the message has data");
    assert_eq!((field(data, 1), field(data, 2)), (Some(&b"k"[..]), Some(&b"v"[..])));

    let all = server.call(asked(CONFIG_MAPS, &accept)).await;
    assert_eq!(all.headers()["content-type"], PROTOBUF);
    let (kind, message) = open(all.body());
    assert_eq!(kind, "ConfigMapList");
    assert_eq!(name(field(message, 2).expect("the list has an item")), Some(&b"a"[..]));
}

#[rstest]
#[case::json_first("application/json,application/vnd.kubernetes.protobuf", CONFIG_MAPS)]
#[case::table(
    "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json;as=Table;g=meta.k8s.io;v=v1",
    CONFIG_MAPS
)]
#[tokio::test(start_paused = true)]
async fn responses_are_json_if_json_is_preferred_or_protobuf_is_unavailable(#[case] accept: &str, #[case] path: &str) {
    let answer = server().await.call(asked(path, accept)).await;
    assert_eq!(answer.headers()["content-type"], "application/json");
    assert!(serde_json::from_slice::<Value>(answer.body()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn journal_shows_protobuf_responses_as_json() {
    let server = server().await;
    server.call(asked(&format!("{CONFIG_MAPS}/a"), PROTOBUF)).await;
    let last = server.journal().requests().pop().expect("the request was recorded");
    let shown: Value = serde_json::from_slice(&last.answer_bytes()).expect("the text is valid JSON");
    assert_eq!(shown["data"], json!({"k": "v"}));
}

#[rstest]
#[case::whole_objects("application/vnd.kubernetes.protobuf,application/json", "ConfigMap")]
#[case::metadata(
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "PartialObjectMetadata"
)]
#[tokio::test(start_paused = true)]
async fn protobuf_watch_events_are_length_prefixed_frames(#[case] accept: &str, #[case] kind: &str) {
    let server = server().await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=60");
    let Ok(answer) = server.service().oneshot(asked(&path, accept).map(Body::from)).await;
    assert_eq!(answer.headers()["content-type"], format!("{PROTOBUF};stream=watch"));
    let mut frames = answer.into_body().into_data_stream();
    assert_eq!(
        send(&server, "DELETE", &format!("{CONFIG_MAPS}/a"), Value::Null).await,
        200
    );
    for expected in ["ADDED", "DELETED", "BOOKMARK"] {
        let frame = loop {
            let frame = frames
                .next()
                .await
                .expect("the stream continues")
                .expect("the event arrives completely");
            let is_bookmark = frame.windows(8).any(|it| it == b"BOOKMARK");
            // Bookmarks may arrive at any time.
            if is_bookmark == (expected == "BOOKMARK") {
                break frame;
            }
        };
        let (length, event) = frame.split_at(4);
        let length = u32::from_be_bytes(length.try_into().expect("the length has four bytes"));
        assert_eq!(usize::try_from(length), Ok(event.len()));
        assert_eq!(field(event, 1), Some(expected.as_bytes()));
        let object = field(field(event, 2).expect("the event has an object"), 1).expect("the object has bytes");
        let (found, message) = open(object);
        assert_eq!(found, kind);
        if expected != "BOOKMARK" {
            assert_eq!(name(message), Some(&b"a"[..]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn expired_watch_ends_with_a_status_in_protobuf() {
    let server = server().await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=1");
    let answer = server.call(asked(&path, PROTOBUF)).await;
    let event = &answer.body()[4..];
    assert_eq!(field(event, 1), Some(&b"ERROR"[..]));
    let object = field(field(event, 2).expect("the event has an object"), 1).expect("the object has bytes");
    let (kind, message) = open(object);
    assert_eq!((kind.as_str(), field(message, 4)), ("Status", Some(&b"Expired"[..])));
}
