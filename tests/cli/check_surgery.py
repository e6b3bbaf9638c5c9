"""`--surgery`: each operation of features.md 9 moves what it says and nothing else; mistakes end before anything loads."""
import shutil
import struct

import models


def answer(context, model, *flags):
    return context.ok("run", "-m", model, "-p", "abcdefgh", "-n", "16", "--no-chat-template", "--quiet", *flags).out


def surgery(context, text, name="surgery.yaml"):
    path = context.folder / name
    path.write_text("version: 1\noperations:\n" + text)
    return path


def result(context, text, source=None, name="operated"):
    """The weights after surgery, by way of quantize --dequantize in float32."""
    target = context.folder / name
    shutil.rmtree(target, ignore_errors=True)
    context.ok("quantize", "-m", source or context.tiny(), "-o", target, "--dequantize", "--dtype", "f32", "--surgery",
               surgery(context, text))
    return values(target)


def values(folder):
    out = {}
    for name, (dtype, shape, content) in models.read_safetensors(folder / "model.safetensors").items():
        if dtype == "BF16":
            words = struct.unpack(f"<{len(content) // 2}H", content)
            content = struct.pack(f"<{len(words)}I", *(w << 16 for w in words))
        out[name] = list(struct.unpack(f"<{len(content) // 4}f", content))
    return out


def others_equal(before, after, changed):
    for name in before:
        if name not in changed:
            assert before[name] == after[name], f"{name} moved"


Q = "model.layers.1.self_attn.q_proj.weight"
O = "model.layers.1.self_attn.o_proj.weight"
DOWN = "model.layers.0.mlp.down_proj.weight"


def check_scale(context):
    before = values(context.tiny())
    after = result(context, f"  - {{op: scale, pattern: '{Q}', factor: 0.5}}\n")
    assert after[Q] == [v * 0.5 for v in before[Q]]
    others_equal(before, after, {Q})


def check_prune(context):
    before = values(context.tiny())
    after = result(context, "  - {op: prune, pattern: 'model.layers.1.*', granularity: attention_head, head_ids: [1, 3]}\n")
    for i in range(64):
        for j in range(64):
            gone = i // 16 in (1, 3)
            assert after[Q][i * 64 + j] == (0 if gone else before[Q][i * 64 + j])
            gone = j // 16 in (1, 3)
            assert after[O][i * 64 + j] == (0 if gone else before[O][i * 64 + j])
    others_equal(before, after, {Q, O})
    after = result(context, "  - {op: prune, pattern: '*.mlp.*', granularity: layer, layer_ids: [0]}\n")
    changed = {name for name in before if name.startswith("model.layers.0.mlp.")}
    assert all(set(after[name]) == {0.0} for name in changed)
    others_equal(before, after, changed)
    after = result(context, "  - {op: prune, pattern: 'model.layers.0.mlp.*', granularity: mlp_channel, channel_ids: [5]}\n")
    assert all(after[DOWN][i * 128 + 5] == 0 for i in range(64)) and after[DOWN][4] == before[DOWN][4]
    up = "model.layers.0.mlp.up_proj.weight"
    assert set(after[up][5 * 64:6 * 64]) == {0.0} and after[up][:64] == before[up][:64]


def donor(context, name, seed):
    folder = context.folder / name
    if not folder.exists():
        models.write_llama(folder, context.scripted(), seed=seed)
    return folder


def check_add_replace_interpolate(context):
    before, other, third = values(context.tiny()), values(donor(context, "donor", 2)), values(donor(context, "donor2", 3))
    bf16 = lambda v: struct.unpack("<f", b"\0\0" + models.bf16([v]))[0]
    f32 = lambda v: struct.unpack("<f", struct.pack("<f", v))[0]
    after = result(context, f"  - {{op: add, pattern: '{Q}', source: donor, alpha: 0.25}}\n")
    assert after[Q] == [bf16(f32(a + 0.25 * b)) for a, b in zip(before[Q], other[Q])]
    others_equal(before, after, {Q})
    after = result(context, "  - {op: replace, pattern: 'model.layers.*.self_attn.q_proj.weight', source: donor, "
                            "source_key: 'model.layers.*.self_attn.o_proj.weight'}\n")
    assert after[Q] == other[O]
    after = result(context, f"  - {{op: interpolate, pattern: '{Q}', source_a: donor, source_b: donor2, ratio: 0.25}}\n")
    assert after[Q] == [bf16(0.75 * a + 0.25 * b) for a, b in zip(other[Q], third[Q])]
    after = result(context, f"  - {{op: interpolate, pattern: '{Q}', source_a: donor, source_b: donor, ratio: 0.3, method: slerp}}\n")
    assert all(abs(a - b) <= abs(b) * 2 ** -7 for a, b in zip(after[Q], other[Q])), "between a thing and itself lies itself"
    after = result(context, f"  - {{op: interpolate, pattern: '{Q}', source_a: donor, source_b: donor2, ratio: 0.5, method: slerp}}\n")
    size = lambda v: sum(x * x for x in v) ** 0.5
    assert size(after[Q]) > 0.95 * size(other[Q]), "slerp keeps the length, lerp would lose a third"


