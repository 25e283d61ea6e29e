//! Which inputs' values decide how long outputs are, and which way a run goes.
//!
//! A trial sees a few rows. What else may happen is in the graph: boxes that are kept or not, a loop that ends when every row
//! is done, a branch for some values. Where an input that has rows decides so, rows may change each other's answers
//! without a trial ever showing it.

use std::collections::{HashMap, HashSet};

use super::ops::Place;
use super::proto::{GraphProto, NodeProto};

/// A set of a graph's inputs, by position. All beyond the last bit share it: what one of them decides is then said of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Inputs(u64);

impl Inputs {
    /// The input at this position alone.
    pub(super) fn one(position: usize) -> Inputs {
        Inputs(1 << position.min(63))
    }

    pub(super) fn and(self, other: Inputs) -> Inputs {
        Inputs(self.0 | other.0)
    }

    pub(super) fn meets(self, other: Inputs) -> bool {
        self.0 & other.0 != 0
    }
}

/// What values decide.
#[derive(Debug, Clone, Default)]
pub(super) struct Influence {
    /// Inputs whose values decide the shape of each output.
    pub(super) lengths: Vec<Inputs>,
    /// Inputs whose values decide those of each output.
    pub(super) values: Vec<Inputs>,
    /// Inputs whose values decide which branch is taken or when a loop ends, and the first node where they do.
    pub(super) turns: Vec<(Inputs, Place)>,
    /// Whose size values decide.
    pub(super) sizes: Sizes,
}

/// The values of a graph and its bodies whose size values of inputs decide, by name. All that is computed in a loop is among them: what an
/// iteration hands on may grow with each, whatever decides how many there are.
#[derive(Debug, Clone, Default)]
pub(super) struct Sizes {
    names: HashSet<String>,
    /// All of them, since not all was looked at.
    all: bool,
}

impl Sizes {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.all
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }
}

impl Influence {
    /// What is decided by values in a graph, whose inputs that callers give have these names.
    pub(super) fn of(graph: &GraphProto, given: &[&str]) -> Influence {
        let mut walk = Walk::default();
        let seeds = given
            .iter()
            .enumerate()
            .map(|(i, name)| (*name, Traits { values: Inputs::one(i), shape: Inputs::default() }));
        let mut outputs = walk.graph(graph, &seeds.collect(), None);
        if walk.nodes > MOST_NODES {
            // Of what was not looked at to its end, everything may decide everything.
            outputs.fill(Traits { values: Inputs(u64::MAX), shape: Inputs(u64::MAX) });
            let first = graph.node.iter().find(|node| node.op_type == "Loop").or(graph.node.first());
            first.into_iter().for_each(|node| walk.turn(node, Inputs(u64::MAX)));
            walk.sizes.all = true;
        }
        let (values, lengths) = outputs.into_iter().map(|traits| (traits.values, traits.shape)).unzip();
        Influence { lengths, values, turns: walk.turns, sizes: walk.sizes }
    }

    /// The first node at which values of `inputs` decide the way of a run.
    pub(super) fn turn(&self, inputs: Inputs) -> Option<&Place> {
        self.turns.iter().find(|(own, _)| own.meets(inputs)).map(|(_, place)| place)
    }
}

/// The inputs that decide a value's elements, and its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Traits {
    values: Inputs,
    shape: Inputs,
}

impl Traits {
    fn and(self, other: Traits) -> Traits {
        Traits { values: self.values.and(other.values), shape: self.shape.and(other.shape) }
    }
}

/// Names and what is known of them, here and in the graphs around.
struct Scope<'a> {
    known: HashMap<&'a str, Traits>,
    around: Option<&'a Scope<'a>>,
}

impl Scope<'_> {
    /// Weights are decided by nothing.
    fn look_up(&self, name: &str) -> Traits {
        let here = self.known.get(name).copied();
        here.or_else(|| self.around.map(|around| around.look_up(name))).unwrap_or_default()
    }
}

/// Most nodes that are looked at, those of a loop in each pass, with the values that it carries: loops within loops multiply
/// their passes.
const MOST_NODES: usize = 1 << 20;

#[derive(Default)]
struct Walk {
    turns: Vec<(Inputs, Place)>,
    sizes: Sizes,
    nodes: usize,
    /// In how many loops the graph is that is looked at.
    loops: usize,
    /// What shorter texts are filled up with so far.
    pads: HashSet<Vec<u8>>,
}

