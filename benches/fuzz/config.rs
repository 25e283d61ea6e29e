//! Configuration files: each is a configuration, or all that is wrong with it, in words.

use std::ffi::OsString;
use std::fs;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use uncork::config::{Flags, resolve};

use crate::mutate::mutate;
use crate::{Finding, Seeds};

/// Most bytes of what is said of one file, for each byte of it: a line of few bytes may need two sentences.
const LONGEST: usize = 64;

pub(crate) fn run(seeds: &Seeds) -> Vec<Finding> {
    let corpus: Vec<Vec<u8>> = super::http::files("config").into_iter().map(|(_, bytes)| bytes).collect();
    let folder = std::env::temp_dir().join(format!("uncork-fuzz-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for temporary files");
    let path = folder.join("uncork.toml");
    fs::write(folder.join("b.onnx"), []).expect("a file that a model may name");
    let (begin, mut findings, mut sound) = (Instant::now(), Vec::new(), 0u64);
    for seed in seeds.first..seeds.first + seeds.count {
        let mut chance = StdRng::seed_from_u64(seed);
        let mut one = || &corpus[chance.random_range(0..corpus.len())];
        let (input, other) = (one().clone(), one().clone());
        let text = mutate(input, &other, &mut chance);
        // A new file each time: to empty one and write it again waits for the disk.
        let _ = fs::remove_file(&path);
        fs::write(&path, &text).expect("a temporary file");
        let flags = Flags { config: Some(path.clone()), ..Flags::default() };
        let outcome = std::panic::catch_unwind(|| resolve(&flags, Vec::<(OsString, OsString)>::new(), &folder));
        if seeds.is_one() {
            println!("{}\n{outcome:?}", String::from_utf8_lossy(&text));
        }
        let what = match outcome {
            Err(_) => "a panic".to_owned(),
            Ok(Ok(_)) => {
                sound += 1;
                continue;
            }
            Ok(Err(problems)) if problems.iter().len() == 0 => "refused without a reason".to_owned(),
            Ok(Err(problems)) => match problems.to_string() {
                said if said.len() > LONGEST * text.len().max(16) => format!("{} bytes of reasons", said.len()),
                said if said.chars().any(|c| c.is_control() && c != '\n') => {
                    format!("reasons that control a terminal: {said:?}")
                }
                _ => continue,
            },
        };
        findings.push(Finding { seed, what });
    }
    // What is left there is the last file.
    let _ = fs::remove_dir_all(&folder);
    println!("config: {} files in {:.1?}, {sound} sound", seeds.count, begin.elapsed());
    findings
}
