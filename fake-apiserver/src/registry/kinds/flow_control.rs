//! The strategies of FlowSchemas and PriorityLevelConfigurations. Follows `ValidateFlowSchema` and
//! `ValidatePriorityLevelConfiguration` of `pkg/apis/flowcontrol/validation`.

use std::collections::BTreeSet;

use super::facts::{Facts, Generation};
use super::plain::restore_metadata;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::types::check::between;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_nonzero, default_value, ensure_object, object_mut};
use crate::registry::types::names;

const PRECEDENCE: i64 = 1_000;
const PRECEDENCE_MAX: i64 = 10_000;
const QUEUES_MAX: i64 = 10_000_000;
/// Number of hash bits available for shuffle sharding.
const HASH_BITS: i64 = 60;
/// The name of the flow schema and the priority level of requests that are not limited.
const EXEMPT: &str = "exempt";
/// Annotation of an older API version, which is forbidden in this version.
const KEEPS_ZERO: &str = "flowcontrol.k8s.io/preserve-zero-concurrency-shares";
/// The name of the flow schema and the priority level of requests that no other schema matches.
const CATCH_ALL: &str = "catch-all";
const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

/// The strategy of FlowSchemas.
#[derive(Debug)]
pub(crate) struct FlowSchema;

impl Strategy for FlowSchema {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        let spec = ensure_object(object, "spec");
        default_nonzero(spec, "matchingPrecedence", PRECEDENCE);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let spec = object.at("spec");
        validate_precedence(&spec.at("matchingPrecedence"), object.text("metadata.name"), errors);
        let method = spec.at("distinguisherMethod");
        if method.is_set("") && !matches!(method.text("type"), "ByNamespace" | "ByUser") {
            errors.not_supported(method.at("type"), method.to_value(), &["ByNamespace", "ByUser"]);
        }
        let level = spec.at("priorityLevelConfiguration.name");
        if level.as_text().is_empty() {
            errors.required(level, "must reference a priority level");
        }
        level.check_subdomain(errors);
        for rule in spec.items("rules") {
            validate_rule(&rule, errors);
        }
        validate_mandatory_schema(&spec, object.text("metadata.name"), errors);
        validate_status(&object.at("status"), errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        match context.subresource {
            "" => self.validate(object, errors),
            _ => validate_status(&Cursor::root(object).at("status"), errors),
        }
    }
}

/// Checks that a mandatory schema has its fixed spec.
fn validate_mandatory_schema(spec: &Cursor<'_>, name: &str, errors: &mut FieldErrors) {
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    let (precedence, subjects) = match name {
        EXEMPT => (1, vec![group("system:masters")]),
        CATCH_ALL => (
            PRECEDENCE_MAX,
            vec![group("system:unauthenticated"), group("system:authenticated")],
        ),
        _ => return,
    };
    let mut fixed = json!({
        "priorityLevelConfiguration": {"name": name},
        "matchingPrecedence": precedence,
        "rules": [{
            "subjects": subjects,
            "resourceRules": [{
                "verbs": ["*"],
                "apiGroups": ["*"],
                "resources": ["*"],
                "clusterScope": true,
                "namespaces": ["*"],
            }],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }],
    });
    if name == CATCH_ALL {
        fixed["distinguisherMethod"] = json!({"type": "ByUser"});
    }
    if spec.get("") != Some(&fixed) {
        errors.invalid(
            spec,
            spec.to_value(),
            format!("spec of '{name}' must equal the fixed value"),
        );
    }
}

fn validate_precedence(precedence: &Cursor<'_>, name: &str, errors: &mut FieldErrors) {
    match precedence.integer("").unwrap_or(0) {
        value if value <= 0 => errors.invalid(precedence, value, "must be a positive value"),
        value if value > PRECEDENCE_MAX => {
            errors.invalid(precedence, value, format!("must not be greater than {PRECEDENCE_MAX}"));
        }
        1 if name != EXEMPT => {
            errors.invalid(
                precedence,
                1,
                "only the schema named 'exempt' may have matchingPrecedence 1",
            );
        }
        _ => {}
    }
}

