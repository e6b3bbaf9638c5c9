"""Makes the fixtures of this room's tests from the reference implementations (development only).

    python generate.py [FOLDER]

needs tokenizers, sentencepiece, transformers and jinja2. FOLDER/NAME/tokenizer.json are real tokenizers to take
digests of; without it the digests already in tokenizers.json are kept.
"""

import base64
import json
import os
import pathlib
import random
import sys
import tempfile
import unicodedata

os.environ["TZ"] = "UTC"
import sentencepiece as spm
import tiktoken
import tiktoken.load
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.utils.chat_template_utils import render_jinja_template

HERE = pathlib.Path(__file__).parent

TEXTS = [
    "", " ", "  ", "Hello, world!", " leading", "trailing ", "a  b   c", "\n", "\n\n\n", "\t\tx", "one\r\ntwo\r\n",
    "don't I'LL we've THEY'RE x's", "1234567890 12 3.14159 1,000,000 v2.0",
    "def f(x):\n    return x**2  # why\n\n\nclass A:\n\tpass\n", "日本語テキスト、漢字とかな。", "中文字符，全角！",
    "한국어 문장입니다.", "Ελληνικά κείμενο", "Русский текст Ёё", "العربية نص ١٢٣", "עברית", "हिन्दी क्षत्रिय", "ไทยภาษา",
    "e\u0301 é cafe\u0301 A\u030a Å \u212b", "n\u0303\u0327\u0301 stacked", "🎉🎊 👨‍👩‍👧‍👦 🏳️‍🌈 🇫🇷 ❤️",
    "word😀word", "\x00\x01\x02\x7f\x1b[31m", "\u200b\u200d\ufeff\u2060", "\u00a0nbsp\u00a0 \u3000wide\u2003em",
    "\u2028ls\u2029ps\x85nel", "\ufffd kept", "𝕳𝖊𝖑𝖑𝖔 𝒲ℴ𝓇", "𠀀𠀁𪚥", "\U0010ffff\ue000", "a" * 300, " " * 77 + "x",
    "\n" * 50 + "y", "=" * 100, "!?" * 40, "<s>hi</s><unk> <pad> [CLS] [SEP] [MASK]",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>", "▁▁ literal ▁ Ġ Ċ", "<0x0A><0xFF>", "  <|im_end|>  around  ",
    "##ing ##", "Mixed العربية 中文 한국 123 🎈 end.", "C:\\path \"quoted\" 'single' `tick`", "İstanbul ıi ß ﬁ ſ ǅ",
    "٣٤٥٦٧٨ ௧௨௩ Ⅷ ½ ²", "x\u0300" * 20, "soft\u00adhyphen", "$100 €50 ¥30", "→← ∑∫√ ≠≤", "CamelCaseXMLHttp",
    "9999999a", "it 's . , ? ! n't do not 'm 've 're",
]

# Pieces that meet badly, in seeded disorder: scripts, marks without bases, controls, tokens in the text.
PARTS = [
    "漢字", "中", "〇", "々", "ー", "かな", "カナ", "한글", "a", "Ab", "ABC", "é", "e\u0301", "\u0301", "ǅ", "ʰ", "ª", "ß", "İ",
    "ı", "1", "12345", "½", "Ⅷ", "٣", "'s", "'S", "'LL", "'ve", "’s", "don't", "\n", "\r\n", "\r", " ", "  ", "\t",
    "\u00a0", "\u3000", "\u200b", "\u2028", "\u0085", "!", "?!", "。", "、", "😀",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f3f3\ufe0f\u200d\U0001f308", "🇫🇷", "\u200d", "️", "\ufeff",
    "\u0000", "\u001f", "\u007f", "�", "\U0010ffff", "\ue000", "𠀀", "𝒲", "ﬁ", "क्ष", "ไทย", "العربية", "עברית", "__",
    "//", "/\n", "->", "<|im_end|>", "[INST]", "</s>", "<s>", "$", "€", "\\", "\"", "`", "Σ", "ς", "ά", "Ё", "ำ", "ᅠ",
    "゙",
]


