//! `UserInfo`: who sends a request, as authentication has found out.

/// A user. As an extension of a request it says that a client certificate was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The user's name.
    pub name: String,
    /// The groups the user is in.
    pub groups: Vec<String>,
}
