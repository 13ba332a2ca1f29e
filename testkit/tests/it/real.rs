//! The same test on its own server, and on a server behind sockets that represents a real server.

use std::time::Duration;

use fake_apiserver::ApiServer;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, Config};
use rstest::rstest;
use testkit::objects::{config_map, pod};
use testkit::{RestartLog, TestCluster, Verb, faults};

use crate::support::{failure_of, label_pods, own_config_maps};

/// Test that passes on the fake server and on a real one.
async fn config_map_is_created_although_the_first_write_fails(cluster: &TestCluster) {
    let fault = cluster.inject(faults::server_error().on(Verb::Patch, "configmaps").once());
    cluster.run(own_config_maps(cluster.client_named("operator")));
    cluster.create(pod("web-0").namespace("shop")).await;
    cluster
        .eventually(|c| c.exists(config_map("web-0").namespace("shop").data("pod", "web-0")))
        .await;
    assert_eq!(fault.hits(), 1);
    cluster.settle().await;
    cluster.assert_owner_tree(pod("web-0").namespace("shop"), "Pod shop/web-0\n  ConfigMap shop/web-0");
    cluster.edit::<ConfigMap>("shop/web-0", |map| map.data = None).await;
    cluster
        .eventually(|c| c.get(config_map("web-0").namespace("shop")).data("pod") == Some("web-0"))
        .await;
    assert!(
        cluster
            .requests()
            .client("operator")
            .on(Verb::Patch, "configmaps")
            .count()
            >= 3
    );
    cluster.clean_up().await;
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn portable_test_runs_on_the_fake_server() {
    config_map_is_created_although_the_first_write_fails(&TestCluster::start()).await;
}

/// Runs a test with a client of a server behind a socket, which has its own runtime.
async fn behind_a_socket<T>(test: impl AsyncFnOnce(Client) -> T) -> T {
    let (tell, told) = std::sync::mpsc::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    #[expect(
        clippy::disallowed_methods,
        reason = "the other server lives in real time, in a runtime of its own"
    )]
    let other = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the runtime can be built");
        runtime.block_on(async {
            let serving = ApiServer::start()
                .serve(([127, 0, 0, 1], 0).into())
                .await
                .expect("a port is free");
            tell.send(serving.url()).expect("the test is waiting");
            let _ = stopped.await;
        });
    });
    let url = told.recv().expect("the sender is open");
    let mut config = Config::new(url.parse().expect("the URL is valid"));
    config.default_namespace = "default".to_owned();
    let result = test(Client::try_from(config).expect("the client can be created")).await;
    let _ = stop.send(());
    other.join().expect("the task does not panic");
    result
}

#[tokio::test]
async fn portable_test_runs_on_a_server_behind_a_socket() {
    behind_a_socket(async |client| {
        let cluster = TestCluster::connect(client).await;
        config_map_is_created_although_the_first_write_fails(&cluster).await;
        assert!(cluster.skipped().is_empty());
    })
    .await;
}

#[tokio::test]
async fn operations_that_real_servers_do_not_support_are_skipped_and_listed() {
    behind_a_socket(async |client| {
        let cluster = TestCluster::connect(client).await;
        cluster.run(label_pods(cluster.client()));
        cluster.create(pod("a")).await;
        cluster.restart(RestartLog::Lost, Duration::from_secs(3600));
        cluster.compact();
        cluster.expire_watches();
        assert_eq!(cluster.watches().count(), 0);
        assert_eq!(cluster.skipped(), ["compact", "expire_watches", "restart", "watches"]);
        cluster
            .eventually(|c| c.get(pod("a")).label("seen") == Some("true"))
            .await;
        let twin = cluster.fork();
        assert_eq!(twin.get(pod("a")).uid(), cluster.get(pod("a")).uid());
        let message = failure_of(|| cluster.assert_gone(pod("a")));
        assert!(message.contains("Pod default/a still exists"), "{message}");
        cluster.clean_up().await;
        cluster.assert_gone(pod("a"));
    })
    .await;
}
