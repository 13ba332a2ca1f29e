//! stub
use super::plan::Plan;
use super::resource::Resource;
use super::sees::Sees;
use crate::api::object::Object;
pub(crate) fn sync(_r: Resource, _o: &Object, _s: &Sees<'_>) -> Plan { Plan::default() }
pub(crate) fn waits_for_consumer(_claim: &Object, _sees: &Sees<'_>) -> bool { false }
