//! Scenarios as text: one request per line.
//!
//! A file of `testdata/scenarios` has the name of its scenario. `#` begins a comment. The first
//! line names the arrangements; each of the others is a step, or one of the block lines below.
//! Words are separated by spaces; a part in double quotes may contain spaces and Rust's byte
//! escapes (`\xff`, `\u{e4}`); an unquoted `null` is a null field, and `b*3000` a text of 3000
//! bytes.
//!
//! | line | step |
//! | --- | --- |
//! | `connect c0 s1 timeout=500` | handshake on connection 0 for a new session 1 (`new`: never referred to again) |
//! | `resume c0 s1 password=wrong` | handshake for a session that was opened before |
//! | `greet c0 new get /d` | handshake with a request directly behind it |
//! | `c0 create /d flags=1` | one request (see [`request`]) |
//! | `c0 batch`, then `+ get /d` | several requests in one write |
//! | `each-cut c0 get /d` | the request once for each length of its body that is too short |
//! | `c0 frame 00000008 …` | a complete frame in hexadecimal digits |
//! | `raw c0 00000000` | bytes that are not a valid frame |
//! | `drop c0`, `await-event c0`, `await-expired c0 c1`, `watch-counts` | the other steps |
//!
//! Any request may have `xid=7`, and `cut=3`, `tail=ff00` or `poke=4:255` for damage to its body; a
//! handshake has `timeout`, `password`, `read-only`, `last-zxid`, `version` and the same damage.
//!
//! | block line | meaning |
//! | --- | --- |
//! | `for path in /d /e`, …, `end` | repeats the lines with `$path` replaced |
//! | `for scheme id in`, `\| world anyone`, … | several variables, one row of values per line |
//! | `define look`, …, `end` and `do look` | a named block |

use std::collections::HashMap;
use std::iter::Peekable;
use std::slice::Iter;

use anyhow::{Context, Result, bail, ensure};

use super::script::{
    AclList, Connect, Damage, Entry, Frame, Password, Request, SLOTS, Script, SessionRef, Slot,
    Step, Text, ZxidRef, Zxids, open,
};

/// The root of the subtree that scenarios use.
const ROOT: &str = "/d";

/// A parsed file.
#[derive(Debug)]
pub struct File {
    pub arrangements: Vec<String>,
    pub script: Script,
    /// The line of each step, after the replacement of variables.
    pub sources: Vec<String>,
}

/// Parses a file; an error begins with its name and the line.
pub fn parse(name: &str, text: &str) -> Result<File> {
    let lines: Vec<Line> = text
        .lines()
        .enumerate()
        .map(|(at, line)| Line { number: at + 1, text: line.trim().to_owned() })
        .filter(|line| !line.text.is_empty() && !line.text.starts_with('#'))
        .collect();
    let mut parser = Parser { next_label: 100, ..Parser::default() };
    let mut rest = lines.iter().peekable();
    let arrangements = rest
        .next()
        .and_then(|line| line.text.strip_prefix("arrangements "))
        .with_context(|| format!("{name}:1: the first line names the arrangements"))?;
    let arrangements = arrangements.split(' ').map(str::to_owned).collect();
    let block = block(&mut rest, false).map_err(|error| error.in_file(name))?;
    parser.run(&block, &Vec::new()).map_err(|error| error.in_file(name))?;
    let Parser { steps, sources, .. } = parser;
    Ok(File {
        arrangements,
        script: Script { root: ROOT.to_owned(), steps, zxids: Zxids::Compared },
        sources,
    })
}

#[derive(Debug, Clone)]
struct Line {
    number: usize,
    text: String,
}

struct LineError {
    number: usize,
    why: anyhow::Error,
}

impl LineError {
    fn in_file(self, name: &str) -> anyhow::Error {
        anyhow::anyhow!("{name}:{}: {:#}", self.number, self.why)
    }
}

/// A line, or a block of lines.
#[derive(Debug, Clone)]
enum Item {
    Line(Line),
    For { number: usize, names: Vec<String>, rows: Vec<String>, body: Vec<Item> },
    Define { name: String, body: Vec<Item> },
}

