//! Commands to all listeners, and their answers.

use std::time::Duration;

use ironkeeper_client::{Client, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::group::{CommandListener, Console, Outcome};
use ironkeeper_testing::Direction;

use crate::world::requests::{self, followed};
use crate::world::watch_events::counted;
use crate::world::{
    World, children, drop_after_polls, until_children, until_watches, with_every_cut,
};

const PATH: &str = "/commands/c";
const COMMANDS: &str = "/commands/c/commands";
const ANSWERS: &str = "/commands/c/answers";
const LONG: Duration = Duration::from_secs(60);

async fn listen(client: &Client, id: &str) -> CommandListener {
    CommandListener::join(client, PATH, id).await.unwrap()
}

/// Answers every command with the listener's id and the command, until the session ends.
fn obey(mut listener: CommandListener) {
    tokio::spawn(async move {
        while let Ok(command) = listener.next().await {
            let answer = format!("{}: {}", listener.id(), String::from_utf8_lossy(command.data()));
            let _ = command.answer(answer).await;
        }
    });
}

fn answered(text: &str) -> Outcome {
    Outcome::Answered(text.to_owned().into())
}

#[tokio::test]
async fn all_who_listen_answer_and_nothing_is_left() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    obey(listen(&one, "anna").await);
    obey(listen(&two, "berta/1").await);
    let client = world.client().await;
    let console = Console::open(&client, PATH).await.unwrap();
    assert_eq!(console.path(), PATH);
    assert_eq!(console.listeners().await.unwrap(), ["anna", "berta/1"]);
    for command in ["stop", "go"] {
        let sent = console.send(command).await.unwrap();
        assert_eq!(sent.expected().len(), 2);
        let answers = sent.collect_within(LONG).await.unwrap();
        assert_eq!(answers["anna"], answered(&format!("anna: {command}")));
        assert_eq!(answers["berta/1"], answered(&format!("berta/1: {command}")));
    }
    assert_eq!(children(&client, COMMANDS).await, [""; 0]);
    assert_eq!(children(&client, ANSWERS).await, [""; 0]);
}

#[tokio::test]
async fn commands_come_in_order_and_only_to_those_who_listened_before() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let console = Console::open(&one, PATH).await.unwrap();
    let early = console.send("too early").await.unwrap();
    assert!(early.expected().is_empty());
    let mut anna = listen(&two, "anna").await;
    let mut sent = Vec::new();
    for number in 0..12 {
        sent.push(console.send(number.to_string()).await.unwrap());
    }
    let mut last = None;
    for number in 0..12 {
        let command = anna.next().await.unwrap();
        assert_eq!(command.data(), &number.to_string());
        assert!(Some(command.zxid()) > last);
        last = Some(command.zxid());
    }
    drop(early);
    anna.leave().await.unwrap();
    // The listener left without an answer.
    let mut first = sent.remove(0);
    assert_eq!(first.next().await.unwrap(), Some(("anna".to_owned(), Outcome::Gone)));
    assert_eq!(first.next().await.unwrap(), None);
    first.close().await.unwrap();
    drop(sent);
    until_children(&two, ANSWERS, 0).await;
}

#[tokio::test]
async fn who_does_not_answer_in_time_is_silent_and_may_not_answer_later() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let mut anna = listen(&one, "anna").await;
    let console = Console::open(&two, PATH).await.unwrap();
    let sent = console.send("hurry").await.unwrap();
    let command = anna.next().await.unwrap();
    let answers = sent.collect_within(Duration::from_millis(10)).await.unwrap();
    assert_eq!(answers["anna"], Outcome::Silent);
    assert!(!command.answer("late").await.unwrap());
    assert_eq!(children(&two, ANSWERS).await, [""; 0]);
}

#[tokio::test]
async fn a_listener_that_answers_and_leaves_has_answered() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let mut anna = listen(&one, "anna").await;
    let console = Console::open(&two, PATH).await.unwrap();
    let mut sent = console.send("shut down").await.unwrap();
    assert!(anna.next().await.unwrap().answer("bye").await.unwrap());
    world.end_session(&one).await;
    assert_eq!(sent.next().await.unwrap(), Some(("anna".to_owned(), answered("bye"))));
    assert_eq!(sent.next().await.unwrap(), None);
    assert!(anna.next().await.unwrap_err().is_session_over());
}

