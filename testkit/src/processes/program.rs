//! The programs of simulated Pods: HTTP responses, or a command.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use axum_core::body::Body;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fake_apiserver::{ApiServer, ServeOptions, Serving};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use rustix::process::Signal;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::time::{Instant, sleep};

use super::address::BODY_BYTES_MAX;
use super::output::read_output;
use super::reaper::{Reaper, guarded, kill};
use super::stub::{Answer, Pod, Stub, read_script};
use crate::hooks::Hooks;
use crate::lock::lock;

/// Time within which a command must listen on its port.
const LISTENS_WITHIN: Duration = Duration::from_secs(20);
/// Pause between attempts to connect to a command.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// Starts the programs of simulated Pods in a run.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) server: ApiServer,
    pub(super) hooks: Weak<dyn Hooks>,
    pub(super) reaper: Reaper,
    /// Directory of the scenario.
    pub(super) directory: PathBuf,
    /// Directory that all commands of the run share.
    pub(super) common: PathBuf,
    /// State values of Pods, by uid and name.
    pub(super) values: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
}

/// A program that listens on its port. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) address: SocketAddr,
    _server: Server,
}

/// Keeps a program running.
#[derive(Debug)]
enum Server {
    Http { _serving: Serving },
    Command { _running: Running },
}

/// A running command, which is killed when this is dropped.
#[derive(Debug)]
struct Running {
    group: i32,
    reaper: Reaper,
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        kill(self.group, Signal::KILL);
        self.reaper.remove(self.group);
    }
}

impl Host {
    /// Removes the state of Pods for which `exists` returns `false`.
    pub(super) fn forget_all_but(&self, exists: impl Fn(&str) -> bool) {
        lock(&self.values).retain(|uid, _| exists(uid));
    }

    /// Adds a line to the output that the report contains.
    pub(super) fn wrote(&self, pod: &Pod, stub: &Stub, line: String) {
        if let Some(hooks) = self.hooks.upgrade() {
            hooks.controller_wrote(&name_of(pod, stub), line);
        }
    }

    /// Starts the program of a Pod.
    pub(super) async fn start(self: &Arc<Self>, stub: &Stub, pod: &Pod) -> Result<Listening, String> {
        match stub.command.is_empty() {
            true => self.start_http(stub, pod).await,
            false => self.start_command(stub, pod).await,
        }
    }

    /// Starts a server for the HTTP responses of a stub.
    async fn start_http(self: &Arc<Self>, stub: &Stub, pod: &Pod) -> Result<Listening, String> {
        let options = match &stub.tls {
            None => ServeOptions::http(),
            Some(secret) => {
                let [certificate, key] = self.certificate(&pod.namespace, secret).await?;
                ServeOptions::tls().certificate(certificate, key)
            }
        };
        let host = Arc::downgrade(self);
        let (stub, pod) = (Arc::new(stub.clone()), Arc::new(pod.clone()));
        let service = tower::service_fn(move |request| {
            let (host, stub, pod) = (host.upgrade(), Arc::clone(&stub), Arc::clone(&pod));
            async move {
                match host {
                    Some(host) => host.answer(&stub, &pod, request).await,
                    None => Err(io::ErrorKind::ConnectionReset.into()),
                }
            }
        });
        let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let serving = options.serve(loopback, service).await.map_err(|err| err.to_string())?;
        Ok(Listening {
            address: serving.addr(),
            _server: Server::Http { _serving: serving },
        })
    }

    /// Reads a certificate and its key from a Secret.
    async fn certificate(&self, namespace: &str, name: &str) -> Result<[Vec<u8>; 2], String> {
        let secret = self.server.get("v1", "Secret", namespace, name).await;
        let secret = secret.map_err(|_| format!("the Secret {namespace}/{name} does not exist"))?;
        let read = |key: &str| {
            let text = secret["data"][key].as_str().unwrap_or_default();
            let data = BASE64_STANDARD.decode(text).unwrap_or_default();
            match data.is_empty() {
                true => Err(format!("the Secret {namespace}/{name} does not have the key {key}")),
                false => Ok(data),
            }
        };
        Ok([read("tls.crt")?, read("tls.key")?])
    }

