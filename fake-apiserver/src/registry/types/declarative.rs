//! Checks of declarative validation (`k8s.io/apimachinery/pkg/api/validate`), which some newer kinds use. Their errors
//! differ from the errors in `check`: limits are in bytes, and the value of an immutable field is shown as `null`.

use super::check::IMMUTABLE;
use super::cursor::Cursor;
use crate::api::field::FieldErrors;
use crate::api::json::Value;

/// A rule for names. The flag is set if the name is the prefix of a generated name.
type NameRule = fn(&str, bool) -> Vec<String>;

/// Converts the error messages of a name rule to the messages of declarative validation, which counts bytes instead of
/// characters.
pub(crate) fn in_bytes(texts: Vec<String>) -> Vec<String> {
    let in_bytes = |text: String| match text.strip_suffix(" characters") {
        Some(start) => format!("{start} bytes"),
        None => text,
    };
    texts.into_iter().map(in_bytes).collect()
}

impl Cursor<'_> {
    /// Checks a name.
    pub(crate) fn check_declared_name(&self, rule: NameRule, errors: &mut FieldErrors) {
        self.check_texts(in_bytes(rule(self.as_text(), false)), errors);
    }

    /// Checks a required name.
    pub(crate) fn check_required_name(&self, rule: NameRule, errors: &mut FieldErrors) {
        if self.check_required(errors) {
            self.check_declared_name(rule, errors);
        }
    }

    /// Checks that the field is unchanged, and returns `true` if so (`validate.Immutable`). `old` is the old object.
    pub(crate) fn check_immutable(&self, old: &Cursor<'_>, errors: &mut FieldErrors) -> bool {
        let path = self.path().to_string();
        let is_unchanged = self.same(&old.at(&path), "");
        if !is_unchanged {
            errors.invalid(self, Value::Null, IMMUTABLE);
        }
        is_unchanged
    }

    /// Checks that the number is at least `min` (`validate.Minimum`). If the number is required, 0 is treated as
    /// absent.
    pub(crate) fn check_minimum(&self, min: i64, is_required: bool, errors: &mut FieldErrors) {
        let value = self.integer("");
        if is_required && value.unwrap_or(0) == 0 {
            errors.required(self, "");
        } else if let Some(value) = value.filter(|it| *it < min) {
            errors.invalid(self, value, format!("must be greater than or equal to {min}"));
        }
    }

    /// Checks that exactly one of these fields is set (`validate.Union`). Returns `true` if at least one is set.
    pub(crate) fn check_union(&self, members: &[&str], errors: &mut FieldErrors) -> bool {
        let set: Vec<&str> = members.iter().copied().filter(|it| self.is_set(it)).collect();
        let all = members
            .iter()
            .map(|it| format!("`{it}`"))
            .collect::<Vec<_>>()
            .join(", ");
        match set.len() {
            0 => errors.invalid(self, "", format!("must specify one of: {all}")),
            1 => {}
            _ => {
                let text = format!("must specify exactly one of: {all}");
                errors.invalid(self, format!("{{{}}}", set.join(", ")), text);
            }
        }
        !set.is_empty()
    }
}
