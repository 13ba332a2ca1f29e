//! Replaces `cel` if the feature `cel` is disabled: expressions are neither checked nor evaluated.

/// Set if this build evaluates expressions.
pub(crate) const IS_EVALUATED: bool = false;

pub(crate) mod requests {
    use crate::api::kubernetes_version::KubernetesVersion;

    /// Declared names; always empty in this build.
    #[derive(Clone, Debug)]
    pub(crate) struct Names;

    impl Names {
        pub(crate) fn of_requests(_: KubernetesVersion, _: bool) -> Self {
            Self
        }

        pub(crate) fn of_devices(_: KubernetesVersion) -> Self {
            Self
        }

        #[expect(clippy::unused_self, reason = "with the feature it uses self")]
        pub(crate) fn add_variables(&mut self) {}

        #[expect(clippy::unused_self, reason = "with the feature it uses self")]
        pub(crate) fn declare(&mut self, _: &str, _: &str) {}

        pub(crate) fn without_authorizer(self) -> Self {
            self
        }

        pub(crate) fn of_mutations(self) -> Self {
            self
        }
    }

    pub(crate) fn problem(_: &str, _: &[&str], _: &Names) -> Option<String> {
        None
    }
}
