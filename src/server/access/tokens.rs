//! The file of tokens: who holds which, what each may do, and how much of it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::OnceLock;

use subtle::ConstantTimeEq;

use super::{Bearer, Right};
use crate::files;
use crate::quote::shown;
use crate::registry::{Caller, Priority};

/// Fewest characters of a token: 16 random ones of 64 kinds are 96 bits.
const SHORTEST: usize = 16;
/// Bounds of shares and rates.
const SMALLEST: f64 = 0.001;
const LARGEST: f64 = 1e6;
/// Most bytes of the file: some ten thousand tokens.
const LONGEST_FILE: u64 = 1 << 20;

/// Tokens, each with the name of its holder and what it may do.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    all: Vec<Token>,
    /// Where those are whose secrets have this hash. It is keyed by chance, so that nobody can tell from it how near he came to one.
    by_secret: HashMap<u64, Vec<usize>>,
    keys: RandomState,
    by_seal: HashMap<u64, usize>,
}

/// One line of the file.
pub(super) struct Token {
    pub(super) holder: String,
    /// Tells holders apart.
    pub(super) id: u64,
    /// Tells this token of the holder from one that he had before.
    seal: u64,
    secret: String,
    rights: Vec<Right>,
    /// The holder's part beside others where a model has too much to do, in thousandths.
    weight: NonZeroU32,
    /// The most urgent priority of the holder's requests: the default one where the line says none, since a more urgent one goes before all
    /// others whatever their shares.
    most_urgent: Priority,
    /// Most requests for inference in a second.
    pub(super) rate: Option<f64>,
}

impl std::fmt::Debug for Token {
    /// Without the secret, which no log is to show.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("holder", &self.holder).field("rights", &self.rights).finish_non_exhaustive()
    }
}

impl Token {
    /// The holder, as one of those who ask.
    pub(super) fn caller(&self) -> Caller {
        Caller { id: self.id, weight: self.weight, most_urgent: self.most_urgent }
    }

    /// The holder, with this token.
    pub(super) fn bearer(&self) -> Bearer {
        Bearer { caller: self.caller(), seal: self.seal }
    }

