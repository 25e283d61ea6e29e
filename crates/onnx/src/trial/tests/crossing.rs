//! Rows that meet in one node, and rows that do not.

use super::*;

/// Models of which rows meet only where a number is 777, or where they are many, by what does it. All of `x` are [rows, 2].
fn rows_that_meet_for_some_values() -> Vec<(&'static str, Author)> {
    let graph = || {
        let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]).floats("rare", &[], &[777.0]);
        let author = author.ints("front", &[1], &[0]).ints("one", &[1], &[1]).ints("last", &[1], &[-1]);
        let author = author.ints("none", &[], &[0]).ints("step", &[], &[1]).ints("many", &[1], &[20]);
        let author = author.ints("far", &[1], &[i64::MIN + 1]).floats("zeros", &[1, 2], &[0.0, 0.0]);
        let author = author.node("Equal", &["x", "rare"], &["is_rare"], &[]);
        author.node("Cast", &["is_rare"], &["f"], &[("to", Int(1))]).node("Shape", &["x"], &["dims"], &[])
    };
    let adding = |author: Author, what: &str| author.node("Add", &["x", what], &["y"], &[]);
    let reduced = |operator: &str, axes: &[i64]| {
        adding(graph().node(operator, &["f"], &["g"], &[("axes", Ints(axes)), ("keepdims", Int(1))]), "g")
    };
    let number = |author: Author, what: &str| {
        let author = author.node("Greater", &[what, "many"], &["are_many"], &[]);
        adding(author.node("Cast", &["are_many"], &["g"], &[("to", Int(1))]), "g")
    };
    let one = graph().node("Gather", &["dims", "front"], &["rows"], &[]);
    let shifted = graph().node("Slice", &["f", "front", "last", "front"], &["before"], &[]);
    let turned = graph().node("Transpose", &["f"], &["t"], &[]);
    let top = [("axis", Int(0))];
    let first = graph().node("TopK", &["f", "one"], &["g", "at"], &top);
    let most = graph().node("ArgMax", &["f"], &["at"], &top).node("Cast", &["at"], &["g"], &[("to", Int(1))]);
    let image = graph().ints("two", &[2], &[0, 1]).node("Unsqueeze", &["f", "two"], &["image"], &[]);
    let window = [("kernel_shape", Ints(&[3, 1])), ("pads", Ints(&[1, 0, 1, 0]))];
    let image =
        image.node("MaxPool", &["image"], &["pooled"], &window).node("Squeeze", &["pooled", "two"], &["g"], &[]);
    let flat = graph().ints("flat", &[2], &[1, -1]).node("Reshape", &["f", "flat"], &["line"], &[]);
    let scan = Author::new(17).input("s", &[2]).input("v", &[2]).output("s2", &[2]).output("v2", &[2]);
    let scan = scan.node("Max", &["s", "v"], &["s2"], &[]).node("Identity", &["s2"], &["v2"], &[]).body();
    let scanned = graph().floats("start", &[2], &[0.0, 0.0]);
    let scan = [("body", Body(scan)), ("num_scan_inputs", Int(1))];
    vec![
        ("all", adding(graph().node("ReduceMax", &["f"], &["g"], &[("keepdims", Int(0))]), "g")),
        ("largest", reduced("ReduceMax", &[0])),
        ("least", reduced("ReduceMin", &[0])),
        ("mean", reduced("ReduceMean", &[0])),
        ("product", reduced("ReduceProd", &[0])),
        ("length", reduced("ReduceL2", &[0])),
        ("logarithm", reduced("ReduceLogSumExp", &[0])),
        ("running", adding(graph().node("CumSum", &["f", "none"], &["g"], &[]), "g")),
        ("top", adding(first, "g")),
        ("place", adding(most, "g")),
        ("row", adding(graph().node("Gather", &["f", "none"], &["g"], &[]), "g")),
        ("shifted", adding(shifted.node("Concat", &["zeros", "before"], &["g"], &[("axis", Int(0))]), "g")),
        ("backwards", adding(graph().node("Slice", &["f", "last", "far", "front", "last"], &["g"], &[]), "g")),
        (
            "product of rows",
            adding(
                turned.node("MatMul", &["t", "f"], &["p"], &[]).node(
                    "ReduceMax",
                    &["p"],
                    &["g"],
                    &[("keepdims", Int(0))],
                ),
                "g",
            ),
        ),
        (
            "einsum",
            adding(
                graph().node("Einsum", &["f", "f"], &["p"], &[("equation", Text("bi,bj->ij"))]).node(
                    "ReduceMax",
                    &["p"],
                    &["g"],
                    &[("keepdims", Int(0))],
                ),
                "g",
            ),
        ),
        ("all in integers", {
            let author = graph().floats("nothing", &[], &[0.0]).node("Equal", &["f", "nothing"], &["q"], &[]);
            let author = author.node("Cast", &["q"], &["i"], &[("to", Int(6))]);
            let author = author.node("ReduceMin", &["i"], &["m"], &[("keepdims", Int(0))]);
            adding(author.node("Cast", &["m"], &["g"], &[("to", Int(1))]), "g")
        }),
        ("window", adding(image, "g")),
        ("line", adding(flat.node("ReduceMax", &["line"], &["g"], &[("axes", Ints(&[1]))]), "g")),
        ("scan", adding(scanned.node("Scan", &["start", "f"], &["end", "g"], &scan), "g")),
        ("number of rows", number(one, "rows")),
        ("number of numbers", number(graph().node("Size", &["x"], &["size"], &[]), "size")),
        ("no more than some", {
            let rows = graph().ints("some", &[1], &[20]).node("Gather", &["dims", "front"], &["rows"], &[]);
            let cut =
                rows.node("Min", &["rows", "some"], &["end"], &[]).node("Slice", &["f", "front", "end"], &["h"], &[]);
            let rest = cut.node("Sub", &["rows", "end"], &["rest"], &[]).ints("two", &[1], &[2]);
            let rest = rest.node("Concat", &["rest", "two"], &["shape"], &[("axis", Int(0))]);
            let rest = rest.node("Expand", &["twos", "shape"], &["t"], &[]).floats("twos", &[1, 1], &[2.0]);
            adding(rest.node("Concat", &["h", "t"], &["g"], &[("axis", Int(0))]), "g")
        }),
        ("more than some", {
            let rows = graph().ints("some", &[1], &[20]).node("Gather", &["dims", "front"], &["rows"], &[]);
            let rows = rows.node("Sub", &["rows", "some"], &["less"], &[]);
            let rows = rows.node("Max", &["less", "front", "one"], &["beyond"], &[]);
            let made = rows.node("Expand", &["ones", "beyond"], &["line"], &[]).floats("ones", &[1], &[1.0]);
            let sum = made.node("ReduceSum", &["line"], &["g"], &[("keepdims", Int(0))]);
            adding(sum, "g")
        }),
        ("counted", {
            let author = graph().node("Gather", &["dims", "none"], &["rows"], &[]);
            let author = author.node("Range", &["none", "rows", "step"], &["places"], &[]);
            number(author.node("Unsqueeze", &["places", "one"], &["column"], &[]), "column")
        }),
    ]
}

