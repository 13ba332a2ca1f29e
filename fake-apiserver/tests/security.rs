//! Attacks on the command's port that must fail: by a page in a browser, by a user without permissions, or by a client
//! that sends nothing.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::{Server, command, folder};
use rstest::rstest;

/// Sends a request with these headers; returns the status and the body of the response.
fn ask(server: &Server, request: &str, headers: &[&str], body: &str) -> (u16, String) {
    let mut stream =
        TcpStream::connect(server.url.trim_start_matches("http://")).expect("the server accepts connections");
    let mut head = format!("{request} HTTP/1.1\r\nConnection: close\r\n");
    for header in headers {
        head += &format!("{header}\r\n");
    }
    if !body.is_empty() {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    stream
        .write_all(format!("{head}\r\n{body}").as_bytes())
        .expect("the connection is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the response is UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("the response has a head");
    let code = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    (code.expect("the head has a status"), body.to_owned())
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
const JSON: &str = "Content-Type: application/json";

/// A binding that makes every user an administrator.
const ESCALATION: &str = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding",
    "metadata":{"name":"x"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},
    "subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:unauthenticated"}]}"#;

#[rstest]
#[case::secrets_without_credentials("deny", "GET /_fake/world", "", 401)]
#[case::secrets_as_anonymous("allow", "GET /_fake/world", "", 403)]
#[case::permissions_as_anonymous("allow", "POST /_fake/objects", ESCALATION, 403)]
#[case::permissions_without_credentials("deny", "POST /_fake/objects", ESCALATION, 401)]
#[case::faults_as_anonymous("allow", "POST /_fake/faults", r#"{"effect":"conflict"}"#, 403)]
#[case::list_of_operations("deny", "GET /_fake", "", 401)]
fn control_api_refuses_anonymous_and_ordinary_users(
    #[case] anonymous: &str,
    #[case] request: &str,
    #[case] body: &str,
    #[case] code: u16,
) {
    let args = ["--control", "--authorization", "rbac", "--anonymous", anonymous];
    let server = Server::start(&[&args[..], &["--token", "s3cret=jane:devs"]].concat());
    assert_eq!(ask(&server, request, &["Host: localhost", JSON], body).0, code);
    let jane = ["Host: localhost", JSON, "Authorization: Bearer s3cret"];
    assert_eq!(
        ask(&server, request, &jane, body).0,
        403,
        "roles do not grant access to the control API"
    );
    let unknown = ["Host: localhost", JSON, "Authorization: Bearer x"];
    assert_eq!(ask(&server, request, &unknown, body).0, 401);
}

#[test]
fn kubeconfig_contains_a_separate_token_for_the_control_api() {
    let file = folder().join("config");
    let path = file.to_str().expect("the path is UTF-8");
    let args = [
        "--control",
        "--authorization",
        "rbac",
        "--anonymous",
        "deny",
        "--kubeconfig",
        path,
    ];
    let server = Server::start(&args);
    let config = std::fs::read_to_string(&file).expect("the kubeconfig is written before the server is ready");
    let token = config
        .split("token: \"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("the kubeconfig has a token");
    assert_eq!(token.len(), 32, "{token}");
    let bearer = format!("Authorization: Bearer {token}");
    assert_eq!(
        ask(&server, "GET /_fake/world", &["Host: localhost", &bearer], "").0,
        200
    );
    let impersonating = ["Host: localhost", &bearer, "Impersonate-User: jane"];
    assert_eq!(ask(&server, "GET /_fake/world", &impersonating, "").0, 403);

    let named = Server::start(&[&args[..5], &["--control-token", "mine"]].concat());
    let bearer = ["Host: localhost", "Authorization: Bearer mine"];
    assert_eq!(ask(&named, "GET /_fake/world", &bearer, "").0, 200);
}

#[rstest]
#[case::plain_text("Content-Type: text/plain")]
#[case::url_encoded_form("Content-Type: application/x-www-form-urlencoded")]
#[case::no_content_type("X-Nothing: 1")]
fn control_api_requires_a_json_content_type(#[case] header: &str) {
    let server = Server::start(&["--control"]);
    let fault = r#"{"effect":"conflict"}"#;
    let refused = ask(&server, "POST /_fake/faults", &["Host: localhost", header], fault);
    assert_eq!(refused.0, 415, "{refused:?}");
    let taken = ask(&server, "POST /_fake/faults", &["Host: localhost", JSON], fault);
    assert_eq!(taken.0, 200, "{taken:?}");
}

#[rstest]
#[case::another_origin(&["Host: localhost", "Origin: http://evil.example"], 403)]
#[case::null_origin(&["Host: localhost", "Origin: null"], 403)]
#[case::another_port(&["Host: localhost:8001", "Origin: http://localhost:3000"], 403)]
#[case::another_origin_with_a_token(&["Host: localhost", "Origin: http://evil.example", "Authorization: Bearer x"],
    201)]
