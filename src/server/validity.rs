//! From when until when the certificates of a chain hold, and what an operator has to hear of that, and how often. Pure.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long before its end a certificate is warned of: those that are renewed by themselves have 30 days left then.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);
/// How often that is said again.
const AGAIN: Duration = DAY;

/// From when until when the certificates of a chain hold. Clients refuse the chain when one of them has expired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Validity {
    known: Vec<Certificate>,
    /// The places of those that are written so oddly that they cannot be read.
    unread: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Certificate {
    /// `the certificate`, or `the intermediate CN=R11`.
    who: String,
    from: SystemTime,
    until: SystemTime,
}

impl Validity {
    /// That of certificates in DER: the server's own, and behind it those that lead to its root.
    pub(super) fn of(chain: &[impl AsRef<[u8]>]) -> Validity {
        let mut validity = Validity::default();
        for (i, der) in chain.iter().enumerate() {
            match Certificate::read(i, der.as_ref()) {
                Some(certificate) => validity.known.push(certificate),
                None => validity.unread.push(i + 1),
            }
        }
        validity
    }

    /// The places of those that cannot be read, of which the first is 1.
    pub(super) fn unread(&self) -> &[usize] {
        &self.unread
    }

    /// The one that expires first.
    fn first(&self) -> Option<&Certificate> {
        self.known.iter().min_by_key(|certificate| certificate.until)
    }

