//! `top`: shows the load of servers, live on the full screen, or line by line without a terminal.

use std::time::Duration;

use ironkeeper_client::{ConnectString, Host};

use crate::amounts::human_bytes;
use crate::colour::{Colours, Style};
use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::full_screen::{Did, FullScreen};
use crate::options::{Arguments, Opt};
use crate::samples::{self, Busy, Row, Sample, count_text, ms_text, rate_text};
use crate::table::Table;

pub const COMMAND: Command = Command {
    name: "top",
    aliases: &[],
    usage: "[-d seconds] [-n count] [host:port ...]",
    summary: "Watch servers at work: throughput, latency, connections, sessions, watches; q quits.",
    group: Group::More,
    options: &[
        Opt::value("d", "seconds", "time between looks [2]"),
        Opt::value("n", "count", "end after this many looks"),
    ],
    examples: &["top", "top -d 5 db1:2181 db2:2181 db3:2181"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

/// The timeout for the reply of a server; a slower server is shown as late.
const ANSWERED_WITHIN: Duration = Duration::from_secs(3);
const PAUSE_MIN: Duration = Duration::from_millis(100);

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let servers = servers(context, arguments)?;
    let seconds = arguments.number("d", "a number of seconds")?.unwrap_or(2.0);
    let pause = Duration::try_from_secs_f64(seconds)
        .map_err(|_| Failure::bad_usage("-d argument must be a number of seconds"))?
        .max(PAUSE_MIN);
    let looks: u64 = arguments.number("n", "a number")?.unwrap_or(u64::MAX);
    match context.terminal.stdin && context.terminal.stdout && !context.out.is_json() {
        true => {
            context.out.flush()?;
            on_screen(&servers, pause, looks, context.colours()).await
        }
        false => in_lines(context, &servers, pause, looks).await,
    }
}

/// Returns the servers in the arguments, or those of the shell.
fn servers(context: &Context, arguments: &Arguments) -> Outcome<Vec<Host>> {
    let named = match arguments.words() {
        [] => vec![context.session.connect_string().to_owned()],
        words => words.to_vec(),
    };
    let mut servers = Vec::new();
    for text in named {
        let parsed: ConnectString = text.parse()?;
        servers.extend_from_slice(parsed.servers());
    }
    Ok(servers)
}

async fn in_lines(context: &Context, servers: &[Host], pause: Duration, looks: u64) -> Outcome {
    let mut before: Vec<Sample> = Vec::new();
    for look in 0..looks {
        if look > 0 {
            tokio::time::sleep(pause).await;
        }
        let now = samples::take(servers, ANSWERED_WITHIN).await;
        for row in rows(&now, &before) {
            context.out.emit(&row)?;
        }
        context.out.flush()?;
        before = now;
    }
    Ok(())
}

async fn on_screen(servers: &[Host], pause: Duration, looks: u64, colours: Colours) -> Outcome {
    let mut screen = FullScreen::enter()?;
    let mut before: Vec<Sample> = Vec::new();
    let mut shown = Vec::new();
    for _ in 0..looks {
        let taken = samples::take(servers, ANSWERED_WITHIN);
        tokio::pin!(taken);
        let now = loop {
            tokio::select! {
                now = &mut taken => break now,
                did = screen.next() => match did {
                    Did::Quit => return Ok(()),
                    Did::Resized => draw(&screen, &shown, pause, colours)?,
                },
            }
        };
        shown = rows(&now, &before);
        before = now;
        draw(&screen, &shown, pause, colours)?;
        let next = tokio::time::sleep(pause);
        tokio::pin!(next);
        loop {
            tokio::select! {
                () = &mut next => break,
                did = screen.next() => match did {
                    Did::Quit => return Ok(()),
                    Did::Resized => draw(&screen, &shown, pause, colours)?,
                },
            }
        }
    }
    Ok(())
}

fn rows(now: &[Sample], before: &[Sample]) -> Vec<Row> {
    now.iter().enumerate().map(|(at, sample)| Row::new(sample, before.get(at))).collect()
}

fn draw(screen: &FullScreen, rows: &[Row], pause: Duration, colours: Colours) -> Outcome {
    let (width, height) = screen.size();
    let mut lines = page(rows, pause, width, height);
    // Colours are added after the lines are fitted, because they have no width on the screen.
    for (at, line) in lines.iter_mut().enumerate() {
        let row = at.checked_sub(HEAD_LINES).and_then(|at| rows.get(at));
        match row {
            _ if at + 1 == HEAD_LINES => *line = colours.paint(Style::Bold, &line),
            Some(row) if !row.ok => *line = colours.paint(Style::Red, &line),
            Some(row) if row.mode.as_deref() == Some("leader") => {
                *line = colours.paint(Style::Green, &line);
            }
            _ => {}
        }
    }
    screen.draw(&lines)
}

/// The lines above the first server: the title, an empty line, and the column titles.
const HEAD_LINES: usize = 3;

/// Returns the lines of the screen, cut to its size.
fn page(rows: &[Row], pause: Duration, width: usize, height: usize) -> Vec<String> {
    let mut lines =
        vec![format!("ironkeeper top, every {} s; q quits", pause.as_secs_f64()), String::new()];
    lines.extend(fitting(width, SERVER_COLUMNS, |columns| server_table(rows, columns)));
    for row in rows {
        lines.extend(row.hints.iter().map(|hint| format!("{}: {hint}", row.server)));
    }
    let busiest: Vec<(&str, &Busy)> = rows
        .iter()
        .flat_map(|row| row.busiest.iter().map(|busy| (row.server.as_str(), busy)))
        .collect();
    if !busiest.is_empty() {
        lines.push(String::new());
        lines.extend(fitting(width, CLIENT_COLUMNS, |columns| client_table(&busiest, columns)));
    }
    lines.truncate(height);
    for line in &mut lines {
        if let Some((at, _)) = line.char_indices().nth(width) {
            line.truncate(at);
        }
    }
    lines
}

/// The column titles, and the order in which columns are dropped if there is not enough room: the
/// highest number first, zero never.
type Columns = &'static [(&'static str, u8)];

