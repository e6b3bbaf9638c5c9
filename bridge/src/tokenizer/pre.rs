//! How text is cut before byte-level BPE, by the name that `tokenizer.ggml.pre` gives. The expressions are those
//! of the models' published tokenizers.

use serde::{Deserialize, Deserializer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::tokenizer::pattern::Pattern;
use tokenizers::{Offsets, PreTokenizedString, PreTokenizer, Result, SplitDelimiterBehavior};

/// What a name stands for.
pub struct Scheme {
    pub names: &'static [&'static str],
    pub steps: &'static [Cut],
    /// A cut piece that is itself a token is taken whole.
    pub ignore_merges: bool,
    pub add_bos: bool,
    /// Canonical composition before anything else.
    pub compose: bool,
    /// False: pieces are plain UTF-8 with ▁ for a blank, as SentencePiece has them.
    pub byte_level: bool,
}

pub enum Cut {
    At(&'static str),
    /// Digit runs in groups of three counted from the right.
    Thousands,
    /// The same, only where a run ends at a word's end.
    WordThousands,
}
use Cut::{At, Thousands, WordThousands};

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN35: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const GPT4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const YOUTU: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const KIMI: &str = concat!(
    r"\p{Han}+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const JAIS2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
    r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)",
    r"|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"
);
const EXAONE_MOE: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
);
const BAILING: &str = concat!(
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]",
    r"|\s+(?!\S)|\s+"
);
const SEED: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const MINICPM5: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const SPARK: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"
);
const HAN_KANA: &str = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+";
const HAN_HANGUL: &str = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+";
const CASED: &str = concat!(
    r"\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}",
    r"\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}",
    r"\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}",
    r"\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}",
    r"\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}",
    r"\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}",
    r"\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}",
    r"\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}",
    r"\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}",
    r"\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}",
    r"\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}",
    r"\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}",
    r"\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}",
    r"\x{1E900}-\x{1E943}]+",
);
const DEEPSEEK_MARKS: &str =
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+";
const PORO: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const YOUTU_MARKS: &str = concat!(
    r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[！…“”‘’—：；，\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+",
    r"|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"
);
const AFMOE_ASIAN: &str = concat!(
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}",
    r"\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{EC0}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}",
    r"\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+"
);
const LINES: &str = r"[^\n]+|[\n]+";

const BASE: Scheme =
    Scheme { names: &[], steps: &[], ignore_merges: false, add_bos: false, compose: false, byte_level: true };

