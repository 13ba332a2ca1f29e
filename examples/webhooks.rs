//! An operator with webhooks that are called in process: a mailbox of an older version is converted, defaulted,
//! validated and reconciled.
//!
//! `cargo run --example webhooks`. `examples::mailbox::run` serves the same webhooks over TLS, as in a real program.

use examples::mailbox::{self, v1alpha1};
use informer::runtime::Manager;
use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;
use kube::Api;
use kube::api::PostParams;
use testkit::TestCluster;
use testkit::objects::{config_map, serialized};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let definition = mailbox::definition()?;
    let cluster = TestCluster::builder().object(serialized(&definition)).start();
    let webhooks = mailbox::webhooks()?;
    let server = WebhookClientConfig {
        url: Some("https://mailboxes.example.com".into()), // no connection is opened
        ..WebhookClientConfig::default()
    };
    let configurations = webhooks.configurations("mailboxes", &server);
    cluster.webhooks(webhooks.service(), configurations).await;
    let manager = Manager::new(cluster.client());
    mailbox::add_controller(&manager)?;
    let _running = cluster.run(async move { manager.run(std::future::pending()).await });

    let old: Api<v1alpha1::Mailbox> = Api::default_namespaced(cluster.client());
    let mailbox = |quota: Option<&str>| {
        let quota = quota.map(str::to_owned);
        let user = "ann".to_owned();
        v1alpha1::Mailbox::new("ann", v1alpha1::MailboxSpec { user, quota })
    };
    for quota in ["a lot", "20480Mi"] {
        let refused = old.create(&PostParams::default(), &mailbox(Some(quota))).await;
        println!("{quota}: {:?}", refused.err().map(informer::Error::from));
    }
    let created = old.create(&PostParams::default(), &mailbox(None)).await?;
    println!("the quota is {:?} by default", created.spec.quota);
    cluster.settle().await;
    println!(
        "the settings say {:?} MiB",
        cluster.get(config_map("ann")).data("quotaMib")
    );
    Ok(())
}
