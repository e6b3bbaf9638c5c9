"""`doctor`: each fault is found, named by its check, with what it leads to; a sound model has none."""
import json
import shutil
import struct

import models

IDS = ["files", "shards", "index", "names", "tied-head", "bits", "eos", "rope", "window", "tokenizer", "template", "memory",
       "capabilities"]


def copy_of(context, name, source=None):
    target = context.folder / ("doctor-" + name)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source or context.tiny(), target)
    return target


def edit(folder, **more):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(more)
    path.write_text(json.dumps(config))


def diagnosis(context, model, *flags):
    result = context.run("doctor", model, "--json", *flags)
    found = json.loads(result.out)
    statuses = [c["status"] for c in found["checks"]]
    assert found["summary"] == {s: statuses.count(s) for s in ("ok", "warn", "fail")}
    strict = "--strict" in flags
    assert result.code == (1 if "fail" in statuses or (strict and "warn" in statuses) else 0), result
    return found["checks"]


def worst(checks, check):
    order = ["ok", "warn", "fail"]
    return max((c["status"] for c in checks if c["id"] == check), key=order.index)


def text_of(checks, check):
    return " ".join(f"{c['detail']} {c['where']}" for c in checks if c["id"] == check)


def check_a_sound_model(context):
    checks = diagnosis(context, context.tiny())
    assert {c["id"] for c in checks} == set(IDS), {c["id"] for c in checks}
    assert not [c for c in checks if c["status"] == "fail"], checks
    lines = context.ok("doctor", context.tiny()).out.splitlines()
    assert all(line.split()[0] in ("ok", "warn", "fail") for line in lines[:-1])
    assert set(diagnosis(context, context.smol())[0]) == {"id", "status", "detail", "where"}
    deep = diagnosis(context, context.tiny(), "--deep")
    assert not [c for c in deep if c["status"] == "fail"], deep


def check_files(context):
    folder = copy_of(context, "files")
    (folder / "tokenizer.json").unlink()
    (folder / "empty.json").write_bytes(b"")
    (folder / "dangling.json").symlink_to("nowhere")
    checks = diagnosis(context, folder)
    text = text_of(checks, "files")
    assert worst(checks, "files") == "fail" and "tokenizer.json" in text and "empty.json" in text and "dangling.json" in text, text


def check_shards(context):
    folder = copy_of(context, "cut")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    checks = diagnosis(context, folder)
    assert worst(checks, "shards") == "fail" and "model.safetensors" in text_of(checks, "shards"), checks
    # H13: a load is refused too, with the question.
    out = context.fails(1, "run", "-m", folder, "-p", "x")
    assert "download incomplete?" in out.err or "model.safetensors" in out.err, out
    overlapping = copy_of(context, "overlap")
    text = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                       "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}).encode()
    text += b" " * (-len(text) % 8)
    (overlapping / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 12)
    assert worst(diagnosis(context, overlapping), "shards") == "fail"


def check_index(context):
    folder = copy_of(context, "index")
    index = folder / "model.safetensors.index.json"
    names = list(models.read_safetensors(folder / "model.safetensors"))
    index.write_text(json.dumps({"weight_map": {n: "model.safetensors" for n in names}}))
    assert worst(diagnosis(context, folder), "index") == "ok"
    index.write_text(json.dumps({"weight_map": {n: "old-00001-of-00001.safetensors" for n in names}}))
    checks = diagnosis(context, folder)
    assert worst(checks, "index") == "warn" and "stale" in text_of(checks, "index")
    index.write_text(json.dumps({"weight_map": dict({n: "model.safetensors" for n in names}, more="gone.safetensors")}))
    checks = diagnosis(context, folder)
    assert worst(checks, "index") == "fail" and "gone.safetensors" in text_of(checks, "index")
    index.write_text("{")
    assert worst(diagnosis(context, folder), "index") == "fail"


