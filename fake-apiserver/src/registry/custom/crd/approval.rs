//! Approval of CRDs in the API groups of the Kubernetes community (rule O19).

use crate::api::field::quote;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::url::Url;

/// Annotation with the approval.
pub(super) const ANNOTATION: &str = "api-approved.kubernetes.io";

/// State of the annotation of a CRD in a group that needs an approval, as in `GetAPIApprovalState`.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Approval<'a> {
    Missing,
    /// A reason that begins with `unapproved`.
    Bypassed(&'a str),
    /// The URL of the approval.
    Approved(&'a str),
    Invalid(&'a str),
}

impl<'a> Approval<'a> {
    /// Returns `None` if the group of the CRD needs no approval.
    pub(super) fn of(crd: &Cursor<'a>) -> Option<Self> {
        let group = crd.text("spec.group");
        let is_protected = ["k8s.io", "kubernetes.io"].iter().any(|it| {
            let rest = group.strip_suffix(it);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        });
        let annotations = crd.map("metadata.annotations");
        let value = annotations
            .and_then(|it| it.get(ANNOTATION)?.as_str())
            .unwrap_or_default();
        is_protected.then_some(match value {
            "" => Self::Missing,
            text if text.starts_with("unapproved") => Self::Bypassed(text),
            text if is_absolute(text) => Self::Approved(text),
            text => Self::Invalid(text),
        })
    }

    /// Returns `true` if both annotations have the same state, which an update may keep.
    pub(super) fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Returns the rule that the annotation breaks.
    pub(super) fn broken_rule(self) -> Option<String> {
        let rule = format!("protected groups must have approval annotation \"{ANNOTATION}\"");
        let see = "see https://github.com/kubernetes/enhancements/pull/1111";
        match self {
            Self::Missing => Some(format!("{rule}, {see}")),
            Self::Invalid(_) => Some(format!(
                "{rule} with either a URL or a reason starting with \"unapproved\", {see}"
            )),
            Self::Bypassed(_) | Self::Approved(_) => None,
        }
    }

    /// Returns the status, the reason and the message of the CRD's condition.
    pub(super) fn condition(self) -> (&'static str, &'static str, String) {
        let rule = self.broken_rule().unwrap_or_default();
        match self {
            Self::Missing => ("False", "MissingAnnotation", rule),
            Self::Invalid(_) => ("False", "InvalidAnnotation", rule),
            Self::Bypassed(why) => ("False", "UnapprovedAnnotation", format!("not approved: {}", quote(why))),
            Self::Approved(url) => ("True", "ApprovedAnnotation", format!("approved in {url}")),
        }
    }
}

fn is_absolute(url: &str) -> bool {
    Url::parse_request_uri(url).is_ok_and(|it| !it.scheme.is_empty() && !it.host.is_empty())
}
