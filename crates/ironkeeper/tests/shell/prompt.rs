//! The interactive prompt.

use ironkeeper_client::{Client, CreateMode, Version};
use ironkeeper_testing::{Direction, FaultyProxy, TestServer};
use tempfile::TempDir;

use crate::pseudo_terminal::{CTRL_C, CTRL_D, ENTER, PseudoTerminal, TAB, UP};

/// A server, a shell at its prompt, and another client.
struct Scene {
    terminal: PseudoTerminal,
    runtime: tokio::runtime::Runtime,
    other: Client,
    home: TempDir,
    // The last field, so that it is dropped after everything that is connected to it.
    server: TestServer,
}

impl Scene {
    fn new() -> Scene {
        let server = TestServer::start().unwrap();
        let home = tempfile::tempdir().unwrap();
        let terminal = open_shell(&server, &home);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let other = runtime.block_on(Client::connect(&server.connect_string())).unwrap();
        let mut scene = Scene { terminal, runtime, other, home, server };
        scene.terminal.wait_for("Welcome to Ironkeeper!");
        // Printed before the first prompt, or after it; then the prompt is drawn again.
        let connected = format!("Connected to {}", scene.server.connect_string());
        scene.terminal.wait_for(&connected);
        scene.terminal.wait_for_prompt(0);
        scene
    }

    fn create(&self, path: &str, data: &str) {
        self.runtime.block_on(self.other.create(path, data, CreateMode::Persistent)).unwrap();
    }

    fn exists(&self, path: &str) -> bool {
        self.runtime.block_on(self.other.exists(path)).unwrap().is_some()
    }
}

fn open_shell(server: &TestServer, home: &TempDir) -> PseudoTerminal {
    PseudoTerminal::start(&server.connect_string(), &[], &home.path().join("state/history"))
}

#[test]
fn the_prompt_shows_server_state_and_number() {
    let mut scene = Scene::new();
    let terminal = &mut scene.terminal;
    terminal.run("create /app hello");
    terminal.wait_for("Created /app");
    terminal.wait_for_prompt(1);
    terminal.run("close");
    terminal.wait_for("(CLOSED) 2] ");
    terminal.run("ls /");
    terminal.wait_for("Not connected");
    terminal.run("connect");
    terminal.wait_for("Connected to ");
    terminal.run("get /app");
    terminal.wait_for("hello");
    terminal.wait_for_prompt(5);
}

#[test]
fn tab_completes_commands_options_and_live_paths() {
    let mut scene = Scene::new();
    scene.create("/app", "");
    scene.create("/app/config", "the configuration");
    scene.create("/app/other", "");
    scene.create("/app/two words", "found");
    let terminal = &mut scene.terminal;
    terminal.press("getAll");
    terminal.press(TAB);
    terminal.wait_for("getAllChildrenNumber ");
    terminal.press("/ap");
    terminal.press(TAB);
    terminal.wait_for("/app/");
    terminal.press(CTRL_C);
    terminal.wait_for_prompt(0);

    terminal.press("get /app/c");
    terminal.press(TAB);
    terminal.wait_for("onfig ");
    terminal.press(ENTER);
    terminal.wait_for("the configuration");
    terminal.wait_for_prompt(1);

    // A name with a blank is quoted.
    terminal.press("get /app/t");
    terminal.press(TAB);
    terminal.wait_for("\"/app/two words\"");
    terminal.press(ENTER);
    terminal.wait_for("found");
    terminal.wait_for_prompt(2);

    // Several candidates are listed.
    terminal.press("addWatch -m P");
    terminal.press(TAB);
    terminal.wait_for("ERSISTENT");
    terminal.press(TAB);
    terminal.wait_for("PERSISTENT_RECURSIVE");
    terminal.wait_for("] addWatch -m PERSISTENT");
    terminal.press(CTRL_C);
    terminal.wait_for_prompt(2);

    // A new node is completed at once.
    scene.create("/fresh", "new");
    let terminal = &mut scene.terminal;
    terminal.press("get /fr");
    terminal.press(TAB);
    terminal.wait_for("esh ");
    terminal.press(ENTER);
    terminal.wait_for("new");
}

