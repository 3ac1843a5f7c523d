//! Runs the examples of the documentation with a test server of their own.
//!
//! The examples of `ironkeeper-client` and `ironkeeper-recipes` are whole programs that connect to
//! `127.0.0.1:2181`. When an example runs as a documentation test, the port of the test server is
//! not known in advance, and a server of the user may listen on 2181. The hidden attribute
//! `#[ironkeeper_doctest::server]` in front of `main` starts a `TestServer` and writes the address
//! of that server in the place of `127.0.0.1:2181`. Everything else runs as it is shown.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

const SHOWN_ADDRESS: &str = "127.0.0.1:2181";

/// The first statements of `main`. `at_test_server` has no borrowed state, so that spawned tasks
/// can call it, too, and returns what a literal is: a `&'static str`.
const PREPARATION: &str = r#"
    let test_server = ::ironkeeper_testing::TestServer::start()?;
    let at_test_server = {
        let address: &'static str = test_server.connect_string().leak();
        move |shown: &str| -> &'static str { shown.replace("127.0.0.1:2181", address).leak() }
    };
"#;

/// Starts a `TestServer` at the beginning of a function that returns a `Result`, and replaces
/// `127.0.0.1:2181` in all its string literals by the address of that server.
///
/// # Panics
/// If the function has no such literal: then the attribute is not needed.
#[proc_macro_attribute]
pub fn server(_: TokenStream, function: TokenStream) -> TokenStream {
    let mut replaced = 0;
    let mut function: Vec<TokenTree> =
        with_test_server(function, &mut replaced).into_iter().collect();
    assert!(replaced > 0, "the example does not use {SHOWN_ADDRESS}");
    let Some(TokenTree::Group(body)) = function.pop() else { panic!("not a function") };
    let mut prepared: TokenStream = PREPARATION.parse().expect("the statements are Rust");
    prepared.extend(body.stream());
    function.push(Group::new(Delimiter::Brace, prepared).into());
    function.into_iter().collect()
}

/// Returns the tokens with a call of `at_test_server` around each literal that has the address.
fn with_test_server(tokens: TokenStream, replaced: &mut usize) -> TokenStream {
    let mut result = TokenStream::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let inner = with_test_server(group.stream(), replaced);
                let mut group_replaced = Group::new(group.delimiter(), inner);
                group_replaced.set_span(group.span());
                result.extend([TokenTree::Group(group_replaced)]);
            }
            TokenTree::Literal(literal) if literal.to_string().contains(SHOWN_ADDRESS) => {
                *replaced += 1;
                let call: TokenStream =
                    format!("at_test_server({literal})").parse().expect("a call is Rust");
                result.extend(call);
            }
            other => result.extend([other]),
        }
    }
    result
}
