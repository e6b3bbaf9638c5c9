//! A tokenizer: the parts of Hugging Face `tokenizers`, with our own models beside theirs where a GGUF file
//! describes one they lack. Encoding with special tokens left as text shares the model with the usual one.

pub mod c_api;
mod charsmap;
mod decode;
mod gguf;
mod model;
mod pieces;
mod pre;
mod unigram;

pub use decode::Stream;
pub use gguf::{from_vocabulary, Vocabulary};

use crate::ffi::fenced;
use ahash::AHashSet;
use model::{Normaliser, SharedModel};
use pre::PreTokeniser;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::sync::OnceLock;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{Model, TokenizerImpl};

type Parts = TokenizerImpl<SharedModel, Normaliser, PreTokeniser, PostProcessorWrapper, DecoderWrapper>;

pub struct Tokenizer {
    parts: Parts,
    /// The same with special tokens read as plain text; built when first asked for.
    plain: OnceLock<Parts>,
    special: AHashSet<u32>,
    size: u32,
    /// Ids put around an encoding, for vocabularies without a post-processor.
    before: Vec<u32>,
    after: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    decoder: Value,
    clean_up: bool,
}

impl Tokenizer {
    pub fn from_json(json: &[u8]) -> Result<Tokenizer, String> {
        // Parts of the library panic where the JSON breaks off inside them.
        let read = || serde_json::from_slice::<Parts>(json).map_err(|e| e.to_string());
        let parts = fenced(read).map_err(|fault| match serde_json::from_slice::<IgnoredAny>(json) {
            Err(error) => format!("not valid JSON: {error}"),
            Ok(_) => fault,
        })?;
        Tokenizer::new(parts)
    }

    fn new(mut parts: Parts) -> Result<Tokenizer, String> {
        parts.with_truncation(None).map_err(|e| e.to_string())?;
        parts.with_padding(None);
        let added = parts.get_added_tokens_decoder();
        let special = added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id).collect();
        let last_added = added.keys().max().map_or(0, |id| id + 1);
        let size = last_added.max(parts.get_model().id_limit());
        let decoder = match parts.get_decoder() {
            Some(decoder) => serde_json::to_value(decoder).map_err(|e| e.to_string())?,
            None => Value::Null,
        };
        Ok(Tokenizer {
            parts,
            plain: OnceLock::new(),
            special,
            size,
            before: Vec::new(),
            after: Vec::new(),
            bos: None,
            eos: None,
            decoder,
            clean_up: false,
        })
    }

    /// As transformers has it: not for BPE, whose blanks are the text's own.
    pub fn set_clean_up(&mut self, clean_up: bool) {
        self.clean_up = clean_up && !self.parts.get_model().is_bpe();
    }

    fn plain(&self) -> &Parts {
        self.plain.get_or_init(|| {
            let mut vocabulary = self.parts.get_added_vocabulary().clone();
            vocabulary.set_encode_special_tokens(true);
            let mut plain = Parts::new(self.parts.get_model().clone());
            plain.with_added_vocabulary(vocabulary);
            plain.with_pre_tokenizer(self.parts.get_pre_tokenizer().cloned());
            plain.with_post_processor(self.parts.get_post_processor().cloned());
            plain
                .with_normalizer(self.parts.get_normalizer().cloned())
                .expect("it normalised these tokens before");
            plain
        })
    }

    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<i32>, String> {
        let parts = if parse_special { &self.parts } else { self.plain() };
        let encoding = parts.encode_fast(text, add_special).map_err(|e| e.to_string())?;
        let ids = encoding.get_ids();
        let (before, after): (&[u32], &[u32]) =
            if add_special { (&self.before, &self.after) } else { (&[], &[]) };
        Ok(before.iter().chain(ids).chain(after).map(|id| *id as i32).collect())
    }

    pub fn decode(&self, ids: &[i32], skip_special: bool) -> Result<String, String> {
        let ids: Vec<u32> = ids.iter().filter(|id| **id >= 0).map(|id| *id as u32).collect();
        if !ids.iter().any(|id| self.visible(*id, skip_special)) {
            return Ok(String::new()); // some decoders assume a first token
        }
        let text = self.parts.decode(&ids, skip_special).map_err(|e| e.to_string())?;
        Ok(if self.clean_up { decode::clean_up(&text) } else { text })
    }

    fn visible(&self, id: u32, skip_special: bool) -> bool {
        id < self.size && !(skip_special && self.special.contains(&id))
    }

    pub fn size(&self) -> u32 {
        self.size
    }

    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.parts.token_to_id(token)
    }

    pub fn is_special(&self, id: i32) -> bool {
        u32::try_from(id).is_ok_and(|id| self.special.contains(&id))
    }

    /// The token as the vocabulary spells it.
    pub fn token(&self, id: i32) -> Option<String> {
        let id = u32::try_from(id).ok()?;
        match self.parts.get_added_vocabulary().get_added_tokens_decoder().get(&id) {
            Some(added) => Some(added.content.clone()),
            None => self.parts.get_model().id_to_token(id),
        }
    }

    /// The bytes the token stands for on its own.
    pub fn token_bytes(&self, id: i32) -> Option<Vec<u8>> {
        let added = u32::try_from(id)
            .is_ok_and(|id| self.parts.get_added_vocabulary().get_added_tokens_decoder().contains_key(&id));
        let token = self.token(id)?;
        Some(if added { token.into_bytes() } else { decode::bytes_of(&self.decoder, token) })
    }
}
