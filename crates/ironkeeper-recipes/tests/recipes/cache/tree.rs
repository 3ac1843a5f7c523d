//! The cache of a subtree.

use ironkeeper_client::{Client, CreateMode, ErrorKind, Version};
use ironkeeper_recipes::cache::{CacheEvent, TreeCache, Watching};
use ironkeeper_testing::Direction;

use super::{as_cached, as_it_is, told_until, until_equal, until_watches};
use crate::world::{World, with_every_cut};

const BOTH: [Watching; 2] = [Watching::Lasting, Watching::OneShot];
const PERSISTENT: CreateMode = CreateMode::Persistent;

async fn plant(client: &Client) {
    for path in ["/t", "/t/a", "/t/a/1", "/t/a/2", "/t/b"] {
        client.create(path, path, PERSISTENT).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_there_is_told_first_and_then_what_happens() {
    for watching in BOTH {
        let world = World::start().await;
        let client = world.client().await;
        plant(&client).await;
        let cache = TreeCache::start_by(&client, "/t", watching);
        let mut events = cache.events();
        let mut told = told_until(&mut events, "initialized").await;
        assert_eq!(told[0], "+/t");
        told.sort();
        assert_eq!(told, ["+/t", "+/t/a", "+/t/a/1", "+/t/a/2", "+/t/b", "initialized"]);
        assert!(cache.is_initialized() && !cache.is_empty());
        assert_eq!(as_cached(&cache), as_it_is(&client, "/t").await);

        client.set("/t/a/1", "x", Version::Any).await.unwrap();
        assert_eq!(told_until(&mut events, "*/t/a/1=x").await, ["*/t/a/1=x"]);
        client.create("/t/b/3", "", PERSISTENT).await.unwrap();
        assert_eq!(told_until(&mut events, "+/t/b/3").await, ["+/t/b/3"]);
        client.create("/t/b/3/4", "", PERSISTENT).await.unwrap();
        assert_eq!(told_until(&mut events, "+/t/b/3/4").await, ["+/t/b/3/4"]);
        client.delete_recursive("/t/b").await.unwrap();
        assert_eq!(told_until(&mut events, "-/t/b").await, ["-/t/b/3/4", "-/t/b/3", "-/t/b"]);
        assert_eq!(cache.children("/t/a").len(), 2);

        // A later subscriber receives the present nodes first.
        let told = told_until(&mut cache.events(), "initialized").await;
        assert_eq!(told, ["+/t", "+/t/a", "+/t/a/1", "+/t/a/2", "initialized"]);
    }
}

#[tokio::test]
async fn curator_182_183_240_the_root_may_go_and_come_back() {
    for watching in BOTH {
        let world = World::start().await;
        let client = world.client().await;
        // Not even the parent exists.
        let cache = TreeCache::start_by(&client, "/above/t", watching);
        cache.initialized().await.unwrap();
        assert!(cache.is_empty());
        let mut events = cache.events();
        for round in 0..3 {
            let leaf = format!("/above/t/{round}");
            client.create_recursive(&leaf, "", PERSISTENT).await.unwrap();
            told_until(&mut events, &format!("+{leaf}")).await;
            client.delete_recursive("/above").await.unwrap();
            told_until(&mut events, "-/above/t").await;
            assert!(cache.is_empty());
        }
    }
}

#[tokio::test]
async fn curator_391_153_476_netflix_246_nothing_is_missed_during_a_reconnect() {
    for watching in BOTH {
        let world = World::start().await;
        let (proxy, client) = world.proxied().await;
        let other = world.client().await;
        plant(&other).await;
        let cache = TreeCache::start_by(&client, "/t", watching);
        cache.initialized().await.unwrap();
        proxy.refuse();
        proxy.cut();
        other.set("/t/a/1", "changed", Version::Any).await.unwrap();
        other.delete("/t/a/2", Version::Any).await.unwrap();
        other.create("/t/a/3", "added", PERSISTENT).await.unwrap();
        other.create("/t/a/3/deep", "added", PERSISTENT).await.unwrap();
        // Deleted and created again with the same version and the same number of children.
        other.delete("/t/b", Version::Any).await.unwrap();
        other.create("/t/b", "another", PERSISTENT).await.unwrap();
        // Added and deleted.
        other.create("/t/c", "", PERSISTENT).await.unwrap();
        other.delete("/t/c", Version::Any).await.unwrap();
        proxy.heal().unwrap();
        until_equal(&cache, &other).await;
        // And the watches are set again.
        other.set("/t/a/3/deep", "later", Version::Any).await.unwrap();
        other.create("/t/b/new", "later", PERSISTENT).await.unwrap();
        until_equal(&cache, &other).await;
    }
}

#[tokio::test]
async fn curator_391_476_fast_changes_under_a_flapping_connection_end_in_the_same_tree() {
    for watching in BOTH {
        let world = World::start().await;
        let (proxy, client) = world.proxied().await;
        let other = world.client().await;
        other.create("/t", "", PERSISTENT).await.unwrap();
        let cache = TreeCache::start_by(&client, "/t", watching);
        let mut random: u64 = 42;
        for round in 0..400 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (pick, way) = ((random >> 33) % 4, (random >> 40) % 4);
            let child = format!("/t/{pick}");
            let leaf = format!("{child}/{way}");
            let data = format!("{round}");
            // A change may fail, depending on the present tree; that does not matter.
            match way {
                0 => drop(other.create(&child, &data, PERSISTENT)),
                1 => drop(other.set(&child, &data, Version::Any)),
                2 => drop(other.delete(&child, Version::Any)),
                _ => drop(other.create(&leaf, &data, PERSISTENT)),
            }
            match (random >> 45) % 3 {
                0 => drop(other.delete(&leaf, Version::Any)),
                1 => drop(other.set(&leaf, &data, Version::Any)),
                _ => {}
            }
            if round % 10 == 0 {
                other.sync("/").await.unwrap();
            }
            if round % 60 == 30 {
                proxy.cut();
            }
        }
        other.sync("/").await.unwrap();
        until_equal(&cache, &other).await;
    }
}

#[tokio::test]
async fn a_cut_at_every_moment_of_the_first_load_changes_nothing() {
    let world = World::start().await;
    let other = world.client().await;
    plant(&other).await;
    for watching in BOTH {
        for direction in [Direction::ToServer, Direction::ToClient] {
            with_every_cut(&world, direction, |client, _| {
                let other = other.clone();
                async move {
                    let cache = TreeCache::start_by(&client, "/t", watching);
                    cache.initialized().await.unwrap();
                    until_equal(&cache, &other).await;
                }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn elastic_2019_a_reconnect_does_not_read_everything_again() {
    const DATA: usize = 10_000;
    const NODES: usize = 50;
    for watching in BOTH {
        let world = World::start().await;
        let (proxy, client) = world.proxied().await;
        let other = world.client().await;
        other.create("/t", "", PERSISTENT).await.unwrap();
        for number in 0..NODES {
            other.create(&format!("/t/{number}"), vec![0; DATA], PERSISTENT).await.unwrap();
        }
        other.create("/t/gone", "", PERSISTENT).await.unwrap();
        let cache = TreeCache::start_by(&client, "/t", watching);
        cache.initialized().await.unwrap();
        let mut events = cache.events();
        told_until(&mut events, "initialized").await;
        let before = proxy.bytes(Direction::ToClient);
        assert!(before > (NODES * DATA) as u64);
        proxy.refuse();
        proxy.cut();
        other.delete("/t/gone", Version::Any).await.unwrap();
        proxy.heal().unwrap();
        assert_eq!(told_until(&mut events, "-/t/gone").await, ["-/t/gone"]);
        let read = proxy.bytes(Direction::ToClient) - before;
        assert!(read < (3 * DATA) as u64, "{read}");
    }
}

#[tokio::test]
async fn helix_733_930_deleted_nodes_leave_no_watches() {
    for (watching, watches_min) in [(Watching::Lasting, 1), (Watching::OneShot, 2)] {
        let world = World::start().await;
        let client = world.client().await;
        client.create("/t", "", PERSISTENT).await.unwrap();
        let cache = TreeCache::start_by(&client, "/t", watching);
        cache.initialized().await.unwrap();
        let mut events = cache.events();
        for round in 0..20 {
            let path = format!("/t/{round}");
            client.create(&path, "", PERSISTENT).await.unwrap();
            told_until(&mut events, &format!("+{path}")).await;
            client.delete(&path, Version::Any).await.unwrap();
            told_until(&mut events, &format!("-{path}")).await;
        }
        until_watches(&client, watches_min).await;
        drop(cache);
        until_watches(&client, 0).await;
    }
}

#[tokio::test]
async fn helix_962_a_list_too_large_ends_the_cache_instead_of_asking_for_ever() {
    for watching in BOTH {
        let world = World::start().await;
        let other = world.client().await;
        other.create("/t", "", PERSISTENT).await.unwrap();
        for number in 0..100 {
            let path = format!("/t/a-child-with-a-long-name-{number}");
            other.create(&path, "", PERSISTENT).await.unwrap();
        }
        let client =
            Client::builder(&world.connect_string()).max_reply_bytes(1024).connect().await.unwrap();
        let cache = TreeCache::start_by(&client, "/t", watching);
        let refused = cache.initialized().await.unwrap_err();
        assert_eq!(refused.kind(), Some(ErrorKind::ReplyTooLarge), "{refused}");
        assert!(matches!(cache.events().next().await, Some(CacheEvent::Created(_))));
    }
}

#[tokio::test]
async fn a_listener_too_slow_begins_anew() {
    let world = World::start().await;
    let client = world.client().await;
    client.create("/t", "", PERSISTENT).await.unwrap();
    let cache = TreeCache::start(&client, "/t");
    cache.initialized().await.unwrap();
    let mut slow = cache.events();
    told_until(&mut slow, "initialized").await;
    let mut quick = cache.events();
    for round in 0..600 {
        let path = format!("/t/{round}");
        client.create(&path, "", PERSISTENT).await.unwrap();
        told_until(&mut quick, &format!("+{path}")).await;
        client.delete(&path, Version::Any).await.unwrap();
        told_until(&mut quick, &format!("-{path}")).await;
    }
    client.create("/t/last", "", PERSISTENT).await.unwrap();
    told_until(&mut quick, "+/t/last").await;
    let told = told_until(&mut slow, "initialized").await;
    assert_eq!(told, ["reset", "+/t", "+/t/last", "initialized"]);
}

#[tokio::test]
async fn netflix_232_the_end_of_the_session_ends_the_cache_and_keeps_what_it_has() {
    for watching in BOTH {
        let world = World::start().await;
        let client = world.client().await;
        plant(&client).await;
        let cache = TreeCache::start_by(&client, "/t", watching);
        cache.initialized().await.unwrap();
        let mut events = cache.events();
        told_until(&mut events, "initialized").await;
        world.end_session(&client).await;
        let Some(CacheEvent::Ended(why)) = events.next().await else { panic!() };
        assert!(why.is_session_over(), "{why}");
        assert!(events.next().await.is_none());
        assert_eq!(cache.len(), 5);
    }
}

#[tokio::test]
async fn a_watch_that_somebody_removes_is_set_again() {
    use ironkeeper_client::WatchType;
    for watching in BOTH {
        let world = World::start().await;
        let client = world.client().await;
        plant(&client).await;
        let cache = TreeCache::start_by(&client, "/t", watching);
        cache.initialized().await.unwrap();
        client.remove_watches("/t", WatchType::Any).await.unwrap();
        client.create("/t/c", "", PERSISTENT).await.unwrap();
        until_equal(&cache, &client).await;
    }
}

#[tokio::test]
async fn a_path_that_is_none_is_an_error() {
    let world = World::start().await;
    let client = world.client().await;
    for watching in BOTH {
        let refused = TreeCache::start_by(&client, "no/path", watching).initialized().await;
        assert!(matches!(refused.unwrap_err().kind(), Some(ErrorKind::InvalidPath(_))));
    }
}
