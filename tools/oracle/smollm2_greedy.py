"""Greedy answers of SmolLM2 by mlx-lm in float32, with the gap between the best two logits at each step.

    python tools/oracle/smollm2_greedy.py DENSE_FOLDER

Writes tests/real/data/smollm2_greedy.json. Texts may part only where the gap is within the comparison's noise.
"""

import argparse
import json
import pathlib

import mlx.core as mx
import numpy as np

CHATS = [
    "What is the capital of France?",
    "List three uses of a paperclip.",
    "Write one sentence about the sea.",
    "Translate 'good morning' into Spanish.",
]
PLAIN = ["Once upon a time, in a village by the river,", "def fibonacci(n):\n"]
STEPS = 32


def main():
    import mlx_lm
    from mlx_lm.models.cache import make_prompt_cache

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    options = parser.parse_args()
    mx.set_default_device(mx.cpu)
    model, tokenizer = mlx_lm.load(options.folder)
    prompts = [(text, tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True))
               for text in CHATS]
    prompts += [(text, tokenizer.encode(text, add_special_tokens=False)) for text in PLAIN]
    rows = []
    for text, prompt in prompts:
        cache, inputs, tokens, gaps = make_prompt_cache(model), list(prompt), [], []
        while len(tokens) < STEPS and tokens[-1:] != [tokenizer.eos_token_id]:
            logits = np.array(model(mx.array([inputs]), cache=cache)[0, -1].astype(mx.float32))
            best, second = np.argsort(-logits)[:2]
            tokens.append(int(best))
            gaps.append(round(float(logits[best] - logits[second]), 4))
            inputs = [int(best)]
        answer = tokenizer.decode(tokens)
        print(repr(text), repr(answer), min(gaps))
        rows.append({"prompt": text, "ids": list(prompt), "tokens": tokens, "gaps": gaps, "text": answer})
    head = f"mlx-lm {mlx_lm.__version__}, float32"
    text = f'{{\n  "reference": "{head}",\n  "rows": [\n    '
    text += ",\n    ".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n  ]\n}\n"
    (pathlib.Path(__file__).resolve().parents[2] / "tests/real/data/smollm2_greedy.json").write_text(text)


if __name__ == "__main__":
    main()
