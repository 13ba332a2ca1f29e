//! `ReviewVersion`: the version of an AdmissionReview or ConversionReview that a webhook is sent.

/// A version of reviews that the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewVersion {
    /// Its answers name their version and the uid of the request.
    V1,
    /// Its answers are taken without either, as before v1.
    V1Beta1,
}

impl ReviewVersion {
    /// Returns the first known version of a webhook's list.
    pub(crate) fn first_of<'a>(mut versions: impl Iterator<Item = &'a str>) -> Option<Self> {
        versions.find_map(|it| match it {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    /// Returns the `apiVersion` in a group.
    pub(crate) fn in_group(self, group: &str) -> String {
        let version = match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        };
        format!("{group}/{version}")
    }
}