const SERVER_COLUMNS: Columns = &[
    ("SERVER", 0),
    ("MODE", 1),
    ("RECV/S", 0),
    ("SENT/S", 6),
    ("READ MS", 2),
    ("WRITE MS", 2),
    ("CONN", 1),
    ("SESS", 4),
    ("WATCHES", 5),
    ("OUTST", 3),
    ("NODES", 6),
    ("EPHEM", 8),
    ("DATA", 7),
    ("ZXID", 9),
];

const CLIENT_COLUMNS: Columns = &[
    ("CLIENT", 0),
    ("SERVER", 5),
    ("SESSION", 3),
    ("REQ/S", 0),
    ("QUEUED", 2),
    ("LAST", 1),
    ("AVG MS", 2),
];

/// Returns the table with as many columns as fit.
fn fitting(width: usize, columns: Columns, table: impl Fn(&[usize]) -> Table) -> Vec<String> {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    loop {
        let text = table(&kept).to_string();
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let dispensable = kept.iter().copied().filter(|column| columns[*column].1 > 0);
        match dispensable.max_by_key(|column| columns[*column].1) {
            Some(column) if widest > width => kept.retain(|kept| *kept != column),
            _ => return text.lines().map(str::to_owned).collect(),
        }
    }
}

fn pick(columns: Columns, kept: &[usize], left: &[usize]) -> Table {
    let titles: Vec<&'static str> = kept.iter().map(|column| columns[*column].0).collect();
    let mut table = Table::new(&titles);
    let right: Vec<usize> =
        kept.iter().enumerate().filter(|(_, c)| !left.contains(c)).map(|(at, _)| at).collect();
    table.align_right(&right);
    table
}

fn server_table(rows: &[Row], kept: &[usize]) -> Table {
    let mut table = pick(SERVER_COLUMNS, kept, &[0, 1]);
    for row in rows {
        if let Some(error) = &row.error {
            table.remark(row.server.clone(), error.clone());
            continue;
        }
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let cells = [
            row.server.clone(),
            text(&row.mode),
            rate_text(row.received_per_s),
            rate_text(row.sent_per_s),
            ms_text(row.read_ms),
            ms_text(row.write_ms),
            count_text(row.connections),
            count_text(row.sessions),
            count_text(row.watches),
            count_text(row.outstanding),
            count_text(row.nodes),
            count_text(row.ephemerals),
            row.data_bytes.map_or("-".to_owned(), human_bytes),
            text(&row.zxid),
        ];
        table.row(kept.iter().map(|column| cells[*column].clone()).collect());
    }
    table
}

fn client_table(busiest: &[(&str, &Busy)], kept: &[usize]) -> Table {
    let mut table = pick(CLIENT_COLUMNS, kept, &[0, 1, 2, 5]);
    for (server, busy) in busiest {
        let connection = &busy.connection;
        let cells = [
            connection.client.clone(),
            (*server).to_owned(),
            connection.session.clone().unwrap_or_default(),
            rate_text(busy.received_per_s),
            connection.queued.to_string(),
            connection.last_operation.clone().unwrap_or_default(),
            ms_text(connection.latency_avg_ms),
        ];
        table.row(kept.iter().map(|column| cells[*column].clone()).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(server: &str, error: Option<&str>) -> Row {
        Row {
            server: server.to_owned(),
            ok: error.is_none(),
            error: error.map(str::to_owned),
            mode: Some("follower".to_owned()),
            received_per_s: Some(1234.4),
            connections: Some(17),
            zxid: Some("0x100000012".to_owned()),
            ..Row::default()
        }
    }

    #[test]
    fn a_small_terminal_gets_the_columns_that_matter_most() {
        let rows = [row("zk1:2181", None), row("zk2:2181", Some("unreachable: nobody there"))];
        let page = |width, height| page(&rows, Duration::from_secs(2), width, height);
        let wide = page(200, 50).join("\n");
        assert!(wide.contains("ZXID") && wide.contains("0x100000012"), "{wide}");
        let narrow = page(40, 50);
        assert!(narrow.iter().all(|line| line.chars().count() <= 40), "{narrow:?}");
        let text = narrow.join("\n");
        assert!(text.contains("RECV/S") && !text.contains("ZXID"), "{text}");
        assert!(text.contains("1234") && text.contains("unreachable"), "{text}");
        let tiny = page(10, 3);
        assert!(tiny.len() == 3 && tiny.iter().all(|line| line.chars().count() <= 10), "{tiny:?}");
    }
}
