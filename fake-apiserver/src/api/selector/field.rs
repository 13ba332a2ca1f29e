//! Field selectors: `metadata.name=a,status.phase!=Running` (rule F3).

/// The terms of a `fieldSelector`; an object is selected if all terms match.
///
/// ```
/// use fake_apiserver::api::selector::FieldSelector;
///
/// let selector = FieldSelector::parse("metadata.name=web-0,status.phase!=Failed")?;
/// assert_eq!(selector.requires_name(), Some("web-0"));
/// assert!(selector.matches(|field| match field {
///     "metadata.name" => "web-0",
///     "status.phase" => "Running",
///     _ => "",
/// }));
///
/// let error = "invalid selector: 'metadata.name in (a)'; can't understand 'metadata.name in (a)'";
/// assert_eq!(FieldSelector::parse("metadata.name in (a)"), Err(error.to_owned()));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// One term of a [`FieldSelector`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    /// The field's label, such as `spec.nodeName`.
    pub field: String,
    /// Operator of the comparison.
    pub operator: FieldOperator,
    /// Value to compare with, after escapes are resolved. An absent field is compared as the empty string.
    pub value: String,
}

/// Operator of a [`FieldTerm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    /// `=` or `==`
    Equals,
    /// `!=`
    NotEquals,
}

impl FieldSelector {
    /// Parses a `fieldSelector` parameter; skips empty terms. Returns the message of the 400 response as the error.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = split_terms(text);
        // Sorted, so that the reported error and the required name do not depend on the order of terms in the request.
        parts.sort_unstable();
        let mut terms = Vec::with_capacity(parts.len());
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, operator, value)) = split_term(part) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{part}'"));
            };
            terms.push(FieldTerm {
                field: field.to_owned(),
                operator,
                value: unescape(value)?,
            });
        }
        Ok(Self { terms })
    }

    /// Returns `true` if every object is selected.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the terms, sorted as strings.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// Returns `true` if the selector matches an object; `value_of` returns the value of a field, empty if absent.
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> &'a str) -> bool {
        self.terms.iter().all(|term| term.matches(value_of(&term.field)))
    }

    /// Returns the value that a term requires for `field`, if there is such a term.
    pub fn requires(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.operator == FieldOperator::Equals && term.field == field)
            .map(|term| term.value.as_str())
    }

    /// Returns the name that the selector requires, if there is one. `metadata.name=x` turns a list into the read of
    /// one object (rule D16).
    pub fn requires_name(&self) -> Option<&str> {
        self.requires("metadata.name")
    }

    /// Returns the namespace that the selector requires, if there is one.
    pub fn requires_namespace(&self) -> Option<&str> {
        self.requires("metadata.namespace")
    }

    /// Replaces the field of each term with the result of `rename`, which may refuse it (rule F5).
    pub fn rename_fields<E>(mut self, mut rename: impl FnMut(String) -> Result<String, E>) -> Result<Self, E> {
        for term in &mut self.terms {
            term.field = rename(std::mem::take(&mut term.field))?;
        }
        Ok(self)
    }
}

impl FieldTerm {
    /// Returns `true` if the term matches a field with this value.
    pub fn matches(&self, value: &str) -> bool {
        match self.operator {
            FieldOperator::Equals => value == self.value,
            FieldOperator::NotEquals => value != self.value,
        }
    }
}

/// Splits a string at commas that are not escaped with a backslash.
fn split_terms(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Splits a term at its first operator.
fn split_term(term: &str) -> Option<(&str, FieldOperator, &str)> {
    let at = term
        .bytes()
        .enumerate()
        .position(|(at, byte)| byte == b'=' || (byte == b'!' && term.as_bytes().get(at + 1) == Some(&b'=')))?;
    let (field, rest) = term.split_at(at);
    let (operator, value) = match (rest.strip_prefix("!="), rest.strip_prefix("==")) {
        (Some(value), _) => (FieldOperator::NotEquals, value),
        (None, Some(value)) => (FieldOperator::Equals, value),
        (None, None) => (FieldOperator::Equals, &rest[1..]),
    };
    Some((field, operator, value))
}

/// Resolves the escapes of a value; only `\\`, `\,` and `\=` are escapes.
fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    let rest = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{rest}"));
                }
            },
            ',' | '=' => {
                let code = c as u32;
                return Err(format!("invalid field selector: unescaped character in value: {code}"));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a", "invalid selector: 'a'; can't understand 'a'")]
    #[case("b=1,!a", "invalid selector: 'b=1,!a'; can't understand '!a'")]
    #[case("metadata.name=a=b", "invalid field selector: unescaped character in value: 61")]
    #[case("metadata.name=a\\z", "invalid field selector: invalid escape sequence: \\z")]
    #[case("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\")]
    fn f3_error_contains_the_invalid_selector(#[case] text: &str, #[case] error: &str) {
        assert_eq!(FieldSelector::parse(text).unwrap_err(), error);
    }

    #[rstest]
    #[case("", &[])]
    #[case(",metadata.name=a,", &[("metadata.name", FieldOperator::Equals, "a")])]
    #[case("b!=\\,\\=\\\\,a==", &[("a", FieldOperator::Equals, ""), ("b", FieldOperator::NotEquals, ",=\\")])]
    fn f3_terms_are_sorted_and_unescaped(#[case] text: &str, #[case] terms: &[(&str, FieldOperator, &str)]) {
        let selector = FieldSelector::parse(text).expect("the selector is valid");
        let got: Vec<_> = selector
            .terms()
            .iter()
            .map(|it| (it.field.as_str(), it.operator, it.value.as_str()))
            .collect();
        assert_eq!(got, terms);
    }

    #[test]
    fn d16_inequality_does_not_require_a_single_name() {
        let selector = FieldSelector::parse("metadata.name!=a,metadata.namespace=n").expect("the selector is valid");
        assert_eq!(selector.requires_name(), None);
        assert_eq!(selector.requires_namespace(), Some("n"));
        assert!(!selector.matches(|field| if field == "metadata.name" { "a" } else { "n" }));
        assert!(selector.matches(|field| if field == "metadata.name" { "b" } else { "n" }));
    }

    #[test]
    fn f5_selector_fields_can_be_renamed_or_refused() {
        let selector = FieldSelector::parse("spec.host=n").expect("the selector is valid");
        let renamed = selector
            .clone()
            .rename_fields(|_| Ok::<_, String>("spec.nodeName".into()));
        assert_eq!(
            renamed.expect("the field can be renamed").requires("spec.nodeName"),
            Some("n")
        );
        let refused = selector.rename_fields(|field| Err::<String, _>(format!("field label not supported: {field}")));
        assert_eq!(refused.unwrap_err(), "field label not supported: spec.host");
    }
}
