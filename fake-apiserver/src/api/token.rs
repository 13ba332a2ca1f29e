//! `TokenSigner`: what makes and reads the signatures of ServiceAccounts' tokens.

use crate::api::json::Value;

/// Keys for JSON Web Tokens.
pub(crate) trait TokenSigner: std::fmt::Debug + Send + Sync {
    /// A token that says `claims`; fails where the key cannot sign.
    fn sign(&self, claims: &Value) -> Result<String, String>;

    /// The claims of a token; `None` if none of the keys signed it.
    fn claims(&self, token: &str) -> Option<Value>;

    /// The public keys as a JSON Web Key Set, and the algorithms of their signatures; `None` if they are not public.
    fn key_set(&self) -> Option<(Value, Vec<&'static str>)>;
}
