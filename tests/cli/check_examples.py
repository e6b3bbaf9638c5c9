"""The examples that help and manual show: each is run as it stands, over tiny models of the names it says."""
import pathlib
import re
import shlex
import shutil
import subprocess

import models
from check_embed import encoder
from check_rerank import cross_encoder, glm
from hub import Hub
from terminal import Terminal

COMMANDS = ("run", "generate", "chat", "embed", "rerank", "list", "download", "rm", "arch", "inspect", "doctor", "quantize", "split-mtp", "bench",
            "perplexity", "tune")
# Minutes of measuring; and what only another machine can do.
ELSEWHERE = ("bench --kernels", "tune --op qmm-tile")
SHORT = {"run": ["--ignore-eos", "-n", "2"], "generate": ["--ignore-eos", "-n", "2"], "bench": ["-r", "1", "--no-warmup"]}
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def examples(context, command):
    text = context.ok(command, "--help").out.split("Examples:\n")[1]
    for line in text.splitlines():
        if "mlxcel" in line:
            yield re.sub(r"(?<=\S) {3,}.*", "", line.strip())  # a remark stands apart


def prepared(context, name):
    """A folder with everything that examples name; the hub has the repositories."""
    here, long = context.folder / name, context.folder / name / "model"
    models.write_llama(long, context.scripted(), max_position_embeddings=16384)
    for copy in ("a", "b", "models/SmolLM2-135M-Instruct"):
        shutil.copytree(long, here / copy)
    shutil.copytree(encoder(context), here / "all-MiniLM-L6-v2")
    shutil.copytree(cross_encoder(context), here / "bge-reranker-base")
    shutil.copytree(cross_encoder(context), here / "store/Qwen/Qwen3-Reranker-0.6B")
    glm(here / "GLM-4.7-Flash")
    glm_files = {path.name: path.read_bytes() for path in (here / "GLM-4.7-Flash").iterdir()}
    models.write_llama_gguf(here, "model")
    (here / "prompt.txt").write_text("abc")
    for text in ("text.txt", "wiki.test.raw"):
        (here / text).write_text("the quick brown fox jumps over the lazy dog. " * 120)
    (here / "lines.txt").write_text("panda\nbear\n")
    own = {path.name: path.read_bytes() for path in context.tiny().iterdir()}
    gguf = {"m.Q4_K_M.gguf": (here / "model.gguf").read_bytes(), "m.Q8_0.gguf": b"x" * 2000}
    return here, {"owner/name": own, "mlx-community/SmolLM2-135M-Instruct": own, "owner/name-GGUF": gguf, "zai-org/GLM-4.7-Flash": glm_files}


def variables(here, hub):
    return {"HF_ENDPOINT": hub.url, "MLXCEL_MODELS_DIR": str(here / "store")}


def run_example(context, here, env, example):
    before, _, line = example.rpartition("| ")
    assert before in ("", "git diff "), example
    words = shlex.split(line)
    while "=" in words[0]:
        words.pop(0)  # a mirror: here it is the hub of this test
    assert words[0] == "mlxcel" and words[1] in COMMANDS, example
    command = words[1]
    words = words[1:] + [word for word in SHORT.get(command, []) if "-j" not in words or word != "--ignore-eos"]
    if "model.gguf" in words and command != "quantize":  # ours has no tokenizer
        words[words.index("model.gguf")] = context.smol() if command == "generate" else "./model"
    if command == "rm" and "--yes" not in words:
        words.append("--yes")
    if command == "chat":
        with Terminal([context.mlxcel, *words], dict(context.environment, **env), cwd=here) as terminal:
            terminal.expect(">>> ")
            terminal.line("/bye")
            assert terminal.wait() == 0, (example, terminal.text())
        return
    done = context.run(*words, cwd=here, env=env, stdin=b"abc")
    # What a doctor finds in a model of random weights is its affair.
    assert done.code == 0 or command == "doctor" and done.code == 1 and done.out, (example, done)
    assert done.out or command == "download", (example, done)


def check_every_example_of_help_runs(context):
    here, repositories = prepared(context, "examples")
    ran = 0
    with Hub(repositories) as hub:
        hub.revisions = ("v1.0",)
        for command in COMMANDS:
            for example in examples(context, command):
                if not any(each in example for each in ELSEWHERE):
                    run_example(context, here, variables(here, hub), example)
                    ran += 1
    assert ran >= 30, ran


def check_every_example_of_the_documents_runs(context):
    here, repositories = prepared(context, "document-examples")
    with Hub(repositories) as hub:
        for name in ("command-line.md", "quantising.md"):
            for block in re.findall(r"^```\n(.*?)^```", (DOCS / name).read_text(), re.M | re.S):
                for line in block.splitlines():
                    if not line.startswith("python "):  # mlx-lm's own, which no test here has
                        run_example(context, here, variables(here, hub), line)


def check_the_examples_of_the_whole_are_commands_of_it(context):
    text = context.ok("--help").out
    named = re.findall(r"mlxcel ([a-z-]+)", text.split("Examples")[1])
    assert len(named) >= 4 and set(named) <= {*COMMANDS, "serve"}, named
    for command in (*COMMANDS, "serve"):
        page = context.ok("--man-page", command).out.replace("\\-", "-").replace("\\", "")
        for example in examples(context, command):
            assert example.split()[-1].strip("'\"") in page, f"the manual of {command} leaves out: {example}"


def check_help_fits_its_page(context):
    for command in (*COMMANDS, "serve", ""):
        words = [context.mlxcel, *([command] if command else []), "--help"]
        page = subprocess.run(words, env=context.environment, capture_output=True, text=True).stdout
        # A word that is longer than its column stands alone.
        wide = [line for line in page.splitlines() if len(line) > 100 and " " in line.strip()]
        assert not wide, (command, wide)
        with Terminal(words, context.environment, columns=80) as terminal:
            assert terminal.wait() == 0
            rows = terminal.text().split("Examples")[0].splitlines()
            long = [line for line in rows if len(line) > 80 and line.startswith(" " * 20) and " " in line.strip()]
            assert not long, (command, long)
