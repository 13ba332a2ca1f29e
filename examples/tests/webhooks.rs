//! In-process tests of the operator with webhooks: the server calls the webhooks with the same requests as over TLS.

use examples::mailbox::{self, Mailbox, MailboxSpec, v1alpha1};
use informer::errors;
use informer::runtime::Manager;
use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;
use kube::Api;
use kube::api::PostParams;
use rstest::rstest;
use testkit::TestCluster;
use testkit::objects::{config_map, serialized};

/// A cluster with the operator: its definition, its webhooks and its controller.
async fn cluster() -> TestCluster {
    let definition = mailbox::definition().expect("the versions can be merged");
    let cluster = TestCluster::builder().object(serialized(&definition)).start();
    let webhooks = mailbox::webhooks().expect("the webhook path is unused");
    let server = WebhookClientConfig {
        url: Some("https://mailboxes.example.com".into()),
        ..WebhookClientConfig::default()
    };
    let configurations = webhooks.configurations("mailboxes", &server);
    cluster.webhooks(webhooks.service(), configurations).await;
    let manager = Manager::new(cluster.client());
    mailbox::add_controller(&manager).expect("the name is unused");
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster
}

fn of_v1(owner: &str, quota_mib: Option<u32>) -> Mailbox {
    let owner = owner.to_owned();
    Mailbox::new("box", MailboxSpec { owner, quota_mib })
}

fn of_v1alpha1(quota: &str) -> v1alpha1::Mailbox {
    let (user, quota) = ("ann".to_owned(), Some(quota.to_owned()));
    v1alpha1::Mailbox::new("box", v1alpha1::MailboxSpec { user, quota })
}

#[tokio::test]
async fn quota_is_defaulted_converted_and_copied_to_a_config_map() {
    let cluster = cluster().await;
    let new: Api<Mailbox> = Api::default_namespaced(cluster.client());
    let old: Api<v1alpha1::Mailbox> = Api::default_namespaced(cluster.client());
    let created = new.create(&PostParams::default(), &of_v1("ann", None)).await;
    assert_eq!(created.expect("the object is valid").spec.quota_mib, Some(512));
    let converted = old.get("box").await.expect("the object exists").spec;
    assert_eq!(converted, of_v1alpha1("512Mi").spec);
    cluster.settle().await;
    cluster.assert_has(config_map("box").data("owner", "ann").data("quotaMib", "512"));
}

#[rstest]
#[case::too_large("20480Mi", "spec.quotaMib: 20480 is more than 10240")]
#[case::not_a_number("a lot", "spec.quota: \"a lot\" is not a number of Mi")]
#[tokio::test]
async fn invalid_quotas_are_refused(#[case] quota: &str, #[case] message: &str) {
    let cluster = cluster().await;
    let old: Api<v1alpha1::Mailbox> = Api::default_namespaced(cluster.client());
    let err = old.create(&PostParams::default(), &of_v1alpha1(quota)).await;
    let err = informer::Error::from(err.expect_err("the object is invalid"));
    assert!(err.to_string().contains(message), "{err}");
}

#[tokio::test]
async fn owner_cannot_be_changed() {
    let cluster = cluster().await;
    let new: Api<Mailbox> = Api::default_namespaced(cluster.client());
    let created = new.create(&PostParams::default(), &of_v1("ann", None)).await;
    let mut mailbox = created.expect("the object is valid");
    mailbox.spec.owner = "bob".into();
    let err = new.replace("box", &PostParams::default(), &mailbox).await;
    assert!(errors::is_invalid(&err.expect_err("the field is immutable")));
}