impl Walk {
    /// The outputs of a graph whose inputs are known.
    fn graph(&mut self, graph: &GraphProto, known: &HashMap<&str, Traits>, around: Option<&Scope<'_>>) -> Vec<Traits> {
        let mut scope = Scope { known: known.clone(), around };
        // A weight inside of a body may have the name of a value outside.
        for weight in &graph.initializer {
            scope.known.entry(weight.name.as_str()).or_default();
        }
        if self.loops > 0 {
            graph.input.iter().for_each(|input| self.size(&input.name));
        }
        for node in &graph.node {
            self.nodes += 1;
            if self.nodes > MOST_NODES {
                break;
            }
            let outputs = self.node(node, &scope);
            for (i, name) in node.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
                let traits = outputs.get(i).or(outputs.last()).copied().unwrap_or_default();
                if traits.shape != Inputs::default() || self.loops > 0 || is_loop(node) {
                    self.size(name);
                }
                scope.known.insert(name, traits);
            }
        }
        graph.output.iter().map(|output| scope.look_up(&output.name)).collect()
    }

    /// The outputs of a node; where there are fewer than it has, the last stands for all others.
    fn node(&mut self, node: &NodeProto, scope: &Scope<'_>) -> Vec<Traits> {
        let inputs: Vec<Traits> = node.input.iter().map(|name| scope.look_up(name)).collect();
        let all = inputs.iter().copied().fold(Traits::default(), Traits::and);
        let behind = inputs.iter().skip(1).copied().fold(Traits::default(), Traits::and).values;
        let lasting = |shape: Inputs| vec![Traits { values: all.values, shape: all.shape.and(shape) }];
        self.pads.extend(pads(node));
        match node.op_type.as_str() {
            "Shape" | "Size" => vec![Traits { values: all.shape, shape: Inputs::default() }],
            "ConstantOfShape" => vec![Traits { values: Inputs::default(), shape: all.values.and(all.shape) }],
            // As many as there are of something.
            "NonZero" | "NonMaxSuppression" | "Unique" | "Compress" | "Range" | "StringSplit" | "Tokenizer"
            | "BlackmanWindow" | "HammingWindow" | "HannWindow" | "MelWeightMatrix" => lasting(all.values),
            "StringNormalizer" if leaves_words_out(node) => {
                // A word that it leaves out is a row less, unless it is the only one.
                self.turn(node, all.values);
                lasting(all.values)
            }
            // It counts words, of which it knows so many; of those that shorter texts are filled up with, as many as a text is longer.
            "TfIdfVectorizer" if !self.counts_pads(node) => {
                vec![Traits { values: all.values, shape: Inputs::default() }]
            }
            // As many as an input says.
            "Reshape" | "Expand" | "Tile" | "Slice" | "Pad" | "Resize" | "Upsample" | "TopK" | "OneHot" | "Split"
            | "CenterCropPad" | "MaxUnpool" | "Col2Im" | "DFT" | "STFT" | "SequenceAt" | "SplitToSequence"
            | "CropAndResize" | "AffineGrid" => lasting(behind),
            // The axes that are put in or taken away.
            "Squeeze" | "Unsqueeze" | "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceMax"
            | "ReduceMean" | "ReduceMin" | "ReduceProd" | "ReduceSum" | "ReduceSumSquare" => lasting(behind),
            "If" => self.branch(node, scope, all),
            "Loop" => self.repeat(node, scope, &inputs),
            _ => {
                self.loops += usize::from(is_loop(node));
                let bodies = node.bodies();
                let bodies: Vec<Traits> = bodies.flat_map(|body| self.body(body, &inputs, scope)).collect();
                self.loops -= usize::from(is_loop(node));
                vec![bodies.into_iter().fold(all, Traits::and)]
            }
        }
    }

    fn branch(&mut self, node: &NodeProto, scope: &Scope<'_>, condition: Traits) -> Vec<Traits> {
        self.turn(node, condition.values);
        let decided = Traits { values: condition.values, shape: condition.values };
        let mut outputs = vec![decided; node.output.len()];
        for body in node.bodies() {
            let found = self.body(body, &[], scope);
            outputs.iter_mut().zip(found).for_each(|(own, found)| *own = own.and(found));
        }
        outputs
    }

    fn repeat(&mut self, node: &NodeProto, scope: &Scope<'_>, inputs: &[Traits]) -> Vec<Traits> {
        let Some(body) = node.attribute.iter().find_map(|attribute| attribute.g.as_ref()) else { return Vec::new() };
        let at = |i: usize| inputs.get(i).copied().unwrap_or_default();
        let (count, mut condition) = (at(0), at(1));
        let mut carried: Vec<Traits> = inputs.get(2..).unwrap_or_default().to_vec();
        self.loops += 1;
        // Each pass adds an input to some value, or is the last.
        let outputs = loop {
            self.nodes += carried.len();
            let arguments: Vec<Traits> =
                [Traits::default(), condition].into_iter().chain(carried.iter().copied()).collect();
            let outputs = self.body(body, &arguments, scope);
            let before = (condition, carried.clone());
            condition = condition.and(outputs.first().copied().unwrap_or_default());
            carried.iter_mut().zip(outputs.iter().skip(1)).for_each(|(own, found)| *own = own.and(*found));
            if (condition, carried.clone()) == before || self.nodes > MOST_NODES {
                break outputs;
            }
        };
        let ends = count.values.and(condition.values);
        self.loops -= 1;
        self.turn(node, ends);
        let decided = Traits { values: ends, shape: ends };
        let collected = outputs.into_iter().skip(1 + carried.len());
        carried.into_iter().chain(collected).map(|own| own.and(decided)).collect()
    }

    /// The outputs of a body with these arguments.
    fn body(&mut self, body: &GraphProto, arguments: &[Traits], scope: &Scope<'_>) -> Vec<Traits> {
        let named = body.input.iter().map(|input| input.name.as_str()).zip(arguments.iter().copied());
        self.graph(body, &named.collect(), Some(scope))
    }

    /// Whether the words that a `TfIdfVectorizer` counts may be such as texts are filled up with. Of numbers, that is not known.
    fn counts_pads(&self, node: &NodeProto) -> bool {
        let known = |word: &Vec<u8>| self.pads.contains(word);
        let mut pool = node.attribute.iter().filter(|attribute| attribute.name.starts_with("pool_"));
        pool.any(|pool| pool.name != "pool_strings" || pool.strings.iter().any(known))
    }

    /// Values decide the size of what is called so, here or elsewhere.
    fn size(&mut self, name: &str) {
        if !self.sizes.names.contains(name) {
            self.sizes.names.insert(name.to_owned());
        }
    }

    fn turn(&mut self, node: &NodeProto, by: Inputs) {
        let is_new = |(own, place): &(Inputs, Place)| own.and(by) != *own || place.node != node.label();
        if by != Inputs::default() && self.turns.iter().all(is_new) {
            self.turns.push((by, Place { operator: node.qualified(), node: node.label().to_owned() }));
        }
    }
}

