"""Drafters made for their target: the checkpoint's own block, and folders beside it. Answers are those without."""
import json
import struct

import models
from check_answers import acceptance_of


def drafted(context, words, *more, **settings):
    """The text, and the figures of the line behind it."""
    text, _, line = context.ok(*words, *more, **settings).out.rstrip("\n").rpartition("\n")
    assert line.startswith("[Speculative acceptance] rule="), line
    return text + "\n", acceptance_of(line)


def ones(*shape):
    count = 1
    for extent in shape:
        count *= extent
    return ("F32", list(shape), struct.pack(f"<{count}f", *[1.0] * count))


def zeros(*shape):
    count = 1
    for extent in shape:
        count *= extent
    return ("F32", list(shape), bytes(4 * count))


def clairvoyant(context):
    """The scripted model as a MiMo whose block sees no state, only the token: that decides, so it is always right."""
    folder = context.folder / "clairvoyant"
    if folder.exists():
        return folder
    folder.mkdir()
    source = context.scripted()
    config = json.loads((source / "config.json").read_text())
    tensors = models.read_safetensors(source / "model.safetensors")
    width, block = config["hidden_size"], "model.mtp_layers.0."
    for layer in range(config["num_hidden_layers"]):
        for part in "qkv":
            rows = tensors[f"model.layers.{layer}.self_attn.{part}_proj.weight"][1][0]
            tensors[f"model.layers.{layer}.self_attn.{part}_proj.bias"] = zeros(rows)
    for name in [name for name in tensors if name.startswith("model.layers.0.")]:
        dtype, shape, content = tensors[name]
        silent = name.endswith(("o_proj.weight", "down_proj.weight"))
        tensors[name.replace("model.layers.0.", block)] = (dtype, shape, bytes(len(content)) if silent else content)
    eye = [1.0 if column == width + row else 0.0 for row in range(width) for column in range(2 * width)]
    tensors |= {block + "token_layernorm.weight": ones(width), block + "hidden_layernorm.weight": ones(width),
                block + "final_layernorm.weight": tensors["model.norm.weight"],
                block + "input_proj.weight": ("F32", [width, 2 * width], struct.pack(f"<{len(eye)}f", *eye))}
    (folder / "config.json").write_text(json.dumps(dict(config, model_type="mimo", architectures=["MiMoForCausalLM"],
                                                        num_nextn_predict_layers=1)))
    models.write_safetensors(folder / "model.safetensors", tensors)
    models.companions(folder, source)
    return folder


def check_the_checkpoints_own_block(context):
    model = clairvoyant(context)
    words = ["run", "-m", model, "-p", "[[loop]]", "-n", "60", "--ignore-eos"]
    plain = context.ok(*words, "--draft-kind", "none").out
    fixed = {"MLXCEL_MTP_ADAPTIVE": "0"}
    for kind in (["--draft-kind", "internal-mtp"], ["--draft-kind", "internal-mtp", "--draft-max", "3"]):
        text, figures = drafted(context, words, *kind, env=fixed)
        assert text == plain and figures["acceptance_rate"] == 1 and set(figures["places"]) == {1.0}, figures
    for seed in ("1", "2"):
        warm = [*words, "--temp", "1.5", "--seed", seed]
        assert drafted(context, warm, "--draft-kind", "internal-mtp", env=fixed)[0] == context.ok(*warm, "--draft-kind", "none").out
    missing = context.fails(1, "run", "-m", context.tiny(), "-p", "a", "-n", "4", "--draft-kind", "internal-mtp")
    assert "internal-mtp" in missing.err, missing
    # By itself: the first answers are measured, and nothing changes.
    for _ in range(5):
        assert context.ok(*words, "--quiet").out.startswith(plain.rstrip("\n"))


def block_drafter(context):
    """A block drafter of random weights for the tiny model."""
    folder = context.folder / "block-drafter"
    if folder.exists():
        return folder
    folder.mkdir()
    target = json.loads((context.tiny() / "config.json").read_text())
    width = target["hidden_size"]
    config = {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": width, "intermediate_size": 96,
              "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu",
              "vocab_size": target["vocab_size"], "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "torch_dtype": "bfloat16", "block_size": 5, "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 1]}}
    layer = "layers.0."
    shapes = {"fc.weight": [width, 2 * width], "hidden_norm.weight": [width], "norm.weight": [width],
              layer + "input_layernorm.weight": [width], layer + "post_attention_layernorm.weight": [width],
              layer + "self_attn.q_proj.weight": [64, width], layer + "self_attn.k_proj.weight": [32, width],
              layer + "self_attn.v_proj.weight": [32, width], layer + "self_attn.o_proj.weight": [width, 64],
              layer + "self_attn.q_norm.weight": [16], layer + "self_attn.k_norm.weight": [16],
              layer + "mlp.gate_proj.weight": [96, width], layer + "mlp.up_proj.weight": [96, width],
              layer + "mlp.down_proj.weight": [width, 96]}
    (folder / "config.json").write_text(json.dumps(config))
    models.write_safetensors(folder / "model.safetensors", models.random_tensors(shapes, seed=5))
    return folder


def check_a_block_drafter(context):
    model, drafter = context.tiny(), block_drafter(context)
    words = ["run", "-m", model, "-p", "abcdef", "-n", "40", "--ignore-eos"]
    plain = context.ok(*words).out
    fixed = {"MLXCEL_MTP_ADAPTIVE": "0"}
    for kind in ([], ["--draft-kind", "dflash"], ["--draft-max", "2"]):
        text, figures = drafted(context, words, "-md", drafter, *kind, env=fixed)
        assert text == plain and figures["rounds"] > 0, figures
    warm = [*words, "--temp", "1.2", "--seed", "7"]
    assert drafted(context, warm, "-md", drafter, env=fixed)[0] == context.ok(*warm).out
    alone = context.fails(1, "run", "-m", drafter, "-p", "a")
    assert "--draft-model" in alone.err, alone
    long = context.fails(1, *words, "-md", drafter, "--draft-max", "9")
    assert "at most 4" in long.err, long


def check_drafters_that_do_not_fit(context):
    model, good = context.tiny(), block_drafter(context)
    config = json.loads((good / "config.json").read_text())
    content = (good / "model.safetensors").read_bytes()
    folder = context.folder / "odd-drafter"
    folder.mkdir(exist_ok=True)

    def refused(patch, part, data=content):
        (folder / "config.json").write_text(json.dumps({**config, **patch}))
        (folder / "model.safetensors").write_bytes(data)
        found = context.fails(1, "run", "-m", model, "-p", "abc", "-n", "4", "-md", folder)
        assert part in found.err and found.out == "", found

    refused({"hidden_size": 128}, "hidden_size")
    refused({"vocab_size": config["vocab_size"] + 1}, "vocab_size")
    refused({"dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 2]}}, "target_layer_ids")
    refused({"dflash_config": {"mask_token_id": config["vocab_size"], "target_layer_ids": [0, 1]}}, "mask_token_id")
    refused({"block_size": 1000}, "block_size")
    refused({"intermediate_size": 97}, "mlp.")
    refused({"num_hidden_layers": 2}, "layers.1.")
    refused({}, "model.safetensors", content[:-100])
    refused({}, "model.safetensors", content[:20])
    refused({}, "model.safetensors", struct.pack("<Q", 1 << 62) + content[8:])