#[case::origin_of_the_server(&["Host: localhost:8001", "Origin: http://localhost:8001"], 201)]
#[case::two_origins(&["Host: localhost:8001", "Origin: http://localhost:8001", "Origin: http://evil.example"], 403)]
#[case::two_host_headers(&["Host: localhost", "Host: evil.example"], 403)]
#[case::host_name_that_is_not_ascii(&["Host: évil.example"], 403)]
#[case::script_of_another_site(&["Host: localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: script"], 403)]
#[case::fetch_from_another_port(&["Host: localhost", "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"], 403)]
#[case::frame_on_another_site(
    &["Host: localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"],
    403
)]
#[case::foreign_host_name(&["Host: evil.example"], 403)]
#[case::host_name_with_the_same_prefix(&["Host: localhost.evil.example"], 403)]
#[case::address_of_another_host(&["Host: 192.0.2.7"], 403)]
#[case::configured_host_name(&["Host: api.test:8001"], 201)]
#[case::address_of_the_server(&["Host: 127.0.0.1:8001"], 201)]
fn pages_of_other_origins_can_neither_read_nor_write(#[case] headers: &[&str], #[case] code: u16) {
    let server = Server::start(&["--control", "--accept-hosts", "api.test"]);
    let written = ask(&server, &format!("POST {MAPS}"), &[headers, &[JSON]].concat(), MAP);
    assert_eq!(written.0, code, "{written:?}");
    let read = if code == 201 { 200 } else { code };
    for path in ["/api/v1/secrets", "/openapi/v2", "/healthz", "/_fake/world", "/nothing"] {
        let expected = if (path, read) == ("/nothing", 200) { 404 } else { read };
        assert_eq!(ask(&server, &format!("GET {path}"), headers, "").0, expected, "{path}");
    }
}

#[rstest]
#[case::link("document", "GET /_fake/", 200)]
#[case::form("document", "POST /_fake/snapshot", 403)]
#[case::frame("iframe", "GET /_fake/", 403)]
fn cross_site_link_may_open_the_page_but_not_send_requests(
    #[case] into: &str,
    #[case] request: &str,
    #[case] code: u16,
) {
    let server = Server::start(&["--control"]);
    let into = format!("Sec-Fetch-Dest: {into}");
    let headers = [
        "Host: localhost",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Mode: navigate",
        &into,
    ];
    assert_eq!(ask(&server, request, &headers, "").0, code);
}

#[rstest]
#[case::post("POST", MAPS)]
#[case::put("PUT", "/api/v1/namespaces/default/configmaps/a")]
fn body_without_content_type_from_a_browser_is_refused(#[case] method: &str, #[case] path: &str) {
    let server = Server::start(&[]);
    for mark in [
        "Origin: http://localhost",
        "Sec-Fetch-Site: none",
        "User-Agent: Mozilla/5.0",
        "Referer: http://x/",
    ] {
        let refused = ask(&server, &format!("{method} {path}"), &["Host: localhost", mark], MAP);
        assert_eq!(refused.0, 415, "{mark}: {refused:?}");
    }
    // The Python client omits the content type, which kube-apiserver permits.
    let taken = ask(&server, &format!("POST {MAPS}"), &["Host: localhost"], MAP);
    assert_eq!(taken.0, 201, "{taken:?}");
    let form = "Content-Type: text/plain";
    assert_eq!(
        ask(&server, &format!("POST {MAPS}"), &["Host: localhost", form], MAP).0,
        415
    );
}