#[test]
fn what_completion_writes_can_be_run_however_many_children_there_are() {
    let mut scene = Scene::new();
    scene.create("/wide", "the parent");
    scene.runtime.block_on(async {
        let mode = CreateMode::Persistent;
        let creates =
            (0..1500).map(|n| scene.other.create(&format!("/wide/child-{n:04}"), "", mode));
        for created in creates.collect::<Vec<_>>() {
            created.await.unwrap();
        }
    });
    let terminal = &mut scene.terminal;
    terminal.press("get /wi");
    terminal.press(TAB);
    terminal.wait_for("de/");
    terminal.press(ENTER);
    terminal.wait_for("the parent");
    terminal.wait_for_prompt(1);
    // All 1,500 begin with child-, and the first thousand with child-0.
    terminal.press("stat /wide/c");
    terminal.press(TAB);
    terminal.wait_for("hild-");
    terminal.run("1499");
    terminal.wait_for("cZxid");
    terminal.wait_for_prompt(2);
}

#[test]
fn an_export_does_not_replace_a_file_without_a_question() {
    let mut scene = Scene::new();
    let file = scene.home.path().join("app.json");
    std::fs::write(&file, "mine").unwrap();
    scene.create("/app", "");
    let terminal = &mut scene.terminal;
    terminal.run(&format!("export /app {}", file.display()));
    terminal.wait_for("[y/N] ");
    terminal.run("n");
    terminal.wait_for("Nothing was done");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn the_prompt_names_the_server_that_is_in_use() {
    let (first, second) = (TestServer::start().unwrap(), TestServer::start().unwrap());
    let home = tempfile::tempdir().unwrap();
    let servers = format!("{},{}", first.connect_string(), second.connect_string());
    let mut terminal = PseudoTerminal::start(&servers, &[], &home.path().join("h"));
    terminal.wait_for(",+1(CONNECTED) 0] ");
    terminal.run("cd /zookeeper");
    terminal.wait_for(",+1(CONNECTED)/zookeeper 1] ");
}

#[test]
fn the_prompt_follows_the_connection_while_a_line_is_typed() {
    let server = TestServer::start().unwrap();
    let proxy = FaultyProxy::start(server.connect_string()).unwrap();
    let home = tempfile::tempdir().unwrap();
    let address = proxy.connect_string();
    let mut terminal = PseudoTerminal::start(&address, &[], &home.path().join("h"));
    terminal.wait_for(&format!("Connected to {address}"));
    terminal.wait_for_prompt(0);
    terminal.press("ls /zoo");
    terminal.wait_for("ls /zoo");
    proxy.refuse();
    proxy.cut();
    // One line, followed by the prompt with its new state and the typed text.
    terminal.wait_for(&format!("Disconnected from {address}; connecting again\n[zk: "));
    terminal.wait_for("(CONNECTING) 0] ls /zoo");
    proxy.heal().unwrap();
    terminal.wait_for(&format!("Connected to {address}\n[zk: "));
    terminal.wait_for(&format!("{address}(CONNECTED) 0] ls /zoo"));
    terminal.run("keeper");
    terminal.wait_for("[config, quota]");
    assert!(!terminal.seen().contains("WATCHER::"), "{}", terminal.seen());
}

#[test]
fn the_prompt_names_the_next_server_when_the_one_in_use_is_gone() {
    let server = TestServer::start().unwrap();
    let proxies = [(); 2].map(|()| FaultyProxy::start(server.connect_string()).unwrap());
    let home = tempfile::tempdir().unwrap();
    let servers = proxies.each_ref().map(FaultyProxy::connect_string).join(",");
    let mut terminal = PseudoTerminal::start(&servers, &[], &home.path().join("h"));
    terminal.wait_for(",+1(CONNECTED) 0] ");
    terminal.press("ls");
    terminal.wait_for("ls");
    let (used, other) = match proxies[0].open_connections() {
        0 => (&proxies[1], &proxies[0]),
        _ => (&proxies[0], &proxies[1]),
    };
    used.refuse();
    used.cut();
    let address = other.connect_string();
    terminal.wait_for(&format!("Connected to {address}\n[zk: {address},+1(CONNECTED) 0] ls"));
}

#[test]
fn arrow_up_brings_back_commands_even_of_the_last_shell() {
    let mut scene = Scene::new();
    scene.create("/app", "");
    let terminal = &mut scene.terminal;
    terminal.run("set /app first");
    terminal.wait_for_prompt(1);
    terminal.run("get /app");
    terminal.wait_for("first");
    terminal.wait_for_prompt(2);
    terminal.run("addauth digest user:secret");
    terminal.wait_for_prompt(3);
    terminal.press(UP);
    terminal.wait_for("get /app");
    terminal.press(ENTER);
    terminal.wait_for("first");
    terminal.wait_for_prompt(4);
    terminal.run("quit");
    assert!(scene.terminal.wait_for_end().success());
    assert!(scene.terminal.edits_lines());

    let kept = std::fs::read_to_string(scene.home.path().join("state/history")).unwrap();
    assert!(kept.contains("set /app first") && !kept.contains("secret"), "{kept}");

    // The newest line comes first.
    let mut next = open_shell(&scene.server, &scene.home);
    next.wait_for_prompt(0);
    next.press(UP);
    next.wait_for("] quit");
    next.press(UP);
    next.wait_for("] get /app");
}

#[test]
fn events_appear_above_the_line_that_is_being_typed() {
    let mut scene = Scene::new();
    scene.create("/app", "old");
    let terminal = &mut scene.terminal;
    terminal.run("get -w /app");
    terminal.wait_for("old");
    terminal.wait_for_prompt(1);
    terminal.press("stat /a");
    terminal.wait_for("stat /a");
    scene.runtime.block_on(scene.other.set("/app", "new", Version::Any)).unwrap();
    terminal.wait_for("WATCHER::");
    terminal.wait_for("WatchedEvent state:SyncConnected type:NodeDataChanged path:/app zxid: ");
    // The prompt is shown again with the typed text, and typing continues.
    terminal.wait_for("(CONNECTED) 1] stat /a");
    terminal.run("pp");
    terminal.wait_for("dataVersion = 1");
    terminal.wait_for_prompt(2);
}

#[test]
fn control_c_throws_a_line_away_and_control_d_ends_the_session() {
    let mut scene = Scene::new();
    let terminal = &mut scene.terminal;
    terminal.press("delete /everything");
    terminal.wait_for("delete /everything");
    terminal.press(CTRL_C);
    terminal.wait_for_prompt(0);
    terminal.run("create -e /mine");
    terminal.wait_for("Created /mine");
    terminal.wait_for_prompt(1);
    assert!(scene.exists("/mine"));
    scene.terminal.press(CTRL_D);
    let Scene { terminal, runtime, other, .. } = &mut scene;
    // The session is closed, so it does not have to expire.
    let watch = runtime.block_on(other.exists_and_watch("/mine")).unwrap();
    if let (Some(_), gone) = watch {
        runtime.block_on(gone).unwrap();
    }
    terminal.wait_for("The session is closed");
}

#[test]
fn a_lost_connection_is_told_and_comes_back_with_its_watches() {
    let mut scene = Scene::new();
    scene.create("/app", "");
    let terminal = &mut scene.terminal;
    terminal.run("addWatch /app");
    terminal.wait_for_prompt(1);
    terminal.run("create -e /mine");
    terminal.wait_for("Created /mine");
    terminal.wait_for_prompt(2);
    scene.server.drop_connections().unwrap();
    terminal.wait_for("Disconnected from ");
    terminal.wait_for("Connected to ");
    // The session is still the same.
    terminal.run("getEphemerals");
    terminal.wait_for("[/mine]");
    terminal.run("create /app/below");
    terminal.wait_for("type:NodeCreated path:/app/below");
}

#[test]
fn control_c_stops_waiting_for_a_server_that_does_not_answer() {
    // Accepts connections and never replies.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let home = tempfile::tempdir().unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let mut terminal =
        PseudoTerminal::start(&address, &["-timeout", "600000"], &home.path().join("h"));
    terminal.wait_for("(CONNECTING) 0] ");
    terminal.run("ls /");
    // The echo of the line end: from here on the command runs.
    terminal.wait_for("ls /\n");
    terminal.interrupt();
    terminal.wait_for("Interrupted");
    terminal.wait_for("(CONNECTING) 1] ");
    terminal.run("quit");
    assert_eq!(terminal.wait_for_end().code(), Some(130));
}

#[test]
fn deleting_a_subtree_is_confirmed() {
    let mut scene = Scene::new();
    scene.create("/app", "");
    scene.create("/app/a", "");
    scene.create("/app/b", "");
    let terminal = &mut scene.terminal;
    terminal.run("deleteall /app");
    terminal.wait_for("Delete /app and 2 below it? [y/N] ");
    terminal.run("");
    terminal.wait_for("Nothing was done");
    terminal.wait_for_prompt(1);
    assert!(scene.exists("/app/b"));

    let terminal = &mut scene.terminal;
    terminal.run("deleteall /app");
    terminal.wait_for("[y/N] ");
    terminal.run("y");
    terminal.wait_for_prompt(2);
    assert!(!scene.exists("/app"));

    // With --yes there is no confirmation.
    scene.create("/app", "");
    let terminal = &mut scene.terminal;
    terminal.run("deleteall --yes /app");
    terminal.wait_for_prompt(3);
    assert!(!scene.exists("/app"));
}

#[test]
fn a_move_is_confirmed_and_watching_ends_at_an_interrupt() {
    let mut scene = Scene::new();
    scene.create("/old", "data");
    let terminal = &mut scene.terminal;
    terminal.run("mv /old /new");
    terminal.wait_for("Move /old with 1 node? [y/N] ");
    terminal.run("n");
    terminal.wait_for("Nothing was done");
    terminal.wait_for_prompt(1);
    terminal.run("mv /old /new");
    terminal.wait_for("[y/N] ");
    terminal.run("y");
    terminal.wait_for("Moved /old to /new (1 node)");
    terminal.wait_for_prompt(2);
    terminal.run("watch /new");
    terminal.wait_for("Watching /new; Ctrl-C ends it");
    let set = scene.other.set("/new", "other", Version::Any);
    scene.runtime.block_on(set).unwrap();
    scene.terminal.wait_for("changed  /new  v1  = other");
    scene.terminal.interrupt();
    scene.terminal.wait_for_prompt(3);
    assert!(scene.exists("/new") && !scene.exists("/old"));
}

#[test]
fn a_yes_for_one_command_is_forgotten_even_if_that_is_interrupted() {
    let scene = Scene::new();
    scene.create("/app", "");
    let proxy = FaultyProxy::start(scene.server.connect_string()).unwrap();
    let history = scene.home.path().join("other-history");
    let mut terminal = PseudoTerminal::start(&proxy.connect_string(), &[], &history);
    terminal.wait_for("Connected to ");
    terminal.wait_for_prompt(0);
    proxy.stall(Direction::ToClient);
    terminal.run("ls / --yes");
    terminal.wait_for("ls / --yes\n");
    terminal.interrupt();
    terminal.wait_for("Interrupted");
    terminal.wait_for_prompt(1);
    proxy.heal().unwrap();
    terminal.run("deleteall /app");
    terminal.wait_for("Delete /app? [y/N] ");
    terminal.run("n");
    terminal.wait_for("Nothing was done");
    assert!(scene.exists("/app"));
}
