//! `serviceaccounts/token`: responds to a TokenRequest with a token for the ServiceAccount (rule I5).

use jiff::{SignedDuration, Timestamp};

use super::{SubresourceRequest, text_at, value_at};
use crate::api::field::{FieldErrors, FieldPath, quote};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::api::request_info::RequestInfo;
use crate::api::resource::{GroupKind, GroupResource};
use crate::api::status::Status;
use crate::entropy;
use crate::registry::Registry;
use crate::registry::answer::{Answer, Written};
use crate::registry::kinds::metadata;
use crate::registry::managed_fields::{self, Manager, Types};
use crate::registry::types::decode::Wanted;
use crate::registry::types::schema::SchemaRef;
use crate::registry::types::schema::builtin::{self, Shape};

const GROUP: &str = "authentication.k8s.io";
const API_VERSION: &str = "authentication.k8s.io/v1";
const KIND: &str = "TokenRequest";

/// Audit annotation that identifies the token.
const CREDENTIAL: &str = "authentication.kubernetes.io/issued-credential-id";

/// Default lifetime of a token, in seconds.
const DEFAULT_SECONDS: i64 = 60 * 60;
/// Minimum lifetime of a token, in seconds.
const MIN_SECONDS: i64 = 10 * 60;
/// Maximum lifetime of a token, in seconds.
const MAX_SECONDS: i64 = 1 << 32;

/// The lifetime in seconds that kubelets request for tokens projected into Pods.
const EXTENDED_FROM: i64 = 60 * 60 + 7;
/// Lifetime, in seconds, of tokens for Pods if the requested lifetime is [`EXTENDED_FROM`]
/// (`--service-account-extend-token-expiration`).
const EXTENDED_TO: i64 = 365 * 24 * 60 * 60;

impl Registry {
    pub(super) async fn request_token(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let options = request.write_options()?;
        let shape = builtin::shape_of(GROUP, "v1", KIND);
        let wanted = Wanted {
            group: GROUP,
            version: "v1",
            kind: KIND,
            shape,
        };
        let mut decoded = request.read(request.object.clone(), wanted, &options)?;
        request.remarks.warnings.extend(std::mem::take(&mut decoded.warnings));
        metadata::fill_namespace(&mut decoded.object, &request.info.namespace)?;
        let RequestInfo { namespace, name, .. } = request.info;
        self.reader
            .check_namespace_of(request.row, "serviceaccounts", (namespace, name))?;
        check_name(&decoded.object, name)?;
        let stored = self.reader.get(request.row, request.info, "").await?;
        let account = self.reader.decode(request.row, &stored);
        let asked = &mut decoded.object;
        default_lifetime(asked);
        let now = self.reader.entropy.now_seconds();
        let write = request.write(&options);
        track(asked, shape, &write.manager_name(), &now);
        *asked = self.admission.mutate_posted(&write, std::mem::take(asked)).await?;
        complete(asked, &account, self.access.tokens.audiences(), &now)?;
        let lifetime = check(asked)?;
        *asked = self.admission.check_posted(&write, std::mem::take(asked)).await?;
        let bound = self.bound_object(asked, &account)?;

        let after = |seconds| {
            let time = self
                .reader
                .entropy
                .now()
                .saturating_add(SignedDuration::from_secs(seconds));
            time.unwrap_or(Timestamp::MAX)
        };
        let end = after(lifetime);
        let audiences = self.access.tokens.audiences();
        let claims = match lifetime == EXTENDED_FROM && is_for_pod(&bound) && is_among(asked, audiences) {
            // The token is valid for a year. The claim `warnafter` contains the end of the requested lifetime.
            true => {
                let mut claims = self.claims(asked, &account, &bound, after(EXTENDED_TO));
                claims["kubernetes.io"]["warnafter"] = end.as_second().into();
                claims
            }
            false => self.claims(asked, &account, &bound, end),
        };
        request.remarks.annotations.add(CREDENTIAL, || {
            format!("JTI={}", claims["jti"].as_str().unwrap_or_default())
        });
        let token = self.access.tokens.sign(&claims).map_err(Status::internal)?;
        asked.insert(
            "status".into(),
            json!({"token": token, "expirationTimestamp": entropy::seconds(end)}),
        );
        Ok(Written {
            answer: Answer::Object(decoded.object),
            code: 201,
        })
    }

