//! The client against in-memory servers written for the test: servers that send invalid packets,
//! that are read-only, or that never reply.

mod writing;

use std::collections::BTreeMap;
use std::time::Duration;

use ironkeeper_client::{
    Client, ConnectionState, CreateMode, ErrorCode, ErrorKind, Happened, Host, MemoryListener,
    MemoryTransport, RetryPolicy, States,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it happens soon")
}

async fn until(states: &mut States, wanted: ConnectionState) {
    while let Some(state) = soon(states.next()).await {
        if state == wanted {
            return;
        }
    }
    panic!("the states ended without {wanted}");
}

/// Reads one frame from the stream; `None` at its end.
async fn frame(stream: &mut DuplexStream) -> Option<Vec<u8>> {
    let len = stream.read_i32().await.ok()?;
    let mut frame = vec![0; usize::try_from(len).unwrap()];
    stream.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

async fn send(stream: &mut DuplexStream, frame: &[u8]) {
    // The client may have closed the connection; the test checks that.
    let _ = stream.write_all(&[&(frame.len() as i32).to_be_bytes()[..], frame].concat()).await;
}

fn greeting(session: i64, read_only: bool) -> Vec<u8> {
    let mut frame = [0i32.to_be_bytes(), 6000i32.to_be_bytes()].concat();
    frame.extend(session.to_be_bytes());
    frame.extend(16i32.to_be_bytes());
    frame.extend([3; 16]);
    frame.push(u8::from(read_only));
    frame
}

/// Replies to every request with success and an empty body.
async fn serve(mut stream: DuplexStream, session: i64, read_only: bool) {
    if frame(&mut stream).await.is_none() {
        return;
    }
    send(&mut stream, &greeting(session, read_only)).await;
    while let Some(request) = frame(&mut stream).await {
        send(&mut stream, &answer(&request, 0, &[])).await;
    }
}

/// Accepts the session and rejects every request with `code`.
async fn refuse(mut stream: DuplexStream, code: ErrorCode) {
    frame(&mut stream).await.unwrap();
    send(&mut stream, &greeting(9, false)).await;
    while let Some(request) = frame(&mut stream).await {
        send(&mut stream, &answer(&request, code.code(), &[])).await;
    }
}

fn answer(request: &[u8], err: i32, body: &[u8]) -> Vec<u8> {
    let mut reply = request[..4].to_vec();
    reply.extend(1i64.to_be_bytes());
    reply.extend(err.to_be_bytes());
    reply.extend(body);
    reply
}

fn client(servers: &str) -> (Client, MemoryListener) {
    let (transport, listener) = MemoryTransport::new();
    let builder = Client::builder(servers).transport(transport).seed(1).read_only(true);
    (builder.start().unwrap(), listener)
}

#[tokio::test(start_paused = true)]
async fn nonsense_instead_of_a_handshake_is_survived() {
    let (client, mut listener) = client("a");
    let mut states = client.states();
    for nonsense in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        &[0; 3],
        &[0, 0, 0, 0],
        &[0xff; 64],
        &[0, 0, 0, 37, 0, 0, 0, 0, 0, 0, 0x17, 0x70],
        &[0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0x89],
    ] {
        let (_, mut stream) = soon(listener.accept()).await.unwrap();
        frame(&mut stream).await.unwrap();
        stream.write_all(nonsense).await.unwrap();
        drop(stream);
    }
    let (_, stream) = soon(listener.accept()).await.unwrap();
    tokio::spawn(serve(stream, 9, false));
    until(&mut states, ConnectionState::Connected).await;
    assert_eq!(client.session_id().0, 9);
    soon(client.sync("/")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_server_is_said() {
    let (client, mut listener) = client("a:1");
    let (_, mut stream) = soon(listener.accept()).await.unwrap();
    frame(&mut stream).await.unwrap();
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    let (_, silent) = soon(listener.accept()).await.unwrap();
    assert_eq!(client.trouble().as_deref(), Some("a:1: not the ZooKeeper protocol"));
    let (_, stream) = soon(listener.accept()).await.unwrap();
    assert_eq!(client.trouble().as_deref(), Some("a:1: no answer"));
    drop(silent);
    tokio::spawn(serve(stream, 9, false));
    soon(client.connected()).await.unwrap();
    assert_eq!(client.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn nonsense_instead_of_replies_costs_the_connection_only() {
    let (client, mut listener) = client("a");
    let mut seed = 1u64;
    let mut random = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as u8
    };
    for round in 0..300 {
        let (_, mut stream) = soon(listener.accept()).await.unwrap();
        frame(&mut stream).await.unwrap();
        send(&mut stream, &greeting(9, false)).await;
        soon(client.connected()).await.unwrap();
        let asked = client.get("/");
        let request = frame(&mut stream).await.unwrap();
        // A matching xid and random bytes, or random bytes only.
        let mut nonsense = Vec::new();
        if round % 2 == 0 {
            nonsense.extend_from_slice(&request[..4]);
            nonsense.extend([0; 12]);
        }
        nonsense.extend((0..random() % 100).map(|_| random()));
        if round % 3 == 0 {
            let _ = stream.write_all(&nonsense).await;
        } else {
            send(&mut stream, &nonsense).await;
        }
        drop(stream);
        let error = soon(asked).await.unwrap_err();
        let kind = error.kind();
        assert!(matches!(kind, ErrorKind::ConnectionLoss | ErrorKind::MalformedReply), "{error}");
    }
    let (_, stream) = soon(listener.accept()).await.unwrap();
    tokio::spawn(serve(stream, 9, false));
    soon(client.connected()).await.unwrap();
    soon(client.sync("/")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_cannot_be_read_is_an_error_and_the_end_of_the_connection() {
    let (client, mut listener) = client("a");
    let (_, stream) = soon(listener.accept()).await.unwrap();
    // The server replies with success, but without the data.
    tokio::spawn(serve(stream, 9, false));
    let mut states = client.states();
    let (get, children) = (client.get("/"), client.children("/"));
    assert_eq!(soon(get).await.unwrap_err().kind(), ErrorKind::MalformedReply);
    assert!(soon(children).await.is_err());
    until(&mut states, ConnectionState::Suspended).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_reply_cannot_be_read_may_have_happened() {
    let (client, mut listener) = client("a");
    let (_, stream) = soon(listener.accept()).await.unwrap();
    tokio::spawn(serve(stream, 9, false));
    let error = soon(client.set("/", "", -1)).await.unwrap_err();
    assert_eq!((error.kind(), error.happened()), (ErrorKind::MalformedReply, Happened::Maybe));
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_fate_the_server_does_not_know_may_have_happened() {
    let (client, mut listener) = client("a");
    let (_, stream) = soon(listener.accept()).await.unwrap();
    tokio::spawn(refuse(stream, ErrorCode::RequestTimeout));
    let error = soon(client.set("/", "", -1)).await.unwrap_err();
    assert_eq!((error.is_retriable(), error.happened()), (true, Happened::Maybe));
    let error = soon(client.get("/")).await.unwrap_err();
    assert_eq!((error.is_retriable(), error.happened()), (true, Happened::No));
}

#[tokio::test(start_paused = true)]
async fn a_missing_chroot_is_an_error_and_not_tried_for_ever() {
    let (client, mut listener) = client("a/missing");
    let (_, stream) = soon(listener.accept()).await.unwrap();
    tokio::spawn(refuse(stream, ErrorCode::NoNode));
    for (path, mode) in [("/x", CreateMode::Persistent), ("/", CreateMode::PersistentSequential)] {
        let error = soon(client.create_recursive(path, "", mode)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoNode);
    }
    let error = soon(client.create_parents("/x/y/z")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoNode);
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_goes_while_others_are_created_is_created_again() {
    let (client, mut listener) = client("a");
    let creating = tokio::spawn(async move { client.create_parents("/a/b/c").await });
    let (_, mut stream) = soon(listener.accept()).await.unwrap();
    frame(&mut stream).await.unwrap();
    send(&mut stream, &greeting(9, false)).await;
    // `/a` is an empty container, which the server deletes before it has a child.
    for (path, refusal) in [
        ("/a/b", ErrorCode::NoNode),
        ("/a", ErrorCode::NodeExists),
        ("/a/b", ErrorCode::NoNode),
        ("/a/b", ErrorCode::NoNode),
        ("/a", ErrorCode::NodeExists),
        ("/a/b", ErrorCode::NodeExists),
    ] {
        let request = soon(frame(&mut stream)).await.unwrap();
        let length = u32::from_be_bytes(request[8..12].try_into().unwrap()) as usize;
        assert_eq!(String::from_utf8_lossy(&request[12..12 + length]), path);
        send(&mut stream, &answer(&request, refusal.code(), &[])).await;
    }
    soon(creating).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_node_of_another_session_is_not_taken_for_our_own() {
    let (client, mut listener) = client("a");
    let created = tokio::spawn(async move {
        let policy = RetryPolicy::forever(Duration::from_millis(1));
        client.create_idempotent("/lock", "", CreateMode::Ephemeral, &policy).await
    });
    let (_, mut stream) = soon(listener.accept()).await.unwrap();
    frame(&mut stream).await.unwrap();
    send(&mut stream, &greeting(9, false)).await;
    frame(&mut stream).await.unwrap();
    // The reply to the first create is lost, and another session creates the node.
    drop(stream);
    let (_, mut stream) = soon(listener.accept()).await.unwrap();
    frame(&mut stream).await.unwrap();
    send(&mut stream, &greeting(9, false)).await;
    let create = frame(&mut stream).await.unwrap();
    send(&mut stream, &answer(&create, ErrorCode::NodeExists.code(), &[])).await;
    let get = frame(&mut stream).await.unwrap();
    let mut node = [0; 4 + 68];
    // The ephemeral owner follows four 8-byte fields and three versions.
    node[4 + 44..4 + 52].copy_from_slice(&77i64.to_be_bytes());
    send(&mut stream, &answer(&get, 0, &node)).await;
    let error = soon(created).await.unwrap().unwrap_err();
    // The first create may have been applied before.
    assert_eq!((error.kind(), error.happened()), (ErrorKind::NodeExists, Happened::Maybe));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_greets_is_left_for_the_next() {
    let (client, mut listener) = client("a,b");
    let (first, _silent) = soon(listener.accept()).await.unwrap();
    let (second, stream) = soon(listener.accept()).await.unwrap();
    assert_ne!(first, second);
    tokio::spawn(serve(stream, 9, false));
    soon(client.connected()).await.unwrap();
    assert_eq!(client.server(), Some(second));
}

#[tokio::test(start_paused = true)]
async fn a_read_only_server_is_left_when_another_takes_writes() {
    let (client, mut listener) = client("a,b");
    let mut states = client.states();
    let (read_only, stream) = soon(listener.accept()).await.unwrap();
    tokio::spawn(serve(stream, 9, true));
    until(&mut states, ConnectionState::ReadOnly).await;
    // The client probes the other server at growing intervals until it accepts writes.
    let mut answers = ["ro", "ro", "rw"].into_iter();
    for answer in answers.by_ref() {
        let (asked, mut stream) = soon(listener.accept()).await.unwrap();
        assert_ne!(asked, read_only);
        let mut word = [0; 4];
        stream.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"isro");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
    let (full, mut stream) = soon(listener.accept()).await.unwrap();
    assert_ne!(full, read_only);
    // The session of the read-only server is not valid here.
    let hello = frame(&mut stream).await.unwrap();
    assert_eq!(hello[16..24], [0; 8]);
    send(&mut stream, &greeting(10, false)).await;
    until(&mut states, ConnectionState::Reconnected).await;
    assert_eq!((client.session_id().0, client.server()), (10, Some(full)));
}

/// Acts as a read-only server that rejects every request.
async fn serve_reads(mut stream: DuplexStream) {
    frame(&mut stream).await.unwrap();
    send(&mut stream, &greeting(9, true)).await;
    while let Some(request) = frame(&mut stream).await {
        send(&mut stream, &answer(&request, ErrorCode::NotReadOnly.code(), &[])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_a_read_only_server_refuses_waits_for_one_that_takes_it() {
    let (client, mut listener) = client("a,b");
    let (_, stream) = soon(listener.accept()).await.unwrap();
    tokio::spawn(serve_reads(stream));
    let once_more = RetryPolicy::once(Duration::ZERO);
    let deleting = client.retry(&once_more, || client.delete("/a", -1));
    let serving = async {
        let (_, mut probe) = listener.accept().await.unwrap();
        probe.read_exact(&mut [0; 4]).await.unwrap();
        probe.write_all(b"rw").await.unwrap();
        let (_, stream) = listener.accept().await.unwrap();
        serve(stream, 9, false).await;
    };
    let deleted = async {
        tokio::select! {
            deleted = deleting => deleted,
            () = serving => panic!("the client is there"),
        }
    };
    soon(deleted).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_is_in_touch_with_a_server_that_takes_writes_and_was_heard_from() {
    let (client, mut listener) = client("a");
    let (_, mut stream) = soon(listener.accept()).await.unwrap();
    assert!(!client.is_in_touch());
    frame(&mut stream).await.unwrap();
    send(&mut stream, &greeting(9, false)).await;
    soon(client.connected()).await.unwrap();
    assert!(client.is_in_touch());
    // Two thirds of the session timeout without a packet.
    tokio::time::advance(Duration::from_millis(3999)).await;
    assert!(client.is_in_touch());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!client.is_in_touch());
    let (_, mut stream) = soon(listener.accept()).await.unwrap();
    frame(&mut stream).await.unwrap();
    send(&mut stream, &greeting(9, true)).await;
    soon(client.connected()).await.unwrap();
    assert_eq!(client.state(), ConnectionState::ReadOnly);
    assert!(!client.is_in_touch());
}

#[tokio::test(start_paused = true)]
async fn clickhouse_116690_a_server_that_swaps_the_session_is_found_out() {
    let (client, mut listener) = client("a");
    let mut states = client.states();
    let (_, mut stream) = soon(listener.accept()).await.unwrap();
    frame(&mut stream).await.unwrap();
    send(&mut stream, &greeting(9, false)).await;
    until(&mut states, ConnectionState::Connected).await;
    drop(stream);
    let (_, stream) = soon(listener.accept()).await.unwrap();
    tokio::spawn(serve(stream, 10, false));
    until(&mut states, ConnectionState::Lost).await;
    assert_eq!(client.get("/").await.unwrap_err().kind(), ErrorKind::SessionExpired);
}

#[tokio::test(start_paused = true)]
async fn pravega_3651_zk_3100_a_server_is_looked_for_by_its_name_at_every_connect() {
    let (client, mut listener) = client("moves");
    let mut states = client.states();
    for state in [ConnectionState::Connected, ConnectionState::Reconnected] {
        let (server, mut stream) = soon(listener.accept()).await.unwrap();
        assert_eq!(server.name(), "moves");
        frame(&mut stream).await.unwrap();
        send(&mut stream, &greeting(9, false)).await;
        until(&mut states, state).await;
    }
}

/// Counts how many clients connect first to each server.
#[tokio::test(start_paused = true)]
async fn clients_spread_over_the_servers() {
    let mut starts: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..60 {
        let (transport, mut listener) = MemoryTransport::new();
        let _client = Client::builder("a,b,c").transport(transport).seed(seed).start().unwrap();
        let (first, _stream): (Host, _) = soon(listener.accept()).await.unwrap();
        *starts.entry(first.name().to_owned()).or_default() += 1;
    }
    assert_eq!(starts.len(), 3);
    assert!(starts.values().all(|count| *count >= 8), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_nothing_in_does_not_use_up_all_memory() {
    let (transport, mut listener) = MemoryTransport::new();
    let client = Client::builder("a").transport(transport).max_waiting_bytes(1 << 20);
    let client = client.start().unwrap();
    let (_, mut stream) = soon(listener.accept()).await.unwrap();
    frame(&mut stream).await.unwrap();
    send(&mut stream, &greeting(9, false)).await;
    soon(client.connected()).await.unwrap();
    let data = vec![0; 100_000];
    let mut replies = Vec::new();
    for _ in 0..50 {
        replies.push(client.set("/", &data, -1));
        tokio::task::yield_now().await;
    }
    let last = replies.pop().unwrap();
    assert_eq!(soon(last).await.unwrap_err().kind(), ErrorKind::Overloaded);
    drop(stream);
    for reply in replies {
        assert!(soon(reply).await.is_err());
    }
}

/// All futures are `Send`.
#[test]
fn futures_are_send() {
    fn check<T: Send>(_: T) {}
    fn futures(client: &Client) {
        let policy = RetryPolicy::never();
        let mode = CreateMode::Persistent;
        check(client.get_and_watch("/"));
        check(client.close());
        check(client.connected());
        check(client.create_recursive("/a", "", mode));
        check(client.delete_recursive("/a"));
        check(client.create_protected("/a", "", mode, &policy));
        check(client.create_idempotent("/a", "", mode, &policy));
        check(client.retry(&policy, || client.get("/")));
        check(client.walk("/"));
        check(client.states());
        check(Client::connect("a"));
    }
    let _ = futures;
}

/// Returns the first frames that a client with this seed sends, after it received this session id.
async fn sent_with_seed(seed: u64, session: i64) -> Vec<Vec<u8>> {
    let (transport, mut listener) = MemoryTransport::new();
    let builder = Client::builder("a,b,c").transport(transport).seed(seed);
    let client = builder.start().unwrap();
    let (host, mut stream) = listener.accept().await.unwrap();
    let mut sent = vec![host.to_string().into_bytes(), frame(&mut stream).await.unwrap()];
    send(&mut stream, &greeting(session, false)).await;
    client.connected().await.unwrap();
    let policy = RetryPolicy::never();
    let creating = client.create_protected("/n-", "", CreateMode::EphemeralSequential, &policy);
    let reading = async { sent.push(frame(&mut stream).await.unwrap()) };
    // The server never replies to the create.
    tokio::select! {
        biased;
        _ = creating => panic!("nobody has answered"),
        () = reading => {}
    }
    sent
}

#[tokio::test(start_paused = true)]
async fn a_seed_fixes_everything_that_is_sent_and_sessions_keep_marks_apart() {
    assert_eq!(sent_with_seed(7, 9).await, sent_with_seed(7, 9).await);
    let (one, other) = (sent_with_seed(7, 9).await, sent_with_seed(7, 10).await);
    assert_eq!(one[..2], other[..2], "the same server, the same greeting");
    assert_ne!(one[2], other[2], "another mark");
}