#[test]
fn a_row_that_few_values_or_many_rows_carry_to_another_does_not_share_a_run() {
    for (name, author) in rows_that_meet_for_some_values() {
        let model = load(author);
        assert_eq!(model.alone().map(OnnxError::kind), Some(OnnxErrorKind::MixedRows), "{name}: {:?}", model.alone());
        // Each request is answered as the file answers it.
        let rows: Vec<f32> = (0..60).map(|i| if i == 20 { 777.0 } else { i as f32 }).collect();
        for x in [floats(&[30, 2], &rows), floats(&[1, 2], &rows[22..24])] {
            assert_eq!(answer(&model, x.clone()), by_file(&model, x), "{name}");
        }
    }
    let told = load(rows_that_meet_for_some_values().remove(0).1).alone().map(ToString::to_string);
    assert_eq!(
        told.as_deref(),
        Some(
            "operator 'ReduceMax' (node 'make_g') takes several rows together for the output 'y', so that one row may change \
             another's answer"
        )
    );
}

#[test]
fn rows_that_nothing_joins_share_a_run_however_they_are_laid_out() {
    let graph = || Author::new(17).input("x", &[FREE, 4, 6]).ints("none", &[], &[0]).ints("step", &[], &[1]);
    // Two heads, in one axis with the rows.
    let author =
        graph().output("y", &[FREE, 4, 6]).ints("heads", &[4], &[0, 4, 2, 3]).ints("joined", &[3], &[-1, 4, 3]);
    let author = author.ints("apart", &[4], &[-1, 2, 4, 3]).ints("whole", &[3], &[-1, 4, 6]);
    let author = author.node("Reshape", &["x", "heads"], &["h"], &[]);
    let author = author.node("Transpose", &["h"], &["t"], &[("perm", Ints(&[0, 2, 1, 3]))]);
    let author = author.node("Reshape", &["t", "joined"], &["q"], &[]);
    let author = author.node("Transpose", &["q"], &["k"], &[("perm", Ints(&[0, 2, 1]))]);
    let author = author.node("MatMul", &["q", "k"], &["s"], &[]).node("Softmax", &["s"], &["p"], &[]);
    let author = author.node("MatMul", &["p", "q"], &["o"], &[]).node("Reshape", &["o", "apart"], &["a"], &[]);
    let author = author.node("Transpose", &["a"], &["b"], &[("perm", Ints(&[0, 2, 1, 3]))]);
    let heads = author.node("Reshape", &["b", "whole"], &["y"], &[]);
    // The step of each row where it ends, as PyTorch writes `x[arange(len(x)), ends]`.
    let author = graph().int_input("ends", &[FREE]).output("y", &[FREE, 6]).ints("last", &[1], &[-1]);
    let author = author.node("Shape", &["x"], &["dims"], &[]).node("Gather", &["dims", "none"], &["rows"], &[]);
    let author = author.node("Range", &["none", "rows", "step"], &["places"], &[]);
    let author = author.node("Clip", &["ends", "none", "step"], &["within"], &[]);
    let author = author.node("Unsqueeze", &["places", "last"], &["a"], &[]);
    let author = author.node("Unsqueeze", &["within", "last"], &["b"], &[]);
    let author = author.node("Concat", &["a", "b"], &["at"], &[("axis", Int(-1))]);
    let ends = author.node("GatherND", &["x", "at"], &["y"], &[]);
    // A state of zeros for each row, and steps first.
    let author = graph().output("y", &[FREE, 4, 6]).ints("front", &[1], &[0]).ints("rest", &[2], &[4, 6]);
    let author = author.node("Shape", &["x"], &["dims"], &[]).node("Gather", &["dims", "front"], &["rows"], &[]);
    let author = author.node("Concat", &["rows", "rest"], &["shape"], &[("axis", Int(0))]);
    let author = author.node("ConstantOfShape", &["shape"], &["zeros"], &[]).node("Max", &["x", "zeros"], &["m"], &[]);
    let author = author.node("Transpose", &["m"], &["t"], &[("perm", Ints(&[1, 0, 2]))]);
    let author = author.node("CumSum", &["t", "none"], &["c"], &[]);
    let steps = author.node("Transpose", &["c"], &["y"], &[("perm", Ints(&[1, 0, 2]))]);
    for (name, author) in [("heads", heads), ("ends", ends), ("steps", steps)] {
        let model = load(author);
        assert!(model.alone().is_none(), "{name}: {:?}", model.alone());
    }
}

