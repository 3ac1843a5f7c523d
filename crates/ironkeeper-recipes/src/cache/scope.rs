//! The set of nodes that a cache holds.

use crate::place::join;

#[derive(Clone, Debug)]
pub(crate) enum Scope {
    /// The children of a node, without the node.
    Children(String),
    /// A node and everything below it.
    Tree(String),
}

impl Scope {
    pub(crate) fn root(&self) -> &str {
        match self {
            Scope::Children(root) | Scope::Tree(root) => root,
        }
    }

    pub(crate) fn covers_root(&self) -> bool {
        matches!(self, Scope::Tree(_))
    }

    /// Returns whether a path at or below the root is one of the cached nodes.
    pub(crate) fn covers(&self, path: &str) -> bool {
        match self {
            Scope::Tree(_) => true,
            Scope::Children(root) => path
                .rsplit_once('/')
                .is_some_and(|(_, name)| !name.is_empty() && join(root, name) == path),
        }
    }

    /// Returns whether the children of a node are cached.
    pub(crate) fn descends(&self, path: &str) -> bool {
        match self {
            Scope::Tree(_) => true,
            Scope::Children(root) => path == root,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_one_step_below() {
        let scope = Scope::Children("/a".into());
        assert!(scope.covers("/a/b") && !scope.covers("/a") && !scope.covers("/a/b/c"));
        assert!(scope.descends("/a") && !scope.descends("/a/b"));
        let scope = Scope::Children("/".into());
        assert!(scope.covers("/b") && !scope.covers("/") && !scope.covers("/b/c"));
    }
}
