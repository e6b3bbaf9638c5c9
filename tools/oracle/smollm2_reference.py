"""Log-probabilities of SmolLM2 over prose.txt by mlx-lm, weights dequantised to float32.

    python tools/oracle/smollm2_reference.py DENSE_FOLDER FULL.npy [--tokens 300]

DENSE_FOLDER comes from gguf_to_mlx.py --dense. Writes every log-probability to FULL.npy (float32 [tokens, vocab]) and
the compact fixture of tests/real: for every third position the 48 most likely tokens and 16 random ones above -10.
mlx on a CPU does about eight tokens a second.
"""

import argparse
import json
import pathlib
import time

import mlx.core as mx
import numpy as np
from tokenizers import Tokenizer


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("full", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=300)
    options = parser.parse_args()

    import mlx_lm

    mx.set_default_device(mx.cpu)
    model, _ = mlx_lm.load(str(options.folder))
    tokenizer = Tokenizer.from_file(str(options.folder / "tokenizer.json"))
    tokens = tokenizer.encode((here / "prose.txt").read_text()).ids[: options.tokens]
    start = time.time()
    logits = np.array(model(mx.array([tokens]))[0].astype(mx.float32)).astype(np.float64)
    print(f"{len(tokens)} tokens in {time.time() - start:.1f} s")
    logits -= logits.max(-1, keepdims=True)
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.save(options.full, logp.astype(np.float32))
    options.full.with_suffix(".tokens").write_text(" ".join(map(str, tokens)) + "\n")
    perplexity = np.exp(-np.mean([logp[i, t] for i, t in enumerate(tokens[1:])]))
    print(f"perplexity {perplexity:.4f}")

    draw = np.random.default_rng(3)
    rows = []
    for position in range(2, len(tokens), 3):
        order = np.argsort(-logp[position], kind="stable")
        rest = order[48 : int((logp[position] > -10).sum())]
        chosen = [*order[:48], *draw.permutation(rest)[:16]]
        rows.append({"position": position, "ids": [int(i) for i in chosen],
                     "logp": [round(float(logp[position, i]), 5) for i in chosen]})
    head = {"reference": f"mlx-lm {mlx_lm.__version__}, float32", "perplexity": round(float(perplexity), 4),
            "tokens": tokens}
    text = "{\n" + "".join(f'  "{k}": {json.dumps(v)},\n' for k, v in head.items())
    text += '  "rows": [\n    ' + ",\n    ".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n  ]\n}\n"
    target = here.parents[1] / "tests/real/data/smollm2_logprobs.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    print(f"{target.name}: {target.stat().st_size} B, {len(rows)} rows")


if __name__ == "__main__":
    main()
