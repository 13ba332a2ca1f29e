//! Sends requests like clients, and reads the code and the body of the responses.

use bytes::Bytes;
use fake_apiserver::ApiServer;
use http::{Request, Response};
use serde_json::{Value, json};

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Builds a request with a JSON body, or without a body if it is null.
pub(crate) fn request(method: &str, path: &str, body: &Value) -> Request<Bytes> {
    let request = Request::builder().method(method).uri(path);
    let (request, body) = match body {
        Value::Null => (request, String::new()),
        body => (request.header("content-type", "application/json"), body.to_string()),
    };
    request.body(body.into()).expect("the request is valid")
}

pub(crate) async fn send(server: &ApiServer, method: &str, path: &str, body: Value) -> u16 {
    server.call(request(method, path, &body)).await.status().as_u16()
}

pub(crate) async fn get(server: &ApiServer, path: &str) -> (u16, String) {
    read(server.call(request("GET", path, &Value::Null)).await)
}

/// Returns the code and the body of a response.
pub(crate) fn read(answer: Response<Bytes>) -> (u16, String) {
    let code = answer.status().as_u16();
    (
        code,
        String::from_utf8(answer.into_body().into()).expect("the text is UTF-8"),
    )
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}
