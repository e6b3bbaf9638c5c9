//! The C functions of include/mlxcel_bridge.h for grammars.

use super::{Grammar, Kind, Row, Tables};
use crate::ffi::{guarded, Str, Text};

unsafe fn list<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, count)
    }
}

fn boxed<T>(made: Option<T>) -> *mut T {
    made.map_or(std::ptr::null_mut(), |value| Box::into_raw(Box::new(value)))
}

/// # Safety
/// As the header says: `count` tokens and flags, `eos_count` ids, `error` writable.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_grammar_tables_new(
    tokens: *const Str,
    special: *const bool,
    count: usize,
    eos: *const u32,
    eos_count: usize,
    error: *mut Text,
) -> *mut Tables {
    boxed(guarded(error, || {
        let words: Vec<&[u8]> = list(tokens, count).iter().map(|s| s.bytes()).collect();
        Tables::new(&words, list(special, count), list(eos, eos_count))
    }))
}

/// # Safety
/// `tables` came from this library and is not used again.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_grammar_tables_free(tables: *mut Tables) {
    if !tables.is_null() {
        drop(Box::from_raw(tables));
    }
}

/// # Safety
/// Valid pointers, as the header says.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_grammar_new(
    tables: *const Tables,
    kind: Kind,
    text: Str,
    error: *mut Text,
) -> *mut Grammar {
    boxed(guarded(error, || Grammar::new(&*tables, kind, &text.lossy())))
}

/// # Safety
/// `grammar` came from this library and is not used again.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_grammar_free(grammar: *mut Grammar) {
    if !grammar.is_null() {
        drop(Box::from_raw(grammar));
    }
}

/// # Safety
/// Valid pointers, as the header says.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_matcher_new(grammar: *const Grammar, error: *mut Text) -> *mut Row {
    boxed(guarded(error, || Ok((*grammar).matcher())))
}

/// # Safety
/// `matcher` came from this library and is not used again.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_matcher_free(matcher: *mut Row) {
    if !matcher.is_null() {
        drop(Box::from_raw(matcher));
    }
}

/// # Safety
/// `words` points to `count` writable words.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_matcher_mask(
    matcher: *mut Row,
    words: *mut u32,
    count: usize,
    error: *mut Text,
) -> bool {
    guarded(error, || (*matcher).mask(std::slice::from_raw_parts_mut(words, count))).is_some()
}

/// # Safety
/// Valid pointers, as the header says.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_matcher_accept(matcher: *mut Row, token: u32, error: *mut Text) -> bool {
    guarded(error, || (*matcher).accept(token)).is_some()
}

/// # Safety
/// Valid pointers, as the header says; `fits` writable.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_matcher_accept_text(
    matcher: *mut Row,
    text: Str,
    fits: *mut bool,
    error: *mut Text,
) -> bool {
    guarded(error, || (*matcher).accept_text(text.bytes())).map(|yes| *fits = yes).is_some()
}

/// # Safety
/// Valid pointers, as the header says; `taken` writable.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_matcher_would_take(
    matcher: *mut Row,
    tokens: *const u32,
    count: usize,
    taken: *mut usize,
    error: *mut Text,
) -> bool {
    guarded(error, || (*matcher).would_take(list(tokens, count))).map(|n| *taken = n).is_some()
}

/// # Safety
/// A valid pointer.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_matcher_complete(matcher: *const Row) -> bool {
    (*matcher).complete()
}
