//! A server on a port, used by kubectl.
//!
//! `cargo run --example kubectl`, or with `KUBECTL=path/to/kubectl` if it is not in the PATH.

use std::error::Error;
use std::process::{Command, Stdio};

use fake_apiserver::{ApiServer, Serving, load};

const PRICES: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: prices, namespace: default}
data: {apples: '3'}
";

/// The kubectl commands, one per line.
const COMMANDS: [&str; 6] = [
    "get namespaces",
    "get configmaps prices -o yaml",
    "label configmap prices team=front",
    "patch configmap prices --type merge --patch {\"data\":{\"pears\":\"4\"}}",
    "get configmaps --show-labels",
    "delete configmap prices",
];

fn main() -> Result<(), Box<dyn Error>> {
    // The server runs on the runtime's own thread; this thread waits for kubectl.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let server = ApiServer::start();
    server.load(load::from_text(PRICES)?.into_iter().map(|manifest| manifest.object))?;
    let serving =
        runtime.block_on(async { server.serve("127.0.0.1:0".parse().expect("the address is valid")).await })?;

    println!("listening on {}; from another terminal, while it runs:", serving.url());
    println!("  kubectl --server {} get all --all-namespaces\n", serving.url());
    let kubectl = std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".into());
    if !is_there(&kubectl) {
        println!("there is no {kubectl} to show it with; set KUBECTL to one, or start a server that stays:");
        println!("  cargo run -p fake-apiserver -- --kubeconfig fake.kubeconfig");
        return Ok(());
    }
    for arguments in COMMANDS {
        run(&kubectl, &serving, arguments)?;
    }
    runtime.block_on(serving.shutdown());
    println!("what the server was asked:\n{}", server.journal().tail(8));
    Ok(())
}

fn is_there(kubectl: &str) -> bool {
    let mut command = Command::new(kubectl);
    command
        .args(["version", "--client"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn run(kubectl: &str, serving: &Serving, arguments: &str) -> Result<(), Box<dyn Error>> {
    println!("$ kubectl {arguments}");
    let mut command = Command::new(kubectl);
    // kubectl must not use a kubeconfig of this machine.
    command
        .env("KUBECONFIG", "")
        .args(["--server", &serving.url()])
        .args(arguments.split(' '));
    let status = command.status()?;
    println!();
    if status.success() {
        Ok(())
    } else {
        Err(format!("kubectl {arguments}: {status}").into())
    }
}
