//! What padding answers, held against each request alone, by models of many shapes.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::batcher::BatchSizes;
use crate::registry::course::{Course, Manner, Next, Outcome, Unserved};
use crate::runner::{Runner, RunnerError, Signature, TensorSpec};
use crate::tensor::{Data, DataType, Tensor};

/// How long a free axis of an output is.
#[derive(Debug, Clone, Copy)]
enum Axis {
    Width(usize),
    Of(usize),
    /// As long as that input length, up to a place where the model cuts it.
    Capped(usize, usize),
    /// One longer than that input length.
    Longer(usize),
}

/// A model whose answers padding does not change: an element is the sum of a row and of the elements at its own place. Inputs of
/// one set must be equally long.
#[derive(Debug, Clone)]
struct Shaped {
    /// The set of each input.
    sets: Vec<usize>,
    /// The axes of each output.
    outputs: Vec<Vec<Axis>>,
    /// Lengths are multiples of this.
    step: usize,
    /// No length is greater.
    most: usize,
    /// Whether a length of 1 goes together with any.
    broadcasts: bool,
    signature: Signature,
}

impl Shaped {
    fn new(sets: Vec<usize>, outputs: Vec<Vec<Axis>>) -> Shaped {
        let spec = |name: String, axes: usize| TensorSpec::new(&*name, DataType::Fp32, vec![None; axes]);
        let inputs = (0..sets.len()).map(|i| spec(format!("x{i}"), 1)).collect();
        let signature = Signature {
            inputs,
            outputs: outputs.iter().enumerate().map(|(i, axes)| spec(format!("y{i}"), axes.len())).collect(),
        };
        Shaped { sets, outputs, step: 1, most: usize::MAX, broadcasts: false, signature }
    }

    fn request(&self, lengths: &[usize]) -> Tensors {
        let entries = self.signature.inputs.iter().zip(lengths).enumerate().map(|(i, (spec, &length))| {
            let data: Vec<f32> = (0..length).map(|at| (1 + (at * 7 + i * 3 + length) % 11) as f32).collect();
            (Arc::clone(&spec.name), Tensor::new(vec![1, length], data).unwrap())
        });
        Tensors::new(entries.collect()).unwrap()
    }

    fn learn(&self, base: &[usize]) -> Result<Option<Arc<LengthRules>>, String> {
        learn(&|| Ok(Box::new(self.clone())), &self.request(base))
    }
}

impl Runner for Shaped {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        let inputs: Vec<(usize, Vec<f32>)> = batch
            .iter()
            .map(|(_, tensor)| match tensor.data() {
                Data::Fp32(data) => (tensor.shape()[1], data.clone()),
                other => panic!("inputs are FP32, not {other:?}"),
            })
            .collect();
        let mut lengths = BTreeMap::new();
        for (&set, (length, _)) in self.sets.iter().zip(&inputs) {
            let known = lengths.entry(set).or_insert(*length);
            if self.broadcasts && (*known == 1 || *length == 1) {
                *known = (*known).max(*length);
            }
            if *known != *length && !(self.broadcasts && *length == 1) {
                return Err(RunnerError::Input("lengths differ".into()));
            }
            if length % self.step != 0 || *length > self.most {
                return Err(RunnerError::Input("no such length".into()));
            }
        }
        // The element of the set's first input, 0 where there is none.
        let element = |set: usize, row: usize, at: usize| {
            let input = self.sets.iter().position(|of| *of == set).expect("each set has an input");
            let (length, data) = &inputs[input];
            let at = if self.broadcasts && *length == 1 { 0 } else { at };
            if at < *length { data[row * length + at] } else { 0.0 }
        };
        let output = |(spec, axes): (&TensorSpec, &Vec<Axis>)| {
            let dims: Vec<usize> = axes
                .iter()
                .map(|axis| match *axis {
                    Axis::Width(width) => width,
                    Axis::Of(set) => lengths[&set],
                    Axis::Capped(set, most) => lengths[&set].min(most),
                    Axis::Longer(set) => lengths[&set] + 1,
                })
                .collect();
            let mut data = Vec::new();
            for row in 0..batch.rows() {
                let all: f32 = inputs.iter().flat_map(|(length, data)| &data[row * length..(row + 1) * length]).sum();
                for cell in 0..dims.iter().product() {
                    let mut rest: usize = cell;
                    let mut value = all;
                    for (axis, &dim) in axes.iter().zip(&dims).rev() {
                        value += match *axis {
                            Axis::Width(_) => (rest % dim) as f32,
                            Axis::Of(set) | Axis::Capped(set, _) | Axis::Longer(set) => element(set, row, rest % dim),
                        };
                        rest /= dim;
                    }
                    data.push(value);
                }
            }
            let shape: Vec<usize> = std::iter::once(batch.rows()).chain(dims).collect();
            (Arc::clone(&spec.name), Tensor::new(shape, data).unwrap())
        };
        Ok(Tensors::new(self.signature.outputs.iter().zip(&self.outputs).map(output).collect()).unwrap())
    }
}

