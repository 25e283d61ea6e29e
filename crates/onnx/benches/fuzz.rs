//! Loads damaged model files: each must be an error that names the place, or a model; never a panic, and neither much
//! memory nor much time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use uncork_onnx::{OnnxErrorKind, OnnxModel};

use crate::speed::on_processor;

/// Most processor time for one file: a thousand times what the originals take.
const LONGEST: Duration = Duration::from_secs(20);
/// Most memory in all. A computed tensor may have 1 GiB, and a step has several.
const MOST_MEMORY_KIB: u64 = 6 << 20;

/// Numbers that are likely to be tripped over.
const EXTREMES: [u64; 9] = [0, 1, 127, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 62, i64::MAX as u64, u64::MAX];

/// Loads a damaged copy of one of the models in `folder` for each seed. A finding is printed with its seed as it is found: the seed
/// makes the same file again.
pub(crate) fn run(folder: &Path, seeds: Range<u64>) -> ExitCode {
    let paths = fs::read_dir(folder).map(|entries| entries.filter_map(|e| Some(e.ok()?.path())).collect::<Vec<_>>());
    let mut paths = paths.unwrap_or_default();
    paths.retain(|path| path.extension().is_some_and(|e| e == "onnx"));
    paths.sort();
    let models: Vec<Vec<u8>> = paths.iter().filter_map(|path| fs::read(path).ok()).collect();
    if models.is_empty() {
        eprintln!("no models in {}", folder.display());
        return ExitCode::from(3);
    }
    // A fenced panic is a finding; its message on the way there is noise.
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    let mut findings = Findings::default();
    let mut slowest = Duration::ZERO;
    let start = Instant::now();
    let mut shown = start;
    let Range { start: first, end: last } = seeds;
    for seed in seeds {
        let file = damaged(&models, &mut StdRng::seed_from_u64(seed));
        let (begin, spent) = (Instant::now(), on_processor());
        let Ok(outcome) = std::panic::catch_unwind(|| OnnxModel::load(&file)) else {
            findings.note(seed, "a panic that nothing fences");
            continue;
        };
        // A machine that stands still is no finding. Where the system does not say what was spent, all of it counts.
        let spent = Duration::from_secs_f64((on_processor() - spent).max(0.0) / 1e3);
        let took = if spent.is_zero() { begin.elapsed() } else { spent };
        slowest = slowest.max(took);
        if took > LONGEST {
            findings.note(seed, &format!("takes {took:.0?}"));
        }
        let kind = match &outcome {
            Ok(_) => "loaded",
            Err(error) => match error.kind() {
                OnnxErrorKind::Unreadable => "unreadable",
                OnnxErrorKind::Operator => "operator missing",
                OnnxErrorKind::Form => "unsupported form",
                OnnxErrorKind::Broken => "broken graph",
                OnnxErrorKind::Unsupported => "not supported",
                OnnxErrorKind::Trial => "fails on a trial",
                _ => "cannot be batched",
            },
        };
        *kinds.entry(kind).or_default() += 1;
        if let Err(error) = outcome
            && let Some((_, panic)) = error.to_string().split_once("panicked: ")
        {
            // Numbers differ from file to file.
            let text: String = panic.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).take(160).collect();
            findings.note(seed, &text);
        }
        if shown.elapsed() > Duration::from_secs(2) {
            shown = Instant::now();
            eprintln!("seed {seed} of {first} to {last}, {} findings", findings.0.len());
        }
    }
    let memory = peak_memory_kib();
    if memory > MOST_MEMORY_KIB {
        findings.note(last, &format!("{} MiB of memory", memory >> 10));
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, files)| format!("{kind} {files}")).collect();
    println!(
        "{} damaged files of {} models in {:.0?}: {}; slowest {slowest:.1?}, peak memory {} MiB",
        last - first,
        models.len(),
        start.elapsed(),
        kinds.join(", "),
        memory >> 10
    );
    if findings.0.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What was found.
#[derive(Default)]
struct Findings(BTreeSet<String>);

impl Findings {
    fn note(&mut self, seed: u64, what: &str) {
        if self.0.insert(what.to_owned()) {
            println!("found with seed {seed}: {what}");
        }
    }
}

/// One of the models, damaged: mostly within protobuf's rules, so that the damage is met where the fields are used.
fn damaged(models: &[Vec<u8>], dice: &mut StdRng) -> Vec<u8> {
    let model = &models[dice.random_range(0..models.len())];
    if dice.random_range(0..4) == 0 {
        return damaged_bytes(model.clone(), dice);
    }
    let Some(mut fields) = Field::message(model, 0) else { return model.clone() };
    for _ in 0..dice.random_range(1..4) {
        damage(&mut fields, dice);
    }
    let mut file = Vec::new();
    fields.iter().for_each(|(number, field)| field.write(*number, &mut file));
    file
}

