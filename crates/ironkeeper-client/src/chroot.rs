//! Paths relative to a chroot.

use std::borrow::Cow;
use std::sync::Arc;

/// The prefix of all paths of a client. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chroot(Option<Arc<str>>);

impl Chroot {
    /// Creates a chroot from a validated path.
    pub(crate) fn new(path: &str) -> Chroot {
        Chroot((path != "/").then(|| path.into()))
    }

    /// Returns the chroot at `path` inside of this one.
    pub(crate) fn join(&self, path: &str) -> Chroot {
        Chroot::new(&self.to_server(path))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or("/")
    }

    /// Returns the path on the server.
    pub(crate) fn to_server<'a>(&self, path: &'a str) -> Cow<'a, str> {
        match &self.0 {
            None => Cow::Borrowed(path),
            Some(root) if path == "/" => Cow::Owned(root.to_string()),
            Some(root) => Cow::Owned(format!("{root}{path}")),
        }
    }

    /// Returns the path relative to the chroot. A path outside of the chroot is returned unchanged.
    pub(crate) fn to_user<'a>(&self, path: &'a str) -> &'a str {
        let Some(root) = &self.0 else { return path };
        match path.strip_prefix(&**root) {
            Some("") => "/",
            Some(inside) if inside.starts_with('/') => inside,
            _ => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_in_and_come_out() {
        let chroot = Chroot::new("/app");
        for (user, server) in [("/", "/app"), ("/x", "/app/x"), ("/app", "/app/app")] {
            assert_eq!(chroot.to_server(user), server);
            assert_eq!(chroot.to_user(server), user);
        }
        assert_eq!(chroot.to_user("/apples"), "/apples");
        assert_eq!(chroot.join("/sub").as_str(), "/app/sub");
        assert_eq!(chroot.join("/").as_str(), "/app");
        assert_eq!(Chroot::new("/").to_server("/x"), "/x");
    }
}