/// What each request gets, and the shapes of the first input in each run.
fn serve(model: &Shaped, padding: Option<Arc<LengthRules>>, requests: Vec<Tensors>) -> (Vec<Outcome>, Vec<Vec<usize>>) {
    let (signature, sizes) = (Arc::new(model.signature.clone()), BatchSizes::ANY.clone());
    let manner = Manner { signature, sizes, padding, may_refuse: true, may_change_form: false, most: Duration::MAX };
    let (mut model, mut runs) = (model.clone(), Vec::new());
    let mut course = Course::new(Arc::new(manner), requests).unwrap();
    loop {
        match course.next().unwrap() {
            Next::Run(batch) => {
                runs.push(batch.get("x0").unwrap().shape().to_vec());
                course.ran(model.run(batch), Duration::from_millis(1)).unwrap();
            }
            Next::Done(outcomes) => return (outcomes, runs),
        }
    }
}

fn alone(model: &Shaped, requests: &[Tensors]) -> Vec<Outcome> {
    requests.iter().flat_map(|request| serve(model, None, vec![request.clone()]).0).collect()
}

const TIED: [usize; 2] = [0, 0];

#[test]
fn a_width_that_equals_a_length_is_not_cut() {
    let model = Shaped::new(TIED.to_vec(), vec![vec![Axis::Width(24)], vec![Axis::Of(0), Axis::Width(8)]]);
    let padding = model.learn(&[8, 8]).unwrap();
    let requests: Vec<Tensors> = [5, 24, 8, 5].map(|length| model.request(&[length, length])).into();
    let (outcomes, runs) = serve(&model, padding, requests.clone());
    assert_eq!((outcomes, runs), (alone(&model, &requests), vec![vec![4, 24]]));
}

#[test]
fn widths_equal_to_a_trial_length_are_learned() {
    for width in 1..=80 {
        for base in [8, 16, 64] {
            let model = Shaped::new(TIED.to_vec(), vec![vec![Axis::Width(width), Axis::Of(0)]]);
            let rules = model.learn(&[base, base]).unwrap().unwrap();
            assert_eq!(rules.outputs, [[AxisLength::Constant(width), AxisLength::Follows(0)]], "{width} at {base}");
            assert_eq!(rules.inputs, [[AxisLength::Follows(0)], [AxisLength::Follows(0)]]);
        }
    }
}

#[test]
fn independent_lengths_are_learned_one_by_one_and_tied_ones_together() {
    // Two texts of two inputs each, and something else.
    let model = Shaped::new(vec![0, 1, 0, 1, 2], vec![vec![Axis::Of(1), Axis::Of(0)], vec![Axis::Of(2)]]);
    for base in [[8; 5], [16, 8, 16, 8, 1], [1; 5]] {
        let rules = model.learn(&base).unwrap().unwrap();
        let follows = |sets: &[usize]| sets.iter().map(|&set| vec![AxisLength::Follows(set)]).collect::<Vec<_>>();
        assert_eq!(rules.inputs, follows(&[0, 1, 0, 1, 2]), "{base:?}");
        assert_eq!(rules.outputs, [vec![AxisLength::Follows(1), AxisLength::Follows(0)], vec![AxisLength::Follows(2)]]);
    }
}

#[test]
fn a_length_of_one_that_broadcasts_hides_no_tie() {
    let model = Shaped { broadcasts: true, ..Shaped::new(TIED.to_vec(), vec![vec![Axis::Of(0), Axis::Width(9)]]) };
    for base in [1, 8] {
        let padding = model.learn(&[base, base]).unwrap();
        assert!(
            padding.as_ref().is_some_and(|rules| rules.inputs == [[AxisLength::Follows(0)], [AxisLength::Follows(0)]])
        );
        let requests: Vec<Tensors> = [[5, 1], [9, 9], [1, 1], [4, 4]].map(|lengths| model.request(&lengths)).into();
        let (outcomes, _) = serve(&model, padding, requests.clone());
        assert_eq!(outcomes, alone(&model, &requests), "at {base}");
    }
}

