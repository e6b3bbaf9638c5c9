//! Decoding token by token. Every decoder of `tokenizers` becomes a stage that gives out what later tokens cannot
//! change any more and holds back the rest, so the pieces join to the decode of the whole list.

use super::Tokenizer;
use ahash::AHashMap;
use serde_json::Value;
use std::sync::{Arc, LazyLock};
use tokenizers::decoders::DecoderWrapper;
use tokenizers::Decoder;

trait Stage: Send {
    fn push(&mut self, piece: &str, out: &mut Vec<String>);
    fn finish(&mut self, out: &mut Vec<String>);
}

/// GPT-2's printable stand-ins for bytes.
static BYTE_OF: LazyLock<AHashMap<char, u8>> = LazyLock::new(|| {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut map = AHashMap::new();
    let mut next = 256u32;
    for byte in 0..=255u8 {
        let c = if printable(byte) { byte as u32 } else { next };
        next += !printable(byte) as u32;
        map.insert(char::from_u32(c).expect("below the surrogates"), byte);
    }
    map
});

fn byte_level(token: &str) -> Vec<u8> {
    token
        .chars()
        .map(|c| BYTE_OF.get(&c).copied())
        .collect::<Option<Vec<u8>>>()
        .unwrap_or_else(|| token.into())
}

fn byte_token(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (hex.len() == 2).then(|| u8::from_str_radix(hex, 16).ok()).flatten()
}

/// One token at a time through a decoder that looks at nothing else.
struct Each(DecoderWrapper);

impl Stage for Each {
    fn push(&mut self, piece: &str, out: &mut Vec<String>) {
        out.extend(self.0.decode_chain(vec![piece.to_string()]).unwrap_or_default());
    }
    fn finish(&mut self, _: &mut Vec<String>) {}
}

/// Waits for the end: for decoders that need all of the text. `fused`: it is one token to them.
struct Whole {
    decoder: DecoderWrapper,
    fused: bool,
    held: Vec<String>,
}

impl Stage for Whole {
    fn push(&mut self, piece: &str, _: &mut Vec<String>) {
        match self.held.last_mut() {
            Some(last) if self.fused => last.push_str(piece),
            _ => self.held.push(piece.to_string()),
        }
    }
    fn finish(&mut self, out: &mut Vec<String>) {
        if !self.held.is_empty() {
            out.extend(self.decoder.decode_chain(std::mem::take(&mut self.held)).unwrap_or_default());
        }
    }
}

/// Bytes to text; the bytes of an unfinished character are held back.
#[derive(Default)]
struct Bytes {
    held: Vec<u8>,
}

impl Stage for Bytes {
    fn push(&mut self, piece: &str, out: &mut Vec<String>) {
        self.held.extend(byte_level(piece));
        let mut text = String::new();
        let mut at = 0;
        loop {
            match std::str::from_utf8(&self.held[at..]) {
                Ok(rest) => {
                    text.push_str(rest);
                    at = self.held.len();
                    break;
                }
                Err(error) => {
                    let valid = at + error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.held[at..valid]));
                    at = valid;
                    match error.error_len() {
                        Some(bad) => {
                            text.push('\u{FFFD}');
                            at += bad;
                        }
                        None => break,
                    }
                }
            }
        }
        self.held.drain(..at);
        out.push(text);
    }
    fn finish(&mut self, out: &mut Vec<String>) {
        if !std::mem::take(&mut self.held).is_empty() {
            out.push("\u{FFFD}".to_string());
        }
    }
}

/// A run of byte tokens is text only if all of it is; so it waits for its end.
#[derive(Default)]
struct ByteRuns {
    held: Vec<u8>,
}

impl ByteRuns {
    fn flush(&mut self, out: &mut Vec<String>) {
        if self.held.is_empty() {
            return;
        }
        let run = std::mem::take(&mut self.held);
        let count = run.len();
        match String::from_utf8(run) {
            Ok(text) => out.push(text),
            Err(_) => out.extend(std::iter::repeat_n("\u{FFFD}".to_string(), count)),
        }
    }
}

impl Stage for ByteRuns {
    fn push(&mut self, piece: &str, out: &mut Vec<String>) {
        match byte_token(piece) {
            Some(byte) => self.held.push(byte),
            None => {
                self.flush(out);
                out.push(piece.to_string());
            }
        }
    }
    fn finish(&mut self, out: &mut Vec<String>) {
        self.flush(out);
    }
}

/// Strip over the fused text: `start` leading and `stop` trailing occurrences go.
struct Strip {
    content: char,
    start: usize,
    stop: usize,
    tail: String,
}