/// Numbers by their names, and the places `front` at which the rows of `x` begin where all are one behind the other, four of each.
fn counted(author: Author) -> Author {
    let author = (-1..=8).fold(author, |author, i| author.ints(&i.to_string(), &[], &[i]));
    let author = author.node("Shape", &["x"], &["dims"], &[]).node("Gather", &["dims", "0"], &["rows"], &[]);
    author.node("Range", &["0", "rows", "1"], &["each"], &[]).node("Mul", &["each", "4"], &["front"], &[])
}

/// A graph that takes one of the four places of each row, by an index into all places. `own` makes it of the caller's number `n`.
fn by_index(own: impl Fn(Author) -> Author) -> Author {
    let author = Author::new(17).input("x", &[FREE, 4, 2]).int_input("n", &[FREE]).output("y", &[FREE, 2]);
    let author = own(counted(author)).node("Add", &["front", "own"], &["at"], &[]).ints("line", &[2], &[-1, 2]);
    author.node("Reshape", &["x", "line"], &["all"], &[]).node("Gather", &["all", "at"], &["y"], &[])
}

#[test]
fn an_index_that_may_point_into_another_row_keeps_rows_apart() {
    let clip = |author: Author, low: &str, high: &str, to: &str| author.node("Clip", &["n", low, high], &[to], &[]);
    let shifted = |author: Author| author.node("Sub", &["c", "1"], &["own"], &[]);
    let rare = |author: Author| author.ints("rare", &[], &[5000]).node("Equal", &["n", "rare"], &["is_rare"], &[]);
    let whole = |author: Author| author.node("Cast", &["is_rare"], &["f"], &[("to", Int(7))]);
    // `w` is made of `from_zero`, which is 0 at least, and may come back from the other end.
    let wrapped = |author: Author| {
        author.node("Cast", &["w"], &["w64"], &[("to", Int(7))]).node("Min", &["w64", "3"], &["own"], &[])
    };
    let from_zero = |author: Author| author.node("Max", &["n", "0"], &["from_zero"], &[]);
    let by_index = |own: &dyn Fn(Author) -> Author| by_index(|author| own(from_zero(author)));
    let apart: Vec<(&str, Author)> = vec![
        ("a length that may be none", by_index(&|a| shifted(clip(a, "0", "4", "c")))),
        ("a length that may be any", by_index(&|a| shifted(a.node("Max", &["n", "1"], &["c"], &[])))),
        ("a place one too far", by_index(&|a| clip(a, "0", "4", "own"))),
        ("a remainder one too large", by_index(&|a| a.node("Mod", &["n", "5"], &["own"], &[]))),
        (
            "a remainder of the sign of what is divided",
            by_index(&|a| a.node("Mod", &["n", "4"], &["own"], &[("fmod", Int(1))])),
        ),
        ("a product", by_index(&|a| clip(a, "0", "2", "c").node("Mul", &["c", "2"], &["own"], &[]))),
        ("a rare number", by_index(&|a| whole(rare(a)).node("Mul", &["f", "4"], &["own"], &[]))),
        ("a rare choice", by_index(&|a| rare(a).node("Where", &["is_rare", "4", "0"], &["own"], &[]))),
        (
            "a table",
            by_index(&|a| {
                clip(a, "0", "2", "c").ints("table", &[3], &[0, 3, 4]).node("Gather", &["table", "c"], &["own"], &[])
            }),
        ),
        ("twice what has no end", by_index(&|a| wrapped(a.node("Mul", &["from_zero", "2"], &["w"], &[])))),
        ("what has no end and itself", by_index(&|a| wrapped(a.node("Add", &["from_zero", "from_zero"], &["w"], &[])))),
        ("one behind what has no end", by_index(&|a| wrapped(a.node("Add", &["from_zero", "1"], &["w"], &[])))),
        (
            "less than what has no end",
            by_index(&|a| {
                let a = a.node("Min", &["n", "0"], &["least"], &[]).node("Neg", &["least"], &["w"], &[]);
                a.node("Min", &["w", "3"], &["own"], &[])
            }),
        ),
        ("half of 64 bits", by_index(&|a| wrapped(a.node("Cast", &["from_zero"], &["w"], &[("to", Int(6))])))),
        (
            "beyond 32 bits",
            by_index(&|a| {
                let narrow = |a: Author, from: &str, to: &str| a.node("Cast", &[from], &[to], &[("to", Int(6))]);
                let a = a.ints("most", &[], &[i64::from(i32::MAX)]).node("Clip", &["n", "0", "most"], &["c"], &[]);
                let a = narrow(narrow(narrow(a, "c", "c32"), "2", "two"), "3", "three");
                let a = a.node("Mul", &["c32", "two"], &["w"], &[]).node("Min", &["w", "three"], &["least"], &[]);
                a.node("Cast", &["least"], &["own"], &[("to", Int(7))])
            }),
        ),
        ("the row before", by_index(&|a| whole(rare(a)).node("Mul", &["f", "-1"], &["own"], &[]))),
    ];
    for (name, author) in apart {
        let told = load(author).alone().map(ToString::to_string).unwrap_or_default();
        assert!(
            told.starts_with("operator 'Gather' (node 'make_y') has an index that may point into another row"),
            "{name}: {told}"
        );
        assert!(told.contains("where Clip or Mod keeps it within its own row"), "{told}");
    }
    let together: Vec<(&str, Author)> = vec![
        ("a place", by_index(&|a| clip(a, "0", "3", "own"))),
        ("a length that is one at least", by_index(&|a| shifted(clip(a, "1", "4", "c")))),
        ("a remainder", by_index(&|a| a.node("Mod", &["n", "4"], &["own"], &[]))),
        ("a half", by_index(&|a| clip(a, "0", "7", "c").node("Div", &["c", "2"], &["own"], &[]))),
        ("from behind", by_index(&|a| clip(a, "0", "3", "c").node("Sub", &["3", "c"], &["own"], &[]))),
        ("a rare choice", by_index(&|a| rare(a).node("Where", &["is_rare", "3", "0"], &["own"], &[]))),
        (
            "the largest",
            by_index(&|a| {
                let a = a.node("ReduceMax", &["x"], &["most"], &[("axes", Ints(&[2])), ("keepdims", Int(0))]);
                a.node("ArgMax", &["most"], &["own"], &[("axis", Int(1)), ("keepdims", Int(0))])
            }),
        ),
        (
            "a sum of truths",
            by_index(&|a| {
                let a = a.floats("none", &[], &[0.0]).node("Greater", &["x", "none"], &["t"], &[]).ints(
                    "both",
                    &[2],
                    &[1, 2],
                );
                let a = a.node("Cast", &["t"], &["f"], &[("to", Int(7))]);
                a.node("ReduceSum", &["f", "both"], &["s"], &[("keepdims", Int(0))]).node(
                    "Min",
                    &["s", "3"],
                    &["own"],
                    &[],
                )
            }),
        ),
        (
            "a rounded float",
            by_index(&|a| {
                let a = a.node("Cast", &["n"], &["f"], &[("to", Int(1))]).node("Sigmoid", &["f"], &["s"], &[]).floats(
                    "three",
                    &[],
                    &[3.0],
                );
                a.node("Mul", &["s", "three"], &["m"], &[]).node("Cast", &["m"], &["own"], &[("to", Int(7))])
            }),
        ),
    ];
    for (name, author) in together {
        let model = load(author);
        assert!(model.alone().is_none(), "{name}: {:?}", model.alone());
    }
    // A request is answered as the file answers it: no number of another request is in reach.
    let model = load(by_index(&|a| shifted(clip(a, "0", "4", "c"))));
    let x: Vec<f32> = (0..16u8).map(f32::from).collect();
    let ask = |x: &[f32], n: &[i64]| {
        let n = Tensor::new(vec![n.len()], n.to_vec()).unwrap();
        ask(&model, vec![("x", floats(&[x.len() / 8, 4, 2], x)), ("n", n)]).into_entries().remove(0).1
    };
    assert!(model.signature().is_unbatched(), "{:?}", model.alone());
    assert_eq!(ask(&x[..8], &[4]), floats(&[1, 2], &[6.0, 7.0]));
    assert_eq!(ask(&x[8..], &[0]), floats(&[1, 2], &[14.0, 15.0]));
}

