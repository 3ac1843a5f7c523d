//! Known races in third-party software: checks that sometimes fail independently of the server
//! under test, each with its cause.
//!
//! A check listed here is repeated once, alone, and every run reports the repeated checks. All
//! other checks run once.

/// A check with a known race.
#[derive(Debug)]
struct Race {
    /// The suffix of the name of the check.
    check: &'static str,
    cause: &'static str,
}

const FIVE_SECONDS: &str = "kazoo gives its client five seconds to notice that the server has \
                            stopped, and five to reconnect";

const RACES: [Race; 2] = [
    Race { check: "::test_request_queuing_session_recovered", cause: FIVE_SECONDS },
    Race { check: "::test_request_queuing_session_expired", cause: FIVE_SECONDS },
];

/// Returns why a check may be repeated; `None` if it may not.
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
