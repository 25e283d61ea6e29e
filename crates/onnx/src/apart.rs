//! Sequences of tensors that a graph gives, taken apart: no protocol of requests has them, and each of the tensors is an output like another.
//!
//! skl2onnx writes them where a model has several targets, such as the probabilities of a `MultiOutputClassifier`.

use std::collections::HashMap;

use super::proto::{GraphProto, NodeProto, ValueInfo};

/// Gives the tensors of each output that a `SequenceConstruct` makes as outputs of their own, `NAME_0` and so on. One whose names are
/// taken stays as it is.
pub(super) fn take_apart(graph: &mut GraphProto) {
    let made = graph.node.iter().filter(|node| node.qualified() == "SequenceConstruct");
    let made: HashMap<&str, &[String]> =
        made.filter_map(|node| Some((node.output.first()?.as_str(), &node.input[..]))).collect();
    let taken = |name: &String| {
        graph.node.iter().flat_map(|node| &node.output).any(|output| output == name)
            || graph.input.iter().chain(&graph.output).any(|info| info.name == *name)
            || graph.initializer.iter().any(|weight| weight.name == *name)
    };
    let (mut outputs, mut nodes) = (Vec::new(), Vec::new());
    for info in &graph.output {
        let items = made.get(info.name.as_str()).copied().unwrap_or_default();
        let names: Vec<String> = (0..items.len()).map(|i| format!("{}_{i}", info.name)).collect();
        if items.is_empty() || names.iter().any(taken) {
            outputs.push(info.clone());
            continue;
        }
        for (item, name) in items.iter().zip(names) {
            outputs.push(ValueInfo { name: name.clone(), kind: None });
            let (input, output, op_type) = (vec![item.clone()], vec![name.clone()], "Identity".to_owned());
            nodes.push(NodeProto { input, output, name, op_type, ..NodeProto::default() });
        }
    }
    graph.output = outputs;
    graph.node.append(&mut nodes);
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use uncork_model::runner::Runner;
    use uncork_model::tensor::{Tensor, Tensors};

    use crate::OnnxModel;
    use crate::author::{Author, FREE};

    #[test]
    fn the_tensors_of_a_sequence_are_outputs_of_their_own_with_rows() {
        let author = Author::new(17).input("x", &[FREE, 2]).output_of(0, "all", &[]);
        let author = author.node("Abs", &["x"], &["a"], &[]).node("Neg", &["x"], &["b"], &[]);
        let model = OnnxModel::load(&author.node("SequenceConstruct", &["a", "b"], &["all"], &[]).finish()).unwrap();
        assert!(model.alone().is_none(), "{:?}", model.alone());
        let x = Tensor::new(vec![1, 2], vec![1f32, -2.0]).unwrap();
        let outputs = model.runner(NonZeroUsize::MIN).run(Tensors::one("x", x)).unwrap();
        let names: Vec<&str> = outputs.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["all_0", "all_1"]);
        assert_eq!(outputs.get("all_1"), Some(&Tensor::new(vec![1, 2], vec![-1f32, 2.0]).unwrap()));
    }
}