#[test]
fn rows_that_meet_are_found_where_rows_of_the_trial_point_beyond_a_table() {
    for length in [20, 32, 50, 60, 80] {
        let author = Author::new(17).input("x", &[FREE, 3]).int_input("q", &[FREE, 1]).int_input("i", &[FREE, 1]);
        let author = author.ints("1", &[], &[1]).ints("0", &[], &[0]).ints("rare", &[], &[100_000]);
        let table = vec![0.0; length as usize];
        let author = author.node("Sub", &["i", "1"], &["at"], &[]).floats("table", &[length], &table);
        let author = author.node("Gather", &["table", "at"], &["own"], &[]).node("Add", &["x", "own"], &["z"], &[]);
        let author = author.node("Greater", &["q", "rare"], &["is_rare"], &[]);
        let author =
            author.node("Cast", &["is_rare"], &["f"], &[("to", Int(1))]).node("CumSum", &["f", "0"], &["g"], &[]);
        let model = load(author.output("y", &[FREE, 3]).node("Add", &["z", "g"], &["y"], &[]));
        assert_eq!(model.alone().map(OnnxError::kind), Some(OnnxErrorKind::MixedRows), "{length}");
    }
}

#[test]
fn an_index_that_names_its_row_may_hold_any_number_beside_it() {
    // The steps of each row by its own place, which may be before its first: it then is the last of the row itself.
    let pairs = |row: &str| {
        let author = Author::new(17).input("x", &[FREE, 4, 2]).int_input("n", &[FREE]).output("y", &[FREE, 2]);
        let author = counted(author).ints("rare", &[], &[5000]).node("Equal", &["n", "rare"], &["is_rare"], &[]);
        let author =
            author.node("Cast", &["is_rare"], &["f"], &[("to", Int(7))]).node("Sub", &["rows", "1"], &["end"], &[]);
        let author = author.node("Add", &["each", "f"], &["on"], &[]).node("Min", &["on", "end"], &["next"], &[]);
        let author = author.ints("last", &[1], &[-1]).node("Unsqueeze", &[row, "last"], &["a"], &[]);
        let author = author.node("Unsqueeze", &["n", "last"], &["b"], &[]);
        let author = author.node("Concat", &["a", "b"], &["at"], &[("axis", Int(-1))]);
        load(author.node("GatherND", &["x", "at"], &["y"], &[]))
    };
    assert!(pairs("each").alone().is_none(), "{:?}", pairs("each").alone());
    assert!(pairs("next").alone().is_some());
    // What is written and not read.
    let written = |most: &str| {
        let author = Author::new(17).input("x", &[FREE, 2]).int_input("n", &[FREE]).output("y", &[FREE, 4, 2]);
        let author =
            counted(author).ints("column", &[1], &[-1]).ints("one", &[1], &[1]).ints("shape", &[3], &[-1, 4, 2]);
        let author = author.node("Clip", &["n", "0", most], &["own"], &[]).node("Add", &["front", "own"], &["to"], &[]);
        let author = author.node("Unsqueeze", &["to", "column"], &["at"], &[]).ints("tail", &[1], &[2]);
        let author = author.node("Mul", &["rows", "4"], &["all"], &[]).ints("front_axis", &[1], &[0]);
        let author = author.node("Unsqueeze", &["all", "front_axis"], &["long"], &[]);
        let author = author.node("Concat", &["long", "tail"], &["wide"], &[("axis", Int(0))]);
        let author = author.node("ConstantOfShape", &["wide"], &["zeros"], &[]);
        let author = author.node("ScatterND", &["zeros", "at", "x"], &["filled"], &[]);
        load(author.node("Reshape", &["filled", "shape"], &["y"], &[]))
    };
    assert!(written("3").alone().is_none(), "{:?}", written("3").alone());
    assert!(written("4").alone().is_some());
}

