#!/usr/bin/env python3
"""Writes a GGUF file of random weights in the shape of a known model: its speed is the model's, its text is noise.

usage: bench/synthetic.py {qwen3-0.6b,qwen3-moe,llama-1b,llama-3b} OUT.gguf [--type q4_0|q8_0] [--vocabulary MODEL.gguf]

The vocabulary is MODEL's (the default model's), filled up with names that no text contains. Needs the Python packages gguf and
numpy (bench/peers/build.sh makes such an environment).
"""
import argparse
import pathlib

import gguf
import numpy as np

from compare import default_model

SHAPES = {  # name: architecture, layers, width, ffn, heads, kv heads, head width, vocabulary, tied head
    "qwen3-0.6b": ("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, True),
    "qwen3-moe": ("qwen3moe", 20, 1024, 384, 16, 4, 128, 49152, True),  # no published size: a quarter is read for a token
    "llama-1b": ("llama", 16, 2048, 8192, 32, 8, 64, 128256, True),
    "llama-3b": ("llama", 28, 3072, 8192, 24, 8, 128, 128256, True),
}
EXPERTS = {"qwen3moe": (48, 8)}  # of a layer, of a token; the ffn's width is one expert's
TYPES = {"q4_0": (gguf.GGMLQuantizationType.Q4_0, 16), "q8_0": (gguf.GGMLQuantizationType.Q8_0, 32)}


class Maker:
    def __init__(self, writer, kind):
        self.writer, self.random = writer, np.random.default_rng(7)
        self.kind, self.bytes = TYPES[kind]
        self.read = 0  # bytes for a token

    def matrix(self, name, rows, columns, shape=None, share=1.0):
        blocks = np.empty((rows, columns // 32, 2 + self.bytes), np.uint8)
        # Codes around zero, scaled so that a row's product keeps the size of what goes in.
        scale = 1.0 / (np.sqrt(columns) * (4.6 if self.bytes == 16 else 74.0))
        blocks[..., :2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
        blocks[..., 2:] = self.random.integers(0, 256, (rows, columns // 32, self.bytes), np.uint8)
        self.writer.add_tensor(name, blocks.reshape(*(shape or (rows,)), -1), raw_dtype=self.kind)
        self.read += blocks.size * share

    def bank(self, name, count, rows, columns, share):
        self.matrix(name, count * rows, columns, (count, rows), share)

    def plain(self, name, rows, columns):
        values = self.random.standard_normal((rows, columns)) / np.sqrt(columns)
        self.writer.add_tensor(name, values.astype(np.float32))
        self.read += values.size * 4

    def ones(self, name, width):
        self.writer.add_tensor(name, np.ones(width, np.float32))


def copy_vocabulary(writer, source, size):
    reader = gguf.GGUFReader(source)

    def texts(key):
        field = reader.fields[key]
        return [bytes(field.parts[i]).decode("utf-8") for i in field.data]

    tokens = texts("tokenizer.ggml.tokens")
    kinds = [int(reader.fields["tokenizer.ggml.token_type"].parts[i][0]) for i in reader.fields["tokenizer.ggml.token_type"].data]
    tokens += [f"<|filler_{i}|>" for i in range(len(tokens), size)]
    kinds += [gguf.TokenType.UNUSED] * (size - len(kinds))
    writer.add_tokenizer_model("gpt2")
    pre = reader.fields.get("tokenizer.ggml.pre")
    if pre is not None:
        writer.add_tokenizer_pre(bytes(pre.parts[pre.data[0]]).decode())
    writer.add_token_list(tokens[:size])
    writer.add_token_types(kinds[:size])
    writer.add_token_merges(texts("tokenizer.ggml.merges"))
    for key, add in (("bos_token_id", writer.add_bos_token_id), ("eos_token_id", writer.add_eos_token_id)):
        field = reader.fields.get(f"tokenizer.ggml.{key}")
        if field is not None:
            add(int(field.parts[field.data[0]][0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--type", choices=sorted(TYPES), default="q4_0")
    parser.add_argument("--vocabulary", type=pathlib.Path, default=default_model())
    args = parser.parse_args()
    arch, layers, width, ffn, heads, kv_heads, head, vocabulary, tied = SHAPES[args.shape]

    writer = gguf.GGUFWriter(args.out, arch)
    writer.add_name(args.shape)
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ffn)
    experts, chosen = EXPERTS.get(arch, (0, 0))
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(chosen)
        writer.add_expert_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(500000.0)
    writer.add_vocab_size(vocabulary)
    copy_vocabulary(writer, args.vocabulary, vocabulary)

    make = Maker(writer, args.type)
    make.matrix("token_embd.weight", vocabulary, width, share=float(tied))
    make.ones("output_norm.weight", width)
    if not tied:
        make.matrix("output.weight", vocabulary, width)
    for i in range(layers):
        at = f"blk.{i}."
        make.ones(at + "attn_norm.weight", width)
        make.ones(at + "ffn_norm.weight", width)
        make.matrix(at + "attn_q.weight", heads * head, width)
        make.matrix(at + "attn_k.weight", kv_heads * head, width)
        make.matrix(at + "attn_v.weight", kv_heads * head, width)
        make.matrix(at + "attn_output.weight", width, heads * head)
        if arch.startswith("qwen3"):
            make.ones(at + "attn_q_norm.weight", head)
            make.ones(at + "attn_k_norm.weight", head)
        if experts:
            make.plain(at + "ffn_gate_inp.weight", experts, width)
            make.bank(at + "ffn_gate_exps.weight", experts, ffn, width, chosen / experts)
            make.bank(at + "ffn_up_exps.weight", experts, ffn, width, chosen / experts)
            make.bank(at + "ffn_down_exps.weight", experts, width, ffn, chosen / experts)
            continue
        make.matrix(at + "ffn_gate.weight", ffn, width)
        make.matrix(at + "ffn_up.weight", ffn, width)
        make.matrix(at + "ffn_down.weight", width, ffn)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.0f} MB, {make.read / 1e6:.0f} MB of them read for a token")


if __name__ == "__main__":
    main()
