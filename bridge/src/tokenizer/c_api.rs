//! The C functions of include/mlxcel_bridge.h for tokenizers.

use super::{from_vocabulary, Stream, Tokenizer, Vocabulary};
use crate::ffi::{fenced, guarded, Ids, Str, Text};
use std::sync::Arc;

#[repr(C)]
pub struct RawVocabulary {
    model: Str,
    pre: Str,
    tokens: *const Str,
    token_count: usize,
    scores: *const f32,
    types: *const i32,
    merges: *const Str,
    merge_count: usize,
    charsmap: Str,
    bos: i64,
    eos: i64,
    unk: i64,
    sep: i64,
    cls: i64,
    special: *const i64,
    special_count: usize,
    add_bos: i32,
    add_eos: i32,
    add_space_prefix: i32,
    remove_extra_whitespaces: i32,
    space_as_suffix: i32,
    lowercase: i32,
    strip_accents: i32,
}

unsafe fn list<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 || data.is_null() {
        &[]
    } else {
        std::slice::from_raw_parts(data, count)
    }
}

unsafe fn strings(key: &str, data: *const Str, count: usize) -> Result<Vec<String>, String> {
    let text = |(i, s): (usize, &Str)| {
        let bytes = s.bytes();
        std::str::from_utf8(bytes)
            .map(str::to_string)
            .map_err(|_| format!("tokenizer.ggml.{key}: entry {i} is not UTF-8"))
    };
    list(data, count).iter().enumerate().map(text).collect()
}

fn id(key: &str, id: i64) -> Result<Option<u32>, String> {
    match id {
        -1 => Ok(None),
        id => u32::try_from(id).map(Some).map_err(|_| format!("tokenizer.ggml.{key}: {id} is no token id")),
    }
}

fn flag(flag: i32) -> Option<bool> {
    (flag >= 0).then_some(flag != 0)
}

unsafe fn vocabulary(raw: &RawVocabulary) -> Result<Vocabulary, String> {
    let count = raw.token_count;
    Ok(Vocabulary {
        model: raw.model.lossy().into_owned(),
        pre: raw.pre.lossy().into_owned(),
        tokens: strings("tokens", raw.tokens, count)?,
        scores: (!raw.scores.is_null()).then(|| list(raw.scores, count).to_vec()),
        types: (!raw.types.is_null()).then(|| list(raw.types, count).to_vec()),
        merges: strings("merges", raw.merges, raw.merge_count)?,
        charsmap: raw.charsmap.bytes().to_vec(),
        bos: id("bos_token_id", raw.bos)?,
        eos: id("eos_token_id", raw.eos)?,
        unk: id("unknown_token_id", raw.unk)?,
        sep: id("seperator_token_id", raw.sep)?,
        cls: id("cls_token_id", raw.cls)?,
        special: list(raw.special, raw.special_count)
            .iter()
            .filter_map(|id| u32::try_from(*id).ok())
            .collect(),
        add_bos: flag(raw.add_bos),
        add_eos: flag(raw.add_eos),
        add_space_prefix: flag(raw.add_space_prefix),
        remove_extra_whitespaces: flag(raw.remove_extra_whitespaces),
        space_as_suffix: flag(raw.space_as_suffix),
        lowercase: flag(raw.lowercase),
        strip_accents: flag(raw.strip_accents),
    })
}

// A handle is an Arc, so that a stream keeps its tokenizer alive.
fn handle(tokenizer: Tokenizer) -> *const Tokenizer {
    Arc::into_raw(Arc::new(tokenizer))
}

/// # Safety
/// As the header says: `json` readable, `error` writable.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_tokenizer_from_json(json: Str, error: *mut Text) -> *const Tokenizer {
    guarded(error, || Tokenizer::from_json(json.bytes())).map_or(std::ptr::null(), handle)
}

/// # Safety
/// As the header says: every array holds as many entries as its count.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_tokenizer_from_vocabulary(
    raw: *const RawVocabulary,
    error: *mut Text,
) -> *const Tokenizer {
    guarded(error, || from_vocabulary(vocabulary(&*raw)?)).map_or(std::ptr::null(), handle)
}

