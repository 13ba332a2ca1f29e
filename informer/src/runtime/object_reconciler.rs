//! `ObjectReconciler`: reconciles objects from the cache instead of keys.

use std::fmt;
use std::sync::Arc;

use crate::Cacheable;
use crate::cache::Lister;
use crate::reconcile::{Action, ReconcileError, Reconciler, Request};

/// Reconciles objects (controller-runtime's `ObjectReconciler`). Implemented for all `Fn(Arc<K>) -> Future<Output =
/// Result<Action, E>>`. [`as_reconciler`] converts it to a [`Reconciler`].
///
/// An object reconciler is also called for objects that are being deleted: check `deletionTimestamp`, or use
/// [`finalize`](super::finalize). It is not called for objects that no longer exist; the garbage collector deletes
/// their dependents.
///
/// ```
/// use std::sync::Arc;
/// use informer::reconcile::{Action, ReconcileError};
/// use informer::runtime::{Dependents, Manager, ObjectReconciler, as_reconciler};
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use kube::ResourceExt;
///
/// /// Copies the labels of each Pod to a ConfigMap with the same name.
/// struct Labels(Dependents<ConfigMap>);
///
/// impl ObjectReconciler<Pod> for Labels {
///     async fn reconcile(&self, pod: Arc<Pod>) -> Result<Action, ReconcileError> {
///         let labels = pod.metadata.labels.clone();
///         self.0.ensure(&*pod, &pod.name_any(), |map| map.data = labels).await?;
///         Ok(Action::await_change())
///     }
/// }
///
/// # fn add(manager: &Manager) -> Result<(), informer::Error> {
/// let labels = as_reconciler(manager.lister(), Labels(manager.dependents()));
/// manager.controller("labels").for_::<Pod>().owns::<ConfigMap>().complete(labels)
/// # }
/// ```
pub trait ObjectReconciler<K>: Send + Sync + 'static {
    /// Reconciles an object. The future may be dropped at any await point, after a timeout or when leadership is lost.
    fn reconcile(&self, object: Arc<K>) -> impl Future<Output = Result<Action, ReconcileError>> + Send;
}

impl<K, F, Fut, E> ObjectReconciler<K> for F
where
    F: Fn(Arc<K>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send,
    E: Into<ReconcileError>,
    K: Send + Sync + 'static,
{
    fn reconcile(&self, object: Arc<K>) -> impl Future<Output = Result<Action, ReconcileError>> + Send {
        let working = self(object);
        async { working.await.map_err(Into::into) }
    }
}

/// An [`ObjectReconciler`] together with a lister of its objects; see [`as_reconciler`].
pub struct AsReconciler<K, C> {
    lister: Lister<K>,
    reconciler: C,
}

/// Converts an object reconciler to a [`Reconciler`] (controller-runtime's `AsReconciler`). Objects are read from
/// `lister`; keys without an object are ignored. If an object cannot be decoded, the reconcile fails with a terminal
/// error.
pub fn as_reconciler<K, C>(lister: Lister<K>, reconciler: C) -> AsReconciler<K, C>
where
    K: Cacheable,
    C: ObjectReconciler<K>,
{
    AsReconciler { lister, reconciler }
}

impl<K, C> Reconciler for AsReconciler<K, C>
where
    K: Cacheable,
    C: ObjectReconciler<K>,
{
    async fn reconcile(&self, request: Request) -> Result<Action, ReconcileError> {
        match self.lister.get(&request.key) {
            Some(object) => {
                let object = object.typed().map_err(ReconcileError::terminal)?;
                self.reconciler.reconcile(object).await
            }
            None => Ok(Action::await_change()),
        }
    }
}

impl<K, C> fmt::Debug for AsReconciler<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsReconciler")
            .field("lister", &self.lister)
            .finish_non_exhaustive()
    }
}