/// Whether a `StringNormalizer` has stop words.
fn leaves_words_out(node: &NodeProto) -> bool {
    node.attribute.iter().any(|attribute| attribute.name == "stopwords" && !attribute.strings.is_empty())
}

/// What a node fills texts up with that fall into fewer pieces than others, or puts around the pieces of all where one has any.
fn pads(node: &NodeProto) -> Vec<Vec<u8>> {
    let given = |name: &str| node.attribute.iter().find(|attribute| attribute.name == name);
    match node.op_type.as_str() {
        "StringSplit" => vec![Vec::new()],
        "Tokenizer" => {
            let fill = given("pad_value").map(|pad| pad.s.clone()).unwrap_or_default();
            let marks = if given("mark").is_some_and(|mark| mark.i != 0) { vec![vec![2], vec![3]] } else { Vec::new() };
            std::iter::once(fill).chain(marks).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether it runs its body more than once.
fn is_loop(node: &NodeProto) -> bool {
    node.op_type != "If" && node.bodies().next().is_some()
}

#[cfg(test)]
mod tests {
    use super::super::author::{Attribute, Author, FREE};
    use super::super::proto::AttributeProto;
    use super::*;

    fn influence(author: Author) -> Influence {
        Influence::of(&author.body(), &["x", "n"])
    }

    const X: Inputs = Inputs(1);
    const N: Inputs = Inputs(2);

    #[test]
    fn boxes_that_are_kept_or_not_are_as_many_as_the_values_say() {
        let author = Author::new(17).node("Relu", &["x"], &["h"], &[]).node("NonZero", &["h"], &["places"], &[]);
        let author = author.node("Shape", &["x"], &["dims"], &[]).node("ConstantOfShape", &["dims"], &["zeros"], &[]);
        let author =
            author.node("NonZero", &["zeros"], &["none"], &[]).output("places", &[FREE]).output("none", &[FREE]);
        let found = influence(author.output("h", &[FREE]));
        // A shape alone decides what is made of it, as exporters write it, and no value does.
        assert_eq!(found.lengths, [X, Inputs::default(), Inputs::default()]);
        assert!(found.turns.is_empty());
    }

    /// What a chain of nodes from x on decides, the last of which gives the output. Each has a list of texts.
    fn of_texts(chain: &[(&str, &str, &[&str])]) -> Influence {
        let names: Vec<String> = (0..chain.len()).map(|i| format!("t{i}")).collect();
        let mut author = Author::new(17);
        for (i, (operator, ..)) in chain.iter().enumerate() {
            let from = i.checked_sub(1).map_or("x", |before| &names[before]);
            author = author.node(operator, &[from], &[&names[i]], &[]);
        }
        let mut graph = author.output(&names[chain.len() - 1], &[FREE]).body();
        for (node, (_, name, texts)) in graph.node.iter_mut().zip(chain) {
            let strings = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
            node.attribute.push(AttributeProto { name: (*name).into(), strings, ..AttributeProto::default() });
        }
        Influence::of(&graph, &["x", "n"])
    }

    #[test]
    fn words_that_are_left_out_are_rows_less_whatever_counts_the_others() {
        let counting = ("TfIdfVectorizer", "pool_strings", &["a", "b"][..]);
        let found =
            of_texts(&[("StringNormalizer", "stopwords", &["the"]), ("Tokenizer", "separators", &[" "]), counting]);
        assert!(found.turn(X).is_some_and(|place| place.operator == "StringNormalizer"));
        let found = of_texts(&[("StringNormalizer", "stopwords", &[]), counting]);
        assert!(found.turn(X).is_none() && found.lengths == [Inputs::default()]);
    }

    #[test]
    fn what_texts_are_filled_up_with_is_counted_only_where_it_is_a_word() {
        let counted = |pool: &[&str]| of_texts(&[("StringSplit", "", &[]), ("TfIdfVectorizer", "pool_strings", pool)]);
        assert_eq!(counted(&["a", "b"]).lengths, [Inputs::default()]);
        assert_eq!(counted(&["a", ""]).lengths, [X]);
        let numbers = of_texts(&[("NonZero", "", &[]), ("TfIdfVectorizer", "pool_int64s", &[])]);
        assert_eq!(numbers.lengths, [X]);
    }

    #[test]
    fn a_length_that_is_an_input_decides_what_it_cuts_to() {
        let author = Author::new(17).node("Range", &["zero", "n", "one"], &["upto"], &[]);
        let author = author.node("Expand", &["x", "n"], &["wide"], &[]).output("upto", &[FREE]).output("wide", &[FREE]);
        assert_eq!(influence(author).lengths, [N, N]);
    }

    #[test]
    fn what_lengths_alone_decide_is_not_of_a_size_that_values_decide() {
        let body = Author::new(17).input("i", &[]).input("go", &[]).input("list", &[FREE]);
        let body = body.node("Concat", &["list", "x"], &["longer", "unread"], &[]);
        let body = body.output("go", &[]).output("longer", &[FREE]).body();
        let author =
            Author::new(17).node("Shape", &["x"], &["dims"], &[]).node("Expand", &["one", "dims"], &["e"], &[]);
        let author = author.node("MatMul", &["x", "e"], &["m"], &[]).node("Tile", &["one", "n"], &["t"], &[]);
        let author = author.node("Relu", &["t"], &["r"], &[]).node("ReduceSum", &["r"], &["s"], &[]);
        let author = author.node("Loop", &["five", "", "x"], &["l"], &[("body", Attribute::Body(body))]);
        let sizes = influence(author.output("l", &[FREE])).sizes;
        let found = ["x", "dims", "e", "m", "t", "r", "list", "longer", "l"].map(|name| sizes.contains(name));
        assert_eq!(found, [false, false, false, false, true, true, true, true, true]);
        assert!(!sizes.is_empty() && influence(Author::new(17).output("x", &[FREE])).sizes.is_empty());
    }

    #[test]
    fn branches_and_loops_turn_by_values_that_their_bodies_look_at() {
        let yes = Author::new(17).node("Neg", &["x"], &["a"], &[]).output("a", &[FREE]).body();
        let no = Author::new(17).node("Abs", &["x"], &["b"], &[]).output("b", &[FREE]).body();
        let branches = [("then_branch", Attribute::Body(yes)), ("else_branch", Attribute::Body(no))];
        let author = Author::new(17).node("Equal", &["n", "rate"], &["known"], &[]);
        let found = influence(author.node("If", &["known"], &["y"], &branches).output("y", &[FREE]));
        assert!(found.turn(N).is_some_and(|place| place.node == "make_y") && found.turn(X).is_none());

        // The loop ends when its carried value, which begins without x, has met x often enough.
        let body = Author::new(17).input("i", &[]).input("go", &[]).input("sum", &[FREE]);
        let body = body.node("Add", &["sum", "x"], &["more"], &[]).node("Less", &["sum", "rate"], &["on"], &[]);
        let body = body.output("on", &[]).output("more", &[FREE]).output("more", &[FREE]).body();
        let author =
            Author::new(17).node("Loop", &["", "", "start"], &["last", "all"], &[("body", Attribute::Body(body))]);
        let found = influence(author.output("last", &[FREE]).output("all", &[FREE]));
        assert!(found.turn(X).is_some() && found.turn(N).is_none());
        assert_eq!(found.lengths, [X, X]);
    }

    #[test]
    fn what_reaches_the_condition_of_a_loop_after_many_iterations_decides_it() {
        const CARRIED: usize = 25;
        // Each iteration hands x on by one value, and the loop ends by the last of them.
        let values: Vec<String> = (0..CARRIED).map(|i| format!("v{i}")).collect();
        let body = Author::new(17).input("i", &[]).input("c", &[]);
        let body = values.iter().fold(body, |body, value| body.input(value, &[1]));
        let body = body.node("Less", &[&values[CARRIED - 1], "rate"], &["on"], &[]).output("on", &[]).output("x", &[1]);
        let body = values[..CARRIED - 1].iter().fold(body, |body, value| body.output(value, &[1])).body();
        let outputs: Vec<String> = (0..CARRIED).map(|i| format!("y{i}")).collect();
        let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
        let given = [&["", ""], &["zero"; CARRIED][..]].concat();
        let author = Author::new(17).node("Loop", &given, &outputs, &[("body", Attribute::Body(body))]);
        let found = influence(author.output("y0", &[FREE]));
        assert!(found.turn(X).is_some() && found.turn(N).is_none());
    }

    #[test]
    fn a_loop_that_carries_very_many_values_is_not_followed_without_end() {
        let body = Author::new(17).input("i", &[]).input("c", &[]).output("c", &[]);
        let names: Vec<String> = (0..20_000).map(|i| format!("v{i}")).collect();
        let body = names.iter().fold(body, |body, name| body.input(name, &[1])).output("x", &[1]);
        let body = names[..names.len() - 1].iter().fold(body, |body, name| body.output(name, &[1])).body();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let given = [&["", ""], &vec!["zero"; names.len()][..]].concat();
        let author = Author::new(17).node("Loop", &given, &names, &[("body", Attribute::Body(body))]);
        assert!(influence(author.output("v19999", &[1])).values[0].meets(X));
    }

    #[test]
    fn loops_within_loops_are_not_followed_without_end_and_then_all_decides_all() {
        const CARRIED: usize = 15;
        // Each iteration hands its values one place on, so that each loop takes as many passes as there are.
        fn nested(depth: usize) -> Author {
            let author = Author::new(17).input("i", &[]).input("c", &[]).output("c", &[]);
            let values: Vec<String> = (0..CARRIED).map(|i| format!("v{depth}_{i}")).collect();
            let author = values.iter().fold(author, |author, value| author.input(value, &[1]));
            let author = match depth {
                0 => author,
                _ => looped(author, depth - 1, &format!("inner{depth}")),
            };
            (0..CARRIED).fold(author, |author, i| {
                let (to, from) = (format!("o{depth}_{i}"), &values[(i + 1).min(CARRIED - 1)]);
                author.node("Abs", &[from], &[&to], &[]).output(&to, &[1])
            })
        }
        fn looped(author: Author, depth: usize, name: &str) -> Author {
            let outputs: Vec<String> = (0..CARRIED).map(|i| format!("{name}_{i}")).collect();
            let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
            let given = [&["n", ""], &["zero"; CARRIED - 1][..], &["x"]].concat();
            author.node("Loop", &given, &outputs, &[("body", Attribute::Body(nested(depth).body()))])
        }
        let found = influence(looped(Author::new(17), 9, "y").output("y_0", &[1]));
        assert!(found.turn(X).is_some() && found.lengths[0].meets(X) && found.values[0].meets(N));
    }
}