pub const SCHEMES: &[Scheme] = &[
    Scheme {
        names: &["default"],
        steps: &[At(r"[\p{P}\$\+<=>\^~\|]+"), At(GPT2), At(r"\p{N}+"), At("[0-9][0-9][0-9]")],
        ..BASE
    },
    Scheme {
        names: &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
        ],
        steps: &[At(GPT2)],
        ..BASE
    },
    Scheme {
        names: &["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
        steps: &[At(r"\p{N}"), At(GPT2)],
        ..BASE
    },
    Scheme { names: &["command-r"], steps: &[At(r"\p{N}"), At(GPT2)], compose: true, ..BASE },
    Scheme {
        names: &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        steps: &[At(LLAMA3)],
        ignore_merges: true,
        add_bos: true,
        ..BASE
    },
    Scheme { names: &["dbrx", "smaug-bpe", "chatglm-bpe"], steps: &[At(LLAMA3)], ..BASE },
    Scheme { names: &["glm4", "glm5"], steps: &[At(LLAMA3)], ignore_merges: true, ..BASE },
    Scheme { names: &["jais-2"], steps: &[At(JAIS2)], ..BASE },
    Scheme {
        names: &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"],
        steps: &[At(QWEN2)],
        compose: true,
        ..BASE
    },
    Scheme { names: &["qwen35"], steps: &[At(QWEN35)], compose: true, ..BASE },
    Scheme { names: &["stablelm2", "hunyuan", "solar-open", "grok-2"], steps: &[At(QWEN2)], ..BASE },
    Scheme { names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], steps: &[At(GPT4O)], ..BASE },
    Scheme { names: &["granite-embed-multi-97m"], steps: &[At(GPT4O)], ignore_merges: true, ..BASE },
    Scheme { names: &["tiny_aya", "cohere2moe"], steps: &[WordThousands, At(GPT4O)], ..BASE },
    Scheme { names: &["tekken"], steps: &[At(TEKKEN)], ignore_merges: true, add_bos: true, ..BASE },
    Scheme { names: &["youtu"], steps: &[At(YOUTU_MARKS), At(YOUTU)], ignore_merges: true, ..BASE },
    Scheme { names: &["kimi-k2"], steps: &[At(KIMI)], ..BASE },
    Scheme {
        names: &["deepseek-llm"],
        steps: &[At(r"[\r\n]"), At(CASED), At(DEEPSEEK_MARKS), At(r"\s+$"), At(HAN_HANGUL), At(r"\p{N}+")],
        ..BASE
    },
    Scheme {
        names: &["deepseek-coder"],
        steps: &[At(r"[\r\n]"), At(r"\s?\p{L}+"), At(r"\s?\p{P}+"), At(HAN_HANGUL), At(r"\p{N}")],
        ..BASE
    },
    Scheme {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        steps: &[At(r"\p{N}{1,3}"), At(HAN_KANA), At(DEEPSEEK3)],
        ..BASE
    },
    Scheme {
        names: &["spark2_5"],
        steps: &[At(r"\p{N}{1,3}"), At(HAN_KANA), At(SPARK), At(r"\p{N}")],
        ..BASE
    },
    Scheme {
        names: &["falcon"],
        steps: &[At(r"[\p{P}\$\+<=>\^~\|`]+"), At(GPT2), At("[0-9][0-9][0-9]")],
        ..BASE
    },
    Scheme { names: &["poro-chat", "bloom", "gpt3-finnish"], steps: &[At(PORO)], ..BASE },
    Scheme { names: &["viking"], steps: &[At(PORO), At(r"\p{N}")], ..BASE },
    Scheme {
        names: &["chameleon"],
        steps: &[
            At("<sentinel:[0-9]+>"),
            At("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
            At(r"([\t\n]|    |  )"),
            At(r"\p{N}"),
            At(r"[\p{P}!-/:-@\[-`{-~]"),
            At(GPT2),
        ],
        add_bos: true,
        ..BASE
    },
    Scheme { names: &["superbpe"], steps: &[At(r"\p{N}+"), Thousands], ..BASE },
    Scheme { names: &["bailingmoe", "bailingmoe2", "llada-moe"], steps: &[At(BAILING)], ..BASE },
    Scheme { names: &["seed-coder"], steps: &[At(SEED)], ..BASE },
    Scheme { names: &["ufakzeka"], steps: &[At(UFAKZEKA)], ..BASE },
    Scheme { names: &["afmoe"], steps: &[Thousands, At(AFMOE_ASIAN), At(DEEPSEEK3)], ..BASE },
    Scheme { names: &["laguna"], steps: &[At(LINES), At(QWEN2)], ..BASE },
    Scheme { names: &["exaone-moe"], steps: &[At(EXAONE_MOE)], ..BASE },
    Scheme { names: &["minicpm5"], steps: &[At(r"\p{N}{1,3}"), At(MINICPM5)], ignore_merges: true, ..BASE },
    Scheme {
        names: &["gemma4", "granite-embed-multi-311m"],
        steps: &[At(LINES)],
        add_bos: true,
        byte_level: false,
        ..BASE
    },
    Scheme { names: &["sarvam-moe"], steps: &[At(LINES)], byte_level: false, ..BASE },
];

pub fn scheme(name: &str) -> Option<&'static Scheme> {
    SCHEMES.iter().find(|scheme| scheme.names.contains(&name))
}

#[derive(Clone)]
pub enum Step {
    Split(Box<Split>),
    Thousands { at_word_end: bool },
    Bytes,
}

#[derive(Clone)]
pub enum PreTokeniser {
    Theirs(PreTokenizerWrapper),
    Steps(Vec<Step>),
}

