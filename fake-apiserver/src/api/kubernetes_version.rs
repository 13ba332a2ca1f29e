//! `KubernetesVersion`: the minor versions of Kubernetes that a server can serve.

use std::fmt;
use std::str::FromStr;

/// Minor version of Kubernetes that a server serves: its resources, types, documents and `/version`.
///
/// Differences between 1.36 and the other versions are only partly implemented: `docs/kubernetes-versions.md` of this
/// crate lists the rules that depend on the version, and the rules that still follow 1.36.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum KubernetesVersion {
    /// 1.33
    V1_33,
    /// 1.34
    V1_34,
    /// 1.35
    V1_35,
    /// 1.36, the default.
    #[default]
    V1_36,
    /// 1.37
    V1_37,
}

/// Error for a version that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKubernetesVersion(String);

impl KubernetesVersion {
    /// All versions, oldest first.
    pub const ALL: [Self; 5] = [Self::V1_33, Self::V1_34, Self::V1_35, Self::V1_36, Self::V1_37];

    /// Returns the minor version number, such as 36.
    pub fn minor(self) -> u8 {
        match self {
            Self::V1_33 => 33,
            Self::V1_34 => 34,
            Self::V1_35 => 35,
            Self::V1_36 => 36,
            Self::V1_37 => 37,
        }
    }

    /// Returns the minor version number of the oldest version to which a rollback must be possible. New CEL expressions
    /// can only use libraries of that version (`MinCompatibilityVersion` in Go).
    pub(crate) fn min_compatibility(self) -> u8 {
        self.minor() - 1
    }

    /// Returns the default of the feature gate `WatchList` (streaming lists). Of the supported versions, only 1.33
    /// disables it.
    pub(crate) fn has_watch_list(self) -> bool {
        self >= Self::V1_34
    }

    /// Returns `true` if the feature gate `DRAConsumableCapacity` is on by default: selectors may then use
    /// `device.allowMultipleAllocations`.
    #[cfg(feature = "cel")]
    pub(crate) fn has_consumable_capacity(self) -> bool {
        self >= Self::V1_36
    }

    /// Returns `true` if the feature gate `RelaxedServiceNameValidation` is on by default: names of Services may then
    /// start with a digit.
    pub(crate) fn has_relaxed_service_names(self) -> bool {
        self >= Self::V1_36
    }

    /// Returns the release that `/version` shows, such as `v1.36.2`.
    pub(crate) fn release(self) -> &'static str {
        match self {
            Self::V1_33 => "v1.33.13",
            Self::V1_34 => "v1.34.9",
            Self::V1_35 => "v1.35.8",
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
        let [oldest, .., newest] = KubernetesVersion::ALL;
        write!(
            f,
            "Kubernetes {:?} is not supported; the supported versions are {oldest} to {newest}",
            self.0
        )
    }
}

impl std::error::Error for UnknownKubernetesVersion {}