#[tokio::test]
async fn what_a_dead_console_has_left_is_removed_by_the_next() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let mut anna = listen(&two, "anna").await;
    let dead = Console::open(&one, PATH).await.unwrap();
    let mut sent = dead.send("x").await.unwrap();
    assert!(anna.next().await.unwrap().answer("y").await.unwrap());
    world.end_session(&one).await;
    assert!(sent.next().await.unwrap_err().is_session_over());
    assert_eq!(children(&two, ANSWERS).await.len(), 1);
    let console = Console::open(&two, PATH).await.unwrap();
    assert_eq!(children(&two, ANSWERS).await, [""; 0]);
    // The command of an open console stays.
    let sent = console.send("z").await.unwrap();
    drop(Console::open(&two, PATH).await.unwrap());
    assert_eq!(children(&two, ANSWERS).await.len(), 1);
    sent.close().await.unwrap();
}

#[tokio::test]
async fn a_command_costs_a_listener_two_watch_events() {
    let world = World::start().await;
    let (listening, events) = counted(&world).await;
    let mut anna = listen(&listening, "anna").await;
    let client = world.client().await;
    let console = Console::open(&client, PATH).await.unwrap();
    let (heard, mut hears) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        while let Ok(command) = anna.next().await {
            heard.send(command).await.unwrap();
        }
    });
    // Stays open, so that the container is never empty: its deletion would be another watch event.
    let first = console.send("first").await.unwrap();
    hears.recv().await.unwrap();
    let sent = console.send("second").await.unwrap();
    hears.recv().await.unwrap();
    let before = events.count();
    sent.close().await.unwrap();
    let third = console.send("third").await.unwrap();
    hears.recv().await.unwrap();
    assert!(events.count() - before <= 2, "one for the going, one for the next coming");
    third.close().await.unwrap();
    first.close().await.unwrap();
}

#[tokio::test]
async fn a_send_dropped_at_any_await_leaves_nothing() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    let console = Console::open(&client, PATH).await.unwrap();
    for polls in 0.. {
        let done = drop_after_polls(console.send("x"), polls).await;
        let is_done = done.is_some();
        drop(done);
        // A delete in the background was submitted before this request, or has completed.
        client.sync("/").await.unwrap();
        until_children(&watching, COMMANDS, 0).await;
        until_children(&watching, ANSWERS, 0).await;
        if is_done {
            break;
        }
    }
}

#[tokio::test]
async fn every_lost_request_and_reply_is_made_up_for() {
    let world = World::start().await;
    let steady = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        // Cut the console's connection first, then the listener's.
        for is_console in [true, false] {
            with_every_cut(&world, direction, |client, round| {
                let steady = steady.clone();
                async move {
                    let (console, listener) =
                        if is_console { (&client, &steady) } else { (&steady, &client) };
                    let mut anna = listen(listener, "anna").await;
                    let console = Console::open(console, PATH).await.unwrap();
                    let sent = console.send(round.to_string()).await.unwrap();
                    let command = anna.next().await.unwrap();
                    assert_eq!(command.data(), &round.to_string());
                    assert!(command.answer("done").await.unwrap());
                    let answers = sent.collect_within(LONG).await.unwrap();
                    assert_eq!(answers["anna"], answered("done"));
                    anna.leave().await.unwrap();
                    assert_eq!(children(&steady, ANSWERS).await, [""; 0]);
                }
            })
            .await;
        }
    }
    let refused = CommandListener::join(&steady, PATH, "").await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
}

#[tokio::test]
async fn curator_308_a_container_removed_while_a_listener_waits_does_no_harm() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let mut anna = listen(&one, "anna").await;
    let console = Console::open(&two, PATH).await.unwrap();
    let waiting = tokio::spawn(async move { anna.next().await.map(|command| (anna, command)) });
    until_watches(&one, 2).await;
    // As the server does with an empty container.
    two.delete(COMMANDS, Version::Any).await.unwrap();
    let sent = console.send("still there?").await.unwrap();
    let (mut anna, command) = waiting.await.unwrap().unwrap();
    assert_eq!(command.data(), "still there?");
    sent.close().await.unwrap();
    let waiting = tokio::spawn(async move { anna.next().await });
    one.close().await.unwrap();
    assert!(waiting.await.unwrap().unwrap_err().is_session_over());
}

#[tokio::test]
async fn a_dropped_command_is_looked_for_on_a_server_that_has_caught_up() {
    let world = World::start().await;
    let (client, requests) = followed(&world).await;
    let console = Console::open(&client, PATH).await.unwrap();
    let sent = console.send("stop").await.unwrap();
    requests.take();
    drop(sent);
    until_children(&world.client().await, ANSWERS, 0).await;
    let seen = requests.take();
    let at = |op| seen.iter().position(|seen| *seen == op);
    assert!(
        at(requests::SYNC).is_some() && at(requests::SYNC) < at(requests::CHILDREN),
        "{seen:?}"
    );
}
