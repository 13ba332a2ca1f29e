//! The syntax errors of an invalid expression, as ANTLR's parser reports them in cel-go. This parser only runs after
//! `parser` has refused an expression, and recovers from errors like ANTLR's parsers.

mod grammar;
mod prediction;
mod recovery;
mod tokens;

#[cfg(test)]
mod tests;

/// Returns the syntax errors of an expression with their byte offsets, sorted by offset.
pub(crate) fn syntax_errors(text: &str) -> Vec<(usize, String)> {
    let (source, mut errors) = tokens::tokens(text);
    recovery::run(&source, &mut errors);
    errors.sort_by_key(|(at, _)| *at);
    for (_, error) in &mut errors {
        error.insert_str(0, "Syntax error: ");
    }
    errors
}
