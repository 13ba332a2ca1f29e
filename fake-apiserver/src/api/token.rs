//! `TokenSigner`: signs and verifies the tokens of ServiceAccounts.

use crate::api::json::Value;

/// Signs and verifies JSON Web Tokens.
pub(crate) trait TokenSigner: std::fmt::Debug + Send + Sync {
    /// Returns a token with these claims; fails if the key cannot sign.
    fn sign(&self, claims: &Value) -> Result<String, String>;

    /// Returns the claims of a token; `None` if it was not signed with one of the keys.
    fn claims(&self, token: &str) -> Option<Value>;

    /// Returns the public keys as a JSON Web Key Set, and the algorithms of their signatures; `None` if they are not
    /// public.
    fn key_set(&self) -> Option<(Value, Vec<&'static str>)>;
}
