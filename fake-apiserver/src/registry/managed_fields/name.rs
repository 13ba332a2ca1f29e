//! Names of managers (rules H1, H7).

use crate::api::field::is_print;

/// Maximum length of a name, in bytes.
const MAX_BYTES: usize = 128;

/// Returns the name of the manager of a request: the parameter `fieldManager`, or the User-Agent up to the first slash.
pub(crate) fn manager_name(field_manager: Option<&str>, user_agent: Option<&str>) -> String {
    if let Some(name) = field_manager.filter(|name| !name.is_empty()) {
        return name.to_owned();
    }
    let agent = user_agent.unwrap_or_default();
    let prefix = agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for c in prefix.chars() {
        if name.len() + c.len_utf8() > MAX_BYTES {
            break;
        }
        if is_print(c) {
            name.push(c);
        }
    }
    if name.is_empty() { "unknown".to_owned() } else { name }
}
