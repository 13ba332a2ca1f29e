//! `Unserved`: error for a filter that cannot match any request, because its resource, subresource or verbs are not
//! served.

use crate::api::request_info::Verb;
use crate::api::resource::ResourceInfo;

use super::RequestFilter;

/// Maximum edit distance between a suggested name and the given name.
const TYPOS: usize = 2;

/// Maximum number of suggested names.
const PROPOSED: usize = 3;

/// Reason why a filter cannot match any request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unserved {
    /// The name of the resource is probably misspelled, or the resource lacks the subresource or the verbs.
    #[error("{0}")]
    Never(String),
    /// The resource is not served yet, but a CustomResourceDefinition may add it.
    #[error("the resource {0} is not served; create its CustomResourceDefinition first")]
    NotYet(String),
}

impl RequestFilter {
    /// Checks that the resource is served, with its subresource and with one of the verbs.
    ///
    /// ```
    /// use fake_apiserver::{ApiServer, Verb, faults::RequestFilter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let served = ApiServer::start().resources();
    /// let why = |resource: &str, verb| {
    ///     let filter = RequestFilter { verbs: vec![verb], resource: Some(resource.into()), ..Default::default() };
    ///     filter.check_served(&served).map_err(|err| err.to_string())
    /// };
    /// assert_eq!(why("pods/status", Verb::Patch), Ok(()));
    /// assert_eq!(why("pod", Verb::Patch).unwrap_err(), "the resource pod is not served; did you mean pods?");
    /// assert_eq!(why("bindings", Verb::Watch).unwrap_err(), "bindings does not support watch; it supports create");
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the resource or its subresource is not served, or supports none of the verbs. The message suggests
    /// similar resources, or lists the supported subresources or verbs.
    pub fn check_served(&self, served: &[ResourceInfo]) -> Result<(), Unserved> {
        let Some(name) = &self.resource else { return Ok(()) };
        let (resource, subresource) = match name.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (name.as_str(), None),
        };
        let (plural, group) = match resource.split_once('.') {
            Some((plural, group)) => (plural, Some(group)),
            None => (resource, None),
        };
        let is_it = |it: &&ResourceInfo| it.resource == plural && group.is_none_or(|group| it.group == group);
        let rows: Vec<&ResourceInfo> = served.iter().filter(is_it).collect();
        if rows.is_empty() {
            let near = near(plural, group, served);
            return Err(match near.is_empty() {
                true => Unserved::NotYet(resource.to_owned()),
                false => Unserved::Never(format!(
                    "the resource {resource} is not served; did you mean {}?",
                    near.join(" or ")
                )),
            });
        }
        let verbs = match subresource {
            None => verbs_of_all(&rows),
            Some(wanted) => {
                let found: Vec<_> = rows.iter().filter_map(|it| it.subresource(wanted)).collect();
                if found.is_empty() {
                    let all = rows.iter().flat_map(|it| it.subresources.iter());
                    let names = sorted(all.map(|it| it.name.to_string()));
                    let has = if names.is_empty() { "none" } else { &names.join(", ") };
                    let text = format!("{resource} does not have the subresource {wanted}; it has {has}");
                    return Err(Unserved::Never(text));
                }
                sorted(found.iter().flat_map(|it| it.verbs.iter().map(ToString::to_string)))
            }
        };
        let has = |verb: &Verb| verbs.iter().any(|it| it == verb.as_str());
        if self.verbs.is_empty() || self.verbs.iter().any(has) {
            return Ok(());
        }
        let asked: Vec<&str> = self.verbs.iter().map(|it| it.as_str()).collect();
        let text = format!(
            "{name} does not support {}; it supports {}",
            asked.join(", "),
            verbs.join(", ")
        );
        Err(Unserved::Never(text))
    }
}

/// Returns the verbs of the resources and of all their subresources.
fn verbs_of_all(rows: &[&ResourceInfo]) -> Vec<String> {
    let own = rows.iter().flat_map(|it| it.verbs.iter());
    let of_subresources = rows
        .iter()
        .flat_map(|it| it.subresources.iter().flat_map(|it| it.verbs.iter()));
    sorted(own.chain(of_subresources).map(ToString::to_string))
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    names
}

/// Returns resources that were probably intended: resources with this singular name, kind or short name, with this name
/// in a different group, or with a similar name.
fn near(plural: &str, group: Option<&str>, served: &[ResourceInfo]) -> Vec<String> {
    let wanted = plural.to_lowercase();
    let distance = |it: &ResourceInfo| {
        let is_name_of = |name: &str| name.to_lowercase() == wanted;
        let is_called_so = is_name_of(&it.resource)
            || is_name_of(&it.singular)
            || is_name_of(&it.kind)
            || it.short_names.iter().any(|name| is_name_of(name));
        match is_called_so {
            true => Some(0),
            // A resource in an unknown group probably belongs to a CRD that is created later.
            false if group.is_some_and(|group| it.group != group) => None,
            false => {
                Some(strsim::levenshtein(&wanted, &it.resource)).filter(|it| *it <= TYPOS && *it * 3 <= wanted.len())
            }
        }
    };
    let full = |it: &ResourceInfo| match it.group.is_empty() {
        true => it.resource.to_string(),
        false => format!("{}.{}", it.resource, it.group),
    };
    let mut near: Vec<(usize, String)> = served
        .iter()
        .filter_map(|it| distance(it).map(|distance| (distance, full(it))))
        .collect();
    near.sort();
    near.dedup();
    near.into_iter().map(|(_, name)| name).take(PROPOSED).collect()
}
