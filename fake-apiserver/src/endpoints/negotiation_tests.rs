//! Compares negotiation with the responses of kube-apiserver 1.36 for each header.

use rstest::rstest;

use super::*;

const SHORT: &str = "only the following media types are accepted: application/json, application/yaml, \
                     application/vnd.kubernetes.protobuf";
const ROUTER: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                      application/vnd.kubernetes.protobuf";
const ROUTER_COLLECTION: &str = "406: Not Acceptable\n\nAvailable representations: application/json, \
                                 application/yaml, application/vnd.kubernetes.protobuf, \
                                 application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

#[rstest]
#[case(None, Encoding::Json, View::Whole)]
#[case(Some("*/*"), Encoding::Json, View::Whole)]
#[case(Some("application/yaml"), Encoding::Yaml, View::Whole)]
#[case(Some("text/plain, application/json;q=0.5"), Encoding::Json, View::Whole)]
#[case(
    Some("application/vnd.kubernetes.protobuf,application/json"),
    Encoding::Protobuf,
    View::Whole
)]
#[case(
    Some("application/json;as=Table;g=meta.k8s.io;v=v1"),
    Encoding::Json,
    View::Table(MetaVersion::V1)
)]
#[case(
    Some("application/yaml;as=Table;g=meta.k8s.io;v=v1"),
    Encoding::Yaml,
    View::Table(MetaVersion::V1)
)]
#[case(
    Some("application/json;as=Table;g=meta.k8s.io;v=v1beta1"),
    Encoding::Json,
    View::Table(MetaVersion::V1Beta1)
)]
#[case(
    Some(
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
         application/json"
    ),
    Encoding::Json,
    View::Table(MetaVersion::V1)
)]
#[case(
    Some("application/json;as=Table;g=meta.k8s.io;v=v2,application/json"),
    Encoding::Json,
    View::Whole
)]
#[case(
    Some(
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
         application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    ),
    Encoding::Protobuf,
    View::Metadata(MetaVersion::V1)
)]
fn a17_first_acceptable_clause_wins(#[case] accept: Option<&str>, #[case] encoding: Encoding, #[case] view: View) {
    let got = answer(accept, Served::BuiltIn, Route::Object).unwrap();
    assert_eq!((got.encoding, got.view), (encoding, view));
}

#[rstest]
#[case("text/html", Served::BuiltIn, Route::Object, ROUTER, true)]
#[case("application/*", Served::BuiltIn, Route::Object, ROUTER, true)]
#[case("application/*", Served::BuiltIn, Route::Collection, ROUTER_COLLECTION, true)]
#[case(
    "application/json;as=Foo;g=meta.k8s.io;v=v1",
    Served::BuiltIn,
    Route::Object,
    SHORT,
    false
)]
#[case(
    "application/json;as=Table;g=meta.k8s.io;v=v2",
    Served::BuiltIn,
    Route::Collection,
    SHORT,
    false
)]
#[case(
    "application/json;as=Table;g=other;v=v1",
    Served::BuiltIn,
    Route::Collection,
    SHORT,
    false
)]
#[case(
    "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1",
    Served::BuiltIn,
    Route::Collection,
    SHORT,
    false
)]
#[case("text/html", Served::Custom, Route::Object, SHORT, false)]
#[case("application/vnd.kubernetes.protobuf", Served::Custom, Route::Object, SHORT, false)]
fn a17_unsatisfiable_accept_headers_are_refused(
    #[case] accept: &str,
    #[case] served: Served,
    #[case] route: Route,
    #[case] message: &str,
    #[case] has_details: bool,
) {
    let status = answer(Some(accept), served, route).unwrap_err();
    assert_eq!(
        (status.code, &*status.reason, status.message.as_str()),
        (406, "NotAcceptable", message)
    );
    assert_eq!(status.details.is_some(), has_details);
}

#[test]
fn a17_application_wildcard_selects_json_for_custom_resources() {
    assert_eq!(
        answer(Some("application/*"), Served::Custom, Route::Object),
        Ok(AnswerForm::default())
    );
}

#[rstest]
#[case("application/json;stream=watch", None)]
#[case("application/json", None)]
#[case(
    "application/vnd.kubernetes.protobuf;stream=watch, application/json;stream=watch",
    None
)]
#[case(
    "application/yaml, application/json;q=0.5",
    Some(
        "only the following media types are accepted: application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch"
    )
)]
#[case("text/plain", Some(ROUTER_COLLECTION))]
fn e1_watch_streams_are_json_or_protobuf(#[case] accept: &str, #[case] refusal: Option<&str>) {
    let got = watch_answer(Some(accept), Served::BuiltIn);
    assert_eq!(got.err().map(|it| it.message).as_deref(), refusal);
}

