//! Grammars to token masks: `llguidance` over the bytes of a model's vocabulary.

pub mod c_api;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{regex_to_lark, Matcher, ParserFactory};
use std::sync::{Arc, Mutex};
use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};

/// White space between the tokens of JSON: a blank or two, or a line break or two with indentation. Enough for any
/// layout, and no room for a model to idle in.
const JSON_SPACE: &str = r"[\x20\x09]{1,2}|(\x0D?\x0A){1,2}[\x20\x09]{0,32}";

/// A vocabulary as llguidance wants it; made once per tokenizer.
pub struct Tables {
    factory: ParserFactory,
}

impl Tables {
    /// `tokens`: the bytes of each id. Special ones never match text; they are marked by a byte that UTF-8 lacks.
    pub fn new(tokens: &[&[u8]], special: &[bool], eos: &[u32]) -> Result<Tables, String> {
        let first = *eos.first().ok_or("a vocabulary without an end token cannot be constrained")?;
        if let Some(id) = eos.iter().find(|id| **id as usize >= tokens.len()) {
            return Err(format!("end token {id} is outside a vocabulary of {}", tokens.len()));
        }
        let words: Vec<Vec<u8>> = tokens
            .iter()
            .zip(special)
            .map(|(bytes, special)| match *special {
                true => [&[TokTrie::SPECIAL_TOKEN_MARKER], *bytes].concat(),
                false => bytes.to_vec(),
            })
            .collect();
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, first), &words).with_eos_tokens(eos);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::general_slices();
        let mut factory =
            ParserFactory::new(&env, InferenceCapabilities::default(), &slices).map_err(|e| e.to_string())?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Tables { factory })
    }
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    JsonSchema = 0,
    Lark = 1,
    Regex = 2,
}

/// A compiled grammar: a matcher that has seen nothing, to be copied for every row.
pub struct Grammar {
    fresh: Mutex<Matcher>,
    vocab: usize,
}

impl Grammar {
    pub fn new(tables: &Tables, kind: Kind, text: &str) -> Result<Grammar, String> {
        let grammar = match kind {
            Kind::JsonSchema => {
                let mut schema: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
                if let Some(object) = schema.as_object_mut() {
                    object.insert("x-guidance".into(), serde_json::json!({ "whitespace_pattern": JSON_SPACE }));
                }
                TopLevelGrammar::from_json_schema(schema)
            }
            Kind::Lark => TopLevelGrammar::from_lark(text.to_string()),
            // ECMA-262 reads \d and \w as ASCII.
            Kind::Regex => TopLevelGrammar::from_grammar(GrammarWithLexer::from_lark(format!(
                "start: /{}/",
                regex_to_lark(text, "dw")
            ))),
        };
        let parser = tables.factory.create_parser(grammar).map_err(|e| format!("{e:#}"))?;
        let mut fresh = Matcher::new(Ok(parser));
        if let Some(error) = fresh.get_error() {
            return Err(error);
        }
        if let Some(warning) = fresh.grammar_warnings().first() {
            return Err(format!("it cannot be enforced exactly: {warning}"));
        }
        Ok(Grammar { fresh: Mutex::new(fresh), vocab: tables.factory.tok_env().tok_trie().vocab_size() })
    }

    pub fn matcher(&self) -> Row {
        let fresh = self.fresh.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Row { matcher: fresh.deep_clone(), vocab: self.vocab }
    }
}

/// One sequence's place in its grammar.
pub struct Row {
    matcher: Matcher,
    vocab: usize,
}

impl Row {
    /// Bit t of word t / 32: token t may come next. End tokens are in it where the text may end.
    pub fn mask(&mut self, words: &mut [u32]) -> Result<(), String> {
        if words.len() != self.vocab.div_ceil(32) {
            return Err(format!("a mask of {} words for {} tokens", words.len(), self.vocab));
        }
        let mask = self.matcher.compute_mask_or_eos().map_err(|e| e.to_string())?;
        let bits = mask.as_slice();
        let count = words.len().min(bits.len());
        words[..count].copy_from_slice(&bits[..count]);
        words[count..].fill(0);
        if let (Some(last), extra) = (words.last_mut(), self.vocab % 32) {
            if extra != 0 {
                *last &= (1u32 << extra) - 1;
            }
        }
        Ok(())
    }

