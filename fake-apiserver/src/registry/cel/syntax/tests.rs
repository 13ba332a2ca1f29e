//! Tests valid expressions, and the errors of invalid expressions.

use crate::registry::cel::parse::parse;

#[rstest::rstest]
#[case("a.b[0].c(1, -2)")]
#[case("[1, 2,] + [,] == {'a': 1,}")]
#[case("--1 == 1 && !!true && - 1 < 0")]
#[case("0x1Fu + 1u > 0x2u && 1e3 > .5 && 1.5E-3 < 2.0")]
#[case("'a\\n\\x41\\u00e9\\U0001F600\\101' + r'\\d' + '''a'b''' + \"\"\"x\"\"\"")]
#[case("b'\\xff\\377' + br'\\d'")]
#[case("// a comment\na // another")]
#[case("a ? b : c ? d : e")]
#[case("a.?b[?c] == [?d, {?e: f}]")]
#[case("self.if == self.namespace")]
#[case("a.b.C{f: 1, ?g: h,}")]
#[case(".a.b")]
#[case("l.map(x, x > 1, x + 1).sortBy(y, -y)")]
fn valid_expressions_are_parsed(#[case] text: &str) {
    assert_eq!(parse(text).map(|_| ()), Ok(()));
}

#[rstest::rstest]
#[case("has(a)", 5, "invalid argument to has() macro")]
#[case("l.all(1, true)", 7, "argument is not an identifier")]
#[case("l.all(a, b.c, true)", 11, "argument must be a simple name")]
#[case("l.all(a, a, true)", 10, "duplicate variable name: a")]
#[case("l.all(__result__, true)", 7, "iteration variable overwrites accumulator variable")]
#[case("o.optMap(a.b, true)", 11, "optMap() variable name must be a simple identifier")]
#[case(
    "'a'.sortBy(x, x)",
    1,
    "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
)]
#[case("let", 1, "reserved identifier: let")]
#[case("a + if(b)", 5, "reserved identifier: if")]
#[case("9223372036854775808", 1, "invalid int literal")]
#[case("99999999999999999999u", 1, "invalid uint literal")]
#[case("1e999", 1, "invalid double literal")]
#[case("'\\ud800'", 1, "invalid unicode code point")]
#[case("b'\\u0041'", 1, "unable to unescape string")]
#[case("a.`b`", 3, "unsupported syntax: '`'")]
fn invalid_expressions_are_refused_with_a_column(#[case] text: &str, #[case] column: usize, #[case] error: &str) {
    let found = parse(text).map(|_| ()).expect_err("the expression has an error");
    let start = format!("ERROR: <input>:1:{column}: {error}\n");
    assert!(found.starts_with(&start), "{found}");
}