#[test]
fn an_index_is_kept_within_its_row_by_the_length_of_that_row_and_by_no_number() {
    let bounded = |bound: &str| {
        let author = Author::new(17).input("x", &[FREE, FREE, 2]).int_input("n", &[FREE]).output("y", &[FREE, 2]);
        let author = counted(author).node("Gather", &["dims", "1"], &["steps"], &[]).ints("line", &[2], &[-1, 2]);
        let author =
            author.node("Mul", &["each", "steps"], &["begin"], &[]).node("Sub", &["steps", "1"], &["end"], &[]);
        let author =
            author.node("Clip", &["n", "0", bound], &["own"], &[]).node("Add", &["begin", "own"], &["at"], &[]);
        load(author.node("Reshape", &["x", "line"], &["all"], &[]).node("Gather", &["all", "at"], &["y"], &[]))
    };
    assert!(bounded("end").alone().is_none(), "{:?}", bounded("end").alone());
    // Rows of fewer steps than four reach into the next one.
    assert!(bounded("3").alone().is_some());
    // A number that all rows share is one that a caller sends.
    let shared = |own: &str| {
        let author = Author::new(17).input("x", &[FREE, 4, 2]).int_input("n", &[]).output("y", &[FREE, 2]);
        let author =
            counted(author).node("Clip", &["n", "0", "3"], &["c"], &[]).node("Add", &["front", own], &["at"], &[]);
        let author = author.ints("line", &[2], &[-1, 2]).node("Reshape", &["x", "line"], &["all"], &[]);
        load(author.node("Gather", &["all", "at"], &["y"], &[]))
    };
    assert!(shared("c").alone().is_none(), "{:?}", shared("c").alone());
    assert!(shared("n").alone().is_some());
}

