//! `Webhooks`: the admission and conversion webhooks of a process, and the objects that register them with an API
//! server.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::Request;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::conversion::Conversion;
use super::defaulter::{self, Defaulter};
use super::endpoint::{Deciding, Endpoint, What};
use super::review::AdmissionRequest;
use super::span::SpanOf;
use super::stats::Stats;
use super::validator::{self, Validator};
use crate::Error;
use crate::metrics::{Collect, Metrics};

/// Path of the conversions of all types.
const CONVERT: &str = "/convert";

/// Default maximum length of a conversion review in bytes: sufficient for a page of 500 objects of the maximum size in
/// etcd.
const CONVERSION_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// The admission and conversion webhooks of a process (controller-runtime's `webhook.Server` and its builder).
///
/// ```
/// use informer::webhook::{AdmissionRequest, Denial, Webhooks};
/// use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use testkit::{TestCluster, objects::config_map};
///
/// fn colored(_: Option<&ConfigMap>, map: Option<&ConfigMap>, _: &AdmissionRequest) -> Result<Vec<String>, Denial> {
///     match map.and_then(|map| map.data.as_ref()) {
///         Some(data) if data.contains_key("color") => Ok(Vec::new()),
///         _ => Err(Denial::new("a color is required")),
///     }
/// }
///
/// fn sized(map: &mut ConfigMap, _: &AdmissionRequest) -> Result<(), Denial> {
///     map.data.get_or_insert_default().entry("size".into()).or_insert("big".into());
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), informer::Error> {
/// let webhooks = Webhooks::new().validate::<ConfigMap>(colored)?.mutate::<ConfigMap>(sized)?;
/// // In a program `WebhookServer` serves them over TLS; a test calls them in process.
/// let at = WebhookClientConfig { url: Some("https://webhooks.shop".into()), ..WebhookClientConfig::default() };
/// let cluster = TestCluster::start();
/// cluster.webhooks(webhooks.service(), webhooks.configurations("shop", &at)).await;
///
/// cluster.create(config_map("settings").data("color", "red")).await;
/// assert_eq!(cluster.get(config_map("settings")).data("size"), Some("big"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Webhooks {
    endpoints: Vec<Endpoint>,
    conversions: Vec<Conversion>,
    validating: Vec<ValidatingWebhook>,
    mutating: Vec<MutatingWebhook>,
    conversion_stats: Option<Arc<Stats>>,
    longest_conversion: Option<usize>,
    /// Function that creates the spans of admission requests. Default: `None`, which creates the default span.
    span: Option<SpanOf>,
}

/// Group, version, kind and plural of a type.
struct Names {
    group: String,
    version: String,
    plural: String,
    kind: String,
}

impl Names {
    fn of<K: Resource>(resource: &K::DynamicType) -> Self {
        Self {
            group: K::group(resource).into_owned(),
            version: K::version(resource).into_owned(),
            plural: K::plural(resource).into_owned(),
            kind: K::kind(resource).into_owned(),
        }
    }

    /// Returns the path that controller-runtime uses for the type, such as `/validate-apps-v1-deployment`.
    fn path(&self, verb: &str) -> String {
        let group = self.group.replace('.', "-");
        format!("/{verb}-{group}-{}-{}", self.version, self.kind.to_lowercase())
    }

    /// Returns a webhook name such as `validate.deployments.v1.apps`.
    fn name(&self, verb: &str) -> String {
        let group = if self.group.is_empty() { "core" } else { &self.group };
        format!("{verb}.{}.{}.{group}", self.plural, self.version)
    }

    fn rules(&self) -> Vec<RuleWithOperations> {
        vec![RuleWithOperations {
            api_groups: Some(vec![self.group.clone()]),
            api_versions: Some(vec![self.version.clone()]),
            operations: Some(vec!["CREATE".into(), "UPDATE".into()]),
            resources: Some(vec![self.plural.clone()]),
            scope: None,
        }]
    }
}