fn block(
    lines: &mut Peekable<Iter<'_, Line>>,
    is_nested: bool,
) -> std::result::Result<Vec<Item>, LineError> {
    let mut items = Vec::new();
    let mut last = 0;
    while let Some(line) = lines.next() {
        last = line.number;
        if line.text == "end" {
            if is_nested {
                return Ok(items);
            }
            return Err(LineError { number: last, why: anyhow::anyhow!("`end` without a block") });
        }
        if let Some(header) = line.text.strip_prefix("for ") {
            let (names, values) = match header.split_once(" in ") {
                Some(parts) => parts,
                None => (header.strip_suffix(" in").unwrap_or(header), ""),
            };
            let mut rows = values.to_owned();
            let mut listed = Vec::new();
            while let Some(row) = lines.peek().and_then(|line| line.text.strip_prefix("| ")) {
                listed.push(row.to_owned());
                lines.next();
            }
            let rows = if listed.is_empty() { vec![std::mem::take(&mut rows)] } else { listed };
            // One row of the header holds all values of a single variable.
            let names: Vec<String> = names.split(' ').map(str::to_owned).collect();
            let rows = if values.is_empty() { rows } else { vec![format!("\0{}", rows[0])] };
            let body = block(lines, true)?;
            items.push(Item::For { number: line.number, names, rows, body });
        } else if let Some(name) = line.text.strip_prefix("define ") {
            items.push(Item::Define { name: name.to_owned(), body: block(lines, true)? });
        } else {
            items.push(Item::Line(line.clone()));
        }
    }
    if is_nested {
        return Err(LineError { number: last, why: anyhow::anyhow!("a block has no `end`") });
    }
    Ok(items)
}

/// The values of variables, as written in the file.
type Variables = Vec<(String, String)>;

#[derive(Default)]
struct Parser {
    steps: Vec<Step>,
    sources: Vec<String>,
    defined: HashMap<String, Vec<Item>>,
    /// The label of the last session that no later step refers to.
    next_label: u32,
}