#[test]
fn texts_of_three_inputs_each_are_told_apart() {
    let model = Shaped::new(vec![0, 0, 0, 1, 1, 1], vec![vec![Axis::Of(0)], vec![Axis::Of(1), Axis::Width(16)]]);
    let rules = model.learn(&[16; 6]).unwrap().unwrap();
    let lengths = rules.lengths_of(&model.request(&[5, 5, 5, 9, 9, 9]));
    assert_eq!(lengths, Some(vec![5, 9]));
    assert_eq!(rules.lengths_of(&model.request(&[5, 5, 9, 9, 9, 9])), None);
}

#[test]
fn models_that_take_multiples_alone_are_learned() {
    for (step, base) in [(8, 16), (8, 64), (32, 32), (32, 64), (32, 224), (100, 16_000), (512, 512), (7, 49)] {
        let model = Shaped { step, ..Shaped::new(TIED.to_vec(), vec![vec![Axis::Of(0), Axis::Width(96)]]) };
        let rules = model.learn(&[base, base]).unwrap_or_else(|why| panic!("{step} at {base}: {why}")).unwrap();
        assert_eq!(rules.outputs, [[AxisLength::Follows(0), AxisLength::Constant(96)]]);
    }
}

#[test]
fn answers_that_are_cut_or_longer_are_rejected_at_load() {
    for axis in [Axis::Capped(0, 8), Axis::Capped(0, 17), Axis::Longer(0)] {
        let model = Shaped::new(TIED.to_vec(), vec![vec![axis]]);
        let why = model.learn(&[16, 16]).unwrap_err();
        assert!(why.contains("axis 1 of output 'y0' has length") && why.contains("use lengths = \"group\""), "{why}");
    }
    let picky = Shaped { step: 16, most: 32, ..Shaped::new(TIED.to_vec(), vec![vec![Axis::Of(0)]]) };
    let why = picky.learn(&[16, 16]).unwrap_err();
    assert!(why.contains("axis 1 of input 'x0' ran with 2 lengths (16, 32)"), "{why}");
    let fixed = Shaped { step: 16, most: 16, ..picky };
    assert!(fixed.learn(&[16, 16]).unwrap_err().contains("no other length than the example's"));
}

#[test]
fn a_length_that_values_decide_is_rejected_at_load() {
    /// Gives the elements that are not 0, as many as there are.
    struct Nonzero(Signature);
    impl Runner for Nonzero {
        fn signature(&self) -> &Signature {
            &self.0
        }
        fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            let Some(Data::Fp32(x)) = batch.get("x0").map(Tensor::data) else { panic!("it is FP32") };
            let found: Vec<f32> = x.iter().copied().filter(|x| *x != 0.0).collect();
            Ok(Tensors::one("y0", Tensor::new(vec![1, found.len()], found).unwrap()))
        }
    }
    let model = Shaped::new(vec![0], vec![vec![Axis::Of(0)]]);
    let why = learn(&|| Ok(Box::new(Nonzero(model.signature.clone()))), &model.request(&[8])).unwrap_err();
    assert!(why.contains("it depends on the values"), "{why}");
}

#[test]
fn an_input_that_is_a_place_in_a_row_is_rejected_at_load() {
    /// Gives the element of each row at the place that comes with it, from the end if that is negative; or ignores the place.
    #[derive(Clone)]
    struct Picks {
        signature: Signature,
        ignores: bool,
    }
    impl Runner for Picks {
        fn signature(&self) -> &Signature {
            &self.signature
        }
        fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            let (Some(x), Some(at)) = (batch.get("x"), batch.get("at")) else { panic!("both are there") };
            let (Data::Fp32(data), Data::Int64(places)) = (x.data(), at.data()) else { panic!("of their types") };
            let length = x.shape()[1];
            let pick = |(row, &place): (&[f32], &i64)| {
                let place = if self.ignores { 0 } else { place };
                let at = if place < 0 { place + length as i64 } else { place };
                row.get(usize::try_from(at).ok()?).copied()
            };
            let picked: Option<Vec<f32>> = data.chunks(length).zip(places).map(pick).collect();
            let picked = picked.ok_or_else(|| RunnerError::Input("no such place".into()))?;
            Ok(Tensors::one("y", Tensor::new(vec![picked.len()], picked).expect("one a row")))
        }
    }
    let spec = |name: &str, datatype, dims| TensorSpec::new(name, datatype, dims);
    let inputs = vec![spec("x", DataType::Fp32, vec![None]), spec("at", DataType::Int64, vec![])];
    let signature = Signature { inputs, outputs: vec![spec("y", DataType::Fp32, vec![])] };
    let example = vec![
        ("x".into(), Tensor::new(vec![1, 8], vec![1f32; 8]).unwrap()),
        ("at".into(), Tensor::new(vec![1], vec![0i64]).unwrap()),
    ];
    let example = Tensors::new(example).unwrap();
    let learned = |ignores| {
        let model = Picks { signature: signature.clone(), ignores };
        learn(&|| Ok(Box::new(model.clone())), &example)
    };
    let why = learned(false).unwrap_err();
    assert!(why.starts_with("input 'at' is a place in a row"), "{why}");
    assert!(learned(true).is_ok());
}

