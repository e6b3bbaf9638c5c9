//! A tokenizer built from the vocabulary that a GGUF file carries. Defaults that the file leaves out are those
//! with which llama.cpp writes and reads such files.

use super::charsmap::CharsMap;
use super::model::{AnyModel, Blanks, Normaliser, SharedModel};
use super::pieces::{Kind, Pieces, Vocabulary as Words};
use super::pre::{scheme, PreTokeniser};
use super::unigram::Unigram;
use super::{Parts, Tokenizer};
use ahash::AHashMap;
use serde_json::json;
use std::sync::Arc;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::bpe::BPE;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::models::ModelWrapper;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::normalizers::{BertNormalizer, NormalizerWrapper};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::AddedToken;

const LONGEST_TOKEN: usize = 16 * 1024;

/// Texts that end a turn: special even where a file marks them as ordinary.
const ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

pub struct Vocabulary {
    pub model: String,
    pub pre: String,
    pub tokens: Vec<String>,
    pub scores: Option<Vec<f32>>,
    pub types: Option<Vec<i32>>,
    pub merges: Vec<String>,
    pub charsmap: Vec<u8>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unk: Option<u32>,
    pub sep: Option<u32>,
    pub cls: Option<u32>,
    pub special: Vec<u32>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
    pub remove_extra_whitespaces: Option<bool>,
    pub space_as_suffix: Option<bool>,
    pub lowercase: Option<bool>,
    pub strip_accents: Option<bool>,
}

type Outcome<T> = Result<T, String>;

