//! The log lines in the source of all crates: constant messages, and the names that
//! `docs/logging.md` lists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
const MESSAGE_CHARS_MAX: usize = 72;

#[test]
fn messages_are_constant_and_short_and_values_are_known_fields() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(crates.join("../docs/logging.md")).expect("the page");
    let names = Names::of_page(&page);
    let (mut lines, mut findings) = (0, Vec::new());
    for file in product_files(&crates) {
        let text = fs::read_to_string(&file).expect("a source file");
        let shown = file.strip_prefix(&crates).expect("below crates").display().to_string();
        let tokens = text.parse().unwrap_or_else(|error| panic!("{shown}: {error}"));
        for line in log_lines(tokens) {
            lines += 1;
            let found = line.findings(&names, &target_of(&shown));
            findings.extend(found.into_iter().map(|finding| format!("{shown}: {finding}")));
        }
    }
    assert!(lines > 80, "only {lines} log lines were found");
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn interpolated_values_and_unknown_names_are_found() {
    let names = Names { fields: ["path".to_owned()].into(), targets: vec!["a".to_owned()] };
    let findings = |source: &str| -> Vec<String> {
        let lines = log_lines(source.parse().expect("tokens"));
        lines.iter().flat_map(|line| line.findings(&names, "a::b")).collect()
    };
    assert_eq!(findings(r#"fn f() { tracing::warn!(%path, "node not kept"); }"#), [""; 0]);
    assert_eq!(findings(r#"tracing::info!(path = at(&["x", "y"]), "node kept")"#), [""; 0]);
    for source in [
        r#"if x { tracing::warn!("node {path} not kept") }"#,
        r#"tracing::warn!("node not kept: {}", path)"#,
        r#"tracing::warn!("{line}")"#,
        r#"tracing::warn!(path)"#,
        r#"tracing::warn!(path, "Node not kept")"#,
        r#"tracing::warn!(path, "node not kept.")"#,
        r#"tracing::warn!(node = path, "node not kept")"#,
        r#"tracing::warn!(target: "c", path, "node not kept")"#,
    ] {
        assert_eq!(findings(source).len(), 1, "{source}: {:?}", findings(source));
    }
}

/// The names that the page lists.
struct Names {
    fields: BTreeSet<String>,
    targets: Vec<String>,
}

impl Names {
    fn of_page(page: &str) -> Names {
        let of_section = |heading: &str| -> Vec<String> {
            let section = page.split("\n## ").find(|section| section.starts_with(heading));
            let section = section.unwrap_or_else(|| panic!("the page has no section {heading}"));
            let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
            let cells = rows.filter_map(|row| row.split(" |").next());
            cells.flat_map(|cell| cell.split(", ")).map(|name| name.replace('`', "")).collect()
        };
        Names { fields: of_section("Fields").into_iter().collect(), targets: of_section("Filters") }
    }
}

/// A call of a macro of `tracing`.
struct LogLine {
    target: Option<String>,
    fields: Vec<String>,
    /// The literal in place of the message, and the number of arguments after it.
    message: Option<(String, usize)>,
}

impl LogLine {
    /// `module` is the default target.
    fn findings(&self, names: &Names, module: &str) -> Vec<String> {
        let target = self.target.as_deref().unwrap_or(module);
        let Some((message, formatted)) = &self.message else {
            return vec![format!("a log line without a constant message: {:?}", self.fields)];
        };
        let mut findings = Vec::new();
        if message.contains(['{', '}']) || *formatted > 0 {
            findings.push(format!("{message:?} interpolates values: make them fields"));
        } else if message.starts_with(char::is_uppercase) || message.ends_with('.') {
            findings.push(format!("{message:?} begins with a capital or ends with a full stop"));
        } else if message.chars().count() > MESSAGE_CHARS_MAX || message.contains('\n') {
            findings.push(format!("{message:?} is longer than {MESSAGE_CHARS_MAX} characters"));
        }
        let unknown = self.fields.iter().filter(|field| !names.fields.contains(*field));
        findings.extend(
            unknown.map(|field| {
                format!("the field {field:?} of {message:?} is not in docs/logging.md")
            }),
        );
        let is_below =
            |known: &String| target == known || target.starts_with(&format!("{known}::"));
        if !names.targets.iter().any(is_below) {
            findings
                .push(format!("the target {target:?} of {message:?} is not in docs/logging.md"));
        }
        findings
    }

    fn of_arguments(arguments: TokenStream) -> LogLine {
        let mut line = LogLine { target: None, fields: Vec::new(), message: None };
        for argument in split_at_commas(arguments) {
            if let Some((_, formatted)) = &mut line.message {
                *formatted += 1;
                continue;
            }
            // The sigils that select Display or Debug.
            let is_sigil = |tree: &TokenTree| match tree {
                TokenTree::Punct(mark) => matches!(mark.as_char(), '%' | '?'),
                _ => false,
            };
            let argument: Vec<TokenTree> = argument.into_iter().skip_while(is_sigil).collect();
            match argument.as_slice() {
                [TokenTree::Literal(text)] => line.message = Some((unquoted(text), 0)),
                [TokenTree::Ident(name), TokenTree::Punct(mark), TokenTree::Literal(text)]
                    if name == "target" && mark.as_char() == ':' =>
                {
                    line.target = Some(unquoted(text));
                }
                [TokenTree::Ident(name), ..] => line.fields.push(name.to_string()),
                _ => line.fields.push(String::new()),
            }
        }
        line
    }
}

fn unquoted(literal: &proc_macro2::Literal) -> String {
    literal.to_string().trim_matches('"').to_owned()
}

fn split_at_commas(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_comma =
        |tree: &TokenTree| matches!(tree, TokenTree::Punct(mark) if mark.as_char() == ',');
    tokens.split(is_comma).map(<[_]>::to_vec).filter(|part| !part.is_empty()).collect()
}

/// Returns the calls of the macros, also within other macros.
fn log_lines(tokens: TokenStream) -> Vec<LogLine> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut lines = Vec::new();
    for (index, tree) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = tree else { continue };
        let is_call = group.delimiter() == Delimiter::Parenthesis
            && index >= 2
            && matches!(&tokens[index - 1], TokenTree::Punct(mark) if mark.as_char() == '!')
            && matches!(&tokens[index - 2], TokenTree::Ident(name)
                if LEVELS.iter().any(|level| name == level));
        match is_call {
            true => lines.push(LogLine::of_arguments(group.stream())),
            false => lines.extend(log_lines(group.stream())),
        }
    }
    lines
}

/// Returns the default target of the log lines in a file: its module.
fn target_of(file: &str) -> String {
    let module = file.trim_end_matches(".rs").replace("/src/", "/");
    let module = module.trim_end_matches("/mod").trim_end_matches("/lib").trim_end_matches("/main");
    module.replace('-', "_").replace('/', "::")
}

/// Returns the source files of all crates, without their integration tests.
fn product_files(crates: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(crates).expect("the folder of the crates");
    let mut folders: Vec<PathBuf> =
        folders.map(|entry| entry.expect("an entry").path().join("src")).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        // Not every folder is a crate with sources.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}
