//! Addresses of stores in errors and logs: no character of a password, whatever the address looks like.

use super::ConfigError;

/// Parameters whose values are shown.
const SHOWN: [&str; 8] = [
    "prefix",
    "db",
    "host",
    "schema",
    "sslmode",
    "ssl-mode",
    "ssl-ca",
    "connect_timeout",
];

/// The address with `***` where a secret may be.
///
/// All that stands before the last `@` may be a part of a password, but for a name that ends with a colon.
#[must_use]
pub fn without_secrets(address: &str) -> String {
    let (scheme, rest) = scheme(address);
    let rest = match rest.rsplit_once('@') {
        Some((secrets, rest)) => {
            let name = secrets.split_once(':').map_or("", |(name, _)| name);
            let is_name = |it: u8| it.is_ascii_alphanumeric() || b"-_.%".contains(&it);
            let name = if name.bytes().all(is_name) { name } else { "" };
            format!("{name}:***@{rest}")
        }
        None => rest.to_owned(),
    };
    let Some((server, parameters)) = rest.split_once(['?', '#']) else {
        return format!("{scheme}{rest}");
    };
    let shown = |parameter| match str::split_once(parameter, '=') {
        Some((name, _)) if SHOWN.contains(&name) => parameter,
        _ => "***",
    };
    let parameters = parameters.split('&').filter(|it| !it.is_empty());
    let parameters: Vec<_> = parameters.map(shown).collect();
    match parameters.is_empty() {
        true => format!("{scheme}{server}"),
        false => format!("{scheme}{server}?{}", parameters.join("&")),
    }
}

/// The parameters behind the `?` of an address, decoded, in their order.
///
/// # Errors
/// [`ConfigError::InvalidAddress`] for a `%` that begins no character.
pub fn parameters(address: &str) -> Result<Vec<(String, String)>, ConfigError> {
    let (_, parameters) = address.split_once('?').unwrap_or((address, ""));
    let parameters = parameters.split('&').filter(|it| !it.is_empty());
    let decoded = parameters.map(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        Some((decoded(name)?, decoded(value)?))
    });
    let decoded: Option<Vec<_>> = decoded.collect();
    let wrong = "a % in its parameters is not followed by two hexadecimal digits of UTF-8";
    decoded.ok_or_else(|| ConfigError::invalid_address(address, wrong))
}

/// A part of an address without its `%`. `None` if one begins no character.
#[must_use]
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// The scheme with `://`, or nothing, and the rest.
fn scheme(address: &str) -> (&str, &str) {
    let is_scheme = |it: &str| {
        it.bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'+')
    };
    match address.find("://").map(|at| address.split_at(at)) {
        Some((scheme, _)) if is_scheme(scheme) => address.split_at(scheme.len() + "://".len()),
        _ => ("", address),
    }
}

impl ConfigError {
    /// The address of a store cannot be read. The error shows it without its secrets; the reason must have
    /// none.
    #[doc(hidden)]
    #[must_use]
    pub fn invalid_address(address: &str, reason: impl Into<String>) -> Self {
        Self::InvalidAddress {
            address: without_secrets(address),
            reason: reason.into(),
        }
    }
}

/// Refuses an address with a password that ends somewhere else than its writer thinks: what is behind that place
/// would be looked up as a host.
///
/// # Errors
/// [`ConfigError::InvalidAddress`].
pub fn check_secrets(address: &str) -> Result<(), ConfigError> {
    let (_, rest) = scheme(address);
    let secrets = rest.rsplit_once('@').map_or("", |(secrets, _)| secrets);
    let is_reserved = |it: char| "@/?#[]".contains(it) || it.is_whitespace();
    match secrets.contains(is_reserved) {
        true => Err(ConfigError::invalid_address(
            address,
            "a name, password or parameter has a character that is written in another way here: \
             @ as %40, / as %2F, ? as %3F, # as %23, [ as %5B, ] as %5D",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_server_and_known_parameters_are_shown() {
        for (address, shown) in [
            (
                "redis://bob:pw@cache:6380/3?prefix=a",
                "redis://bob:***@cache:6380/3?prefix=a",
            ),
            (
                "redis+sentinel://:pw@a,b:1/name",
                "redis+sentinel://:***@a,b:1/name",
            ),
            ("zk://a:2181,b/locks", "zk://a:2181,b/locks"),
            ("a:2181,[::1]:2182", "a:2181,[::1]:2182"),
            (
                "postgres://db/shop?sslmode=require&password=pw",
                "postgres://db/shop?sslmode=require&***",
            ),
            ("postgres://db/shop?", "postgres://db/shop"),
            ("mysql://pw@db/shop", "mysql://:***@db/shop"),
        ] {
            assert_eq!(without_secrets(address), shown);
        }
    }

    /// The password begins with `s` and ends with `t`.
    #[test]
    fn no_character_of_a_password_is_shown_wherever_it_seems_to_end() {
        for separator in [
            "", "@", "/", "?", "#", ":", "://", "&prefix=", "?schema=", "[", "]", " ", "%",
        ] {
            for scheme in ["redis://", "postgres://", "mysql://", "zk://", "", "x:y://"] {
                let address = format!(
                    "{scheme}u:{s}{separator}{t}@h:1/d?prefix=p",
                    s = "s".repeat(9),
                    t = "t".repeat(9)
                );
                let shown = without_secrets(&address);
                assert!(!shown.contains("ss") && !shown.contains("tt"), "{shown}");
                let is_refused = check_secrets(&address).is_err();
                let is_clear = matches!(separator, "" | ":" | "&prefix=" | "%");
                assert!(is_refused != is_clear || scheme == "x:y://", "{address}");
            }
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let read = |address: &str| parameters(address).map_err(|error| error.to_string());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = vec![pair("prefix", "a&b/é"), pair("flag", "")];
        assert_eq!(
            read("redis://h/0?prefix=a%26b%2f%C3%A9&&flag"),
            Ok(expected)
        );
        assert_eq!(read("redis://h/0"), Ok(Vec::new()));
        for wrong in ["%", "%4", "%zz", "%C3"] {
            let error = read(&format!("redis://h?password=secret{wrong}")).unwrap_err();
            assert!(
                error.contains("hexadecimal") && !error.contains("secret"),
                "{error}"
            );
        }
    }

    #[test]
    fn refusal_says_how_to_write_it() {
        let error = check_secrets("postgres://app:p@ss@db/shop")
            .unwrap_err()
            .to_string();
        assert!(error.contains("%40") && !error.contains("ss@"), "{error}");
        assert!(check_secrets("postgres://app:p%40ss@db/shop?schema=a").is_ok());
        assert!(check_secrets("a:2181,b/locks").is_ok());
    }
}
