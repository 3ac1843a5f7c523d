//! `envi`: the environment of the server.

use std::fmt::Write;

/// Renders `envi`: keys and values in the given order.
pub fn envi(environment: &[(&str, String)]) -> String {
    let mut text = String::from("Environment:\n");
    for (key, value) in environment {
        let _ = writeln!(text, "{key}={value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_keys_and_values() {
        let environment = [("os.name", "Linux".to_owned()), ("os.memory.max", "<NA>".to_owned())];
        assert_eq!(envi(&environment), "Environment:\nos.name=Linux\nos.memory.max=<NA>\n");
    }
}
