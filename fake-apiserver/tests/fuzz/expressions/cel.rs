//! Random expressions as rules: each one is accepted or refused, and evaluation terminates for every object.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use crate::trial::{CRDS, WIDGETS, ask_once, post, try_all, widget, widgets};

/// Generates an expression of the grammar, without regard to types.
#[expect(clippy::too_many_lines, reason = "it is a grammar, a line a rule")]
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "self",
        "self.n",
        "self.t",
        "self.l",
        "self.m",
        "oldSelf",
        "1",
        "-1",
        "9223372036854775807",
        "0",
        "1.5",
        "1u",
        "true",
        "null",
        "''",
        "'a'",
        "b'a'",
        "[]",
        "{}",
        "x",
        "duration('1h')",
        "timestamp('2020-01-01T00:00:00Z')",
        "quantity('1')",
        "optional.none()",
        "self.?t",
        "self.zz",
        "'^(a|b)*$'",
        "int",
        "self.l[0]",
        "self.m['a']",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(5, 40, 3, |inner| {
        let operators = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in",
        ]);
        let macros = prop::sample::select(vec![
            "all",
            "exists",
            "exists_one",
            "map",
            "filter",
            "optMap",
            "optFlatMap",
        ]);
        let methods = prop::sample::select(vec![
            "size",
            "startsWith",
            "contains",
            "matches",
            "find",
            "findAll",
            "split",
            "join",
            "replace",
            "lowerAscii",
            "substring",
            "indexOf",
            "sum",
            "max",
            "isSorted",
            "distinct",
            "sort",
            "slice",
            "flatten",
            "reverse",
            "format",
            "value",
            "orValue",
            "hasValue",
            "nope",
            "charAt",
            "getHours",
            "isLessThan",
            "add",
        ]);
        let functions = prop::sample::select(vec![
            "size",
            "string",
            "int",
            "uint",
            "double",
            "bytes",
            "type",
            "dyn",
            "duration",
            "timestamp",
            "quantity",
            "ip",
            "cidr",
            "url",
            "isURL",
            "sets.contains",
            "math.greatest",
            "lists.range",
            "optional.of",
            "base64.encode",
            "has",
            "semver",
            "format.named",
        ]);
        let args = || prop::collection::vec(inner.clone(), 0..3).prop_map(|args| args.join(", "));
        prop_oneof![
            3 => (inner.clone(), operators, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            3 => (inner.clone(), macros, inner.clone()).prop_map(|(a, name, b)| format!("{a}.{name}(x, {b})")),
            3 => (inner.clone(), methods, args()).prop_map(|(a, name, args)| format!("{a}.{name}({args})")),
            2 => (functions, args()).prop_map(|(name, args)| format!("{name}({args})")),
            1 => (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            1 => args().prop_map(|args| format!("[{args}]")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{{a}: {b}}}")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}[{b}]")),
            1 => inner.prop_map(|a| format!("!{a}")),
        ]
    })
}

/// Generates an expression in which some bytes may be replaced.
fn mangled() -> impl Strategy<Value = String> {
    let bytes = prop::collection::vec((any::<prop::sample::Index>(), "[ -~é\n\"'\\\\]"), 0..3);
    (expression(), bytes).prop_map(|(mut text, changes)| {
        for (at, with) in changes {
            let mut places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            places.push(text.len());
            text.insert_str(*at.get(&places), &with);
        }
        text
    })
}

fn crd(rule: &str) -> serde_json::Value {
    widgets(
        &json!({"type": "object", "x-kubernetes-validations": [{"rule": rule, "message": "m"}], "properties": {
        "n": {"type": "integer"}, "t": {"type": "string", "maxLength": 20},
        "l": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}},
        "m": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}}}}),
    )
}

