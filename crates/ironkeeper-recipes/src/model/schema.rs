//! Schemas: restrictions on the nodes of a path. Curator's `Schema` and `SchemaSet`.
//!
//! # On the tree
//! No nodes of its own. The program enforces the schemas, not the server: they prevent mistakes of
//! the program, but not malicious clients. Use ACLs against those.
//!
//! # Steps
//! 1. Specify for paths, or patterns of paths, the valid data and ACLs, whether nodes are ephemeral
//!    or sequential, and whether they may be watched and deleted; in the program, or in a file of
//!    the format of Curator's loader ([`SchemaSet::from_json`]).
//! 2. Send requests by a [`SchemaClient`](super::SchemaClient). It looks up the schema of the path
//!    before each request: an exact path first, then patterns in the order in which they were
//!    added.
//!
//! # Guarantees
//! A request that a schema forbids is never sent, and the error contains path, schema and rule. A
//! transaction with one forbidden operation is not sent at all. Schemas make no requests, watches
//! or waits of their own, so the behaviour on lost connections and sessions is that of the client.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use ironkeeper_client::{Acl, CreateOptions, acls};
use regex::Regex;

use crate::error::{RecipeError, Result};

/// Whether a property is required, optional or forbidden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allowance {
    /// Required.
    Must,
    /// Optional.
    #[default]
    Can,
    /// Forbidden.
    Cannot,
}

impl Allowance {
    fn check(self, is_so: bool, what: &str) -> Result<(), String> {
        match (self, is_so) {
            (Allowance::Must, false) => Err(format!("it must be {what}")),
            (Allowance::Cannot, true) => Err(format!("it cannot be {what}")),
            _ => Ok(()),
        }
    }
}

/// A check of a path and a value, which returns the reason if the value is invalid.
type Validator<T> = Arc<dyn Fn(&str, &T) -> Result<(), String> + Send + Sync>;

/// The paths that a schema covers.
#[derive(Clone, Debug)]
enum Paths {
    Exact(String),
    /// Names, some of which are `*`; the last may be `**`.
    Pattern(String),
    /// The regular expression matches the whole path.
    Regex(Regex),
}

/// The rules for a path, or for the paths of a pattern.
///
/// In a pattern `*` matches one name, and `**` at the end matches one or more names. A schema
/// without rules allows everything.
///
/// ```
/// use ironkeeper_recipes::model::{Allowance, Schema};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let workers = Schema::new("a worker", "/workers/*")?
///         .ephemeral(Allowance::Must)
///         .data(|_, data| if data.is_empty() { Err("it says nothing".into()) } else { Ok(()) });
///     assert!(workers.covers("/workers/anna"));
///     assert!(!workers.covers("/workers/anna/below"));
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Schema {
    name: String,
    paths: Paths,
    ephemeral: Allowance,
    sequential: Allowance,
    watched: Allowance,
    deleted: Allowance,
    data: Option<Validator<[u8]>>,
    acl: Option<Validator<[Acl]>>,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("name", &self.name)
            .field("paths", &self.paths)
            .field("ephemeral", &self.ephemeral)
            .field("sequential", &self.sequential)
            .field("watched", &self.watched)
            .field("deleted", &self.deleted)
            .field("judges_data", &self.data.is_some())
            .field("judges_acl", &self.acl.is_some())
            .finish()
    }
}

impl Schema {
    /// Creates a schema for a path or a pattern. `name` appears in errors.
    pub fn new(name: impl Into<String>, pattern: impl Into<String>) -> Result<Schema> {
        let (name, pattern) = (name.into(), pattern.into());
        let misuse = |why: &str| Err(RecipeError::Misuse(format!("{pattern:?}: {why}")));
        if !pattern.starts_with('/') {
            return misuse("does not begin with a slash");
        }
        let mut is_exact = true;
        let mut names = pattern.split('/').skip(1).peekable();
        while let Some(part) = names.next() {
            if part == "**" && names.peek().is_some() {
                return misuse("** is for the end");
            }
            if part.is_empty() && pattern != "/" {
                return misuse("a name is empty");
            }
            is_exact &= part != "*" && part != "**";
        }
        let paths = if is_exact { Paths::Exact(pattern) } else { Paths::Pattern(pattern) };
        Ok(Schema::about(name, paths))
    }

    /// Creates a schema for the paths that match a regular expression as a whole.
    pub fn by_regex(name: impl Into<String>, regex: &str) -> Result<Schema> {
        match Regex::new(&format!("^(?:{regex})$")) {
            Ok(regex) => Ok(Schema::about(name.into(), Paths::Regex(regex))),
            Err(error) => Err(RecipeError::Misuse(format!("{regex:?}: {error}"))),
        }
    }

    fn about(name: String, paths: Paths) -> Schema {
        Schema {
            name,
            paths,
            ephemeral: Allowance::Can,
            sequential: Allowance::Can,
            watched: Allowance::Can,
            deleted: Allowance::Can,
            data: None,
            acl: None,
        }
    }

