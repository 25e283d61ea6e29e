//! Rows of several lengths.

use super::*;
use crate::author::{LONG, OTHER};

/// Why rows of this model run alone.
fn told(author: Author) -> String {
    load(author).alone().map(ToString::to_string).unwrap_or_default()
}

/// `q` is `x` of [rows, steps, 4], or [rows, 4] where there is one step, as PyTorch writes `x.squeeze(1)`.
fn squeezed() -> Author {
    let branch = || Author::new(17).output("q", &[]).ints("1", &[1], &[1]);
    let yes = branch().node("Squeeze", &["x", "1"], &["q"], &[]).body();
    let no = branch().node("Identity", &["x"], &["q"], &[]).body();
    let author = Author::new(17).input("x", &[FREE, LONG, 4]).output("y", &[FREE, LONG, 4]).ints("one", &[], &[1]);
    let author = author.node("Shape", &["x"], &["dims"], &[]).node("Gather", &["dims", "one"], &["steps"], &[]);
    let author = author.node("Equal", &["steps", "one"], &["is_one"], &[]);
    author.node("If", &["is_one"], &["q"], &[("then_branch", Body(yes)), ("else_branch", Body(no))])
}

#[test]
fn a_branch_by_how_long_rows_are_is_tried_with_short_ones() {
    let author = squeezed().node("Softmax", &["q"], &["s"], &[("axis", Int(-2))]);
    let found = told(author.node("Reshape", &["s", "dims"], &["y"], &[]));
    assert!(found.contains("a row of 'x' [1, 4] is answered otherwise beside another for the output 'y'"), "{found}");
    let author = squeezed().node("ReduceMean", &["q"], &["m"], &[("axes", Ints(&[-1]))]);
    let found = told(author.node("Sub", &["q", "m"], &["y"], &[]));
    assert!(found.contains("a row of 'x' [1, 4]"), "{found}");
    let author = squeezed().node("Softmax", &["q"], &["s"], &[("axis", Int(-1))]);
    assert_eq!(told(author.node("Reshape", &["s", "dims"], &["y"], &[])), "");
}

#[test]
fn rows_that_fill_a_window_only_together_are_run_alone() {
    let windows = |shape: &[i64], window: &[i64]| {
        let author =
            Author::new(17).input("x", shape).output("y", shape).ints("window", &[window.len() as i64], window);
        let author = author.node("Shape", &["x"], &["dims"], &[]).node("Reshape", &["x", "window"], &["w"], &[]);
        let author = author.node("Softmax", &["w"], &["s"], &[("axis", Int(-1))]);
        told(author.node("Reshape", &["s", "dims"], &["y"], &[]))
    };
    let together = "has no answer alone and one beside others";
    for window in [&[-1, 16][..], &[-1, 4, 4], &[-1, 512]] {
        let found = windows(&[FREE, LONG], window);
        assert!(found.contains(together), "{window:?}: {found}");
    }
    // Of 224, as those of 14, every shorter length that is tried has whole ones.
    let found = windows(&[FREE, LONG], &[-1, 14]);
    assert!(found.contains(together), "{found}");
    let found = windows(&[FREE, 3, LONG, OTHER], &[-1, 64]);
    assert!(found.contains(together), "images: {found}");
    assert_eq!(windows(&[FREE, LONG, 16], &[-1, 16]), "");
    assert_eq!(windows(&[FREE, LONG, 16], &[0, -1, 4]), "");
}

#[test]
fn a_window_as_long_as_another_input_is_tried_with_lengths_that_differ() {
    let author = Author::new(17).input("x", &[FREE, LONG]).input("t", &[FREE, OTHER]).output("y", &[FREE, LONG]);
    let author = author.node("Shape", &["x"], &["dims"], &[]).node("Shape", &["t"], &["others"], &[]);
    let author = author.ints("one", &[1], &[1]).ints("open", &[1], &[-1]);
    let author = author.node("Gather", &["others", "one"], &["long"], &[]);
    let author = author.node("Concat", &["open", "long"], &["window"], &[("axis", Int(0))]);
    let author = author.node("Reshape", &["x", "window"], &["w"], &[]).node("Softmax", &["w"], &["s"], &[]);
    let found = told(author.node("Reshape", &["s", "dims"], &["y"], &[]));
    assert!(found.contains("has no answer alone and one beside others"), "{found}");
}

