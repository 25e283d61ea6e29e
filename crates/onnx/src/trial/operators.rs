//! What is known of operators by their names.

/// Operators that compute each element from those at its place.
pub(super) const BY_ELEMENT: &[&str] = &[
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "Dropout",
    "Div",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Where",
    "Xor",
    "com.microsoft::FastGelu",
    "com.microsoft::Gelu",
    "com.microsoft::QuickGelu",
];

/// Operators that have places for constants, from the begin of an axis or from its end.
pub(super) const PLACED: &[&str] = &["CenterCropPad", "Compress", "EyeLike", "Pad", "Slice", "Trilu"];

/// Operators of which the first axis is the batch.
pub(super) const IN_FRONT: &[&str] = &[
    "AveragePool",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "DepthToSpace",
    "GlobalAveragePool",
    "GlobalLpPool",
    "GlobalMaxPool",
    "GroupNormalization",
    "InstanceNormalization",
    "LRN",
    "LpPool",
    "MaxPool",
    "QLinearConv",
    "SpaceToDepth",
];

/// Operators that keep all elements in their order.
pub(super) const IN_ORDER: &[&str] = &["Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"];

/// Operators whose integers change at most at the places where those of their inputs do.
pub(super) const BY_PLACE: &[&str] = &[
    "Add",
    "Cast",
    "Concat",
    "Expand",
    "Gather",
    "Identity",
    "Mul",
    "Neg",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Sub",
    "Unsqueeze",
];

/// Operators that tell numbers apart, however little these differ, as long as they are floats.
pub(super) const EXACT: &[&str] = &["Add", "Div", "Mul", "Sub"];

/// Operators that give what one of their arguments holds, as often as another says.
pub(super) const REPEATING: &[&str] = &["ConstantOfShape", "Expand", "Reshape", "Tile"];

/// Operators that give as many elements as values say.
pub(super) const LOOSE: &[&str] = &["Compress", "NonMaxSuppression", "NonZero", "Unique"];

/// Operators that do not turn numbers that grow into ones that fall and grow again.
pub(super) const STEADY: &[&str] = &["Div", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min"];

/// Operators that give elements of their first argument, those that the second names.
pub(super) const CHOOSING: &[&str] = &["Gather", "GatherElements", "GatherND"];

/// Operators of which each result is an element of the first argument, whatever the others are.
pub(super) const MOVING: &[&str] =
    &["Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"];

/// Operators that write to places that an argument names.
const WRITING: &[&str] = &["Scatter", "ScatterElements", "ScatterND"];

/// Operators of which no result gets less where an argument gets greater.
pub(super) const RISING: &[&str] = &[
    "Add",
    "Cast",
    "CastLike",
    "Ceil",
    "Clip",
    "Concat",
    "CumSum",
    "Expand",
    "Flatten",
    "Floor",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Max",
    "Mean",
    "Min",
    "Pad",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceSum",
    "Reshape",
    "Round",
    "Sigmoid",
    "Slice",
    "Split",
    "Squeeze",
    "Sum",
    "Tanh",
    "Tile",
    "Transpose",
    "Trilu",
    "Unsqueeze",
];

/// Operators of which, beside those, each result rises or falls with an argument as long as the others stay.
pub(super) const TURNING: &[&str] = &[
    "And",
    "Div",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "Less",
    "LessOrEqual",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "Sub",
    "Where",
    "Xor",
];

/// Operators of which an integer may get beyond the end of its type, and comes back from the other.
pub(super) const WRAPPING: &[&str] =
    &["Add", "CumSum", "Div", "Mean", "Mul", "Neg", "ReduceMean", "ReduceSum", "Sub", "Sum"];

/// Operators of which a result has bounds though an argument has none: of any numbers, and of integers.
const BOUNDING: [&[&str]; 2] =
    [&["Clip", "HardSigmoid", "Max", "Min", "Sigmoid", "Tanh"], &["Clip", "Concat", "Max", "Min", "Mod", "Where"]];

/// Whether a result may have bounds though an argument has none.
pub(super) fn bounds(operator: &str, is_whole: bool) -> bool {
    BOUNDING[usize::from(is_whole)].contains(&operator)
}

/// Whether the places that an operator takes say no more than what shape its result has, or how often something is done.
pub(super) fn is_shape(operator: &str) -> bool {
    REPEATING.contains(&operator) || matches!(operator, "EyeLike" | "Loop" | "Squeeze" | "Unsqueeze")
}

/// Whether an argument says from where elements are taken, or where they are put.
pub(super) fn is_index(operator: &str, argument: usize) -> bool {
    is_place(operator, argument) && (CHOOSING.contains(&operator) || WRITING.contains(&operator) || operator == "Slice")
}

/// Whether an argument says how long something is or where it is taken from, and is no part of the result.
pub(super) fn is_place(operator: &str, argument: usize) -> bool {
    match operator {
        "ConstantOfShape" | "EyeLike" => argument == 0,
        "CenterCropPad" | "CumSum" | "Expand" | "Gather" | "GatherElements" | "GatherND" | "OneHot" | "Reshape"
        | "Scatter" | "ScatterElements" | "ScatterND" | "Split" | "Squeeze" | "Tile" | "TopK" | "Trilu"
        | "Unsqueeze" => argument == 1,
        "Loop" => argument <= 1,
        "Pad" => argument == 1 || argument == 3,
        "Resize" | "Slice" | "Upsample" => argument >= 1,
        _ => false,
    }
}
