//! The command as a control plane: the folder that `KUBEBUILDER_ASSETS` names, and its programs by the flags that
//! starters of control planes pass.
//!
//! With `DRYDOCK_GO=1` and a `go` on the path, envtest itself starts them; see `tests/envtest`.

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{command, folder};
use rstest::rstest;

/// A folder of assets.
fn assets() -> PathBuf {
    let folder = folder().join("bin");
    let output = command(&["assets", folder.to_str().expect("a plain name")])
        .output()
        .expect("cargo has built the command");
    assert!(output.status.success(), "{output:?}");
    let expected = format!(
        "export KUBEBUILDER_ASSETS={}\n",
        folder.canonicalize().expect("it is there").display()
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    folder
}

/// A program of the folder.
fn program(assets: &Path, name: &str) -> Command {
    let mut command = Command::new(assets.join(format!("{name}{}", std::env::consts::EXE_SUFFIX)));
    command.stdin(Stdio::null());
    command
}

/// A program that runs, until it is dropped.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it is there");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, stdout }
    }

    /// The line that says it is ready.
    fn url(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("stdout is text");
        let url = line.trim_end().strip_prefix("listening on ");
        url.unwrap_or_else(|| panic!("not the line of a server that is ready: {line:?}"))
            .to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to stop.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn assets_are_programs_that_know_their_names() {
    let assets = assets();
    // A second time replaces them.
    let again = command(&["install-assets", assets.to_str().expect("a plain name")]).output();
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
        let help = program(&assets, name).arg("--help").output().expect("it is there");
        assert!(help.status.success());
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        for flag in flags {
            // So envtest looks for a flag.
            let line = help
                .lines()
                .find(|line| line.trim_start().starts_with(&format!("--{flag}")));
            assert!(line.is_some(), "{name} --{flag}:\n{help}");
        }
    }
}

#[test]
fn a_folder_is_never_replaced() {
    let folder = folder().join("bin");
    std::fs::create_dir_all(folder.join("etcd")).expect("the target folder can be written");
    let output = command(&["assets", folder.to_str().expect("a plain name")]).output();
    let output = output.expect("cargo has built the command");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write "));
}

#[cfg(unix)]
#[test]
fn etcd_says_that_it_is_well_and_ends_on_a_signal() {
    // A port that was free a moment ago: etcd is told its port, it does not tell.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let address = free.local_addr().expect("it is bound");
    drop(free);
    let data = folder();
    let mut etcd = Running::start(program(&assets(), "etcd").args([
        &format!("--listen-client-urls=http://{address}"),
        &format!("--advertise-client-urls=http://{address}"),
        "--listen-peer-urls=http://localhost:0",
        &format!("--data-dir={}", data.display()),
        "--unsafe-no-fsync=true",
    ]));
    let mut stream = loop {
        assert!(etcd.child.try_wait().expect("it is our child").is_none(), "it ended");
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(_) => std::thread::yield_now(),
        }
    };
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with(r#"{"health":"true","reason":""}"#), "{answer}");

    let pid = etcd.child.id().to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &pid]).status();
    assert!(sent.expect("unix has kill").success());
    assert_eq!(etcd.child.wait().expect("it is our child").code(), Some(0));
}

#[rstest]
#[case::no_flag_of_it(&["--no-such-flag=1"], "--no-such-flag")]
#[case::a_flag_that_is_not_supported(&["--encryption-provider-config=x"], "--encryption-provider-config")]
#[case::plain_http(&["--insecure-port=8080"], "--insecure-port")]
#[case::another_authorizer(&["--authorization-mode=ABAC"], "--authorization-mode")]
#[case::no_privileges(&["--allow-privileged=false"], "--allow-privileged")]
#[case::two_families(&["--service-cluster-ip-range=10.0.0.0/24,fd00::/108"], "--service-cluster-ip-range")]
#[case::an_admission_plugin_that_stays(&["--disable-admission-plugins=LimitRanger"], "LimitRanger is always on")]
#[case::an_unknown_admission_plugin(&["--enable-admission-plugins=Nothing"], "\"Nothing\"")]
#[case::a_file_that_is_not_there(&["--client-ca-file=/nowhere"], "--client-ca-file /nowhere")]
#[case::a_key_that_is_none(&["--service-account-signing-key-file=Cargo.toml"], "--service-account-signing-key-file")]
fn unsupported_flags_are_refused_by_name(#[case] args: &[&str], #[case] named: &str) {
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

/// The arguments of envtest, and the files it writes beforehand, start a server that has the objects of a real one.
#[test]
fn envtest_starts_it_unchanged() {
    if !has_go("envtest_starts_it_unchanged") {
        return;
    }
    let output = Command::new("go")
        .args(["test", "-count=1", "-timeout=5m", "./..."])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/envtest"))
        .env("KUBEBUILDER_ASSETS", assets())
        .output()
        .expect("it was started before");
    assert!(
        output.status.success(),
        "go test: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_certificate_is_made_and_kept_where_there_is_none() {
    let certificates = folder();
    let args = [
        "--bind-address=127.0.0.1".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--cert-dir={}", certificates.display()),
    ];
    let assets = assets();
    let mut first = Running::start(program(&assets, "kube-apiserver").args(&args));
    assert!(first.url().starts_with("https://127.0.0.1:"));
    let made = std::fs::read(certificates.join("apiserver.crt")).expect("it is written");
    drop(first);
    let mut second = Running::start(program(&assets, "kube-apiserver").args(&args));
    assert!(second.url().starts_with("https://127.0.0.1:"));
    let kept = std::fs::read(certificates.join("apiserver.crt")).expect("it is there");
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
