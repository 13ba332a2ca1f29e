//! Executes one run of a scenario: starts the controllers, and executes the steps of users.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fake_apiserver::{ServeOptions, Serving};

use super::address::Address;
use super::election::Election;
use super::files::{Folder, RunFolder};
use super::fill::{FILES, Places};
use super::network::Network;
use super::process::{Launch, Process};
use super::reaper::Reaper;
use super::scenario::{Controller, Ready, Scenario};
use super::shell::Shell;
use super::step::Step;
use super::stubs::{Settings, Stubs};
use super::usage::Usage;
use super::webhooks::{self, Served, Trust};
use crate::explore::parts::WallClock;
use crate::hooks::Hooks;
use crate::lock::lock;
use crate::test_cluster::TestCluster;

/// Data that the runs of an exploration share.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) scenario: Scenario,
    pub(crate) folder: Arc<Folder>,
    pub(crate) reaper: Reaper,
    pub(crate) usage: Arc<Usage>,
    /// Tokens of the controllers, in the order of the controllers.
    pub(crate) tokens: Vec<String>,
    /// The certificate of webhooks.
    pub(crate) trust: Trust,
    /// Descriptions of the last run's processes, which are printed if the run is kept alive.
    pub(crate) kept: Mutex<Vec<String>>,
}

/// Ends processes and removes files when a run ends, for any reason.
struct Ending {
    processes: Vec<Process>,
    folder: RunFolder,
    stubs: Option<Stubs>,
    _admin: Option<Serving>,
    usage: Arc<Usage>,
    began: WallClock,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.processes.iter().for_each(Process::end);
        self.stubs.iter().for_each(Stubs::end);
        self.usage.end(self.began.elapsed());
    }
}

impl Runner {
    /// Runs the scenario once. Panics with the error message if the run cannot be prepared or a step fails.
    pub(crate) async fn run(&self, cluster: &TestCluster) {
        let Some(hooks) = &cluster.hooks else {
            unreachable!("a scenario with processes only runs in an exploration")
        };
        let ending = match self.start(cluster, hooks).await {
            Ok(ending) => ending,
            // The report shows the panic message.
            Err(why) => resume_unwind(Box::new(why)),
        };
        // The controllers outlive the steps, because the run waits for the end state.
        lock(&cluster.kept).push(Box::new(ending));
    }

    async fn start(&self, cluster: &TestCluster, hooks: &Arc<dyn Hooks>) -> Result<Ending, String> {
        self.usage.begin();
        let network = self.scenario.network.enter().await?;
        let io = |err: std::io::Error| format!("cannot prepare a run: {err}");
        let folder = self.folder.run().map_err(io)?;
        let mut ending = Ending {
            processes: Vec::new(),
            folder,
            stubs: None,
            _admin: None,
            usage: Arc::clone(&self.usage),
            began: WallClock::start(),
        };
        if let Some(network) = network {
            let settings = Settings {
                stubs: &self.scenario.cluster.stubs,
                server: cluster.server(),
                hooks,
                reaper: &self.reaper,
                directory: self.scenario.directory.clone(),
                common: ending.folder.path.join("state"),
            };
            ending.stubs = Some(Stubs::serve(network, &settings)?);
        }
        let [first, further] = self.processes(cluster, hooks, &mut ending).await?;
        let kubeconfig = self.admin(cluster, &mut ending).await.map_err(io)?;
        // The first replicas lead in every run, so a plan that names a replica has the same meaning in every run.
        for started in [first, further] {
            for process in &started {
                let late = hooks.controller_starts(process.name(), Arc::new(process.clone()));
                debug_assert!(late.is_none(), "controllers only start late in virtual time");
                crate::hooks::Restart::restart(process);
            }
            for process in &started {
                process.wait_until_ready().await?;
            }
        }
        *lock(&self.kept) = ending.processes.iter().map(Process::described).collect();
        if self.scenario.network == Network::Private {
            let how = "enter the network of the run with nsenter --net --target PROCESS";
            lock(&self.kept).push(how.to_owned());
        }
        // The controllers must be ready and settled before the first step.
        cluster.settle_at(&format!("{}: the start", self.scenario.file)).await;
        self.steps(cluster, hooks, kubeconfig.as_deref()).await?;
        Ok(ending)
    }

