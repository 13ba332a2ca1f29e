//! `ResourceTable`: the objects of a resource as in the output of `kubectl get`, without a request.

use serde_json::Value;

use super::StoredObject;
use crate::api::object::Object;
use crate::endpoints::encode;
use crate::endpoints::negotiation::MetaVersion;
use crate::endpoints::table::IncludeObject;
use crate::registry::scheme::codec;
use crate::server::ApiServer;
use crate::storage::KeyRange;

/// The columns of a resource, and a row for each object.
#[derive(Debug)]
pub(crate) struct ResourceTable {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) is_namespaced: bool,
    /// Names of the subresources.
    pub(crate) subresources: Vec<String>,
    /// Definitions of the columns, as in a Table.
    pub(crate) columns: Value,
    /// The objects by namespace and name, each with one cell per column.
    pub(crate) rows: Vec<(StoredObject, Vec<Value>)>,
}

impl ApiServer {
    /// Returns the objects of a resource, in all namespaces or in one; `None` if the resource is not served. `resource`
    /// is `pods`, or `deployments.apps` to include the group.
    pub(crate) fn table(&self, resource: &str, namespace: Option<&str>) -> Option<ResourceTable> {
        let reader = &self.endpoints.registry.reader;
        let scheme = reader.scheme();
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let row = scheme.rows().find(|row| {
            row.is_stored() && row.is_storage_version && *row.info.resource == *plural && *row.info.group == *group
        })?;
        let columns = encode::columns(row, &Object::default());
        let tables = encode::tables(&self.endpoints, row, &columns, MetaVersion::V1, IncludeObject::None);
        let range = KeyRange::of(namespace);
        let snapshot = reader.store.snapshot(&row.storage);
        let rows = snapshot.range(&range).map(|stored| {
            let cells = tables.cells(&codec::decode(row, stored));
            let object = StoredObject {
                row: row.clone(),
                stored: stored.clone(),
            };
            (object, cells.into_iter().map(Into::into).collect())
        });
        Some(ResourceTable {
            api_version: row.info.api_version(),
            kind: row.info.kind.to_string(),
            is_namespaced: row.info.is_namespaced(),
            subresources: row.info.subresources.iter().map(|it| it.name.to_string()).collect(),
            columns: tables.column_definitions().into(),
            rows: rows.collect(),
        })
    }
}
