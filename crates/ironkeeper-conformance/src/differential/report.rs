//! Two transcripts as one text.

use super::player::Transcript;
use super::script::Script;

pub fn equal(transcripts: &[Transcript; 2]) -> bool {
    let [a, b] = transcripts;
    a.steps == b.steps && a.remains == b.remains && a.world == b.world
}

/// Returns the script with the replies of both servers. Equal lines are printed once.
pub fn transcripts(script: &Script, transcripts: &[Transcript; 2], titles: &[&str; 2]) -> String {
    steps(script, transcripts, titles, |_, _| true)
}

/// Returns only the steps whose replies differ.
pub fn differences(script: &Script, transcripts: &[Transcript; 2], titles: &[&str; 2]) -> String {
    steps(script, transcripts, titles, |a, b| a != b)
}

fn steps(
    script: &Script,
    transcripts: &[Transcript; 2],
    titles: &[&str; 2],
    shown: impl Fn(&[String], &[String]) -> bool,
) -> String {
    let mut text = String::new();
    let none = Vec::new();
    for (index, step) in script.steps.iter().enumerate() {
        let [a, b] = [0, 1].map(|side: usize| transcripts[side].steps.get(index).unwrap_or(&none));
        if shown(a, b) {
            text.push_str(&format!("{:4}. {step:?}\n", index + 1));
            aligned(a, b, titles, &mut text);
        }
    }
    if transcripts[0].remains != transcripts[1].remains {
        text.push_str("at the end:\n");
        aligned(&transcripts[0].remains, &transcripts[1].remains, titles, &mut text);
    }
    if transcripts[0].world != transcripts[1].world {
        text.push_str("after cleaning up:\n");
        aligned(&transcripts[0].world, &transcripts[1].world, titles, &mut text);
    }
    text
}

/// Returns the lines of two texts that differ, each text after its title.
pub fn lines(a: &str, b: &str, titles: &[&str; 2]) -> String {
    const SHOWN_MAX: usize = 40;
    let [mut a, mut b]: [Vec<String>; 2] = [a, b].map(|t| t.lines().map(str::to_owned).collect());
    let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    // The line of the scenario is above its replies.
    let from = a[..same].iter().rposition(|line| !line.starts_with(' ')).unwrap_or(0);
    for side in [&mut a, &mut b] {
        side.drain(..from);
        side.truncate(SHOWN_MAX);
    }
    let mut text = String::new();
    aligned(&a, &b, titles, &mut text);
    text
}

/// Aligns lines by longest common subsequence, so that a missing event does not make all later
/// lines differ.
fn aligned(a: &[String], b: &[String], titles: &[&str; 2], out: &mut String) {
    let width = titles[0].len().max(titles[1].len());
    let mut common = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = if a[i] == b[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let mut line = |who: &str, text: &str| out.push_str(&format!("      {who:width$} | {text}\n"));
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            line("", &a[i]);
            (i, j) = (i + 1, j + 1);
        } else if i < a.len() && (j == b.len() || common[i + 1][j] >= common[i][j + 1]) {
            line(titles[0], &a[i]);
            i += 1;
        } else {
            line(titles[1], &b[j]);
            j += 1;
        }
    }
}
