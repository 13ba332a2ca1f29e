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
    /// Requests the conversion of the objects in `stored` to the version of `row` in one call, unless they already have
    /// this version or a cached result. Decoding the objects then uses the cached results.
    pub(crate) async fn convert_stored(&self, row: &Row, stored: &[Arc<Stored>]) -> Result<(), Status> {
        let Some((resource, conversion)) = row.conversion_on_read() else {
            return Ok(());
        };
        let objects: Vec<Object> = stored
            .iter()
            .map(|it| {
                let mut object = codec::decode_as_stored(row, it);
                decode::freshen(&mut object, &resource.storage);
                object
            })
            .collect();
        self.ask_conversion(conversion, objects, &row.api_version).await
    }

    /// Requests the conversion of an object to the storage version before it is stored.
    pub(in crate::registry) async fn convert_to_store(&self, row: &Row, object: &Object) -> Result<(), Status> {
        let Some((resource, conversion)) = row.conversion_on_read() else {
            return Ok(());
        };
        let stored_in = resource.storage.row.api_version();
        self.ask_conversion(conversion, vec![object.clone()], &stored_in).await
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
            Some(conversion) => self.ask_conversion(conversion, vec![object.clone()], api_version).await,
            None => Ok(()),
        }
    }

    async fn ask_conversion(
        &self,
        conversion: &Conversion,
        objects: Vec<Object>,
        api_version: &str,
    ) -> Result<(), Status> {
        let asked: Vec<Object> = objects
            .into_iter()
            .filter(|it| it.api_version() != api_version && conversion.answer(it, api_version).is_none())
            .collect();
        let Some(first) = asked.first() else { return Ok(()) };
        let kind = format!("{}, Kind={}", first.api_version(), first.kind());
        let failed = |why: String| Status::new(500, "", format!("conversion webhook for {kind} {why}"));
        let no_version = || failed("failed: no supported conversion review versions".to_owned());
        let version = conversion.review.ok_or_else(no_version)?;
        let uid = self.entropy.uid();
        let list: Vec<Value> = asked.iter().map(|it| Value::Object(it.0.clone())).collect();
        let review = json!({
            "kind": "ConversionReview", "apiVersion": version.in_group("apiextensions.k8s.io"),
            "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": list}, "response": null,
        });
        let reply = webhook::call(&*self.transport, &conversion.endpoint, TIMEOUT, &review).await;
        let converted = reply
            .and_then(|reply| read(reply, version, &uid))
            .map_err(|why| failed(format!("failed: {why}")))?;
        if converted.len() != asked.len() {
            let (got, wanted) = (converted.len(), asked.len());
            return Err(failed(format!("returned {got} objects, expected {wanted}")));
        }
        let mut checked = Vec::with_capacity(asked.len());
        for (original, converted) in asked.into_iter().zip(converted) {
            let Value::Object(converted) = converted else {
                return Err(failed("returned invalid object at index 0: not an object".to_owned()));
            };
            let converted = Object(converted);
            check(&original, &converted, api_version).map_err(&failed)?;
            checked.push((original, converted));
        }
        for (original, converted) in checked {
            conversion.remember(&original, api_version, &converted);
        }
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
