//! Runs a server as a process: builds it from the options, loads objects, prints its address, and ends it on a signal.

use std::fmt;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fake_apiserver::{ApiServer, ApiServerBuilder, ServeOptions, ServiceAccountKeys, Serving, Worker, load};
use serde_json::{Value, json};

use crate::args::Common;
use crate::interruption::interruption;
use crate::{report, tell};

/// Maximum number of entries in the journal if the control API is disabled, so that the memory of a long-running server
/// does not grow.
const JOURNAL_ENTRIES_UNREAD: usize = 256;

/// Maximum number of entries in the journal if the control API is enabled.
const JOURNAL_ENTRIES: usize = 16_384;

/// Name of the Node that is created if the worker `kubelet` runs and no Node was loaded.
const NODE: &str = "node-0";

/// User name for the token of the control API.
const CONTROL_USER: &str = "fake-apiserver-control";

/// First line of a kubeconfig that this command has written and may therefore replace.
const KUBECONFIG_MARK: &str = "# Written by fake-apiserver, which replaces it at its next start.\n";

/// Time between the two writes that delete a Pod (the deletion timestamp and the removal), similar to the time of a
/// write to etcd.
const REMOVAL_DELAY: Duration = Duration::from_millis(5);

/// A server to be started, with its options.
pub(crate) struct Setup {
    pub(crate) common: Common,
    pub(crate) builder: ApiServerBuilder,
    pub(crate) listen: SocketAddr,
    pub(crate) options: ServeOptions,
    /// Initial objects. They replace existing objects with the same names.
    pub(crate) objects: Vec<Value>,
    /// Set if the server must exit when the process that started it exits.
    pub(crate) exit_with_parent: bool,
}

/// Returns a builder with the common options. Stores the token of the control API in the options.
pub(crate) fn builder(common: &mut Common) -> Result<ApiServerBuilder, String> {
    let mut builder = ApiServer::builder()
        .seed(common.seed.unwrap_or(0))
        .workers(&common.workers.0)
        .kubernetes_version(common.kubernetes_version)
        .history_bytes(common.history_bytes)
        .removal_delay(REMOVAL_DELAY)
        .kubernetes_service(true);
    if common.seed.is_none() {
        builder = builder.revision(first_revision());
        let keys = ServiceAccountKeys::generate().map_err(|err| format!("cannot generate keys for tokens: {err}"))?;
        builder = builder.service_account_keys(keys);
    }
    for (host, address) in &common.webhook_address {
        builder = builder.webhook_address(host, *address);
    }
    if !common.control {
        return Ok(builder.journal_capacity(JOURNAL_ENTRIES_UNREAD).journal_bytes(0));
    }
    let token = match (common.control_token.take(), common.seed) {
        (Some(token), _) => token,
        (None, Some(seed)) => format!("seed-{seed}"),
        (None, None) => fake_apiserver::random_token().map_err(|err| format!("cannot create a token: {err}"))?,
    };
    builder = builder
        .control_api()
        .journal_capacity(JOURNAL_ENTRIES)
        .journal_bytes(common.journal_bytes)
        .token(&token, CONTROL_USER, ["system:masters"]);
    common.control_token = Some(token);
    Ok(builder)
}

/// Refuses a seed if other machines can reach the server, because its keys and tokens can be derived from the seed.
pub(crate) fn check_seed(common: &Common, listen: SocketAddr, remedy: &str) -> Result<(), String> {
    match common.seed {
        Some(_) if !listen.ip().is_loopback() => Err(format!(
            "anyone who can reach {listen} could derive the tokens of --seed: omit --seed, or use {remedy}"
        )),
        Some(_) | None => Ok(()),
    }
}

/// Returns the first revision. It is higher than the last revision of any earlier run, unless that run made more than a
/// thousand writes per second on average. Watches that resume from an earlier run therefore fail with 410, and clients
/// list again.
#[expect(clippy::disallowed_methods, reason = "repeated runs of one server share only this")]
fn first_revision() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_epoch.map_or(0, |it| it.as_secs() * 1000)
}