/// Checks a rule of a FlowSchema (`ValidateFlowSchemaPolicyRulesWithSubjects`).
fn validate_rule(rule: &Cursor<'_>, errors: &mut FieldErrors) {
    if rule.is_empty("subjects") {
        errors.required(rule.at("subjects"), "subjects must contain at least one value");
    }
    for subject in rule.items("subjects") {
        validate_subject(&subject, errors);
    }
    if rule.is_empty("resourceRules") && rule.is_empty("nonResourceRules") {
        let text = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.required(rule, text);
    }
    for rule in rule.items("resourceRules") {
        validate_resource_rule(&rule, errors);
    }
    for rule in rule.items("nonResourceRules") {
        validate_url_rule(&rule, errors);
    }
}

fn validate_subject(subject: &Cursor<'_>, errors: &mut FieldErrors) {
    // The field that belongs to the kind, and the forbidden fields in the order of kube-apiserver's checks.
    let (own, others) = match subject.text("kind") {
        "ServiceAccount" => ("serviceAccount", ["user", "group"]),
        "User" => ("user", ["serviceAccount", "group"]),
        "Group" => ("group", ["serviceAccount", "user"]),
        other => {
            errors.not_supported(subject.at("kind"), other, &["Group", "ServiceAccount", "User"]);
            return;
        }
    };
    let kind_of = |field| match field {
        "user" => "User",
        "group" => "Group",
        _ => "ServiceAccount",
    };
    let who = subject.at(own);
    match who.is_set("") {
        false => errors.required(
            who,
            format!("{own} is required when subject kind is '{}'", kind_of(own)),
        ),
        true => validate_named(own, &who, errors),
    }
    for field in others {
        if subject.is_set(field) {
            let text = format!("{field} is forbidden when subject kind is not '{}'", kind_of(field));
            errors.forbidden(subject.at(field), text);
        }
    }
}

fn validate_named(field: &str, who: &Cursor<'_>, errors: &mut FieldErrors) {
    let name = who.at("name");
    name.check_required(errors);
    if field != "serviceAccount" {
        return;
    }
    if name.as_text() != "*" {
        name.check_subdomain(errors);
    }
    let namespace = who.at("namespace");
    if namespace.as_text().is_empty() {
        errors.required(namespace, "must specify namespace for service account");
    }
    namespace.check_label(errors);
}

/// Checks that a list is not empty, and that it has no other items if it contains `*`. Returns `true` if the items
/// still have to be checked.
fn check_list(list: &Cursor<'_>, missing: &str, what: &str, errors: &mut FieldErrors) -> bool {
    let items = list.list("");
    let has_wildcard = items.iter().any(|it| it == "*");
    if items.is_empty() {
        errors.required(list, missing);
    } else if has_wildcard && items.len() > 1 {
        let text = format!("if '*' is present, must not specify other {what}");
        errors.invalid(list, list.to_value(), text);
    }
    !has_wildcard
}

fn validate_verbs(rule: &Cursor<'_>, errors: &mut FieldErrors) {
    let verbs = rule.at("verbs");
    let is_verb = |it: &Value| it.as_str().is_some_and(|it| VERBS.contains(&it));
    if check_list(&verbs, "verbs must contain at least one value", "verbs", errors)
        && !verbs.list("").iter().all(is_verb)
    {
        errors.not_supported(verbs, verbs.to_value(), &VERBS);
    }
}

/// Checks a resource rule (`ValidateFlowSchemaResourcePolicyRule`).
fn validate_resource_rule(rule: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_verbs(rule, errors);
    for (field, missing, what) in [
        (
            "apiGroups",
            "resource rules must supply at least one api group",
            "api groups",
        ),
        (
            "resources",
            "resource rules must supply at least one resource",
            "resources",
        ),
    ] {
        check_list(&rule.at(field), missing, what, errors);
    }
    let namespaces = rule.at("namespaces");
    let is_open = match namespaces.is_empty("") && rule.flag("clusterScope") == Some(true) {
        true => true,
        false => {
            let missing = "resource rules that are not cluster scoped must supply at least one namespace";
            check_list(&namespaces, missing, "namespaces", errors)
        }
    };
    for namespace in namespaces.items("").filter(|_| is_open) {
        for text in names::dns1123_label(namespace.as_text(), false) {
            let text = format!("each member of this list must be '*' or a DNS-1123 label; {text}");
            errors.invalid(namespace, namespace.as_text(), text);
        }
    }
}