def hostile_texts():
    chance = random.Random(5)
    return ["".join(chance.choice(PARTS) for _ in range(chance.randint(1, 24))) for _ in range(120)]


CORPUS = [
    "The quick brown fox jumps over the lazy dog, again and again; it doesn't get tired.",
    "Numbers such as 1, 22, 333 and 3.14 appear. So do (brackets), \"quotes\" and dashes - like this.",
    "def add(left, right):\n    return left + right\n\nfor i in range(10):\n    print(add(i, i))\n",
    "Ein schöner Tag: der Fluß fließt, die Bäume blühen. Où est l'été? Ça va bien, merci.",
    "日本語の文章です。漢字とかなが混ざります。 한국어 문장입니다. Русский текст тоже есть.",
] * 8


def sequences(encode, size, seed):
    chance = random.Random(seed)
    some = [encode(text) for text in TEXTS[::2]]
    return some + [[chance.randrange(size) for _ in range(chance.randint(1, 24))] for _ in range(40)]


def record(name, tokenizer, skip=(True, False)):
    tokenizer.encode_special_tokens = False
    size = max(tokenizer.get_vocab().values()) + 1
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    lists = sequences(encode, size, name)
    plain = []
    tokenizer.encode_special_tokens = True
    for text in TEXTS:
        plain.append(encode(text))
    tokenizer.encode_special_tokens = False
    return {
        "name": name,
        "json": json.loads(tokenizer.to_str()),
        "ids": [encode(text) for text in TEXTS],
        "special": [tokenizer.encode(text).ids for text in TEXTS],
        "plain": plain,
        "decode": [[ids, keep, tokenizer.decode(ids, skip_special_tokens=keep)] for ids in lists for keep in skip],
    }


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(["    "])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    return tokenizer


def pieces():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False,
                                  special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)])
    tokenizer.train_from_iterator([word for text in CORPUS for word in text.split()], trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=260, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>",
                                      show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return tokenizer


def word_piece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special,
                                                                    show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def word_level():
    """No decoder, and a suffix one: the rarer ways to join tokens."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=200, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False))
    return tokenizer


def sentence_piece(kind):
    """A vocabulary as a GGUF file would hold it, with SentencePiece's own encoding."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "corpus").write_text("\n".join(line for text in CORPUS for line in text.split("\n") if line))
        options = dict(model_type=kind, character_coverage=0.98, hard_vocab_limit=False, minloglevel=2,
                       vocab_size=420 if kind == "bpe" else 180, byte_fallback=kind == "bpe",
                       normalization_rule_name="identity" if kind == "bpe" else "nfkc",
                       remove_extra_whitespaces=kind != "bpe")
        spm.SentencePieceTrainer.train(input=str(path / "corpus"), model_prefix=str(path / "m"), **options)
        model = spm.SentencePieceProcessor(model_file=str(path / "m.model"))
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString((path / "m.model").read_bytes())
    texts = [text for text in TEXTS if len(text) < 60]  # long runs are ties, decided by rounding
    out = {
        "model": "llama" if kind == "bpe" else "t5",
        "tokens": [p.piece for p in proto.pieces],
        "scores": [round(p.score, 4) for p in proto.pieces],
        "types": [p.type for p in proto.pieces],
        "texts": texts,
        "ids": [model.encode(text) for text in texts],
    }
    if kind == "bpe":
        out["decode"] = [[ids, model.decode(ids)] for ids in out["ids"]]
    return out


def digest(lists):
    """FNV-1a over the ids, each list ended by -1."""
    value = 0xCBF29CE484222325
    for ids in lists:
        for one in ids + [-1]:
            for byte in (one & 0xFFFFFFFF).to_bytes(4, "little"):
                value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def real(folder):
    out = {}
    for path in sorted(pathlib.Path(folder).glob("*/tokenizer.json")):
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        out[path.parent.name] = digest([tokenizer.encode(text).ids for text in TEXTS])
    return out


def published_file(path):
    """Encoder of a vocabulary in its publisher's own format."""
    if path.name == "tekken.json":
        data = json.loads(path.read_text())
        config = data["config"]
        specials = config["default_num_special_tokens"]
        kept = data["vocab"][:config["default_vocab_size"] - specials]
        ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in kept}
        encoding = tiktoken.Encoding("tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={})
        return lambda text: [specials + i for i in encoding.encode(text, disallowed_special=())]
    if path.parent.name in TIKTOKEN_PATTERNS:
        encoding = tiktoken.Encoding(path.parent.name, pat_str=TIKTOKEN_PATTERNS[path.parent.name],
                                     mergeable_ranks=tiktoken.load.load_tiktoken_bpe(str(path)), special_tokens={})
        form = "NFC" if path.name == "qwen.tiktoken" else None
        return lambda text: encoding.encode(unicodedata.normalize(form, text) if form else text,
                                            disallowed_special=())
    processor = spm.SentencePieceProcessor(model_file=str(path))
    return lambda text: processor.encode(text)


# From the publishers' tokenizer sources: llama-models (llama3, llama4), Qwen's tokenization_qwen.py.
TIKTOKEN_PATTERNS = {
    "file_llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                   r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "file_llama4": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
                   r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
                   r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
                   r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
                   r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "file_qwen": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                 r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def files(folder):
    return {path.parent.name: digest([published_file(path)(text) for text in TEXTS])
            for path in sorted(pathlib.Path(folder).glob("file_*/*"))}


# Kimi's, from its tokenization_kimi.py; its ranks are no package's, so Llama 3's stand for them.
KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
])