#[test]
fn places_that_few_rows_have_not_keep_rows_apart() {
    let graph = || {
        let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]).floats("two", &[], &[2.0]);
        let author =
            author.ints("0", &[1], &[0]).ints("100", &[1], &[100]).ints("-50", &[1], &[-50]).ints("-20", &[], &[-20]);
        author.ints("end", &[1], &[i64::MAX]).ints("1", &[1], &[1]).ints("no rows", &[4], &[0, 0, 0, 0]).floats(
            "nil",
            &[],
            &[0.0],
        )
    };
    let slice =
        |author: Author, from: &str, to: &str, end: &str| author.node("Slice", &["x", from, to, "0"], &[end], &[]);
    let joined = |author: Author, parts: &[&str]| author.node("Concat", parts, &["y"], &[("axis", Int(0))]);
    let twice = |author: Author, part: &str| author.node("Mul", &[part, "two"], &["twice"], &[]);
    let apart = [
        (
            "the first hundred",
            joined(slice(twice(slice(graph(), "0", "100", "a"), "a"), "100", "end", "b"), &["twice", "b"]),
        ),
        (
            "the last fifty",
            joined(slice(twice(slice(graph(), "0", "-50", "a"), "a"), "-50", "end", "b"), &["twice", "b"]),
        ),
        ("a triangle", graph().node("Trilu", &["x", "-20"], &["y"], &[])),
        (
            "a diagonal",
            graph().node("EyeLike", &["x"], &["e"], &[("k", Int(-20))]).node("Add", &["x", "e"], &["y"], &[]),
        ),
    ];
    for (name, author) in apart {
        let told = load(author).alone().map(ToString::to_string).unwrap_or_default();
        assert!(told.contains("reads how many rows there are"), "{name}: {told}");
    }
    let together = [
        ("all of them", slice(graph(), "0", "end", "y")),
        (
            "the second column",
            graph().node("Slice", &["x", "1", "end", "1"], &["a"], &[]).node("Add", &["x", "a"], &["y"], &[]),
        ),
        ("no more of them", graph().node("Pad", &["x", "no rows", "nil"], &["y"], &[])),
    ];
    for (name, author) in together {
        let model = load(author);
        assert!(model.alone().is_none(), "{name}: {:?}", model.alone());
    }
}

