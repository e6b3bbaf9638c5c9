"""Tiny checkpoints, written without any library."""
import json
import random
import shutil
import struct


def bf16(values):
    """Floats to bfloat16 bytes, to nearest even."""
    words = []
    for bits in struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values)):
        words.append((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
    return struct.pack(f"<{len(words)}H", *words)


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """name -> (dtype, shape, bytes)."""
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    return {name: (entry["dtype"], entry["shape"], content[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__"}


def llama_config(vocab, layers=2, width=64, **more):
    return dict({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab, "hidden_size": width,
                 "intermediate_size": 2 * width, "num_hidden_layers": layers, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                 "tie_word_embeddings": False, "torch_dtype": "bfloat16"}, **more)


def llama_shapes(config):
    width, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads = width // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": [vocab, width], "model.norm.weight": [width]}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [vocab, width]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes.update({
            layer + "input_layernorm.weight": [width], layer + "post_attention_layernorm.weight": [width],
            layer + "self_attn.q_proj.weight": [width, width], layer + "self_attn.k_proj.weight": [heads, width],
            layer + "self_attn.v_proj.weight": [heads, width], layer + "self_attn.o_proj.weight": [width, width],
            layer + "mlp.gate_proj.weight": [inner, width], layer + "mlp.up_proj.weight": [inner, width],
            layer + "mlp.down_proj.weight": [width, inner]})
    return shapes


def random_tensors(shapes, seed=1, dtype="BF16"):
    draw = random.Random(seed)
    tensors = {}
    for name, shape in shapes.items():
        count = 1
        for extent in shape:
            count *= extent
        if len(shape) == 1:
            values = [1 + 0.1 * draw.uniform(-1, 1) for _ in range(count)]
        else:
            reach = (3.0 / shape[-1]) ** 0.5
            values = [reach * draw.uniform(-1, 1) for _ in range(count)]
        content = bf16(values) if dtype == "BF16" else struct.pack(f"<{count}f", *values)
        tensors[name] = (dtype, shape, content)
    return tensors


def companions(folder, source):
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
        if (source / name).exists():
            shutil.copy(source / name, folder / name)


def write_llama(folder, tokenizer_from, seed=1, dtype="BF16", **more):
    vocab = json.loads((tokenizer_from / "config.json").read_text())["vocab_size"]
    config = llama_config(vocab, **more)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", random_tensors(llama_shapes(config), seed, dtype))
    companions(folder, tokenizer_from)
    return config


def gguf_value(value):
    """(type id, bytes) of one piece of metadata."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        text = value.encode()
        return 8, struct.pack("<Q", len(text)) + text
    kind = gguf_value(value[0])[0]
    return 9, struct.pack("<IQ", kind, len(value)) + b"".join(gguf_value(v)[1] for v in value)


def write_gguf(path, metadata, tensors):
    """tensors: name -> shape as PyTorch has it; zeros in F32."""
    head, infos, at = b"", b"", 0
    for key, value in metadata.items():
        kind, content = gguf_value(value)
        head += gguf_value(key)[1] + struct.pack("<I", kind) + content
    for name, shape in tensors.items():
        infos += gguf_value(name)[1] + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, at)
        count = 4
        for extent in shape:
            count *= extent
        at += (count + 31) // 32 * 32
    text = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + head + infos
    path.write_bytes(text + b"\0" * (-len(text) % 32) + b"\0" * at)


def write_llama_gguf(folder, stem, parts=1, width=64, vocab=64):
    """A llama of one layer whose weights are zero, whole or as a split set; the paths."""
    metadata = {"general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 512,
                "llama.embedding_length": width, "llama.feed_forward_length": 2 * width, "llama.attention.head_count": 4,
                "llama.attention.head_count_kv": 2, "llama.attention.layer_norm_rms_epsilon": 1e-5,
                "llama.vocab_size": vocab, "llama.rope.freq_base": 10000.0}
    tensors = {"token_embd.weight": [vocab, width], "output_norm.weight": [width], "output.weight": [vocab, width]}
    for name, shape in (("attn_norm", [width]), ("ffn_norm", [width]), ("attn_q", [width, width]), ("attn_k", [width // 2, width]),
                        ("attn_v", [width // 2, width]), ("attn_output", [width, width]), ("ffn_gate", [2 * width, width]),
                        ("ffn_up", [2 * width, width]), ("ffn_down", [width, 2 * width])):
        tensors[f"blk.0.{name}.weight"] = shape
    folder.mkdir(parents=True, exist_ok=True)
    if parts == 1:
        write_gguf(folder / f"{stem}.gguf", metadata, tensors)
        return [folder / f"{stem}.gguf"]
    names, paths = list(tensors), []
    for part in range(parts):
        own = {name: tensors[name] for name in names[part::parts]}
        split = {"split.no": part, "split.count": parts, "split.tensors.count": len(tensors)}
        paths.append(folder / f"{stem}-{part + 1:05}-of-{parts:05}.gguf")
        write_gguf(paths[-1], dict(metadata, **split) if part == 0 else split, own)
    return paths