#[test]
fn an_index_that_another_length_bounds_may_point_into_another_row() {
    let by = |ids: &[i64]| {
        let author = Author::new(17).input("x", &[FREE, LONG]).int_input("ids", ids).output("y", &[FREE]);
        let author = author.ints("0", &[], &[0]).ints("1", &[], &[1]).ints("line", &[1], &[-1]);
        let author = author.node("Shape", &["x"], &["dims"], &[]).node("Gather", &["dims", "0"], &["rows"], &[]);
        let author = author.node("Gather", &["dims", "1"], &["steps"], &[]);
        let author =
            author.node("Range", &["0", "rows", "1"], &["each"], &[]).node("Mul", &["each", "steps"], &["front"], &[]);
        let author = author.node("ArgMax", &["ids"], &["k"], &[("axis", Int(1)), ("keepdims", Int(0))]);
        let author = author.node("Add", &["front", "k"], &["at"], &[]).node("Reshape", &["x", "line"], &["all"], &[]);
        told(author.node("Gather", &["all", "at"], &["y"], &[]))
    };
    assert!(by(&[FREE, OTHER]).contains("has an index that may point into another row"), "{}", by(&[FREE, OTHER]));
    // Nobody holds callers to two lengths that a file calls the same.
    assert!(by(&[FREE, LONG]).contains("has an index that may point into another row"), "{}", by(&[FREE, LONG]));
}

#[test]
fn a_width_that_is_sent_for_all_rows_keeps_them_apart_where_it_may_join_them() {
    let shaped = |first: Option<i64>| {
        let author = Author::new(17).input("x", &[FREE, 16]).int_input("width", &[]).output("y", &[FREE, 16]);
        let author = author.node("Unsqueeze", &["width", "front"], &["w"], &[]);
        let author = author.node("Shape", &["x"], &["dims"], &[]).ints("front", &[1], &[0]).ints("rest", &[1], &[-1]);
        let author = match first {
            Some(first) => author.ints("first", &[1], &[first]),
            None => author.node("Gather", &["dims", "front"], &["first"], &[]),
        };
        let given: &[&str] = if first == Some(-1) { &["first", "w"] } else { &["first", "rest", "w"] };
        let author = author.node("Concat", given, &["shape"], &[("axis", Int(0))]);
        let author = author.node("Reshape", &["x", "shape"], &["v"], &[]);
        author.node("Softmax", &["v"], &["s"], &[("axis", Int(-1))]).node("Reshape", &["s", "dims"], &["y"], &[])
    };
    assert_eq!(load(shaped(Some(-1))).alone().map(OnnxError::kind), Some(OnnxErrorKind::MixedRows));
    // A length of 0 is that of the value itself.
    for first in [Some(0), None] {
        assert_eq!(load(shaped(first)).alone(), None, "{first:?}");
    }
}

#[test]
fn rows_of_one_word_each_that_are_one_text_for_the_model_are_kept_apart() {
    let author = Author::new(17).input("x", &[FREE, 1]).int_input("q", &[FREE]).output("y", &[FREE, 1]);
    let words =
        [("mode", Text("TF")), ("min_gram_length", Int(1)), ("max_gram_length", Int(1)), ("max_skip_count", Int(0))];
    let known = [("ngram_counts", Ints(&[0])), ("ngram_indexes", Ints(&[0])), ("pool_int64s", Ints(&[777_777]))];
    let author = author.node("TfIdfVectorizer", &["q"], &["v"], &[&words[..], &known[..]].concat());
    let model = load(author.node("Add", &["x", "v"], &["y"], &[]));
    assert_eq!(model.alone().map(OnnxError::kind), Some(OnnxErrorKind::MixedRows));
}