#[test]
fn a_model_that_counts_its_padding_is_rejected_at_load() {
    /// The mean of a row, padding and all.
    struct Mean(Signature);
    impl Runner for Mean {
        fn signature(&self) -> &Signature {
            &self.0
        }
        fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            let Some(Data::Fp32(x)) = batch.get("x0").map(Tensor::data) else { panic!("it is FP32") };
            let mean = x.iter().sum::<f32>() / x.len() as f32;
            Ok(Tensors::one("y0", Tensor::new(vec![1, 1], vec![mean]).unwrap()))
        }
    }
    let model = Shaped::new(vec![0], vec![vec![Axis::Width(1)]]);
    let why = learn(&|| Ok(Box::new(Mean(model.signature.clone()))), &model.request(&[8])).unwrap_err();
    assert!(why.starts_with("output 'y0' changes when rows are padded with zeros"), "{why}");
}

#[test]
fn a_runner_that_panics_at_a_length_is_built_anew() {
    struct Touchy(Shaped, bool);
    impl Runner for Touchy {
        fn signature(&self) -> &Signature {
            self.0.signature()
        }
        fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            assert!(!self.1, "it has panicked before");
            self.1 = true;
            let outputs = self.0.run(batch).expect("lengths that go together");
            self.1 = false;
            Ok(outputs)
        }
    }
    let model = Shaped::new(TIED.to_vec(), vec![vec![Axis::Of(0)]]);
    let rules = learn(&|| Ok(Box::new(Touchy(model.clone(), false))), &model.request(&[8, 8])).unwrap().unwrap();
    assert_eq!(rules.inputs, [[AxisLength::Follows(0)], [AxisLength::Follows(0)]]);
}

#[test]
fn requests_that_the_model_rejects_alone_are_not_padded_into_validity() {
    let model = Shaped::new(TIED.to_vec(), vec![vec![Axis::Width(8)]]);
    let padding = model.learn(&[8, 8]).unwrap();
    let requests: Vec<Tensors> = [[5, 5], [9, 7], [24, 24]].map(|lengths| model.request(&lengths)).into();
    let (outcomes, runs) = serve(&model, padding, requests.clone());
    assert_eq!(outcomes[1], Err(Unserved::Input("lengths differ".into())));
    assert_eq!(outcomes, alone(&model, &requests));
    assert_eq!(runs, [[2, 24], [1, 9]]);
}

#[test]
fn outputs_that_are_not_as_foreseen_are_run_again_by_length() {
    // The model cuts beyond all that was tried.
    let model = Shaped::new(TIED.to_vec(), vec![vec![Axis::Capped(0, 512)]]);
    let padding = model.learn(&[16, 16]).unwrap();
    let requests: Vec<Tensors> = [300, 600, 300, 1000].map(|length| model.request(&[length, length])).into();
    let (outcomes, runs) = serve(&model, padding.clone(), requests.clone());
    assert_eq!(outcomes, alone(&model, &requests));
    assert_eq!(runs, [[4, 1000], [2, 300], [1, 600], [1, 1000]]);
    let (_, runs) = serve(&model, padding, requests[..1].iter().chain([&model.request(&[9, 9])]).cloned().collect());
    assert_eq!(runs, [[2, 300]], "which is as foreseen");
}

#[test]
fn a_request_that_is_too_long_costs_its_neighbours_nothing() {
    let model = Shaped { most: 100, ..Shaped::new(TIED.to_vec(), vec![vec![Axis::Of(0)]]) };
    let padding = model.learn(&[16, 16]).unwrap();
    let lengths = [30, 7, 101, 12, 64, 9, 100, 5];
    let requests: Vec<Tensors> = lengths.map(|length| model.request(&[length, length])).into();
    let (outcomes, runs) = serve(&model, padding, requests.clone());
    assert_eq!(outcomes, alone(&model, &requests));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1);
    assert_eq!(runs, [[8, 101], [4, 12], [4, 101], [2, 64], [2, 101], [1, 100], [1, 101]]);
}

