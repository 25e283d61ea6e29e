//! uncork
fn main() {}