/// Checks a non-resource rule (`ValidateFlowSchemaNonResourcePolicyRule`).
fn validate_url_rule(rule: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_verbs(rule, errors);
    let urls = rule.at("nonResourceURLs");
    let missing = "nonResourceURLs must contain at least one value";
    if check_list(&urls, missing, "non-resource URLs", errors) {
        for url in urls.items("") {
            if let Some(text) = wrong_in_url(url.as_text()) {
                errors.invalid(url, url.as_text(), text);
            }
        }
    }
}

/// Returns the error for an invalid path in a non-resource rule (`ValidateNonResourceURLPath`).
fn wrong_in_url(path: &str) -> Option<&'static str> {
    let wildcards = path.matches('*').count();
    Some(match path {
        "" => "must not be empty",
        "/" => return None,
        _ if !path.starts_with('/') => "must start with slash",
        _ if path.contains(' ') => "must not contain white-space",
        _ if path.contains("//") => "must not contain double slash",
        _ if wildcards > 1 || wildcards == 1 && !path.ends_with("/*") => "wildcard can only do suffix matching",
        _ => return None,
    })
}

/// Checks that the conditions have distinct, non-empty types.
fn validate_status(status: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for condition in status.items("conditions") {
        let kind = condition.at("type");
        if !seen.insert(kind.as_text().to_owned()) {
            errors.duplicate(kind, kind.as_text());
        }
        kind.check_required(errors);
    }
}

/// The strategy of PriorityLevelConfigurations.
#[derive(Debug)]
pub(crate) struct PriorityLevelConfiguration;