#[test]
fn random_rules_and_objects_do_not_break_the_server() {
    let spec = json!({"n": 3, "t": "aab", "l": ["a", "b"], "m": {"a": 1, "b": 2}});
    try_all(
        250,
        &[],
        &prop_oneof![3 => expression(), 1 => mangled()],
        |server, rule| {
            let spec = spec.clone();
            async move {
                let is_taken = post(CRDS, &crd(&rule)).check(&server).await?.code < 300;
                // In a comparison that is valid for any type, the rule is often accepted.
                if !is_taken {
                    post(CRDS, &crd(&format!("dyn({rule}) == dyn(1)")))
                        .check(&server)
                        .await?;
                }
                post(WIDGETS, &widget(&spec)).check(&server).await?;
                post(WIDGETS, &widget(&json!({"n": 1}))).check(&server).await.map(drop)
            }
        },
    );
}

fn times(start: &str, depth: usize, wrap: fn(String) -> String) -> String {
    (0..depth).fold(start.to_owned(), |text, _| wrap(text))
}

/// With an accepted CRD, requests for objects complete in bounded time.
#[rstest]
#[case::nested_parentheses(times("1", 200, |it| format!("({it})")) + " == 1", 422)]
#[case::unclosed_parentheses("(".repeat(50_000), 422)]
#[case::nested_lists(times("1", 120, |it| format!("[{it}]")) + ".size() == 1", 201)]
#[case::nested_lists_compared_with_a_number(times("1", 120, |it| format!("[{it}]")) + " == 1", 422)]
#[case::long_sum(vec!["1"; 240].join("+") + " > 1", 201)]
#[case::longer_sum(vec!["1"; 40_000].join("+") + " > 1", 422)]
#[case::long_chain_of_in("\"1\"".to_owned() + &" in 1".repeat(15_000), 422)]
#[case::long_chain_of_in_next_to_numbers("1".to_owned() + &" in 1".repeat(15_000).replace("1 in", "1in"), 422)]
#[case::quote_in_a_comment(format!("// it's\n1{} > 1", "+1".repeat(40_000)), 422)]
#[case::unterminated_string(format!("'\n1{} > 1", "+1".repeat(40_000)), 422)]
#[case::unterminated_multiline_string(format!("'''\n{} > 1", "+1".repeat(40_000)), 422)]
#[case::invalid_escape(format!("'\\q + 1{} > 1", "+1".repeat(40_000)), 422)]
#[case::incomplete_operators(("1".to_owned() + &"+1".repeat(200) + "&").repeat(200), 422)]
#[case::mismatched_brackets("[(}".repeat(30_000), 422)]
#[case::many_errors("#".repeat(90_000), 422)]
#[case::many_undefined_fields(vec!["self.zz > 1"; 7_000].join("&&"), 422)]
#[case::many_reserved_words(vec!["let"; 15_000].join("&&"), 422)]
#[case::many_unknown_structs(vec!["A{}==1"; 11_000].join("&&"), 422)]
#[case::conjunction(vec!["true"; 5_000].join("&&"), 201)]
#[case::nested_conditionals("(".to_owned() + &"true ? 1 : ".repeat(200) + "1) == 1", 201)]
#[case::conditionals_of_two_types("true ? 1 : ".repeat(200) + "1 == 1", 422)]
#[case::selections("self".to_owned() + &".n".repeat(20_000), 422)]
#[case::negations("!".repeat(20_000) + "true", 422)]
#[case::repeatedly_doubled_string(times("'aaaaaaaaaa'", 24, |it| format!("[{it}].map(x, x + x)[0]")) + ".size() > 0", 201)]
#[case::repeatedly_doubled_list(times("[1, 2]", 40, |it| format!("[{it}].map(x, x + x)[0]")) + ".size() > 0", 201)]
#[case::shared_lists_compared("[1]".to_owned() + &".map(x, [x, x])".repeat(60) + " == dyn([2])", 201)]
#[case::shared_lists_equal("[[1]".to_owned() + &".map(x, [x, x])".repeat(60) + "].all(x, [x] == [x])", 201)]
#[case::shared_lists_in_a_list("[[1]".to_owned() + &".map(x, [x, x])".repeat(60) + "].all(x, x in [x])", 201)]
#[case::shared_lists_as_arguments("[1]".to_owned() + &".map(x, [x, x])".repeat(60) + ".isSorted()", 422)]
#[case::shared_lists_of_the_wrong_type(
    "dyn([1]".to_owned() + &".map(x, [x, x])".repeat(23) + ").lowerAscii() == ''",
    201
)]
#[case::distinct_lists("[[1]".to_owned() + &".map(x, [x, x])".repeat(12) + "].all(x, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\
     .map(y, [x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x]).distinct().size() > 0)", 201)]
