//! What a runner thread does with the requests of a batch: join, pad, run, check, split.

use std::time::{Duration, Instant};

use super::lengths::{Lengths, Padded};
use super::load;
use crate::batcher::{BatchError, BatchSizes, Ran, Work};
use crate::metrics::ModelMetrics;
use crate::runner::{Runner, RunnerError};
use crate::tensor::{TensorError, Tensors};

/// What became of one request of a batch.
#[derive(Debug, PartialEq)]
pub(super) struct Served {
    /// Its outputs, or what is wrong with its inputs, in words for its caller.
    pub(super) outputs: Result<Tensors, String>,
    /// The batch's time beside the model's.
    pub(super) assemble: Duration,
    /// The model's time for the batch.
    pub(super) execute: Duration,
}

/// A runner behind the batcher's seam.
pub(super) struct Desk {
    /// Has run a row already.
    pub(super) runner: Box<dyn Runner>,
    /// The sizes of its batches.
    pub(super) sizes: BatchSizes,
    pub(super) lengths: Lengths,
    pub(super) metrics: ModelMetrics,
    /// A row that it takes, to rehearse with.
    pub(super) example: Tensors,
}

impl Work<Tensors, Served> for Desk {
    fn run(&mut self, requests: Vec<Tensors>) -> Result<Ran<Served>, BatchError> {
        let Desk { runner, sizes, lengths, metrics, .. } = self;
        let mut station = Station { runner: &mut **runner, sizes, lengths: *lengths };
        let (begin, mut tally) = (Instant::now(), Tally::default());
        let own = requests.iter().map(elements).sum::<usize>();
        let outputs = station.serve(requests, &mut tally)?;
        let (took, execute) = (begin.elapsed(), tally.execute);
        metrics.request_elements.increment(own as u64);
        metrics.padding_elements.increment(tally.padding_elements as u64);
        let assemble = took.saturating_sub(execute);
        let answers = outputs.into_iter().map(|outputs| Served { outputs, assemble, execute }).collect();
        Ok(Ran { answers, took: None, is_typical: !tally.has_refused })
    }

    fn rehearse(&mut self, rows: usize) -> Result<(), BatchError> {
        load::rehearse(&mut *self.runner, &self.example, rows).map(drop).map_err(BatchError::new)
    }
}

/// A runner and how it is to be given its batches.
struct Station<'a> {
    runner: &'a mut dyn Runner,
    sizes: &'a BatchSizes,
    lengths: Lengths,
}

/// What a batch came to.
#[derive(Debug, Default)]
struct Tally {
    /// The model's time.
    execute: Duration,
    /// Elements that were added to the requests' own.
    padding_elements: usize,
    /// Whether some request's inputs were refused by the model.
    has_refused: bool,
}

/// What each request gets, in order.
type Outputs = Vec<Result<Tensors, String>>;

