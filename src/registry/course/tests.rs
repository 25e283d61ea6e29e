//! What the requests of a batch are answered with, by runners of all kinds.

use std::time::Duration;

use super::*;
use crate::registry::lengths::learn;
use crate::runner::{Rows, Runner, TensorSpec};
use crate::tensor::{Data, DataType, Tensor};

/// Each run takes so long.
const RUN: Duration = Duration::from_millis(1);

/// What each request gets from `runner`, and what the runs came to.
fn outcomes(
    runner: &mut dyn Runner,
    sizes: &BatchSizes,
    padding: Option<Arc<LengthRules>>,
    most: Duration,
    requests: Vec<Tensors>,
) -> Result<(Vec<Outcome>, Course), BatchError> {
    let signature = Arc::new(runner.signature().clone());
    let (may_refuse, may_change_form) = (runner.may_refuse(), runner.may_change_form());
    let sizes = sizes.clone();
    let manner = Manner { signature, sizes, padding, may_refuse, may_change_form, most };
    let mut course = Course::new(Arc::new(manner), requests)?;
    loop {
        match course.next()? {
            Next::Run(batch) => course.ran(runner.run(batch), RUN)?,
            Next::Done(outcomes) => return Ok((outcomes, course)),
        }
    }
}

fn serve(
    runner: &mut dyn Runner,
    sizes: &BatchSizes,
    padding: Option<Arc<LengthRules>>,
    requests: Vec<Tensors>,
) -> Result<Vec<Tensors>, BatchError> {
    let (outcomes, _) = outcomes(runner, sizes, padding, Duration::MAX, requests)?;
    Ok(outcomes.into_iter().map(|outputs| outputs.expect("the model takes these inputs")).collect())
}

fn run(runner: &mut dyn Runner, sizes: &BatchSizes, requests: Vec<Tensors>) -> Result<Vec<Tensors>, BatchError> {
    serve(runner, sizes, None, requests)
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

/// Repeats each row's number as often as a number says that is for all rows.
struct Repeat(Signature);

impl Repeat {
    fn new() -> Repeat {
        let spec = |name: &str, dims| TensorSpec::new(name, DataType::Fp32, dims);
        let count = TensorSpec { rows: Rows::Shared, ..spec("count", vec![]) };
        Repeat(Signature { inputs: vec![spec("x", vec![]), count], outputs: vec![spec("y", vec![None])] })
    }
}

impl Runner for Repeat {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        let numbers = |name: &str| match batch.get(name).map(Tensor::data) {
            Some(Data::Fp32(numbers)) => numbers.to_vec(),
            other => panic!("{name} is {other:?}"),
        };
        let (x, counts) = (numbers("x"), numbers("count"));
        assert!(counts.iter().all(|count| *count == counts[0]), "rows with different counts share a run: {counts:?}");
        let y: Vec<f32> = x.iter().flat_map(|x| std::iter::repeat_n(*x, counts[0] as usize)).collect();
        Ok(Tensors::one("y", Tensor::new(vec![x.len(), counts[0] as usize], y).expect("each so often")))
    }
}

