//! `Validator`: accepts or refuses writes of objects.

use serde::de::DeserializeOwned;

use super::denial::Denial;
use super::endpoint::decode;
use super::review::{AdmissionRequest, AdmissionResponse, Operation};

/// Accepts or refuses writes of objects of one type (controller-runtime's `admission.Validator`).
///
/// A validator returns warnings for the client, or a [`Denial`], which refuses the write. Implemented for all
/// `Fn(Option<&K>, Option<&K>, &AdmissionRequest) -> Result<Vec<String>, Denial>`. The first argument is the old
/// object, for updates and deletions. The second argument is the new object, for creations and updates.
///
/// ```
/// use informer::webhook::{AdmissionRequest, Denial, Validator};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// struct Immutable;
///
/// impl Validator<ConfigMap> for Immutable {
///     async fn validate_update(
///         &self,
///         old: &ConfigMap,
///         new: &ConfigMap,
///         _: &AdmissionRequest,
///     ) -> Result<Vec<String>, Denial> {
///         if old.data != new.data {
///             return Err(Denial::invalid("data: field is immutable"));
///         }
///         Ok(Vec::new())
///     }
/// }
/// ```
pub trait Validator<K: Sync>: Send + Sync + 'static {
    /// Validates the creation of an object. The default implementation accepts it.
    fn validate_create(
        &self,
        object: &K,
        request: &AdmissionRequest,
    ) -> impl Future<Output = Result<Vec<String>, Denial>> + Send {
        let _ = (object, request);
        async { Ok(Vec::new()) }
    }

    /// Validates an update of an object. The default implementation accepts it.
    fn validate_update(
        &self,
        old: &K,
        new: &K,
        request: &AdmissionRequest,
    ) -> impl Future<Output = Result<Vec<String>, Denial>> + Send {
        let _ = (old, new, request);
        async { Ok(Vec::new()) }
    }

    /// Validates the deletion of an object. The default implementation accepts it. Only called if the webhook's rules
    /// include DELETE.
    fn validate_delete(
        &self,
        object: &K,
        request: &AdmissionRequest,
    ) -> impl Future<Output = Result<Vec<String>, Denial>> + Send {
        let _ = (object, request);
        async { Ok(Vec::new()) }
    }
}

impl<K, F> Validator<K> for F
where
    K: Sync,
    F: Fn(Option<&K>, Option<&K>, &AdmissionRequest) -> Result<Vec<String>, Denial> + Send + Sync + 'static,
{
    async fn validate_create(&self, object: &K, request: &AdmissionRequest) -> Result<Vec<String>, Denial> {
        self(None, Some(object), request)
    }

    async fn validate_update(&self, old: &K, new: &K, request: &AdmissionRequest) -> Result<Vec<String>, Denial> {
        self(Some(old), Some(new), request)
    }

    async fn validate_delete(&self, object: &K, request: &AdmissionRequest) -> Result<Vec<String>, Denial> {
        self(Some(object), None, request)
    }
}

/// Calls the method of a validator for the request's operation.
pub(super) async fn validate<K>(
    validator: &impl Validator<K>,
    request: &AdmissionRequest,
) -> Result<AdmissionResponse, Denial>
where
    K: DeserializeOwned + Send + Sync,
{
    let warnings = match request.operation {
        Operation::Create => {
            let object: K = decode(&request.object)?;
            validator.validate_create(&object, request).await?
        }
        Operation::Update => {
            let (old, new): (K, K) = (decode(&request.old_object)?, decode(&request.object)?);
            validator.validate_update(&old, &new, request).await?
        }
        Operation::Delete => {
            let old: K = decode(&request.old_object)?;
            validator.validate_delete(&old, request).await?
        }
        Operation::Connect => Vec::new(),
    };
    Ok(AdmissionResponse {
        warnings,
        ..AdmissionResponse::allowed()
    })
}