/// Bytes changed, cut out, put in or doubled.
fn damaged_bytes(mut file: Vec<u8>, dice: &mut StdRng) -> Vec<u8> {
    for _ in 0..dice.random_range(1..4) {
        if file.is_empty() {
            break;
        }
        let at = dice.random_range(0..file.len());
        let end = (at + dice.random_range(1..64)).min(file.len());
        match dice.random_range(0..5) {
            0 => file.truncate(at),
            1 => drop(file.drain(at..end)),
            2 => {
                let piece = file[at..end].to_vec();
                file.splice(at..at, piece);
            }
            _ => file[at] ^= 1 << dice.random_range(0..8),
        }
    }
    file
}

/// A value of a protobuf message, as far as its encoding tells.
#[derive(Clone)]
enum Field {
    Number(u64),
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
    Message(Vec<(u64, Field)>),
}

impl Field {
    /// The fields of a message; `None` where the bytes are no message.
    fn message(mut bytes: &[u8], depth: usize) -> Option<Vec<(u64, Field)>> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = number(&mut bytes)?;
            let field = match key & 7 {
                0 => Field::Number(number(&mut bytes)?),
                kind @ (1 | 5) => Field::Fixed(take(&mut bytes, if kind == 1 { 8 } else { 4 })?.to_vec()),
                2 => {
                    let length = usize::try_from(number(&mut bytes)?).ok()?;
                    let inner = take(&mut bytes, length)?;
                    // Weights are long, and by chance nearly never a message.
                    let message = if depth < 12 && length > 0 { Field::message(inner, depth + 1) } else { None };
                    message.map_or_else(|| Field::Bytes(inner.to_vec()), Field::Message)
                }
                _ => return None,
            };
            if !(1..64).contains(&(key >> 3)) {
                return None;
            }
            fields.push((key >> 3, field));
        }
        Some(fields)
    }

    fn write(&self, number: u64, out: &mut Vec<u8>) {
        match self {
            Field::Number(n) => {
                write_number(number << 3, out);
                write_number(*n, out);
            }
            Field::Fixed(bytes) => {
                write_number(number << 3 | if bytes.len() == 8 { 1 } else { 5 }, out);
                out.extend(bytes);
            }
            Field::Bytes(bytes) => {
                write_number(number << 3 | 2, out);
                write_number(bytes.len() as u64, out);
                out.extend(bytes);
            }
            Field::Message(fields) => {
                let mut inner = Vec::new();
                fields.iter().for_each(|(number, field)| field.write(*number, &mut inner));
                Field::Bytes(inner).write(number, out);
            }
        }
    }
}

/// Damages one field somewhere below.
fn damage(fields: &mut Vec<(u64, Field)>, dice: &mut StdRng) {
    if fields.is_empty() {
        return;
    }
    let at = dice.random_range(0..fields.len());
    if let Field::Message(inner) = &mut fields[at].1
        && dice.random_range(0..8) != 0
    {
        return damage(inner, dice);
    }
    match dice.random_range(0..10) {
        0 => drop(fields.remove(at)),
        1 => {
            let copy = fields[at].clone();
            fields.insert(at, copy);
        }
        2 => {
            let other = dice.random_range(0..fields.len());
            let copy = fields[other].1.clone();
            fields[at].1 = copy;
        }
        3 => fields[at].0 = dice.random_range(1..30),
        _ => match &mut fields[at].1 {
            Field::Number(n) => {
                *n = match dice.random_range(0..4) {
                    0 => EXTREMES[dice.random_range(0..EXTREMES.len())],
                    1 => n.wrapping_add(1),
                    2 => n.wrapping_sub(1),
                    _ => dice.random_range(0..40),
                }
            }
            Field::Fixed(bytes) | Field::Bytes(bytes) if !bytes.is_empty() => {
                let i = dice.random_range(0..bytes.len());
                bytes[i] ^= 1 << dice.random_range(0..8);
                if dice.random_range(0..4) == 0 && bytes.len() != 4 && bytes.len() != 8 {
                    bytes.truncate(i);
                }
            }
            Field::Fixed(_) | Field::Bytes(_) | Field::Message(_) => {}
        },
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(head)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn write_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The process's peak resident memory; 0 where the system does not say.
fn peak_memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
