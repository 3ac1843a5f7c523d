//! A server with sample nodes, and a client that reads and changes them.

use ironkeeper_client::{Acl, Client, CreateMode, CreateOptions, Node, Perms};
use ironkeeper_testing::TestServer;
use tokio::runtime::Runtime;

pub struct Scene {
    pub runtime: Runtime,
    pub client: Client,
    pub at: String,
    // The last field, so that it is dropped after everything that is connected to it.
    pub server: TestServer,
}

impl Scene {
    pub fn new() -> Scene {
        let server = TestServer::start().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let at = server.connect_string();
        let client = runtime.block_on(Client::connect(&at)).unwrap();
        Scene { runtime, client, at, server }
    }

    /// Creates a subtree with every kind of node: `/app` with text, bytes, null data, empty data,
    /// an ACL, and an ephemeral node of this client's session.
    pub fn with_app() -> Scene {
        let scene = Scene::new();
        scene.create("/app", b"the text");
        scene.create("/app/bytes", b"\xff\x00\xfe");
        scene.create("/app/empty", b"");
        scene.create("/app/two words", "Zeile 1\nZeile zwei ü\n".as_bytes());
        scene.create("/app/two words/leaf", b"1");
        let null = CreateOptions::new(CreateMode::Persistent).null_data();
        scene.create_with("/app/null", b"", &null);
        let closed = vec![
            Acl::new(Perms::READ, "world", "anyone"),
            Acl::new(Perms::ALL, "digest", "user:smGaoVKd/cQkjm7b88GyorAUz20="),
        ];
        // The ACL that denies access to others is set last.
        scene.create("/app/closed", b"locked");
        scene.create("/app/closed/below", b"inside");
        let set = scene.client.set_acl("/app/closed", &closed, -1);
        scene.runtime.block_on(set).unwrap();
        let ephemeral = CreateOptions::new(CreateMode::Ephemeral);
        scene.create_with("/app/here", b"me", &ephemeral);
        scene
    }

    #[track_caller]
    pub fn create(&self, path: &str, data: &[u8]) {
        self.create_with(path, data, &CreateOptions::new(CreateMode::Persistent));
    }

    #[track_caller]
    fn create_with(&self, path: &str, data: &[u8], options: &CreateOptions) {
        self.runtime.block_on(self.client.create_with(path, data, options)).unwrap();
    }

    #[track_caller]
    pub fn set(&self, path: &str, data: &[u8]) {
        self.runtime.block_on(self.client.set(path, data, -1)).unwrap();
    }

    #[track_caller]
    pub fn delete(&self, path: &str) {
        self.runtime.block_on(self.client.delete(path, -1)).unwrap();
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Node {
        self.runtime.block_on(self.client.get(path)).unwrap()
    }

    #[track_caller]
    pub fn acl(&self, path: &str) -> Vec<Acl> {
        self.runtime.block_on(self.client.get_acl(path)).unwrap().0
    }

    #[track_caller]
    pub fn exists(&self, path: &str) -> bool {
        self.runtime.block_on(self.client.exists(path)).unwrap().is_some()
    }

    /// Authenticates the client as a user that may read and set every ACL of the scene.
    pub fn as_owner(&self) {
        self.runtime.block_on(self.client.add_auth("digest", "user:pass")).unwrap();
    }
}
