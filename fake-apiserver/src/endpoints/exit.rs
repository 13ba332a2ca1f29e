//! The outcome of a command in a container, in the form that clients expect.

use crate::api::json::json;

/// The message of a command that has failed.
pub(super) fn failure(exit_code: i32) -> String {
    format!("command terminated with non-zero exit code: exit status {exit_code}")
}

/// The Status with which version 4 of the protocol, and later ones, end a command.
pub(super) fn status(exit_code: i32) -> String {
    let status = match exit_code {
        0 => json!({"metadata": {}, "status": "Success"}),
        code => json!({
            "metadata": {}, "status": "Failure", "message": failure(code), "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
    };
    status.to_string()
}
