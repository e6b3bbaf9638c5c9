//! The model and the normaliser behind a tokenizer: theirs, or ours for GGUF vocabularies. The model is shared,
//! so that a second tokenizer over it costs nothing.

use super::charsmap::CharsMap;
use super::pieces::Pieces;
use super::unigram::Unigram;
use serde::{Deserialize, Deserializer};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::models::wordpiece::WordPieceTrainer;
use tokenizers::models::{ModelWrapper, TrainerWrapper};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::{Model, NormalizedString, Normalizer, Result, Token};

pub enum AnyModel {
    Theirs(ModelWrapper),
    Pieces(Pieces),
    Unigram(Unigram),
}

#[derive(Clone)]
pub struct SharedModel(pub Arc<AnyModel>);

impl SharedModel {
    pub fn new(model: AnyModel) -> SharedModel {
        SharedModel(Arc::new(model))
    }

    pub fn is_bpe(&self) -> bool {
        matches!(&*self.0, AnyModel::Theirs(ModelWrapper::BPE(_)))
    }

    /// One past the largest id.
    pub fn id_limit(&self) -> u32 {
        match &*self.0 {
            AnyModel::Theirs(model) => {
                let count = model.get_vocab_size() as u32;
                match (0..count).all(|id| model.id_to_token(id).is_some()) {
                    true => count,
                    false => model.get_vocab().values().max().map_or(0, |id| id + 1),
                }
            }
            AnyModel::Pieces(model) => model.vocabulary().len() as u32,
            AnyModel::Unigram(model) => model.vocabulary().len() as u32,
        }
    }
}

impl<'de> Deserialize<'de> for SharedModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Ok(SharedModel::new(AnyModel::Theirs(ModelWrapper::deserialize(deserializer)?)))
    }
}

impl Model for SharedModel {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, sequence: &str) -> Result<Vec<Token>> {
        match &*self.0 {
            AnyModel::Theirs(model) => model.tokenize(sequence),
            AnyModel::Pieces(model) => model.tokenize(sequence),
            AnyModel::Unigram(model) => model.tokenize(sequence),
        }
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        match &*self.0 {
            AnyModel::Theirs(model) => model.token_to_id(token),
            AnyModel::Pieces(model) => model.vocabulary().id(token),
            AnyModel::Unigram(model) => model.vocabulary().id(token),
        }
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        match &*self.0 {
            AnyModel::Theirs(model) => model.id_to_token(id),
            AnyModel::Pieces(model) => model.vocabulary().token(id).map(str::to_string),
            AnyModel::Unigram(model) => model.vocabulary().token(id).map(str::to_string),
        }
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        match &*self.0 {
            AnyModel::Theirs(model) => model.get_vocab(),
            AnyModel::Pieces(model) => model.vocabulary().map(),
            AnyModel::Unigram(model) => model.vocabulary().map(),
        }
    }

    fn get_vocab_size(&self) -> usize {
        match &*self.0 {
            AnyModel::Theirs(model) => model.get_vocab_size(),
            AnyModel::Pieces(model) => model.vocabulary().len(),
            AnyModel::Unigram(model) => model.vocabulary().len(),
        }
    }

    fn save(&self, _folder: &Path, _prefix: Option<&str>) -> Result<Vec<PathBuf>> {
        Err("this tokenizer is not for saving".into())
    }

    fn get_trainer(&self) -> TrainerWrapper {
        TrainerWrapper::WordPieceTrainer(WordPieceTrainer::default()) // never asked for: nothing is trained here
    }
}

/// SentencePiece's treatment of blanks, which depends on options that a GGUF file carries.
#[derive(Clone)]
pub struct Blanks {
    pub charsmap: Option<Arc<CharsMap>>,
    pub prefix: bool,
    pub suffix: bool,
    pub merge: bool,
}

#[derive(Clone)]
pub enum Normaliser {
    Theirs(NormalizerWrapper),
    Blanks(Blanks),
}

impl<'de> Deserialize<'de> for Normaliser {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Ok(Normaliser::Theirs(NormalizerWrapper::deserialize(deserializer)?))
    }
}

impl Normalizer for Normaliser {
    fn normalize(&self, text: &mut NormalizedString) -> Result<()> {
        match self {
            Normaliser::Theirs(normaliser) => normaliser.normalize(text),
            Normaliser::Blanks(blanks) => blanks.normalize(text),
        }
    }
}

impl Blanks {
    fn normalize(&self, text: &mut NormalizedString) -> Result<()> {
        let mapped = self.charsmap.as_ref().map(|charsmap| charsmap.apply(text.get()));
        let source = mapped.as_deref().unwrap_or(text.get());
        let mut out = String::with_capacity(source.len() + source.len() / 4 + 3);
        if self.merge {
            for word in source.split(' ').filter(|word| !word.is_empty()) {
                if !out.is_empty() || self.prefix {
                    out.push('▁');
                }
                out.push_str(word);
            }
        } else {
            if self.prefix && !source.is_empty() {
                out.push('▁');
            }
            for c in source.chars() {
                out.push(if c == ' ' { '▁' } else { c });
            }
        }
        if self.suffix && !out.is_empty() {
            out.push('▁');
        }
        *text = NormalizedString::from(out); // offsets are never asked for
        Ok(())
    }
}