#[test]
fn requests_whose_answers_differ_in_length_by_what_all_rows_share_are_run_apart() {
    let request = |rows: usize, count: f32| {
        let column = |number| Tensor::new(vec![rows], vec![number; rows]).expect("shape");
        Tensors::new(vec![("x".into(), column(7.0)), ("count".into(), column(count))]).expect("as many rows")
    };
    let requests = vec![request(1, 2.0), request(2, 3.0), request(1, 3.0), request(3, 2.0)];
    let (outcomes, course) =
        outcomes(&mut Repeat::new(), BatchSizes::ANY, None, Duration::MAX, requests).expect("answers");
    let shapes = outcomes.iter().map(|outcome| match outcome {
        Ok(outputs) => outputs.get("y").map(|y| y.shape().to_vec()),
        Err(_) => None,
    });
    assert_eq!(shapes.flatten().collect::<Vec<_>>(), [[1, 2], [2, 3], [1, 3], [3, 2]]);
    // A run for each count.
    assert_eq!(course.tally().execute, 2 * RUN);
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

/// Repeats its row, and leaves the axis of rows away if a number for all rows says so. Takes whole requests.
struct Squeeze(Signature, Vec<Vec<usize>>);

impl Squeeze {
    fn new() -> Squeeze {
        let spec = |name: &str, dims| TensorSpec::new(name, DataType::Fp32, dims);
        let flag = TensorSpec { rows: Rows::Shared, ..spec("flag", vec![]) };
        Squeeze(
            Signature { inputs: vec![spec("x", vec![Some(2)]), flag], outputs: vec![spec("y", vec![None])] },
            vec![],
        )
    }
}

impl Runner for Squeeze {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        self.1.push(batch.get("x").expect("x").shape().to_vec());
        let is_whole = self.0.is_whole(&batch);
        let is_set = matches!(batch.get("flag").map(Tensor::data), Some(Data::Fp32(flags)) if flags[0] > 0.0);
        let (shape, data) = batch.get("x").expect("x").clone().into_parts();
        let own = if is_whole { shape[1..].to_vec() } else { shape };
        let own = if is_set { vec![own.iter().product()] } else { own };
        let shape = if is_whole { [vec![1], own].concat() } else { own };
        Ok(Tensors::one("y", Tensor::new(shape, data).expect("shape")))
    }

    fn takes_whole_requests(&self) -> bool {
        true
    }

    fn may_change_form(&self) -> bool {
        true
    }
}

#[test]
fn a_request_whose_values_change_the_form_of_its_outputs_is_run_whole() {
    let request = |rows: usize, flag: f32| {
        let x = Tensor::new(vec![rows, 2], vec![rows as f32; rows * 2]).expect("shape");
        let flags = Tensor::new(vec![rows], vec![flag; rows]).expect("shape");
        Tensors::new(vec![("x".into(), x), ("flag".into(), flags)]).expect("as many rows")
    };
    let mut runner = Squeeze::new();
    let requests = vec![request(1, 1.0), request(2, 0.0), request(3, 1.0)];
    let (outcomes, course) = outcomes(&mut runner, BatchSizes::ANY, None, Duration::MAX, requests).expect("answers");
    let shapes: Vec<_> =
        outcomes.into_iter().map(|o| o.expect("an answer").get("y").expect("y").shape().to_vec()).collect();
    assert_eq!(shapes, [vec![1, 2], vec![2, 2], vec![1, 6]], "behind an axis of 1 if it was whole");
    assert_eq!([0, 1, 2].map(|place| course.is_whole(place)), [true, false, true]);
    assert_eq!(runner.1, [vec![4, 2], vec![1, 1, 2], vec![1, 3, 2], vec![2, 2]]);
    assert!(course.tally().has_refused, "its time is not that of such a batch");
}

#[test]
fn a_whole_request_joins_no_other_and_is_not_padded() {
    let mut runner = Squeeze::new();
    let signature = runner.signature().clone();
    let request = |x: usize| {
        let flag = Tensor::new(vec![], vec![0f32]).expect("a number");
        let x = Tensor::new(vec![x, 2], vec![1f32; x * 2]).expect("shape");
        Tensors::new(vec![("x".into(), x), ("flag".into(), flag)]).expect("named")
    };
    let none = || signature.check_whole(request(0)).expect("no rows");
    assert!(signature.is_whole(&none()));
    let requests = vec![none(), signature.check_whole(request(1)).expect("a row"), none()];
    let sizes = BatchSizes::rising(vec![4]).expect("one size");
    let (outcomes, course) = outcomes(&mut runner, &sizes, None, Duration::MAX, requests).expect("answers");
    assert_eq!(runner.1, [vec![1, 0, 2], vec![4, 2], vec![1, 0, 2]]);
    let last = outcomes.into_iter().next_back().expect("three").expect("an answer");
    assert_eq!(signature.whole_shapes(last).get("y").expect("y").shape(), [0, 2]);
    assert_eq!(course.tally().padding, 9);
}

/// Gives each row back, of any length, and adds one: padding is then one as well.
struct PlusOne(Signature);

impl PlusOne {
    fn new() -> PlusOne {
        let spec = |name: &str| TensorSpec::new(name, DataType::Fp32, vec![None, Some(2)]);
        PlusOne(Signature { inputs: vec![spec("x")], outputs: vec![spec("y")] })
    }
}