    /// Whether the holder may do this.
    pub(super) fn has(&self, right: Right) -> bool {
        self.rights.contains(&right)
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

impl Tokens {
    /// Reads the file. The error names the line and never the token.
    pub(super) fn read(path: &Path) -> io::Result<Tokens> {
        let text = Tokens::text(path)?;
        Tokens::parse(&text).map_err(|(line, message)| invalid(format!("{}:{line}: {message}", shown(path))))
    }

    /// What is in the file.
    pub(super) fn text(path: &Path) -> io::Result<String> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", shown(path)));
        files::text(path, LONGEST_FILE).map_err(named)
    }

    /// Takes the file apart. The error is a line, counted from 1, and what is wrong with it. It repeats no word of the file: a blank or a line
    /// in the wrong place makes any word a token.
    fn parse(text: &str) -> Result<Tokens, (usize, String)> {
        let mut tokens = Tokens::default();
        let (mut holders, mut secrets) = (HashSet::new(), HashSet::new());
        // Editors of some systems put this mark before a text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text.lines().map(str::trim).zip(1..);
        for (line, number) in lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')) {
            let wrong = |message: String| (number, message);
            let mut words = line.split_whitespace();
            let (Some(holder), Some(secret)) = (words.next(), words.next()) else {
                return Err(wrong("a line is a holder's name, a token, and rights: grafana TOKEN scrape".into()));
            };
            if secret.len() < SHORTEST || !secret.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(wrong(format!("a token has at least {SHORTEST} characters, all of them visible ASCII")));
            }
            if !holders.insert(holder) || !secrets.insert(secret) {
                return Err(wrong("this name or this token is in a line before".into()));
            }
            let (mut rights, mut share, mut rate, mut most_urgent) = (Vec::new(), None, None, None);
            for (word, place) in words.zip(3..) {
                let (key, value) = word.split_once('=').unwrap_or((word, ""));
                let number = || {
                    let number = value.parse::<f64>().ok().filter(|n| (SMALLEST..=LARGEST).contains(n));
                    number.ok_or_else(|| wrong(format!("{key}= must have a number from {SMALLEST} to {LARGEST}")))
                };
                let level = || {
                    let (highest, lowest) = (Priority::HIGHEST.level(), Priority::LOWEST.level());
                    let wanted = || {
                        wrong(format!("{key}= must have a whole number from {highest}, the most urgent, to {lowest}"))
                    };
                    value.parse().ok().and_then(Priority::new).ok_or_else(wanted)
                };
                let right = || {
                    let known = Right::ALL.map(Right::name).join(", ");
                    let no_right = || {
                        wrong(format!(
                            "word {place} is no right; there are {known}, and share=N, rate=N and priority=N"
                        ))
                    };
                    Right::from_name(word).ok_or_else(no_right)
                };
                let is_said = match key {
                    "share" => share.replace(number()?).is_some(),
                    "rate" => rate.replace(number()?).is_some(),
                    "priority" => most_urgent.replace(level()?).is_some(),
                    _ => {
                        rights.push(right()?);
                        false
                    }
                };
                if is_said {
                    return Err(wrong(format!("{key}= is said twice")));
                }
            }
            let rights = if rights.is_empty() { vec![Right::Inference] } else { rights };
            if (rate.is_some() || most_urgent.is_some()) && !rights.contains(&Right::Inference) {
                let message = "rate= and priority= are of requests for inference, to which this line gives no right";
                return Err(wrong(message.into()));
            }
            // Not 0, which is everybody where there are no tokens; and the same when the file is read again.
            let id = {
                let mut hasher = DefaultHasher::new();
                holder.hash(&mut hasher);
                hasher.finish().max(1)
            };
            tokens.push(Token {
                holder: holder.into(),
                id,
                seal: seal(holder, secret),
                secret: secret.into(),
                rights,
                weight: weight(share.unwrap_or(1.0)),
                most_urgent: most_urgent.unwrap_or(Priority::DEFAULT),
                rate,
            });
        }
        if tokens.all.is_empty() {
            return Err((1, "there is no token in it, so nobody could be answered".into()));
        }
        Ok(tokens)
    }

    fn push(&mut self, token: Token) {
        let at = self.all.len();
        self.by_secret.entry(self.keys.hash_one(token.secret.as_bytes())).or_default().push(at);
        self.by_seal.insert(token.seal, at);
        self.all.push(token);
    }

    /// The token by which somebody came, if it is in the file.
    pub(super) fn of(&self, bearer: Bearer) -> Option<&Token> {
        self.by_seal.get(&bearer.seal).map(|&at| &self.all[at])
    }

    /// Whose token this is. How long a wrong one takes does not tell how much of it is right.
    pub(super) fn find(&self, secret: &[u8]) -> Option<&Token> {
        let alike = self.by_secret.get(&self.keys.hash_one(secret))?;
        alike.iter().map(|&at| &self.all[at]).find(|token| bool::from(token.secret.as_bytes().ct_eq(secret)))
    }
}

/// The same when the file is read again, and nothing that tells of the secret: its hash is keyed by chance.
fn seal(holder: &str, secret: &str) -> u64 {
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    KEYS.get_or_init(RandomState::new).hash_one((holder, secret)).max(1)
}