impl PreTokeniser {
    pub fn of(scheme: &Scheme) -> Result<PreTokeniser> {
        let mut steps = Vec::new();
        for cut in scheme.steps {
            steps.push(match cut {
                At(regex) => Step::Split(Box::new(Split::new(
                    SplitPattern::Regex(regex.to_string()),
                    SplitDelimiterBehavior::Isolated,
                    false,
                )?)),
                Thousands => Step::Thousands { at_word_end: false },
                WordThousands => Step::Thousands { at_word_end: true },
            });
        }
        if scheme.byte_level {
            steps.push(Step::Bytes);
        }
        Ok(PreTokeniser::Steps(steps))
    }
}

impl<'de> Deserialize<'de> for PreTokeniser {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Ok(PreTokeniser::Theirs(PreTokenizerWrapper::deserialize(deserializer)?))
    }
}

impl PreTokenizer for PreTokeniser {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> Result<()> {
        match self {
            PreTokeniser::Theirs(theirs) => theirs.pre_tokenize(text),
            PreTokeniser::Steps(steps) => {
                for step in steps {
                    match step {
                        Step::Split(split) => split.pre_tokenize(text)?,
                        Step::Thousands { at_word_end } => text.split(|_, piece| {
                            piece
                                .split(Groups { at_word_end: *at_word_end }, SplitDelimiterBehavior::Isolated)
                        })?,
                        Step::Bytes => ByteLevel::new(false, true, false).pre_tokenize(text)?,
                    }
                }
                Ok(())
            }
        }
    }
}

/// Cuts digit runs into groups of three from the right, in one pass (the usual expression looks ahead over the
/// rest of the run at every group).
struct Groups {
    at_word_end: bool,
}

impl Pattern for Groups {
    fn find_matches(&self, text: &str) -> Result<Vec<(Offsets, bool)>> {
        let mut out = Vec::new();
        let mut plain = 0; // where the text not yet given out begins
        let mut run: Vec<usize> = Vec::new(); // starts of the digits of the current run
        let mut close = |run: &mut Vec<usize>, end: usize, next: Option<char>, plain: &mut usize| {
            let word_goes_on = next.is_some_and(|c| c.is_alphanumeric() || c == '_');
            if !run.is_empty() && !(self.at_word_end && word_goes_on) {
                if *plain < run[0] {
                    out.push(((*plain, run[0]), false));
                }
                let mut at = 0;
                while at < run.len() {
                    let left = run.len() - at;
                    let size = if left % 3 == 0 { 3 } else { left % 3 };
                    let stop = run.get(at + size).copied().unwrap_or(end);
                    out.push(((run[at], stop), true));
                    at += size;
                }
                *plain = end;
            }
            run.clear();
        };
        for (at, c) in text.char_indices() {
            if c.is_numeric() {
                run.push(at);
            } else {
                close(&mut run, at, Some(c), &mut plain);
            }
        }
        close(&mut run, text.len(), None, &mut plain);
        if plain < text.len() || text.is_empty() {
            out.push(((plain, text.len()), false));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expression_compiles_and_every_name_stands_once() {
        let mut seen = std::collections::HashSet::new();
        for scheme in SCHEMES {
            PreTokeniser::of(scheme).unwrap();
            for name in scheme.names {
                assert!(seen.insert(*name), "{name} stands twice");
            }
        }
    }

    fn groups(text: &str, at_word_end: bool) -> Vec<&str> {
        let cuts = Groups { at_word_end }.find_matches(text).unwrap();
        cuts.into_iter().map(|((from, to), _)| &text[from..to]).collect()
    }

    #[test]
    fn digits_group_from_the_right() {
        assert_eq!(groups("a1234567b", false), ["a", "1", "234", "567", "b"]);
        assert_eq!(groups("a1234567b", true), ["a1234567b"]);
        assert_eq!(groups("12 3456", true), ["12", " ", "3", "456"]);
        assert_eq!(groups("", true), [""]);
        assert_eq!(groups("٣٤٥٦", false), ["٣", "٤٥٦"]);
    }
}
