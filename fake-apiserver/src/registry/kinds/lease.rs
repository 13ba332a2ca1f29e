//! The strategies of Leases and LeaseCandidates (rule R8). Follows `ValidateLease` and `ValidateLeaseCandidate` of
//! `pkg/apis/coordination/validation`.

use super::facts::Facts;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::types::check::NEGATIVE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::object_mut;
use crate::registry::types::names;

/// The only strategy of coordinated leader election that Kubernetes defines.
const OLDEST: &str = "OldestEmulationVersion";

/// The strategy of Leases.
#[derive(Debug)]
pub(crate) struct Lease;

impl Strategy for Lease {
    fn facts(&self) -> &Facts {
        &Facts {
            allows_unconditional_update: false,
            allows_create_on_update: true,
            ..Facts::DEFAULT
        }
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        drop_coordinated(object, None);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, _context: &Context<'_>) {
        drop_coordinated(object, Some(old));
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let spec = object.at("spec");
        let duration = spec.at("leaseDurationSeconds");
        if let Some(seconds) = duration.integer("").filter(|it| *it <= 0) {
            errors.invalid(duration, seconds, "must be greater than 0");
        }
        let transitions = spec.at("leaseTransitions");
        if let Some(count) = transitions.integer("").filter(|it| *it < 0) {
            errors.invalid(transitions, count, NEGATIVE);
        }
        let strategy = spec.at("strategy");
        if strategy.is_set("") {
            check_strategy(&strategy, errors);
        }
        if !spec.is_empty("preferredHolder") && strategy.as_text().is_empty() {
            let text = "may only be specified if `strategy` is defined";
            errors.forbidden(spec.at("preferredHolder"), text);
        }
    }
}

/// Drops fields that depend on the gate CoordinatedLeaderElection, unless the stored object has them.
fn drop_coordinated(lease: &mut Object, old: Option<&Object>) {
    for field in ["strategy", "preferredHolder"] {
        let is_stored = old.is_some_and(|it| Cursor::root(it).at("spec").is_set(field));
        if let Some(spec) = object_mut(lease, "spec").filter(|_| !is_stored) {
            spec.remove(field);
        }
    }
}

/// Checks a strategy of leader election (`ValidateCoordinatedLeaseStrategy`). As in kube-apiserver, the paths of errors
/// contain the field twice: `strategy.strategy`.
fn check_strategy(strategy: &Cursor<'_>, errors: &mut FieldErrors) {
    let (text, path) = (strategy.as_text(), strategy.at("strategy"));
    if !text.contains('/') {
        if text != OLDEST {
            errors.not_supported(path, text, &[OLDEST]);
        }
        return;
    }
    for problem in names::qualified_name(text) {
        errors.invalid(path, text, problem);
    }
}

/// The strategy of LeaseCandidates.
#[derive(Debug)]
pub(crate) struct LeaseCandidate;

impl Strategy for LeaseCandidate {
    fn facts(&self) -> &Facts {
        &Facts {
            name: |name, _| names::config_map_key(name),
            allows_unconditional_update: false,
            allows_create_on_update: true,
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let spec = object.at("spec");
        spec.at("leaseName").check_required(errors);
        let (emulation, binary) = (spec.at("emulationVersion"), spec.at("binaryVersion"));
        let emulated = check_version(&emulation, errors);
        binary.check_required(errors);
        let own = check_version(&binary, errors);
        // An invalid binary version is treated as 0.0.0.
        if let Some(emulated) = emulated
            && !binary.as_text().is_empty()
            && own.unwrap_or_default() < emulated
        {
            let text = "must be greater than or equal to `emulationVersion`";
            errors.invalid(binary, binary.as_text(), text);
        }
        let strategy = spec.at("strategy");
        if strategy.check_required(errors) {
            if strategy.as_text() == OLDEST && emulated.unwrap_or_default() == (0, 0, 0) {
                let text = "must be specified when `strategy` is 'OldestEmulationVersion'";
                errors.required(emulation, text);
            }
            check_strategy(&strategy, errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        let old = Cursor::root(old);
        Cursor::root(object)
            .at("spec.leaseName")
            .check_text_unchanged(&old.at("spec.leaseName"), errors);
    }
}

/// Checks a semantic version; returns its major, minor and patch numbers if it is valid.
fn check_version(version: &Cursor<'_>, errors: &mut FieldErrors) -> Option<(u64, u64, u64)> {
    let text = version.as_text();
    let parsed = parse_version(text);
    if parsed.is_none() && !text.is_empty() {
        errors.invalid(version, text, "must be a valid semantic version");
    }
    parsed
}

fn parse_version(text: &str) -> Option<(u64, u64, u64)> {
    // Prerelease and build suffixes are ignored when versions are compared.
    let numbers = text.split(['-', '+']).next()?;
    let number = |text: &str| {
        let is_canonical = text == "0" || !text.starts_with('0');
        let is_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        (is_canonical && is_digits).then(|| text.parse().ok())?
    };
    let mut parts = numbers.split('.').map(number);
    let version = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(version)
}
