//! What a runner thread does with the requests of a batch: join, pad, run, check, split.

use super::lengths::{Lengths, Padded};
use crate::batcher::{BatchError, BatchSizes, Work};
use crate::runner::Runner;
use crate::tensor::{TensorError, Tensors};

/// Puts a runner that runs batches of these sizes behind the batcher's seam.
pub(super) fn work(mut runner: Box<dyn Runner>, sizes: BatchSizes, lengths: Lengths) -> Work<Tensors, Tensors> {
    Box::new(move |requests| run_equal(&mut *runner, &sizes, lengths, requests))
}

/// The outputs of each request, in order, with their lengths made equal before if that is asked for.
fn run_equal(
    runner: &mut dyn Runner,
    sizes: &BatchSizes,
    lengths: Lengths,
    requests: Vec<Tensors>,
) -> Result<Vec<Tensors>, BatchError> {
    let equal = requests.windows(2).all(|pair| pair[0].joins_with(&pair[1]));
    if lengths == Lengths::Group || equal {
        return run(runner, sizes, requests);
    }
    let signature = runner.signature().clone();
    let Some(padded) = Padded::of(&signature, &requests) else { return run(runner, sizes, requests) };
    let requests = requests.into_iter().map(|request| padded.pad(&signature, request)).collect::<Result<_, _>>();
    let answers = run(runner, sizes, requests.map_err(broken)?)?.into_iter().enumerate();
    answers.map(|(i, answer)| padded.cut(&signature, i, answer).map_err(broken)).collect()
}

/// The outputs of each request, in order.
///
/// Requests whose free dimensions differ (a sentence of 7 tokens, one of 9) cannot share tensors: they run one group
/// after the other, each padded by itself.
fn run(runner: &mut dyn Runner, sizes: &BatchSizes, requests: Vec<Tensors>) -> Result<Vec<Tensors>, BatchError> {
    let count = requests.len();
    let mut answers: Vec<Option<Tensors>> = (0..count).map(|_| None).collect();
    for (places, group) in groups(requests) {
        let rows: Vec<usize> = group.iter().map(Tensors::rows).collect();
        let mut batch = Tensors::join(group).map_err(broken)?;
        let (own, expected) = (batch.rows(), sizes.padded(batch.rows()));
        if expected > own {
            batch = batch.resize_rows(expected).map_err(broken)?;
        }
        let outputs = runner.run(batch).map_err(|e| BatchError(e.to_string()))?;
        if !runner.signature().agrees(&outputs, expected) {
            let shapes: Vec<_> = outputs.iter().map(|(name, t)| format!("{name} {:?}", t.shape())).collect();
            return Err(BatchError(format!("outputs for {expected} rows break the signature: {}", shapes.join(", "))));
        }
        let outputs = if expected > own { outputs.resize_rows(own).map_err(broken)? } else { outputs };
        for (place, answer) in places.into_iter().zip(outputs.split(&rows).map_err(broken)?) {
            answers[place] = Some(answer);
        }
    }
    Ok(answers.into_iter().map(|a| a.expect("every request is in one group")).collect())
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

fn broken(error: TensorError) -> BatchError {
    BatchError(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::runner::{RunnerError, Signature, TensorSpec};
    use crate::tensor::{Data, DataType, Tensor};

    /// Sums each row; its rows may have any length.
    struct Sum(Signature);

    impl Sum {
        fn new() -> Sum {
            let spec = |name: &str, dims| TensorSpec { name: name.into(), datatype: DataType::Fp32, dims };
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
            let spec =
                |name: &str| TensorSpec { name: name.into(), datatype: DataType::Fp32, dims: vec![None, Some(2)] };
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
        let answers = run_equal(&mut runner, BatchSizes::ANY, Lengths::Pad, requests.clone()).expect("answers");
        assert_eq!(runner.1, [vec![4, 5, 2]]);
        let grouped = run_equal(&mut Next::new(), BatchSizes::ANY, Lengths::Group, requests).expect("answers");
        assert_eq!(answers, grouped);
    }

    #[test]
    fn lengths_that_could_not_be_told_apart_are_not_padded() {
        let spec = |name: &str| TensorSpec { name: name.into(), datatype: DataType::Fp32, dims: vec![None] };
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
}
