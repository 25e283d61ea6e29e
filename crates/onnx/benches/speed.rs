//! Times a model, on one thread unless it is told otherwise, at the orders of whoever drives it (`speed.py`), who alternates between
//! this process and another one.
//!
//! Prints `loaded SECONDS`, then answers each line of its input: `run ROWS SECONDS` with the time of a batch in
//! milliseconds, measured for that long, as the median by the clock and as the mean of what the thread had of a processor,
//! which tells more where others use the machine too; `write ROWS FILE` by writing the outputs, float32 after float32; `memory` with
//! the most memory that the process ever had, in KiB.

use std::fs;
use std::io::{BufRead, stdin};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use burn_backend::TensorData;
use uncork_model::runner::Runner;
use uncork_model::tensor::{Data, DataType, Tensor, Tensors};
use uncork_onnx::{Graph, OnnxModel, OnnxRunner, read_tensor};

/// Length of a dimension that the model leaves free.
const FREE: usize = 128;
/// Fewest batches that a median is taken of.
const FEWEST: usize = 3;

/// Runs `model` on so many threads as the lines of the standard input ask.
pub(crate) fn run(model: &str, threads: &str) -> ExitCode {
    match threads.parse().map_err(|_| "threads are at least one".into()).and_then(|threads| serve(model, threads)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{model}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads and compiles `model` without trying it; prints the seconds and the most memory that it took, beside the time that
/// reading the file alone takes.
pub(crate) fn load(model: &str) -> ExitCode {
    let begin = Instant::now();
    let graph = match Graph::open(model.as_ref()) {
        Ok(graph) => graph,
        Err(error) => {
            eprintln!("{model}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (seconds, processor) = (begin.elapsed().as_secs_f64(), on_processor() / 1e3);
    let memory = peak_memory() / 1024;
    drop(graph);
    let begin = Instant::now();
    let size = fs::read(model).map_or(0, |bytes| bytes.len()) >> 20;
    let read = begin.elapsed().as_secs_f64();
    println!("{seconds:.3} s ({processor:.3} s of a processor), {memory} MiB; {size} MiB are read in {read:.3} s");
    ExitCode::SUCCESS
}

/// Times a model of the corpus on its rows, as the file takes them and on so many threads, at the orders of
/// `crates/onnx/benches/corpus_speed.py`.
pub(crate) fn case(folder: &str, threads: &str) -> ExitCode {
    let threads = threads.parse().map_err(|_| "threads are at least one".to_owned());
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(|e| e.to_string());
    let served = |pool: rayon::ThreadPool| pool.install(|| serve_case(Path::new(folder)).map_err(|e| e.to_string()));
    match threads.and_then(pool).and_then(served) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{folder}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_case(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let begin = Instant::now();
    let graph = Graph::open(&folder.join("model.onnx"))?;
    println!("loaded {:.4}", begin.elapsed().as_secs_f64());
    for line in stdin().lock().lines() {
        let line = line?;
        let ["run", rows, seconds] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(format!("'{line}' is not run").into());
        };
        let inputs = case_rows(folder, rows.parse()?)?;
        match timed(seconds.parse()?, || graph.run(inputs.clone()).map(drop).map_err(Into::into)) {
            Ok((clock, processor)) => println!("{clock:.5} {processor:.5}"),
            Err(error) => println!("failed {error}"),
        }
    }
    Ok(())
}

/// The inputs of so many rows along axis 0: the model's own, again and again.
pub(crate) fn case_rows(folder: &Path, rows: usize) -> Result<Vec<TensorData>, Box<dyn std::error::Error>> {
    /// Rows that there are of each model.
    const GIVEN: usize = 4;
    let file = |row: usize, i: usize| folder.join(format!("{row}/input_{i}.pb"));
    let inputs = (0..).take_while(|&i| file(0, i).exists()).map(|i| {
        let parts = (0..rows).map(|row| Ok(read_tensor(&fs::read(file(row % GIVEN, i))?)?));
        let parts = parts.collect::<Result<Vec<TensorData>, Box<dyn std::error::Error>>>()?;
        let mut dims = parts[0].shape().to_vec();
        if let Some(first) = dims.first_mut() {
            *first *= rows;
        } else if rows > 1 {
            return Ok(parts[0].clone());
        }
        let bytes = parts.iter().flat_map(|part| part.bytes().iter().copied()).collect();
        Ok(TensorData::from_bytes_vec(bytes, dims, parts[0].dtype()))
    });
    inputs.collect()
}

fn serve(path: &str, threads: NonZeroUsize) -> Result<(), Box<dyn std::error::Error>> {
    let begin = Instant::now();
    let model = OnnxModel::open(path.as_ref())?;
    println!("loaded {:.4}", begin.elapsed().as_secs_f64());
    // One that only measures how threads share a batch, as a server's warm-up does.
    let (mut scout, mut runner) = (model.runner(threads), model.runner(threads));
    for line in stdin().lock().lines() {
        let line = line?;
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["run", rows, seconds] => {
                let (clock, processor) = times(&mut scout, &mut runner, rows.parse()?, seconds.parse()?)?;
                println!("{clock:.5} {processor:.5}");
            }
            ["write", rows, file] => {
                let outputs = runner.run(batch(&runner, rows.parse()?)?)?;
                let bytes = outputs.iter().flat_map(|(_, tensor)| match tensor.data() {
                    Data::Fp32(numbers) => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
                    _ => Vec::new(),
                });
                fs::write(file, bytes.collect::<Vec<u8>>())?;
                println!("written");
            }
            ["memory"] => println!("{}", peak_memory()),
            _ => return Err(format!("'{line}' is neither run, write nor memory").into()),
        }
    }
    Ok(())
}

/// Milliseconds of a batch: the median by the clock, the mean on a processor.
fn times(
    scout: &mut OnnxRunner,
    runner: &mut OnnxRunner,
    rows: usize,
    seconds: f64,
) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let batch = batch(runner, rows)?;
    scout.rehearse(batch.clone())?;
    timed(seconds, || runner.run(batch.clone()).map(drop).map_err(Into::into))
}

/// Milliseconds of a run: the median by the clock, the mean on a processor. The first run is not counted.
fn timed(
    seconds: f64,
    mut run: impl FnMut() -> Result<(), Box<dyn std::error::Error>>,
) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    run()?;
    let (begin, used) = (Instant::now(), on_processor());
    let mut times = Vec::new();
    while times.len() < FEWEST || begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let processor = (on_processor() - used) / times.len() as f64;
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], processor))
}

