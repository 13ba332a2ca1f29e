//! Executes the steps of users: makes their changes to the cluster, and waits for their conditions.

use std::path::Path;
use std::time::Duration;

use fake_apiserver::load;
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::objects::{Access, PATCHES, Refused, named};
use super::scenario::Scenario;
use super::shell::Shell;
use super::step::{Edit, Patch, Step, Wait};
use super::webhooks::Trust;
use crate::hooks::Hooks;
use crate::test_cluster::TestCluster;

/// Interval at which the condition of a step is checked.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Maximum number of times an edit is retried because another client wrote the object in between.
const EDITS: usize = 10;

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

impl Step {
    /// Executes the action of the step. Fails with a message for the report.
    pub(crate) async fn act(
        &self,
        scenario: &Scenario,
        cluster: &TestCluster,
        trust: &Trust,
        shell: Shell<'_>,
    ) -> Result<(), String> {
        let access = Access {
            cluster,
            user: self.user.as_deref(),
            trust,
        };
        let changed = self.change(scenario, access).await;
        match (changed, &self.refused) {
            (Err(why), Some(refused)) if why.contains(refused) => {}
            (Err(why), Some(refused)) => {
                return Err(format!("the error does not contain {refused:?}: {why}"));
            }
            (Ok(()), Some(refused)) => {
                return Err(format!(
                    "the request was accepted instead of being refused with {refused:?}"
                ));
            }
            (changed, None) => changed?,
        }
        if let Some(line) = &self.run {
            shell.run(line, None).await?;
        }
        if let Some(time) = self.pause {
            sleep(time.0).await;
        }
        Ok(())
    }

    /// Makes the change that a step specifies.
    async fn change(&self, scenario: &Scenario, access: Access<'_>) -> Result<(), String> {
        let named = |object: &str| named(access.cluster, object, self.namespace());
        for path in self.apply.iter().flat_map(|it| it.all()) {
            let manifests = load::read([scenario.path(path)]).map_err(|err| err.to_string())?;
            for manifest in manifests {
                let applied = access.apply(manifest.object, self.namespace());
                applied.await.map_err(|err| format!("{}: {err}", manifest.place))?;
            }
        }
        if let Some(object) = &self.object {
            access.apply(object.clone(), self.namespace()).await?;
        }
        if let Some(patch) = &self.patch {
            self.patch(patch, access).await?;
        }
        if let Some(edit) = &self.edit {
            self.edit(edit, &scenario.directory, access).await?;
        }
        if let Some(scale) = &self.scale {
            let named = named(&scale.object)?;
            let subresource = match named.info.subresource("scale") {
                Some(_) => "/scale",
                None => "",
            };
            let body = json!({"spec": {"replicas": scale.replicas}});
            let path = named.path(subresource);
            access.send(Method::PATCH, &path, MERGE, Some(&body)).await?;
        }
        for object in self.delete.iter().flat_map(|it| it.all()) {
            let path = named(object)?.path("");
            match access.send(Method::DELETE, &path, "application/json", None).await {
                Ok(_) | Err(Refused { code: 404, .. }) => {}
                Err(refused) => return Err(refused.into()),
            }
        }
        Ok(())
    }

    async fn patch(&self, patch: &Patch, access: Access<'_>) -> Result<(), String> {
        let named = named(access.cluster, &patch.object, self.namespace())?;
        let subresource = patch.subresource.as_ref().map(|it| format!("/{it}"));
        let path = named.path(&subresource.unwrap_or_default());
        if let Some(fields) = &patch.apply {
            let mut object = named.identity();
            merge(&mut object, fields);
            return Ok(access.apply_at(&path, PATCHES, &object).await?);
        }
        let json = patch.json.as_ref().map(|it| Value::from(it.clone()));
        let bodies = [
            (MERGE, &patch.merge),
            (JSON_PATCH, &json),
            (STRATEGIC, &patch.strategic),
        ];
        for (kind, body) in bodies {
            if let Some(body) = body {
                access.send(Method::PATCH, &path, kind, Some(body)).await?;
            }
        }
        Ok(())
    }

    /// Reads an object, changes it and writes it. Repeats this if another client writes the object in between.
    async fn edit(&self, edit: &Edit, directory: &Path, access: Access<'_>) -> Result<(), String> {
        let named = named(access.cluster, &edit.object, self.namespace())?;
        let path = named.path("");
        let mut tries = EDITS;
        loop {
            let read = named.read(access.cluster).await;
            let object = read.ok_or_else(|| format!("{} does not exist", edit.object))?;
            let version = &object["metadata"]["resourceVersion"];
            let sent = match (&edit.run, &edit.json) {
                (Some(line), _) => {
                    let mut changed = edited(directory, line, &object).await?;
                    changed["metadata"]["resourceVersion"] = version.clone();
                    access
                        .send(Method::PUT, &path, "application/json", Some(&changed))
                        .await
                }
                (None, operations) => {
                    let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
                    let body: Value = [test]
                        .into_iter()
                        .chain(operations.clone().unwrap_or_default())
                        .collect();
                    access.send(Method::PATCH, &path, JSON_PATCH, Some(&body)).await
                }
            };
            let Err(refused) = sent else { return Ok(()) };
            let now = named.read(access.cluster).await.unwrap_or_default();
            if now["metadata"]["resourceVersion"] == *version || tries == 0 {
                return Err(refused.into());
            }
            tries -= 1;
        }
    }