impl Runner for PlusOne {
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
    struct Counted(PlusOne, Vec<Vec<usize>>);
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
    let mut runner = Counted(PlusOne::new(), vec![]);
    let requests = vec![request(1, 3, 1.0), request(2, 5, 2.0), request(1, 1, 3.0)];
    let padding = learn(&|| Ok(Box::new(PlusOne::new())), &request(1, 8, 1.0)).expect("y is as long as x");
    let answers = serve(&mut runner, BatchSizes::ANY, padding, requests.clone()).expect("answers");
    assert_eq!(runner.1, [vec![4, 5, 2]]);
    let grouped = serve(&mut PlusOne::new(), BatchSizes::ANY, None, requests).expect("answers");
    assert_eq!(answers, grouped);
}

#[test]
fn outputs_that_break_the_signature_fail_those_who_ran_together_and_nobody_else() {
    /// Has one sum too few for rows of three.
    struct Short(Sum);
    impl Runner for Short {
        fn signature(&self) -> &Signature {
            self.0.signature()
        }
        fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            let is_three = batch.get("x").is_some_and(|x| x.shape()[1] == 3);
            let rows = batch.rows() - usize::from(is_three);
            self.0.run(batch.resize_rows(rows).expect("fewer rows"))
        }
    }
    let requests = vec![request(1, 3, 1.0), request(1, 5, 1.0), request(2, 3, 1.0), request(1, 5, 2.0)];
    let (outcomes, _) =
        outcomes(&mut Short(Sum::new()), BatchSizes::ANY, None, Duration::MAX, requests).expect("outcomes");
    for (i, outcome) in outcomes.iter().enumerate() {
        let told = match outcome {
            Err(Unserved::Failed(why)) => why.as_str(),
            _ => "",
        };
        assert_eq!(told.contains("break the signature: sum [2]"), i % 2 == 0, "{outcome:?}");
    }
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

type LookedUp = (Vec<Outcome>, bool, Vec<usize>);

fn look_up(indices: &[i64]) -> LookedUp {
    look_up_in(Table::new(), indices, Duration::MAX)
}

/// What each index gets, whether some was refused, and the rows of each run.
fn look_up_in(runner: Table, indices: &[i64], most: Duration) -> LookedUp {
    look_up_at(BatchSizes::ANY, runner, indices, most)
}

/// The same in batches of these sizes.
fn look_up_at(sizes: &BatchSizes, mut runner: Table, indices: &[i64], most: Duration) -> LookedUp {
    let request = |&i: &i64| Tensors::one("i", Tensor::new(vec![1, 1], vec![i]).expect("shape"));
    let requests = indices.iter().map(request).collect();
    let (outcomes, course) = outcomes(&mut runner, sizes, None, most, requests).expect("nothing fails");
    assert_eq!(course.tally().execute, RUN * runner.1.len() as u32);
    (outcomes, course.tally().has_refused, runner.1)
}

fn refusal(why: &str) -> Outcome {
    Err(Unserved::Input(why.into()))
}

fn found(i: i64) -> Outcome {
    Ok(Tensors::one("found", Tensor::new(vec![1, 1], vec![i * 100]).expect("shape")))
}

#[test]
fn a_request_that_the_model_refuses_costs_its_neighbours_nothing() {
    let (served, has_refused, _) = look_up(&[0, 1, 2, 3, 4, 12, 6, 7]);
    let refused = || refusal("index 12 is out of range for length 10");
    let wanted: Vec<_> = (0..8).map(|i| if i == 5 { refused() } else { found(i) }).collect();
    assert_eq!(served, wanted);
    assert!(has_refused, "its time is not that of such a batch");
}

#[test]
fn whose_request_is_refused_is_found_in_few_runs() {
    let mut indices = vec![1; 64];
    indices[37] = -1;
    let (_, _, runs) = look_up(&indices);
    assert_eq!(runs.len(), 1 + 2 * 6, "one run of all, then two of half as many for each halving");
    assert!(runs.iter().sum::<usize>() <= 3 * 64);
    let (served, has_refused, runs) = look_up(&[1; 64]);
    assert_eq!((served.len(), runs, has_refused), (64, vec![64], false));
}