/// Milliseconds that this thread has had of a processor; 0 where the system does not say.
pub(crate) fn on_processor() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e6
}

/// The rows that the driver gives to the other side, too: see `inputs` in speed.py.
fn batch(runner: &OnnxRunner, rows: usize) -> Result<Tensors, Box<dyn std::error::Error>> {
    let tensors = runner.signature().inputs.iter().map(|spec| {
        let mut shape = vec![rows];
        shape.extend(spec.dims.iter().map(|d| d.unwrap_or(FREE)));
        let count: usize = shape.iter().product();
        let data: Data = match spec.datatype {
            DataType::Fp32 => (0..count).map(|i| ((i * 7919) % 1009) as f32 / 504.0 - 1.0).collect::<Vec<f32>>().into(),
            DataType::Int64 if &*spec.name == "ids" => {
                (0..count).map(|i| ((i * 7919) % 20011) as i64).collect::<Vec<i64>>().into()
            }
            DataType::Int64 => vec![i64::from(&*spec.name == "mask"); count].into(),
            other => return Err(format!("no rows of {}", other.name()).into()),
        };
        Ok((spec.name.clone(), Tensor::new(shape, data)?))
    });
    Ok(Tensors::new(tensors.collect::<Result<_, Box<dyn std::error::Error>>>()?)?)
}

/// `VmHWM` of this process in KiB; 0 where the system does not say.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