/// `x` of [rows, 6, 2], `f` that is 1 where there are more than twenty rows, and else 0.
fn by_many_rows() -> Author {
    let author = Author::new(17).input("x", &[FREE, 6, 2]).output("y", &[FREE, 2]).ints("twenty", &[], &[20]);
    let author = counted(author).node("Greater", &["rows", "twenty"], &["are_many"], &[]);
    let author = author.node("Cast", &["are_many"], &["f"], &[("to", Int(7))]).ints("axis0", &[1], &[0]);
    author.node("Unsqueeze", &["f", "axis0"], &["v"], &[]).ints("six", &[1], &[6]).ints("axis", &[1], &[1])
}

#[test]
fn a_number_of_rows_that_decides_what_a_row_takes_of_itself_keeps_rows_apart() {
    let summed = |author: Author, what: &str| {
        author.node("ReduceMax", &[what], &["y"], &[("axes", Ints(&[1])), ("keepdims", Int(0))])
    };
    let body = |name: &str| Author::new(17).node(name, &["x"], &["h"], &[]).output("h", &[FREE, 6, 2]).body();
    let branches = || [("then_branch", Body(body("Neg"))), ("else_branch", Body(body("Identity")))];
    let taken = by_many_rows().node("Gather", &["x", "f"], &["y"], &[("axis", Int(1))]);
    let fewer = by_many_rows().node("Sub", &["six", "v"], &["to"], &[]);
    let fewer = fewer.node("Slice", &["x", "axis0", "to", "axis"], &["s"], &[]);
    let padded = by_many_rows().ints("none", &[4], &[0; 4]).node(
        "Concat",
        &["axis0", "v", "none"],
        &["pads"],
        &[("axis", Int(0))],
    );
    let padded = padded.node("Pad", &["x", "pads"], &["s"], &[]);
    let turned = by_many_rows().node("If", &["are_many"], &["s"], &branches());
    // A row of a table by its place among the rows.
    let table = by_many_rows().floats("table", &[200, 2], &[0.5; 400]);
    let table = table.node("ReduceMax", &["x"], &["most"], &[("axes", Ints(&[1, 2])), ("keepdims", Int(0))]);
    let table =
        table.node("Cast", &["most"], &["whole"], &[("to", Int(7))]).node("Clip", &["whole", "0", "3"], &["own"], &[]);
    let table = table.node("Add", &["front", "own"], &["at"], &[]).node("Gather", &["table", "at"], &["y"], &[]);
    let alike = [
        ("taken", taken),
        ("fewer", summed(fewer, "s")),
        ("padded", summed(padded, "s")),
        ("turned", summed(turned, "s")),
        ("table", table),
    ];
    for (name, author) in alike {
        let told = load(author).alone().map(ToString::to_string).unwrap_or_default();
        assert!(
            told.starts_with("operator 'Shape' (node 'make_dims') reads how many rows there are"),
            "{name}: {told}"
        );
    }
}