#[cfg(unix)]
#[test]
fn kubeconfig_is_only_readable_by_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;

    let file = folder().join("config");
    // Use an existing file that is readable by everyone.
    std::fs::write(&file, "").expect("the directory exists");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("the file is owned by this user");
    let _server = Server::start(&["--tls", "--kubeconfig", file.to_str().expect("the path is UTF-8")]);
    let mode = std::fs::metadata(&file).expect("the file exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Returns a token for the ServiceAccount `default` of a server with these options.
fn account_token(args: &[&str]) -> String {
    let server = Server::start(args);
    let account = r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let headers = ["Host: localhost", JSON];
    assert_eq!(ask(&server, &format!("POST {accounts}"), &headers, account).0, 201);
    let request = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"}"#;
    let (code, body) = ask(&server, &format!("POST {accounts}/default/token"), &headers, request);
    assert_eq!(code, 201, "{body}");
    let body: serde_json::Value = serde_json::from_str(&body).expect("the text is valid JSON");
    body["status"]["token"]
        .as_str()
        .expect("the token is a string")
        .to_owned()
}

#[test]
fn tokens_of_another_run_are_refused_without_a_seed() {
    let rbac = ["--authorization", "rbac"];
    for (args, code) in [(&[][..], 401), (&["--seed", "7"][..], 403)] {
        let token = account_token(args);
        let server = Server::start(&[&rbac[..], args].concat());
        let account = r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#;
        let accounts = "POST /api/v1/namespaces/default/serviceaccounts";
        assert_eq!(ask(&server, accounts, &["Host: localhost", JSON], account).0, 201);
        let bearer = format!("Authorization: Bearer {token}");
        let (found, body) = ask(&server, "GET /api/v1/nodes", &["Host: localhost", &bearer], "");
        assert_eq!(found, code, "{args:?}: {body}");
    }
}

/// Credentials can be required even with AlwaysAllow.
#[test]
fn credentials_can_be_required_without_authorization() {
    let server = Server::start(&["--control", "--anonymous", "deny", "--token", "s3cret=jane"]);
    let (jane, unknown) = ("Authorization: Bearer s3cret", "Authorization: Bearer x");
    for (headers, code) in [
        (&["Host: localhost"][..], 401),
        (&["Host: localhost", unknown], 401),
        (&["Host: localhost", jane], 200),
    ] {
        assert_eq!(ask(&server, "GET /api/v1/secrets", headers, "").0, code, "{headers:?}");
    }
    assert_eq!(ask(&server, "GET /_fake/world", &["Host: localhost"], "").0, 401);
    assert_eq!(ask(&server, "GET /_fake/world", &["Host: localhost", jane], "").0, 403);
}

#[rstest]
#[case::no_authorization(&["--listen", "0.0.0.0:0"], false)]
#[case::rbac_with_an_anonymous_admin(&["--listen", "0.0.0.0:0", "--authorization", "rbac"], false)]
#[case::anonymous_without_authorization(&["--listen", "0.0.0.0:0", "--anonymous", "allow"], false)]
#[case::keys_from_a_seed(&["--listen", "0.0.0.0:0", "--anonymous", "deny", "--seed", "7"], false)]
#[case::keys_from_a_seed_on_request(
    &["--listen", "0.0.0.0:0", "--anonymous", "deny", "--seed", "7", "--insecure-listen"],
    true
)]
#[case::no_authorization_on_request(&["--listen", "0.0.0.0:0", "--insecure-listen"], true)]
#[case::anonymous_denied(&["--listen", "0.0.0.0:0", "--anonymous", "deny"], true)]
#[case::rbac_with_anonymous_without_permissions(
    &["--listen", "0.0.0.0:0", "--authorization", "rbac", "--anonymous", "allow"], true)]
fn insecure_servers_only_listen_on_loopback_by_default(#[case] args: &[&str], #[case] starts: bool) {
    if starts {
        let server = Server::start(args);
        assert!(server.url.starts_with("http://127.0.0.1:"), "{}", server.url);
        return;
    }
    let output = command(args).output().expect("cargo has built the command");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--insecure-listen"), "{text}");
}
