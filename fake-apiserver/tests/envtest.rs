//! The command as a control plane: creates the directory for `KUBEBUILDER_ASSETS`, and runs its programs with the flags
//! that tools pass when they start control planes.
//!
//! With `DRYDOCK_GO=1` and `go` on the path, envtest itself starts the programs, for `tests/envtest` and for the test
//! suites of published operators.

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use common::{command, folder};
use rstest::rstest;
#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Creates a directory with the programs.
fn assets() -> PathBuf {
    let folder = folder().join("bin");
    let output = command(&["assets", folder.to_str().expect("the path is UTF-8")])
        .output()
        .expect("cargo has built the command");
    assert!(output.status.success(), "{output:?}");
    let expected = format!(
        "export KUBEBUILDER_ASSETS={}\n",
        folder.canonicalize().expect("the path exists").display()
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    folder
}

/// Returns the command for a program in the directory.
fn program(assets: &Path, name: &str) -> Command {
    let mut command = Command::new(assets.join(format!("{name}{}", std::env::consts::EXE_SUFFIX)));
    command.stdin(Stdio::null());
    command
}

/// A running program; dropping it stops the process.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program exists");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Self { child, stdout }
    }

    /// Reads the line that reports readiness, and returns its URL.
    fn url(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("stdout is text");
        let url = line.trim_end().strip_prefix("listening on ");
        url.unwrap_or_else(|| panic!("the line does not report a ready server: {line:?}"))
            .to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn program_name_determines_the_role() {
    let assets = assets();
    // Another installation replaces the files.
    let again = command(&["install-assets", assets.to_str().expect("the path is UTF-8")]).output();
    assert!(again.expect("cargo has built the command").status.success());
    for (name, flags) in [
        (
            "kube-apiserver",
            &[
                "secure-port",
                "cert-dir",
                "etcd-servers",
                "insecure-port",
                "service-account-issuer",
            ][..],
        ),
        ("etcd", &["unsafe-no-fsync", "listen-client-urls", "data-dir"][..]),
    ] {
        let help = program(&assets, name)
            .arg("--help")
            .output()
            .expect("the program exists");
        assert!(help.status.success());
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        for flag in flags {
            // envtest uses this check to detect a flag.
            let line = help
                .lines()
                .find(|line| line.trim_start().starts_with(&format!("--{flag}")));
            assert!(line.is_some(), "{name} --{flag}:\n{help}");
        }
    }
}

#[test]
fn directory_is_never_replaced_by_a_link() {
    let folder = folder().join("bin");
    std::fs::create_dir_all(folder.join("etcd")).expect("the target directory is writable");
    let output = command(&["assets", folder.to_str().expect("the path is UTF-8")]).output();
    let output = output.expect("cargo has built the command");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write "));
}

#[cfg(unix)]
#[test]
fn etcd_reports_health_and_exits_on_a_signal() {
    // The port was free a moment ago. etcd cannot report its port, so the caller must choose one.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = free.local_addr().expect("the listener is bound");
    drop(free);
    let data = folder();
    let mut etcd = Running::start(program(&assets(), "etcd").args([
        &format!("--listen-client-urls=http://{address}"),
        &format!("--advertise-client-urls=http://{address}"),
        "--listen-peer-urls=http://localhost:0",
        "-data-dir",
        &data.display().to_string(),
        &format!("-wal-dir={}", data.display()),
        "--initial-cluster",
        "default=http://localhost:0",
        "--unsafe-no-fsync=true",
    ]));
    let mut stream = loop {
        assert!(
            etcd.child
                .try_wait()
                .expect("the state of the process is readable")
                .is_none(),
            "etcd has exited too early"
        );
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(_) => std::thread::yield_now(),
        }
    };
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("the connection is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with(r#"{"health":"true","reason":""}"#), "{answer}");

    kill_process(Pid::from_child(&etcd.child), Signal::TERM).expect("the process runs");
    assert_eq!(etcd.child.wait().expect("the process ends").code(), Some(0));
}

/// envtest discards the output of the programs that it starts, and reports a timeout when they end.
#[cfg(target_os = "linux")]
#[rstest]
#[case::unknown_flag("--no-such-flag=1", "unknown flag: --no-such-flag")]
#[case::invalid_value("--runtime-config=nothing.io/v1=true", "unknown api groups nothing.io/v1")]
fn startup_error_is_reported_even_if_the_parent_discards_output(#[case] flag: &str, #[case] why: &str) {
    let program = program(&assets(), "kube-apiserver");
    let script = format!(
        "(exec >/dev/null 2>/dev/null; exec {} {flag} --secure-port=0 --cert-dir={}); exit 0",
        program.get_program().display(),
        folder().display(),
    );
    // The inner shell is replaced by the program, so the outer shell is the program's parent.
    let parent = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("a shell is installed");
    let stderr = String::from_utf8_lossy(&parent.stderr);
    assert!(stderr.contains(why), "{stderr}");
}

#[rstest]
#[case::unknown_flag(&["--no-such-flag=1"], "unknown flag: --no-such-flag")]
#[case::unsupported_flag(&["--encryption-provider-config=x"],
    "--encryption-provider-config is not supported: objects are kept in memory")]
