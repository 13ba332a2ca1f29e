//! Handles requests for OpenAPI documents.

use http::header::{HeaderName, HeaderValue};

use super::{Answer, Asked, if_none_match};
use crate::api::resource::ResourceInfo;
use crate::endpoints::encode;
use crate::endpoints::openapi::{self, CustomSchema, OpenApi};

impl Asked<'_> {
    /// Handles `/openapi/v2` (rule N6).
    pub(super) fn open_api_v2(&self) -> Answer {
        let accept = self.accept.as_deref().unwrap_or_default();
        self.open_api(|documents| documents.v2(accept, if_none_match(self.headers)))
    }

    /// Handles `/openapi/v3` and the documents below it (rule N6); an empty path is the index.
    pub(super) fn open_api_v3(&self, path: &str) -> Answer {
        self.open_api(|documents| match path {
            "" => openapi::DocumentAnswer {
                status: 200,
                headers: vec![("content-type", "application/json".to_owned())],
                body: format!("{}\n", documents.index()).into(),
            },
            path => documents.answer(openapi::Asked {
                path,
                hash: self.query.get("hash").unwrap_or_default(),
                accept: self.accept.as_deref().unwrap_or_default(),
                if_none_match: if_none_match(self.headers),
                now: self.server.registry.reader.entropy.now(),
            }),
        })
    }

    /// Returns the response that `answer` builds from all served resources.
    fn open_api(&self, answer: impl FnOnce(&OpenApi<'_>) -> openapi::DocumentAnswer) -> Answer {
        let builtins = self.scheme.rows().filter(|row| !row.is_custom());
        let builtins: Vec<&ResourceInfo> = builtins.map(|row| &row.info).collect();
        let versions = self.scheme.custom_rows().filter_map(|row| row.custom_version());
        let custom: Vec<CustomSchema<'_>> = versions
            .map(|version| CustomSchema {
                row: &version.row,
                schema: &version.open_api,
                selectable: &version.selectable,
            })
            .collect();
        let answer = answer(&OpenApi {
            version: self.scheme.version,
            builtins: &builtins,
            custom: &custom,
        });
        let mut response = encode::respond_whole(answer.status, "text/plain; charset=utf-8", answer.body);
        for (name, value) in answer.headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        Ok(response)
    }
}