    /// Unix time of the earliest end, in seconds; 0 where none is known.
    pub(super) fn until_seconds(&self) -> f64 {
        let until = self.first().map(|first| first.until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        until.unwrap_or_default().as_secs_f64()
    }

    /// What is wrong with those in `file`, or will be soon.
    pub(super) fn warning(&self, file: impl Display, now: SystemTime) -> Option<String> {
        let unread = self.unread.iter().map(|place| {
            format!("certificate {place} in {file} cannot be read, so that nothing is said here before it expires")
        });
        let early =
            self.known.iter().filter(|certificate| now < certificate.from).map(|Certificate { who, from, .. }| {
                let from = httpdate::fmt_http_date(*from);
                format!("{who} in {file} is not valid before {from}: clients refuse it; is this machine's clock right?")
            });
        let first = self.first().filter(|first| now > first.until - SOON).map(|Certificate { who, until, .. }| {
            let date = httpdate::fmt_http_date(*until);
            match until.duration_since(now).map(|left| left.as_secs() / DAY.as_secs()) {
                Err(_) => format!("{who} in {file} has expired on {date}: clients refuse it; renew it"),
                Ok(0) => format!("{who} in {file} expires within a day, on {date}: renew it"),
                Ok(1) => format!("{who} in {file} expires in 1 day, on {date}: renew it"),
                Ok(days) => format!("{who} in {file} expires in {days} days, on {date}: renew it"),
            }
        });
        let all: Vec<String> = first.into_iter().chain(early).chain(unread).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Whether what there is to say is to be said now: it never was, or a day ago, or a certificate has come near its end or to it since.
    pub(super) fn is_due(&self, told: Option<SystemTime>, now: SystemTime) -> bool {
        let Some(told) = told else { return true };
        let edges = self.known.iter().flat_map(|certificate| [certificate.until - SOON, certificate.until]);
        // A clock may be set back.
        let is_long_ago = now.duration_since(told).map_or(true, |since| since >= AGAIN);
        is_long_ago || edges.into_iter().any(|edge| told <= edge && edge < now)
    }
}

impl Certificate {
    /// The one behind so many others of its chain. `None` where it is written so oddly that it cannot be read.
    fn read(place: usize, der: &[u8]) -> Option<Certificate> {
        // What else is in it TLS has judged.
        let certificate = CertificateInner::<Raw>::from_der(der).ok()?;
        let certificate = certificate.tbs_certificate();
        let validity = certificate.validity();
        let [from, until] =
            [validity.not_before, validity.not_after].map(|time| SystemTime::UNIX_EPOCH + time.to_unix_duration());
        let subject = certificate.subject();
        let who = match place {
            0 => "the certificate".to_owned(),
            _ if subject == certificate.issuer() => format!("the root {subject}"),
            _ => format!("the intermediate {subject}"),
        };
        Some(Certificate { who, from, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(day * 24 * 3600)
    }

    fn certificate(who: &str, from: u64, until: u64) -> Certificate {
        Certificate { who: who.to_owned(), from: at(from), until: at(until) }
    }

    #[test]
    fn a_certificate_is_warned_of_before_its_time_behind_it_and_two_weeks_before_its_end() {
        let validity = Validity { known: vec![certificate("it", 100, 190)], unread: vec![] };
        for (day, words) in [
            (99, "it in F is not valid before Sat, 11 Apr 1970"),
            (100, ""),
            (176, ""),
            (177, "it in F expires in 13 days, on Fri, 10 Jul 1970"),
            (189, "it in F expires in 1 day, on Fri, 10 Jul 1970"),
            (190, "it in F expires within a day, on Fri, 10 Jul 1970"),
            (191, "it in F has expired on Fri, 10 Jul 1970"),
        ] {
            let warning = validity.warning("F", at(day)).unwrap_or_default();
            assert!(
                if words.is_empty() { warning.is_empty() } else { warning.starts_with(words) },
                "{day}: {warning:?}"
            );
        }
    }

    #[test]
    fn of_a_chain_the_one_that_expires_first_is_told_and_what_cannot_be_read() {
        let known = vec![certificate("it", 100, 190), certificate("the intermediate CN=a", 10, 150)];
        let mut validity = Validity { known, unread: vec![] };
        let warning = validity.warning("F", at(147)).expect("it is near its end");
        assert_eq!(warning, "the intermediate CN=a in F expires in 3 days, on Sun, 31 May 1970 00:00:00 GMT: renew it");
        assert_eq!(validity.until_seconds(), 150.0 * 86_400.0);
        validity.unread = vec![3];
        let warning = validity.warning("F", at(110)).expect("one is not read");
        assert_eq!(warning, "certificate 3 in F cannot be read, so that nothing is said here before it expires");
        let none = Validity { known: vec![], unread: vec![1] };
        assert_eq!(none.until_seconds(), 0.0);
        assert!(none.warning("F", at(1)).is_some());
    }

    #[test]
    fn it_is_told_again_once_a_day_and_as_the_last_two_weeks_begin_and_end() {
        let known = vec![certificate("it", 100, 190), certificate("another", 100, 200)];
        let validity = Validity { known, unread: vec![] };
        let hour = |day, hours: u64| at(day) + Duration::from_secs(hours * 3600);
        assert!(validity.is_due(None, at(150)));
        for (told, now, is_due) in [
            (at(150), hour(150, 23), false),
            (at(150), at(151), true),
            (hour(175, 12), at(176), false),
            (hour(175, 12), hour(176, 1), true),
            (hour(176, 1), hour(176, 2), false),
            (hour(185, 12), hour(186, 1), true),
            (hour(189, 12), at(190), false),
            (hour(189, 12), hour(190, 1), true),
            (at(150), at(149), true),
        ] {
            assert_eq!(validity.is_due(Some(told), now), is_due, "{told:?} {now:?}");
        }
    }

    #[test]
    fn the_ends_and_names_of_certificates_are_read() {
        let made = |name: &str, until: i32| {
            let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).expect("a name");
            (params.not_before, params.not_after) =
                (rcgen::date_time_ymd(2020, 2, 3), rcgen::date_time_ymd(until, 6, 7));
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            (params, rcgen::KeyPair::generate().expect("a key"))
        };
        let ((root, root_key), (middle, middle_key), (own, own_key)) =
            (made("r", 2055), made("m", 2054), made("own", 2056));
        let root_signs = rcgen::Issuer::from_params(&root, &root_key);
        let middle_signs = rcgen::Issuer::from_params(&middle, &middle_key);
        let chain = [
            own.signed_by(&own_key, &middle_signs).expect("a certificate").der().to_vec(),
            middle.signed_by(&middle_key, &root_signs).expect("a certificate").der().to_vec(),
            root.self_signed(&root_key).expect("a certificate").der().to_vec(),
            b"none".to_vec(),
        ];
        let validity = Validity::of(&chain);
        let names: Vec<&str> = validity.known.iter().map(|certificate| certificate.who.as_str()).collect();
        assert_eq!(names, ["the certificate", "the intermediate CN=m", "the root CN=r"]);
        assert_eq!(validity.unread, [4]);
        assert_eq!(validity.known[0].from, SystemTime::UNIX_EPOCH + Duration::from_secs(1_580_688_000));
        assert_eq!(Validity::of(&chain[2..]).until_seconds(), 2_695_939_200.0);
        assert_eq!(validity.until_seconds(), 2_695_939_200.0 - 365.0 * 86_400.0);
    }
}
