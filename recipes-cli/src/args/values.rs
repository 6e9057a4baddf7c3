//! The values of options, read from text.

use std::time::Duration;

#[cfg(target_os = "linux")]
use recipes_leader::ElectionLayout;
use recipes_zookeeper::SESSION_TIMEOUT_MAX;
use tracing_subscriber::filter::{LevelFilter, Targets};

#[cfg(target_os = "linux")]
use super::Mode;

/// What logs in this command, and what zookeeper-client calls itself.
const LOG_TARGETS: [&str; 6] = [
    "lock_recipes::lock",
    "lock_recipes::session",
    "lock_recipes::cleanup",
    "lock_recipes::store",
    "lockctl::run",
    "zookeeper_client",
];

/// A scheme of the store and its credentials.
#[derive(Clone, Debug)]
pub(crate) struct Auth {
    pub(crate) scheme: String,
    pub(crate) credentials: String,
}

/// A number of seconds, or a number with a unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default();
    let milliseconds = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        _ => return Err(format!("{unit:?} is no unit: ms, s, m and h are")),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{digits:?} is no whole number"))?;
    let milliseconds = number.checked_mul(milliseconds).ok_or("too long")?;
    Ok(Duration::from_millis(milliseconds))
}

/// How a lock is held.
#[cfg(target_os = "linux")]
pub(super) fn mode(text: &str) -> Result<Mode, String> {
    match (text, text.strip_prefix("semaphore:")) {
        ("mutex", _) => Ok(Mode::Mutex),
        ("read", _) => Ok(Mode::Read),
        ("write", _) => Ok(Mode::Write),
        ("leader", _) => Ok(Mode::Leader(ElectionLayout::LeaderSelector)),
        ("leader-latch", _) => Ok(Mode::Leader(ElectionLayout::LeaderLatch)),
        (_, Some(permits)) => match permits.parse() {
            Ok(permits) if permits > 0 => Ok(Mode::Semaphore(permits)),
            _ => Err(format!("{permits:?} is no number of permits")),
        },
        _ => {
            let modes =
                "mutex, read, write, leader, leader-latch and semaphore:N, such as semaphore:3";
            Err(format!("{text:?} is no mode: {modes}"))
        }
    }
}

/// A session timeout that a client can request.
pub(super) fn session_timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration(text)?;
    match timeout > SESSION_TIMEOUT_MAX {
        true => Err("too long: 596h can be asked for at most".to_owned()),
        false => Ok(timeout),
    }
}

/// A pause between requests.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    match interval.is_zero() {
        true => Err("a pause is needed, such as 100ms".to_owned()),
        false => Ok(interval),
    }
}

pub(crate) fn auth(text: &str) -> Result<Auth, String> {
    // The message does not repeat the value, which is a secret.
    let parts = text
        .split_once(':')
        .filter(|(scheme, _)| !scheme.is_empty());
    let (scheme, credentials) = parts.ok_or("a scheme, a colon and credentials are expected")?;
    Ok(Auth {
        scheme: scheme.to_owned(),
        credentials: credentials.to_owned(),
    })
}

/// What is logged. A name that is neither a level nor a target that exists is refused: it would log
/// nothing, or everything of a target that is not there.
pub(super) fn log_filter(text: &str) -> Result<Targets, String> {
    let is_level = |text: &str| !text.is_empty() && text.parse::<LevelFilter>().is_ok();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (target, level) = match part.split_once('=') {
            Some((target, level)) => (Some(target), Some(level)),
            None if is_level(part) => (None, Some(part)),
            None => (Some(part), None),
        };
        if let Some(level) = level.filter(|it| !is_level(it)) {
            let levels = "off, error, warn, info, debug and trace are";
            return Err(format!("{level:?} is no level: {levels}"));
        }
        if let Some(target) = target.filter(|it| !is_target(it)) {
            let targets = LOG_TARGETS.join(", ");
            return Err(format!(
                "{target:?} is neither a level nor a target: {targets} are"
            ));
        }
    }
    text.parse().map_err(|_| "it cannot be read".to_owned())
}

/// A target, or a module around it.
fn is_target(text: &str) -> bool {
    let is_in = |target: &str, module: &str| {
        let rest = target.strip_prefix(module);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let is_inside = is_in(text, "zookeeper_client");
    is_inside || LOG_TARGETS.iter().any(|it| is_in(it, text))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{duration, log_filter, session_timeout};

    #[cfg(target_os = "linux")]
    #[test]
    fn modes_are_words_and_semaphores_have_a_number() {
        use super::{ElectionLayout, Mode, mode};

        let read = ["mutex", "read", "write", "semaphore:12"].map(mode);
        let expected = [Mode::Mutex, Mode::Read, Mode::Write, Mode::Semaphore(12)];
        assert_eq!(read, expected.map(Ok));
        let read = ["leader", "leader-latch"].map(mode);
        let expected = [ElectionLayout::LeaderSelector, ElectionLayout::LeaderLatch];
        assert_eq!(read, expected.map(Mode::Leader).map(Ok));
        for wrong in [
            "",
            "both",
            "semaphore",
            "semaphore:",
            "semaphore:0",
            "semaphore:-1",
            "leader-selector",
            "leader:a",
        ] {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_have_units() {
        let read = ["0", "0s", "250ms", "30", "30s", "5m", "2h"].map(duration);
        let expected = [0, 0, 250, 30_000, 30_000, 300_000, 7_200_000];
        assert_eq!(read, expected.map(|it| Ok(Duration::from_millis(it))));
        for wrong in ["", "s", "-1s", "1.5s", "3 s", "5d", "99999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn session_timeouts_are_those_that_servers_can_be_asked_for() {
        let longest = session_timeout("2147483647ms");
        assert_eq!(longest, Ok(Duration::from_millis(2_147_483_647)));
        assert!(session_timeout("596h").is_ok());
        for wrong in ["2147483648ms", "597h", "1000h"] {
            assert!(
                session_timeout(wrong).unwrap_err().contains("596h"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn log_filters_name_levels_and_targets_that_exist() {
        for right in [
            "",
            "debug",
            "off",
            "lock_recipes=debug",
            "info,lock_recipes::session=trace,zookeeper_client=warn",
            "zookeeper_client::session=debug",
            "lock_recipes",
        ] {
            assert!(log_filter(right).is_ok(), "{right}");
        }
        for (wrong, named) in [
            ("debgu", "\"debgu\" is neither a level nor a target"),
            ("lock_recipes=loud", "\"loud\" is no level"),
            ("lock_recipes=", "\"\" is no level"),
            ("=debug", "\"\" is neither a level nor a target"),
            ("lock_recipe=debug", "\"lock_recipe\" is neither"),
            ("info, lock_recipes=debug", "\" lock_recipes\" is neither"),
            (
                "lock_recipes::lok=debug",
                "\"lock_recipes::lok\" is neither",
            ),
            ("debug,", "\"\" is neither"),
        ] {
            let refused = log_filter(wrong).unwrap_err();
            assert!(refused.contains(named), "{wrong}: {refused}");
        }
    }
}
