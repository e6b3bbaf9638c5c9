"""`quantize`: the codes of MLX's own quantisation, the plan, the folder, and what happens when it cannot work."""
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import time

import models

ROWS = 3


def floats(entry):
    dtype, shape, content = entry
    if dtype == "F32":
        return list(struct.unpack(f"<{len(content) // 4}f", content))
    if dtype == "BF16":
        words = struct.unpack(f"<{len(content) // 2}H", content)
        return list(struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *(w << 16 for w in words))))
    return list(struct.unpack(f"<{len(content) // 2}e", content))


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def codes_of(entry, row, columns, bits):
    words = entry[1][-1]
    data = struct.unpack_from(f"<{words}I", entry[2], row * words * 4)
    stream = 0
    for i, word in enumerate(data):
        stream |= word << (32 * i)
    return [(stream >> (bits * i)) & ((1 << bits) - 1) for i in range(columns)]


def affine(group, bits):
    """MLX's rule: the edge of larger magnitude is hit exactly by an integer multiple of the scale."""
    bins = (1 << bits) - 1
    low, high = min(group), max(group)
    scale = max((high - low) / bins, 1e-7)
    flip = abs(low) > abs(high)
    scale = scale if flip else -scale
    edge = low if flip else high
    whole = round(edge / scale)
    if abs(abs(edge / scale) % 1 - 0.5) < 0.03:
        return None  # a tie: the last bit of the arithmetic decides
    bias = 0.0
    if whole != 0:
        scale, bias = edge / whole, edge
    return scale, bias


