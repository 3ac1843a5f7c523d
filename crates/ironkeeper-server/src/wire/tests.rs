//! Tests of the guarantees of a stream, for TCP.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::TcpStream;

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::{Reader, Stream, Writer};

/// Returns an accepted stream and its peer.
async fn accepted() -> (Stream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, address) = listener.accept().await.unwrap();
    assert_eq!(address, peer.local_addr().unwrap());
    let stream = Stream::accepted(socket, address);
    assert_eq!(stream.peer(), address);
    (stream, peer)
}

/// Writes until there is no room; returns the bytes that were accepted.
fn fill(writer: &Writer) -> Vec<u8> {
    let mut accepted = Vec::new();
    loop {
        let bytes: Vec<u8> = (0..10_007).map(|at| ((accepted.len() + at) % 251) as u8).collect();
        match writer.try_write(&bytes).unwrap() {
            0 => return accepted,
            count => accepted.extend_from_slice(&bytes[..count]),
        }
    }
}

/// Reads until the stream ends.
fn read_all(mut peer: TcpStream) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        received
    })
}

#[tokio::test]
async fn all_accepted_bytes_arrive_before_the_end() {
    let (stream, peer) = accepted().await;
    let (reader, writer) = stream.split();
    let expected = fill(&writer);
    drop(writer);
    let received = read_all(peer).join().unwrap();
    assert!(received == expected, "{} instead of {}", received.len(), expected.len());
    drop(reader);
}

#[tokio::test]
async fn a_full_stream_has_room_again_when_the_peer_reads() {
    let (stream, peer) = accepted().await;
    let (reader, writer) = stream.split();
    let mut expected = fill(&writer);
    let reading = read_all(peer);
    poll_fn(|cx| reader.poll_writable(cx)).await.unwrap();
    writer.write_all(b"more").await.unwrap();
    expected.extend_from_slice(b"more");
    drop(writer);
    assert!(reading.join().unwrap() == expected);
}

#[tokio::test]
async fn a_writer_left_open_ends_with_the_reader() {
    let (stream, peer) = accepted().await;
    let (reader, writer) = stream.split();
    writer.write_all(b"last").await.unwrap();
    writer.leave_open();
    peer.set_nonblocking(true).unwrap();
    let mut buffer = [0; 8];
    while (&peer).read(&mut buffer).is_err() {
        tokio::task::yield_now().await;
    }
    let error = (&peer).read(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "the stream is open");
    peer.set_nonblocking(false).unwrap();
    drop(reader);
    assert!(read_all(peer).join().unwrap().is_empty());
}

#[tokio::test]
async fn the_end_of_the_peer_is_seen_without_reading() {
    let (stream, mut peer) = accepted().await;
    let (mut reader, _writer) = stream.split();
    assert!(!reader.is_ended_by_peer());
    peer.write_all(b"unread").unwrap();
    drop(peer);
    while !reader.is_ended_by_peer() {
        tokio::task::yield_now().await;
    }
    let mut bytes = Vec::new();
    while reader.read_buf(&mut bytes).await.unwrap() > 0 {}
    assert_eq!(bytes, b"unread");
}

#[tokio::test]
async fn a_shutdown_ends_both_directions_at_once() {
    let (stream, peer) = accepted().await;
    let (mut reader, writer) = stream.split();
    writer.shutdown();
    assert_eq!(reader.read_buf(&mut Vec::new()).await.unwrap(), 0);
    assert!(writer.try_write(b"late").is_err());
    assert!(read_all(peer).join().unwrap().is_empty());
}

#[test]
fn a_detached_stream_continues_on_another_thread() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (detached, peer) = first.block_on(async {
        let (stream, peer) = accepted().await;
        (stream.detach().unwrap(), peer)
    });
    drop(first);
    let address = detached.peer();
    let serving = std::thread::spawn(move || {
        runtime().block_on(async {
            let stream = detached.attach().unwrap();
            assert_eq!(stream.peer(), address);
            let (mut reader, writer): (Reader, Writer) = stream.split();
            let mut bytes = Vec::new();
            reader.read_buf(&mut bytes).await.unwrap();
            writer.write_all(&bytes).await.unwrap();
        });
    });
    (&peer).write_all(b"echo").unwrap();
    assert_eq!(read_all(peer).join().unwrap(), b"echo");
    serving.join().unwrap();
}