impl Strategy for PriorityLevelConfiguration {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        if let Some(exempt) = object_mut(object, "spec.exempt") {
            default_value(exempt, "nominalConcurrencyShares", 0);
            default_value(exempt, "lendablePercent", 0);
        }
        if let Some(limited) = object_mut(object, "spec.limited") {
            default_value(limited, "nominalConcurrencyShares", 30);
            default_value(limited, "lendablePercent", 0);
            if let Some(queuing) = object_mut(limited, "limitResponse.queuing") {
                for (field, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                    default_nonzero(queuing, field, value);
                }
            }
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let annotations = object.at("metadata.annotations");
        if annotations.has_entry(KEEPS_ZERO) {
            errors.forbidden(annotations, format!("annotation '{KEEPS_ZERO}' is forbidden"));
        }
        let spec = object.at("spec");
        let kind = spec.at("type");
        if (object.text("metadata.name") == EXEMPT) != (kind.as_text() == "Exempt") {
            let text = "must be 'Exempt' if and only if `name` is 'exempt'";
            errors.invalid(kind, kind.as_text(), text);
        }
        let (exempt, limited) = (spec.at("exempt"), spec.at("limited"));
        match kind.as_text() {
            "Exempt" => {
                if limited.is_set("") {
                    errors.forbidden(limited, "must be nil if the type is not Limited");
                }
                validate_shares(&exempt, errors);
                exempt.at("lendablePercent").check_range((0, 100), errors);
            }
            "Limited" => {
                if exempt.is_set("") {
                    errors.forbidden(exempt, "must be nil if the type is Limited");
                }
                match limited.is_set("") {
                    true => validate_limited(&limited, errors),
                    false => errors.required(limited, "must not be empty when type is Limited"),
                }
            }
            other => errors.not_supported(kind, other, &["Exempt", "Limited"]),
        }
        validate_mandatory_level(&spec, object.text("metadata.name"), errors);
        validate_status(&object.at("status"), errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        match context.subresource {
            "" => self.validate(object, errors),
            _ => validate_status(&Cursor::root(object).at("status"), errors),
        }
    }
}

/// Checks that a mandatory priority level has its fixed spec (`ValidateIfMandatoryPriorityLevelConfigurationObject`).
fn validate_mandatory_level(spec: &Cursor<'_>, name: &str, errors: &mut FieldErrors) {
    let (is_fixed, but) = match name {
        EXEMPT => (
            spec.text("type") == "Exempt" && !spec.is_set("limited"),
            " except the 'spec.exempt' field",
        ),
        CATCH_ALL => {
            let limited = json!({
                "nominalConcurrencyShares": 5,
                "lendablePercent": 0,
                "limitResponse": {"type": "Reject"},
            });
            (
                spec.get("") == Some(&json!({"type": "Limited", "limited": limited})),
                "",
            )
        }
        _ => return,
    };
    if !is_fixed {
        let text = format!("spec of '{name}'{but} must equal the fixed value");
        errors.invalid(spec, spec.to_value(), text);
    }
}

fn validate_shares(level: &Cursor<'_>, errors: &mut FieldErrors) {
    let shares = level.at("nominalConcurrencyShares");
    if let Some(value) = shares.integer("").filter(|it| *it < 0) {
        errors.invalid(shares, value, "must be a non-negative integer");
    }
}

/// Checks the limits of a priority level (`ValidateLimitedPriorityLevelConfiguration`).
fn validate_limited(limited: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_shares(limited, errors);
    let response = limited.at("limitResponse");
    let (kind, queuing) = (response.at("type"), response.at("queuing"));
    match (kind.as_text(), queuing.is_set("")) {
        ("Reject", true) => {
            let text = "must be nil if limited.limitResponse.type is not Limited";
            errors.forbidden(queuing, text);
        }
        ("Reject", false) => {}
        ("Queue", false) => {
            let text = "must not be empty if limited.limitResponse.type is Limited";
            errors.required(queuing, text);
        }
        ("Queue", true) => validate_queuing(&queuing, errors),
        (other, _) => errors.not_supported(kind, other, &["Queue", "Reject"]),
    }
    let lendable = limited.at("lendablePercent");
    if let Some(value) = lendable.integer("").filter(|it| !(0..=100).contains(it)) {
        errors.invalid(lendable, value, between((0, 100)));
    }
    let borrowing = limited.at("borrowingLimitPercent");
    if let Some(value) = borrowing.integer("").filter(|it| *it < 0) {
        errors.invalid(borrowing, value, "if specified, must be a non-negative integer");
    }
}

/// Checks the queues of a priority level (`ValidatePriorityLevelQueuingConfiguration`).
fn validate_queuing(queuing: &Cursor<'_>, errors: &mut FieldErrors) {
    let [length, queues, hand] =
        ["queueLengthLimit", "queues", "handSize"].map(|field| queuing.integer(field).unwrap_or(0));
    if length <= 0 {
        errors.invalid(queuing.at("queueLengthLimit"), length, "must be positive");
    }
    if queues <= 0 {
        errors.invalid(queuing.at("queues"), queues, "must be positive");
    } else if queues > QUEUES_MAX {
        errors.invalid(
            queuing.at("queues"),
            queues,
            format!("must not be greater than {QUEUES_MAX}"),
        );
    }
    let path = queuing.at("handSize");
    if hand <= 0 {
        errors.invalid(path, hand, "must be positive");
    } else if hand > queues {
        errors.invalid(path, hand, format!("should not be greater than queues ({queues})"));
    } else if required_bits(queues, hand) > HASH_BITS {
        let text = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        );
        errors.invalid(path, hand, text);
    }
}

/// Returns the number of hash bits that shuffle sharding needs (`RequiredEntropyBits` of
/// `apiserver/pkg/util/shufflesharding`), calculated with floats as in Go.
fn required_bits(deck: i64, hand: i64) -> i64 {
    ((deck as f64).log2() * hand as f64).ceil() as i64
}
