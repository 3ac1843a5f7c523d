//! Deletion of empty containers and of TTL nodes whose time has passed. Active on the leader and on
//! a standalone server.

use std::collections::VecDeque;

use ironkeeper_proto::stat::OwnerKind;
use ironkeeper_tree::Tree;

use crate::config::ContainerConfig;
use crate::time::Now;

/// Collects the candidates once per interval and returns them at a bounded rate.
#[derive(Debug)]
pub(crate) struct Reaper {
    config: ContainerConfig,
    next_check_ms: u64,
    next_delete_ms: u64,
    doomed: VecDeque<String>,
}

impl Reaper {
    pub fn new(config: ContainerConfig, now: Now) -> Reaper {
        Reaper {
            config,
            next_check_ms: now.mono_ms + config.check_interval_ms,
            next_delete_ms: now.mono_ms,
            doomed: VecDeque::new(),
        }
    }

    pub fn deadline_ms(&self) -> u64 {
        if self.doomed.is_empty() {
            self.next_check_ms
        } else {
            self.next_delete_ms.min(self.next_check_ms)
        }
    }

    /// Returns the next path to delete now, if any. The deletion is prepared like any write, which
    /// checks the node again.
    pub fn next(&mut self, now: Now, tree: &Tree) -> Option<String> {
        if now.mono_ms >= self.next_check_ms {
            self.next_check_ms = now.mono_ms + self.config.check_interval_ms;
            self.doomed = candidates(&self.config, now, tree);
        }
        if now.mono_ms < self.next_delete_ms {
            return None;
        }
        let path = self.doomed.pop_front()?;
        let gap_ms = 60_000 / self.config.deletions_per_minute_max.max(1);
        self.next_delete_ms = now.mono_ms + gap_ms;
        Some(path)
    }
}

fn candidates(config: &ContainerConfig, now: Now, tree: &Tree) -> VecDeque<String> {
    let age_ms = |mtime: i64| now.wall_ms.saturating_sub(mtime);
    let containers = tree.container_paths().filter(|node| {
        let stat = node.persisted();
        let used = stat.cversion > 0;
        let never_used = config.never_used_ms > 0
            && age_ms(stat.mtime) > i64::try_from(config.never_used_ms).unwrap_or(i64::MAX);
        node.child_count() == 0 && (used || never_used)
    });
    let outlived = tree.ttl_nodes().filter(|node| match node.owner_kind() {
        OwnerKind::Ttl(ttl_ms) => {
            node.child_count() == 0 && age_ms(node.persisted().mtime) > ttl_ms
        }
        _ => false,
    });
    containers.map(|node| node.path()).chain(outlived.map(|node| node.path())).collect()
}
