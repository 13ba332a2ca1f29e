//! Virtual resources: a POST computes a response without storing an object.

use super::{review_selectors, text_at, value_at};
use crate::api::field::{FieldErrors, FieldPath, quote};
use crate::api::json::{SmolStr, Value, json};
use crate::api::object::Object;
use crate::api::rbac::{Attributes, PolicyRule};
use crate::api::resource::GroupKind;
use crate::api::status::Status;
use crate::api::user::UserInfo;
use crate::registry::answer::{Answer, Written};
use crate::registry::authentication::TokenVerdict;
use crate::registry::kinds::metadata;
use crate::registry::request::WriteRequest;
use crate::registry::scheme::body::Decoded;
use crate::registry::types::cursor::Cursor;
use crate::registry::{Registry, managed_fields};

impl Registry {
    /// Handles a POST of a virtual resource (rule Q3).
    pub(crate) fn review(&self, request: &WriteRequest<'_>, decoded: Decoded) -> Result<Written, Status> {
        let row = request.row;
        let Decoded {
            mut object, warnings, ..
        } = decoded;
        request.remarks.warnings.extend(warnings);
        metadata::fill_namespace(&mut object, &request.info.namespace)?;
        let resource = &*row.info.resource;
        if row.info.group == "authorization.k8s.io" && resource != "selfsubjectrulesreviews" {
            check_review(&object, resource)?;
        }
        let now = self.reader.entropy.now_seconds();
        let name = request.manager_name();
        let manager = request.manager(&name, &now);
        request.with_types(|types| managed_fields::track_update(types, None, &mut object, &manager));
        let status = match resource {
            "selfsubjectaccessreviews" => self.reviewed(&object, request.user),
            "subjectaccessreviews" | "localsubjectaccessreviews" => self.reviewed(&object, &subject(&object)),
            "selfsubjectrulesreviews" => {
                let status = self.rules_reviewed(&object, request.user)?;
                // The response does not contain the request's spec and metadata.
                object.insert("spec".into(), json!({}));
                object.insert("metadata".into(), json!({}));
                status
            }
            "selfsubjectreviews" => {
                // In this review, metadata has a field that the server sets.
                object.insert("metadata".into(), json!({"creationTimestamp": now}));
                json!({"userInfo": user_value(request.user)})
            }
            "tokenreviews" => self.token_reviewed(&object)?,
            _ => {
                let why = format!("the fake API server does not serve {}", row.info.group_resource());
                return Err(Status::new(501, "NotImplemented", why));
            }
        };
        object.insert("status".into(), status);
        object.metadata_mut();
        Ok(Written {
            answer: Answer::Object(object),
            code: 201,
        })
    }

    /// Computes the status of an access review for `user`.
    fn reviewed(&self, review: &Object, user: &UserInfo) -> Value {
        let text = |path: &[&str]| text_at(review, &[&["spec"][..], path].concat());
        let request = match value_at(review, &["spec", "resourceAttributes"]) {
            Some(_) => {
                let field = |name: &'static str| text(&["resourceAttributes", name]);
                Attributes {
                    verb: field("verb"),
                    group: field("group"),
                    resource: field("resource"),
                    subresource: field("subresource"),
                    namespace: field("namespace"),
                    name: field("name"),
                    path: "",
                }
            }
            None => Attributes {
                verb: text(&["nonResourceAttributes", "verb"]),
                path: text(&["nonResourceAttributes", "path"]),
                ..Attributes::default()
            },
        };
        let decision = self.authorization.decide(user, &request);
        let mut status = json!({"allowed": decision.is_allowed});
        if !decision.reason.is_empty() {
            status["reason"] = decision.reason.into();
        }
        let unread = review_selectors::evaluation_error(&Cursor::root(review).at("spec.resourceAttributes"));
        if !unread.is_empty() {
            status["evaluationError"] = unread.into();
        }
        status
    }

    /// Computes the rules that apply to a user in a namespace.
    fn rules_reviewed(&self, review: &Object, user: &UserInfo) -> Result<Value, Status> {
        let namespace = text_at(review, &["spec", "namespace"]);
        if namespace.is_empty() {
            return Err(Status::bad_request("no namespace on request"));
        }
        let (rules, errors) = self.authorization.rules_of(user, namespace);
        let (paths, resources): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| !rule.non_resource_urls.is_empty());
        let values = |rules: Vec<&PolicyRule>| rules.into_iter().map(PolicyRule::to_value).collect::<Vec<_>>();
        let mut status = json!({
            "resourceRules": values(resources), "nonResourceRules": values(paths), "incomplete": !errors.is_empty(),
        });
        if !errors.is_empty() {
            status["evaluationError"] = errors.join(", ").into();
        }
        Ok(status)
    }

    /// Computes the status of a TokenReview.
    fn token_reviewed(&self, review: &Object) -> Result<Value, Status> {
        let token = text_at(review, &["spec", "token"]);
        if token.is_empty() {
            return Err(Status::bad_request(
                "token is required for TokenReview in authentication",
            ));
        }
        let audiences = strings(review, &["spec", "audiences"]);
        let asked: Vec<&str> = audiences.iter().map(String::as_str).collect();
        Ok(match self.judge_token(token, &asked) {
            TokenVerdict::User(user, audiences) => {
                json!({"authenticated": true, "user": user_value(&user), "audiences": audiences})
            }
            TokenVerdict::Unknown(why) => json!({"user": {}, "error": why}),
        })
    }
}