def check_affine_codes(context):
    source = context.tiny()
    original = models.read_safetensors(source / "model.safetensors")
    for bits, size in ((2, 32), (3, 64), (4, 64), (5, 32), (6, 64), (8, 32)):
        target = context.folder / f"q{bits}"
        context.ok("quantize", "-m", source, "-o", target, "--bits", bits, "--group-size", size)
        written = models.read_safetensors(target / "model.safetensors")
        config = json.loads((target / "config.json").read_text())
        assert config["quantization"] == config["quantization_config"] == {"bits": bits, "group_size": size, "mode": "affine"}
        module = "model.layers.1.mlp.down_proj"
        columns = original[module + ".weight"][1][1]
        values = floats(original[module + ".weight"])
        scales, biases = floats(written[module + ".scales"]), floats(written[module + ".biases"])
        assert written[module + ".scales"][0] == "BF16" and written[module + ".weight"][0] == "U32"
        assert written[module + ".weight"][1] == [64, columns * bits // 32], written[module + ".weight"][1]
        off = compared = 0
        for row in range(ROWS):
            codes = codes_of(written[module + ".weight"], row, columns, bits)
            for g in range(columns // size):
                part = values[row * columns + g * size:row * columns + (g + 1) * size]
                rule = affine(part, bits)
                if rule is None:
                    continue
                scale, bias = rule
                compared += 1
                at = row * (columns // size) + g
                assert math.isclose(scales[at], scale, rel_tol=2 ** -7), (bits, scales[at], scale)
                assert abs(biases[at] - bias) <= abs(bias) * 2 ** -7 + 1e-9, (bits, biases[at], bias)
                for i, value in enumerate(part):
                    back = codes[g * size + i] * scales[at] + biases[at]
                    if codes[g * size + i] in (0, (1 << bits) - 1):
                        continue  # the end away from the exact edge may be cut off
                    assert abs(back - value) <= abs(scales[at]) * 0.75 + abs(bias) * 2 ** -7 + 1e-6, (bits, value, back)
                    off += codes[g * size + i] != min(max(round((value - bias) / scale), 0), (1 << bits) - 1)
        assert compared >= ROWS and off <= compared * size * 0.05, f"{bits} bits: {off} codes of {compared} groups are off"
        # It runs here, and says what it is.
        context.ok("run", "-m", target, "-p", "abc", "-n", "4")
        assert str(bits) in context.json("inspect", "-m", target, "--json")["quant"]


def check_other_modes(context):
    source = context.tiny()
    for mode, bits, size in (("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)):
        target = context.folder / mode
        context.ok("quantize", "-m", source, "-o", target, "--mode", mode)
        written = models.read_safetensors(target / "model.safetensors")
        assert written["lm_head.scales"][0] == "U8" and "lm_head.biases" not in written
        config = json.loads((target / "config.json").read_text())
        assert config["quantization"] == {"bits": bits, "group_size": size, "mode": mode}
        context.ok("run", "-m", target, "-p", "abc", "-n", "4")


def check_everything_that_belongs_to_the_folder(context):
    source, target = context.tiny(), context.folder / "whole"
    out = context.ok("quantize", "-m", source, "-o", target)
    assert "bits a weight" in out.out
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (target / name).read_bytes() == (source / name).read_bytes(), name
    index = json.loads((target / "model.safetensors.index.json").read_text())
    written = models.read_safetensors(target / "model.safetensors")
    assert set(index["weight_map"]) == set(written)
    assert index["metadata"]["total_size"] == sum(len(entry[2]) for entry in written.values())
    # Norms are untouched.
    before = models.read_safetensors(source / "model.safetensors")
    for name, entry in before.items():
        if len(entry[1]) == 1:
            assert written[name][2] == entry[2], name
    config = json.loads((target / "config.json").read_text())
    for key, value in json.loads((source / "config.json").read_text()).items():
        assert config[key] == value, key
    assert not list(context.folder.glob("whole.*")), "nothing is left beside it"
    assert "fail" not in [c["status"] for c in context.json("doctor", target, "--json")["checks"]]


def check_recipes_overrides_and_skips(context):
    source = context.tiny()
    plan = context.ok("quantize", "-m", source, "--dry-run", "--recipe", "mixed_3_6").out
    lines = {line.split()[0]: line for line in plan.splitlines() if ".weight" in line}
    assert "affine6g64" in lines["lm_head.weight"] and "affine3g64" in lines["model.layers.0.mlp.up_proj.weight"], plan
    target = context.folder / "mixed"
    context.ok("quantize", "-m", source, "-o", target, "--override", "*.v_proj=8:32", "--override", "*.down_proj=2",
               "--skip", "*embed_tokens*")
    config = json.loads((target / "config.json").read_text())["quantization"]
    assert config["model.layers.0.self_attn.v_proj"] == {"bits": 8, "group_size": 32, "mode": "affine"}, config
    assert config["model.layers.1.mlp.down_proj"]["bits"] == 2
    written = models.read_safetensors(target / "model.safetensors")
    assert written["model.embed_tokens.weight"][0] == "BF16"
    context.ok("run", "-m", target, "-p", "abc", "-n", "4")
    none = context.fails(1, "quantize", "-m", source, "-o", context.folder / "n", "--skip", "*nothing*")
    assert "*nothing*" in none.err and not (context.folder / "n").exists()


def check_shards(context):
    source, target = context.tiny(), context.folder / "sharded"
    big = context.folder / "big"
    models.write_llama(big, context.scripted(), layers=2, width=256)
    context.ok("quantize", "-m", big, "-o", target, "--bits", "8", "--shard-size", "1MB")
    shards = sorted(p.name for p in target.glob("model-*.safetensors"))
    assert len(shards) >= 2 and shards[0].startswith("model-00001-of-0000"), shards
    one = context.folder / "unsharded"
    context.ok("quantize", "-m", big, "-o", one, "--bits", "8")
    assert context.ok("run", "-m", target, "-p", "abc", "-n", "8").out == context.ok("run", "-m", one, "-p", "abc", "-n", "8").out
    context.fails(2, "quantize", "-m", source, "-o", context.folder / "x", "--shard-size", "1")


def check_dequantize_and_again(context):
    source, four = context.tiny(), context.folder / "four"
    context.ok("quantize", "-m", source, "-o", four, "--bits", "4")
    dense = context.folder / "dense"
    context.ok("quantize", "-m", four, "-o", dense, "--dequantize", "--dtype", "f32")
    written = models.read_safetensors(dense / "model.safetensors")
    assert all(entry[0] == "F32" for entry in written.values()) and "quantization" not in json.loads((dense / "config.json").read_text())
    again = context.folder / "again"
    out = context.ok("quantize", "-m", four, "-o", again, "--bits", "8", "--group-size", "64")
    assert "second time" in out.err, out


def check_target_that_is_there(context):
    source, target = context.tiny(), context.folder / "there"
    target.mkdir()
    context.ok("quantize", "-m", source, "-o", target)  # an empty folder is as good as none
    before = (target / "model.safetensors").read_bytes()
    out = context.fails(2, "quantize", "-m", source, "-o", target, "--bits", "8")
    assert "--force" in out.err and (target / "model.safetensors").read_bytes() == before
    context.ok("quantize", "-m", source, "-o", target, "--bits", "8", "--force")
    assert (target / "model.safetensors").read_bytes() != before
    blocked = context.fails(1, "quantize", "-m", source, "-o", "/proc/nowhere/model")
    assert "/proc/nowhere" in blocked.err


def interrupted(context, target, number):
    """A quantisation ended by a signal once it writes; what it left beside the target."""
    process = subprocess.Popen([context.mlxcel, "quantize", "-m", context.smol(), "-o", target, "--bits", "8"], env=context.environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    partial = target.with_name(f"{target.name}.partial-{process.pid}")
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None and not list(partial.glob("*")):
        time.sleep(0.005)
    process.send_signal(number)
    assert process.wait(60) == -number and not target.exists(), process.returncode
    return list(target.parent.glob(target.name + ".*"))


def check_signals_leave_nothing_of_it(context):
    target = context.folder / "signals/model"
    target.parent.mkdir()
    assert interrupted(context, target, signal.SIGINT) == []
    left = interrupted(context, target, signal.SIGKILL)
    assert len(left) == 1, left
    others = [target.with_name(f"model.partial-{os.getpid()}"), target.with_name("model.partial-mine")]
    for folder in others:
        folder.mkdir()
    context.ok("quantize", "-m", context.tiny(), "-o", target)
    assert sorted(target.parent.iterdir()) == sorted([target, *others]), "what the dead left goes, nothing else"


def check_gguf_source(context):
    target = context.folder / "smol8"
    context.ok("quantize", "-m", context.smol(), "-o", target, "--bits", "8")
    config = json.loads((target / "config.json").read_text())
    assert config["model_type"] == "llama" and config["torch_dtype"] == "float16"
    answer = context.ok("run", "-m", target, "-p", "What is the capital of France?", "-n", "16")
    assert "Paris" in answer.out, answer
    # The tokenizer came along: the same ids for the same text, template included.
    odd = "Grüße 12345\n\tif x: 世界 🙂  it's   fine"
    ids = [[line for line in context.ok("run", "-m", model, "-p", odd, "-n", "1", env={"MLXCEL_PRINT_TOKEN_IDS": "1"}).err.splitlines()
            if line.startswith("prompt ids")] for model in (context.smol(), target)]
    assert ids[0] == ids[1] and ids[0], ids


def check_evaluate(context):
    text = context.folder / "eval.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 40)
    out = context.ok("quantize", "-m", context.tiny(), "-o", context.folder / "evaluated", "--evaluate", text)
    assert out.out.count("perplexity of") == 2 and "change:" in out.out, out


def check_adapters_are_baked_in(context):
    from check_general import write_adapter
    source, adapter = context.tiny(), write_adapter(context)
    dense = ["--dequantize", "--dtype", "f32"]
    context.ok("quantize", "-m", source, "-o", context.folder / "bare", *dense)
    before = models.read_safetensors(context.folder / "bare/model.safetensors")
    factors = models.read_safetensors(adapter / "adapter_model.safetensors")
    for name, words, scale in (("baked", ["--lora", adapter], 1.0), ("half", ["--lora-scaled", f"{adapter}:0.5"], 0.5)):
        context.ok("quantize", "-m", source, "-o", context.folder / name, *dense, *words)
        after = models.read_safetensors(context.folder / name / "model.safetensors")
        for module in ("model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.o_proj"):
            a, b = (floats(factors[f"base_model.model.{module}.lora_{half}.weight"]) for half in "AB")
            old, new = floats(before[module + ".weight"]), floats(after[module + ".weight"])
            for row in range(0, 64, 9):
                for column in range(64):
                    added = scale * 2 * sum(b[row * 4 + r] * a[r * 64 + column] for r in range(4))  # alpha / r is 2
                    # Written over a bfloat16 model: one rounding of the sum.
                    assert abs(new[row * 64 + column] - old[row * 64 + column] - added) <= 2 ** -8 * (abs(old[row * 64 + column]) + abs(added)) + 1e-6
        assert after["model.layers.0.mlp.up_proj.weight"] == before["model.layers.0.mlp.up_proj.weight"], "nothing else moved"
    # Coded afterwards it answers as the model with the adapter beside it, up to the coding.
    context.ok("quantize", "-m", source, "-o", context.folder / "baked8", "--bits", "8", "--lora", adapter)
    context.ok("run", "-m", context.folder / "baked8", "-p", "abc", "-n", "4")
    stray = context.folder / "stray-adapter"
    shutil.copytree(adapter, stray)
    odd = {name.replace("q_proj", "z_proj"): entry for name, entry in factors.items()}
    models.write_safetensors(stray / "adapter_model.safetensors", odd)
    refused = context.fails(1, "quantize", "-m", source, "-o", context.folder / "stray", "--lora", stray)
    assert "z_proj" in refused.err and not (context.folder / "stray").exists(), refused
    refused = context.fails(1, "quantize", "-m", source, "-o", context.folder / "stray", "--lora", "/nowhere/adapter")
    assert "/nowhere/adapter" in refused.err, refused
