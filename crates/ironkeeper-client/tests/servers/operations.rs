//! Every operation, with a success and with an error.

use std::time::Duration;

use ironkeeper_client::{
    Acl, Client, CreateMode, CreateOptions, ErrorCode, ErrorKind, Happened, OpResult, Perms,
    Version, acls,
};

use super::place::{Place, soon};

#[tokio::test]
async fn nodes_are_created_read_changed_and_deleted() {
    let place = Place::new().await;
    let client = place.client().await;
    assert_eq!(client.create("/n", "one", CreateMode::Persistent).await.unwrap(), "/n");
    let node = client.get("/n").await.unwrap();
    assert_eq!((&node.data[..], node.stat.version), (&b"one"[..], 0));
    let stat = client.set("/n", "second", node.stat.version).await.unwrap();
    assert_eq!((stat.version, stat.data_length), (1, 6));
    assert_eq!(client.exists("/n").await.unwrap(), Some(stat));
    let late = client.set("/n", "third", 0).await.unwrap_err();
    assert_eq!((late.kind(), late.path()), (ErrorKind::BadVersion, Some("/n")));
    assert_eq!((late.code(), late.happened()), (Some(ErrorCode::BadVersion), Happened::No));
    assert_eq!(client.delete("/n", 0).await.unwrap_err().kind(), ErrorKind::BadVersion);
    client.delete("/n", 1).await.unwrap();
    assert_eq!(client.get("/n").await.unwrap_err().kind(), ErrorKind::NoNode);
    assert_eq!(client.exists("/n").await.unwrap(), None);
    assert!(client.last_zxid() >= stat.mzxid);
}

#[tokio::test]
async fn every_kind_of_node_can_be_created() {
    let place = Place::new().await;
    let client = place.client().await;
    let create = |mode: CreateMode, name: &'static str| {
        let mut options = CreateOptions::new(mode);
        if mode.is_ttl() {
            options = options.ttl(Duration::from_secs(600));
        }
        let client = client.clone();
        async move { client.create_with(name, "x", &options).await.unwrap() }
    };
    assert_eq!(create(CreateMode::Persistent, "/p").await.path, "/p");
    let ephemeral = create(CreateMode::Ephemeral, "/e").await;
    assert_eq!(ephemeral.stat.ephemeral_owner, client.session_id().0);
    assert_eq!(create(CreateMode::PersistentSequential, "/s-").await.path, "/s-0000000002");
    assert_eq!(create(CreateMode::EphemeralSequential, "/s-").await.path, "/s-0000000003");
    assert_eq!(create(CreateMode::Container, "/c").await.path, "/c");
    assert_eq!(create(CreateMode::PersistentWithTtl, "/t").await.path, "/t");
    let sequential = create(CreateMode::PersistentSequentialWithTtl, "/t-").await;
    assert_eq!(sequential.path, "/t-0000000006");
    // The name of a sequential node may consist of the number only.
    assert_eq!(create(CreateMode::PersistentSequential, "/").await.path, "/0000000007");
    assert_eq!(create(CreateMode::PersistentSequential, "/p/").await.path, "/p/0000000000");
    let mut own = client.ephemerals("/").await.unwrap();
    own.sort();
    assert_eq!(own, ["/e", "/s-0000000003"]);
    let error = client.create("/e/x", "", CreateMode::Persistent).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoChildrenForEphemerals);
}

#[tokio::test]
async fn null_data_is_told_from_empty_data() {
    let place = Place::new().await;
    let client = place.client().await;
    client.create("/empty", "", CreateMode::Persistent).await.unwrap();
    client.create_with("/null", "", &CreateOptions::default().null_data()).await.unwrap();
    let (empty, null) = (client.get("/empty").await.unwrap(), client.get("/null").await.unwrap());
    assert!(empty.data.is_empty() && null.data.is_empty());
    assert!(!empty.is_null() && null.is_null());
}

#[tokio::test]
async fn children_are_listed_and_counted() {
    let place = Place::new().await;
    let client = place.client().await;
    for path in ["/a", "/a/x", "/a/y", "/a/y/z"] {
        client.create(path, "", CreateMode::Persistent).await.unwrap();
    }
    let (mut names, stat) = client.children_and_stat("/a").await.unwrap();
    names.sort();
    assert_eq!((names, stat.num_children), (vec!["x".to_owned(), "y".to_owned()], 2));
    assert_eq!(client.children("/a/y").await.unwrap(), ["z"]);
    assert_eq!(client.all_children_number("/a").await.unwrap(), 3);
    assert_eq!(client.children("/absent").await.unwrap_err().kind(), ErrorKind::NoNode);
    assert_eq!(client.delete("/a", Version::Any).await.unwrap_err().kind(), ErrorKind::NotEmpty);
    client.sync("/a").await.unwrap();
}