    /// Sets whether the nodes are ephemeral.
    pub fn ephemeral(mut self, allowance: Allowance) -> Schema {
        self.ephemeral = allowance;
        self
    }

    /// Sets whether the nodes are sequential. The path is looked up without the sequence number.
    pub fn sequential(mut self, allowance: Allowance) -> Schema {
        self.sequential = allowance;
        self
    }

    /// Forbids watches.
    pub fn unwatched(mut self) -> Schema {
        self.watched = Allowance::Cannot;
        self
    }

    /// Forbids deletes.
    pub fn undeletable(mut self) -> Schema {
        self.deleted = Allowance::Cannot;
        self
    }

    /// Sets the check of the data: `is_valid` receives path and data, and returns the reason if the
    /// data is invalid.
    pub fn data(
        mut self,
        is_valid: impl Fn(&str, &[u8]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Schema {
        self.data = Some(Arc::new(is_valid));
        self
    }

    /// Sets the check of the ACL: `is_valid` receives path and ACL, and returns the reason if the
    /// ACL is invalid.
    ///
    /// ```
    /// use ironkeeper_client::CreateMode;
    /// use ironkeeper_recipes::model::{Schema, SchemaSet};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let secrets = Schema::new("secrets", "/secrets/**")?.acl(|_, acl| {
    ///         let is_open = acl.iter().any(|entry| entry.scheme == "world");
    ///         if is_open { Err("it is open to the world".into()) } else { Ok(()) }
    ///     });
    ///     let rules = SchemaSet::new().with(secrets);
    ///     assert!(rules.check_create("/secrets/key", b"", CreateMode::Persistent).is_err());
    ///     Ok(())
    /// }
    /// ```
    pub fn acl(
        mut self,
        is_valid: impl Fn(&str, &[Acl]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Schema {
        self.acl = Some(Arc::new(is_valid));
        self
    }

    /// Returns the name of the schema.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the schema covers a path.
    pub fn covers(&self, path: &str) -> bool {
        let pattern = match &self.paths {
            Paths::Exact(exact) => return exact == path,
            Paths::Regex(regex) => return regex.is_match(path),
            Paths::Pattern(pattern) => pattern,
        };
        let mut names = path.split('/');
        for part in pattern.split('/') {
            match (part, names.next()) {
                ("**", Some(name)) => return !name.is_empty(),
                ("*", Some(name)) if !name.is_empty() => {}
                (part, Some(name)) if part == name => {}
                _ => return false,
            }
        }
        names.next().is_none()
    }

    fn forbidden(&self, path: &str, why: String) -> RecipeError {
        RecipeError::Schema { path: path.to_owned(), schema: self.name.clone(), why }
    }

    fn check_data(&self, path: &str, data: &[u8]) -> Result<(), String> {
        self.data.as_ref().map_or(Ok(()), |is_valid| is_valid(path, data))
    }

    fn check_acl(&self, path: &str, acl: &[Acl]) -> Result<(), String> {
        self.acl.as_ref().map_or(Ok(()), |is_valid| is_valid(path, acl))
    }
}

/// The schemas of many paths.
///
/// ```
/// use ironkeeper_client::CreateMode;
/// use ironkeeper_recipes::model::{Allowance, Schema, SchemaSet};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let rules = SchemaSet::new()
///         .with(Schema::new("settings", "/settings")?.ephemeral(Allowance::Cannot).undeletable())
///         .with(Schema::new("workers", "/workers/*")?.ephemeral(Allowance::Must));
///     assert!(rules.check_create("/workers/anna", b"", CreateMode::Ephemeral).is_ok());
///     let forbidden =
///         rules.check_create("/workers/anna", b"", CreateMode::Persistent).unwrap_err();
///     assert!(forbidden.to_string().contains("it must be ephemeral"));
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct SchemaSet {
    exact: HashMap<String, Schema>,
    patterns: Vec<Schema>,
    is_strict: bool,
}

impl SchemaSet {
    /// Creates an empty set, which allows everything.
    pub fn new() -> SchemaSet {
        SchemaSet::default()
    }

    /// Adds a schema. It replaces an earlier schema of the same exact path.
    pub fn with(mut self, schema: Schema) -> SchemaSet {
        match &schema.paths {
            Paths::Exact(path) => {
                self.exact.insert(path.clone(), schema);
            }
            Paths::Pattern(_) | Paths::Regex(_) => self.patterns.push(schema),
        }
        self
    }

    /// Forbids all operations on paths without a schema.
    pub fn strict(mut self) -> SchemaSet {
        self.is_strict = true;
        self
    }

    /// Returns the schema of a path, if there is one.
    pub fn schema(&self, path: &str) -> Option<&Schema> {
        let by_pattern = || self.patterns.iter().find(|schema| schema.covers(path));
        self.exact.get(path).or_else(by_pattern)
    }

    /// Returns an error if a node must not be created with these options and this data.
    pub fn check_create(
        &self,
        path: &str,
        data: &[u8],
        options: impl Into<CreateOptions>,
    ) -> Result<()> {
        let options = options.into();
        self.check(path, |schema| {
            schema.ephemeral.check(options.mode().is_ephemeral(), "ephemeral")?;
            schema.sequential.check(options.mode().is_sequential(), "sequential")?;
            schema.check_data(path, data)?;
            schema.check_acl(path, options.access().unwrap_or(&acls::open()))
        })
    }

    /// Returns an error if a node must not have this ACL.
    pub fn check_set_acl(&self, path: &str, acl: &[Acl]) -> Result<()> {
        self.check(path, |schema| schema.check_acl(path, acl))
    }

    /// Returns an error if a node must not have this data.
    pub fn check_set(&self, path: &str, data: &[u8]) -> Result<()> {
        self.check(path, |schema| schema.check_data(path, data))
    }

    /// Returns an error if a node must not be deleted.
    pub fn check_delete(&self, path: &str) -> Result<()> {
        self.check(path, |schema| schema.deleted.check(true, "deleted"))
    }

    /// Returns an error if a node must not be watched.
    pub fn check_watch(&self, path: &str) -> Result<()> {
        self.check(path, |schema| schema.watched.check(true, "watched"))
    }

    fn check(&self, path: &str, rule: impl Fn(&Schema) -> Result<(), String>) -> Result<()> {
        match self.schema(path) {
            Some(schema) => rule(schema).map_err(|why| schema.forbidden(path, why)),
            None if self.is_strict => Err(RecipeError::Schema {
                path: path.to_owned(),
                schema: "strict".to_owned(),
                why: "there are no rules for it".to_owned(),
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ironkeeper_client::CreateMode;

    use super::*;

    #[test]
    fn patterns_cover_what_they_say() {
        let covers = |pattern: &str, path: &str| Schema::new("s", pattern).unwrap().covers(path);
        for (pattern, path, expected) in [
            ("/", "/", true),
            ("/a", "/a", true),
            ("/a", "/a/b", false),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a", false),
            ("/a/*", "/a/b/c", false),
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/a/b/d", false),
            ("/a/**", "/a/b/c", true),
            ("/a/**", "/a", false),
            ("/**", "/a", true),
            ("/**", "/", false),
            ("/*", "/a", true),
        ] {
            assert_eq!(covers(pattern, path), expected, "{pattern} {path}");
        }
        for wrong in ["", "a", "/a//b", "/**/a", "/a/"] {
            assert!(Schema::new("s", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_regular_expression_covers_whole_paths_only() {
        let schema = Schema::by_regex("s", "/a|/b/[0-9]+").unwrap();
        for (path, expected) in
            [("/a", true), ("/b/17", true), ("/a/b", false), ("/x/a", false), ("/b/17/c", false)]
        {
            assert_eq!(schema.covers(path), expected, "{path}");
        }
        assert!(Schema::by_regex("s", "/a(").is_err());
    }

    #[test]
    fn an_exact_path_goes_before_patterns_and_patterns_in_order() {
        let schema = |name: &str, pattern: &str| Schema::new(name, pattern).unwrap();
        let rules = SchemaSet::new()
            .with(schema("all", "/a/**"))
            .with(schema("one", "/a/*"))
            .with(schema("exact", "/a/b"));
        let name = |path: &str| rules.schema(path).map(|schema| schema.name().to_owned());
        assert_eq!(name("/a/b").as_deref(), Some("exact"));
        assert_eq!(name("/a/c").as_deref(), Some("all"));
        assert_eq!(name("/b"), None);
        assert!(rules.check_delete("/b").is_ok());
        assert!(rules.strict().check_delete("/b").is_err());
    }

    #[test]
    fn every_rule_forbids_what_it_is_for() {
        use Allowance::*;
        use CreateMode::*;
        let base = || Schema::new("s", "/a").unwrap();
        let create =
            |schema: Schema, mode| SchemaSet::new().with(schema).check_create("/a", b"x", mode);
        for (schema, allowed, forbidden) in [
            (base().ephemeral(Must), EphemeralSequential, Persistent),
            (base().ephemeral(Cannot), Persistent, Ephemeral),
            (base().sequential(Must), PersistentSequential, Ephemeral),
            (base().sequential(Cannot), Container, EphemeralSequential),
        ] {
            assert!(create(schema.clone(), allowed).is_ok(), "{schema:?}");
            assert!(create(schema.clone(), forbidden).is_err(), "{schema:?}");
        }
        let rules =
            SchemaSet::new().with(base().unwatched().undeletable().data(|path, data| {
                if data == path.as_bytes() { Ok(()) } else { Err("no".into()) }
            }));
        assert!(rules.check_set("/a", b"/a").is_ok());
        let why = rules.check_set("/a", b"/b").unwrap_err().to_string();
        assert_eq!(why, r#"/a: forbidden by the schema "s": no"#);
        assert!(rules.check_delete("/a").is_err() && rules.check_watch("/a").is_err());
    }
}
