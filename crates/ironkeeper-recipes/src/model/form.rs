//! Paths with parameters. Curator's `ZPath`.

use std::fmt;

use crate::error::{RecipeError, Result};
use crate::place::refuse_bad_name;

/// A path in which some names are parameters, such as `/users/{user}/orders/{order}`.
///
/// ```
/// use ironkeeper_recipes::model::PathForm;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let form = PathForm::parse("/users/{user}/orders/{order}")?;
///     assert_eq!(form.fill(&["anna", "7"])?, "/users/anna/orders/7");
///     assert_eq!(
///         form.read("/users/anna/orders/7"),
///         Some(vec!["anna".to_owned(), "7".to_owned()])
///     );
///     assert!(form.fill(&["anna"]).is_err());
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "ZPath")]
pub struct PathForm {
    names: Vec<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Fixed(String),
    Parameter(String),
}

impl PathForm {
    /// Parses a form. Returns an error if it is not a path, or its braces do not match.
    pub fn parse(text: &str) -> Result<PathForm> {
        let misuse = |why: &str| RecipeError::Misuse(format!("{text:?}: {why}"));
        let rest = text.strip_prefix('/').ok_or_else(|| misuse("does not begin with a slash"))?;
        let one = |name: &str| {
            refuse_bad_name(text, name)?;
            match name.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                Some(inner) if !inner.contains(['{', '}']) => Ok(Name::Parameter(inner.to_owned())),
                None if !name.contains(['{', '}']) => Ok(Name::Fixed(name.to_owned())),
                _ => Err(misuse("a parameter is a whole name in braces")),
            }
        };
        Ok(PathForm { names: rest.split('/').map(one).collect::<Result<_>>()? })
    }

    /// Returns the number of parameters.
    pub fn parameters(&self) -> usize {
        self.names.iter().filter(|name| matches!(name, Name::Parameter(_))).count()
    }

    /// Returns the path with these values of the parameters, whose number must match.
    pub fn fill(&self, parameters: &[&str]) -> Result<String> {
        if parameters.len() != self.parameters() {
            let (given, needed) = (parameters.len(), self.parameters());
            let why = format!("{self}: {given} parameters where {needed} are needed");
            return Err(RecipeError::Misuse(why));
        }
        self.fill_from(&self.names, parameters)
    }

    /// Returns the parent of the last name, which must be a parameter: the children of the parent
    /// are the values for that parameter.
    pub(super) fn fill_parent(&self, parameters: &[&str]) -> Result<String> {
        let Some((Name::Parameter(_), above)) = self.names.split_last() else {
            let why = format!("{self}: its last name is no parameter, so there is but one");
            return Err(RecipeError::Misuse(why));
        };
        let needed = self.parameters() - 1;
        if parameters.len() != needed {
            let given = parameters.len();
            let why =
                format!("{self}: {given} parameters where all but the last, {needed}, are needed");
            return Err(RecipeError::Misuse(why));
        }
        let path = self.fill_from(above, parameters)?;
        Ok(if path.is_empty() { "/".to_owned() } else { path })
    }

    fn fill_from(&self, names: &[Name], parameters: &[&str]) -> Result<String> {
        let mut path = String::new();
        let mut parameters = parameters.iter();
        for name in names {
            let name = match name {
                Name::Fixed(name) => name,
                Name::Parameter(_) => {
                    let value = parameters.next().copied().unwrap_or_default();
                    refuse_bad_name(&self.to_string(), value)?;
                    value
                }
            };
            path.push('/');
            path.push_str(name);
        }
        Ok(path)
    }

    /// Returns the parameters of a path of this form; `None` if the path does not match.
    pub fn read(&self, path: &str) -> Option<Vec<String>> {
        let names: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        if names.len() != self.names.len() {
            return None;
        }
        let mut parameters = Vec::new();
        for (found, name) in names.into_iter().zip(&self.names) {
            match name {
                Name::Fixed(name) if name == found => {}
                Name::Fixed(_) => return None,
                Name::Parameter(_) => parameters.push(found.to_owned()),
            }
        }
        Some(parameters)
    }
}

impl fmt::Display for PathForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.names {
            match name {
                Name::Fixed(name) => write!(f, "/{name}")?,
                Name::Parameter(name) => write!(f, "/{{{name}}}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_form_is_refused() {
        for text in
            ["", "users", "/", "/a//b", "/a/", "/a/{b", "/a/b}", "/a/x{b}", "/a/{{b}}", "/.."]
        {
            assert!(PathForm::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_parameter_cannot_reach_another_level() {
        let form = PathForm::parse("/users/{user}").unwrap();
        for user in ["a/b", "", ".", "..", "a\0"] {
            assert!(form.fill(&[user]).is_err(), "{user:?}");
        }
        assert_eq!(form.fill_parent(&[]).unwrap(), "/users");
        assert_eq!(form.to_string(), "/users/{user}");
        assert_eq!(form.read("/users"), None);
        assert_eq!(form.read("/people/anna"), None);
        assert_eq!(PathForm::parse("/{all}").unwrap().fill_parent(&[]).unwrap(), "/");
        assert!(PathForm::parse("/users/all").unwrap().fill_parent(&[]).is_err());
    }
}
