//! A minimal test with the crate `envtest`, which starts the programs in `KUBEBUILDER_ASSETS`.

use envtest::{BinaryAssetsSettings, Environment};

#[tokio::test]
async fn control_plane_starts_and_responds() {
    let environment = Environment {
        binary_assets_settings: BinaryAssetsSettings {
            download_binary_assets: false,
            ..Default::default()
        },
        ..Default::default()
    };
    let server = environment.create().await.expect("the control plane starts");
    let client = server.client().expect("the kubeconfig is valid");
    let version = client.apiserver_version().await.expect("the server answers");
    assert_eq!(version.major, "1");
    server.destroy().await.expect("the process ends");
}
