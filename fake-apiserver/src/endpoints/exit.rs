//! The outcome of a command in a container, in the form that clients expect.

use crate::api::json::json;

/// Returns the error message for a failed command.
pub(super) fn failure(exit_code: i32) -> String {
    format!("command terminated with non-zero exit code: exit status {exit_code}")
}

/// Returns the Status that reports the end of a command in versions 4 and later of the streaming protocol.
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
