//! Connections cut after every byte, in both directions.

use std::sync::Arc;

use ironkeeper_client::{Client, CreateMode, ErrorKind, Happened, Version};
use ironkeeper_testing::Direction;

use super::place::{Place, patiently, soon};

/// More bytes than each script below sends in either direction.
const BYTES: u64 = 420;
/// Scripts that run concurrently.
const LANES: u64 = 12;

/// Runs a script once for every byte after which its connection can be cut.
async fn everywhere<F>(script: impl Fn(Arc<Place>, Direction, u64) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let place = Arc::new(Place::new().await);
    for direction in [Direction::ToServer, Direction::ToClient] {
        for first in (0..BYTES).step_by(LANES as usize) {
            let mut lanes = tokio::task::JoinSet::new();
            for cut in first..(first + LANES).min(BYTES) {
                lanes.spawn(script(place.clone(), direction, cut));
            }
            while let Some(ended) = lanes.join_next().await {
                ended.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn errors_never_claim_that_a_write_did_not_happen_when_it_did() {
    everywhere(|place, direction, cut| async move {
        let proxy = place.proxy();
        proxy.cut_after(direction, cut);
        let client = Client::builder(&place.through(&[&proxy])).start().unwrap();
        let name = |number: u32| format!("/{direction:?}-{cut}-{number}");
        let replies: Vec<_> = (0..3)
            .map(|number| client.create(&name(number), "data", CreateMode::Persistent))
            .collect();
        let mut outcomes = Vec::new();
        for reply in replies {
            outcomes.push(soon(reply).await);
        }
        let other = place.client().await;
        for (number, outcome) in (0..).zip(outcomes) {
            let there = other.exists(&name(number)).await.unwrap().is_some();
            match outcome {
                Ok(_) => assert!(there, "{} was created", name(number)),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ConnectionLoss, "{error}");
                    assert!(!there || error.happened() == Happened::Maybe, "{error}");
                }
            }
        }
        // The client works again.
        client.retry(&patiently(), || client.get("/")).await.unwrap();
        client.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn protected_creates_happen_exactly_once() {
    everywhere(|place, direction, cut| async move {
        let proxy = place.proxy();
        let client = place.client().await;
        let parent = format!("/{direction:?}-{cut}");
        client.create(&parent, "", CreateMode::Persistent).await.unwrap();
        proxy.cut_after(direction, cut);
        let cut_off = Client::builder(&place.through(&[&proxy])).start().unwrap();
        let policy = patiently();
        let mode = CreateMode::PersistentSequential;
        let path = format!("{parent}/n-");
        let created = soon(cut_off.create_protected(&path, "x", mode, &policy)).await.unwrap();
        let names = client.children(&parent).await.unwrap();
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(created.path, format!("{parent}/{}", names[0]));
        cut_off.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn idempotent_writes_happen_exactly_once() {
    everywhere(|place, direction, cut| async move {
        let proxy = place.proxy();
        proxy.cut_after(direction, cut);
        let client = Client::builder(&place.through(&[&proxy])).start().unwrap();
        let (path, policy) = (format!("/{direction:?}-{cut}"), patiently());
        let work = async {
            client.create_idempotent(&path, "1", CreateMode::Persistent, &policy).await?;
            let stat = client.set_idempotent(&path, "2", 0, &policy).await?;
            assert_eq!(stat.version, 1);
            client.delete_idempotent(&path, Version::Any, &policy).await
        };
        soon(work).await.unwrap();
        assert!(place.client().await.exists(&path).await.unwrap().is_none());
        client.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn watches_survive_a_cut_anywhere() {
    everywhere(|place, direction, cut| async move {
        let proxy = place.proxy();
        let client = Client::connect(&place.through(&[&proxy])).await.unwrap();
        let path = format!("/{direction:?}-{cut}");
        let other = place.client().await;
        other.create(&path, "", CreateMode::Persistent).await.unwrap();
        let watch = soon(client.retry(&patiently(), || client.get_and_watch(&path))).await;
        let (_, watch) = watch.unwrap();
        proxy.cut_after(direction, cut);
        other.set(&path, "new", Version::Any).await.unwrap();
        // Causes traffic, so that the cut happens.
        let policy = patiently();
        for _ in 0..4 {
            soon(client.retry(&policy, || client.get(&path))).await.unwrap();
        }
        soon(watch).await.unwrap();
        client.close().await.unwrap();
    })
    .await;
}