/// # Safety
/// `tokenizer` came from this library and is not used again.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_tokenizer_free(tokenizer: *const Tokenizer) {
    if !tokenizer.is_null() {
        drop(Arc::from_raw(tokenizer));
    }
}

/// # Safety
/// Nobody else uses `tokenizer` yet.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_tokenizer_set_clean_up(tokenizer: *mut Tokenizer, clean_up: bool) {
    (*tokenizer).set_clean_up(clean_up);
}

/// # Safety
/// Valid pointers, as the header says.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_tokenizer_encode(
    tokenizer: *const Tokenizer,
    text: Str,
    add_special: bool,
    parse_special: bool,
    ids: *mut Ids,
    error: *mut Text,
) -> bool {
    let encoded = guarded(error, || (*tokenizer).encode(&text.lossy(), add_special, parse_special));
    encoded.map(|list| *ids = Ids::new(list)).is_some()
}

/// # Safety
/// Valid pointers, as the header says.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_tokenizer_decode(
    tokenizer: *const Tokenizer,
    ids: *const i32,
    count: usize,
    skip_special: bool,
    text: *mut Text,
    error: *mut Text,
) -> bool {
    let decoded = guarded(error, || (*tokenizer).decode(list(ids, count), skip_special));
    decoded.map(|string| *text = Text::new(string)).is_some()
}

/// # Safety
/// `tokenizer` is valid.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_tokenizer_size(tokenizer: *const Tokenizer) -> i32 {
    i32::try_from((*tokenizer).size()).unwrap_or(i32::MAX)
}

/// # Safety
/// Valid pointers, as the header says.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_tokenizer_id(tokenizer: *const Tokenizer, token: Str) -> i32 {
    match std::str::from_utf8(token.bytes()) {
        Ok(token) => (*tokenizer).token_id(token).map_or(-1, |id| id as i32),
        Err(_) => -1,
    }
}

/// # Safety
/// `tokenizer` is valid.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_tokenizer_is_special(tokenizer: *const Tokenizer, id: i32) -> bool {
    (*tokenizer).is_special(id)
}

/// # Safety
/// `tokenizer` is valid.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_tokenizer_token(tokenizer: *const Tokenizer, id: i32) -> Text {
    (*tokenizer).token(id).map_or(Text::EMPTY, Text::new)
}

/// # Safety
/// `tokenizer` is valid.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_tokenizer_token_bytes(tokenizer: *const Tokenizer, id: i32) -> Text {
    fenced(|| Ok((*tokenizer).token_bytes(id))).ok().flatten().map_or(Text::EMPTY, Text::new)
}

/// # Safety
/// `tokenizer` is valid.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_tokenizer_bos(tokenizer: *const Tokenizer) -> i32 {
    (*tokenizer).bos.map_or(-1, |id| id as i32)
}

/// # Safety
/// `tokenizer` is valid.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_tokenizer_eos(tokenizer: *const Tokenizer) -> i32 {
    (*tokenizer).eos.map_or(-1, |id| id as i32)
}

/// # Safety
/// `tokenizer` is valid.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_stream_new(tokenizer: *const Tokenizer, skip_special: bool) -> *mut Stream {
    Arc::increment_strong_count(tokenizer);
    let shared = Arc::from_raw(tokenizer);
    match fenced(|| Stream::new(shared, skip_special)) {
        Ok(stream) => Box::into_raw(Box::new(stream)),
        Err(_) => std::ptr::null_mut(),
    }
}

/// # Safety
/// `stream` came from this library and is not used again.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_stream_free(stream: *mut Stream) {
    if !stream.is_null() {
        drop(Box::from_raw(stream));
    }
}

/// # Safety
/// Valid pointers, as the header says.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_stream_push(
    stream: *mut Stream,
    id: i32,
    piece: *mut Str,
    error: *mut Text,
) -> bool {
    guarded(error, || Ok(Str::of((*stream).push(id)))).map(|text| *piece = text).is_some()
}

/// # Safety
/// Valid pointers, as the header says.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_stream_finish(
    stream: *mut Stream,
    piece: *mut Str,
    error: *mut Text,
) -> bool {
    guarded(error, || Ok(Str::of((*stream).finish()))).map(|text| *piece = text).is_some()
}
