//! The continue token of a paged list: the start of the next page, and its revision (rules D9 to D11).

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::api::json::syntax_error;
use crate::api::status::Status;
use crate::storage::Revision;

const VERSION: &str = "meta.k8s.io/v1";

/// Decodes Base64 like Go, which ignores unused bits of the last character.
const LENIENT: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

#[derive(Serialize, Deserialize)]
struct Token {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

/// The state from which the next page is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The state at the revision of the first page.
    Revision(Revision),
    /// The latest state: the token was returned with a 410, and the pages are not consistent with each other.
    Latest,
}

/// A decoded token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Continue {
    /// State at which the list continues.
    pub(crate) at: At,
    /// The first possible key of the page, relative to the list's prefix, so that the token is also valid in a
    /// different namespace.
    pub(crate) start: String,
}

/// Encodes the token for the page after `last`, a key relative to the list's prefix.
pub(crate) fn encode(at: At, last: &str) -> String {
    let rv = match at {
        At::Revision(revision) => i64::try_from(revision).unwrap_or(i64::MAX),
        At::Latest => -1,
    };
    let token = Token {
        v: VERSION.to_owned(),
        rv,
        start: format!("/{last}\0"),
    };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

/// Decodes a token.
pub(crate) fn decode(token: &str) -> Result<Continue, Status> {
    let invalid = |why: String| Status::bad_request(format!("invalid continue token: {why}"));
    let not_valid = |why: &str| invalid(format!("continue key is not valid: {why}"));
    let bytes = LENIENT.decode(token.trim_end_matches('=')).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            base64::DecodeError::InvalidLength(at) => at,
            base64::DecodeError::InvalidPadding => token.len(),
        };
        not_valid(&format!("illegal base64 data at input byte {at}"))
    })?;
    let parsed: Token = serde_json::from_slice(&bytes)
        .map_err(|error| not_valid(&syntax_error(&bytes).unwrap_or_else(|| format!("json: {error}"))))?;
    if parsed.v != VERSION {
        return Err(not_valid(&format!(
            "server does not recognize this encoded version {}",
            parsed.v
        )));
    }
    if parsed.rv == 0 {
        return Err(invalid(format!(
            "incorrect encoded start resourceVersion (version {VERSION})"
        )));
    }
    if parsed.start.is_empty() {
        return Err(invalid(format!("encoded start key empty (version {VERSION})")));
    }
    let start = parsed.start.strip_prefix('/').unwrap_or(&parsed.start);
    // Go's `path.Clean` would change these paths.
    if start.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(not_valid(&parsed.start));
    }
    let at = u64::try_from(parsed.rv).map_or(At::Latest, At::Revision);
    Ok(Continue {
        at,
        start: start.to_owned(),
    })
}