def check_over_quantised_weights(context):
    four = context.folder / "surgery4"
    if not four.exists():
        context.ok("quantize", "-m", context.tiny(), "-o", four, "--bits", "4")
    plain = context.folder / "surgery4-dense"
    shutil.rmtree(plain, ignore_errors=True)
    context.ok("quantize", "-m", four, "-o", plain, "--dequantize", "--dtype", "f32")
    before = values(plain)
    after = result(context, f"  - {{op: scale, pattern: '{Q}', factor: 2}}\n", four)
    assert after[Q] == [2 * v for v in before[Q]], "scales and biases are multiplied, codes are not"
    others_equal(before, after, {Q})
    after = result(context, "  - {op: prune, pattern: 'model.layers.1.*', granularity: attention_head, head_ids: [0]}\n", four)
    assert set(after[Q][:16 * 64]) == {0.0} and after[Q][16 * 64:] == before[Q][16 * 64:]
    assert all(after[O][i * 64 + j] == 0 for i in range(64) for j in range(16))
    assert all(abs(a - b) <= abs(b) * 2 ** -7 for a, b in zip(after[O][16:64], before[O][16:64])), "one rounding in bf16 at most"
    # Planes travel together.
    after = result(context, f"  - {{op: replace, pattern: '{Q}', source: surgery4, source_key: '{O}'}}\n", four)
    assert after[Q] == before[O]
    mx = context.folder / "surgery-mx"
    if not mx.exists():
        context.ok("quantize", "-m", context.tiny(), "-o", mx, "--mode", "mxfp4")
    assert answer(context, mx, "--surgery", surgery(context, "  - {op: scale, pattern: 'lm_head.weight', factor: 1.5}\n"))


def check_run_with_and_without(context):
    model = context.tiny()
    plain = answer(context, model)
    nothing = surgery(context, "  - {op: scale, pattern: '*.q_proj.weight', factor: 1}\n")
    assert answer(context, model, "--surgery", nothing) == plain
    deaf = surgery(context, "  - {op: prune, pattern: '*self_attn*', granularity: layer, layer_ids: [0, 1]}\n", "deaf.yaml")
    assert answer(context, model, "--surgery", deaf) != plain
    by_variable = context.ok("run", "-m", model, "-p", "abcdefgh", "-n", "16", "--no-chat-template", "--quiet",
                             env={"MLXCEL_SURGERY": str(deaf)}).out
    assert by_variable == answer(context, model, "--surgery", deaf)


def check_gguf(context):
    model = context.smol()
    silent = surgery(context, "  - {op: scale, pattern: 'model.norm.weight', factor: 0}\n", "silent.yaml")
    out = context.ok("run", "-m", model, "-p", "Hi", "-n", "4", "--surgery", silent, "--logit-bias", "17+50", "--ignore-eos")
    assert out.out.strip(), "with no state left, the bias decides"
    heads = surgery(context, "  - {op: prune, pattern: 'model.layers.*', granularity: attention_head, head_ids: [0]}\n", "h.yaml")
    plain = context.ok("run", "-m", model, "-p", "Hi", "-n", "8", "--quiet").out
    assert context.ok("run", "-m", model, "-p", "Hi", "-n", "8", "--quiet", "--surgery", heads).out != plain


def check_mistakes(context):
    tiny = context.tiny()
    for code, text, word in (
            (2, "  - {op: scale, pattern: 'a'}\n", "factor"),
            (2, "  - {op: melt, pattern: 'a', factor: 1}\n", "op"),
            (2, "  - {op: scale, pattern: 'a', factor: 1, colour: red}\n", "colour"),
            (2, "  - {op: scale, factor: 1}\n", "pattern"),
            (2, "  - {op: scale, pattern: 'a', factor: .nan}\n", "factor"),
            (2, "  - {op: replace, pattern: 'a.*', source: donor, source_key: 'b'}\n", "source_key"),
            (2, "  - {op: add, pattern: 'a', source: nowhere}\n", "nowhere"),
            (2, "  - {op: interpolate, pattern: 'a', source_a: donor, source_b: donor, ratio: 2}\n", "ratio"),
            (2, "  - {op: prune, pattern: 'a', granularity: layer, head_ids: [1]}\n", "head_ids"),
            (2, "  - {op: prune, pattern: 'a', granularity: layer, layer_ids: [-1]}\n", "layer_ids"),
            (1, "  - {op: scale, pattern: 'nothing.*', factor: 1}\n", "nothing.*"),
            (1, "  - {op: prune, pattern: '*', granularity: attention_head, head_ids: [99]}\n", "99"),
            (1, "  - {op: prune, pattern: 'model.norm.weight', granularity: mlp_channel, channel_ids: [0]}\n", "slices"),
            (1, f"  - {{op: replace, pattern: '{Q}', source: donor, source_key: 'model.norm.weight'}}\n", "model.norm.weight"),
            (1, f"  - {{op: replace, pattern: '{Q}', source: donor, source_key: 'absent'}}\n", "absent")):
        donor(context, "donor", 2)
        out = context.fails(code, "run", "-m", tiny, "-p", "a", "--surgery", surgery(context, text))
        assert word in out.err and out.out == "", f"{text}: {out}"
    broken = context.folder / "broken.yaml"
    for text in ("version: 2\noperations: []\n", "operations: [", "version: 1\noperations: []\n", "version: 1\nextra: 1\noperations: [{}]\n", "- 1\n"):
        broken.write_text(text)
        out = context.fails(2, "run", "-m", "acme/absent", "-p", "a", "--surgery", broken)
        assert "broken.yaml" in out.err and "line" in out.err, out
