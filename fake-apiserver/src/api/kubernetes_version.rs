//! `KubernetesVersion`: the minor versions of Kubernetes that a server can be.

use std::fmt;
use std::str::FromStr;

/// Minor version of Kubernetes that a server serves: its resources, types, documents and `/version`.
///
/// Rules that differ in 1.37 are held in part: `docs/kubernetes-1.37.md` of this crate lists those that follow 1.37,
/// and those that still follow 1.36.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum KubernetesVersion {
    /// 1.36, the default.
    #[default]
    V1_36,
    /// 1.37
    V1_37,
}

/// Error of a version that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKubernetesVersion(String);

impl KubernetesVersion {
    /// All of them, the oldest first.
    pub const ALL: [Self; 2] = [Self::V1_36, Self::V1_37];

    /// Returns the minor number.
    pub fn minor(self) -> u8 {
        match self {
            Self::V1_36 => 36,
            Self::V1_37 => 37,
        }
    }

    /// Returns the release whose answers are served, as `/version` names it.
    pub(crate) fn release(self) -> &'static str {
        match self {
            Self::V1_36 => "v1.36.2",
            Self::V1_37 => "v1.37.2",
        }
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor())
    }
}

impl FromStr for KubernetesVersion {
    type Err = UnknownKubernetesVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = text.strip_prefix('v').unwrap_or(text);
        let mut all = Self::ALL.into_iter();
        all.find(|it| it.to_string() == wanted)
            .ok_or_else(|| UnknownKubernetesVersion(text.to_owned()))
    }
}

impl fmt::Display for UnknownKubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = KubernetesVersion::ALL.map(|it| it.to_string()).join(" and ");
        write!(f, "Kubernetes {:?} is not served here; there are {all}", self.0)
    }
}

impl std::error::Error for UnknownKubernetesVersion {}
