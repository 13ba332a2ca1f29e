//! stub
use crate::api::object::Object;
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
pub(crate) fn is_served(_crd: &Object) -> bool {
    true
}
pub(crate) fn reconcile(_crd: &Object, _others: &[Object], _now: &str) -> Option<Object> {
    None
}
pub(crate) fn decode(
    _version: &super::definition::CustomVersion,
    _object: &mut Object,
    _raw: &[u8],
    _validation: crate::api::options::FieldValidation,
) -> Result<Vec<String>, crate::api::status::Status> {
    Ok(Vec::new())
}