/// Shares are compared in thousandths, of which the least that is allowed is one.
fn weight(share: f64) -> NonZeroU32 {
    NonZeroU32::new((share * 1e3).round() as u32).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_name_a_token_and_rights() {
        let text = "# who may what\n\nci 0123456789abcdef\ngrafana fedcba9876543210 scrape\nops 00112233445566778 admin scrape\n";
        let tokens = Tokens::parse(text).unwrap();
        let of = |secret: &str| tokens.find(secret.as_bytes()).unwrap();
        assert!(of("0123456789abcdef").has(Right::Inference) && !of("0123456789abcdef").has(Right::Scrape));
        assert!(of("fedcba9876543210").has(Right::Scrape) && !of("fedcba9876543210").has(Right::Inference));
        assert!(of("00112233445566778").has(Right::Admin));
        assert!(tokens.find(b"0123456789abcdeF").is_none() && tokens.find(b"").is_none());
        assert!(!format!("{tokens:?}").contains("0123456789"));
    }

    #[test]
    fn a_line_that_is_commented_out_is_no_token_wherever_its_sign_stands() {
        let text = "\u{feff}# a mark before it\n  #checkout 0123456789abcdef\n\t# https://wiki.example/tokens it says\nci fedcba9876543210\n";
        let tokens = Tokens::parse(text).unwrap();
        assert_eq!(tokens.all.iter().map(|token| &*token.holder).collect::<Vec<_>>(), ["ci"]);
        assert!(tokens.find(b"0123456789abcdef").is_none() && tokens.find(b"https://wiki.example/tokens").is_none());
        let first = Tokens::parse("\u{feff}ci fedcba9876543210\n").unwrap();
        assert_eq!(&*first.find(b"fedcba9876543210").unwrap().holder, "ci");
    }

    #[test]
    fn a_share_a_rate_and_a_priority_are_said_beside_the_rights() {
        let text = "a 0123456789abcdef share=2.5 inference rate=100 priority=7\nb fedcba9876543210\n";
        let tokens = Tokens::parse(text).unwrap();
        let of = |secret: &str| {
            let token = tokens.find(secret.as_bytes()).unwrap();
            (token.caller().weight.get(), token.rate, token.caller().most_urgent.level())
        };
        assert_eq!((of("0123456789abcdef"), of("fedcba9876543210")), ((2500, Some(100.0), 7), (1000, None, 5)));
        assert!(tokens.find(b"0123456789abcdef").unwrap().has(Right::Inference));
    }

    #[test]
    fn each_of_many_tokens_is_found_by_its_secret_and_by_whom_it_brought_and_no_other_is() {
        let text: String = (0..20_000).map(|i| format!("holder-{i} secret-{i:010}\n")).collect();
        let tokens = Tokens::parse(&text).unwrap();
        for i in [0, 1, 9_999, 19_999] {
            let token = tokens.find(format!("secret-{i:010}").as_bytes()).unwrap();
            assert_eq!(
                (&*token.holder, &*tokens.of(token.bearer()).unwrap().holder),
                (&*format!("holder-{i}"), &*token.holder)
            );
        }
        assert!(tokens.find(b"secret-0000020000").is_none() && tokens.of(Bearer::default()).is_none());
        let again = format!("{text}other secret-0000000007\n");
        assert_eq!(Tokens::parse(&again).unwrap_err().0, 20_001);
    }

    #[test]
    fn a_wrong_line_is_named_and_no_token_is_told() {
        let cases = [
            ("", "1: there is no token"),
            ("# only a comment\n", "1: there is no token"),
            ("ci\n", "1: a line is"),
            ("ci short\n", "1: a token has at least 16"),
            ("ci 0123456789abcdef\nci 0123456789abcdeg\n", "2: this name"),
            ("ci 0123456789abcdef\nme 0123456789abcdef\n", "2: this name or this token"),
            ("ci 0123456789abcdef rate=0\n", "1: rate= must have a number from 0.001 to 1000000"),
            ("ci 0123456789abcdef share=1 share=2\n", "1: share= is said twice"),
            ("ci 0123456789abcdef rate=1 rate=1\n", "1: rate= is said twice"),
            (
                "ci 0123456789abcdef priority=0\n",
                "1: priority= must have a whole number from 1, the most urgent, to 10",
            ),
            ("ci 0123456789abcdef scrape rate=5\n", "1: rate= and priority= are of requests for inference"),
            ("ci 0123456789abcdef admin priority=2\n", "1: rate= and priority= are of requests for inference"),
            ("ci 0123456789abcdef share=NaN\n", "1: share= must have a number"),
            (
                "ci 0123456789abcdef all\n",
                "1: word 3 is no right; there are scrape, inference, admin, and share=N, rate=N and priority=N",
            ),
            // Blanks and words in the wrong place, by which a token is where none should be.
            ("ci old-one-0123456789 new-one-0123456789 inference\n", "1: word 3 is no right"),
            ("ci ci-of-all-the-others inference new-one-0123456789=\n", "1: word 4 is no right"),
            ("ci ci-of-all-the-others share=new-one-0123456789\n", "1: share= must have a number"),
            ("ci ci-of-all-the-others rate=new-one-0123456789\n", "1: rate= must have a number"),
            ("ci ci-of-all-the-others priority=new-one-0123456789\n", "1: priority= must have a whole number"),
            ("new-one-0123456789\n", "1: a line is"),
        ];
        for (text, expected) in cases {
            let (line, message) = Tokens::parse(text).unwrap_err();
            let message = format!("{line}: {message}");
            assert!(message.starts_with(expected) && !message.contains("0123"), "{text:?}: {message}");
        }
    }
}
