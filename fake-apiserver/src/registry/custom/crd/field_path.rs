//! Field paths such as `.spec.name` and `.spec['a.b']`, resolved in a schema (`ValidFieldPath` of
//! `apiextensions-apiserver/pkg/apiserver/schema/cel`).

use crate::registry::types::cursor::Cursor;

const NO_FIELD: &str = "does not refer to a valid field";
const END: &str = "unexpected end of JSON path";

/// Resolves a path. Returns its first step and the type of the selected field.
pub(super) fn find(path: &str, schema: &Cursor<'_>, allows_brackets: bool) -> Result<(String, String), String> {
    let (first, kind) = follow(&mut Tokens(path), schema, allows_brackets)?;
    Ok((first.unwrap_or_default(), kind))
}

/// Returns the next step and the type of the selected field.
fn follow(
    tokens: &mut Tokens<'_>,
    node: &Cursor<'_>,
    allows_brackets: bool,
) -> Result<(Option<String>, String), String> {
    let Some(name) = next_name(tokens, allows_brackets)? else {
        return Ok((None, node.text("type").to_owned()));
    };
    let has_properties = node.properties().next().is_some();
    let next = match has_properties {
        true => node.property(&name),
        false => node.schema("additionalProperties"),
    };
    let (_, kind) = follow(tokens, &next.ok_or(NO_FIELD)?, allows_brackets)?;
    Ok((Some(name), kind))
}

fn next_name(tokens: &mut Tokens<'_>, allows_brackets: bool) -> Result<Option<String>, String> {
    Ok(Some(match tokens.next() {
        None => return Ok(None),
        Some("[") if !allows_brackets => return Err("array notation is not allowed".to_owned()),
        Some("[") => {
            let quoted = tokens.next().ok_or(END)?;
            let name = unquoted(quoted).ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
            match tokens.next() {
                Some("]") => name.replace("\\'", "'"),
                Some(other) => return Err(format!("expected ] but got {other}")),
                None => return Err(END.to_owned()),
            }
        }
        Some(".") => tokens.next().ok_or(END)?.to_owned(),
        Some(other) => return Err(format!("expected [ or . but got: {other}")),
    }))
}

fn unquoted(token: &str) -> Option<&str> {
    token
        .strip_prefix('\'')
        .and_then(|it| it.strip_suffix('\''))
        .filter(|_| token.len() > 1)
}

/// A path that is split into delimiters and the parts between them. A quoted part is one token.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.0.as_bytes();
        let end = match bytes.first()? {
            b'.' | b'[' | b']' => 1,
            b'\'' => (1..bytes.len())
                .find(|&at| bytes[at] == b'\'' && bytes[at - 1] != b'\\')
                .map_or(bytes.len(), |at| at + 1),
            _ => self.0.find(['.', '[', ']']).unwrap_or(bytes.len()),
        };
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(".spec.name", true, Ok("spec"))]
    #[case(".spec['name']", true, Ok("spec"))]
    #[case(".map.any", true, Ok("map"))]
    #[case(".spec['name']", false, Err("array notation is not allowed"))]
    #[case(".spec.other", true, Err("does not refer to a valid field"))]
    #[case(".spec.name.deeper", true, Err("does not refer to a valid field"))]
    #[case("spec", true, Err("expected [ or . but got: spec"))]
    #[case(".spec.", true, Err("unexpected end of JSON path"))]
    #[case(".spec[0]", true, Err("expected single quoted string but got 0"))]
    fn schema_paths_are_resolved_to_fields(
        #[case] path: &str,
        #[case] brackets: bool,
        #[case] expected: Result<&str, &str>,
    ) {
        let schema = json!({"properties": {
            "spec": {"properties": {"name": {"type": "string"}}},
            "map": {"additionalProperties": {"type": "string"}},
        }});
        let found = find(path, &Cursor::document(&schema), brackets);
        let found = found.as_ref().map(|(first, _)| first.as_str()).map_err(String::as_str);
        assert_eq!(found, expected);
    }
}
