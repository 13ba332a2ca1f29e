//! The clauses of an `Accept` header, in the order in which the server tries them.

/// A media range with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    params: Vec<(&'a str, &'a str)>,
}

/// Returns the clauses sorted by descending quality, specific media types before wildcards. Invalid media ranges are
/// dropped.
pub(super) fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut found: Vec<Clause<'_>> = header.split(',').filter_map(Clause::parse).collect();
    // Go's comparison is not a strict weak order (a specific clause precedes a wildcard of higher quality, and vice
    // versa), so the result depends on its insertion sort.
    for end in 1..found.len() {
        let mut at = end;
        while at > 0 && found[at].precedes(&found[at - 1]) {
            found.swap(at, at - 1);
            at -= 1;
        }
    }
    found
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';');
        let range = parts.next().unwrap_or_default().trim_matches(' ');
        let (kind, subtype) = match range.split_once('/') {
            Some((_, subtype)) if subtype.contains('/') => return None,
            Some((kind, subtype)) => (kind.trim_matches(' '), subtype.trim_matches(' ')),
            None if range == "*" => ("*", "*"),
            None => return None,
        };
        let mut clause = Self {
            kind,
            subtype,
            quality: 1.0,
            params: Vec::new(),
        };
        for (name, value) in parts.filter_map(|it| it.split_once('=')) {
            match name.trim_matches(' ') {
                "q" => clause.quality = value.trim().parse().unwrap_or(0.0),
                name => clause.params.push((name, value.trim_matches(' '))),
            }
        }
        Some(clause)
    }

    fn precedes(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }

    /// Returns `true` if the clause includes this media type, by name or by wildcard.
    pub(super) fn covers(&self, media_type: &str) -> bool {
        let (kind, subtype) = media_type.split_once('/').unwrap_or((media_type, ""));
        (self.kind == kind && (self.subtype == subtype || self.subtype == "*"))
            || (self.kind == "*" && self.subtype == "*")
    }

    /// Returns `true` if the clause contains this media type without a wildcard.
    pub(super) fn names(&self, media_type: &str) -> bool {
        media_type.split_once('/') == Some((self.kind, self.subtype))
    }

    /// Returns the value of a parameter; the last occurrence applies.
    pub(super) fn param(&self, name: &str) -> Option<&'a str> {
        self.params
            .iter()
            .rev()
            .find(|(it, _)| *it == name)
            .map(|(_, value)| *value)
    }

    /// Returns group, version and kind of the requested conversion (`g`, `v` and `as`), if any of them is set.
    pub(super) fn view(&self) -> Option<(&'a str, &'a str, &'a str)> {
        let parts = (self.param("g"), self.param("v"), self.param("as"));
        match parts {
            (None, None, None) => None,
            (group, version, kind) => Some((
                group.unwrap_or_default(),
                version.unwrap_or_default(),
                kind.unwrap_or_default(),
            )),
        }
    }

    /// Returns `true` if the clause requests a stream other than a watch, or a server version; both are refused.
    pub(super) fn is_foreign(&self) -> bool {
        self.param("stream").is_some_and(|it| !matches!(it, "" | "watch"))
            || self.param("sv").is_some_and(|it| !it.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("application/yaml;q=0.5, application/json", &["json", "yaml"])]
    #[case("*/*, application/json;q=0.1", &["json", "*"])]
    #[case("application/*, application/yaml", &["yaml", "*"])]
    #[case("banana, a/b/c, *, text/html;q=x", &["html", "*"])]
    fn a17_accept_clauses_have_the_same_order_as_in_kube_apiserver(#[case] header: &str, #[case] subtypes: &[&str]) {
        let found: Vec<_> = clauses(header).iter().map(|it| it.subtype).collect();
        assert_eq!(found, subtypes);
    }
}
