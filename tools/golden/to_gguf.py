"""Writes goldens as GGUF files through llama.cpp's own converter, to check our tables of GGUF names against it.

    python tools/golden/to_gguf.py LLAMA_CPP_FOLDER OUT_FOLDER CASE...
    MLXCEL_GGUF_GOLDENS=OUT_FOLDER build/release/tests/test_golden --gtest_filter='Gguf*'

Development only: the test skips where the folder is not named.
"""

import argparse
import fnmatch
import json
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import save_file

from synthetic import values



def write(case, llama_cpp, target):
    sys.path.insert(0, str(llama_cpp))
    sys.path.insert(0, str(llama_cpp / "gguf-py"))
    import conversion
    import gguf
    from conversion import base

    base.TextModel.set_vocab = base.TextModel._set_vocab_none
    config = dict(case["config"])
    # What the converter wants spelled where the model has a default.
    if config["model_type"] == "falcon_h1":
        config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    if config.get("time_step_rank") == "auto":
        config["time_step_rank"] = -(-config["hidden_size"] // 16)
    if config["model_type"] == "nemotron_h":
        config.setdefault("mamba_d_head", config["mamba_head_dim"])
    if config["model_type"] == "hunyuan_v1_moe":
        layers = config["num_hidden_layers"]
        config["moe_intermediate_size"] = [config["intermediate_size"]] * layers
        config["moe_topk"] = [config["moe_topk"]] * layers
        config["num_shared_expert"] = [1] * layers
    if config["model_type"] == "mistral4":
        config["architectures"] = ["Mistral3ForConditionalGeneration"]
    if config["model_type"] == "phimoe":
        config["architectures"] = ["PhiMoEForCausalLM"]
    if "score_function" in config and config["model_type"] == "bailing_moe":
        config["architectures"] = ["BailingMoeV2ForCausalLM"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "config.json").write_text(json.dumps(config))
        # Gemma's converter counts the rows that have a token.
        vocabulary = {str(i): i for i in range(config.get("text_config", config).get("vocab_size", 0))}
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": []}))
        state = {name: torch.from_numpy(values(name, shape)) for name, shape in case["tensors"].items()}
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        hparams = base.ModelBase.load_hparams(folder, False)
        kind = conversion.get_model_class(base.get_model_architecture(hparams, base.ModelType.TEXT), mmproj=False)
        inner = [one for one in vars(kind).values() if isinstance(one, type)]
        for one in [parent for outer in (kind, *inner) for parent in outer.__mro__]:
            if "set_vocab" in vars(one):
                one.set_vocab = base.TextModel._set_vocab_none
        kind.no_mtp = True
        with torch.inference_mode():
            kind(folder, gguf.LlamaFileType.ALL_F32, target, model_name=case["name"]).write()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llama_cpp", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("cases", nargs="+")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    data = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/data"
    for path in sorted(data.glob("*.json")):
        if not any(fnmatch.fnmatch(path.stem, pattern) for pattern in options.cases):
            continue
        try:
            write(json.loads(path.read_text()), options.llama_cpp, options.out / f"{path.stem}.gguf")
            print(f"{path.stem}: written", flush=True)
        except Exception as error:
            print(f"{path.stem}: FAILED {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
