//! Races of foreign software: checks that fail now and then whatever the server under test does,
//! each with its cause.
//!
//! What is named here has a second try, alone, and every run names what needed it. Everything else
//! has one try.

/// A check with a race of its own.
#[derive(Debug)]
struct Race {
    /// How the name of the check ends.
    check: &'static str,
    cause: &'static str,
}

const FIVE_SECONDS: &str = "kazoo gives its client five seconds to notice that the server has \
                            stopped, and five to reconnect";

const RACES: [Race; 2] = [
    Race { check: "::test_request_queuing_session_recovered", cause: FIVE_SECONDS },
    Race { check: "::test_request_queuing_session_expired", cause: FIVE_SECONDS },
];

/// Why a check may have a second try; `None` if it may not.
pub fn cause(check: &str) -> Option<&'static str> {
    RACES.iter().find(|race| check.ends_with(race.check)).map(|race| race.cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_may_race() {
        let of_kazoo = "test_client.py::TestClient::test_request_queuing_session_expired";
        assert!(cause(of_kazoo).is_some());
        assert_eq!(cause("test_client.py::TestClient::test_create"), None);
    }
}
