//! The host that a request names, of `Host`, a target or `Origin`. Pure.

/// The host of an authority (RFC 3986, section 3.2), in lower case, without its port and the dot at its end. `None` where it is none
/// that a name server, a browser and this server would read alike: a user, an escape, a blank, or any other sign that no name has.
/// Empty where it is empty, as that of a target without an authority.
pub(super) fn host(authority: &str) -> Option<String> {
    let (host, behind) = match authority.strip_prefix('[') {
        Some(_) => authority.split_at(authority.find(']')? + 1),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_port =
        behind.is_empty() || behind.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')),
    };
    (is_host && is_port).then(|| host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase())
}

/// Whether this is the name or the address of a host, as [`host`] gives it, and nothing else: in any case, without a port.
pub(crate) fn is_host(name: &str) -> bool {
    !name.is_empty() && host(name).is_some_and(|host| host == name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_nothing_that_could_be_read_in_two_ways() {
        for (authority, is) in [
            ("localhost", "localhost"),
            ("LocalHost.:8080", "localhost"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[::1]:8080", "[::1]"),
            ("my_model-2.example:", "my_model-2.example"),
            ("", ""),
            (":80", ""),
        ] {
            assert_eq!(host(authority).as_deref(), Some(is), "{authority}");
        }
        for authority in [
            "a b",
            "@localhost",
            "evil.com@localhost",
            "localhost@evil.com",
            "evil.com%00.localhost",
            "evil.com%2elocalhost",
            "evil.com/",
            "evil.com#",
            "evil.com\\.localhost",
            "\"localhost\"",
            "localhost:80:80",
            "localhost:x",
            "localhost,evil.com",
            "[::1",
            "[::1].evil.com",
            "[localhost]",
            "::1",
            "l\u{f6}calhost",
            "localhost\t",
        ] {
            assert_eq!(host(authority), None, "{authority}");
        }
        for (name, is) in [
            ("ml.Example.com", true),
            ("10.0.0.1", true),
            ("[::1]", true),
            ("", false),
            ("ml.example.com:443", false),
            ("https://ml.example.com", false),
            ("*.example.com", false),
            ("ml.example.com.", false),
        ] {
            assert_eq!(is_host(name), is, "{name}");
        }
    }
}
