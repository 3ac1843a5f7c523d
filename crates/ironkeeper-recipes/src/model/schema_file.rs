//! Rules from a file, in the format of Curator's `SchemaSetLoader`.

use std::collections::HashMap;

use serde::Deserialize;

use crate::error::{RecipeError, Result};
use crate::model::schema::{Allowance, Schema, SchemaSet};

/// A schema as in the file. A field that Curator does not have is a typing error, and rejected.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    path: String,
    #[serde(default)]
    is_regex: bool,
    schema_validator: Option<String>,
    #[serde(default)]
    ephemeral: Word,
    #[serde(default)]
    sequential: Word,
    #[serde(default)]
    watched: Word,
    /// The default is `false`, as in Curator.
    #[serde(default)]
    can_be_deleted: bool,
    /// Documentation for people, ignored.
    #[serde(default, rename = "documentation")]
    _documentation: String,
    #[serde(default, rename = "metadata")]
    _metadata: HashMap<String, String>,
}

/// `can`, `must` or `cannot`, in capitals or not.
#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "String")]
struct Word(Allowance);

impl TryFrom<String> for Word {
    type Error = String;

    fn try_from(word: String) -> Result<Word, String> {
        match word.to_ascii_lowercase().as_str() {
            "can" => Ok(Word(Allowance::Can)),
            "must" => Ok(Word(Allowance::Must)),
            "cannot" => Ok(Word(Allowance::Cannot)),
            _ => Err(format!("{word:?} is not one of can, must and cannot")),
        }
    }
}

impl SchemaSet {
    /// Parses schemas as Curator's `SchemaSetLoader` does: one object, or a list of objects.
    ///
    /// | field | meaning |
    /// | --- | --- |
    /// | `name`, `path` | as in [`Schema::new`]; with `"isRegex": true` as in [`Schema::by_regex`] |
    /// | `schemaValidator` | the name of a check: `validators` adds it to the schema, or returns
    /// `None` |
    /// | `ephemeral`, `sequential`, `watched` | `can`, `must` or `cannot`; default `can` |
    /// | `canBeDeleted` | default `false` |
    /// | `documentation`, `metadata` | for people, ignored |
    ///
    /// ```
    /// use ironkeeper_recipes::model::SchemaSet;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let file = r#"[{
    ///     "name": "workers", "path": "/workers/[a-z]+", "isRegex": true,
    ///     "ephemeral": "must", "schemaValidator": "not-empty", "canBeDeleted": true
    /// }]"#;
    ///     let rules = SchemaSet::from_json(file, |name, schema| match name {
    ///         "not-empty" => Some(schema.data(|_, data| {
    ///             if data.is_empty() { Err("it says nothing".into()) } else { Ok(()) }
    ///         })),
    ///         _ => None,
    ///     })?;
    ///     assert!(rules.check_set("/workers/anna", b"").is_err());
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "SchemaSetLoader")]
    pub fn from_json(
        json: &str,
        mut validators: impl FnMut(&str, Schema) -> Option<Schema>,
    ) -> Result<SchemaSet> {
        let misuse = |why: String| RecipeError::Misuse(format!("rules: {why}"));
        let read = match json.trim_start().starts_with('[') {
            true => serde_json::from_str(json),
            false => serde_json::from_str(json).map(|one: Entry| vec![one]),
        };
        let mut set = SchemaSet::new();
        for entry in read.map_err(|error| misuse(error.to_string()))? {
            let mut schema = match entry.is_regex {
                true => Schema::by_regex(entry.name, &entry.path)?,
                false => Schema::new(entry.name, entry.path)?,
            };
            schema = schema.ephemeral(entry.ephemeral.0).sequential(entry.sequential.0);
            // `must` has no effect: all reads of a `SchemaClient` that are checked set a watch.
            if entry.watched.0 == Allowance::Cannot {
                schema = schema.unwatched();
            }
            if !entry.can_be_deleted {
                schema = schema.undeletable();
            }
            if let Some(name) = entry.schema_validator {
                let unknown = || misuse(format!("the schemaValidator {name:?} is not known"));
                schema = validators(&name, schema).ok_or_else(unknown)?;
            }
            set = set.with(schema);
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use ironkeeper_client::CreateMode;

    use super::*;

    fn read(json: &str) -> Result<SchemaSet> {
        SchemaSet::from_json(json, |name, schema| {
            (name == "none").then(|| schema.data(|_, _| Err("no data is right".into())))
        })
    }

    #[test]
    fn every_field_becomes_its_rule() {
        let rules = read(
            r#"[
                {"name": "a", "path": "/a", "ephemeral": "MUST", "watched": "cannot"},
                {"name": "b", "path": "/b.*", "isRegex": true, "sequential": "cannot",
                 "canBeDeleted": true, "documentation": "of b", "metadata": {"by": "me"}},
                {"name": "c", "path": "/c", "schemaValidator": "none"}
            ]"#,
        )
        .unwrap();
        assert!(rules.check_create("/a", b"", CreateMode::Persistent).is_err());
        assert!(rules.check_create("/a", b"", CreateMode::Ephemeral).is_ok());
        assert!(rules.check_watch("/a").is_err() && rules.check_delete("/a").is_err());
        assert!(rules.check_create("/b/b", b"", CreateMode::PersistentSequential).is_err());
        assert!(rules.check_watch("/b/b").is_ok() && rules.check_delete("/b/b").is_ok());
        assert!(rules.check_set("/c", b"x").is_err());
    }

    #[test]
    fn one_object_is_a_list_of_one() {
        let rules = read(r#" {"name": "a", "path": "/a"}"#).unwrap();
        assert_eq!(rules.schema("/a").map(Schema::name), Some("a"));
    }

    #[test]
    fn a_slip_in_the_file_is_named() {
        for (json, why) in [
            ("[", "EOF"),
            (r#"[{"path": "/a"}]"#, "missing field `name`"),
            (r#"[{"name": "a", "path": "a"}]"#, "does not begin with a slash"),
            (r#"[{"name": "a", "path": "/(", "isRegex": true}]"#, "unclosed group"),
            (r#"[{"name": "a", "path": "/a", "ephemeral": "never"}]"#, "not one of can, must"),
            (r#"[{"name": "a", "path": "/a", "ephemral": "can"}]"#, "unknown field `ephemral`"),
            (r#"[{"name": "a", "path": "/a", "schemaValidator": "x"}]"#, "\"x\" is not known"),
        ] {
            let error = read(json).unwrap_err().to_string();
            assert!(error.contains(why), "{json}: {error}");
        }
    }
}