impl Stage for Strip {
    fn push(&mut self, piece: &str, out: &mut Vec<String>) {
        let mut piece = piece;
        while self.start > 0 && !piece.is_empty() {
            match piece.strip_prefix(self.content) {
                Some(rest) => {
                    piece = rest;
                    self.start -= 1;
                }
                None => self.start = 0,
            }
        }
        let mut text = std::mem::take(&mut self.tail) + piece;
        let trailing = text.chars().rev().take(self.stop).take_while(|c| *c == self.content).count();
        self.tail = text.split_off(text.len() - trailing * self.content.len_utf8());
        out.push(text);
    }
    fn finish(&mut self, _: &mut Vec<String>) {
        self.tail.clear();
    }
}

/// Replaces a string; a tail that may be its beginning is held back.
struct Replace {
    from: String,
    to: String,
    held: String,
}

impl Stage for Replace {
    fn push(&mut self, piece: &str, out: &mut Vec<String>) {
        self.held.push_str(piece);
        let mut text = String::new();
        let mut at = 0;
        while let Some(found) = self.held[at..].find(&self.from) {
            text.push_str(&self.held[at..at + found]);
            text.push_str(&self.to);
            at += found + self.from.len();
        }
        let rest = &self.held[at..];
        let longest = rest.len().min(self.from.len() - 1);
        let hold = (1..=longest)
            .rev()
            .find(|n| rest.is_char_boundary(rest.len() - n) && self.from.starts_with(&rest[rest.len() - n..]))
            .unwrap_or(0);
        text.push_str(&rest[..rest.len() - hold]);
        self.held.drain(..self.held.len() - hold);
        out.push(text);
    }
    fn finish(&mut self, out: &mut Vec<String>) {
        out.push(std::mem::take(&mut self.held));
    }
}

/// What a decoder does to the first token only.
struct First {
    seen: bool,
    first: Box<dyn Fn(&str) -> String + Send>,
    later: Box<dyn Fn(&str) -> String + Send>,
}

impl Stage for First {
    fn push(&mut self, piece: &str, out: &mut Vec<String>) {
        out.push(if self.seen { (self.later)(piece) } else { (self.first)(piece) });
        self.seen = true;
    }
    fn finish(&mut self, _: &mut Vec<String>) {}
}

/// BPE's word suffix: a blank, except in the last token.
struct Suffix {
    suffix: String,
    held: Option<String>,
}

impl Stage for Suffix {
    fn push(&mut self, piece: &str, out: &mut Vec<String>) {
        if let Some(token) = self.held.replace(piece.to_string()) {
            out.push(token.replace(&self.suffix, " "));
        }
    }
    fn finish(&mut self, out: &mut Vec<String>) {
        if let Some(token) = self.held.take() {
            out.push(token.replace(&self.suffix, ""));
        }
    }
}

/// (from, to) in the order that `clean_up_tokenization_spaces` applies them.
const CLEAN_UP: &[(&str, &str)] = &[
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

pub fn clean_up(text: &str) -> String {
    CLEAN_UP.iter().fold(text.to_string(), |text, (from, to)| text.replace(from, to))
}

fn replace(from: &str, to: &str) -> Box<dyn Stage> {
    Box::new(Replace { from: from.to_string(), to: to.to_string(), held: String::new() })
}

fn text_of<'a>(decoder: &'a Value, key: &str) -> &'a str {
    decoder.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Adds the stages of one decoder. `fused` turns true once the tokens have become one text.
fn add_stages(decoder: &Value, fused: &mut bool, stages: &mut Vec<Box<dyn Stage>>) -> Result<(), String> {
    let theirs = || serde_json::from_value::<DecoderWrapper>(decoder.clone()).map_err(|e| e.to_string());
    let kind = text_of(decoder, "type");
    match (kind, *fused) {
        ("Sequence", _) => {
            for inner in decoder.get("decoders").and_then(Value::as_array).into_iter().flatten() {
                add_stages(inner, fused, stages)?;
            }
        }
        ("Fuse", _) => *fused = true,
        ("ByteLevel", false) => {
            stages.push(Box::new(Bytes::default()));
            *fused = true;
        }
        ("ByteFallback", false) => stages.push(Box::new(ByteRuns::default())),
        ("Strip" | "Replace", false) => stages.push(Box::new(Each(theirs()?))),
        ("Strip", true) => {
            let count = |key: &str| decoder.get(key).and_then(Value::as_u64).unwrap_or(0) as usize;
            let content =
                text_of(decoder, "content").chars().next().ok_or("Strip decoder without content")?;
            stages.push(Box::new(Strip {
                content,
                start: count("start"),
                stop: count("stop"),
                tail: String::new(),
            }));
        }
        ("Replace", true) => match decoder.pointer("/pattern/String").and_then(Value::as_str) {
            Some(from) if !from.is_empty() => stages.push(replace(from, text_of(decoder, "content"))),
            _ => stages.push(Box::new(Whole { decoder: theirs()?, fused: true, held: Vec::new() })),
        },
        ("Metaspace", false) => {
            let mark = text_of(decoder, "replacement").to_string();
            let drops = text_of(decoder, "prepend_scheme") != "never";
            let to_blank = {
                let mark = mark.clone();
                move |token: &str| token.replace(&mark, " ")
            };
            let first = {
                let blank = to_blank.clone();
                move |token: &str| if drops { token.replace(&mark, "") } else { blank(token) }
            };
            stages.push(Box::new(First { seen: false, first: Box::new(first), later: Box::new(to_blank) }));
        }
        ("WordPiece", false) => {
            let prefix = text_of(decoder, "prefix").to_string();
            let clean = decoder.get("cleanup").and_then(Value::as_bool).unwrap_or(false);
            let tidy = move |token: String| {
                if clean {
                    tokenizers::decoders::wordpiece::cleanup(&token)
                } else {
                    token
                }
            };
            let later = move |token: &str| match token.strip_prefix(&prefix) {
                Some(rest) => tidy(rest.to_string()),
                None => tidy(format!(" {token}")),
            };
            stages.push(Box::new(First {
                seen: false,
                first: Box::new(move |token| tidy(token.to_string())),
                later: Box::new(later),
            }));
        }
        ("BPEDecoder", false) => {
            stages.push(Box::new(Suffix { suffix: text_of(decoder, "suffix").to_string(), held: None }))
        }
        _ => stages.push(Box::new(Whole { decoder: theirs()?, fused: *fused, held: Vec::new() })),
    }
    Ok(())
}

