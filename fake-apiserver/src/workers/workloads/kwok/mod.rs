//! Stages of KWOK: manifests that describe the life cycle of Pods and Nodes and replace the default behaviour. This
//! module does not depend on the kubelet.

mod stage;
mod manifest;
mod query;
mod template;
mod scan;
mod render;
mod functions;
mod play;
#[cfg(test)]
mod tests;

pub use manifest::StageError;
pub(crate) use play::{Addresses, Pending, sync};
pub(crate) use stage::Stage;

/// Reads manifests of Stages. Stages without a selector do not apply to any object and are omitted.
pub(crate) fn read(manifests: impl IntoIterator<Item = serde_json::Value>) -> Result<Vec<Stage>, StageError> {
    let mut stages = Vec::new();
    for manifest in manifests {
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (manifest["apiVersion"].as_str(), manifest["kind"].as_str());
        if (version, kind) != (Some("kwok.x-k8s.io/v1alpha1"), Some("Stage")) {
            let why = "expected apiVersion kwok.x-k8s.io/v1alpha1 and kind Stage";
            return Err(StageError::new(&name, why));
        }
        let manifest = serde_json::from_value(manifest).map_err(|why| StageError::new(&name, why.to_string()))?;
        stages.extend(Stage::read(manifest)?);
    }
    Ok(stages)
}
