//! stub
use super::plan::Plan;
use super::sees::Sees;
use crate::api::object::Object;
pub(crate) fn sync(_o: &Object, _s: &Sees<'_>) -> Plan { Plan::default() }