/// Returns the user in a SubjectAccessReview.
fn subject(review: &Object) -> UserInfo {
    let extra = value_at(review, &["spec", "extra"]).and_then(Value::as_object);
    let extra = extra.into_iter().flatten().map(|(key, values)| {
        let values = values.as_array().into_iter().flatten().filter_map(Value::as_str);
        (key.to_string(), values.map(str::to_owned).collect())
    });
    UserInfo {
        name: text_at(review, &["spec", "user"]).to_owned(),
        groups: strings(review, &["spec", "groups"]),
        uid: text_at(review, &["spec", "uid"]).to_owned(),
        extra: extra.collect(),
    }
}

/// Returns the strings in a list.
fn strings(object: &Object, path: &[&str]) -> Vec<String> {
    let list = value_at(object, path).and_then(Value::as_array);
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// Encodes `user` as an `authentication/v1.UserInfo`, without empty fields.
fn user_value(user: &UserInfo) -> Value {
    let mut value = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        value["uid"] = user.uid.as_str().into();
    }
    if user.groups.is_empty()
        && let Some(map) = value.as_object_mut()
    {
        map.remove("groups");
    }
    if !user.extra.is_empty() {
        value["extra"] = json!(user.extra);
    }
    value
}

/// Validates an access review. It must contain either a resource or a path and, unless it is a SelfSubjectAccessReview,
/// a user or a group.
fn check_review(review: &Object, resource: &str) -> Result<(), Status> {
    let attributes = |name: &str| value_at(review, &["spec", name]).is_some();
    let spec = FieldPath::new("spec");
    let mut errors = FieldErrors::new();
    let (is_resource, is_path) = (attributes("resourceAttributes"), attributes("nonResourceAttributes"));
    if is_resource && is_path {
        let why = "cannot be specified in combination with resourceAttributes";
        metadata::invalid_printed(
            spec.child("nonResourceAttributes"),
            &printed_path(review),
            why,
            &mut errors,
        );
    }
    if !is_resource && !is_path {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.invalid(spec.child("resourceAttributes"), Value::Null, why);
    }
    let user = text_at(review, &["spec", "user"]);
    if resource != "selfsubjectaccessreviews" && user.is_empty() && strings(review, &["spec", "groups"]).is_empty() {
        let why = "at least one of user or group must be specified";
        errors.invalid(spec.child("user"), user, why);
    }
    review_selectors::validate(&Cursor::root(review).at("spec.resourceAttributes"), &mut errors);
    validate_metadata(review, resource, &mut errors);
    if resource == "localsubjectaccessreviews" {
        let namespace = text_at(review, &["spec", "resourceAttributes", "namespace"]);
        if is_resource && namespace != review.namespace() {
            let path = spec.child("resourceAttributes").child("namespace");
            errors.invalid(path, namespace, "must match metadata.namespace");
        }
        if is_path {
            let why = "disallowed on this kind of request";
            metadata::invalid_printed(
                spec.child("nonResourceAttributes"),
                &printed_path(review),
                why,
                &mut errors,
            );
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    // kube-apiserver omits the kind in this error.
    let kind = GroupKind {
        group: "authorization.k8s.io".into(),
        kind: "".into(),
    };
    Err(Status::invalid(&kind, "", &errors))
}

/// Checks that a review does not have metadata, except for the namespace of a local review.
fn validate_metadata(review: &Object, resource: &str, errors: &mut FieldErrors) {
    let (kept, text): (&[&str], _) = match resource {
        "localsubjectaccessreviews" => (&["managedFields", "namespace"], "must be empty except for namespace"),
        _ => (&["managedFields"], "must be empty"),
    };
    let is_set = |(field, value): (&SmolStr, &Value)| {
        !kept.contains(&field.as_str()) && !matches!(value, Value::Null) && value != "" && *value != json!({})
    };
    if let Some(meta) = review.metadata().filter(|meta| meta.iter().any(is_set)) {
        errors.invalid(FieldPath::new("metadata"), Value::Object(meta.clone()), text);
    }
}

/// Formats `nonResourceAttributes` like Go.
fn printed_path(review: &Object) -> String {
    let text = |name: &str| quote(text_at(review, &["spec", "nonResourceAttributes", name]));
    format!("{{\"Path\":{},\"Verb\":{}}}", text("path"), text("verb"))
}
