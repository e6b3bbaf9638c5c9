//! The Rust libraries mlxcel uses, behind the C header include/mlxcel_bridge.h. One module a library.

pub mod ffi;
pub mod grammar;
pub mod template;
pub mod tokenizer;
