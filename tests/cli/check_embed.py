"""`embed` on a tiny encoder: cli.md 5, flag by flag."""
import json
import shutil

import models
from check_rerank import cross_encoder

TEXTS = ["panda", "a bear of china", "the wheel of a car"]


def encoder(context):
    """The cross-encoder's layers without its classifier."""
    folder, source = context.folder / "encoder", cross_encoder(context)
    if folder.exists():
        return folder
    shutil.copytree(source, folder)
    config = json.loads((source / "config.json").read_text())
    for name in ("id2label", "label2id"):
        config.pop(name)
    (folder / "config.json").write_text(json.dumps(dict(config, architectures=["BertModel"])))
    tensors = models.read_safetensors(source / "model.safetensors")
    models.write_safetensors(folder / "model.safetensors",
                             {name.removeprefix("bert."): entry for name, entry in tensors.items() if name.startswith("bert.")})
    return folder


def check_vectors_and_their_matrix(context):
    model = encoder(context)
    words = ["embed", "-m", model, *(word for text in TEXTS for word in ("-p", text))]
    found = context.json(*words, "--json")
    assert list(found) == ["embeddings", "shapes", "prompt_tokens", "similarity"] and found["shapes"] == [[32]] * 3, found["shapes"]
    assert found["prompt_tokens"] == sum(2 + len(text.split()) for text in TEXTS)
    for i, vector in enumerate(found["embeddings"]):
        assert abs(sum(x * x for x in vector) - 1) < 1e-4 and abs(found["similarity"][i][i] - 1) < 1e-4
    for more in (["--batch-size", "1"], ["--batch-size", "2"], ["--threads", "1"]):
        assert context.json(*words, "--json", *more)["embeddings"] == found["embeddings"], "a vector does not depend on its neighbours"
    lines = context.ok(*words).out.splitlines()
    assert [json.loads(line) for line in lines[:3]] == found["embeddings"] or all(
        abs(a - b) < 1e-6 for line, vector in zip(lines, found["embeddings"]) for a, b in zip(json.loads(line), vector)), lines[0]
    assert lines[3] == "" and lines[4] == "cosine similarity" and len(lines) == 8, lines
    assert [round(x, 4) for x in found["similarity"][0]] == [float(x) for x in lines[5].split()], lines
    alone = context.ok("embed", "-m", model, "-p", TEXTS[0]).out
    assert alone.splitlines() == lines[:1], "one vector has no matrix"


def check_inputs(context):
    model = encoder(context)
    want = context.json("embed", "-m", model, *(word for text in TEXTS for word in ("-p", text)), "--json")["embeddings"]
    file = context.folder / "lines.txt"
    for text in ("\n".join(TEXTS), "\n".join(TEXTS) + "\n", "\r\n".join(TEXTS) + "\r\n"):
        file.write_bytes(text.encode())
        assert context.json("embed", "-m", model, "-f", file, "--json")["embeddings"] == want, repr(text)
    assert context.json("embed", "-m", model, "-p", TEXTS[0], "--file", file, "--json")["embeddings"] == [want[0], *want]
    told = context.json("embed", "-m", model, "-p", "bear of china", "--instruction", "a ", "--json")
    assert told["embeddings"] == want[1:2], "the instruction stands before the text"
    long = context.fails(1, "embed", "-m", model, "-p", TEXTS[0], "-p", TEXTS[2], "--max-length", "5")
    assert "text 2" in long.err and "7 tokens" in long.err and long.out == "", long
    assert context.json("embed", "-m", model, "-p", TEXTS[2], "--max-length", "7", "--json")["embeddings"] == want[2:]


def check_forms_of_vectors(context):
    model = encoder(context)

    def one(*flags):
        return context.json("embed", "-m", model, "-p", TEXTS[1], "--json", *flags)["embeddings"][0]

    pooled = {pooling: one("--pooling", pooling) for pooling in ("mean", "cls", "last")}
    assert len({tuple(v) for v in pooled.values()}) == 3 and one() in pooled.values()
    whole = one("--embd-normalize", "-1")
    for flags, size in ((["--embd-normalize", "1"], lambda v: sum(map(abs, v))), (["--embd-normalize", "2"], lambda v: sum(x * x for x in v) ** 0.5),
                        (["--embd-normalize", "3"], lambda v: sum(abs(x) ** 3 for x in v) ** (1 / 3)),
                        (["--embd-normalize", "0"], lambda v: max(map(abs, v)) / 32760)):
        vector = one(*flags)
        assert abs(size(vector) - 1) < 1e-3, (flags, size(vector))
        assert all(abs(a / b - vector[0] / whole[0]) < 1e-3 * abs(vector[0] / whole[0]) for a, b in zip(vector, whole) if abs(b) > 1e-3), flags
    short = one("--dimensions", "8")
    assert len(short) == 8 and abs(sum(x * x for x in short) - 1) < 1e-4
    assert one("--dimensions", "8", "--embd-normalize", "-1") == whole[:8] and one("--dimensions", "0") == one()


def check_mistakes(context):
    model = encoder(context)
    for words in ([], ["-p", "a", "--dimensions", "-1"], ["-p", "a", "--batch-size", "-1"], ["-p", "a", "--max-length", "-1"],
                  ["-p", "a", "--pooling", "max"], ["-p", "a", "--embd-normalize", "-2"], ["-f", "/nowhere"]):
        assert context.fails(2, "embed", "-m", model, *words).out == "", words
    context.fails(2, "embed", "-p", "a")
    chat = context.fails(1, "run", "-m", model, "-p", "a")
    assert "mlxcel embed" in chat.err and chat.out == "", chat