#[rstest]
#[case(None, ErrorForm::Json)]
#[case(Some("application/yaml"), ErrorForm::Yaml)]
#[case(Some("text/html"), ErrorForm::IndentedJson)]
#[case(Some("application/json;as=Table;g=meta.k8s.io;v=v1"), ErrorForm::IndentedJson)]
#[case(
    Some("application/json;as=Table;g=meta.k8s.io;v=v1,application/json"),
    ErrorForm::Json
)]
#[case(Some("application/vnd.kubernetes.protobuf"), ErrorForm::Protobuf)]
#[case(
    Some("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1"),
    ErrorForm::IndentedJson
)]
#[case(Some("application/vnd.kubernetes.protobuf,application/json"), ErrorForm::Protobuf)]
#[case(Some("application/vnd.kubernetes.protobuf;q=0.4,application/json"), ErrorForm::Json)]
fn m5_errors_honour_the_accept_header(#[case] accept: Option<&str>, #[case] form: ErrorForm) {
    assert_eq!(error_form(accept), form);
}

#[rstest]
#[case(None, Discovery::Plain(Encoding::Json))]
#[case(Some("application/yaml"), Discovery::Plain(Encoding::Yaml))]
#[case(
    Some("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
    Discovery::Aggregated
)]
#[case(
    Some("application/json, application/json;q=0.1;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
    Discovery::Aggregated
)]
#[case(
    Some("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"),
    Discovery::Plain(Encoding::Json)
)]
fn n2_aggregated_discovery_is_selected_by_the_accept_header(#[case] accept: Option<&str>, #[case] form: Discovery) {
    assert_eq!(discovery(accept, Served::BuiltIn, true), Ok(form));
}

#[test]
fn n2_aggregated_discovery_is_only_served_at_api_and_apis() {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    assert_eq!(discovery(Some(accept), Served::BuiltIn, false).unwrap_err().code, 406);
}

#[rstest]
#[case(None, Served::BuiltIn, Ok(BodyForm::Json))]
#[case(Some("application/json; charset=utf-8"), Served::Custom, Ok(BodyForm::Json))]
#[case(Some("application/yaml"), Served::Custom, Ok(BodyForm::Yaml))]
#[case(Some("application/vnd.kubernetes.protobuf"), Served::BuiltIn, Ok(BodyForm::Protobuf))]
#[case(Some("application/vnd.kubernetes.protobuf"), Served::Custom, Err(()))]
#[case(Some("text/plain"), Served::BuiltIn, Err(()))]
fn a16_body_media_type_is_checked(
    #[case] content_type: Option<&str>,
    #[case] served: Served,
    #[case] expected: Result<BodyForm, ()>,
) {
    let got = body_form(content_type, served).map_err(|status| {
        assert_eq!(
            (status.code, status.message.as_str()),
            (
                415,
                "the body of the request was in an unknown format - accepted media types include: application/json, \
                 application/yaml, application/vnd.kubernetes.protobuf"
            )
        );
    });
    assert_eq!(got, expected);
}

#[test]
fn a16_patch_media_type_is_checked() {
    let merge = Some("application/merge-patch+json; charset=utf-8");
    assert_eq!(patch_form(merge, Served::BuiltIn), Ok(PatchKind::Merge));
    let strategic = Some("application/strategic-merge-patch+json");
    assert_eq!(patch_form(strategic, Served::BuiltIn), Ok(PatchKind::Strategic));
    let custom = patch_form(strategic, Served::Custom).unwrap_err();
    assert_eq!(
        custom.message,
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    );
    let foreign = patch_form(Some("application/json"), Served::BuiltIn).unwrap_err();
    assert_eq!(foreign.message, "415: Unsupported Media Type");
    assert_eq!(foreign.details, Some(Box::default()));
}

#[test]
fn m3_partial_object_metadata_view_is_refused_for_lists() {
    let view = View::Metadata(MetaVersion::V1);
    let status = view
        .check(true, || go_type(Served::BuiltIn, "", "ConfigMapList"))
        .unwrap_err();
    assert_eq!(
        status.message,
        "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)"
    );
    let name = go_type(Served::Custom, "example.com", "WidgetList");
    assert_eq!(name, "*unstructured.UnstructuredList");
    assert_eq!(view.check(false, String::new), Ok(()));
}

#[rstest]
#[case("", true)]
#[case("application/json", false)]
#[case("application/jwk-set+json", true)]
#[case("application/json, */*", true)]
#[case("application/*", false)]
fn jwks_document_is_only_served_as_jwk_set_json(#[case] accept: &str, #[case] is_taken: bool) {
    let answered = check_document(Some(accept), "application/jwk-set+json");
    let text = "406: Not Acceptable\n\nAvailable representations: application/jwk-set+json";
    assert_eq!(
        answered.map_err(|status| status.message),
        if is_taken { Ok(()) } else { Err(text.to_owned()) }
    );
}