    pub fn accept(&mut self, token: u32) -> Result<(), String> {
        self.matcher.consume_token(token).map_err(|e| e.to_string())
    }

    /// The same with text instead of tokens; false: the grammar does not go on like that, and nothing is consumed.
    pub fn accept_text(&mut self, text: &[u8]) -> Result<bool, String> {
        let env = self.matcher.tok_env().map_err(|e| e.to_string())?;
        let tokens = env.tok_trie().greedy_tokenize(text);
        if env.tok_trie().decode(&tokens) != text || self.would_take(&tokens)? < tokens.len() {
            return Ok(false);
        }
        self.matcher.consume_tokens(&tokens).map(|()| true).map_err(|e| e.to_string())
    }

    /// How many of `tokens` the grammar would take, one after another; its place stays.
    pub fn would_take(&mut self, tokens: &[u32]) -> Result<usize, String> {
        self.matcher.validate_tokens(tokens).map_err(|e| e.to_string())
    }

    pub fn complete(&self) -> bool {
        self.matcher.is_stopped()
    }

    pub fn may_end(&mut self) -> Result<bool, String> {
        self.matcher.is_accepting().map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Tables {
        let all: Vec<u8> = (0..=255).collect();
        let mut tokens: Vec<&[u8]> = all.iter().map(std::slice::from_ref).collect();
        tokens.push(b"<end>");
        let mut special = vec![false; 256];
        special.push(true);
        Tables::new(&tokens, &special, &[256]).unwrap()
    }

    fn takes(tables: &Tables, kind: Kind, grammar: &str, text: &str) -> bool {
        let mut row = Grammar::new(tables, kind, grammar).unwrap().matcher();
        let mut words = vec![0u32; 257usize.div_ceil(32)];
        for byte in text.bytes() {
            if row.complete() || row.mask(&mut words).is_err() || words[byte as usize / 32] >> (byte % 32) & 1 == 0 {
                return false;
            }
            row.accept(byte as u32).unwrap();
        }
        row.complete() || row.may_end().unwrap()
    }

    #[test]
    fn regexes_are_anchored_and_read_as_ecma() {
        let tables = bytes();
        assert!(takes(&tables, Kind::Regex, r"\d{3}", "123"));
        assert!(!takes(&tables, Kind::Regex, r"\d{3}", "1234"));
        assert!(!takes(&tables, Kind::Regex, r"\d{3}", "x123"));
        assert!(!takes(&tables, Kind::Regex, r"\d", "٣"));
    }

    #[test]
    fn json_ends_and_white_space_is_bounded() {
        let tables = bytes();
        let schema = r#"{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}"#;
        assert!(takes(&tables, Kind::JsonSchema, schema, "{\"a\": 12}"));
        assert!(!takes(&tables, Kind::JsonSchema, schema, "{\"b\": 12}"));
        assert!(!takes(&tables, Kind::JsonSchema, schema, "{\"a\": 12"));
        let spaces = format!("{{{}\"a\":1}}", " ".repeat(65));
        assert!(!takes(&tables, Kind::JsonSchema, schema, &spaces));
    }

    #[test]
    fn what_cannot_be_enforced_is_an_error() {
        let tables = bytes();
        for (kind, text) in [
            (Kind::JsonSchema, r##"{"$ref":"#/nowhere"}"##),
            (Kind::JsonSchema, r#"{"type":"string","pattern":"("}"#),
            (Kind::Regex, "(?=a)b"),
            (Kind::Regex, "["),
            (Kind::Lark, "start: nothing"),
        ] {
            assert!(Grammar::new(&tables, kind, text).is_err(), "{text}");
        }
    }
}