#[tokio::test]
async fn transactions_are_all_or_nothing() {
    let place = Place::new().await;
    let client = place.client().await;
    let results = client
        .transaction()
        .create("/a", "1", CreateMode::Persistent)
        .create("/a/s-", "", CreateMode::EphemeralSequential)
        .create("/c", "", CreateMode::Container)
        .create(
            "/t",
            "",
            CreateOptions::new(CreateMode::PersistentWithTtl).ttl(Duration::from_secs(600)),
        )
        .set("/a", "2", 0)
        .check("/a", 1)
        .delete("/c", Version::Any)
        .commit()
        .await
        .unwrap();
    assert_eq!(results.len(), 7);
    assert!(matches!(&results[1], OpResult::Created { path, .. } if path == "/a/s-0000000000"));
    assert!(matches!(&results[4], OpResult::Set(stat) if stat.version == 1));
    assert_eq!((&results[5], &results[6]), (&OpResult::Checked, &OpResult::Deleted));

    let error = client
        .transaction()
        .set("/a", "3", Version::Any)
        .check("/a", 99)
        .delete("/a", Version::Any)
        .commit()
        .await
        .unwrap_err();
    assert_eq!((error.kind(), error.failed_operation()), (ErrorKind::BadVersion, Some(1)));
    assert_eq!(error.path(), Some("/a"));
    let kinds: Vec<ErrorKind> =
        error.multi_results().iter().map(|result| result.as_ref().unwrap_err().kind()).collect();
    assert_eq!(kinds, [ErrorKind::RolledBack, ErrorKind::BadVersion, ErrorKind::RolledBack]);
    assert_eq!(client.get("/a").await.unwrap().data, "2");
    assert!(client.transaction().commit().await.unwrap().is_empty());
    client.check("/a", 1).await.unwrap();
    assert_eq!(client.check("/b", 1).await.unwrap_err().kind(), ErrorKind::NoNode);
}

#[tokio::test]
async fn reads_in_one_request_fail_one_by_one() {
    let place = Place::new().await;
    let client = place.client().await;
    client.create("/a", "data", CreateMode::Persistent).await.unwrap();
    let results = client.multi_read().get("/a").get("/b").children("/").send().await.unwrap();
    assert!(matches!(&results[0], Ok(OpResult::Node(node)) if node.data == "data"));
    assert_eq!(results[1].as_ref().unwrap_err().kind(), ErrorKind::NoNode);
    assert!(matches!(&results[2], Ok(OpResult::Children(names)) if names == &["a"]));
}

#[tokio::test]
async fn access_is_limited_and_granted() {
    let place = Place::new().await;
    let (owner, other) = (place.client().await, place.client().await);
    owner.add_auth("digest", "owner:secret").await.unwrap();
    let options = CreateOptions::default().acl(acls::creator());
    owner.create_with("/private", "x", &options).await.unwrap();
    assert_eq!(other.get("/private").await.unwrap_err().kind(), ErrorKind::NoAuth);
    assert_eq!(owner.get("/private").await.unwrap().data, "x");
    let (list, _) = owner.get_acl("/private").await.unwrap();
    assert_eq!((list[0].scheme.as_str(), list[0].perms), ("digest", Perms::ALL));
    let mut open = list.clone();
    open.push(Acl::new(Perms::READ, "world", "anyone"));
    assert_eq!(owner.set_acl("/private", &open, 0).await.unwrap().aversion, 1);
    assert_eq!(other.get("/private").await.unwrap().data, "x");
    let late = owner.set_acl("/private", &open, 0).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::BadVersion);
    let who = owner.who_am_i().await.unwrap();
    assert!(who.iter().any(|identity| identity.scheme == "digest"));
    let nobody = other.create_with("/x", "", &options).await.unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::InvalidAcl);
}

#[tokio::test]
async fn refused_credentials_end_the_client() {
    let place = Place::new().await;
    let client = place.client().await;
    let refused = soon(client.add_auth("nosuchscheme", "x")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AuthFailed);
    assert!(refused.is_session_over());
    assert_eq!(client.get("/").await.unwrap_err().kind(), ErrorKind::AuthFailed);
    let builder = Client::builder(&place.connect_string()).auth("nosuchscheme", "x");
    // Credentials are sent after the handshake, so `connect` may succeed at first.
    let outcome = soon(async { builder.connect().await?.get("/").await }).await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::AuthFailed);
}

