//! `ReviewVersion`: the version of the AdmissionReviews or ConversionReviews that are sent to a webhook.

/// A supported version of reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewVersion {
    /// Responses must contain their version and the uid of the request.
    V1,
    /// Responses may lack their version and the uid of the request.
    V1Beta1,
}

impl ReviewVersion {
    /// Returns the first supported version in a webhook's list.
    pub(crate) fn first_of<'a>(mut versions: impl Iterator<Item = &'a str>) -> Option<Self> {
        versions.find_map(|it| match it {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    /// Returns the `apiVersion` of reviews in a group.
    pub(crate) fn in_group(self, group: &str) -> String {
        format!("{group}/{}", self.name())
    }

    /// Returns the version without its group.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }
}