impl Setup {
    /// Serves until a signal arrives or the parent process ends. Fails with a message to show to the user.
    pub(crate) async fn serve(self) -> Result<(), String> {
        let interrupted = interruption(self.exit_with_parent)?;
        let server = self.builder.start();
        server.load(self.objects).map_err(|err| err.to_string())?;
        fill(&server, &self.common)?;
        let stages = load::read(&self.common.stages).map_err(|err| err.to_string())?;
        let stages = stages.into_iter().map(|it| it.object);
        server.kubelet().stages(stages).map_err(|err| err.to_string())?;
        server.kubelet().send_heartbeats(self.common.node_heartbeats);
        if self.common.workers.0.contains(&Worker::Kubelet) {
            ensure_node(&server).await?;
        }
        let options = self.options.accept_hosts(&self.common.accept_hosts);
        let serving = server.serve_with(self.listen, &options).await;
        let serving = serving.map_err(|err| format!("cannot listen on {}: {err}", self.listen))?;
        let token = self.common.control_token.as_deref();
        if let Some(file) = &self.common.kubeconfig {
            write_kubeconfig(file, &serving, token)?;
        }
        if let Some(token) = token {
            let url = serving.url();
            report(format_args!("control API at {url}/_fake, bearer token {token}"));
            // Browsers do not send the fragment after `#`, so the token does not appear in the logs of servers.
            let shown = percent_encoding::utf8_percent_encode(token, percent_encoding::NON_ALPHANUMERIC);
            report(format_args!("page of the control API: {url}/_fake/#token={shown}"));
        }
        tell(format_args!("listening on {}", serving.url()));

        interrupted.await;
        serving.shutdown().await;
        Ok(())
    }
}

/// Creates a Node, unless one was loaded. The kubelet sets its status.
async fn ensure_node(server: &ApiServer) -> Result<(), String> {
    let nodes = server.list("v1", "Node", "").await;
    if nodes.is_ok_and(|it| !it.is_empty()) {
        return Ok(());
    }
    let labels = json!({"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}});
    server.load([node]).map(drop).map_err(|err| err.to_string())
}

/// Loads the files that the options contain.
fn fill(server: &ApiServer, common: &Common) -> Result<(), String> {
    let definitions = load::read(&common.crd).map_err(|err| err.to_string())?;
    let other = definitions
        .iter()
        .find(|manifest| manifest.object["kind"] != "CustomResourceDefinition");
    if let Some(manifest) = other {
        let kind = &manifest.object["kind"];
        return Err(format!(
            "{}: {kind} is not a CustomResourceDefinition; use --load",
            manifest.place
        ));
    }
    let objects = load::read(&common.load).map_err(|err| err.to_string())?;
    // Objects are loaded one by one, so that an error can contain the file.
    for manifest in definitions.into_iter().chain(objects) {
        let place = manifest.place;
        server
            .load([manifest.object])
            .map_err(|err| format!("{place}: {err}"))?;
    }
    Ok(())
}

/// Writes the kubeconfig, unless the file exists and was not written by this command. Only its owner can read it,
/// because it may contain a key.
fn write_kubeconfig(file: &Path, serving: &Serving, control_token: Option<&str>) -> Result<(), String> {
    let fail = |reason: &dyn fmt::Display| format!("cannot write the kubeconfig {}: {reason}", file.display());
    match std::fs::read(file) {
        Ok(content) if content.is_empty() || content.starts_with(KUBECONFIG_MARK.as_bytes()) => {}
        Ok(_) => return Err(fail(&"the file exists and was not written by fake-apiserver")),
        Err(err) if err.kind() == io::ErrorKind::NotFound => {}
        Err(err) => return Err(fail(&err)),
    }
    let config = match control_token {
        Some(token) => serving.kubeconfig_with_token(CONTROL_USER, token),
        None => serving.kubeconfig(),
    };
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = options.open(file).map_err(|err| fail(&err))?;
    // The mode passed to `open` only applies to new files.
    #[cfg(unix)]
    out.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .map_err(|err| fail(&err))?;
    out.write_all(format!("{KUBECONFIG_MARK}{config}").as_bytes())
        .map_err(|err| fail(&err))
}