#[case::unsupported_value(&["--profiling"], "--profiling=true is not supported, only false")]
#[case::plain_http(&["--insecure-port=8080"], "--insecure-port")]
#[case::seeded_keys_on_all_addresses(&["--bind-address=0.0.0.0", "--seed=7"], "--bind-address=127.0.0.1")]
#[case::unsupported_authorizer(&["--authorization-mode=ABAC"], "--authorization-mode")]
#[case::allow_privileged_false(&["--allow-privileged=false"], "--allow-privileged")]
#[case::two_address_families(&["--service-cluster-ip-range=10.0.0.0/24,fd00::/108"], "--service-cluster-ip-range")]
#[case::unknown_plugin_to_disable(&["--disable-admission-plugins=Nothing"], "\"Nothing\" is unknown")]
#[case::unknown_admission_plugin(&["--enable-admission-plugins=Nothing"], "\"Nothing\"")]
#[case::unsupported_admission_plugin(
    &["--enable-admission-plugins=OwnerReferencesPermissionEnforcement,NodeRestriction"],
    "admission plugin \"NodeRestriction\" is not supported")]
#[case::unknown_gate(&["--feature-gates=Nothing=true"], "unrecognized feature gate: Nothing")]
#[case::gate_without_a_value(&["--feature-gates=WatchList"], "missing bool value for WatchList")]
#[case::gate_with_an_invalid_value(&["--feature-gates=WatchList=yes"],
    "invalid value of WatchList=yes, err: strconv.ParseBool: parsing \"yes\": invalid syntax")]
#[case::locked_gate(&["--feature-gates=APIServerTracing=false"],
    "cannot set feature gate APIServerTracing to false, feature is locked to true")]
#[case::unsupported_gate(&["--feature-gates=WatchList=true,CBORServingAndStorage=true"],
    "feature gate CBORServingAndStorage cannot be turned on: this server only supports its default, false")]
#[case::removed_gate(&["--kubernetes-version=1.37", "--feature-gates=AnyVolumeDataSource=true"],
    "unrecognized feature gate: AnyVolumeDataSource")]
#[case::gate_that_cannot_be_disabled(&["--kubernetes-version=1.37", "--feature-gates=HPAScaleToZero=false"],
    "feature gate HPAScaleToZero cannot be turned off: this server only supports its default, true")]
#[case::gate_of_a_later_version(&["--feature-gates=HPAGeneration=true"], "unrecognized feature gate: HPAGeneration")]
#[case::all_gates(&["--feature-gates=AllBeta=false"], "AllBeta=false is not supported")]
#[case::api_of_another_version(&["--runtime-config=scheduling.k8s.io/v1alpha1=true"],
    "--runtime-config: group version scheduling.k8s.io/v1alpha1 that has not been registered")]
#[case::unknown_api(&["--runtime-config=resource.k8s.io/v1alpha9=true"],
    "--runtime-config: group version resource.k8s.io/v1alpha9 that has not been registered")]
#[case::retired_api(&["--retired-apis=extensions/v1beta1"], "--retired-apis: extensions/v1beta1 is not one of the supported retired APIs")]
#[case::unknown_group(&["--runtime-config=nothing.io/v1=true"], "unknown api groups nothing.io/v1")]
#[case::priority_and_fairness(&["--enable-priority-and-fairness=true"], "--enable-priority-and-fairness")]
#[case::proxy_headers_without_a_ca(&["--requestheader-username-headers=X-Remote-User"],
    "--requestheader-client-ca-file")]
#[case::invalid_audit_policy(&["--audit-policy-file=Cargo.toml", "--audit-log-path=-"],
    "--audit-policy-file Cargo.toml")]
