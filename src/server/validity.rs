//! From when until when a certificate holds, and what an operator has to hear of that. Pure.

use std::time::{Duration, SystemTime};

use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode;

/// How long before its end a certificate is warned of: those that are renewed by themselves have 30 days left then.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// From when until when a certificate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    from: SystemTime,
    until: SystemTime,
}

impl Validity {
    /// That of a certificate in DER. `None` where the certificate is written so oddly that it cannot be read.
    pub(super) fn of(certificate: &[u8]) -> Option<Validity> {
        // What else is in it TLS has judged.
        let certificate = CertificateInner::<Raw>::from_der(certificate).ok()?;
        let validity = certificate.tbs_certificate().validity();
        let [from, until] =
            [validity.not_before, validity.not_after].map(|time| SystemTime::UNIX_EPOCH + time.to_unix_duration());
        Some(Validity { from, until })
    }

    /// Unix time of its end, in seconds.
    pub(super) fn until_seconds(&self) -> f64 {
        self.until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
    }

    /// What is wrong with it, or will be soon.
    pub(super) fn warning(&self, now: SystemTime) -> Option<String> {
        let Validity { from, until } = *self;
        if now > until {
            Some(format!("has expired on {}: clients refuse it; renew it", httpdate::fmt_http_date(until)))
        } else if now < from {
            let from = httpdate::fmt_http_date(from);
            Some(format!("is not valid before {from}: clients refuse it; is this machine's clock right?"))
        } else if until < now + SOON {
            Some(format!("expires on {}: renew it", httpdate::fmt_http_date(until)))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_warned_of_before_its_time_behind_it_and_two_weeks_before_its_end() {
        let at = |day: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(day * 24 * 3600);
        let validity = Validity { from: at(100), until: at(190) };
        for (day, words) in [
            (99, Some("is not valid before Sat, 11 Apr 1970")),
            (100, None),
            (176, None),
            (177, Some("expires on Fri, 10 Jul 1970")),
            (190, Some("expires on")),
            (191, Some("has expired on Fri, 10 Jul 1970")),
        ] {
            let warning = validity.warning(at(day));
            assert!(
                warning.as_deref().map_or(words.is_none(), |warning| warning.contains(words.unwrap_or("nothing"))),
                "{day}: {warning:?}"
            );
        }
    }

    #[test]
    fn the_end_of_a_certificate_is_read_and_what_is_none_has_none() {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).expect("a name");
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 2, 3), rcgen::date_time_ymd(2055, 6, 7));
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let validity = Validity::of(certificate.der()).expect("it is read");
        assert_eq!(validity.until_seconds(), 2_695_939_200.0);
        assert_eq!(validity.from, SystemTime::UNIX_EPOCH + Duration::from_secs(1_580_688_000));
        assert_eq!(Validity::of(b"none"), None);
    }
}