impl Parser {
    fn run(&mut self, items: &[Item], variables: &Variables) -> std::result::Result<(), LineError> {
        for item in items {
            match item {
                Item::Define { name, body } => {
                    self.defined.insert(name.clone(), body.clone());
                }
                Item::For { number, names, rows, body } => {
                    let at = |why| LineError { number: *number, why };
                    for row in rows {
                        for values in values(names, row, variables).map_err(at)? {
                            let inner = [variables.clone(), values].concat();
                            self.run(body, &inner)?;
                        }
                    }
                }
                Item::Line(line) => {
                    let at = |why| LineError { number: line.number, why };
                    let text = replaced(&line.text, variables, false);
                    if let Some(name) = text.strip_prefix("do ") {
                        let body = self.defined.get(name).cloned();
                        let body =
                            body.with_context(|| format!("no block {name:?}")).map_err(at)?;
                        self.run(&body, variables)?;
                    } else {
                        self.line(&text).map_err(at)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, text: &str) -> Result<()> {
        let words = words(text)?;
        let [first, rest @ ..] = words.as_slice() else { bail!("an empty line") };
        let step = match first.text()? {
            "+" => {
                let frame = frame(rest)?;
                let Some(Step::Send { frames, .. }) = self.steps.last_mut() else {
                    bail!("`+` without a batch")
                };
                frames.push(frame);
                if let Some(source) = self.sources.last_mut() {
                    source.push('\n');
                    source.push_str(text);
                }
                return Ok(());
            }
            "connect" | "resume" => {
                let [slot, session, options @ ..] = rest else { bail!("connection and session") };
                let session = self.session(first.text()? == "resume", session.text()?)?;
                Step::Connect { slot: slot_of(slot)?, connect: connect(session, options)? }
            }
            "greet" => {
                let [slot, session, request @ ..] = rest else { bail!("connection and session") };
                let session = self.session(false, session.text()?)?;
                let connect = connect(session, &[])?;
                Step::Greet { slot: slot_of(slot)?, connect, frames: vec![frame(request)?] }
            }
            "each-cut" => {
                let [slot, request @ ..] = rest else { bail!("connection and request") };
                let (slot, frame) = (slot_of(slot)?, frame(request)?);
                let mut body = Vec::new();
                frame.request.put(|_| 0, &mut body);
                for cut in 0..body.len() {
                    let frames = vec![Frame { damage: Damage::Cut(cut), ..frame.clone() }];
                    self.push(Step::Send { slot, frames }, format!("{text} cut={cut}"));
                }
                return Ok(());
            }
            "raw" => {
                let [slot, bytes @ ..] = rest else { bail!("connection and bytes") };
                Step::Raw { slot: slot_of(slot)?, bytes: bytes_of(bytes)? }
            }
            "drop" => Step::Drop { slot: slot_of(only(rest)?)? },
            "await-event" => Step::AwaitEvent { slot: slot_of(only(rest)?)? },
            "await-expired" => {
                let [slot, watcher] = rest else { bail!("two connections") };
                Step::AwaitExpired { slot: slot_of(slot)?, watcher: slot_of(watcher)? }
            }
            "watch-counts" => Step::Word { word: "wchs", lines: &[""] },
            _ => {
                let slot = slot_of(first)?;
                let frames = match rest {
                    [batch] if batch.is("batch") => Vec::new(),
                    _ => vec![frame(rest)?],
                };
                Step::Send { slot, frames }
            }
        };
        self.push(step, text.to_owned());
        Ok(())
    }

    fn push(&mut self, step: Step, source: String) {
        self.steps.push(step);
        self.sources.push(source);
    }

    fn session(&mut self, is_known: bool, name: &str) -> Result<SessionRef> {
        if name == "new" {
            self.next_label += 1;
            return Ok(SessionRef::New(self.next_label));
        }
        let label = name.strip_prefix('s').and_then(|label| label.parse().ok());
        let label = label.with_context(|| format!("{name:?} is no session"))?;
        Ok(if is_known { SessionRef::Known(label) } else { SessionRef::New(label) })
    }
}

/// Returns the values of one row for the variables: a row of the header, which begins with a zero
/// byte, has all values of one variable.
fn values(names: &[String], row: &str, variables: &Variables) -> Result<Vec<Variables>> {
    if let Some(list) = row.strip_prefix('\0') {
        let list = replaced(list, variables, true);
        ensure!(names.len() == 1, "several variables need rows that begin with `|`");
        return Ok(split(&list)
            .flat_map(|value| match value.split_once("..").map(|(a, b)| (a.parse(), b.parse())) {
                Some((Ok(from), Ok(to))) => {
                    (from..to).map(|number: i64| number.to_string()).collect()
                }
                _ => vec![value.to_owned()],
            })
            .map(|value| vec![(names[0].clone(), value)])
            .collect());
    }
    let row = replaced(row, variables, false);
    if let [name] = names {
        return Ok(vec![vec![(name.clone(), row)]]);
    }
    let values: Vec<&str> = split(&row).collect();
    ensure!(values.len() == names.len(), "{} values for {} variables", values.len(), names.len());
    Ok(vec![names.iter().cloned().zip(values.into_iter().map(str::to_owned)).collect()])
}

/// Splits a line at its spaces outside of quotes.
fn split(line: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    line.split(move |sign: char| {
        match sign {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ => {}
        }
        sign == ' ' && !is_quoted
    })
    .filter(|word| !word.is_empty())
}

/// Replaces `$name`. A value in quotes loses them where the variable is inside of quotes itself, or
/// if `bare`.
fn replaced(text: &str, variables: &Variables, bare: bool) -> String {
    let mut out = String::new();
    let mut is_quoted = false;
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let mut ordered: Vec<_> = variables.iter().collect();
        ordered.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let variable = rest.strip_prefix('$').and_then(|rest| {
            ordered.into_iter().find_map(|(name, value)| Some((rest.strip_prefix(name)?, value)))
        });
        if let Some((behind, value)) = variable {
            let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            out.push_str(inner.filter(|_| is_quoted || bare).unwrap_or(value));
            rest = behind;
            continue;
        }
        if sign == '\\' {
            let len = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
            out.push_str(&rest[..len]);
            rest = &rest[len..];
            continue;
        }
        is_quoted ^= sign == '"';
        out.push(sign);
        rest = &rest[sign.len_utf8()..];
    }
    out
}

/// One word of a line.
#[derive(Debug, Clone)]
struct Word {
    bytes: Vec<u8>,
    has_quotes: bool,
}

impl Word {
    fn is(&self, text: &str) -> bool {
        !self.has_quotes && self.bytes == text.as_bytes()
    }

    fn text(&self) -> Result<&str> {
        Ok(std::str::from_utf8(&self.bytes)?)
    }

    fn number<T: std::str::FromStr>(&self) -> Result<T> {
        let text = self.text()?;
        text.parse().ok().with_context(|| format!("{text:?} is no such number"))
    }

    /// Returns the word behind `name=`.
    fn option(&self, name: &str) -> Option<Word> {
        let bytes = self.bytes.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(Word { bytes: bytes.to_vec(), has_quotes: self.has_quotes })
    }

    fn field(&self) -> Text {
        if self.is("null") {
            return Text::NULL;
        }
        if !self.has_quotes
            && let [byte, b'*', count @ ..] = self.bytes.as_slice()
            && let Some(count) = std::str::from_utf8(count).ok().and_then(|n| n.parse().ok())
        {
            return Text(Some(vec![*byte; count]));
        }
        Text(Some(self.bytes.clone()))
    }
}

fn words(line: &str) -> Result<Vec<Word>> {
    split(line)
        .map(|source| {
            let mut bytes = Vec::new();
            let mut signs = source.chars();
            let mut has_quotes = false;
            while let Some(sign) = signs.next() {
                match sign {
                    '"' => has_quotes = true,
                    '\\' => escape(&mut signs, &mut bytes)
                        .with_context(|| format!("{source} has a wrong escape"))?,
                    _ => bytes.extend_from_slice(sign.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
            Ok(Word { bytes, has_quotes })
        })
        .collect()
}

fn escape(signs: &mut std::str::Chars<'_>, bytes: &mut Vec<u8>) -> Option<()> {
    match signs.next()? {
        'x' => {
            let digits: String = signs.take(2).collect();
            bytes.push(u8::from_str_radix(&digits, 16).ok()?);
        }
        'u' => {
            let digits: String = signs.skip(1).take_while(|sign| *sign != '}').collect();
            let sign = char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?;
            bytes.extend_from_slice(sign.encode_utf8(&mut [0; 4]).as_bytes());
        }
        'n' => bytes.push(b'\n'),
        'r' => bytes.push(b'\r'),
        't' => bytes.push(b'\t'),
        sign @ ('"' | '\\') => bytes.push(sign as u8),
        _ => return None,
    }
    Some(())
}

fn only(words: &[Word]) -> Result<&Word> {
    let [word] = words else { bail!("exactly one word is needed here") };
    Ok(word)
}

fn slot_of(word: &Word) -> Result<Slot> {
    let name = word.text()?;
    let slot = name.strip_prefix('c').and_then(|slot| slot.parse::<Slot>().ok());
    slot.filter(|slot| *slot < SLOTS).with_context(|| format!("{name:?} is no connection"))
}

/// Concatenates hexadecimal digits and texts in quotes.
fn bytes_of(words: &[Word]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for word in words {
        if word.has_quotes {
            bytes.extend_from_slice(&word.bytes);
            continue;
        }
        for pair in word.text()?.as_bytes().chunks(2) {
            let pair = std::str::from_utf8(pair)?;
            ensure!(pair.len() == 2, "an odd number of hexadecimal digits");
            bytes.push(u8::from_str_radix(pair, 16).context("hexadecimal digits are needed")?);
        }
    }
    Ok(bytes)
}

fn zxid(word: &Word) -> Result<ZxidRef> {
    Ok(match word.text()?.strip_prefix("seen") {
        Some("") => ZxidRef::Seen(0),
        Some(offset) => ZxidRef::Seen(offset.parse()?),
        None => ZxidRef::Absolute(word.number()?),
    })
}

fn damage(word: &Word) -> Result<Option<Damage>> {
    Ok(if let Some(cut) = word.option("cut") {
        Some(Damage::Cut(cut.number()?))
    } else if let Some(tail) = word.option("tail") {
        Some(Damage::Tail(bytes_of(&[tail])?))
    } else if let Some(poke) = word.option("poke") {
        let (at, byte) = poke.text()?.split_once(':').context("poke=POSITION:BYTE")?;
        Some(Damage::Poke(at.parse()?, byte.parse()?))
    } else {
        None
    })
}

fn connect(session: SessionRef, options: &[Word]) -> Result<Connect> {
    let mut connect = Connect { session, ..Connect::new(0) };
    for word in options {
        if let Some(value) = word.option("timeout") {
            connect.timeout_ms = value.number()?;
        } else if let Some(value) = word.option("password") {
            connect.password = match value.text()? {
                "wrong" => Password::Wrong,
                "null" => Password::Null,
                _ => Password::Len(value.number()?),
            };
        } else if let Some(value) = word.option("read-only") {
            connect.read_only = if value.is("none") { None } else { Some(value.number()?) };
        } else if let Some(value) = word.option("last-zxid") {
            connect.last_zxid = zxid(&value)?;
        } else if let Some(value) = word.option("version") {
            connect.version = value.number()?;
        } else if let Some(value) = damage(word)? {
            connect.damage = value;
        } else {
            bail!("a handshake has no {:?}", word.text()?);
        }
    }
    Ok(connect)
}

/// Parses a request with its xid and damage.
fn frame(words: &[Word]) -> Result<Frame> {
    if let [first, bytes @ ..] = words
        && first.is("frame")
    {
        return whole_frame(&bytes_of(bytes)?);
    }
    let mut rest = Vec::new();
    let (mut xid, mut damaged) = (None, Damage::None);
    for word in words {
        if let Some(value) = word.option("xid") {
            xid = Some(value.number()?);
        } else if let Some(value) = damage(word)? {
            damaged = value;
        } else {
            rest.push(word.clone());
        }
    }
    Ok(Frame { xid, request: request(&rest)?, damage: damaged })
}

fn whole_frame(bytes: &[u8]) -> Result<Frame> {
    let word = |at: usize| -> Result<i32> {
        let bytes = bytes.get(at..at + 4).context("the frame is too short")?;
        Ok(i32::from_be_bytes(bytes.try_into()?))
    };
    ensure!(usize::try_from(word(0)?)? == bytes.len() - 4, "the frame has another length");
    let request = Request::Bytes { op: word(8)?, body: bytes[12..].to_vec() };
    Ok(Frame { xid: Some(word(4)?), request, damage: Damage::None })
}

/// Parses a list of entries `PERMS:SCHEME:ID` with commas in between, `open`, `none` or `null`.
fn acl(word: &Word) -> Result<AclList> {
    match word.bytes.as_slice() {
        b"open" => return Ok(open()),
        b"none" => return Ok(Some(Vec::new())),
        b"null" => return Ok(None),
        _ => {}
    }
    let field = |bytes: &[u8]| Word { bytes: bytes.to_vec(), has_quotes: false }.field();
    let entry = |bytes: &[u8]| -> Result<Entry> {
        let mut parts = bytes.splitn(3, |byte| *byte == b':');
        let (perms, scheme, id) = (parts.next(), parts.next(), parts.next());
        let (Some(perms), Some(scheme), Some(id)) = (perms, scheme, id) else {
            bail!("an entry is PERMS:SCHEME:ID")
        };
        let perms = std::str::from_utf8(perms)?.parse()?;
        Ok(Entry { perms, scheme: field(scheme), id: field(id) })
    };
    word.bytes.split(|byte| *byte == b',').map(entry).collect::<Result<Vec<_>>>().map(Some)
}

/// Parses `[/a,/b]`, `[]` or `null`.
fn paths(word: &Word) -> Result<Option<Vec<Text>>> {
    if word.is("null") {
        return Ok(None);
    }
    let inner = word.bytes.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    let inner = inner.context("a list of paths is [/a,/b]")?;
    if inner.is_empty() {
        return Ok(Some(Vec::new()));
    }
    Ok(Some(inner.split(|byte| *byte == b',').map(Text::from).collect()))
}

/// Parses a request: its name, its fields in the order of the protocol (a version or flag may be
/// omitted), and options.
///
/// `create PATH` (`create2`, `create-container`, `create-ttl`) has the data `x`, an open ACL and no
/// flags unless `data=`, `acl=`, `flags=` and `ttl=` give others. `watch KIND PATH` registers a
/// watch of the kind x (exists), d (data), c and C (children), p (persistent) or r (recursive). The
/// operations of `multi` and `multi-read` are separated by ` ; `; `@7` before one is the type in
/// its header, and `multi-open` and `multi-read-open` have no end. `op 99 0001 "text"` is any
/// operation with any body.
fn request(words: &[Word]) -> Result<Request> {
    let [name, rest @ ..] = words else { bail!("a request is needed") };
    let name = name.text()?;
    let at = |index: usize| rest.get(index).with_context(|| format!("{name} needs more fields"));
    let field = |index: usize| Ok::<_, anyhow::Error>(at(index)?.field());
    let number = |index: usize, usual: i32| match rest.get(index) {
        Some(word) => word.number(),
        None => Ok(usual),
    };
    let fields_max = match name {
        "ping" | "whoami" | "close" => 0,
        "get-acl" | "sync" | "ephemerals" | "count" | "sasl" => 1,
        "delete" | "check" | "exists" | "get" | "children" | "list" | "watch" | "add-watch"
        | "check-watches" | "remove-watches" => 2,
        "set" | "set-acl" | "auth" => 3,
        "reconfig" | "set-watches" => 4,
        "set-watches2" => 6,
        _ => usize::MAX,
    };
    ensure!(rest.len() <= fields_max, "{name} has at most {fields_max} fields");
    let read = |op| -> Result<Request> {
        let watch = match rest.get(1) {
            None => false,
            Some(word) if word.is("watch") => true,
            Some(word) => bail!("{:?} instead of `watch`", word.text()?),
        };
        Ok(Request::Read { op, path: field(0)?, watch })
    };
    Ok(match name {
        "create" => create(1, rest)?,
        "create2" => create(15, rest)?,
        "create-container" => create(19, rest)?,
        "create-ttl" => create(21, rest)?,
        "delete" => Request::Delete { path: field(0)?, version: number(1, -1)? },
        "exists" => read(3)?,
        "get" => read(4)?,
        "children" => read(8)?,
        "list" => read(12)?,
        "set" => Request::SetData { path: field(0)?, data: field(1)?, version: number(2, -1)? },
        "get-acl" => Request::GetAcl { path: field(0)? },
        "set-acl" => {
            Request::SetAcl { path: field(0)?, acl: acl(at(1)?)?, version: number(2, -1)? }
        }
        "sync" => Request::Sync { path: field(0)? },
        "ping" => Request::Ping,
        "check" => Request::Check { path: field(0)?, version: number(1, -1)? },
        "multi" => multi(14, rest, true)?,
        "multi-open" => multi(14, rest, false)?,
        "multi-read" => multi(22, rest, true)?,
        "multi-read-open" => multi(22, rest, false)?,
        "reconfig" => Request::Reconfig {
            joining: field(0)?,
            leaving: field(1)?,
            members: field(2)?,
            config: at(3)?.number()?,
        },
        "check-watches" => Request::Watches { op: 17, path: field(0)?, kind: at(1)?.number()? },
        "remove-watches" => Request::Watches { op: 18, path: field(0)?, kind: at(1)?.number()? },
        "auth" => Request::Auth { kind: number(2, 0)?, scheme: field(0)?, auth: field(1)? },
        "sasl" => Request::Sasl { token: field(0)? },
        "set-watches" | "set-watches2" => {
            let (op, lists) = if name == "set-watches" { (101, 3) } else { (105, 5) };
            ensure!(rest.len() == 1 + lists, "{name} has a zxid and {lists} lists");
            let lists = rest[1..].iter().map(paths).collect::<Result<_>>()?;
            Request::SetWatches { op, relative: zxid(&rest[0])?, lists }
        }
        "ephemerals" => Request::GetEphemerals { prefix: field(0)? },
        "count" => Request::GetAllChildrenNumber { path: field(0)? },
        "add-watch" => Request::AddWatch { path: field(0)?, mode: at(1)?.number()? },
        "watch" => {
            let path = field(1)?;
            let read = |op| Request::Read { op, path: path.clone(), watch: true };
            match at(0)?.text()? {
                "x" => read(3),
                "d" => read(4),
                "c" => read(8),
                "C" => read(12),
                "p" => Request::AddWatch { path, mode: 0 },
                "r" => Request::AddWatch { path, mode: 1 },
                kind => bail!("no watch is of the kind {kind:?}"),
            }
        }
        "whoami" => Request::WhoAmI,
        "close" => Request::CloseSession,
        "op" => Request::Bytes { op: at(0)?.number()?, body: bytes_of(&rest[1..])? },
        _ => bail!("no request has the name {name:?}"),
    })
}

fn create(op: i32, words: &[Word]) -> Result<Request> {
    let [path, options @ ..] = words else { bail!("a path is needed") };
    let (mut data, mut list, mut flags, mut ttl) = (Text::from("x"), open(), 0, 0);
    for word in options {
        if let Some(value) = word.option("data") {
            data = value.field();
        } else if let Some(value) = word.option("acl") {
            list = acl(&value)?;
        } else if let Some(value) = word.option("flags") {
            flags = value.number()?;
        } else if let Some(value) = word.option("ttl") {
            ttl = value.number()?;
        } else {
            bail!("a create has no {:?}", word.text()?);
        }
    }
    Ok(Request::Create { op, path: path.field(), data, acl: list, flags, ttl })
}

fn multi(op: i32, words: &[Word], ended: bool) -> Result<Request> {
    let mut operations = Vec::new();
    for operation in words.split(|word| word.is(";")).filter(|operation| !operation.is_empty()) {
        let (kind, operation) = match operation {
            [kind, operation @ ..] if kind.bytes.starts_with(b"@") => {
                (Some(kind.text()?[1..].parse()?), operation)
            }
            _ => (None, operation),
        };
        let operation = request(operation)?;
        operations.push((kind.unwrap_or(operation.op()), operation));
    }
    Ok(Request::Multi { op, operations, ended })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Vec<String> {
        let file = parse("test", &format!("arrangements plain\n{text}")).unwrap();
        file.script.steps.iter().map(|step| format!("{step:?}")).collect()
    }

    fn error(text: &str) -> String {
        format!("{:#}", parse("test", &format!("arrangements plain\n{text}")).unwrap_err())
    }

    #[test]
    fn loops_and_blocks_are_the_lines_that_they_stand_for() {
        let text = "define pair\nc1 get $p\nc1 sync $p\nend\nfor p in /d \"/x y\"\ndo pair\nend";
        assert_eq!(steps(text), steps("c1 get /d\nc1 sync /d\nc1 get \"/x y\"\nc1 sync \"/x y\""));
        let rows = "for slot kinds in\n| c0 \"d c\"\n| c1 x\nfor k in $kinds\n\
                    $slot watch $k /d\nend\nend";
        assert_eq!(steps(rows), steps("c0 watch d /d\nc0 watch c /d\nc1 watch x /d"));
        assert_eq!(steps("for n in 1..3\nc0 get /d$n\nend"), steps("c0 get /d1\nc0 get /d2"));
    }

    #[test]
    fn an_inner_value_in_quotes_keeps_its_spaces_and_escapes() {
        assert_eq!(
            steps("for name in\n| \" \\xff\"\nc0 get \"/d/$name\"\nend"),
            steps("c0 get \"/d/ \\xff\"")
        );
    }

    #[test]
    fn null_is_a_null_field_only_without_quotes() {
        assert_ne!(steps("c0 get null"), steps("c0 get \"null\""));
    }

    #[test]
    fn a_request_is_cut_at_every_byte_of_its_body() {
        // A path of two bytes and its length, and the flag of a watch.
        assert_eq!(steps("each-cut c0 get /d").len(), 7);
    }

    #[test]
    fn errors_name_file_and_line() {
        assert_eq!(
            error("c0 get /d\n# a comment\nc0 fetch /d"),
            "test:4: no request has the name \"fetch\""
        );
        assert!(error("c9 ping").starts_with("test:2: "), "{}", error("c9 ping"));
        assert!(error("for x in a\nc0 ping").contains("no `end`"));
        assert!(error("+ ping").contains("without a batch"));
        assert!(error("c0 create /d flag=1").starts_with("test:2: a create has no"));
        assert!(error("c0 get /d watch 7").contains("at most 2 fields"));
        assert!(parse("test", "c0 ping").is_err());
    }
}