#[case::unsupported_audit_mode(&["--audit-log-mode=batch"], "--audit-log-mode")]
#[case::batched_audit_log(&["--audit-log-batch-max-size=30"], "--audit-log-batch-max-size is not supported")]
#[case::missing_file(&["--client-ca-file=/nowhere"], "--client-ca-file /nowhere")]
#[case::invalid_signing_key(&["--service-account-signing-key-file=Cargo.toml"], "--service-account-signing-key-file")]
fn error_for_an_unsupported_flag_contains_its_name(#[case] args: &[&str], #[case] named: &str) {
    let certificates = format!("--cert-dir={}", folder().display());
    let mut command = command(&["kube-apiserver", &certificates, "--secure-port=0"]);
    let output = command
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo has built the command");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(named), "{text}");
}

/// With envtest's arguments and files, the server starts and has the initial objects of kube-apiserver.
#[test]
fn unmodified_envtest_starts_the_server() {
    if !has_go("unmodified_envtest_starts_the_server") {
        return;
    }
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/envtest");
    go_test(&module, "./...");
}

/// The test suites of published operators, which use envtest, run unmodified in their module directories.
#[rstest]
#[case::jobset_webhooks("sigs.k8s.io/jobset@v0.10.1", "./test/integration/webhook/...")]
#[case::jobset_controllers("sigs.k8s.io/jobset@v0.10.1", "./test/integration/controller/...")]
#[case::lws_webhooks("sigs.k8s.io/lws@v0.8.0", "./test/integration/webhooks/...")]
fn test_suites_of_published_operators_pass_unchanged(#[case] module: &str, #[case] suites: &str) {
    if !has_go("test_suites_of_published_operators_pass_unchanged") {
        return;
    }
    let output = Command::new("go")
        .args(["mod", "download", "-json", module])
        .output()
        .expect("Go is installed");
    let downloaded: Value = serde_json::from_slice(&output.stdout).expect("go prints JSON");
    let folder = downloaded["Dir"].as_str();
    let folder = folder.unwrap_or_else(|| panic!("{module} cannot be fetched: {output:?}"));
    go_test(Path::new(folder), suites);
}

