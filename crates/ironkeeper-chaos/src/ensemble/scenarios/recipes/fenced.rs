//! A mutex and a leader latch. The holder writes its token to one node, in transactions that the
//! server accepts only while the holder has the lock, and reads the node before each. If no other
//! user writes meanwhile, and tokens never decrease, no two users held the lock at a time. Every
//! user gets the lock.

use anyhow::{Context, Result, bail, ensure};
use ironkeeper_client::{Client, CreateMode, ErrorKind, Transaction, Zxid};
use ironkeeper_recipes::election::LeaderLatch;
use ironkeeper_recipes::lock::Mutex;
use tokio::task::JoinSet;

use super::{Shift, all, patient};

/// Writes of one holder: more than one, so that a second holder would write in between.
const WRITES: usize = 3;

pub async fn mutex(clients: Vec<Client>, shift: Shift) -> Result<()> {
    let record = Record::create(&clients, "/mutex-record").await?;
    let mut users = JoinSet::new();
    for client in clients {
        let shift = shift.clone();
        users.spawn(async move {
            let mutex = Mutex::new(&client, "/mutex");
            while !shift.is_over() {
                let guard = mutex.lock().await?;
                let token = guard.fencing_token();
                record.write(&client, token, || guard.transaction()).await?;
                guard.release().await?;
                shift.done_round();
            }
            Ok(())
        });
    }
    all(users).await
}

pub async fn latch(clients: Vec<Client>, shift: Shift) -> Result<()> {
    let record = Record::create(&clients, "/latch-record").await?;
    let mut users = JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        let shift = shift.clone();
        users.spawn(async move {
            while !shift.is_over() {
                let latch = LeaderLatch::start(&client, "/latch", number.to_string());
                let leadership = latch.leading().await?;
                let token = leadership.fencing_token();
                record.write(&client, token, || leadership.transaction()).await?;
                latch.close().await?;
                shift.done_round();
            }
            Ok(())
        });
    }
    all(users).await
}

/// The node with the token of the last holder.
#[derive(Debug, Clone, Copy)]
struct Record {
    path: &'static str,
}

impl Record {
    async fn create(clients: &[Client], path: &'static str) -> Result<Record> {
        let client = clients.first().context("nobody works")?;
        client.create(path, "0", CreateMode::Persistent).await?;
        Ok(Record { path })
    }

    /// Writes `WRITES` times. Returns an error if the node shows another holder.
    async fn write(
        &self,
        client: &Client,
        token: Zxid,
        fenced: impl Fn() -> Transaction,
    ) -> Result<()> {
        let ours = token.0.to_string();
        let mut written = 0;
        let mut is_first_look = true;
        // After a lost reply it is unknown whether the write was applied, until the node is read.
        let mut in_doubt = false;
        while written < WRITES {
            let node = client.retry(&patient(), || client.get(self.path)).await?;
            let found: i64 = std::str::from_utf8(&node.data)?.parse()?;
            ensure!(found <= token.0, "{found:x} had it before {token:?} gave it back");
            let is_ours = found == token.0;
            ensure!(
                is_ours || is_first_look || (in_doubt && written == 0),
                "{found:x} wrote while {token:?} had it"
            );
            is_first_look = false;
            let writing = fenced().set(self.path, &ours, node.stat.version).commit().await;
            match writing {
                Ok(_) => written += 1,
                Err(error) if error.kind() == ErrorKind::NoNode => bail!("{token:?} was lost"),
                Err(error) if error.kind() == ErrorKind::BadVersion || error.is_retriable() => {
                    in_doubt |= error.is_retriable();
                    ensure!(in_doubt, "somebody wrote while {token:?} had it");
                    // The member that replies from now on may be behind the previous one.
                    client.retry(&patient(), || client.sync(self.path)).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
