//! Printers of role bindings.

use super::super::columns::{AGE, Column, NAME};
use super::super::read::TableRow;
use super::Printer;
use crate::api::json::Value;

pub(super) const ROLE_BINDING: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Role",
            "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If \
             the RoleRef cannot be resolved, the Authorizer must return an error.",
        ),
        AGE,
        Column::text("Users", "Users in the roleBinding").wide(),
        Column::text("Groups", "Groups in the roleBinding").wide(),
        Column::text("ServiceAccounts", "ServiceAccounts in the roleBinding").wide(),
    ],
    cells,
};

pub(super) const CLUSTER_ROLE_BINDING: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Role",
            "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be \
             resolved, the Authorizer must return an error.",
        ),
        AGE,
        Column::text("Users", "Users in the clusterRoleBinding").wide(),
        Column::text("Groups", "Groups in the clusterRoleBinding").wide(),
        Column::text("ServiceAccounts", "ServiceAccounts in the clusterRoleBinding").wide(),
    ],
    cells,
};

fn cells(row: TableRow<'_>) -> Vec<Value> {
    let subjects = |kind: &str| {
        let found = row.at("subjects").items().filter(|it| it.at("kind").text() == kind);
        let names = found.map(|it| {
            let name = it.at("name").text();
            match it.at("namespace").text() {
                namespace if kind == "ServiceAccount" => format!("{namespace}/{name}"),
                _ => name.to_owned(),
            }
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let role = row.at("roleRef");
    vec![
        row.name(),
        format!("{}/{}", role.at("kind").text(), role.at("name").text()).into(),
        row.age(),
        subjects("User").into(),
        subjects("Group").into(),
        subjects("ServiceAccount").into(),
    ]
}