impl Station<'_> {
    /// Runs requests with their lengths made equal before if that is asked for.
    fn serve(&mut self, requests: Vec<Tensors>, tally: &mut Tally) -> Result<Outputs, BatchError> {
        let equal = requests.windows(2).all(|pair| pair[0].joins_with(&pair[1]));
        if self.lengths == Lengths::Group || equal {
            return self.run_groups(requests, tally);
        }
        let signature = self.runner.signature().clone();
        let Some(padded) = Padded::of(&signature, &requests) else { return self.run_groups(requests, tally) };
        let before: usize = requests.iter().map(elements).sum();
        let requests = requests.into_iter().map(|request| padded.pad(&signature, request));
        let requests = requests.collect::<Result<Vec<_>, _>>().map_err(broken)?;
        tally.padding_elements += requests.iter().map(elements).sum::<usize>() - before;
        let answers = self.run_groups(requests, tally)?.into_iter().enumerate();
        let cut = |(i, answer): (usize, Result<Tensors, String>)| match answer {
            Ok(answer) => padded.cut(&signature, i, answer).map(Ok).map_err(broken),
            Err(why) => Ok(Err(why)),
        };
        answers.map(cut).collect()
    }

    /// Requests whose free dimensions differ (a sentence of 7 tokens, one of 9) cannot share tensors: they run one group
    /// after the other, each padded by itself.
    fn run_groups(&mut self, requests: Vec<Tensors>, tally: &mut Tally) -> Result<Outputs, BatchError> {
        let mut answers: Vec<_> = requests.iter().map(|_| None).collect();
        for (places, group) in groups(requests) {
            for (place, answer) in places.into_iter().zip(self.run_group(group, tally)?) {
                answers[place] = Some(answer);
            }
        }
        Ok(answers.into_iter().map(|a| a.expect("every request is in one group")).collect())
    }

    /// Runs requests that join. Where the model names rows that it refuses, the others run again without them. Where it refuses
    /// some row and cannot say which, half of them run without the other half, and so on. Whose rows are refused is told so,
    /// and everybody else is answered.
    fn run_group(&mut self, group: Vec<Tensors>, tally: &mut Tally) -> Result<Outputs, BatchError> {
        let is_one = group.len() == 1;
        let rows: Vec<usize> = group.iter().map(Tensors::rows).collect();
        let spare = (!is_one && self.runner.may_refuse()).then(|| group.clone());
        match (self.run_together(group, tally), spare) {
            (Ok(answers), _) => Ok(answers.into_iter().map(Ok).collect()),
            (Err(RunnerError::Rows(named)), spare) => {
                tally.has_refused = true;
                let refused =
                    refused(&rows, named).ok_or_else(|| BatchError::new("it refused rows that there are not"))?;
                let others = spare.into_iter().flatten().zip(&refused);
                let others: Vec<Tensors> =
                    others.filter(|(_, why)| why.is_none()).map(|(request, _)| request).collect();
                let mut answers = if others.is_empty() { vec![] } else { self.run_group(others, tally)? }.into_iter();
                let answer = |why: Option<String>| match why {
                    Some(why) => Ok(Err(why)),
                    None => {
                        answers.next().ok_or_else(|| BatchError::new("a request was refused without its neighbours"))
                    }
                };
                refused.into_iter().map(answer).collect()
            }
            (Err(RunnerError::Input(_)), Some(mut first)) => {
                tally.has_refused = true;
                let second = first.split_off(first.len() / 2);
                let mut answers = self.run_group(first, tally)?;
                answers.append(&mut self.run_group(second, tally)?);
                Ok(answers)
            }
            (Err(RunnerError::Input(why)), None) if is_one => {
                tally.has_refused = true;
                Ok(vec![Err(why)])
            }
            (Err(why), _) => Err(BatchError::new(why.to_string())),
        }
    }

    /// Runs requests that join, as one batch of the model.
    fn run_together(&mut self, group: Vec<Tensors>, tally: &mut Tally) -> Result<Vec<Tensors>, RunnerError> {
        let broken = |error: TensorError| RunnerError::Failed(error.to_string());
        let rows: Vec<usize> = group.iter().map(Tensors::rows).collect();
        let mut batch = Tensors::join(group).map_err(broken)?;
        let (own, expected) = (batch.rows(), self.sizes.padded(batch.rows()));
        if expected > own {
            let before = elements(&batch);
            batch = batch.resize_rows(expected).map_err(broken)?;
            tally.padding_elements += elements(&batch) - before;
        }
        let begin = Instant::now();
        let outputs = self.runner.run(batch);
        tally.execute += begin.elapsed();
        let outputs = outputs?;
        if !self.runner.signature().agrees(&outputs, expected) {
            let shapes: Vec<_> = outputs.iter().map(|(name, t)| format!("{name} {:?}", t.shape())).collect();
            let shapes = shapes.join(", ");
            return Err(RunnerError::Failed(format!("outputs for {expected} rows break the signature: {shapes}")));
        }
        let outputs = if expected > own { outputs.resize_rows(own).map_err(broken)? } else { outputs };
        outputs.split(&rows).map_err(broken)
    }
}

/// For requests of so many rows each, what is wrong with a row of theirs that is named, if one is. `None` where no row is named
/// or one that there is not.
fn refused(rows: &[usize], named: Vec<(usize, String)>) -> Option<Vec<Option<String>>> {
    let owners: Vec<usize> = rows.iter().enumerate().flat_map(|(i, &rows)| std::iter::repeat_n(i, rows)).collect();
    let mut refused = vec![None; rows.len()];
    if named.is_empty() {
        return None;
    }
    for (row, why) in named {
        refused[*owners.get(row)?].get_or_insert(why);
    }
    Some(refused)
}