#[case::nested_loops(times("true", 12, |it| format!("[1,2,3,4,5,6,7,8,9,10].all(x, {it})")), 422)]
#[case::nested_map_macros(times("[1]", 10, |it| format!("[1,2,3,4,5,6,7,8,9,10].map(x, {it})")) + ".size() > 0", 422)]
#[case::nested_replacements(times("self.t", 12, |it| format!("{it}.replace('', 'aaaaaaaaaa')")) + ".size() > 0", 422)]
#[case::fewer_loops(times("true", 5, |it| format!("[1,2,3,4,5,6,7,8,9,10].all(x, {it})")), 201)]
#[case::fewer_map_macros(times("[1]", 4, |it| format!("[1,2,3,4,5,6,7,8,9,10].map(x, {it})")) + ".size() > 0", 201)]
#[case::range_above_the_runtime_limit("lists.range(2000000).size() > 0".to_owned(), 201)]
#[case::very_large_range("lists.range(9000000000000000000).size() > 0".to_owned(), 422)]
#[case::regex_with_large_repetitions("self.t.matches('((((a{100}){100}){100}){100})')".to_owned(), 422)]
#[case::regex_with_nested_stars("self.t.matches('(((((a)*)*)*)*)*$')".to_owned(), 201)]
#[case::unknown_escape("'\\".to_owned(), 422)]
#[case::too_long(format!("'{}' == ''", "a".repeat(100_001)), 422)]
fn large_expression_is_accepted_or_refused(#[case] rule: String, #[case] code: u16) {
    let taken = ask_once(&[], &post(CRDS, &crd(&rule)));
    assert_eq!(taken.code, code, "{:.300}", taken.message());
    // At most a hundred errors are reported, each with its line of the expression.
    assert!(taken.message().len() < 32 * 1024 * 1024);
    if taken.code == 201 {
        let spec = json!({"n": 3, "t": "aab", "l": ["a"], "m": {"a": 1}});
        let answer = ask_once(&[post(CRDS, &crd(&rule))], &post(WIDGETS, &widget(&spec)));
        assert!(
            matches!(answer.code, 201 | 422),
            "{} {:.300}",
            answer.code,
            answer.message()
        );
    }
}

#[rstest]
#[case("(".repeat(50_000), "expression recursion limit exceeded: 250")]
#[case(vec!["1"; 300].join("+") + " > 1", "expression recursion limit exceeded: 250")]
#[case("\"1\"".to_owned() + &" in 1".repeat(300), "expression recursion limit exceeded: 250")]
#[case("0x1in 0x1".to_owned() + &"in 0x1".repeat(300), "expression recursion limit exceeded: 250")]
#[case(format!("// it's\n1{} > 1", "+1".repeat(300)), "expression recursion limit exceeded: 250")]
#[case(format!("'a\n1{} > 1", "+1".repeat(100)), "Syntax error: token recognition error at: ''a")]
#[case(format!("'{}' == ''", "a".repeat(100_001)), "expression code point size exceeds limit")]
fn limit_error_has_the_same_message_as_in_kube_apiserver(#[case] rule: String, #[case] expected: &str) {
    let answer = ask_once(&[], &post(CRDS, &crd(&rule)));
    assert!(
        answer.code == 422 && answer.message().contains(expected),
        "{:.300}",
        answer.message()
    );
}