#[test]
fn looking_for_refused_rows_ends_with_its_time_and_who_is_not_reached_is_told() {
    let mut indices = vec![1; 64];
    (indices[3], indices[40]) = (-1, -1);
    let (served, _, runs) = look_up_in(Table::new(), &indices, RUN * 13);
    assert_eq!(runs.len(), 14, "the one at which its time was over, and none more");
    assert_eq!(served[3], refusal("index -1 is out of range for length 10"));
    let told = served.iter().filter(|outcome| **outcome == Err(Unserved::Untold)).count();
    assert!(served[..32].iter().filter(|outcome| outcome.is_ok()).count() == 31 && told > 0, "{served:?}");
    let (served, _, runs) = look_up_in(Table::new(), &[1; 64], Duration::ZERO);
    assert_eq!((served, runs), (vec![found(1); 64], vec![64]), "nothing was refused");
}

#[test]
fn rows_that_the_model_names_cost_one_more_run_however_many_there_are() {
    let naming = || Table(Table::new().0, vec![], true);
    let indices: Vec<i64> = (0..64).map(|i| if i % 3 == 0 { 99 } else { i % 10 }).collect();
    let (served, has_refused, runs) = look_up_in(naming(), &indices, Duration::MAX);
    let wanted: Vec<_> = indices.iter().map(|&i| if i == 99 { refusal("no 99") } else { found(i) }).collect();
    assert_eq!(served, wanted);
    assert_eq!((runs, has_refused), (vec![64, 64 - 22], true));
    let (served, _, runs) = look_up_in(naming(), &[99, 99], Duration::MAX);
    assert_eq!((served, runs), (vec![refusal("no 99"), refusal("no 99")], vec![2]));
}

#[test]
fn a_copy_of_a_refused_row_that_fills_a_batch_is_nobody_s() {
    let sizes = BatchSizes::rising(vec![8]).unwrap();
    for (indices, runs) in [(vec![99], vec![8]), (vec![1, 2, 99], vec![8, 8]), (vec![99, 1, 2], vec![8, 8])] {
        let naming = Table(Table::new().0, vec![], true);
        let (served, _, ran) = look_up_at(&sizes, naming, &indices, Duration::MAX);
        let wanted: Vec<_> = indices.iter().map(|&i| if i == 99 { refusal("no 99") } else { found(i) }).collect();
        assert_eq!((served, ran), (wanted, runs));
    }
}

#[test]
fn a_runner_that_refuses_against_its_word_fails_the_batch() {
    struct Sure(Table);
    impl Runner for Sure {
        fn signature(&self) -> &Signature {
            self.0.signature()
        }
        fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            self.0.run(batch)
        }
        fn may_refuse(&self) -> bool {
            false
        }
    }
    for is_naming in [false, true] {
        let mut sure = Sure(Table(Table::new().0, vec![], is_naming));
        let request = |&i: &i64| Tensors::one("i", Tensor::new(vec![1, 1], vec![i]).expect("shape"));
        let requests = [1, 99].iter().map(request).collect();
        let failed = outcomes(&mut sure, BatchSizes::ANY, None, Duration::MAX, requests);
        assert!(failed.is_err(), "the other's rows are gone");
    }
}

#[test]
fn a_request_that_finds_no_memory_may_come_again_and_its_neighbours_are_answered() {
    let signature = Arc::new(Sum::new().signature().clone());
    let sizes = BatchSizes::ANY.clone();
    let (may_refuse, may_change_form, most) = (true, false, Duration::MAX);
    let manner = Manner { signature, sizes, padding: None, may_refuse, may_change_form, most };
    let mut course = Course::new(Arc::new(manner), vec![request(1, 2, 1.0), request(1, 2, 2.0)]).unwrap();
    let busy = || Err(RunnerError::Busy("others have it".into()));
    let mut answers = vec![Sum::new().run(request(1, 2, 2.0)), busy(), busy()];
    let outcomes = loop {
        match course.next().unwrap() {
            Next::Run(_) => course.ran(answers.pop().expect("three runs"), RUN).unwrap(),
            Next::Done(outcomes) => break outcomes,
        }
    };
    assert_eq!(outcomes[0], Err(Unserved::Absent("others have it".into())));
    assert!(outcomes[1].is_ok(), "{outcomes:?}");
}
