//! The shell with a server behind TLS, configured by the properties of Apache's client.

use std::process::{Command, Output, Stdio};

use ironkeeper_testing::TestServer;

#[path = "../../../ironkeeper-client/tests/tls/terminator.rs"]
mod terminator;

use terminator::{AUTHORITY, CLIENT, SERVER, terminator};

#[tokio::test(flavor = "multi_thread")]
async fn the_properties_of_a_java_client_open_a_tls_connection() {
    let server = TestServer::start().unwrap();
    let port = terminator(&server, true).await;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("trust.pem"), AUTHORITY).unwrap();
    std::fs::write(at("key.pem"), [CLIENT.1, CLIENT.0].concat()).unwrap();
    let properties = format!(
        "zookeeper.client.secure=true\nzookeeper.ssl.trustStore.location={}\n\
         zookeeper.ssl.keyStore.location={}\n",
        at("trust.pem"),
        at("key.pem")
    );
    std::fs::write(at("client.properties"), properties).unwrap();
    let file = at("client.properties");
    let output = tokio::task::spawn_blocking(move || shell(port, &file)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[zookeeper]\n", "{output:?}");
    assert!(output.status.success());

    std::fs::write(at("trust.pem"), SERVER.1).unwrap();
    let file = at("client.properties");
    let refused = tokio::task::spawn_blocking(move || shell(port, &file)).await.unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("no authority to trust"), "{said}");
}

fn shell(port: u16, configuration: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ironkeeper"))
        .args(["shell", "-server", &format!("127.0.0.1:{port}")])
        .args(["-client-configuration", configuration, "ls", "/"])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}
