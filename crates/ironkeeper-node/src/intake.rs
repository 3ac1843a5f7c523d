//! Decoding of a link's bytes into inputs; the protocol depends on the port and on which side
//! dialled.
//!
//! One read receives many packets, and all of them become inputs of one batch. Their payloads point
//! into the buffer that was read, so transactions are not copied on their way to the log.

use bytes::{Buf, BytesMut};
use ironkeeper_proto::election::{self, Opening};
use ironkeeper_proto::jute::DecodeError;
use ironkeeper_proto::quorum_packet::{self, Sender};
use ironkeeper_proto::{Notification, Packet, Zxid};
use ironkeeper_store::Store;
use ironkeeper_store::disk::{Disk, RealDisk};
use ironkeeper_zab::{Input, LinkId};
use thiserror::Error;

use crate::received_snapshot::{IncomingTree, ReceivedTree, TreeError};

/// The size of one read.
const READ_BYTES: usize = 64 << 10;
/// A buffer with less room than this is not read into: many small reads would cost more than a new
/// buffer.
const READ_BYTES_MIN: usize = 8 << 10;

/// After this many bytes of a snapshot ZAB is notified of the progress.
pub const TREE_STEP_BYTES: usize = 1 << 20;

/// The reason why a link's bytes could not be decoded. Only this connection is closed.
#[derive(Debug, Error)]
pub enum Broken {
    #[error("it does not speak this protocol: {0}")]
    Garbage(#[from] DecodeError),
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// The kind of bytes expected next.
#[derive(Debug)]
pub enum Expect<D: Disk = RealDisk> {
    /// The identification of a server that has dialled our election port.
    Opening,
    Notifications,
    Packets(Sender),
    /// A snapshot follows, and ZAB has not requested it yet. Nothing is read until then.
    TreeAhead(Zxid),
    Tree(Box<IncomingTree<D>>),
}

/// The bytes of a link that are received and not yet decoded.
#[derive(Debug)]
pub struct Intake<D: Disk = RealDisk> {
    /// The buffer to which read bytes are appended.
    pub unread: BytesMut,
    expect: Expect<D>,
    field_max: usize,
    /// Bytes of a snapshot that were not reported yet.
    tree_bytes: usize,
    /// A complete snapshot, until the link's task has stored it in the registry.
    pub received: Option<ReceivedTree<D>>,
}

impl<D: Disk> Intake<D> {
    /// Creates an intake that rejects strings and buffers longer than `field_max`.
    pub fn new(expect: Expect<D>, field_max: usize) -> Intake<D> {
        Intake { unread: BytesMut::new(), expect, field_max, tree_bytes: 0, received: None }
    }

    /// Returns whether bytes should be read now.
    pub fn wants_bytes(&self) -> bool {
        !matches!(self.expect, Expect::TreeAhead(_))
    }

    /// Reserves memory for the next read.
    pub fn make_room(&mut self) {
        if self.unread.capacity() - self.unread.len() < READ_BYTES_MIN {
            self.unread.reserve(READ_BYTES);
        }
    }

    /// Starts to receive the snapshot that follows the SNAP packet.
    pub fn receive_tree(&mut self, store: &Store<D>) -> Result<(), Broken> {
        if let Expect::TreeAhead(zxid) = self.expect {
            let tree = IncomingTree::begin(store, zxid).map_err(TreeError::from)?;
            self.expect = Expect::Tree(Box::new(tree));
        }
        Ok(())
    }

    /// Decodes complete packets into inputs.
    pub fn decode(&mut self, link: LinkId, inputs: &mut Vec<Input>) -> Result<(), Broken> {
        loop {
            let go_on = match &mut self.expect {
                Expect::Opening => self.opening(link, inputs)?,
                Expect::Notifications => self.notification(link, inputs)?,
                Expect::Packets(sender) => {
                    let sender = *sender;
                    self.packet(link, sender, inputs)?
                }
                Expect::TreeAhead(_) => false,
                Expect::Tree(tree) => {
                    let (taken, is_over) = tree.take(&self.unread)?;
                    self.unread.advance(taken);
                    self.tree_bytes += taken;
                    if self.tree_bytes >= TREE_STEP_BYTES {
                        self.tree_bytes = 0;
                        inputs.push(Input::TreeMoved { link });
                    }
                    if is_over {
                        let leaders = Expect::Packets(Sender::Leader);
                        if let Expect::Tree(tree) = std::mem::replace(&mut self.expect, leaders) {
                            self.received = Some(tree.finish());
                        }
                        inputs.push(Input::SnapshotReceived { link });
                    }
                    is_over
                }
            };
            if !go_on {
                return Ok(());
            }
        }
    }

    fn opening(&mut self, link: LinkId, inputs: &mut Vec<Input>) -> Result<bool, Broken> {
        let Some((opening, len)) = Opening::decode(&self.unread)? else { return Ok(false) };
        self.unread.advance(len);
        self.expect = Expect::Notifications;
        // The link's task compares addresses.
        inputs.push(Input::Opened { link, opening, from_its_address: true });
        Ok(true)
    }

    fn notification(&mut self, link: LinkId, inputs: &mut Vec<Input>) -> Result<bool, Broken> {
        let Some(len) = election::frame_len(&self.unread)? else { return Ok(false) };
        if self.unread.len() < len {
            return Ok(false);
        }
        let mut body = self.unread.split_to(len).freeze();
        body.advance(4);
        match Notification::decode(&body) {
            Ok(notification) => inputs.push(Input::Notification { link, notification }),
            // As in Apache: it may be of a later version, and the next one may be valid.
            Err(error) => tracing::debug!(%error, "malformed notification ignored"),
        }
        Ok(true)
    }

    fn packet(
        &mut self,
        link: LinkId,
        sender: Sender,
        inputs: &mut Vec<Input>,
    ) -> Result<bool, Broken> {
        let len = quorum_packet::packet_len(&self.unread, self.field_max)?;
        let Some(len) = len else { return Ok(false) };
        let bytes = self.unread.split_to(len).freeze();
        if sender == Sender::Leader && quorum_packet::is_unknown_to_learners(&bytes) {
            tracing::debug!(kind = ?bytes.get(..4), "packet of unknown type ignored");
            return Ok(true);
        }
        let packet = Packet::decode(&bytes, sender)?;
        if let Packet::Snap { zxid } = packet {
            self.expect = Expect::TreeAhead(zxid);
        }
        inputs.push(Input::Packet { link, packet });
        Ok(true)
    }
}