/// Runs tests of a module with the programs.
fn go_test(module: &Path, packages: &str) {
    let output = Command::new("go")
        .args(["test", "-count=1", "-timeout=20m", packages])
        .current_dir(module)
        .env("KUBEBUILDER_ASSETS", assets())
        .output()
        .expect("Go is installed");
    assert!(
        output.status.success(),
        "go test {packages}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Sends a GET over HTTPS with these headers. The server's authority is the last certificate in the file.
fn get(url: &str, certificates: &Path, path: &str, headers: &str) -> String {
    exchange(url, certificates, &format!("GET {path}"), headers, "")
}

/// Sends a request with this method and path, and returns the response.
fn exchange(url: &str, certificates: &Path, request: &str, headers: &str, body: &str) -> String {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificates)
        .expect("the path exists")
        .collect();
    let mut roots = RootCertStore::empty();
    let authority = chain
        .expect("the text is PEM")
        .pop()
        .expect("the chain has a certificate");
    roots.add(authority).expect("the certificate is a valid trust anchor");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the crypto provider supports the TLS versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").expect("the address is valid");
    let connection = ClientConnection::new(Arc::new(config), name).expect("the TLS options are consistent");
    let address = url.strip_prefix("https://").expect("the URL is HTTPS");
    let mut stream = StreamOwned::new(
        connection,
        TcpStream::connect(address).expect("the server accepts connections"),
    );
    let length = body.len();
    let request = format!(
        "{request} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("the connection is open");
    let mut answer = String::new();
    // Fails if the connection ends without `close_notify`.
    stream
        .read_to_string(&mut answer)
        .expect("the response is UTF-8 and ends cleanly");
    answer
}

#[test]
fn flags_for_gates_versions_limits_and_audit_are_accepted() {
    let folder = folder();
    let (policy, log) = (folder.join("policy.yaml"), folder.join("audit.log"));
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n";
    std::fs::write(&policy, text).expect("the target directory is writable");
    let tokens = folder.join("tokens.csv");
    std::fs::write(&tokens, "s3cret,jane,1\n").expect("the target directory is writable");
    let args = [
        "--bind-address=127.0.0.1".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--cert-dir={}", folder.display()),
        "--feature-gates=WatchList=true,AllAlpha=true".to_owned(),
        "--runtime-config=api/all=true,api/legacy=false,batch/v1=false".to_owned(),
        "--retired-apis=policy/v1beta1".to_owned(),
        "--storage-media-type=".to_owned(),
        "--disable-admission-plugins=PodSecurity,LimitRanger".to_owned(),
        "--max-requests-inflight=3000".to_owned(),
        "--max-mutating-requests-inflight=1000".to_owned(),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
        format!("--token-auth-file={}", tokens.display()),
    ];
    let mut server = Running::start(program(&assets(), "kube-apiserver").args(&args));
    let url = server.url();
    let certificates = folder.join("apiserver.crt");
    let jane = "Authorization: Bearer s3cret\r\n";
    assert!(get(&url, &certificates, "/apis/batch/v1", jane).starts_with("HTTP/1.1 404"));
    assert!(get(&url, &certificates, "/metrics", jane).contains("\nkubernetes_build_info{"));
    let log = std::fs::read_to_string(&log).expect("the file exists");
    let events: Vec<_> = log.lines().collect();
    assert_eq!(events.len(), 4, "{log}");
    assert!(events[3].contains(r#""requestURI":"/metrics","verb":"get""#), "{log}");
    assert!(events[3].contains(r#""sourceIPs":["127.0.0.1"]"#), "{log}");
}

#[test]
fn token_file_determines_the_name_uid_and_groups_of_users() {
    let folder = folder();
    let tokens = folder.join("tokens.csv");
    std::fs::write(&tokens, "other,john,7\ns3cret,jane,u-1,\"a,b\"\n").expect("the target directory is writable");
    let args = [
        "--bind-address=127.0.0.1".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--cert-dir={}", folder.display()),
        format!("--token-auth-file={}", tokens.display()),
    ];
    let mut server = Running::start(program(&assets(), "kube-apiserver").args(&args));
    let review = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    let answer = exchange(
        &server.url(),
        &folder.join("apiserver.crt"),
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews",
        "Authorization: Bearer s3cret\r\nContent-Type: application/json\r\n",
        review,
    );
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
    for field in [
        r#""username":"jane""#,
        r#""uid":"u-1""#,
        r#""groups":["a","b","system:authenticated"]"#,
    ] {
        assert!(answer.contains(field), "{answer}");
    }
}

/// As in kube-apiserver, AlwaysAllow disables anonymous users.
#[rstest]
#[case::always_allow("--authorization-mode=AlwaysAllow", "", "401 Unauthorized")]
#[case::rbac_and_always_allow("--authorization-mode=RBAC,AlwaysAllow", "", "401 Unauthorized")]
#[case::rbac("--authorization-mode=RBAC", "", "403 Forbidden")]
#[case::authenticated_user("--authorization-mode=AlwaysAllow", "Authorization: Bearer s3cret\r\n", "200 OK")]
fn anonymous_requests_are_refused_despite_always_allow(
    #[case] mode: &str,
    #[case] headers: &str,
    #[case] status: &str,
) {
    let folder = folder();
    let tokens = folder.join("tokens.csv");
    std::fs::write(&tokens, "s3cret,jane,1\n").expect("the target directory is writable");
    let args = [
        "--bind-address=127.0.0.1".to_owned(),
        "--secure-port=0".to_owned(),
        "--anonymous-auth=true".to_owned(),
        mode.to_owned(),
        format!("--cert-dir={}", folder.display()),
        format!("--token-auth-file={}", tokens.display()),
    ];
    let mut server = Running::start(program(&assets(), "kube-apiserver").args(&args));
    let answer = get(&server.url(), &folder.join("apiserver.crt"), "/api/v1/secrets", headers);
    assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
}

#[test]
fn missing_certificate_is_created_and_kept() {
    let certificates = folder();
    let args = [
        "--bind-address=127.0.0.1".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--cert-dir={}", certificates.display()),
    ];
    let assets = assets();
    let mut first = Running::start(program(&assets, "kube-apiserver").args(&args));
    assert!(first.url().starts_with("https://127.0.0.1:"));
    let made = std::fs::read(certificates.join("apiserver.crt")).expect("the file exists");
    drop(first);
    let mut second = Running::start(program(&assets, "kube-apiserver").args(&args));
    assert!(second.url().starts_with("https://127.0.0.1:"));
    let kept = std::fs::read(certificates.join("apiserver.crt")).expect("the path exists");
    assert_eq!(made, kept);
}

#[expect(clippy::print_stderr, reason = "a test that is left out has to say so")]
fn has_go(test: &str) -> bool {
    let asked = std::env::var_os("DRYDOCK_GO").is_some_and(|it| it == "1");
    let found = asked && Command::new("go").arg("version").output().is_ok();
    if !found {
        eprintln!("skipped: {test} fetches Go modules, so it runs with DRYDOCK_GO=1 and a go on the path");
    }
    found
}
