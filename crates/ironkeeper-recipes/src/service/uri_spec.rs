//! The template of a service's URI, filled in from an instance. Curator's `UriSpec`.

use serde::{Deserialize, Serialize};

use crate::error::{RecipeError, Result};
use crate::service::instance::ServiceInstance;

/// A template with variables, such as `{scheme}://{address}:{port}/api`.
///
/// An instance provides `name`, `id`, `address`, `port`, `ssl-port`, `registration-time-utc` and
/// `service-type`. `scheme` is `https` if the instance has an SSL port, else `http`. `{[}` and
/// `{]}` produce braces. A variable without a value produces no text.
///
/// ```
/// use ironkeeper_recipes::service::{ServiceInstance, UriSpec};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let spec = UriSpec::parse("{scheme}://{address}:{port}/{version}")?;
///     let instance = ServiceInstance::new("web").with_address("10.0.0.1").with_port(80);
///     assert_eq!(spec.build_with(&instance, &[("version", "v2")]), "http://10.0.0.1:80/v2");
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UriSpec {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    value: String,
    variable: bool,
}

impl UriSpec {
    /// Parses a template. Returns an error if its braces do not match.
    pub fn parse(text: &str) -> Result<UriSpec> {
        let misuse = |why: &str| Err(RecipeError::Misuse(format!("{text:?}: {why}")));
        let mut parts = Vec::new();
        let mut add = |value: &str, variable: bool| {
            if !value.is_empty() {
                parts.push(Part { value: value.to_owned(), variable });
            }
        };
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            if rest[at..].starts_with('}') {
                return misuse("a } without a {");
            }
            add(&rest[..at], false);
            let inside = &rest[at + 1..];
            match inside.find(['{', '}']) {
                Some(end) if inside[end..].starts_with('}') => {
                    add(inside[..end].trim(), true);
                    rest = &inside[end + 1..];
                }
                Some(_) => return misuse("a { within a variable"),
                None => return misuse("a { without a }"),
            }
        }
        add(rest, false);
        Ok(UriSpec { parts })
    }

    /// Returns the text for an instance.
    pub fn build(&self, instance: &ServiceInstance) -> String {
        self.build_with(instance, &[])
    }

    /// Returns the text for an instance, with further variables, which take precedence over those
    /// of the instance.
    pub fn build_with(&self, instance: &ServiceInstance, variables: &[(&str, &str)]) -> String {
        let mut text = String::new();
        for part in &self.parts {
            let name = part.value.as_str();
            match variables.iter().find(|(other, _)| part.variable && *other == name) {
                Some((_, value)) => text.push_str(value),
                None if part.variable => text.push_str(&variable(instance, name)),
                None => text.push_str(name),
            }
        }
        text
    }
}

fn variable(instance: &ServiceInstance, name: &str) -> String {
    let number = |number: Option<u16>| number.map(|number| number.to_string()).unwrap_or_default();
    match name {
        "scheme" if instance.ssl_port.is_some() => "https".to_owned(),
        "scheme" => "http".to_owned(),
        "name" => instance.name.clone(),
        "id" => instance.id.clone(),
        "address" => instance.address.clone().unwrap_or_default(),
        "port" => number(instance.port),
        "ssl-port" => number(instance.ssl_port),
        "registration-time-utc" => instance.registration_time_utc.to_string(),
        "service-type" => instance.service_type.name().to_lowercase(),
        "[" => "{".to_owned(),
        "]" => "}".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let instance = ServiceInstance::new("web")
            .with_id("7")
            .with_address("host")
            .with_ssl_port(443)
            .registered_at(5);
        assert_eq!(UriSpec::parse(text).unwrap().build(&instance), expected);
    }

    #[test]
    fn variables_are_those_of_curator() {
        check("{scheme}://{address}:{ssl-port}", "https://host:443");
        check("{name}/{id}/{ registration-time-utc }", "web/7/5");
        check("{service-type}", "dynamic");
        check("{[}x{]}", "{x}");
        check("{unknown}{}plain", "plain");
        // The instance has no plain port.
        check("a{port}b", "ab");
        check("", "");
    }

    #[test]
    fn braces_that_do_not_match_are_refused() {
        for text in ["{a", "a}", "{a{b}}", "}{"] {
            assert!(UriSpec::parse(text).is_err(), "{text}");
        }
    }
}
