"""Sentence vectors of all-MiniLM-L6-v2 by sentence-transformers, for tests/real.

    python tools/oracle/minilm_reference.py FOLDER

FOLDER is what tests/real/fetch.sh prints.
"""

import argparse
import json
import pathlib

import sentence_transformers
import torch
from sentence_transformers import SentenceTransformer

SENTENCES = [
    "The cat sat on the mat.",
    "A feline was resting on a rug.",
    "Interest rates rose for the third time this year.",
    "Berlin",
    "",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "def mean(values): return sum(values) / len(values)",
    "Naïve café déjà-vu — “quotes”, 3.14159 and 1,000,000!",
    "日本語の文章と emoji 🙂 mixed with English words.",
    "Supercalifragilisticexpialidocious antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "How do I reset my password if I no longer have access to the e-mail address I signed up with?",
    "The committee met on Tuesday to discuss the budget. " * 40,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = SentenceTransformer(options.folder, device="cpu")
    rows = []
    for text in SENTENCES:  # one by one: nothing is padded
        vector = model.encode([text], convert_to_numpy=True)[0]
        features = model.tokenizer(text, truncation=True, max_length=model.max_seq_length)
        rows.append({"text": text, "ids": features["input_ids"], "vector": [float(f"{x:.7g}") for x in vector]})
    head = f"sentence-transformers {sentence_transformers.__version__}, float32"
    text = f'{{\n  "reference": "{head}",\n  "rows": [\n    '
    text += ",\n    ".join(json.dumps(r, separators=(",", ":"), ensure_ascii=False) for r in rows) + "\n  ]\n}\n"
    target = pathlib.Path(__file__).resolve().parents[2] / "tests/real/data/minilm_vectors.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    print(f"{target.name}: {target.stat().st_size} B, {len(rows)} sentences")


if __name__ == "__main__":
    main()