    /// Creates the claims of a token.
    fn claims(&self, asked: &Object, account: &Object, bound: &[(&'static str, Value)], end: Timestamp) -> Value {
        let now = self.reader.entropy.now().as_second();
        let mut kubernetes = json!({
            "namespace": account.namespace(), "serviceaccount": {"name": account.name(), "uid": account.uid()},
        });
        for (kind, reference) in bound {
            kubernetes[*kind] = reference.clone();
        }
        json!({
            "aud": value_at(asked, &["spec", "audiences"]),
            "exp": end.as_second(), "iat": now, "nbf": now,
            "iss": self.access.tokens.issuer(), "jti": self.reader.entropy.uid(),
            "kubernetes.io": kubernetes,
            "sub": format!("system:serviceaccount:{}:{}", account.namespace(), account.name()),
        })
    }

    /// Returns the object to which the token is bound, and the Node of a Pod, each with the name of its claim.
    fn bound_object(&self, asked: &Object, account: &Object) -> Result<Vec<(&'static str, Value)>, Status> {
        let at = |field: &str| text_at(asked, &["spec", "boundObjectRef", field]);
        if value_at(asked, &["spec", "boundObjectRef"]).is_none_or(Value::is_null) {
            return Ok(Vec::new());
        }
        let (api_version, kind, name) = (at("apiVersion"), at("kind"), at("name"));
        // A malformed apiVersion is treated as empty.
        let (group, version) = match api_version.split_once('/') {
            Some((_, version)) if version.contains('/') => ("", ""),
            Some(both) => both,
            None => ("", api_version),
        };
        let (claim, resource, namespace) = match (group, kind) {
            ("", "Pod") => ("pod", "pods", account.namespace()),
            ("", "Secret") => ("secret", "secrets", account.namespace()),
            ("", "Node") => ("node", "nodes", ""),
            _ => {
                let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
                return Err(Status::bad_request(why));
            }
        };
        let about = |resource: &str| GroupResource {
            group: "".into(),
            resource: resource.to_owned().into(),
        };
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        let found = self.reader.stored_object(resource, namespace, name);
        let found = found.ok_or_else(|| Status::not_found(&about(resource), name))?;
        if kind == "Pod" && text_at(&found, &["spec", "serviceAccountName"]) != account.name() {
            let why = format!(
                "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                quote(account.name())
            );
            return Err(Status::bad_request(why));
        }
        if !at("uid").is_empty() && at("uid") != found.uid() {
            let why = format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The object might have \
                 been deleted and then recreated",
                at("uid")
            );
            return Err(Status::conflict(&about(kind), name, why));
        }
        let mut bound = vec![(claim, json!({"name": name, "uid": found.uid()}))];
        let node = text_at(&found, &["spec", "nodeName"]);
        if kind == "Pod" && !node.is_empty() {
            let mut reference = json!({"name": node});
            if let Some(node) = self.reader.stored_object("nodes", "", node) {
                reference["uid"] = node.uid().into();
            }
            bound.push(("node", reference));
        }
        Ok(bound)
    }
}

fn is_for_pod(bound: &[(&'static str, Value)]) -> bool {
    bound.iter().any(|(claim, _)| *claim == "pod")
}

/// Returns `true` if all requested audiences are audiences of the server.
fn is_among(asked: &Object, audiences: &[String]) -> bool {
    let wanted = value_at(asked, &["spec", "audiences"]).and_then(Value::as_array);
    let is_own = |it: &Value| audiences.iter().any(|own| it == own);
    wanted.is_some_and(|wanted| wanted.iter().all(is_own))
}

/// Adds the managed fields, as for every created object.
fn track(asked: &mut Object, shape: Option<&'static Shape>, manager: &str, now: &str) {
    let types = Types {
        schema: shape.map_or(SchemaRef::Deduced, SchemaRef::Builtin),
        other: &managed_fields::single_version,
    };
    let manager = Manager {
        name: manager,
        api_version: API_VERSION,
        subresource: "token",
        time: now,
        reset: &[],
    };
    managed_fields::track_update(&types, None, asked, &manager);
}

/// Checks the name and the uid in the request, and fills in the fields that it does not set.
fn complete(asked: &mut Object, account: &Object, audiences: &[String], now: &str) -> Result<(), Status> {
    check_name(asked, account.name())?;
    if !asked.uid().is_empty() && asked.uid() != account.uid() {
        let about = GroupResource {
            group: GROUP.into(),
            resource: KIND.into(),
        };
        let why = format!(
            "the UID in the token request ({}) does not match the UID of the service account ({})",
            asked.uid(),
            account.uid()
        );
        return Err(Status::conflict(&about, account.name(), why));
    }
    let metadata = asked.metadata_mut();
    metadata.insert("name".into(), account.name().into());
    metadata.insert("uid".into(), account.uid().into());
    metadata.insert("creationTimestamp".into(), now.into());
    let spec = asked.entry("spec").or_insert_with(|| json!({}));
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        spec["audiences"] = json!(audiences);
    }
    if spec.get("boundObjectRef").is_none() {
        spec["boundObjectRef"] = Value::Null;
    }
    Ok(())
}

/// Checks that the name in a request, if set, is the name of the ServiceAccount.
fn check_name(asked: &Object, name: &str) -> Result<(), Status> {
    if asked.name().is_empty() || asked.name() == name {
        return Ok(());
    }
    let mut errors = FieldErrors::new();
    let why = "must match the service account name if specified";
    errors.invalid(FieldPath::new("metadata").child("name"), asked.name(), why);
    Err(Status::invalid(&kind(), name, &errors))
}

/// Sets the default lifetime. Called before managed fields are recorded, so that the client's manager owns the field.
fn default_lifetime(asked: &mut Object) {
    let spec = asked.entry("spec").or_insert_with(|| json!({}));
    if spec["expirationSeconds"].is_null() {
        spec["expirationSeconds"] = DEFAULT_SECONDS.into();
    }
}

fn kind() -> GroupKind {
    GroupKind {
        group: GROUP.into(),
        kind: KIND.into(),
    }
}

/// Returns the requested lifetime in seconds, if it is valid.
fn check(asked: &Object) -> Result<i64, Status> {
    let seconds = value_at(asked, &["spec", "expirationSeconds"]).and_then(Value::as_i64);
    let seconds = seconds.unwrap_or(DEFAULT_SECONDS);
    let mut errors = FieldErrors::new();
    let path = FieldPath::new("spec").child("expirationSeconds");
    if seconds < MIN_SECONDS {
        errors.invalid(path, seconds, "may not specify a duration less than 10 minutes");
    } else if seconds > MAX_SECONDS {
        errors.invalid(path, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    if errors.is_empty() {
        Ok(seconds)
    } else {
        Err(Status::invalid(&kind(), "", &errors))
    }
}
