//! `--feature-gates`: the feature gates of kube-apiserver. Only gates that enable APIs can be changed; other gates must
//! have their default values.

use std::collections::BTreeMap;

use fake_apiserver::{ApiServerBuilder, KubernetesVersion};

use crate::report;

/// Generated list of feature gates. Each line has a name and, for each version in which the gate changed, the default
/// and the stage, followed by `locked` if kube-apiserver refuses any other value, or `gone` if the gate was removed.
const GATES: &str = include_str!("feature_gates.txt");

/// Checks `name=value` pairs, and returns the enabled feature gates of APIs. Fails with kube-apiserver's message for a
/// pair that kube-apiserver also refuses.
pub(crate) fn of_apis(version: KubernetesVersion, pairs: &[String]) -> Result<Vec<&'static str>, String> {
    let known = ApiServerBuilder::api_feature_gates();
    let of_version = known.into_iter().filter_map(|name| Some((name, gate(version, name)?)));
    // The last pair applies, and the pair of a single gate takes precedence over groups such as `AllAlpha`.
    let (mut groups, mut single) = (BTreeMap::new(), BTreeMap::new());
    for pair in pairs.iter().map(|it| it.trim()).filter(|it| !it.is_empty()) {
        let (name, value) = check_one(version, pair)
            .map_err(|why| format!("invalid argument {pair:?} for \"--feature-gates\" flag: {why}"))?;
        match name {
            "AllAlpha" | "AllBeta" => groups.insert(name.trim_start_matches("All").to_uppercase(), value),
            _ => single.insert(name.to_owned(), value),
        };
    }
    let is_on = |name: &str, gate: &str| {
        let stage = gate.split(' ').nth(1).unwrap_or_default();
        let default = || groups.get(stage).copied().unwrap_or(gate.starts_with("true"));
        single.get(name).copied().unwrap_or_else(default)
    };
    let on = of_version.filter(|(name, gate)| is_on(name, gate));
    Ok(on.map(|(name, _)| name).collect())
}

/// Returns the name and value of a valid pair.
fn check_one(version: KubernetesVersion, pair: &str) -> Result<(&str, bool), String> {
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
            ("AllAlpha", false) => Ok((name, value)),
            (_, true) => {
                // This is only a warning, because test suites often enable all gates although they only need one,
                // usually for an API.
                report(format_args!(
                    "warning: --feature-gates={name}=true only enables APIs: every other gate has its default"
                ));
                Ok((name, value))
            }
            (_, false) => Err(format!(
                "{name}=false is not supported: beta gates that are on by default cannot be disabled"
            )),
        };
    }
    let Some(gate) = gate(version, name) else {
        return Err(format!("unrecognized feature gate: {name}"));
    };
    let (default, is_locked) = (gate.starts_with("true"), gate.ends_with(" locked"));
    match (default == value, is_locked) {
        (true, _) => Ok((name, value)),
        (false, true) => {
            let set = format!("cannot set feature gate {name} to {value}");
            Err(format!("{set}, feature is locked to {default}"))
        }
        (false, false) if value && ApiServerBuilder::api_feature_gates().contains(&name) => Ok((name, value)),
        (false, false) => Err(format!(
            "feature gate {name} cannot be turned {wanted}: this server only supports its default, {default}"
        )),
    }
}

/// Returns the default, stage and lock of a gate; `None` if this version does not have the gate.
fn gate(version: KubernetesVersion, name: &str) -> Option<&'static str> {
    let line = GATES
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    let parts = line.rsplit("; ").filter_map(|part| part.split_once(' '));
    let mut until = parts.skip_while(|(since, _)| since.parse().is_ok_and(|since: KubernetesVersion| since > version));
    until.next().map(|(_, of)| of).filter(|of| *of != "gone")
}

/// Parses a bool like Go's `strconv.ParseBool`.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
