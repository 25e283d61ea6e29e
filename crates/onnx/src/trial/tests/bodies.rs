//! Rows that meet within a branch or a loop, and rows that do not.

use super::*;

/// A body that gives `x` with what `operator` makes of those of its numbers that are 777 along an axis, for all of that axis.
fn adding(body: Author, operator: &str, axis: i64) -> Author {
    let body = body.floats("rare", &[], &[777.0]).node("Equal", &["x", "rare"], &["is_rare"], &[]);
    let body = body.node("Cast", &["is_rare"], &["f"], &[("to", Int(1))]);
    let body = body.node(operator, &["f"], &["g"], &[("axes", Ints(&[axis])), ("keepdims", Int(1))]);
    body.node("Add", &["x", "g"], &["z"], &[])
}

/// A branch that subtracts the mean along an axis from what is around it, and one that leaves it as it is.
fn centred(axis: i64) -> [GraphProto; 2] {
    let body = || Author::new(17).output("z", &[FREE, 4]);
    let mean = body().node("ReduceMean", &["x"], &["m"], &[("axes", Ints(&[axis])), ("keepdims", Int(1))]);
    [mean.node("Sub", &["x", "m"], &["z"], &[]).body(), body().node("Identity", &["x"], &["z"], &[]).body()]
}

fn by_a_number_for_all(axis: i64) -> Author {
    let author = Author::new(17).input("x", &[FREE, 4]).int_input("kind", &[]).output("y", &[FREE, 4]);
    let author = author.ints("seven", &[], &[7]).node("Equal", &["kind", "seven"], &["is_seven"], &[]);
    let [yes, no] = centred(axis);
    author.node("If", &["is_seven"], &["y"], &[("then_branch", Body(yes)), ("else_branch", Body(no))])
}

fn in_a_branch(axis: i64) -> Author {
    let body = || Author::new(17).output("z", &[FREE, 4]);
    let [yes, no] = [adding(body(), "ReduceMax", axis), adding(body(), "ReduceMin", axis)].map(Author::body);
    let author = Author::new(17).input("x", &[FREE, 4]).input_of(9, "flag", &[]).output("y", &[FREE, 4]);
    author.node("If", &["flag"], &["y"], &[("then_branch", Body(yes)), ("else_branch", Body(no))])
}

fn in_a_loop(axis: i64) -> Author {
    let body = Author::new(17).int_input("i", &[]).input_of(9, "go", &[]).input("x", &[FREE, 4]);
    let body = body.output_of(9, "goes", &[]).output("z", &[FREE, 4]).node("Identity", &["go"], &["goes"], &[]);
    let author = Author::new(17).input("v", &[FREE, 4]).output("y", &[FREE, 4]).ints("trips", &[], &[3]);
    let body = adding(body, "ReduceMax", axis).body();
    author.node("Loop", &["trips", "", "v"], &["y"], &[("body", Body(body))])
}

fn in_a_scan(axis: i64) -> Author {
    let body = Author::new(17).input("s", &[FREE, 4]).input("x", &[FREE, 4]).output("t", &[FREE, 4]);
    let body = adding(body.output("z", &[FREE, 4]), "ReduceMax", axis);
    let body = body.node("Add", &["s", "x"], &["t"], &[]).body();
    let author = Author::new(17).input("v", &[FREE, 5, 4]).output("y", &[FREE, 5, 4]);
    let author = author.ints("first", &[], &[0]).node("Gather", &["v", "first"], &["start"], &[("axis", Int(1))]);
    let along = ("scan_input_axes", Ints(&[1]));
    let given = [("body", Body(body)), ("num_scan_inputs", Int(1)), along, ("scan_output_axes", Ints(&[1]))];
    author.node("Scan", &["start", "v"], &["end", "y"], &given)
}

#[test]
fn rows_that_meet_in_a_body_run_alone_and_others_share_runs() {
    let cases = [
        ("a number for all", [0, 1].map(by_a_number_for_all)),
        ("a branch", [0, 1].map(in_a_branch)),
        ("a loop", [0, 1].map(in_a_loop)),
        ("a scan", [0, 1].map(in_a_scan)),
    ];
    for (name, authors) in cases {
        let [met, apart] = authors.map(load);
        assert_eq!(met.alone().map(OnnxError::kind), Some(OnnxErrorKind::MixedRows), "{name}: {:?}", met.alone());
        assert_eq!(apart.alone(), None, "{name}");
    }
}

/// A loop over rows that gives each of them what `result` makes of it and of what was carried, and carries the largest number so far.
fn over_rows(carries: bool) -> Author {
    let body = Author::new(17).int_input("i", &[]).input_of(9, "go", &[]);
    let body = if carries { body.input("s", &[4]) } else { body };
    let body = body.output_of(9, "goes", &[]);
    let body = if carries { body.output("t", &[4]) } else { body }.output("z", &[4]);
    let body = body.node("Identity", &["go"], &["goes"], &[]).node("Gather", &["x", "i"], &["r"], &[]);
    let body = body.node("Softmax", &["r"], &["p"], &[("axis", Int(0))]).floats("rare", &[], &[777.0]);
    let body =
        body.node("Equal", &["r", "rare"], &["is_rare"], &[]).node("Cast", &["is_rare"], &["f"], &[("to", Int(1))]);
    let body = if carries {
        body.node("Max", &["s", "f"], &["t"], &[]).node("Add", &["p", "t"], &["z"], &[])
    } else {
        body.node("Add", &["p", "f"], &["z"], &[])
    };
    let author = Author::new(17).input("x", &[FREE, 4]).output("y", &[FREE, 4]).ints("front", &[], &[0]);
    let author = author.node("Shape", &["x"], &["dims"], &[]).node("Gather", &["dims", "front"], &["rows"], &[]);
    let body = ("body", Body(body.body()));
    if carries {
        author.floats("none", &[4], &[0.0; 4]).node("Loop", &["rows", "", "none"], &["last", "y"], &[body])
    } else {
        author.node("Loop", &["rows", ""], &["y"], &[body])
    }
}

#[test]
fn a_loop_over_rows_shares_runs_if_it_carries_nothing_from_row_to_row() {
    assert_eq!(load(over_rows(false)).alone(), None);
    assert_eq!(load(over_rows(true)).alone().map(OnnxError::kind), Some(OnnxErrorKind::MixedRows));
}
