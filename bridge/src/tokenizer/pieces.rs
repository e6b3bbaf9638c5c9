//! SentencePiece's BPE: the neighbours whose joint piece scores best are merged first (leftmost among equals),
//! until no join is a piece. What remains unknown is spelled in byte pieces.

use ahash::AHashMap;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use tokenizers::{Result, Token};

/// Token types, numbered as GGUF numbers them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

/// Tokens by id and ids by token.
pub struct Vocabulary {
    tokens: Vec<Arc<str>>,
    ids: AHashMap<Arc<str>, u32>,
}

impl Vocabulary {
    /// Fails on a token that stands twice.
    pub fn new(tokens: Vec<String>) -> std::result::Result<Vocabulary, String> {
        let tokens: Vec<Arc<str>> = tokens.into_iter().map(Arc::from).collect();
        let mut ids = AHashMap::with_capacity(tokens.len());
        for (id, token) in tokens.iter().enumerate() {
            if let Some(first) = ids.insert(token.clone(), id as u32) {
                return Err(format!("tokens {first} and {id} are both {token:?}"));
            }
        }
        Ok(Vocabulary { tokens, ids })
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    pub fn token(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize).map(|token| &**token)
    }

    pub fn map(&self) -> HashMap<String, u32> {
        self.tokens.iter().enumerate().map(|(id, token)| (token.to_string(), id as u32)).collect()
    }
}

/// The 256 byte pieces "<0x00>" to "<0xFF>"; a byte without one is None.
pub fn byte_pieces(vocabulary: &Vocabulary) -> Vec<Option<u32>> {
    (0..=255u8).map(|byte| vocabulary.id(&format!("<0x{byte:02X}>"))).collect()
}

pub struct Pieces {
    vocabulary: Vocabulary,
    scores: Vec<f32>,
    kinds: Vec<Kind>,
    bytes: Vec<Option<u32>>,
    unknown: Option<u32>,
}

#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    size: usize, // 0: merged away
    previous: usize,
    next: usize,
}

const NONE: usize = usize::MAX;

struct Join {
    score: f32,
    left: usize,
    right: usize,
    size: usize,
}

impl PartialEq for Join {
    fn eq(&self, other: &Join) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Join {}
impl PartialOrd for Join {
    fn partial_cmp(&self, other: &Join) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Join {
    fn cmp(&self, other: &Join) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

struct Work<'a> {
    text: &'a str,
    symbols: Vec<Symbol>,
    joins: BinaryHeap<Join>,
    /// How pieces that may be joined but not given out were made.
    made_of: AHashMap<&'a str, (usize, usize)>,
}

impl Pieces {
    pub fn new(vocabulary: Vocabulary, scores: Vec<f32>, kinds: Vec<Kind>, unknown: Option<u32>) -> Pieces {
        let bytes = byte_pieces(&vocabulary);
        Pieces { vocabulary, scores, kinds, bytes, unknown }
    }

    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The piece's id, if text can become it: control, unknown and byte pieces are never made of text.
    fn piece(&self, text: &str) -> Option<u32> {
        let id = self.vocabulary.id(text)?;
        match self.kinds[id as usize] {
            Kind::Normal | Kind::UserDefined | Kind::Unused => Some(id),
            Kind::Unknown | Kind::Control | Kind::Byte => None,
        }
    }

    fn consider(&self, work: &mut Work, left: usize, right: usize) {
        if left == NONE || right == NONE {
            return;
        }
        let (first, second) = (work.symbols[left], work.symbols[right]);
        let size = first.size + second.size;
        let text = &work.text[first.start..first.start + size];
        let Some(id) = self.piece(text) else { return };
        work.joins.push(Join { score: self.scores[id as usize], left, right, size });
        if self.kinds[id as usize] == Kind::Unused {
            work.made_of.insert(text, (first.start, first.size));
        }
    }

    fn emit(&self, work: &Work, start: usize, size: usize, out: &mut Vec<Token>) {
        let text = &work.text[start..start + size];
        let push =
            |id: u32, out: &mut Vec<Token>| out.push(Token::new(id, String::new(), (start, start + size)));
        match self.piece(text) {
            Some(id) if self.kinds[id as usize] != Kind::Unused => push(id, out),
            Some(id) => match work.made_of.get(text) {
                Some(&(_, first)) => {
                    self.emit(work, start, first, out);
                    self.emit(work, start + first, size - first, out);
                }
                None => push(id, out), // a single character: there is nothing smaller to give
            },
            None => {
                for byte in text.bytes() {
                    if let Some(id) = self.bytes[byte as usize].or(self.unknown) {
                        push(id, out);
                    }
                    if self.bytes[byte as usize].is_none() {
                        break; // one unknown token a character, not a byte
                    }
                }
            }
        }
    }

    pub fn tokenize(&self, text: &str) -> Result<Vec<Token>> {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(i, (start, c))| Symbol {
                start,
                size: c.len_utf8(),
                previous: i.checked_sub(1).unwrap_or(NONE),
                next: i + 1,
            })
            .collect();
        let Some(last) = symbols.last_mut() else { return Ok(Vec::new()) };
        last.next = NONE;
        let count = symbols.len();
        let mut work =
            Work { text, symbols, joins: BinaryHeap::with_capacity(count), made_of: AHashMap::new() };
        for right in 1..count {
            self.consider(&mut work, right - 1, right);
        }
        while let Some(join) = work.joins.pop() {
            let (left, right) = (work.symbols[join.left], work.symbols[join.right]);
            if left.size == 0 || right.size == 0 || left.size + right.size != join.size {
                continue; // one of the two has been merged since
            }
            work.symbols[join.left].size = join.size;
            work.symbols[join.left].next = right.next;
            work.symbols[join.right].size = 0;
            if right.next != NONE {
                work.symbols[right.next].previous = join.left;
            }
            self.consider(&mut work, left.previous, join.left);
            self.consider(&mut work, join.left, right.next);
        }
        let mut out = Vec::with_capacity(count / 3 + 1);
        let mut at = 0;
        while at != NONE {
            let symbol = work.symbols[at];
            self.emit(&work, symbol.start, symbol.size, &mut out);
            at = symbol.next;
        }
        Ok(out)
    }
}