#[tokio::test]
async fn arguments_that_no_server_takes_are_refused_before_they_are_sent() {
    let place = Place::new().await;
    let client = place.client().await;
    for path in ["", "relative", "/trailing/", "//", "/a/../b", "/nul\0", "/\u{1f600}"] {
        let error = client.get(path).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidPath(_)), "{path:?}: {error}");
        let error = client.create(path, "", CreateMode::Persistent).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidPath(_)), "{path:?}: {error}");
        assert!(client.transaction().delete(path, 0).commit().await.is_err());
    }
    let large = vec![0; 1 << 20];
    let error = client.create("/large", &large, CreateMode::Persistent).await.unwrap_err();
    assert_eq!((error.kind(), error.happened()), (ErrorKind::RequestTooLarge, Happened::No));
    let set = client.set("/large", &large, Version::Any).await.unwrap_err();
    assert_eq!(set.kind(), ErrorKind::RequestTooLarge);
    let multi = client.transaction().create("/l", &large, CreateMode::Persistent).commit();
    assert_eq!(multi.await.unwrap_err().kind(), ErrorKind::RequestTooLarge);
    // A request just below the limit succeeds, whatever the length of the chroot.
    let fits = vec![0; 1048575 - 200];
    client.create("/large", &fits, CreateMode::Persistent).await.unwrap();
    assert_eq!(client.get("/large").await.unwrap().data.len(), fits.len());

    let ttl = CreateOptions::new(CreateMode::PersistentWithTtl);
    for options in [
        ttl.clone(),
        ttl.clone().ttl(Duration::ZERO),
        ttl.ttl(Duration::from_millis(1 << 40)),
        CreateOptions::default().ttl(Duration::from_secs(1)),
    ] {
        let error = client.create_with("/ttl", "", &options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{options:?}");
    }
    let no_acl = client.create_with("/x", "", &CreateOptions::default().acl(vec![])).await;
    assert_eq!(no_acl.unwrap_err().kind(), ErrorKind::InvalidAcl);
    assert_eq!(client.state(), ironkeeper_client::ConnectionState::Connected);
}

#[tokio::test]
async fn a_reply_beyond_the_limit_fails_its_request_only() {
    let place = Place::new().await;
    let client = Client::builder(&place.connect_string()).max_reply_bytes(10_000);
    let client = client.connect().await.unwrap();
    client.create("/large", vec![1; 500_000], CreateMode::Persistent).await.unwrap();
    client.create("/small", "s", CreateMode::Persistent).await.unwrap();
    let session = client.session_id();
    let mut states = client.states();
    for _ in 0..3 {
        let (large, small) = (client.get("/large"), client.get("/small"));
        let error = large.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReplyTooLarge);
        assert!(!error.is_retriable());
        assert_eq!(small.await.unwrap().data, "s");
    }
    client.close().await.unwrap();
    assert_eq!(states.next().await, Some(ironkeeper_client::ConnectionState::Closed));
    assert_ne!(session.0, 0);
}

#[tokio::test]
async fn requests_are_carried_out_in_the_order_they_were_made() {
    let place = Place::new().await;
    let client = place.client().await;
    client.create("/n", "", CreateMode::Persistent).await.unwrap();
    let mut replies = Vec::new();
    for version in 0..500 {
        let set = client.set("/n", version.to_string(), version);
        let get = client.get("/n");
        replies.push((version, set, get));
    }
    // Awaiting the replies in another order makes no difference.
    for (version, set, get) in replies.into_iter().rev() {
        assert_eq!(get.await.unwrap().data, version.to_string());
        assert_eq!(set.await.unwrap().version, version + 1);
    }
}

#[tokio::test]
async fn a_handle_elsewhere_shares_the_session() {
    let place = Place::new().await;
    let client = place.client().await;
    client.create_recursive("/app/x", "deep", CreateMode::Persistent).await.unwrap();
    let app = client.at("/app").unwrap();
    assert_eq!(app.session_id(), client.session_id());
    assert_eq!(app.get("/x").await.unwrap().data, "deep");
    assert_eq!(app.children("/").await.unwrap(), ["x"]);
    let (_, watch) = app.get_and_watch("/x").await.unwrap();
    client.set("/app/x", "new", Version::Any).await.unwrap();
    assert_eq!(soon(watch).await.unwrap().path, "/x");
    let created = app.create("/s-", "", CreateMode::EphemeralSequential).await.unwrap();
    assert_eq!(created, "/s-0000000001");
    assert_eq!(app.get("/none").await.unwrap_err().path(), Some("/none"));
    assert_eq!(app.chroot(), format!("{}/app", place.chroot()));
    assert!(app.config().await.is_ok());
    assert!(client.at("relative").is_err());
}

#[tokio::test]
async fn a_request_leaves_although_nobody_waits_for_its_reply() {
    let place = Place::new().await;
    let (client, other) = (place.client().await, place.client().await);
    let (absent, created) = other.exists_and_watch("/unawaited").await.unwrap();
    assert!(absent.is_none());
    let asking = tokio::spawn(async move {
        let _reply = client.create("/unawaited", "", CreateMode::Persistent);
        std::future::pending::<()>().await;
    });
    soon(created).await.unwrap();
    asking.abort();
}

/// The README shows `testing_readme.rs`, which runs with the other tests.
#[test]
fn the_readme_of_ironkeeper_testing_shows_the_tests_that_are_run_here() {
    let readme = include_str!("../../../ironkeeper-testing/README.md");
    let program = include_str!("testing_readme.rs");
    assert!(readme.contains(&format!("```rust\n{program}```")), "they differ");
    assert_eq!(readme.matches("```rust").count(), 1);
}
