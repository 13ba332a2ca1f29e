//! `PluginSet`: the enabled admission plugins.

/// The enabled plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginSet {
    /// Set if the plugin `ServiceAccount` is enabled. It is disabled by default, because it requires ServiceAccounts,
    /// which only a worker creates.
    pub(crate) service_account: bool,
    /// Set if the server updates `status` of ResourceQuotas, like the quota controller.
    pub(crate) counts_quota: bool,
    /// Set if the plugin `OwnerReferencesPermissionEnforcement` is enabled.
    pub(crate) owner_references: bool,
    /// Plugins that are enabled by default but disabled in this set, one bit each.
    off: u32,
}

/// A plugin that is enabled by default and can be disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plugin {
    CertificateApproval,
    CertificateSigning,
    CertificateSubjectRestriction,
    ClusterTrustBundleAttest,
    DefaultIngressClass,
    DefaultStorageClass,
    DefaultTolerationSeconds,
    LimitRanger,
    MutatingAdmissionPolicy,
    MutatingAdmissionWebhook,
    NamespaceLifecycle,
    PersistentVolumeClaimResize,
    PodGroupWorkloadExists,
    PodResizeValidator,
    PodSecurity,
    PodTopologyLabels,
    Priority,
    ResourceQuota,
    RuntimeClass,
    StorageObjectInUseProtection,
    TaintNodesByCondition,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionWebhook,
}

impl Plugin {
    const ALL: [Self; 23] = [
        Self::CertificateApproval,
        Self::CertificateSigning,
        Self::CertificateSubjectRestriction,
        Self::ClusterTrustBundleAttest,
        Self::DefaultIngressClass,
        Self::DefaultStorageClass,
        Self::DefaultTolerationSeconds,
        Self::LimitRanger,
        Self::MutatingAdmissionPolicy,
        Self::MutatingAdmissionWebhook,
        Self::NamespaceLifecycle,
        Self::PersistentVolumeClaimResize,
        Self::PodGroupWorkloadExists,
        Self::PodResizeValidator,
        Self::PodSecurity,
        Self::PodTopologyLabels,
        Self::Priority,
        Self::ResourceQuota,
        Self::RuntimeClass,
        Self::StorageObjectInUseProtection,
        Self::TaintNodesByCondition,
        Self::ValidatingAdmissionPolicy,
        Self::ValidatingAdmissionWebhook,
    ];
}

impl PluginSet {
    /// Returns `true` unless the plugin is disabled.
    pub(crate) fn has(&self, plugin: Plugin) -> bool {
        self.off & (1 << plugin as u32) == 0
    }

    /// Enables a plugin by its name in Kubernetes. Returns `false` for a name that is unknown or not supported.
    pub(crate) fn turn_on(&mut self, name: &str) -> bool {
        match name {
            "OwnerReferencesPermissionEnforcement" => self.owner_references = true,
            "ServiceAccount" => self.service_account = true,
            _ => {
                let plugin = Plugin::ALL.into_iter().find(|it| format!("{it:?}") == name);
                let bit: u32 = plugin.map_or(0, |it| 1 << it as u32);
                self.off &= !bit;
                return plugin.is_some();
            }
        }
        true
    }

    /// Disables a plugin by its name in Kubernetes. Returns `false` for a name that is unknown or cannot be disabled.
    pub(crate) fn turn_off(&mut self, name: &str) -> bool {
        let plugin = Plugin::ALL.into_iter().find(|it| format!("{it:?}") == name);
        self.off |= plugin.map_or(0, |it| 1 << it as u32);
        plugin.is_some()
    }
}
