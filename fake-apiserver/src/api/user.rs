//! `UserInfo`: who sends a request, as authentication has found out.

/// A user. As an extension of a request it says that a client certificate was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The user's name.
    pub name: String,
    /// The groups the user is in.
    pub groups: Vec<String>,
}

/// As an extension of a request: one of the server's own workers sends it, the one of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentBy(pub &'static str);
