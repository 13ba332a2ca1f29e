//! ResourceSlices.

use super::strategy::{FieldLabels, Strategy};
use crate::api::object::Object;
use crate::registry::types::access::text;

/// The strategy of ResourceSlices.
#[derive(Debug)]
pub(crate) struct ResourceSlice;

impl Strategy for ResourceSlice {
    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn field_labels(&self) -> FieldLabels {
        FieldLabels::These {
            labels: &["spec.nodeName", "spec.driver"],
            namespace: false,
            aliases: &[],
            refusal: "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {}",
        }
    }

    fn field_values(&self, object: &Object) -> Vec<(&'static str, String)> {
        let value = |label: &'static str| (label, text(object, label).to_owned());
        vec![value("spec.nodeName"), value("spec.driver")]
    }
}