def check_names(context):
    folder = copy_of(context, "names")
    tensors = models.read_safetensors(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.mystery.weight"] = ("BF16", [4], b"\0" * 8)
    models.write_safetensors(folder / "model.safetensors", tensors)
    checks = diagnosis(context, folder)
    assert worst(checks, "names") == "fail" and "mystery" in text_of(checks, "names"), checks
    del tensors["model.layers.0.self_attn.mystery.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
    models.write_safetensors(folder / "model.safetensors", tensors)
    checks = diagnosis(context, folder)
    assert worst(checks, "names") == "fail" and "layers.1.mlp.up_proj" in text_of(checks, "names")


def check_tied_head(context):
    """H12."""
    folder = copy_of(context, "tied")
    edit(folder, tie_word_embeddings=True)
    assert worst(diagnosis(context, folder), "tied-head") == "warn"
    checks = diagnosis(context, folder, "--deep")
    assert worst(checks, "tied-head") == "warn" and "differs" in text_of(checks, "tied-head"), checks
    tensors = models.read_safetensors(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    models.write_safetensors(folder / "model.safetensors", tensors)
    checks = diagnosis(context, folder, "--deep")
    assert worst(checks, "tied-head") == "ok" and "copy" in text_of(checks, "tied-head"), checks


def check_bits(context):
    """H11: a map that disagrees with the shapes; an odd tensor is listed."""
    mixed = context.folder / "doctor-mixed"
    shutil.rmtree(mixed, ignore_errors=True)
    context.ok("quantize", "-m", context.tiny(), "-o", mixed, "--override", "model.layers.0.mlp.down_proj=6")
    checks = diagnosis(context, mixed)
    assert worst(checks, "bits") == "ok" and "model.layers.0.mlp.down_proj.weight" in text_of(checks, "bits"), checks
    config = json.loads((mixed / "config.json").read_text())
    for block in ("quantization", "quantization_config"):
        config[block]["model.layers.0.mlp.down_proj"]["bits"] = 4
    (mixed / "config.json").write_text(json.dumps(config))
    checks = diagnosis(context, mixed)
    assert worst(checks, "bits") == "warn" and "down_proj" in text_of(checks, "bits"), checks
    context.ok("run", "-m", mixed, "-p", "abc", "-n", "2")


def check_eos(context):
    """H14: the union, and where each id comes from."""
    folder = copy_of(context, "eos")
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 106]}')
    edit(folder, eos_token_id=2)
    checks = diagnosis(context, folder)
    text = text_of(checks, "eos")
    assert "1, 2, 106" in text and "generation_config" in text, text
    (folder / "generation_config.json").write_text('{"eos_token_id": 999999}')
    assert worst(diagnosis(context, folder), "eos") == "warn"


def check_rope_and_window(context):
    """H10: null, absent and {} are the same."""
    folder = copy_of(context, "rope")
    details = []
    for value in (None, {}):
        edit(folder, rope_scaling=value)
        checks = diagnosis(context, folder)
        details.append((worst(checks, "rope"), text_of(checks, "rope")))
    details.append((worst(diagnosis(context, context.tiny()), "rope"), text_of(diagnosis(context, context.tiny()), "rope")))
    assert len(set(details)) == 1 and details[0][0] == "ok", details
    edit(folder, rope_scaling={"rope_type": "linear", "type": "yarn", "factor": 2.0})
    assert worst(diagnosis(context, folder), "rope") == "warn"
    edit(folder, rope_scaling=None, layer_types=["full_attention"] * 3)
    checks = diagnosis(context, folder)
    assert worst(checks, "window") == "fail" and "3 entries for 2 layers" in text_of(checks, "window"), checks


def check_template(context):
    folder = copy_of(context, "template")
    (folder / "chat_template.jinja").write_text(
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system text here.') }}{% endif %}{{ messages[-1]['content'] }}")
    checks = diagnosis(context, folder)
    assert worst(checks, "template") == "warn" and "No system text here." in text_of(checks, "template"), checks
    (folder / "chat_template.jinja").write_text("{{ raise_exception('Never.') }}")
    assert worst(diagnosis(context, folder), "template") == "fail"


def check_deep(context):
    folder = copy_of(context, "deep")
    tensors = models.read_safetensors(folder / "model.safetensors")
    dtype, shape, content = tensors["model.norm.weight"]
    tensors["model.norm.weight"] = (dtype, shape, b"\xff\x7f" + content[2:])
    dtype, shape, content = tensors["model.layers.0.mlp.up_proj.weight"]
    tensors["model.layers.0.mlp.up_proj.weight"] = (dtype, shape, bytes(len(content)))
    models.write_safetensors(folder / "model.safetensors", tensors)
    assert worst(diagnosis(context, folder), "names") == "ok"
    checks = diagnosis(context, folder, "--deep")
    text = text_of(checks, "names")
    assert worst(checks, "names") == "fail" and "NaN" in text and "all zero" in text, text


def check_strict_and_usage(context):
    folder = copy_of(context, "strict")
    edit(folder, tie_word_embeddings=True)
    assert context.run("doctor", folder).code == 0
    assert context.run("doctor", folder, "--strict").code == 1
    context.fails(2, "doctor")
    context.fails(1, "doctor", "acme/absent")
