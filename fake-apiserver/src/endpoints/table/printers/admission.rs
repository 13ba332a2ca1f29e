//! Printers of webhook configurations and admission policies.

use super::super::columns::{AGE, Column, NAME};
use super::super::read::{Field, TableRow};
use super::Printer;

/// Returns the printer of a kind in admissionregistration.k8s.io.
pub(super) fn printer_of(kind: &str) -> Option<Printer> {
    Some(match kind {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => WEBHOOKS,
        "ValidatingAdmissionPolicy" => VALIDATING_POLICY,
        "MutatingAdmissionPolicy" => MUTATING_POLICY,
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => BINDING,
        _ => return None,
    })
}

const WEBHOOKS: Printer = Printer {
    columns: &[
        NAME,
        Column::integer(
            "Webhooks",
            "Webhooks indicates the number of webhooks registered in this configuration",
        ),
        AGE,
    ],
    cells: |row| vec![row.name(), row.at("webhooks").count().into(), row.age()],
};

const PARAM_KIND: Column = Column::text(
    "ParamKind",
    "ParamKind specifies the kind of resources used to parameterize this policy",
);

const VALIDATING_POLICY: Printer = Printer {
    columns: &[
        NAME,
        Column::integer(
            "Validations",
            "Validations indicates the number of validation rules defined in this configuration",
        ),
        PARAM_KIND,
        AGE,
    ],
    cells: |row| {
        vec![
            row.name(),
            row.at("spec.validations").count().into(),
            param_kind(row).into(),
            row.age(),
        ]
    },
};

const MUTATING_POLICY: Printer = Printer {
    columns: &[
        NAME,
        Column::integer(
            "Mutations",
            "Mutation indicates the number of mutations rules defined in this configuration",
        ),
        PARAM_KIND,
        AGE,
    ],
    cells: |row| {
        vec![
            row.name(),
            row.at("spec.mutations").count().into(),
            param_kind(row).into(),
            row.age(),
        ]
    },
};

fn param_kind(row: TableRow<'_>) -> String {
    let kind = row.at("spec.paramKind");
    if kind.is_set() {
        format!("{}/{}", kind.at("apiVersion").text(), kind.at("kind").text())
    } else {
        "<unset>".to_owned()
    }
}

const BINDING: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "PolicyName",
            "PolicyName indicates the policy definition which the policy binding binded to",
        ),
        Column::text(
            "ParamRef",
            "ParamRef indicates the param resource which sets the configuration param",
        ),
        AGE,
    ],
    cells: |row| {
        let param = param_ref(row.at("spec.paramRef"));
        vec![
            row.name(),
            row.at("spec.policyName").text().into(),
            param.into(),
            row.age(),
        ]
    },
};

fn param_ref(param: Field<'_>) -> String {
    let selector = param.at("selector");
    match (param.at("namespace").text(), param.at("name").text()) {
        ("", "") | (_, "") if selector.is_set() => go_selector(selector),
        (_, "") => "<unset>".to_owned(),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// Formats a LabelSelector like the generated `String` method in Go.
fn go_selector(selector: Field<'_>) -> String {
    let labels = selector.at("matchLabels").entries();
    let labels: String = labels.map(|(key, value)| format!("{key}: {},", value.text())).collect();
    let expressions = selector.at("matchExpressions").items();
    let expressions: String = expressions
        .map(|it| {
            let (key, operator) = (it.at("key").text(), it.at("operator").text());
            let values = it.at("values").join(" ");
            format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
