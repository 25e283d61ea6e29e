//! What a model is to whoever serves it: named tensors with rows, a signature that they are held against, and a runner that
//! takes one batch at a time and knows nothing of queues, deadlines or threads.

pub mod quote;
pub mod raw;
pub mod runner;
pub mod tensor;
