//! `Oracle::DeletesByName`: no client deletes, by name, an object that has replaced the object that the client had
//! observed.

use super::row::{Looks, OracleRow};
use crate::explore::outcomes::DELETES_BY_NAME;

pub(super) const ROW: OracleRow = OracleRow {
    name: DELETES_BY_NAME,
    looks: Looks::AtMessages,
    recurs: None,
};