/// Returns a client configuration that contains only a path. [`Webhooks::configurations`] adds the host.
fn at(path: String) -> WebhookClientConfig {
    WebhookClientConfig {
        url: Some(path),
        ..WebhookClientConfig::default()
    }
}

impl Webhooks {
    /// Creates an empty set of webhooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a validator for creations and updates of a type, at `/validate-GROUP-VERSION-KIND`.
    ///
    /// # Errors
    ///
    /// Fails if the type already has a validator.
    pub fn validate<K>(self, validator: impl Validator<K>) -> Result<Self, Error>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        self.validate_with(validator, |_| {})
    }

    /// Same as [`validate`](Self::validate). `change` modifies the configuration of the webhook, such as operations,
    /// selectors and the failure policy.
    ///
    /// # Errors
    ///
    /// Fails if the type already has a validator.
    pub fn validate_with<K>(
        self,
        validator: impl Validator<K>,
        change: impl FnOnce(&mut ValidatingWebhook),
    ) -> Result<Self, Error>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        self.add_validator(&Names::of::<K>(&()), validator, change)
    }

    /// Adds a validator for a resource without a Rust type.
    ///
    /// # Errors
    ///
    /// Fails if the type already has a validator.
    pub fn validate_dynamic(
        self,
        resource: &ApiResource,
        validator: impl Validator<DynamicObject>,
    ) -> Result<Self, Error> {
        self.add_validator(&Names::of::<DynamicObject>(resource), validator, |_| {})
    }

    /// Adds a defaulter for creations and updates of a type, at `/mutate-GROUP-VERSION-KIND`.
    ///
    /// # Errors
    ///
    /// Fails if the type already has a defaulter.
    pub fn mutate<K>(self, defaulter: impl Defaulter<K>) -> Result<Self, Error>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + Sync + 'static,
    {
        self.mutate_with(defaulter, |_| {})
    }

    /// Same as [`mutate`](Self::mutate). `change` modifies the configuration of the webhook.
    ///
    /// # Errors
    ///
    /// Fails if the type already has a defaulter.
    pub fn mutate_with<K>(
        self,
        defaulter: impl Defaulter<K>,
        change: impl FnOnce(&mut MutatingWebhook),
    ) -> Result<Self, Error>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + Sync + 'static,
    {
        self.add_defaulter(&Names::of::<K>(&()), defaulter, change)
    }

    /// Adds a defaulter for a resource without a Rust type.
    ///
    /// # Errors
    ///
    /// Fails if the type already has a defaulter.
    pub fn mutate_dynamic(
        self,
        resource: &ApiResource,
        defaulter: impl Defaulter<DynamicObject>,
    ) -> Result<Self, Error> {
        self.add_defaulter(&Names::of::<DynamicObject>(resource), defaulter, |_| {})
    }

    /// Adds conversions between the versions of a custom resource, at `/convert`.
    #[must_use]
    pub fn convert<H>(mut self, conversion: Conversion<H>) -> Self
    where
        H: Resource<DynamicType = ()> + DeserializeOwned + Serialize + 'static,
    {
        self.conversion_stats
            .get_or_insert_with(|| Arc::new(Stats::new(CONVERT)));
        self.conversions.push(conversion.erased());
        self
    }

    /// Sets the function that creates the `tracing` span of each admission request (controller-runtime's
    /// `WithLogConstructor`).
    ///
    /// Default: a span `admission` of level ERROR and target `informer::webhook` with the fields `path`, `uid`,
    /// `operation`, `group`, `version`, `resource`, `subresource`, `namespace`, `name`, `user` and `dry_run`. Its
    /// parent is the span in which the service is called. Conversions have a span `conversion` with `uid` and
    /// `desired_version`. If the function panics, the panic is logged, and the request is handled without a span.
    #[must_use]
    pub fn span(mut self, span: impl Fn(&AdmissionRequest) -> tracing::Span + Send + Sync + 'static) -> Self {
        self.span = Some(Arc::new(span));
        self
    }

    /// Sets the maximum length of a conversion review in bytes. Default: 1 GiB, because the server converts all objects
    /// of a page in one request. Longer reviews are refused. controller-runtime does not have such a limit.
    #[must_use]
    pub fn longest_conversion(mut self, bytes: usize) -> Self {
        self.longest_conversion = Some(bytes);
        self
    }

    /// Registers metrics, named `controller_runtime_webhook_…`, for all webhooks that have already been added.
    #[must_use]
    pub fn metrics(self, metrics: &Metrics) -> Self {
        let all = self.endpoints.iter().map(|it| &it.stats).chain(&self.conversion_stats);
        for stats in all {
            let collector: Arc<dyn Collect> = stats.clone();
            metrics.register(&collector);
        }
        self
    }

    /// Returns the webhooks as an axum [`Router`](crate::webhook::Router), which does not need a socket.
    pub fn service(&self) -> Router {
        let conversions: Arc<[Conversion]> = self.conversions.iter().cloned().collect();
        let convert = self.conversion_stats.as_ref().map(|stats| Endpoint {
            path: CONVERT.to_owned(),
            stats: Arc::clone(stats),
            what: What::Conversion(conversions, self.longest_conversion.unwrap_or(CONVERSION_BYTES_MAX)),
            span: None,
        });
        let endpoints = self.endpoints.iter().cloned().map(|endpoint| Endpoint {
            span: self.span.clone(),
            ..endpoint
        });
        let endpoints = endpoints.chain(convert);
        endpoints.fold(Router::new(), |router, endpoint| {
            let path = endpoint.path.clone();
            router.route(
                &path,
                post(move |request: Request<Body>| endpoint.clone().answer(request)),
            )
        })
    }

    /// Returns the objects that register these webhooks at `server` with an API server: a
    /// `ValidatingWebhookConfiguration` and a `MutatingWebhookConfiguration`, both named `name`, and a
    /// CustomResourceDefinition with only `spec.conversion` for each conversion. The objects are suitable for
    /// server-side apply; [`install`](Self::install) applies them.
    ///
    /// `server` contains a service, or a URL without a path, and the `caBundle` for its certificate.
    pub fn configurations(&self, name: &str, server: &WebhookClientConfig) -> Vec<Value> {
        let mut all = Vec::new();
        if !self.mutating.is_empty() {
            let mut configuration = MutatingWebhookConfiguration::default();
            configuration.metadata.name = Some(name.to_owned());
            let webhooks = self.mutating.iter().cloned().map(|mut webhook| {
                webhook.client_config = joined(server, &webhook.client_config);
                webhook
            });
            configuration.webhooks = Some(webhooks.collect());
            all.extend(serde_json::to_value(configuration));
        }
        if !self.validating.is_empty() {
            let mut configuration = ValidatingWebhookConfiguration::default();
            configuration.metadata.name = Some(name.to_owned());
            let webhooks = self.validating.iter().cloned().map(|mut webhook| {
                webhook.client_config = joined(server, &webhook.client_config);
                webhook
            });
            configuration.webhooks = Some(webhooks.collect());
            all.extend(serde_json::to_value(configuration));
        }
        for conversion in &self.conversions {
            all.push(json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{}.{}", conversion.plural, conversion.group)},
                "spec": {"conversion": {
                    "strategy": "Webhook",
                    "webhook": {
                        "clientConfig": joined(server, &at(CONVERT.to_owned())),
                        "conversionReviewVersions": ["v1"],
                    },
                }},
            }));
        }
        all
    }

    /// Applies the [`configurations`](Self::configurations) with `name` as the field manager. The
    /// CustomResourceDefinitions must exist.
    ///
    /// # Errors
    ///
    /// Fails if a request fails.
    pub async fn install(&self, client: &Client, name: &str, server: &WebhookClientConfig) -> Result<(), Error> {
        for object in self.configurations(name, server) {
            let (kind, group) = match object["kind"].as_str() {
                Some("CustomResourceDefinition") => ("CustomResourceDefinition", "apiextensions.k8s.io"),
                Some("MutatingWebhookConfiguration") => {
                    ("MutatingWebhookConfiguration", "admissionregistration.k8s.io")
                }
                Some(_) | None => ("ValidatingWebhookConfiguration", "admissionregistration.k8s.io"),
            };
            let resource = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, "v1", kind));
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let named = object["metadata"]["name"].as_str().unwrap_or_default();
            let params = PatchParams::apply(name).force();
            api.patch(named, &params, &Patch::Apply(&object)).await?;
        }
        Ok(())
    }

    fn add_validator<K>(
        mut self,
        names: &Names,
        validator: impl Validator<K>,
        change: impl FnOnce(&mut ValidatingWebhook),
    ) -> Result<Self, Error>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        let validator = Arc::new(validator);
        let path = self.add(
            names.path("validate"),
            Arc::new(move |request| {
                let validator = Arc::clone(&validator);
                Box::pin(async move { validator::validate(&*validator, &request).await })
            }),
        )?;
        let mut webhook = ValidatingWebhook {
            name: names.name("validate"),
            admission_review_versions: vec!["v1".into()],
            client_config: at(path),
            rules: Some(names.rules()),
            side_effects: "None".into(),
            ..ValidatingWebhook::default()
        };
        change(&mut webhook);
        self.validating.push(webhook);
        Ok(self)
    }

    fn add_defaulter<K>(
        mut self,
        names: &Names,
        defaulter: impl Defaulter<K>,
        change: impl FnOnce(&mut MutatingWebhook),
    ) -> Result<Self, Error>
    where
        K: DeserializeOwned + Serialize + Send + Sync + 'static,
    {
        let defaulter = Arc::new(defaulter);
        let path = self.add(
            names.path("mutate"),
            Arc::new(move |request| {
                let defaulter = Arc::clone(&defaulter);
                Box::pin(async move { defaulter::default(&*defaulter, &request).await })
            }),
        )?;
        let mut webhook = MutatingWebhook {
            name: names.name("mutate"),
            admission_review_versions: vec!["v1".into()],
            client_config: at(path),
            rules: Some(names.rules()),
            side_effects: "None".into(),
            ..MutatingWebhook::default()
        };
        change(&mut webhook);
        self.mutating.push(webhook);
        Ok(self)
    }

    fn add(&mut self, path: String, decide: Deciding) -> Result<String, Error> {
        if self.endpoints.iter().any(|it| it.path == path) {
            return Err(Error::refused(format!("webhooks: the path {path} is already in use")));
        }
        self.endpoints.push(Endpoint {
            path: path.clone(),
            stats: Arc::new(Stats::new(&path)),
            what: What::Admission(decide),
            span: None,
        });
        Ok(path)
    }
}

/// Adds the host in `server` to the path in `webhook`. If `webhook` already contains a complete address, returns
/// `webhook` unchanged.
fn joined(server: &WebhookClientConfig, webhook: &WebhookClientConfig) -> WebhookClientConfig {
    let path = match &webhook.url {
        Some(path) if path.starts_with('/') => path,
        Some(_) | None => return webhook.clone(),
    };
    let mut config = server.clone();
    if let Some(service) = &mut config.service {
        service.path = Some(path.clone());
    }
    config.url = config.url.map(|url| format!("{}{path}", url.trim_end_matches('/')));
    config
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.endpoints.iter().map(|it| &it.path).collect();
        f.debug_struct("Webhooks")
            .field("paths", &paths)
            .field("conversions", &self.conversions)
            .finish()
    }
}