    /// Handles a request to a Pod.
    async fn answer(&self, stub: &Stub, pod: &Pod, request: Request<Body>) -> io::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = body.map_err(io::Error::other)?.to_bytes();
        let (method, path) = (parts.method.as_str(), parts.uri.path());
        let found = {
            let mut all = lock(&self.values);
            let values = all.entry(pod.uid.clone()).or_default();
            let answer = stub.http.iter().find(|it| it.applies(method, path, &body, values));
            if let Some(answer) = answer {
                values.extend(answer.set.clone());
            }
            answer.map(|it| (it, values.clone()))
        };
        let Some((answer, values)) = found else {
            let text = format!("no response is configured for {method} {path}");
            self.wrote(pod, stub, text.clone());
            let mut response = Response::new(Body::from(text));
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Ok(response);
        };
        if let Some(script) = &answer.script {
            let read = read_script(&json!({"uid": pod.uid}), script);
            let (pods, script) = read.map_err(io::Error::other)?;
            self.server.kubelet().script(pods, script);
        }
        let text = answer.filled(pod.places(), |key| values.get(key).cloned());
        respond(answer, text.map_err(io::Error::other)?).map_err(io::Error::other)
    }

    /// Starts the command of a stub, and waits until it listens.
    async fn start_command(&self, stub: &Stub, pod: &Pod) -> Result<Listening, String> {
        let mut places = pod.places();
        for (place, directory) in [("SCENARIO", &self.directory), ("STATE", &self.common)] {
            places.values.insert(place.to_owned(), directory.display().to_string());
        }
        let port = places.fill("${PORT}")?;
        let words = stub.command.iter().map(|it| places.fill(it));
        let words = words.collect::<Result<Vec<_>, _>>()?;
        let mut command = guarded();
        command.args(words).current_dir(&self.directory);
        for (variable, value) in &stub.env {
            command.env(variable, places.fill(value)?);
        }
        let failed = |err: io::Error| err.to_string();
        let mut child = command.spawn().map_err(failed)?;
        let group = self.reaper.begin(&mut child).await;
        let (hooks, name) = (Weak::clone(&self.hooks), name_of(pod, stub));
        // The task ends when the command exits.
        drop(read_output(&mut child, move |line| {
            if let Some(hooks) = hooks.upgrade() {
                hooks.controller_wrote(&name, line);
            }
        }));
        let mut running = Running {
            group,
            reaper: self.reaper.clone(),
            child,
        };
        let port = port.parse().map_err(|_| format!("{port} is not a port"))?;
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let began = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            if let Some(status) = running.child.try_wait().map_err(failed)? {
                return Err(format!("the program ended before it listened on port {port}: {status}"));
            }
            if began.elapsed() > LISTENS_WITHIN {
                return Err(format!(
                    "the program did not listen on port {port} within {LISTENS_WITHIN:?}"
                ));
            }
            sleep(TRY_AGAIN).await;
        }
        Ok(Listening {
            address,
            _server: Server::Command { _running: running },
        })
    }
}

/// Returns the name of a program in the output of a run.
fn name_of(pod: &Pod, stub: &Stub) -> String {
    format!("stub {}:{}", pod.name, stub.port)
}

fn respond(answer: &Answer, body: String) -> Result<Response<Body>, http::Error> {
    let mut response = Response::builder().status(answer.status);
    let has_type = answer.headers.keys().any(|it| it.eq_ignore_ascii_case("content-type"));
    if answer.json.is_some() && !has_type {
        response = response.header(http::header::CONTENT_TYPE, "application/json");
    }
    for (name, value) in &answer.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(body))
}
