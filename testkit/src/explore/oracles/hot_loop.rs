//! `Oracle::HotLoop`: a run does not have many more messages than the reference.

use super::row::{Looks, OracleRow};
use crate::explore::outcomes::HOT_LOOP;

pub(super) const ROW: OracleRow = OracleRow {
    name: HOT_LOOP,
    looks: Looks::AtMessages,
    recurs: None,
};
