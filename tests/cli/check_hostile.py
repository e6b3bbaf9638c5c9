"""Checkpoints that are not what they say: an error of one line that names the fault, within bounds of time and memory."""
import json
import pathlib
import resource
import shutil

import models

GOLDENS = pathlib.Path(__file__).resolve().parent.parent / "golden/data"


def golden(context, name, folder):
    """The tiny model of a golden with random weights: its folder and its tensors."""
    data = json.loads((GOLDENS / f"{name}.json").read_text())
    target = context.folder / folder
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    (target / "config.json").write_text(json.dumps(data["config"]))
    return target, models.random_tensors(data["tensors"], dtype="F32")


def check_a_missing_expert(context):
    """The parts made before the fault was met must be let go of without a crash."""
    for name, part in (("qwen3_moe-sparse", "down_proj"), ("mixtral-plain", "w2"), ("olmoe-plain", "up_proj")):
        folder, tensors = golden(context, name, "hostile-experts")
        lost = [tensor for tensor in tensors if "expert" in tensor and part in tensor][-1]
        del tensors[lost]
        models.write_safetensors(folder / "model.safetensors", tensors)
        for words in (("inspect", "-m", folder), ("doctor", folder)):
            failed = context.run(*words)
            assert failed.code == 1, f"{name} {words[0]}: {failed}"
            told = failed.out + failed.err
            assert ".weight: expected [" in told, f"{name} {words[0]}: {failed}"


def check_a_tokenizer_that_breaks_off(context):
    """Wherever the file ends, the error is one line about JSON; a part of no known kind is one line too."""
    folder = context.folder / "hostile-tokenizer"
    shutil.copytree(context.tiny(), folder)
    path = folder / "tokenizer.json"
    whole = json.loads(path.read_text())
    text = json.dumps(whole)

    def refused(content):
        path.write_text(content)
        failed = context.fails(1, "run", "-m", folder, "-p", "x", "-n", "1", "--quiet")
        assert "tokenizer.json" in failed.err and failed.err.count("\n") == 1, failed
        return failed.err

    for part in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model", "vocab"):
        at = text.index(f'"{part}": ') + len(part) + 4
        for cut in (at, at + 1, at + 12):
            assert "not valid JSON" in refused(text[:cut]), f"cut at {cut}, in {part}"
    for decoder in ([[]], {"a": 1}, "x", 7, {"type": "nothing"}, {"type": "Sequence", "decoders": [[]]}):
        refused(json.dumps({**whole, "decoder": decoder}))


def check_templates_that_grow(context):
    """Text that doubles, columns of any width: refused at a bound far below what a machine has."""
    folder = context.folder / "hostile-template"
    shutil.copytree(context.tiny(), folder)
    for source in ("{% set n = namespace(a='x') %}{% for i in range(64) %}{% set n.a = n.a + n.a %}{% endfor %}{{ n.a }}",
                   "{{ '{:99999999999}'.format(1) }}", "{{ '%99999999999d' % 1 }}", "{{ 'ab'.replace('', 'x' * 60000000) }}"):
        (folder / "chat_template.jinja").write_text(source)
        failed = context.fails(1, "run", "-m", folder, "-p", "x", "-n", "1", "--quiet")
        assert "chat template" in failed.err and failed.err.count("\n") == 1, f"{source}: {failed}"
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    plain = "MLXCEL_SANITIZE:STRING=\n" in (context.build / "CMakeCache.txt").read_text()
    assert not plain or most < 1536 * 1024, f"a program took {most >> 10} MiB"
