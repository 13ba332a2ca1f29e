//! Reads the user from the headers of a front proxy, modelled on `requestHeaderAuthRequestHandler` of k8s.io/apiserver.

use std::collections::BTreeMap;

use http::header::{HeaderMap, HeaderName};

use crate::api::front_proxy::FrontProxy;
use crate::api::user::UserInfo;

/// Removes the headers with the user, and returns the user; `None` if the user name is missing.
pub(super) fn take_user(proxy: &FrontProxy, headers: &mut HeaderMap) -> Option<UserInfo> {
    let name = first(headers, &proxy.username_headers)?;
    let uid = first(headers, &proxy.uid_headers).unwrap_or_default();
    let groups = proxy.group_headers.iter().flat_map(|header| headers.get_all(header));
    let groups = groups.filter_map(|it| it.to_str().ok()).filter(|it| !it.is_empty());
    let mut user = UserInfo::new(name, groups);
    (user.uid, user.extra) = (uid, extra(proxy, headers));
    let names = [&proxy.username_headers, &proxy.uid_headers, &proxy.group_headers];
    for header in names.into_iter().flatten() {
        headers.remove(header);
    }
    let facts = headers.keys().filter(|it| fact(proxy, it).is_some());
    let facts: Vec<HeaderName> = facts.cloned().collect();
    for header in facts {
        headers.remove(header);
    }
    Some(user)
}

fn extra(proxy: &FrontProxy, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let (Some(fact), Ok(value)) = (fact(proxy, name), value.to_str()) {
            let fact = percent_encoding::percent_decode_str(fact).decode_utf8_lossy();
            extra.entry(fact.into_owned()).or_default().push(value.to_owned());
        }
    }
    extra
}

/// Returns the part of a header name after the prefix of extra fields. Header names are in lower case.
fn fact<'a>(proxy: &FrontProxy, header: &'a HeaderName) -> Option<&'a str> {
    let mut prefixes = proxy.extra_headers_prefix.iter();
    prefixes.find_map(|it| header.as_str().strip_prefix(it.to_ascii_lowercase().as_str()))
}

/// Returns the value of the first header that is not empty.
fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    let mut values = names.iter().filter_map(|name| headers.get(name)?.to_str().ok());
    values.find(|it| !it.is_empty()).map(str::to_owned)
}
