//! Detection of the recipe that created a child, by the child's name. A recipe returns an error if
//! another recipe uses the same path, because the two would ignore each other. Names that belong to
//! no recipe are ignored.

use crate::error::{RecipeError, Result};
use crate::place::unprotected;
use crate::queue::recipe_of_item;
use crate::queue_of_waiters::{Bases, Contender};

/// The recipes with queues of contenders, by the ends of their node names before the number.
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

/// Returns an error if a child belongs to a recipe. Children for which `ours` is true are ignored.
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

/// Returns the name without its unique prefix: the protection of Curator and of this crate, or
/// kazoo's. Returns `None` if there is no such prefix.
pub(crate) fn marked(name: &str) -> Option<&str> {
    unprotected(name).or_else(|| of_kazoo(name))
}

/// Returns the name of a kazoo lock node without its unique prefix of 32 hexadecimal digits.
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
