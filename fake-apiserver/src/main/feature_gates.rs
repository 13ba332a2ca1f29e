//! `--feature-gates`: the gates of kube-apiserver. Only their defaults are supported.

use fake_apiserver::KubernetesVersion;

use crate::report;

/// Generated list of gates: name, default and stage from a version on, with `locked` if kube-apiserver refuses another
/// value, or `gone`.
const GATES: &str = include_str!("feature_gates.txt");

/// Checks `name=value` pairs, with kube-apiserver's texts for the pairs that it refuses, too.
pub(crate) fn check(version: KubernetesVersion, pairs: &[String]) -> Result<(), String> {
    for pair in pairs.iter().map(|it| it.trim()).filter(|it| !it.is_empty()) {
        check_one(version, pair)
            .map_err(|why| format!("invalid argument {pair:?} for \"--feature-gates\" flag: {why}"))?;
    }
    Ok(())
}

fn check_one(version: KubernetesVersion, pair: &str) -> Result<(), String> {
    let Some((name, value)) = pair.split_once('=') else {
        return Err(format!("missing bool value for {pair}"));
    };
    let (name, text) = (name.trim(), value.trim());
    let Some(value) = parse_bool(text) else {
        let parsing = format!("strconv.ParseBool: parsing {text:?}: invalid syntax");
        return Err(format!("invalid value of {name}={text}, err: {parsing}"));
    };
    let wanted = if value { "on" } else { "off" };
    if let "AllAlpha" | "AllBeta" = name {
        return match (name, value) {
            ("AllAlpha", false) => Ok(()),
            (_, true) => {
                // Suites enable all gates in order to enable a single one, usually for an API.
                report(format_args!(
                    "warning: --feature-gates={name}=true has no effect: every gate has its default here"
                ));
                Ok(())
            }
            (_, false) => Err(format!(
                "{name} would change gates, which always have their defaults here"
            )),
        };
    }
    let Some(gate) = gate(version, name) else {
        return Err(format!("unrecognized feature gate: {name}"));
    };
    let (default, is_locked) = (gate.starts_with("true"), gate.ends_with(" locked"));
    match (default == value, is_locked) {
        (true, _) => Ok(()),
        (false, true) => {
            let set = format!("cannot set feature gate {name} to {value}");
            Err(format!("{set}, feature is locked to {default}"))
        }
        (false, false) => Err(format!(
            "feature gate {name} cannot be turned {wanted} here: this server only supports its default, {default}"
        )),
    }
}

/// Default, stage and lock of a gate; `None` if this version does not have the gate.
fn gate(version: KubernetesVersion, name: &str) -> Option<&'static str> {
    let line = GATES
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    let parts = line.rsplit("; ").filter_map(|part| part.split_once(' '));
    let mut until = parts.skip_while(|(since, _)| since.parse().is_ok_and(|since: KubernetesVersion| since > version));
    until.next().map(|(_, of)| of).filter(|of| *of != "gone")
}

/// `strconv.ParseBool`
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