fn sentence(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn decoder(value: serde_json::Value) -> Outcome<DecoderWrapper> {
    serde_json::from_value(value).map_err(sentence)
}

/// ▁ for blanks and <0x..> for bytes, as SentencePiece writes them.
fn piece_decoder(strip: bool) -> Outcome<DecoderWrapper> {
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if strip {
        steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    decoder(json!({"type": "Sequence", "decoders": steps}))
}

impl Vocabulary {
    fn kinds(&self) -> Outcome<Vec<Kind>> {
        let Some(types) = &self.types else { return Ok(vec![Kind::Normal; self.tokens.len()]) };
        types
            .iter()
            .map(|kind| match kind {
                0 | 1 => Ok(Kind::Normal),
                2 => Ok(Kind::Unknown),
                3 => Ok(Kind::Control),
                4 => Ok(Kind::UserDefined),
                5 => Ok(Kind::Unused),
                6 => Ok(Kind::Byte),
                other => Err(format!("tokenizer.ggml.token_type: {other} is no token type (0 to 6)")),
            })
            .collect()
    }

    fn checked(&self, key: &str, id: Option<u32>, default: Option<u32>) -> Outcome<Option<u32>> {
        match id {
            Some(id) if id as usize >= self.tokens.len() => {
                Err(format!("tokenizer.ggml.{key}: {id}, but there are {} tokens", self.tokens.len()))
            }
            Some(id) => Ok(Some(id)),
            None => Ok(default.filter(|id| (*id as usize) < self.tokens.len())),
        }
    }

    fn scores(&self) -> Vec<f32> {
        self.scores.clone().unwrap_or_else(|| vec![0.0; self.tokens.len()])
    }

    fn merges(&self) -> Outcome<Vec<(String, String)>> {
        let split = |merge: &String| {
            let first = merge.chars().next().map_or(0, char::len_utf8);
            let at = merge[first..].find(' ').map(|at| at + first)?; // a piece may itself begin with a blank
            Some((merge[..at].to_string(), merge[at + 1..].to_string()))
        };
        self.merges
            .iter()
            .map(|merge| {
                split(merge).ok_or_else(|| format!("tokenizer.ggml.merges: {merge:?} is not two pieces"))
            })
            .collect()
    }

    fn bpe(&self, ignore_merges: bool, bytes: bool) -> Outcome<AnyModel> {
        if self.merges.is_empty() {
            return Err("tokenizer.ggml.merges is missing or empty".to_string());
        }
        let ids: AHashMap<String, u32> =
            self.tokens.iter().enumerate().map(|(id, token)| (token.clone(), id as u32)).collect();
        let mut builder = BPE::builder().vocab_and_merges(ids, self.merges()?).ignore_merges(ignore_merges);
        if bytes {
            builder = builder.byte_fallback(true).fuse_unk(true);
            if let Some(unk) = self.unk.and_then(|id| self.tokens.get(id as usize)) {
                builder = builder.unk_token(unk.clone());
            }
        }
        let model = builder.build().map_err(|e| format!("tokenizer.ggml.merges: {e}"))?;
        Ok(AnyModel::Theirs(ModelWrapper::BPE(model)))
    }

    /// llama.cpp marks words, not continuations: "▁word" begins one, "ing" goes on.
    fn word_pieces(&self) -> Vec<String> {
        let hugging_face = |token: &String| match token.strip_prefix('▁') {
            Some(word) => word.to_string(),
            None if token.starts_with('[') && token.ends_with(']') => token.clone(),
            None => format!("##{token}"),
        };
        self.tokens.iter().map(hugging_face).collect()
    }
}

/// A token's text is repeated nowhere and none is empty: both would make ids that cannot be written.
fn clean(tokens: &mut [String]) -> Outcome<()> {
    for (id, token) in tokens.iter_mut().enumerate() {
        if token.is_empty() {
            *token = format!("[EMPTY_{id}]");
        }
        if token.len() > LONGEST_TOKEN {
            return Err(format!(
                "tokenizer.ggml.tokens: token {id} has {} bytes, at most {LONGEST_TOKEN}",
                token.len()
            ));
        }
    }
    Ok(())
}

pub fn from_vocabulary(mut words: Vocabulary) -> Outcome<Tokenizer> {
    if words.tokens.is_empty() {
        return Err("tokenizer.ggml.tokens is missing or empty".to_string());
    }
    clean(&mut words.tokens)?;
    let mut kinds = words.kinds()?;
    let model = words.model.clone();
    let (default_bos, default_eos, default_unk) = match model.as_str() {
        "llama" => (Some(1), Some(2), Some(0)),
        "bert" => (Some(101), Some(102), Some(100)),
        "t5" => (None, Some(1), Some(2)),
        _ => (None, None, None),
    };
    let bos = words.checked("bos_token_id", words.bos, default_bos)?;
    let eos = words.checked("eos_token_id", words.eos, default_eos)?;
    let unk = words.checked("unknown_token_id", words.unk, default_unk)?;
    let sep = words.checked("seperator_token_id", words.sep, None)?;
    let cls = words.checked("cls_token_id", words.cls, None)?;
    words.unk = unk;
    for id in words.special.iter().copied().chain([bos, eos, unk, sep, cls].into_iter().flatten()) {
        if let Some(kind) = kinds.get_mut(id as usize) {
            if !matches!(kind, Kind::Unknown | Kind::Byte) {
                *kind = Kind::Control;
            }
        }
    }
    for (id, token) in words.tokens.iter().enumerate() {
        if ENDS.contains(&token.as_str()) {
            kinds[id] = Kind::Control;
        }
    }

    let mut normaliser = None;
    let mut pre_tokeniser = None;
    let (mut add_bos, mut add_eos) = (false, false);
    let (any, decode) = match model.as_str() {
        "gpt2" | "gemma4" => {
            let name = if model == "gemma4" { "gemma4" } else { words.pre.as_str() };
            if name.is_empty() {
                return Err(
                    "tokenizer.ggml.pre is missing: the way this vocabulary cuts text is unknown".to_string()
                );
            }
            let scheme = scheme(name)
                .ok_or_else(|| format!("tokenizer.ggml.pre: {name:?} is no pre-tokenizer known here"))?;
            add_bos = scheme.add_bos;
            Words::new(words.tokens.clone()).map_err(|e| format!("tokenizer.ggml.tokens: {e}"))?;
            pre_tokeniser = Some(PreTokeniser::of(scheme).map_err(sentence)?);
            if scheme.compose {
                normaliser = Some(Normaliser::Theirs(NormalizerWrapper::NFC(NFC)));
            }
            if scheme.byte_level {
                (
                    words.bpe(scheme.ignore_merges, false)?,
                    decoder(json!({"type": "ByteLevel",
                    "add_prefix_space": true, "trim_offsets": true, "use_regex": true}))?,
                )
            } else {
                normaliser = Some(Normaliser::Blanks(Blanks {
                    charsmap: None,
                    prefix: false,
                    suffix: false,
                    merge: false,
                }));
                (words.bpe(false, true)?, piece_decoder(false)?)
            }
        }
        "llama" => {
            add_bos = true;
            let prefix = words.add_space_prefix.unwrap_or(true);
            let merge = words.remove_extra_whitespaces.unwrap_or(false);
            normaliser = Some(Normaliser::Blanks(Blanks { charsmap: None, prefix, suffix: false, merge }));
            let scores = words.scores();
            let vocabulary =
                Words::new(words.tokens.clone()).map_err(|e| format!("tokenizer.ggml.tokens: {e}"))?;
            (AnyModel::Pieces(Pieces::new(vocabulary, scores, kinds.clone(), unk)), piece_decoder(prefix)?)
        }
        "t5" => {
            add_eos = true;
            let charsmap = match words.charsmap.as_slice() {
                [] => None,
                bytes => Some(Arc::new(
                    CharsMap::new(bytes).map_err(|e| format!("tokenizer.ggml.precompiled_charsmap: {e}"))?,
                )),
            };
            let prefix = words.add_space_prefix.unwrap_or(true);
            let suffix = words.space_as_suffix.unwrap_or(false);
            let merge = words.remove_extra_whitespaces.unwrap_or(true);
            normaliser = Some(Normaliser::Blanks(Blanks {
                charsmap,
                prefix: prefix && !suffix,
                suffix: prefix && suffix,
                merge,
            }));
            let unk = unk.ok_or("tokenizer.ggml.unknown_token_id is missing")?;
            let scores = words.scores.clone().ok_or("tokenizer.ggml.scores is missing")?;
            let vocabulary =
                Words::new(words.tokens.clone()).map_err(|e| format!("tokenizer.ggml.tokens: {e}"))?;
            (AnyModel::Unigram(Unigram::new(vocabulary, &scores, &kinds, unk)), piece_decoder(prefix)?)
        }
        "bert" => {
            words.tokens = words.word_pieces();
            let lowercase = words.lowercase.unwrap_or(true);
            let accents = words.strip_accents.unwrap_or(lowercase);
            normaliser = Some(Normaliser::Theirs(NormalizerWrapper::BertNormalizer(BertNormalizer::new(
                true,
                true,
                Some(accents),
                lowercase,
            ))));
            pre_tokeniser = Some(PreTokeniser::Theirs(BertPreTokenizer.into()));
            let unk = unk.ok_or("tokenizer.ggml.unknown_token_id is missing")?;
            Words::new(words.tokens.clone()).map_err(|e| format!("tokenizer.ggml.tokens: {e}"))?;
            let ids: AHashMap<String, u32> =
                words.tokens.iter().enumerate().map(|(id, token)| (token.clone(), id as u32)).collect();
            let model = WordPiece::builder()
                .vocab(ids)
                .unk_token(words.tokens[unk as usize].clone())
                .continuing_subword_prefix("##".to_string())
                .max_input_chars_per_word(100)
                .build()
                .map_err(sentence)?;
            (
                AnyModel::Theirs(model.into()),
                decoder(json!({"type": "WordPiece", "prefix": "##", "cleanup": true}))?,
            )
        }
        other => return Err(format!("tokenizer.ggml.model: {other:?} is no tokenizer known here")),
    };

    let mut parts = Parts::new(SharedModel::new(any));
    parts.with_normalizer(normaliser).map_err(sentence)?;
    parts.with_pre_tokenizer(pre_tokeniser);
    parts.with_decoder(Some(decode));
    let added = kinds.iter().zip(&words.tokens).filter_map(|(kind, token)| match kind {
        Kind::Control | Kind::Unknown => Some(AddedToken::from(token.clone(), true)),
        Kind::UserDefined => Some(AddedToken::from(token.clone(), false).normalized(false)),
        _ => None,
    });
    parts.add_tokens(added.collect::<Vec<_>>()).map_err(sentence)?;

    let mut tokenizer = Tokenizer::new(parts)?;
    let around = |flag: bool, key: &str, id: Option<u32>| match (flag, id) {
        (false, _) => Ok(Vec::new()),
        (true, Some(id)) => Ok(vec![id]),
        (true, None) => Err(format!("tokenizer.ggml.{key} is missing, though that token is to be added")),
    };
    if model == "bert" {
        tokenizer.before = around(true, "cls_token_id", cls.or(bos))?;
        tokenizer.after = around(true, "seperator_token_id", sep.or(eos))?;
    } else {
        tokenizer.before = around(words.add_bos.unwrap_or(add_bos), "bos_token_id", bos)?;
        tokenizer.after = around(words.add_eos.unwrap_or(add_eos), "eos_token_id", eos)?;
    }
    tokenizer.bos = bos;
    tokenizer.eos = eos;
    Ok(tokenizer)
}