    /// Prepares the processes: the first replica of each controller, and all further replicas.
    async fn processes(
        &self,
        cluster: &TestCluster,
        hooks: &Arc<dyn Hooks>,
        ending: &mut Ending,
    ) -> Result<[Vec<Process>; 2], String> {
        let (mut served, election) = (Served::default(), Arc::default());
        let (mut first, mut further) = (Vec::new(), Vec::new());
        for (controller, token) in self.scenario.controllers.iter().zip(&self.tokens) {
            for replica in 0..controller.replicas {
                let name = match controller.replicas {
                    1 => controller.name.clone(),
                    _ => format!("{}-{replica}", controller.name),
                };
                let (launch, port) = self
                    .launch(name, controller, token, &ending.folder, (cluster, &election))
                    .await?;
                if let Some(port) = port {
                    served.add(cluster.server(), controller, &launch.name, port);
                }
                let process = Process::new(launch, cluster.server(), hooks);
                ending.processes.push(process.clone());
                if replica == 0 { &mut first } else { &mut further }.push(process);
            }
        }
        served.gate(cluster.server(), hooks);
        Ok([first, further])
    }

    /// Executes the steps of users. Fails with a message for the report.
    async fn steps(
        &self,
        cluster: &TestCluster,
        hooks: &Arc<dyn Hooks>,
        kubeconfig: Option<&Path>,
    ) -> Result<(), String> {
        let (steps, within) = (&self.scenario.steps, self.scenario.within.0);
        let resolver = self.scenario.resolver_in(self.folder.path());
        let shell = Shell {
            directory: &self.scenario.directory,
            kubeconfig,
            resolver: resolver.as_deref(),
        };
        // The last deletion, if its wait ended early because the next step has to begin during a fault.
        let mut open: Option<&Step> = None;
        for (at, step) in steps.iter().enumerate() {
            let place = format!("{}:{}", self.scenario.file, step.referenced.line());
            let step = &step.value;
            let title = step.title();
            if !hooks.step_begins(&title, &place) {
                continue;
            }
            if step.is_change() {
                // The plan may have skipped the step that could begin before the end of the deletion.
                let deletion = open.take_if(|it| !step.can_precede_end_of(it, &self.scenario, cluster));
                if let Some(deletion) = deletion {
                    deletion.wait_until_deleted(within, cluster, None).await;
                }
                hooks.test_goes_on(&place);
            }
            let failed = |why: String| format!("{place}: the step \"{title}\" failed: {why}");
            let acted = step.act(&self.scenario, cluster, &self.trust, shell);
            acted.await.map_err(failed)?;
            if let Some(deletion) = open.take_if(|_| step.is_change()) {
                deletion.wait_until_deleted(within, cluster, None).await;
            }
            let next = steps[at + 1..].iter().map(|it| &it.value).find(|it| it.is_change());
            let may_begin = |it: &Step| it.can_precede_end_of(step, &self.scenario, cluster);
            let goes_on = step.delete.is_some() && next.is_some_and(may_begin);
            let early = goes_on.then_some(&**hooks);
            if !step.wait_until_deleted(within, cluster, early).await {
                open = Some(step);
            }
            self.wait_after(step, cluster, hooks, &place).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Waits for the condition of a step, or until the cluster has settled.
    async fn wait_after(
        &self,
        step: &Step,
        cluster: &TestCluster,
        hooks: &Arc<dyn Hooks>,
        place: &str,
    ) -> Result<(), String> {
        match &step.wait {
            Some(wait) => {
                hooks.test_waits();
                step.wait_for(wait, cluster, &**hooks).await
            }
            None if step.pause.is_some() => Ok(()),
            None => {
                cluster.settle_at(place).await;
                Ok(())
            }
        }
    }

    /// Prepares a controller: its address, its files, and its command. Also returns its port for webhooks.
    async fn launch(
        &self,
        name: String,
        controller: &Controller,
        token: &str,
        folder: &RunFolder,
        (cluster, election): (&TestCluster, &Arc<Election>),
    ) -> Result<(Launch, Option<u16>), String> {
        let io = |err: std::io::Error| format!("cannot prepare {name}: {err}");
        let address = Address::listen(cluster.server(), &name, election, controller.insecure)
            .await
            .map_err(io)?;
        let files = folder
            .write(&name, &address, token, &controller.namespace)
            .map_err(io)?;
        let file = |file: &str| files.join(file).display().to_string();
        let mut places = Places::of_process([
            name.clone(),
            address.url(),
            token.to_owned(),
            file("kubeconfig"),
            file("ca.crt"),
            self.scenario.directory.display().to_string(),
        ]);
        let resolver = self.resolver(controller, &files).map_err(io)?;
        if let Some(port) = controller.webhook_port {
            places.values.insert(webhooks::PORT.to_owned(), port.to_string());
        }
        let temporary = files.join("tmp");
        let certificates = self.trust.write(&temporary).map_err(io)?;
        if let Some(directory) = &certificates {
            let directory = directory.display().to_string();
            places.values.insert(webhooks::CERTIFICATES.to_owned(), directory);
        }
        let wrong = |err: String| format!("{name}: {err}");
        self.copy_files(controller, &files, &mut places).map_err(wrong)?;
        let words = controller.command.iter().map(|it| places.fill(it));
        let command = words.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let mut env = std::collections::BTreeMap::new();
        if controller.in_cluster {
            env.insert("KUBERNETES_SERVICE_HOST".to_owned(), "127.0.0.1".to_owned());
            env.insert("KUBERNETES_SERVICE_PORT".to_owned(), address.port().to_string());
        } else {
            env.insert("KUBECONFIG".to_owned(), file("kubeconfig"));
        }
        if certificates.is_some() && controller.serves_webhooks() {
            // controller-runtime looks for certificates below this directory.
            env.insert("TMPDIR".to_owned(), temporary.display().to_string());
        }
        for (variable, value) in &controller.env {
            let value = places.fill(value).map_err(wrong)?;
            env.insert(variable.clone(), value);
        }
        let ready = controller.ready.as_ref().map(|it| filled(it, &mut places));
        let ready = ready.transpose().map_err(wrong)?;
        let port = places.values.get(webhooks::PORT).and_then(|it| it.parse().ok());
        let launch = Launch {
            command,
            env,
            ready,
            cwd: self.scenario.path(controller.cwd.clone().unwrap_or_default()),
            files,
            resolver,
            address,
            reaper: self.reaper.clone(),
            usage: Arc::clone(&self.usage),
            releases: controller.release_leases.unwrap_or(true),
            controller: controller.clone(),
            name,
        };
        Ok((launch, port))
    }

    /// Copies the files of the scenario that contain placeholders into the directory of the controller's files.
    fn copy_files(&self, controller: &Controller, files: &Path, places: &mut Places) -> Result<(), String> {
        if controller.files.is_empty() {
            return Ok(());
        }
        let directory = files.join("files");
        std::fs::create_dir_all(&directory).map_err(|err| format!("cannot prepare files: {err}"))?;
        let shown = directory.display().to_string();
        places.values.insert(FILES.to_owned(), shown);
        for file in &controller.files {
            let copied = places.copy(
                &self.scenario.path(file),
                &directory.join(file.file_name().unwrap_or_default()),
            );
            copied.map_err(|err| format!("cannot copy {}: {err}", file.display()))?;
        }
        Ok(())
    }

    /// Writes the configuration of the resolver in a private network.
    fn resolver(&self, controller: &Controller, files: &Path) -> std::io::Result<Option<PathBuf>> {
        if self.scenario.network == Network::Host {
            return Ok(None);
        }
        let file = files.join("resolv.conf");
        std::fs::write(&file, Stubs::resolver(&controller.namespace))?;
        Ok(Some(file))
    }

    /// Serves the API with the permissions of an administrator if a step runs a command or the run is kept alive.
    /// Returns the kubeconfig.
    async fn admin(&self, cluster: &TestCluster, ending: &mut Ending) -> std::io::Result<Option<PathBuf>> {
        let is_needed = self.scenario.steps.iter().any(|it| it.value.run.is_some());
        if !is_needed && !self.folder.is_kept() {
            return Ok(None);
        }
        let loopback = std::net::SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), 0);
        let serving = cluster.server().serve_with(loopback, &ServeOptions::tls()).await?;
        let path = ending.folder.path.join("admin.kubeconfig");
        std::fs::write(&path, serving.kubeconfig())?;
        ending._admin = Some(serving);
        Ok(Some(path))
    }
}

/// Returns the readiness condition with its placeholders filled in.
fn filled(ready: &Ready, places: &mut Places) -> Result<Ready, String> {
    let url = ready.url.as_ref().map(|it| places.fill(it));
    Ok(Ready {
        url: url.transpose()?,
        log: ready.log.clone(),
    })
}