#[test]
fn a_number_of_rows_that_decides_nothing_lets_rows_share_a_run() {
    let body = |name: &str| Author::new(17).node(name, &["x"], &["h"], &[]).output("h", &[FREE, 6, 2]).body();
    let branches = [("then_branch", Body(body("Neg"))), ("else_branch", Body(body("Identity")))];
    let last = |author: Author, what: &str| {
        author.node("ReduceMax", &[what], &["y"], &[("axes", Ints(&[1])), ("keepdims", Int(0))])
    };
    // A guard against no rows at all, as many rows as there are, and a length by way of how many numbers there are.
    let guarded =
        by_many_rows().node("Size", &["x"], &["size"], &[]).node("Greater", &["size", "0"], &["are_some"], &[]);
    let guarded = guarded.node("If", &["are_some"], &["s"], &branches);
    let all = by_many_rows().node("Unsqueeze", &["rows", "axis0"], &["to"], &[]);
    let all = all.node("Slice", &["x", "axis0", "to", "axis0"], &["s"], &[]);
    let length = by_many_rows().node("Size", &["x"], &["size"], &[]).node("Div", &["size", "rows"], &["numbers"], &[]);
    let length =
        length.node("Cast", &["numbers"], &["twelve"], &[("to", Int(1))]).node("Div", &["x", "twelve"], &["s"], &[]);
    for (name, author) in [("guarded", guarded), ("all", all), ("length", length)] {
        let model = load(last(author, "s"));
        assert!(model.alone().is_none(), "{name}: {:?}", model.alone());
    }
}

#[test]
fn what_is_counted_in_all_rows_and_a_sequence_of_rows_keep_rows_apart() {
    let graph = || {
        let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]).floats("rare", &[], &[777.0]);
        author.node("Equal", &["x", "rare"], &["is_rare"], &[]).node("Cast", &["is_rare"], &["f"], &[("to", Int(1))])
    };
    let counted = graph().node("NonZero", &["f"], &["found"], &[]).node("Shape", &["found"], &["dims"], &[]);
    let counted = counted.ints("1", &[], &[1]).node("Gather", &["dims", "1"], &["count"], &[]);
    let counted = counted.node("Cast", &["count"], &["g"], &[("to", Int(1))]);
    let sequence = graph().node("SplitToSequence", &["f"], &["each"], &[("axis", Int(0))]);
    let sequence = sequence.node("ConcatFromSequence", &["each"], &["again"], &[("axis", Int(0))]);
    let sequence = sequence.node("ReduceMax", &["again"], &["g"], &[("keepdims", Int(0))]);
    for (name, author) in [("counted", counted), ("sequence", sequence)] {
        let model = load(author.node("Add", &["x", "g"], &["y"], &[]));
        assert_eq!(model.alone().map(OnnxError::kind), Some(OnnxErrorKind::MixedRows), "{name}");
    }
    // What is taken out of a sequence again is what was put into it.
    let sum = [("keepdims", Int(1)), ("axes", Ints(&[0]))];
    let pair = |axis: i64| {
        let author =
            graph().ints("0", &[], &[0]).ints("1", &[], &[1]).node("SequenceConstruct", &["f", "x"], &["both"], &[]);
        let author = author.node("SequenceAt", &["both", "0"], &["out"], &[]);
        load(author.node("CumSum", &["out", &axis.to_string()], &["g"], &[]).node("Add", &["x", "g"], &["y"], &[]))
    };
    let split = graph().ints("first", &[], &[0]).node("SplitToSequence", &["f"], &["each"], &[("axis", Int(1))]);
    let split = split.node("SequenceAt", &["each", "first"], &["out"], &[]).node("ReduceMax", &["out"], &["g"], &sum);
    let split = load(split.node("Add", &["x", "g"], &["y"], &[]));
    for (name, model) in [("pair", &pair(0)), ("split", &split)] {
        assert_eq!(model.alone().map(OnnxError::kind), Some(OnnxErrorKind::MixedRows), "{name}");
    }
    assert!(pair(1).alone().is_none(), "{:?}", pair(1).alone());
    // Where a sequence is of steps, each has its own.
    let steps = graph().node("SplitToSequence", &["f"], &["each"], &[("axis", Int(1))]);
    let steps = load(steps.node("ConcatFromSequence", &["each"], &["y"], &[("axis", Int(1))]));
    assert!(steps.alone().is_none(), "{:?}", steps.alone());
}

#[test]
fn a_number_of_rows_that_is_rounded_away_for_few_keeps_rows_apart() {
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]).ints("0", &[], &[0]);
    let author = author.node("Shape", &["x"], &["dims"], &[]).node("Gather", &["dims", "0"], &["rows"], &[]);
    let author = author.floats("large", &[], &[1e9]).node("Cast", &["rows"], &["f"], &[("to", Int(1))]);
    let author = author.node("Add", &["f", "large"], &["sum"], &[]).node("Sub", &["sum", "large"], &["g"], &[]);
    let model = load(author.node("Add", &["x", "g"], &["y"], &[]));
    assert_eq!(model.alone().map(OnnxError::kind), Some(OnnxErrorKind::MixedRows));
}