#[test]
fn a_padded_row_that_the_model_names_is_run_without_padding_first() {
    /// Rejects rows that end in zero, by name.
    struct Naming(Shaped);
    impl Runner for Naming {
        fn signature(&self) -> &Signature {
            self.0.signature()
        }
        fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            let Some(Data::Fp32(x)) = batch.get("x0").map(Tensor::data) else { panic!("it is FP32") };
            let rows = x.chunks(x.len() / batch.rows()).enumerate();
            let named: Vec<_> = rows.filter(|(_, row)| row.ends_with(&[0.0])).map(|(i, _)| (i, "0".into())).collect();
            if named.is_empty() { self.0.run(batch) } else { Err(RunnerError::Rows(named)) }
        }
    }
    let model = Shaped::new(vec![0], vec![vec![Axis::Of(0)]]);
    let padding = model.learn(&[8]).unwrap();
    let bad = Tensors::one("x0", Tensor::new(vec![1, 3], vec![1.0_f32, 2.0, 0.0]).unwrap());
    let requests = vec![model.request(&[5]), bad, model.request(&[9]), model.request(&[5])];
    let (signature, sizes) = (Arc::new(model.signature.clone()), BatchSizes::ANY.clone());
    let manner = Manner { signature, sizes, padding, may_refuse: true, may_change_form: false, most: Duration::MAX };
    let mut course = Course::new(Arc::new(manner), requests.clone()).unwrap();
    let mut naming = Naming(model.clone());
    let outcomes = loop {
        match course.next().unwrap() {
            Next::Run(batch) => course.ran(naming.run(batch), Duration::from_millis(1)).unwrap(),
            Next::Done(outcomes) => break outcomes,
        }
    };
    let mut wanted = alone(&model, &requests);
    wanted[1] = Err(Unserved::Input("0".into()));
    assert_eq!(outcomes, wanted);
}

/// A model of up to three sets of inputs, and whether all of its axes are constant or as long as a set.
fn models() -> impl Strategy<Value = (Shaped, bool)> {
    let sets = (1_usize..=3).prop_flat_map(|sets| {
        (
            Just(sets),
            proptest::collection::vec(0..sets, 0..3).prop_map(move |more| (0..sets).chain(more).collect::<Vec<_>>()),
        )
    });
    let outputs = sets.prop_flat_map(|(count, sets)| {
        let axis = prop_oneof![
            6 => (1_usize..=64).prop_map(Axis::Width),
            6 => (0..count).prop_map(Axis::Of),
            1 => (0..count, 1_usize..=90).prop_map(|(set, most)| Axis::Capped(set, most)),
            1 => (0..count).prop_map(Axis::Longer),
        ];
        let axes = proptest::collection::vec(proptest::collection::vec(axis, 1..=2), 1..=3);
        (Just(sets), axes, prop_oneof![3 => Just(1_usize), 1 => Just(8), 1 => Just(32)])
    });
    outputs.prop_map(|(sets, outputs, step)| {
        let is_plain = outputs.iter().flatten().all(|axis| matches!(axis, Axis::Width(_) | Axis::Of(_)));
        (Shaped { step, ..Shaped::new(sets, outputs) }, is_plain)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Each request gets what it gets alone, whatever shares its batch, at every model that loads; and models whose outputs are
    /// constant or as long as an input do load.
    #[test]
    fn padded_answers_are_those_of_each_request_alone(
        (model, is_plain) in models(),
        base in proptest::collection::vec(1_usize..=4, 3),
        requests in proptest::collection::vec((proptest::collection::vec(1_usize..=60, 3), 0_usize..8, 1_usize..=60), 1..=8),
    ) {
        let lengths = |of_sets: &[usize]| model.sets.iter().map(|&set| of_sets[set] * model.step).collect::<Vec<_>>();
        let base: Vec<usize> = base.iter().map(|n| n * 8 / model.step.min(8)).collect();
        let learned = model.learn(&lengths(&base));
        prop_assert!(learned.is_ok() || !is_plain, "{learned:?}");
        let Ok(padding) = learned else { return Ok(()) };
        let requests: Vec<Tensors> = requests
            .iter()
            .map(|(of_sets, wrong, length)| {
                let mut lengths = lengths(of_sets);
                // Some disagree with those that they are tied to.
                if let Some(input) = lengths.get_mut(*wrong) {
                    *input = length * model.step;
                }
                model.request(&lengths)
            })
            .collect();
        let (outcomes, _) = serve(&model, padding, requests.clone());
        prop_assert_eq!(outcomes, alone(&model, &requests));
    }
}
