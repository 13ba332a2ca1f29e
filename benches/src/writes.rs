//! Measures expensive writes: strategic merge patches, fields with many owners, CustomResourceDefinitions.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::measure::cpu_time;
use crate::objects;
use crate::requests::{Bench, typed};

/// Number of field managers of an object with several managers.
const MANAGERS: usize = 5;

impl Bench {
    /// Measures a strategic merge patch that changes a container's image and an annotation of a Pod.
    pub fn strategic_pod(&mut self, count: usize) -> Duration {
        let pod = objects::pod("patched");
        self.server.load([pod]).expect("the objects are loaded");
        let patches: Vec<_> = (0..count)
            .map(|at| {
                Patch::Strategic(json!({
                    "metadata": {"annotations": {"at": at.to_string()}},
                    "spec": {"containers": [{"name": "nginx", "image": format!("registry.example.com/shop/web:{at}")}]},
                }))
            })
            .collect();
        self.patch_pod("patched", &PatchParams::default(), &patches)
    }

    /// Measures server-side apply of a Pod to which five managers have each applied fields.
    pub fn apply_pod_of_five(&mut self, count: usize) -> Duration {
        let apply = |manager: usize, count: usize| -> Vec<_> {
            let patch = |at: usize| {
                let mut pod = objects::pod("shared");
                pod["metadata"]["annotations"] = json!({format!("of-{manager}"): at.to_string()});
                Patch::Apply(pod)
            };
            (0..count).map(patch).collect()
        };
        for manager in 1..MANAGERS {
            let params = PatchParams::apply(&format!("bench-{manager}"));
            self.patch_pod("shared", &params, &apply(manager, 1));
        }
        self.patch_pod("shared", &PatchParams::apply("bench"), &apply(0, count))
    }

    fn patch_pod(&mut self, name: &str, params: &PatchParams, patches: &[Patch<Value>]) -> Duration {
        self.runtime.block_on(async {
            let start = cpu_time();
            for patch in patches {
                self.pods.patch(name, params, patch).await.expect("the patch succeeds");
            }
            cpu_time() - start
        })
    }

    /// Measures creating a CustomResourceDefinition with a schema of about 300 lines and ten CEL rules.
    pub fn create_definitions(&mut self, count: usize) -> Duration {
        // Clients spawn a task for their buffer, so they must be created within the runtime.
        let guard = self.runtime.enter();
        let definitions: Api<CustomResourceDefinition> = Api::all(self.server.client());
        drop(guard);
        let definition = typed::<CustomResourceDefinition>(objects::definition("measures", "Measure"));
        self.runtime.block_on(async {
            let mut spent = Duration::ZERO;
            for _ in 0..count {
                let start = cpu_time();
                definitions
                    .create(&PostParams::default(), &definition)
                    .await
                    .expect("the create succeeds");
                spent += cpu_time() - start;
                let name = definition.metadata.name.as_deref().unwrap_or_default();
                let _ = definitions
                    .delete(name, &DeleteParams::default())
                    .await
                    .expect("the delete succeeds");
            }
            spent
        })
    }
}
