//! Changes to a Pod by admission plugins that are enabled by default: tolerations and priority.

use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::kinds::strategy::Context;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, default_value, object_mut};
use crate::registry::types::plugins::Plugin;

/// Number of seconds for which a pod stays bound to a node that is not ready or unreachable.
const TOLERATION_SECONDS: i64 = 300;

/// The default preemption policy of a PriorityClass.
const PREEMPT_LOWER: &str = "PreemptLowerPriority";

/// The priority and preemption policy of a pod, and its PriorityClass.
struct Priority {
    class: Option<String>,
    value: i64,
    preemption: String,
}

/// Applies the plugins to a new pod. Fails with the reason why the pod is refused.
pub(super) fn admit_created(pod: &mut Object, context: &Context<'_>) -> Result<(), String> {
    let Some(spec) = object_mut(pod, "spec") else {
        return Ok(());
    };
    if !context.plugins.has(Plugin::Priority) {
        tolerate(spec, context);
        return Ok(());
    }
    let read = Cursor::root(spec);
    let class = read.text("priorityClassName");
    let Some(priority) = priority_of(class, context) else {
        return Err(format!("no PriorityClass with name {class} was found"));
    };
    check_priority(&read, &priority)?;
    tolerate(spec, context);
    if let Some(class) = priority.class {
        spec.insert("priorityClassName".into(), Value::String(class.into()));
    }
    default_value(spec, "priority", priority.value);
    default_value(spec, "preemptionPolicy", priority.preemption);
    Ok(())
}

/// Applies the plugins to an updated pod, and restores fields that plugins have set if the client omits them.
pub(super) fn admit_updated(pod: &mut Object, old: &Object, context: &Context<'_>) {
    let Some(spec) = object_mut(pod, "spec") else {
        return;
    };
    let fields: &[&str] = match context.plugins.has(Plugin::Priority) {
        true => &["priority", "preemptionPolicy"],
        false => &[],
    };
    for field in fields {
        if let (false, Some(old)) = (Cursor::root(spec).is_set(field), Cursor::root(old).map("spec")) {
            copy_field(old, spec, field);
        }
    }
    tolerate(spec, context);
}

/// Checks that the pod does not set values that differ from its PriorityClass.
fn check_priority(spec: &Cursor<'_>, priority: &Priority) -> Result<(), String> {
    if let Some(given) = spec.integer("priority").filter(|given| *given != priority.value) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {} from the given PriorityClass name",
            priority.value
        ));
    }
    let given = spec.text("preemptionPolicy");
    if !given.is_empty() && given != priority.preemption {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {} from the given PriorityClass name",
            priority.preemption
        ));
    }
    Ok(())
}

/// Returns the priority of the PriorityClass `name`, or of the default class if `name` is empty; `None` if the class
/// does not exist.
fn priority_of(name: &str, context: &Context<'_>) -> Option<Priority> {
    let system = match name {
        "system-cluster-critical" => Some(2_000_000_000),
        "system-node-critical" => Some(2_000_001_000),
        _ => None,
    };
    let classes = (context.stored)("scheduling.k8s.io", "priorityclasses");
    let value = |class: &Object| Cursor::root(class).integer("value").unwrap_or(0);
    let found = if name.is_empty() {
        classes
            .iter()
            .filter(|class| Cursor::root(class).flag("globalDefault") == Some(true))
            .min_by_key(|class| value(class))
    } else {
        classes.iter().find(|class| class.name() == name)
    };
    let preemption = |class: &Object| match Cursor::root(class).text("preemptionPolicy") {
        "" => PREEMPT_LOWER.to_owned(),
        policy => policy.to_owned(),
    };
    match (found, system) {
        (Some(class), _) => Some(Priority {
            class: Some(class.name().to_owned()),
            value: value(class),
            preemption: preemption(class),
        }),
        (None, Some(value)) => Some(Priority {
            class: Some(name.to_owned()),
            value,
            preemption: PREEMPT_LOWER.to_owned(),
        }),
        (None, None) if name.is_empty() => Some(Priority {
            class: None,
            value: 0,
            preemption: PREEMPT_LOWER.to_owned(),
        }),
        (None, None) => None,
    }
}

/// Adds the tolerations of `DefaultTolerationSeconds`, for taints that the pod does not tolerate yet.
fn tolerate(spec: &mut Map, context: &Context<'_>) {
    if !context.plugins.has(Plugin::DefaultTolerationSeconds) {
        return;
    }
    let read = Cursor::root(spec);
    let missing: Vec<Value> = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
        .into_iter()
        .filter(|taint| {
            !read.items("tolerations").any(|toleration| {
                let (key, effect) = (toleration.text("key"), toleration.text("effect"));
                (key.is_empty() || key == *taint) && (effect.is_empty() || effect == "NoExecute")
            })
        })
        .map(|taint| {
            json!({
                "key": taint,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS,
            })
        })
        .collect();
    if missing.is_empty() {
        return;
    }
    default_value(spec, "tolerations", Vec::<Value>::new());
    if let Some(tolerations) = spec.get_mut("tolerations").and_then(Value::as_array_mut) {
        tolerations.extend(missing);
    }
}