/// Requests that join with each other, and their places among all.
fn groups(requests: Vec<Tensors>) -> Vec<(Vec<usize>, Vec<Tensors>)> {
    let mut groups: Vec<(Vec<usize>, Vec<Tensors>)> = Vec::new();
    for (place, request) in requests.into_iter().enumerate() {
        match groups.iter_mut().find(|(_, group)| group[0].joins_with(&request)) {
            Some((places, group)) => {
                places.push(place);
                group.push(request);
            }
            None => groups.push((vec![place], vec![request])),
        }
    }
    groups
}

fn elements(tensors: &Tensors) -> usize {
    tensors.iter().map(|(_, tensor)| tensor.data().len()).sum()
}

fn broken(error: TensorError) -> BatchError {
    BatchError::new(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::runner::{Signature, TensorSpec};
    use crate::tensor::{Data, DataType, Tensor};

    fn serve(
        runner: &mut dyn Runner,
        sizes: &BatchSizes,
        lengths: Lengths,
        requests: Vec<Tensors>,
    ) -> Result<Vec<Tensors>, BatchError> {
        let served = Station { runner, sizes, lengths }.serve(requests, &mut Tally::default())?;
        Ok(served.into_iter().map(|outputs| outputs.expect("the model takes these inputs")).collect())
    }

    fn run(runner: &mut dyn Runner, sizes: &BatchSizes, requests: Vec<Tensors>) -> Result<Vec<Tensors>, BatchError> {
        serve(runner, sizes, Lengths::Group, requests)
    }

    /// Sums each row; its rows may have any length.
    struct Sum(Signature);

    impl Sum {
        fn new() -> Sum {
            let spec = |name: &str, dims| TensorSpec::new(name, DataType::Fp32, dims);
            Sum(Signature { inputs: vec![spec("x", vec![None])], outputs: vec![spec("sum", vec![])] })
        }
    }

    impl Runner for Sum {
        fn signature(&self) -> &Signature {
            &self.0
        }

        fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            let rows = batch.rows();
            let Some(Data::Fp32(x)) = batch.get("x").map(|t| t.data().clone()) else { panic!("x is FP32") };
            let sums: Vec<f32> = x.chunks(x.len() / rows).map(|row| row.iter().sum()).collect();
            Ok(Tensors::one("sum", Tensor::new(vec![sums.len()], sums).expect("one a row")))
        }
    }

    fn request(rows: usize, columns: usize, value: f32) -> Tensors {
        Tensors::one("x", Tensor::new(vec![rows, columns], vec![value; rows * columns]).expect("shape"))
    }

    #[test]
    fn requests_of_different_lengths_share_a_batch_and_each_gets_its_own_answer() {
        let requests = vec![request(1, 3, 1.0), request(2, 5, 1.0), request(1, 3, 2.0)];
        let answers = run(&mut Sum::new(), BatchSizes::ANY, requests).expect("answers");
        let sums: Vec<_> = answers.iter().map(|a| a.get("sum").expect("sum").data().clone()).collect();
        assert_eq!(sums, [Data::Fp32(vec![3.0]), Data::Fp32(vec![5.0, 5.0]), Data::Fp32(vec![6.0])]);
    }

    #[test]
    fn batches_are_padded_to_an_allowed_size_and_nobody_gets_an_answer_to_padding() {
        struct Sized(Sum, Vec<usize>);
        impl Runner for Sized {
            fn signature(&self) -> &Signature {
                self.0.signature()
            }
            fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
                self.1.push(batch.rows());
                self.0.run(batch)
            }
        }
        let (mut runner, sizes) = (Sized(Sum::new(), vec![]), BatchSizes::rising(vec![1, 4, 8]).expect("they rise"));
        let mut sums = |requests: Vec<Tensors>| {
            let answers = run(&mut runner, &sizes, requests).expect("answers");
            answers.iter().map(|a| a.get("sum").expect("sum").data().clone()).collect::<Vec<_>>()
        };
        let both = sums(vec![request(2, 3, 1.0), request(3, 3, 2.0)]);
        assert_eq!(both, [Data::Fp32(vec![3.0; 2]), Data::Fp32(vec![6.0; 3])]);
        assert_eq!(sums(vec![request(3, 3, 1.0)]), [Data::Fp32(vec![3.0; 3])]);
        assert_eq!(sums(vec![request(4, 3, 1.0)]), [Data::Fp32(vec![3.0; 4])]);
        let two_lengths = sums(vec![request(1, 3, 1.0), request(2, 5, 1.0)]);
        assert_eq!(two_lengths, [Data::Fp32(vec![3.0]), Data::Fp32(vec![5.0; 2])]);
        assert_eq!(runner.1, [8, 4, 4, 1, 4]);
    }

    /// Gives each row back, of any length, and adds one: padding is then one as well.
    struct Next(Signature);

    impl Next {
        fn new() -> Next {
            let spec = |name: &str| TensorSpec::new(name, DataType::Fp32, vec![None, Some(2)]);
            Next(Signature { inputs: vec![spec("x")], outputs: vec![spec("y")] })
        }
    }

    impl Runner for Next {
        fn signature(&self) -> &Signature {
            &self.0
        }

        fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            let (_, tensor) = batch.into_entries().remove(0);
            let (shape, Data::Fp32(x)) = tensor.into_parts() else { panic!("x is FP32") };
            Ok(Tensors::one("y", Tensor::new(shape, x.iter().map(|x| x + 1.0).collect::<Vec<_>>()).expect("shape")))
        }
    }

    #[test]
    fn padded_requests_run_together_and_get_answers_of_their_own_length() {
        struct Counted(Next, Vec<Vec<usize>>);
        impl Runner for Counted {
            fn signature(&self) -> &Signature {
                self.0.signature()
            }
            fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
                self.1.push(batch.get("x").expect("x").shape().to_vec());
                self.0.run(batch)
            }
        }
        let request = |rows: usize, length: usize, value: f32| {
            let data = vec![value; rows * length * 2];
            Tensors::one("x", Tensor::new(vec![rows, length, 2], data).expect("shape"))
        };
        let mut runner = Counted(Next::new(), vec![]);
        let requests = vec![request(1, 3, 1.0), request(2, 5, 2.0), request(1, 1, 3.0)];
        let answers = serve(&mut runner, BatchSizes::ANY, Lengths::Pad, requests.clone()).expect("answers");
        assert_eq!(runner.1, [vec![4, 5, 2]]);
        let grouped = serve(&mut Next::new(), BatchSizes::ANY, Lengths::Group, requests).expect("answers");
        assert_eq!(answers, grouped);
    }

    #[test]
    fn lengths_that_could_not_be_told_apart_are_not_padded() {
        let spec = |name: &str| TensorSpec::new(name, DataType::Fp32, vec![None]);
        let signature = Signature { inputs: vec![spec("a"), spec("b")], outputs: vec![] };
        let request = |a: usize, b: usize| {
            let tensor = |n| Tensor::new(vec![1, n], vec![0f32; n]).expect("shape");
            Tensors::new(vec![("a".into(), tensor(a)), ("b".into(), tensor(b))]).expect("one row each")
        };
        let padded = |requests: &[Tensors]| Padded::of(&signature, requests).is_some();
        assert!(padded(&[request(3, 3), request(5, 5)]));
        assert!(padded(&[request(3, 4), request(5, 6)]));
        // The batch is 5 by 5: an output of length 5 may be either's.
        assert!(!padded(&[request(3, 4), request(5, 5)]));
    }

    #[test]
    fn outputs_that_break_the_signature_fail_the_batch() {
        struct Short(crate::runner::synthetic::Synthetic);
        impl Runner for Short {
            fn signature(&self) -> &Signature {
                self.0.signature()
            }
            fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
                let mut parts = batch.split(&[1, 1]).expect("two rows");
                self.0.run(parts.remove(0))
            }
        }
        let mut short = Short(crate::runner::synthetic::Synthetic::new(Duration::ZERO, Duration::ZERO));
        let error = run(&mut short, BatchSizes::ANY, vec![request(2, 1, 0.0)]).expect_err("one row is missing");
        assert!(error.to_string().contains("y [1, 1]"), "{error}");
    }

    /// Looks an index up in a table of ten; what is beyond is refused, by name if it names rows. Remembers the rows of its runs.
    struct Table(Signature, Vec<usize>, bool);

    impl Table {
        fn new() -> Table {
            let spec = |name: &str| TensorSpec::new(name, DataType::Int64, vec![Some(1)]);
            Table(Signature { inputs: vec![spec("i")], outputs: vec![spec("found")] }, vec![], false)
        }
    }

    impl Runner for Table {
        fn signature(&self) -> &Signature {
            &self.0
        }

        fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            self.1.push(batch.rows());
            let (_, tensor) = batch.into_entries().remove(0);
            let (shape, Data::Int64(indices)) = tensor.into_parts() else { panic!("i is INT64") };
            let is_unknown = |i: &&i64| !(0..10).contains(*i);
            if self.2 && indices.iter().any(|i| is_unknown(&i)) {
                let rows = indices.iter().enumerate().filter(|(_, i)| is_unknown(i));
                return Err(RunnerError::Rows(rows.map(|(row, i)| (row, format!("no {i}"))).collect()));
            }
            if let Some(i) = indices.iter().find(is_unknown) {
                return Err(RunnerError::Input(format!("index {i} is out of range for length 10")));
            }
            let found: Vec<i64> = indices.iter().map(|i| i * 100).collect();
            Ok(Tensors::one("found", Tensor::new(shape, found).expect("shape")))
        }
    }

    fn look_up(indices: &[i64]) -> (Vec<Result<Tensors, String>>, Tally, Vec<usize>) {
        look_up_in(Table::new(), indices)
    }

    fn look_up_in(mut runner: Table, indices: &[i64]) -> (Vec<Result<Tensors, String>>, Tally, Vec<usize>) {
        let request = |&i: &i64| Tensors::one("i", Tensor::new(vec![1, 1], vec![i]).expect("shape"));
        let mut tally = Tally::default();
        let mut station = Station { runner: &mut runner, sizes: BatchSizes::ANY, lengths: Lengths::Group };
        let served = station.serve(indices.iter().map(request).collect(), &mut tally).expect("nothing fails");
        (served, tally, runner.1)
    }

    #[test]
    fn a_request_that_the_model_refuses_costs_its_neighbours_nothing() {
        let (served, tally, _) = look_up(&[0, 1, 2, 3, 4, 12, 6, 7]);
        for (i, served) in served.into_iter().enumerate() {
            match served {
                Err(why) => assert_eq!((i, &*why), (5, "index 12 is out of range for length 10")),
                Ok(found) => assert_eq!(found.get("found").expect("found").data(), &Data::Int64(vec![i as i64 * 100])),
            }
        }
        assert!(tally.has_refused, "its time is not that of such a batch");
    }

    #[test]
    fn whose_request_is_refused_is_found_in_few_runs() {
        let mut indices = vec![1; 64];
        indices[37] = -1;
        let (_, _, runs) = look_up(&indices);
        assert_eq!(runs.len(), 1 + 2 * 6, "one run of all, then two of half as many for each halving");
        assert!(runs.iter().sum::<usize>() <= 3 * 64);
        let (served, tally, runs) = look_up(&[1; 64]);
        assert_eq!((served.len(), runs, tally.has_refused), (64, vec![64], false));
    }

    #[test]
    fn rows_that_the_model_names_cost_one_more_run_however_many_there_are() {
        let naming = || Table(Table::new().0, vec![], true);
        let indices: Vec<i64> = (0..64).map(|i| if i % 3 == 0 { 99 } else { i % 10 }).collect();
        let (served, tally, runs) = look_up_in(naming(), &indices);
        for (served, i) in served.into_iter().zip(&indices) {
            match served {
                Err(why) => assert_eq!((*i, &*why), (99, "no 99")),
                Ok(found) => assert_eq!(found.get("found").expect("found").data(), &Data::Int64(vec![i * 100])),
            }
        }
        assert_eq!((runs, tally.has_refused), (vec![64, 64 - 22], true));
        let (served, _, runs) = look_up_in(naming(), &[99, 99]);
        assert_eq!((served, runs), (vec![Err("no 99".into()), Err("no 99".into())], vec![2]));
    }
}
