//! The life of a server as a process: made as it was asked for, filled, announced, and ended by a signal.

use std::fmt;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fake_apiserver::{ApiServer, ApiServerBuilder, ServeOptions, ServiceAccountKeys, Serving, load};
use serde_json::Value;

use crate::args::Common;
use crate::{report, tell};

/// Entries of a journal without readers: a server that runs for days must not grow by it.
const JOURNAL_ENTRIES_UNREAD: usize = 256;

/// Entries of the journal where the control API shows it.
const JOURNAL_ENTRIES: usize = 16_384;

/// The user of the control API's token.
const CONTROL_USER: &str = "fake-apiserver-control";

/// The first line of a kubeconfig this command wrote, and may therefore replace.
const KUBECONFIG_MARK: &str = "# Written by fake-apiserver, which replaces it at its next start.\n";

/// Time between the mark and the removal of a Pod: about that of a write to etcd.
const REMOVAL_DELAY: Duration = Duration::from_millis(5);

/// Time between two looks for the process that started the server.
#[cfg(unix)]
const PARENT_INTERVAL: Duration = Duration::from_millis(500);

/// A server that is ready to be started.
pub(crate) struct Setup {
    pub(crate) common: Common,
    pub(crate) builder: ApiServerBuilder,
    pub(crate) listen: SocketAddr,
    pub(crate) options: ServeOptions,
    /// Objects that are there from the start, in place of those of their names.
    pub(crate) objects: Vec<Value>,
    /// Ends when the process that started it ends.
    pub(crate) exit_with_parent: bool,
}

/// A builder with all that the common options say. The token of the control API is in them afterwards.
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
        let keys = ServiceAccountKeys::generate().map_err(|err| format!("cannot make keys for tokens: {err}"))?;
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
        (None, None) => fake_apiserver::random_token().map_err(|err| format!("cannot make a token: {err}"))?,
    };
    builder = builder
        .control_api()
        .journal_capacity(JOURNAL_ENTRIES)
        .journal_bytes(common.journal_bytes)
        .token(&token, CONTROL_USER, ["system:masters"]);
    common.control_token = Some(token);
    Ok(builder)
}

/// Refuses a seed where others reach the server: whoever guesses it has its keys and tokens.
pub(crate) fn check_seed(common: &Common, listen: SocketAddr, remedy: &str) -> Result<(), String> {
    match common.seed {
        Some(_) if !listen.ip().is_loopback() => Err(format!(
            "anyone who reaches {listen} could derive the tokens of --seed: omit it, or use {remedy}"
        )),
        Some(_) | None => Ok(()),
    }
}

/// The revision to begin with: further than an earlier run has come, unless that wrote a thousand times a second all
/// its life. Watchers of the earlier run get 410, and list again.
#[expect(
    clippy::disallowed_methods,
    reason = "runs of one server in a row have nothing else in common"
)]
fn first_revision() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_epoch.map_or(0, |it| it.as_secs() * 1000)
}

impl Setup {
    /// Serves until a signal comes or its parent ends; the error is for people.
    pub(crate) async fn serve(self) -> Result<(), String> {
        let interrupted =
            interruption(self.exit_with_parent).map_err(|err| format!("cannot listen for signals: {err}"))?;
        let server = self.builder.start();
        server.load(self.objects).map_err(|err| err.to_string())?;
        fill(&server, &self.common)?;
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
            // The fragment behind `#` is not sent: no server, log or other page sees the token.
            let shown = percent_encoding::utf8_percent_encode(token, percent_encoding::NON_ALPHANUMERIC);
            report(format_args!("its page: {url}/_fake/#token={shown}"));
        }
        tell(format_args!("listening on {}", serving.url()));

        interrupted.await;
        serving.shutdown().await;
        Ok(())
    }
}

/// Loads what the command line names.
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
    // One by one, so that an error can name the file.
    for manifest in definitions.into_iter().chain(objects) {
        let place = manifest.place;
        server
            .load([manifest.object])
            .map_err(|err| format!("{place}: {err}"))?;
    }
    Ok(())
}

/// Writes the kubeconfig, but never over a foreign one. It may hold a key, so only its owner may read it.
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
    // The mode counts for new files only.
    #[cfg(unix)]
    out.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .map_err(|err| fail(&err))?;
    out.write_all(format!("{KUBECONFIG_MARK}{config}").as_bytes())
        .map_err(|err| fail(&err))
}

/// Waits for a signal, or for the end of the process that started this one. Signals are caught from the call on, not
/// from the first poll.
#[cfg(unix)]
pub(crate) fn interruption(exit_with_parent: bool) -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let parent = exit_with_parent.then(std::os::unix::process::parent_id);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = end_of(parent) => {}
        }
    })
}

/// Waits for the end of the process that started this one. Its children go to another process then.
#[cfg(unix)]
async fn end_of(parent: Option<u32>) {
    let Some(parent) = parent else {
        return std::future::pending().await;
    };
    while std::os::unix::process::parent_id() == parent {
        tokio::time::sleep(PARENT_INTERVAL).await;
    }
}

#[cfg(not(unix))]
pub(crate) fn interruption(_exit_with_parent: bool) -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}