/// What a token of the model's vocabulary stands for on its own.
pub fn bytes_of(decoder: &Value, token: String) -> Vec<u8> {
    match text_of(decoder, "type") {
        "Sequence" => {
            let mut token = token;
            for inner in decoder.get("decoders").and_then(Value::as_array).into_iter().flatten() {
                match text_of(inner, "type") {
                    "ByteLevel" => return byte_level(&token),
                    "ByteFallback" => match byte_token(&token) {
                        Some(byte) => return vec![byte],
                        None => continue,
                    },
                    "Strip" => continue, // of the whole text, not of a token
                    _ => token = String::from_utf8_lossy(&bytes_of(inner, token)).into_owned(),
                }
            }
            token.into_bytes()
        }
        "ByteLevel" => byte_level(&token),
        "ByteFallback" => byte_token(&token).map_or_else(|| token.into_bytes(), |byte| vec![byte]),
        "Replace" => match serde_json::from_value::<DecoderWrapper>(decoder.clone()) {
            Ok(theirs) => {
                theirs.decode_chain(vec![token]).map(|t| t.concat()).unwrap_or_default().into_bytes()
            }
            Err(_) => token.into_bytes(),
        },
        "Metaspace" => token.replace(text_of(decoder, "replacement"), " ").into_bytes(),
        "WordPiece" => {
            let prefix = text_of(decoder, "prefix");
            token.strip_prefix(prefix).unwrap_or(&token).as_bytes().to_vec()
        }
        "BPEDecoder" => token.replace(text_of(decoder, "suffix"), " ").into_bytes(),
        _ => token.into_bytes(),
    }
}

pub struct Stream {
    tokenizer: Arc<Tokenizer>,
    skip_special: bool,
    stages: Vec<Box<dyn Stage>>,
    ready: String,
}

impl Stream {
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special: bool) -> Result<Stream, String> {
        let mut stages: Vec<Box<dyn Stage>> = Vec::new();
        if tokenizer.decoder.is_null() {
            // without a decoder, tokens are joined by blanks
            let later = |token: &str| format!(" {token}");
            stages.push(Box::new(First {
                seen: false,
                first: Box::new(str::to_string),
                later: Box::new(later),
            }));
        } else {
            add_stages(&tokenizer.decoder, &mut false, &mut stages)?;
        }
        if tokenizer.clean_up {
            stages.extend(CLEAN_UP.iter().map(|(from, to)| replace(from, to)));
        }
        Ok(Stream { tokenizer, skip_special, stages, ready: String::new() })
    }

    /// The text that became certain with this token.
    pub fn push(&mut self, id: i32) -> &str {
        self.ready.clear();
        if let Ok(id) = u32::try_from(id) {
            if self.tokenizer.visible(id, self.skip_special) {
                if let Some(token) = self.tokenizer.parts.id_to_token(id) {
                    feed(&mut self.stages, &token, &mut self.ready);
                }
            }
        }
        &self.ready
    }

    /// What was held back.
    pub fn finish(&mut self) -> &str {
        self.ready.clear();
        for at in 0..self.stages.len() {
            let (stage, rest) = self.stages[at..].split_first_mut().expect("at is within");
            let mut pieces = Vec::new();
            stage.finish(&mut pieces);
            for piece in pieces {
                feed(rest, &piece, &mut self.ready);
            }
        }
        &self.ready
    }
}

fn feed(stages: &mut [Box<dyn Stage>], piece: &str, ready: &mut String) {
    let Some((stage, rest)) = stages.split_first_mut() else {
        ready.push_str(piece);
        return;
    };
    let mut pieces = Vec::new();
    stage.push(piece, &mut pieces);
    for piece in pieces {
        feed(rest, &piece, ready);
    }
}
