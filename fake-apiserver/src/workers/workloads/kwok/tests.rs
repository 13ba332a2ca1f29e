//! Compares templates and queries with the results of Go and jq.

use rstest::rstest;

use super::functions::{Facts, is_known};
use super::query::Query;
use super::template::Template;
use crate::api::json::{Value, json};

fn object() -> Value {
    json!({
        "metadata": {"name": "web", "labels": {"a.b/c": "true"}},
        "spec": {"containers": [{"name": "one", "image": "i"}, {"name": "two"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
    })
}

fn render(text: &str) -> Result<String, String> {
    let facts = Facts {
        now: "2026-01-01T00:00:00Z".to_owned(),
        node_address: "172.18.0.2".to_owned(),
        pod_address: "10.244.0.1".to_owned(),
        ..Facts::default()
    };
    Template::parse(text, &is_known)?.render(&object(), &facts)
}

#[rstest]
#[case::field("{{ .metadata.name }}", "web")]
#[case::missing_field("{{ .metadata.nothing.at.all }}", "<no value>")]
#[case::trim_markers("a \n{{- .metadata.name -}} \n b", "awebb")]
#[case::comment("a{{/* no }} text */}}b", "ab")]
#[case::variable("{{ $x := .metadata }}{{ $x.name }}{{ $.spec.nothing }}", "web<no value>")]
#[case::assignment("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}", "2")]
#[case::scope("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ end }}{{ $x }}", "1")]
#[case::pipeline("{{ .metadata.name | Quote }}", "\"web\"")]
#[case::quoted_number("{{ 1 | Quote }}", "\"1\"")]
#[case::else_if("{{ if false }}a{{ else if eq 1 2 }}b{{ else }}c{{ end }}", "c")]
#[case::with_a_present_field("{{ with .metadata.name }}{{ . }}{{ else }}none{{ end }}", "web")]
#[case::with_a_missing_field("{{ with .metadata.none }}{{ . }}{{ else }}none{{ end }}", "none")]
#[case::loop_over_items("{{ range .spec.containers }}{{ .name }},{{ end }}", "one,two,")]
#[case::loop_with_index("{{ range $i, $it := .spec.containers }}{{ $i }}{{ $it.name }}{{ end }}", "0one1two")]
#[case::loop_over_fields("{{ range $k, $v := .metadata.labels }}{{ $k }}={{ $v }}{{ end }}", "a.b/c=true")]
#[case::loop_over_a_missing_field("{{ range .none }}a{{ else }}b{{ end }}", "b")]
#[case::break_in_a_loop(
    "{{ range .spec.containers }}{{ if eq .name \"two\" }}{{ break }}{{ end }}{{ .name }}{{ end }}",
    "one"
)]
#[case::index(
    "{{ index .metadata.labels \"a.b/c\" }}{{ (index .spec.containers 1).name }}",
    "truetwo"
)]
#[case::or("{{ or .none ( index .metadata.labels \"x\" ) `raw` }}", "raw")]
#[case::printf("{{ printf \"%s-%d%%\" \"a\" 3 }}", "a-3%")]
#[case::sprig("{{ .none | default \"a\" | upper }}{{ dict \"k\" 1 }}", "Amap[k:1]")]
#[case::addresses(
    "{{ NodeIPWith \"n\" }} {{ PodIPWith \"n\" false \"\" \"\" \"\" }}",
    "172.18.0.2 10.244.0.1"
)]
#[case::host_network("{{ PodIPWith \"n\" true \"\" \"\" \"\" }}", "172.18.0.2")]
#[case::yaml("a:{{ YAML .metadata.labels 1 }}", "a:\n  a.b/c: \"true\"\n  ")]
fn go_templates_are_rendered(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(render(text).as_deref(), Ok(expected));
}

#[rstest]
#[case::function("{{ env \"HOME\" }}", "function \"env\" is not supported")]
#[case::definition("{{ define \"a\" }}{{ end }}", "define is not supported")]
#[case::missing_end("{{ if true }}", "unexpected EOF")]
#[case::unclosed_action("a {{ .b", "unclosed action")]
#[case::undefined_variable("{{ $x }}", "undefined variable $x")]
#[case::out_of_range("{{ index .spec.containers 2 }}", "index out of range: 2")]
fn invalid_or_unsupported_templates_are_refused(#[case] text: &str, #[case] why: &str) {
    assert_eq!(render(text), Err(why.to_owned()));
}

#[rstest]
#[case::field(".metadata.name", json!(["web"]))]
#[case::quoted(".metadata.labels[\"a.b/c\"]", json!(["true"]))]
#[case::items(".spec.containers.[].name", json!(["one", "two"]))]
#[case::item_by_index(".spec.containers[1].name", json!(["two"]))]
#[case::select(".status.conditions.[] | select( .type == \"Ready\" ) | .status", json!(["True"]))]
#[case::two_conditions(".status.conditions[] | select(.type == \"Other\" and .status != \"True\") | .type",
    json!(["Other"]))]
#[case::length(".spec.containers | length", json!([2]))]
#[case::missing_list(".metadata.ownerReferences.[].kind", json!([]))]
#[case::missing_field(".status.phase", json!([]))]
fn jq_query_selects_values(#[case] text: &str, #[case] expected: Value) {
    let query = Query::parse(text).expect("the query is valid");
    assert_eq!(Value::from_iter(query.values(&object())), expected);
}

#[rstest]
#[case::function(".a | map(.b)")]
#[case::assignment(".a = 1")]
#[case::slice(".a[1:2]")]
fn unsupported_jq_syntax_is_refused(#[case] text: &str) {
    assert!(Query::parse(text).is_err());
}
