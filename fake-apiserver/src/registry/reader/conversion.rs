//! Requests to the conversion webhook of a CRD, before objects are read in another version or stored (rule O10).

use std::sync::Arc;
use std::time::Duration;

use super::Reader;
use crate::api::field::quote;
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::custom::conversion::{Conversion, check};
use crate::registry::custom::decode;
use crate::registry::scheme::Row;
use crate::registry::scheme::codec;
use crate::registry::types::review_version::ReviewVersion;
use crate::registry::webhook;
use crate::storage::Stored;

/// Timeout of the webhook.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Reader {
    /// Requests the conversion of each object in `stored` to the version of `row`, unless the object already has this
    /// version or a cached result. Decoding the objects then uses the cached results. Every object is sent in its own
    /// review, as by kube-apiserver, which converts objects while it decodes them from storage.
    pub(crate) async fn convert_stored(&self, row: &Row, stored: &[Arc<Stored>]) -> Result<(), Status> {
        let Some((resource, conversion)) = row.conversion_on_read() else {
            return Ok(());
        };
        for stored in stored {
            let mut object = codec::decode_as_stored(row, stored);
            decode::freshen(&mut object, &resource.storage);
            Box::pin(self.ask_conversion(conversion, object, &row.api_version)).await?;
        }
        Ok(())
    }

    /// Requests the conversion of an object to the storage version before it is stored.
    pub(in crate::registry) async fn convert_to_store(&self, row: &Row, object: &Object) -> Result<(), Status> {
        let Some((resource, conversion)) = row.conversion_on_read() else {
            return Ok(());
        };
        let stored_in = resource.storage.row.api_version();
        Box::pin(self.ask_conversion(conversion, object.clone(), &stored_in)).await
    }

    /// Requests the conversion of an object to another version of its resource, for admission or managed fields.
    pub(in crate::registry) async fn convert_to_review(
        &self,
        row: &Row,
        object: &Object,
        api_version: &str,
    ) -> Result<(), Status> {
        let conversion = row.custom_resource().and_then(|it| it.conversion.as_deref());
        match conversion {
            Some(conversion) => Box::pin(self.ask_conversion(conversion, object.clone(), api_version)).await,
            None => Ok(()),
        }
    }

    async fn ask_conversion(&self, conversion: &Conversion, object: Object, api_version: &str) -> Result<(), Status> {
        if object.api_version() == api_version || conversion.answer(&object, api_version).is_some() {
            return Ok(());
        }
        let kind = format!("{}, Kind={}", object.api_version(), object.kind());
        let failed = |why: String| Status::new(500, "", format!("conversion webhook for {kind} {why}"));
        let no_version = || failed("failed: no supported conversion review versions".to_owned());
        let version = conversion.review.ok_or_else(no_version)?;
        let uid = self.entropy.uid();
        let review = json!({
            "kind": "ConversionReview", "apiVersion": version.in_group("apiextensions.k8s.io"),
            "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": [object.0]}, "response": null,
        });
        let reply = webhook::call(&*self.transport, &conversion.endpoint, TIMEOUT, &review).await;
        let converted = reply
            .and_then(|reply| read(reply, version, &uid))
            .map_err(|why| failed(format!("failed: {why}")))?;
        let [converted] = <[Value; 1]>::try_from(converted)
            .map_err(|it| failed(format!("returned {} objects, expected 1", it.len())))?;
        let Value::Object(converted) = converted else {
            return Err(failed("returned invalid object at index 0: not an object".to_owned()));
        };
        let converted = Object(converted);
        check(&object, &converted, api_version).map_err(&failed)?;
        conversion.remember(&object, api_version, &converted);
        Ok(())
    }
}

/// Returns the converted objects of a ConversionReview.
fn read(mut review: Map, version: ReviewVersion, uid: &str) -> Result<Vec<Value>, String> {
    let is_v1 = version == ReviewVersion::V1;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, version) = (text(review.get("kind")), text(review.get("apiVersion")));
    if is_v1 && (kind != "ConversionReview" || version != "apiextensions.k8s.io/v1") {
        return Err(format!(
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {version}, Kind={kind}"
        ));
    }
    let Some(Value::Object(mut response)) = review.remove("response") else {
        return Err("no response provided".to_owned());
    };
    let given = text(response.get("uid"));
    if is_v1 && given != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(&given)));
    }
    let result = response.get("result");
    let status = text(result.and_then(|it| it.get("status")));
    if status != "Success" {
        let message = text(result.and_then(|it| it.get("message")));
        return Err(match message.as_str() {
            "" => format!("response.result.status was '{status}', not 'Success'"),
            _ => message,
        });
    }
    match response.remove("convertedObjects") {
        Some(Value::Array(objects)) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}