    /// Waits until the objects that the step deletes no longer exist, like `kubectl delete`, for at most `time`. If the
    /// next step may begin before, `hooks` contains the hooks of the exploration. Returns `false` if the wait ended
    /// because the next step must begin during a fault.
    pub(crate) async fn wait_until_deleted(
        &self,
        time: Duration,
        cluster: &TestCluster,
        hooks: Option<&dyn Hooks>,
    ) -> bool {
        let began = Instant::now();
        let objects = self.delete.iter().flat_map(|it| it.all());
        for object in objects.filter(|_| self.refused.is_none()) {
            // If the resource were unknown, the step would already have failed.
            let Ok(named) = named(cluster, object, self.namespace()) else {
                continue;
            };
            while began.elapsed() < time && named.read(cluster).await.is_some() {
                if hooks.is_some_and(|it| it.goes_on_during_faults(began)) {
                    return false;
                }
                sleep(LOOK_AGAIN).await;
            }
        }
        true
    }

    /// Returns `true` if the step can begin while the objects that `deletion` deletes still exist. The deleted
    /// objects must be in a namespace, because the step may require other objects, such as namespaces. The step must
    /// not be a command, and must not refer to any of their names.
    pub(crate) fn can_precede_end_of(&self, deletion: &Self, scenario: &Scenario, cluster: &TestCluster) -> bool {
        let deleted: Vec<&String> = deletion.delete.iter().flat_map(|it| it.all()).collect();
        let is_namespaced = |it: &&String| {
            let named = named(cluster, it, deletion.namespace());
            named.is_ok_and(|it| it.info.is_namespaced())
        };
        if self.run.is_some() || !deleted.iter().all(is_namespaced) {
            return false;
        }
        let name = |it: &String| it.split_once('/').map_or_else(String::new, |it| it.1.to_owned());
        let paths = self.apply.iter().flat_map(|it| it.all());
        // A file that cannot be read fails its step.
        let applied = paths.flat_map(|it| load::read([scenario.path(it)]).unwrap_or_default());
        let objects = applied.map(|it| it.object).chain(self.object.clone());
        let names = objects.map(|it| it["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        let names: Vec<String> = names.chain(self.references().map(name)).collect();
        !deleted.into_iter().any(|it| names.contains(&name(it)))
    }

    /// Waits for the condition of the step. After a fault the wait may take longer, which is recorded. Fails with a
    /// message for the report.
    pub(crate) async fn wait_for(&self, wait: &Wait, cluster: &TestCluster, hooks: &dyn Hooks) -> Result<(), String> {
        let began = Instant::now();
        let limit = wait.timeout.0;
        let awaited = wait.awaited()?;
        loop {
            let held = match named(cluster, &wait.object, self.namespace()) {
                Ok(named) => awaited.holds(&wait.object, named.read(cluster).await.as_ref()),
                Err(unknown) => Err(unknown),
            };
            let waited = began.elapsed();
            let Err(why) = held else {
                if waited > limit {
                    hooks.test_waited(waited);
                }
                return Ok(());
            };
            if hooks.goes_on_during_faults(began) {
                return Ok(());
            }
            let bound = hooks.faults_end().map_or(limit, |_| limit * 3 / 2);
            if waited >= bound {
                return Err(format!("after {bound:?} {why}"));
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}

/// Merges fields into an object.
fn merge(object: &mut Value, fields: &Value) {
    match (object, fields) {
        (Value::Object(object), Value::Object(fields)) => {
            for (name, field) in fields {
                merge(object.entry(name).or_insert(Value::Null), field);
            }
        }
        (object, field) => *object = field.clone(),
    }
}

/// Passes an object to a command on standard input, and reads the changed object from its output.
async fn edited(directory: &Path, line: &str, object: &Value) -> Result<Value, String> {
    let shell = Shell {
        directory,
        kubeconfig: None,
        resolver: None,
    };
    let output = shell.run(line, Some(format!("{object:#}"))).await?;
    let read = load::from_text(&output).map_err(|err| format!("the output of `{line}`: {err}"))?;
    match <[load::Manifest; 1]>::try_from(read) {
        Ok([manifest]) => Ok(manifest.object),
        Err(read) => Err(format!(
            "the output of `{line}` has {} objects instead of one",
            read.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::other_object("pods/a", "patch: {object: configmaps/b, merge: {}}", true)]
    #[case::same_name("pods/a", "object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", false)]
    #[case::wait_for_the_deletion(
        "pods/a",
        "scale: {object: deployments/b, replicas: 1}, wait: {object: pods/a}",
        false
    )]
    #[case::command("pods/a", "run: ls", false)]
    #[case::namespace("namespaces/a", "patch: {object: configmaps/b, merge: {}}", false)]
    #[tokio::test(start_paused = true)]
    async fn step_can_begin_before_the_end_of_a_deletion_of_other_objects(
        #[case] deleted: &str,
        #[case] next: &str,
        #[case] expected: bool,
    ) {
        let yaml = format!("controllers: []\nsteps: [{{delete: {deleted}}}, {{{next}}}]\n");
        let scenario: Scenario = serde_saphyr::from_str(&yaml).expect("the scenario is valid");
        let cluster = TestCluster::start();
        let [deletion, step] = [0, 1].map(|at| &scenario.steps[at].value);
        assert_eq!(step.can_precede_end_of(deletion, &scenario, &cluster), expected);
    }
}
