//! SentencePiece's unigram model: the segmentation with the largest sum of scores (Viterbi over a byte trie).
//! User-defined pieces score 0; a character no piece covers is unknown, ten below the worst score.

use super::pieces::{byte_pieces, Kind, Vocabulary};
use ahash::AHashMap;
use tokenizers::{Result, Token};

const UNKNOWN_PENALTY: f64 = 10.0;

pub struct Unigram {
    vocabulary: Vocabulary,
    scores: Vec<f64>,
    unknown: u32,
    unknown_score: f64,
    bytes: Option<Vec<u32>>, // when all 256 stand in the vocabulary
    edges: AHashMap<(u32, u8), u32>,
    ends: Vec<Option<u32>>, // trie node -> piece
}

#[derive(Clone, Copy)]
struct Best {
    score: f64,
    from: usize,
    id: u32,
}

impl Unigram {
    pub fn new(vocabulary: Vocabulary, scores: &[f32], kinds: &[Kind], unknown: u32) -> Unigram {
        let mut edges = AHashMap::new();
        let mut ends = vec![None];
        let mut worst = f64::INFINITY;
        let mut own = Vec::with_capacity(scores.len());
        for (id, (score, kind)) in scores.iter().zip(kinds).enumerate() {
            own.push(if *kind == Kind::UserDefined { 0.0 } else { *score as f64 });
            if *kind == Kind::Normal {
                worst = worst.min(*score as f64);
            }
            if !matches!(kind, Kind::Normal | Kind::UserDefined | Kind::Unused) {
                continue; // control, unknown and byte pieces are never made of text
            }
            let mut node = 0u32;
            for byte in vocabulary.token(id as u32).unwrap_or_default().bytes() {
                node = *edges.entry((node, byte)).or_insert_with(|| {
                    ends.push(None);
                    ends.len() as u32 - 1
                });
            }
            if node != 0 {
                ends[node as usize] = Some(id as u32);
            }
        }
        let bytes = byte_pieces(&vocabulary).into_iter().collect();
        let worst = if worst.is_finite() { worst } else { 0.0 };
        Unigram {
            vocabulary,
            scores: own,
            unknown,
            unknown_score: worst - UNKNOWN_PENALTY,
            bytes,
            edges,
            ends,
        }
    }

    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    pub fn tokenize(&self, text: &str) -> Result<Vec<Token>> {
        let bytes = text.as_bytes();
        let unreached = Best { score: f64::NEG_INFINITY, from: 0, id: self.unknown };
        let mut best = vec![unreached; bytes.len() + 1];
        best[0].score = 0.0;
        for (start, c) in text.char_indices() {
            let here = best[start].score;
            let whole = start + c.len_utf8();
            let mut covered = false;
            let mut node = 0u32;
            for end in start + 1..=bytes.len() {
                match self.edges.get(&(node, bytes[end - 1])) {
                    Some(next) => node = *next,
                    None => break,
                }
                if let Some(id) = self.ends[node as usize] {
                    covered |= end == whole;
                    let score = here + self.scores[id as usize];
                    if score > best[end].score {
                        best[end] = Best { score, from: start, id };
                    }
                }
            }
            if !covered && here + self.unknown_score > best[whole].score {
                best[whole] = Best { score: here + self.unknown_score, from: start, id: self.unknown };
            }
        }
        let mut spans = Vec::new();
        let mut end = bytes.len();
        while end > 0 {
            let step = best[end];
            spans.push((step.id, step.from, end));
            end = step.from;
        }
        let mut out: Vec<Token> = Vec::with_capacity(spans.len());
        let mut after_unknown = false;
        for (id, start, end) in spans.into_iter().rev() {
            let unknown = id == self.unknown;
            match (&self.bytes, unknown) {
                (Some(pieces), true) => out.extend(
                    bytes[start..end]
                        .iter()
                        .map(|b| Token::new(pieces[*b as usize], String::new(), (start, end))),
                ),
                (None, true) if after_unknown => {} // neighbours share one unknown token
                _ => out.push(Token::new(id, String::new(), (start, end))),
            }
            after_unknown = unknown;
        }
        Ok(out)
    }
}