def hostile(folder):
    """The same over hostile texts; tekken is mistral-common's Tekkenizer, which gives what published_file() does."""
    texts = hostile_texts()
    paths = [path for path in sorted(pathlib.Path(folder).glob("file_*/*"))
             if path.name == "tekken.json" or path.parent.name in TIKTOKEN_PATTERNS]
    found = {path.parent.name: digest([published_file(path)(text) for text in texts]) for path in paths}
    ranks = tiktoken.load.load_tiktoken_bpe(str(pathlib.Path(folder) / "file_llama3/tokenizer.model"))
    kimi = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens={})
    return {**found, "kimi": digest([kimi.encode(text, disallowed_special=()) for text in texts])}


def templates():
    spec = json.loads((HERE / "templates_in.json").read_text())
    cases = []
    for source in ["{{ " + e + " }}" for e in spec["expressions"]] + spec["templates"]:
        case = {"source": source}
        try:
            case["text"] = render_jinja_template([spec["messages"]], chat_template=source, tools=spec["tools"],
                                                 add_generation_prompt=True, **spec["variables"])[0][0]
        except Exception as error:
            case["error"] = str(error) if type(error).__name__ == "TemplateError" else ""
        cases.append(case)
    return {"messages": spec["messages"], "tools": spec["tools"], "variables": spec["variables"], "cases": cases}


def write(name, value):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), indent=None)
    (HERE / name).write_text(text + "\n")


if __name__ == "__main__":
    old = json.loads((HERE / "tokenizers.json").read_text()) if (HERE / "tokenizers.json").exists() else {}
    write("tokenizers.json", {
        "texts": TEXTS,
        "tokenizers": [record("byte level", byte_level()), record("pieces", pieces()), record("unigram", unigram()),
                       record("word piece", word_piece()), record("suffix", word_level())],
        "vocabularies": [sentence_piece("bpe"), sentence_piece("unigram")],
        "real": real(sys.argv[1]) if len(sys.argv) > 1 else old.get("real", {}),
        "files": files(sys.argv[1]) if len(sys.argv) > 1 else old.get("files", {}),
        "hostile_texts": hostile_texts(),
        "hostile": hostile(sys.argv[1]) if len(sys.argv) > 1 else old.get("hostile", {}),
    })
    write("templates.json", templates())
