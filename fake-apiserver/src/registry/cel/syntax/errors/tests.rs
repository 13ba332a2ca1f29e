//! Syntax errors from cel-go's tests and from recordings of kube-apiserver.

use rstest::rstest;

use super::syntax_errors;

/// Tokens with which an expression can begin.
const STARTS: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, \
                      BYTES, IDENTIFIER}";

#[rstest]
#[case("self.a >", &[(8, "mismatched input '<EOF>' expecting STARTS")])]
#[case("self.a > 1 1", &[(11, "extraneous input '1' expecting <EOF>")])]
#[case("", &[(0, "mismatched input '<EOF>' expecting STARTS")])]
#[case("*@a | b", &[
    (0, "extraneous input '*' expecting STARTS"),
    (1, "token recognition error at: '@'"),
    (4, "token recognition error at: '| '"),
    (6, "extraneous input 'b' expecting <EOF>"),
])]
#[case("?", &[
    (0, "mismatched input '?' expecting STARTS"),
    (1, "mismatched input '<EOF>' expecting STARTS"),
])]
#[case("1 + $", &[
    (4, "token recognition error at: '$'"),
    (5, "mismatched input '<EOF>' expecting STARTS"),
])]
#[case("1 + +", &[
    (4, "mismatched input '+' expecting STARTS"),
    (5, "mismatched input '<EOF>' expecting STARTS"),
])]
#[case("t{>C}", &[
    (2, "extraneous input '>' expecting {'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}"),
    (4, "mismatched input '}' expecting ':'"),
])]
#[case("'\u{1F601}' in ['\u{1F601}']\n   && in.\u{1F601}", &[
    (25, "extraneous input 'in' expecting STARTS"),
    (28, "token recognition error at: '\u{1F601}'"),
    (32, "no viable alternative at input '.'"),
])]
#[case(r#""\xFh""#, &[
    (0, r#"token recognition error at: '"\xFh'"#),
    (5, "token recognition error at: '\"'"),
    (6, "mismatched input '<EOF>' expecting STARTS"),
])]
#[case("foo(1, )", &[(7, "mismatched input ')' expecting STARTS")])]
#[case("a.b.", &[(4, "no viable alternative at input '.'")])]
fn syntax_errors_have_the_same_messages_as_in_antlr(#[case] text: &str, #[case] expected: &[(usize, &str)]) {
    let expected: Vec<(usize, String)> = expected
        .iter()
        .map(|(at, error)| (*at, format!("Syntax error: {}", error.replace("STARTS", STARTS))))
        .collect();
    assert_eq!(syntax_errors(text), expected);
}

#[test]
fn parser_stops_after_thirty_errors() {
    let errors = syntax_errors(&"+ ) ".repeat(100));
    let (_, last) = errors.last().expect("the expression has errors");
    assert_eq!(last, "Syntax error: error recovery attempt limit exceeded: 30");
    // Thirty recoveries, one more error, and the error for too many recoveries.
    assert_eq!(errors.len(), 32);
}
