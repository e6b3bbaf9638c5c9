"""Turns a llama-family GGUF file (F32, F16, Q4_1, Q8_0 tensors) into a folder that mlx-lm loads.

    python tools/oracle/gguf_to_mlx.py MODEL.gguf FOLDER [--dense]

Q4_1 becomes affine 4-bit planes of groups of 32 with the file's own scales and minima, Q8_0 affine 8-bit planes
(code + 128, bias -128 * scale): both exact. --dense writes float32 values instead. Rows of q and k are put back from
GGUF's interleaved order. Hyper-parameters and the tokenizer come from the file.
"""

import argparse
import json
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFReader
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

PARTS = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def hugging_face_name(name):
    stem = name.removesuffix(".weight")
    if stem in TOP:
        return TOP[stem]
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{PARTS[part]}"


def planes(tensor, rows, columns):
    """Codes [rows, columns] uint8, scales and biases [rows, columns / 32] float16, bits."""
    blocks = np.ascontiguousarray(tensor.data).reshape(rows, columns // 32, -1).view(np.uint8)
    if tensor.tensor_type == Kind.Q4_1:  # scale, minimum, 16 bytes: low nibbles first, then high
        halves = np.ascontiguousarray(blocks[..., :4]).view(np.float16)
        nibbles = blocks[..., 4:]
        codes = np.concatenate([nibbles & 15, nibbles >> 4], -1)
        return codes.reshape(rows, columns), halves[..., 0], halves[..., 1], 4
    if tensor.tensor_type == Kind.Q8_0:  # scale, 32 signed bytes
        scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0]
        codes = (blocks[..., 2:].view(np.int8).astype(np.int16) + 128).astype(np.uint8)
        return codes.reshape(rows, columns), scales, scales * np.float16(-128), 8
    raise SystemExit(f"{tensor.name}: {tensor.tensor_type.name} is not handled here")


def interleaved_rows(rows, heads):
    """Where row i of the restored matrix stands in the file."""
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)


def convert(reader, folder, dense):
    def value(key):
        return reader.fields[key].contents()

    heads, kv_heads = value("llama.attention.head_count"), value("llama.attention.head_count_kv")
    tensors = {}
    for tensor in reader.tensors:
        name = hugging_face_name(tensor.name)
        shape = [int(n) for n in reversed(tensor.shape)]
        order = slice(None)
        if "attn_q" in tensor.name or "attn_k" in tensor.name:
            order = interleaved_rows(shape[0], heads if "attn_q" in tensor.name else kv_heads)
        if tensor.tensor_type in (Kind.F32, Kind.F16):
            tensors[f"{name}.weight"] = np.ascontiguousarray(tensor.data.reshape(shape)[order])
            continue
        codes, scales, biases, bits = (x if isinstance(x, int) else x[order] for x in planes(tensor, *shape))
        if dense:
            wide = [np.repeat(x.astype(np.float32), 32, -1) for x in (scales, biases)]
            tensors[f"{name}.weight"] = codes.astype(np.float32) * wide[0] + wide[1]
            continue
        per_word = 32 // bits
        shifts = np.arange(per_word, dtype=np.uint32) * np.uint32(bits)
        words = codes.astype(np.uint32).reshape(shape[0], -1, per_word) << shifts
        tensors[f"{name}.weight"] = np.bitwise_or.reduce(words, -1)
        tensors[f"{name}.scales"] = np.ascontiguousarray(scales)
        tensors[f"{name}.biases"] = np.ascontiguousarray(biases)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "mlx"})

    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": value("llama.embedding_length"), "intermediate_size": value("llama.feed_forward_length"),
        "num_hidden_layers": value("llama.block_count"), "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "vocab_size": len(value("tokenizer.ggml.tokens")),
        "rms_norm_eps": value("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": value("llama.rope.freq_base"), "max_position_embeddings": value("llama.context_length"),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "bos_token_id": value("tokenizer.ggml.bos_token_id"), "eos_token_id": value("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "float32" if dense else "float16",
    }
    if not dense:
        eight = {"group_size": 32, "bits": 8}
        config["quantization"] = {"group_size": 32, "bits": 4, "mode": "affine", "model.embed_tokens": eight}
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def write_tokenizer(reader, folder):
    """Byte-level BPE with single digits, as the file's `tokenizer.ggml.pre` = smollm says."""
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t, k in zip(tokens, kinds) if k == 3])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for key in ("bos", "eos"):
        settings[f"{key}_token"] = tokens[reader.fields[f"tokenizer.ggml.{key}_token_id"].contents()]
    if template := reader.fields.get("tokenizer.chat_template"):
        settings["chat_template"] = template.contents()
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--dense", action="store_true", help="float32 values instead of affine planes")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    reader = GGUFReader(options.model)
    convert(reader, options.folder, options.dense)
    write_tokenizer(reader, options.folder)


if __name__ == "__main__":
    main()
