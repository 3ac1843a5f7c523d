//! Telling by the name of a child which recipe has put it there, so that two recipes on one path, which
//! would not see each other, are refused. Names that belong to no recipe are nobody's business.

use crate::error::{RecipeError, Result};
use crate::place::unprotected;
use crate::queue::recipe_of_item;
use crate::queue_of_waiters::{Bases, Contender};

/// All recipes that stand in line, by what the names of their nodes end with.
const LINES: &[(Bases, &str)] = &[
    (&["lock-"], "mutex or leader selector"),
    (&["__READ__", "__WRIT__"], "read/write lock"),
    (&["-R-", "-W-"], "read/write lock with host names"),
    (&["__lock__"], "lock or writer with kazoo's names"),
    (&["__rlock__"], "reader with kazoo's names"),
    (&["latch-"], "leader latch"),
    (&["lease-"], "leases of a semaphore"),
    (&["n_"], "election support"),
];

/// Refuses a path with a child of a recipe. Those are left out that are `ours`.
pub(crate) fn refuse(path: &str, names: &[String], ours: impl Fn(&str) -> bool) -> Result<()> {
    for name in names.iter().filter(|name| !ours(name)) {
        if let Some(recipe) = recipe_of(name) {
            let (path, child) = (path.to_owned(), name.clone());
            return Err(RecipeError::OtherRecipe { path, child, recipe });
        }
    }
    Ok(())
}

fn recipe_of(name: &str) -> Option<&'static str> {
    match marked(name) {
        Some(rest) => LINES
            .iter()
            .find(|(bases, _)| Contender::parse(rest, bases).is_some())
            .map(|(_, recipe)| *recipe),
        None if name == "leases" => Some("semaphore"),
        None => recipe_of_item(name),
    }
}

/// The name without the mark of whoever made the node, Curator's and ours or kazoo's.
pub(crate) fn marked(name: &str) -> Option<&str> {
    unprotected(name).or_else(|| of_kazoo(name))
}

/// The name without kazoo's own mark, if it is that of one of its locks.
fn of_kazoo(name: &str) -> Option<&str> {
    let (mark, rest) = name.split_at_checked(32)?;
    let is_mark = mark.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_mark && (rest.starts_with("__lock__") || rest.starts_with("__rlock__"))).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_told_apart_by_their_names() {
        let mark = "_c_53345f98-9423-4e0c-a7b5-9f819e3ec2e1-";
        for (name, recipe) in [
            (format!("{mark}lock-0000000001"), Some("mutex or leader selector")),
            (format!("{mark}__WRIT__0000000001"), Some("read/write lock")),
            ("leases".to_owned(), Some("semaphore")),
            ("qn-0000000007".to_owned(), Some("simple queue")),
            ("queue-0000000007".to_owned(), Some("queue of work")),
            ("queue-|a|0000000007".to_owned(), Some("queue of work with ids or due times")),
            ("queue-1000000050000000007".to_owned(), Some("queue of work with priorities")),
            ("readme".to_owned(), None),
            ("locks".to_owned(), None),
            ("lock-0000000001".to_owned(), None),
            ("qn-".to_owned(), None),
            ("queue-53345f98-9423-4e0c-a7b5-9f819e3ec2e1".to_owned(), None),
        ] {
            assert_eq!(recipe_of(&name), recipe, "{name}");
        }
    }
}
