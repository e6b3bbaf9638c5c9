"""Writes tests/golden/long/*.json: what the last tokens of a text of thousands are given, by the references of
generate.py; the tokens follow from a rule (`text`), so that a file holds a few rows.

    python tools/golden/long.py [CASE...]

A case is one of generate.py's with other limits: a rotation beyond its original window, windows and chunks far
past their size, memories after thousands of steps. Its mutant must move the last rows.
"""

import fnmatch
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers

import generate
import mlx_oracle

ROWS = 4
# name: (case of generate.py, patch of its config, tokens, patch of a mutant)
LONG = {
    "llama-linear": ("llama-rope-linear", {"max_position_embeddings": 8192, "rope_scaling": {"factor": 8.0}}, 5000,
                     {"rope_scaling": {"factor": 7.0}}),
    "llama-dynamic": ("llama-gqa", {"max_position_embeddings": 600, "rope_scaling":
                                    {"rope_type": "dynamic", "factor": 4.0}}, 3000,
                      {"max_position_embeddings": 700}),
    "llama-llama3": ("llama-rope-llama3", {"max_position_embeddings": 4096, "rope_scaling":
                                           {"original_max_position_embeddings": 512}}, 4000,
                     {"rope_scaling": {"original_max_position_embeddings": 400}}),
    "llama-yarn": ("llama-rope-yarn", {"max_position_embeddings": 4096, "rope_scaling":
                                       {"factor": 8.0, "original_max_position_embeddings": 512}}, 4000,
                   {"rope_scaling": {"factor": 7.0}}),
    "phi3-longrope": ("phi3-long", {"max_position_embeddings": 4096, "original_max_position_embeddings": 1024}, 3000,
                      {"original_max_position_embeddings": 3500}),
    "phi3-short": ("phi3-long", {"max_position_embeddings": 4096, "original_max_position_embeddings": 2100}, 2000,
                   {"original_max_position_embeddings": 1024}),
    "minicpm3-longrope": ("minicpm3-long", {"max_position_embeddings": 4096, "rope_scaling":
                                            {"original_max_position_embeddings": 1024}}, 2000,
                          {"rope_scaling": {"original_max_position_embeddings": 3500}}),
    "gemma4_text-proportional": ("gemma4_text-dense", {"max_position_embeddings": 8192, "sliding_window": 100}, 3000,
                                 {"sliding_window": 80}),
    "hunyuan_v1_dense-alpha": ("hunyuan_v1_dense-alpha", {"max_position_embeddings": 8192, "rope_scaling":
                                                          {"alpha": 1000.0}}, 3000, {"rope_scaling": {"alpha": 20.0}}),
    "youtu_llm-yarn": ("youtu_llm-lora", {"max_position_embeddings": 4096, "rope_scaling":
                                          {"rope_type": "yarn", "factor": 8.0, "mscale": 0.8, "mscale_all_dim": 1.1,
                                           "original_max_position_embeddings": 512}}, 2000,
                       {"rope_scaling": {"factor": 7.0}}),
    "olmo3-yarn": ("olmo3-yarn", {"max_position_embeddings": 4096, "sliding_window": 90}, 3000, {"sliding_window": 70}),
    "mistral-window": ("mistral-window", {"max_position_embeddings": 8192, "sliding_window": 100}, 5000,
                       {"sliding_window": 99}),
    "gemma3_text-pattern": ("gemma3_text-pattern", {"max_position_embeddings": 8192, "sliding_window": 64,
                                                    "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 2500,
                            {"rope_scaling": {"factor": 4.0}}),
    "gpt_oss-sinks": ("gpt_oss-windows", {"max_position_embeddings": 4096, "sliding_window": 128, "rope_scaling":
                                          {"original_max_position_embeddings": 512}}, 2000, {"sliding_window": 100}),
    "cohere2-unrotated": ("cohere2-pattern", {"max_position_embeddings": 8192, "sliding_window": 80}, 2000,
                          {"sliding_window": 60}),
    "llama4_text-chunks": ("llama4_text-chunks", {"max_position_embeddings": 8192, "attention_chunk_size": 96,
                                                  "floor_scale": 500}, 2000, {"attention_chunk_size": 80}),
    "ministral3-temperature": ("ministral3-temperature", {"max_position_embeddings": 8192, "rope_parameters":
                                                          {"original_max_position_embeddings": 512}}, 2000,
                               {"rope_parameters": {"llama_4_scaling_beta": 0.3}}),
    "deepseek_v32-chosen": ("deepseek_v32-yarn", {"max_position_embeddings": 4096, "index_topk": 64, "rope_scaling":
                                                  {"original_max_position_embeddings": 512}}, 1000,
                            {"index_topk": 32}),
    "deepseek_v4-pooled": ("deepseek_v4-kinds", {"max_position_embeddings": 4096, "sliding_window": 64,
                                                 "index_topk": 32, "num_hash_layers": 1}, 600, {"sliding_window": 50}),
    "qwen3_next-memory": ("qwen3_next-sparse", {"max_position_embeddings": 8192}, 1500, {"rms_norm_eps": 0.1}),
    "kimi_linear-memory": ("kimi_linear-sparse", {"model_max_length": 8192}, 1000, {"rms_norm_eps": 0.1}),
    "mamba2-memory": ("mamba2-groups", {}, 1500, {"layer_norm_epsilon": 0.2}),
    "recurrent_gemma-window": ("recurrent_gemma-mixed", {"max_position_embeddings": 8192, "attention_window_size": 90},
                               1200, {"attention_window_size": 60}),
    "rwkv7-memory": ("rwkv7-published", {}, 800, {"norm_eps": 0.1}),
    "phi3small-blocks": ("phi3small-blocks", {"max_position_embeddings": 8192}, 1536, {"rope_embedding_base": 100}),
}


def text(count, below):
    """The test makes the same (long_test.cpp)."""
    tokens, x = [], 1
    for _ in range(count):
        x = (x * 1664525 + 1013904223) % 2**32
        tokens.append((x >> 16) % below)
    return tokens


def answers(case, config, tensors, fill, tokens, variant=None):
    return generate.run(case, config, tensors, fill, tokens, variant=variant)[-ROWS:]


def write(name, folder):
    base, patch, count, mutant = LONG[name]
    case = generate.CASES[base]
    config = generate.merge({k: v for k, v in case["config"].items() if k not in case.get("drop", ())}, patch)
    if case.get("oracle") == "mlx":
        tensors, fill = mlx_oracle.published_names(case, config)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            scratch = pathlib.Path(temporary)
            generate.model_class(case, config)(generate.config_of(case, config)).save_pretrained(scratch)
            tensors, fill = generate.published_names(case, config, scratch)
    below = case.get("below") or config.get("text_config", config)["vocab_size"]
    tokens = text(count, below)
    rows = answers(case, config, tensors, fill, tokens)
    nudged = generate.distance(False, rows, answers(case, config, tensors, fill, tokens, "nudged"))
    moved = generate.distance(False, rows, answers(case, generate.merge(config, mutant), tensors, fill, tokens))
    print(f"{name}: nudged {nudged:.1e}, mutant {moved:.3f}", flush=True)
    assert np.isfinite(rows).all() and nudged < generate.STEADY and moved > generate.SENSITIVITY, name
    body = {"name": name, "reference": generate.reference_of(case, config), "config": config, "tensors": tensors,
            "count": count, "below": below, "logits": generate.rounded(rows),
            "mutants": [{"patch": mutant, "distance": float(f"{moved:.4g}")}]}
    (folder / f"{name}.json").write_text(generate.lines(body))


def main():
    folder = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/long"
    folder.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    for name in LONG:
        if sys.argv[1:] and not any(fnmatch.fnmatch(name, pattern) for pattern in sys.argv[1:]):
            continue
        try:
            write(name, folder)
        except Exception as error:
            failed += 1
            print(f"{name}: FAILED {type(error).__name__}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
