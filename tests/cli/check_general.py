"""cli.md 1, 2, 4, 5, 7, 10, 12: flags, output, exit codes of the commands that answer and show."""
import json
import os
import re
import signal
import subprocess
import time

VERSION = re.compile(r"^mlxcel \d+\.\d+\.\d+ \(mlx \d+\.\d+\.\d+, backends: cpu(,metal)?(,cuda)?\)$")
COMMANDS = ["run", "generate", "chat", "embed", "serve", "list", "download", "rm", "arch", "inspect", "doctor", "quantize",
            "bench", "perplexity"]


def check_version_and_help(context):
    for program in (context.mlxcel, context.server):
        assert VERSION.match(context.ok("--version", program=program).out.strip())
        assert "usage" in context.ok("--help", program=program).out.lower()
    text = context.ok("--help").out
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", text, re.M), f"{command} is not in the help"
        own = context.ok(command, "--help")
        assert own.out and not own.err and "Examples" in own.out, f"{command} --help: {own}"
        assert context.ok("help", command).out == own.out
    assert context.ok("-h").out == text
    assert "usage: mlxcel run [OPTIONS] [MODEL]" in context.ok("run", "--help").out
    assert context.run().code == 2


def check_usage_errors(context):
    for words in (["nonsense"], ["run", "--nonsense"], ["run", "--top-k", "x", "-p", "a"], ["generate", "-p", "a"],
                  ["chat"], ["run", "-n", "-2", "-p", "a"], ["run", "--temp", "-1", "-p", "a"], ["bench", "-m", "x/y", "-r", "0"],
                  ["embed", "-m", "x/y"], ["perplexity", "-m", "x/y"], ["quantize", "-m", "x/y"], ["list", "--sort", "age"],
                  ["list", "-v", "-q"], ["list", "--json", "-q"], ["run", "-m", "http://a/b", "-p", "x"],
                  ["run", "-m", "a/../b", "-p", "x"], ["run", "-m", "a/b/c", "-p", "x"], ["run", "-c", "-1", "-p", "x"],
                  ["run", "--rope-scale", "2", "--rope-freq-scale", "0.4", "-p", "x"], ["run", "--rope-scale", "0", "-p", "x"],
                  ["run", "--chat-template-kwargs", "[1]", "-p", "x"], ["run", "--surgery", "/nowhere.yaml", "-p", "x"],
                  ["run", "-p", "x", "--no-chat-template", "--system", "s"], ["run", "-f", "/nowhere", "-p", "x"],
                  ["quantize", "-m", "x/y", "-o", "z", "--bits", "7"], ["quantize", "-m", "x/y", "-o", "z", "--mode", "mxfp4", "--bits", "8"],
                  ["quantize", "-m", "x/y", "-o", "z", "--recipe", "mixed_3_6", "--bits", "4"],
                  ["quantize", "-m", "x/y", "-o", "z", "--override", "a=b"]):
        result = context.fails(2, *words)
        assert result.out == "", f"{words}: stdout stays empty, {result}"


def check_missing_model_says_where_it_looked(context):
    result = context.fails(1, "run", "-m", "acme/absent", "-p", "x", "--offline")
    assert "acme/absent" in result.err and str(context.store) in result.err and result.out == "", result
    empty = context.folder / "empty-folder"
    empty.mkdir(exist_ok=True)
    result = context.fails(1, "run", "-m", empty, "-p", "x")
    assert "config.json" in result.err


def check_broken_folder_is_told_by_its_configuration(context):
    folder = context.folder / "broken"
    folder.mkdir(exist_ok=True)
    sound = json.loads((context.tiny() / "config.json").read_text())
    for config, word in ((json.dumps(dict(sound, hidden_size="wide")), "hidden_size"), ('{"model_type": "no_such"}', "no_such"),
                         ("{", "config.json")):
        (folder / "config.json").write_text(config)
        (folder / "model.safetensors").write_bytes((context.tiny() / "model.safetensors").read_bytes())
        result = context.fails(1, "run", "-m", folder, "-p", "x")
        assert word in result.err and "tokenizer" not in result.err and result.out == "", result
    # With a sound configuration the tokenizer is what is missing.
    (folder / "config.json").write_text((context.tiny() / "config.json").read_text())
    result = context.fails(1, "run", "-m", folder, "-p", "x")
    assert "tokenizer" in result.err, result


def check_text_and_nothing_else_on_stdout(context):
    model = context.scripted()
    result = context.ok("run", "-m", model, "-p", "[[stop]]")
    assert result.out.endswith("\n") and not result.out.endswith("\n\n"), repr(result.out)
    lines = result.err.strip().splitlines()
    assert re.match(r"mlxcel \S+ \| .+ \(cpu\) \| scripted \| .+ \| KV .+: applied to \d+ of \d+ layers \| ctx \d+", lines[0]), lines
    assert re.match(r"\[Generated \d+ tokens in [\d.]+ s, [\d.]+ tok/s \| prompt \d+ tokens, \d+ cached, [\d.]+ tok/s \| "
                    r"finish: \w+\]", lines[-1]), lines
    quiet = context.ok("run", "-m", model, "-p", "[[stop]]", "--quiet")
    assert quiet.out == result.out and quiet.err == "", quiet
    # The three ways in are byte-identical.
    assert context.ok("generate", "-m", model, "-p", "[[stop]]").out == result.out
    assert context.ok("gen", "--model=" + str(model), "--prompt", "[[stop]]").out == result.out
    assert context.ok("run", model, "-p", "[[stop]]").out == result.out
    # stdin, -p -, -f; a file comes before the prompt.
    assert context.ok("run", "-m", model, stdin=b"[[stop]]").out == result.out
    assert context.ok("run", "-m", model, "-p", "-", stdin=b"[[stop]]").out == result.out
    prompt = context.folder / "prompt.txt"
    prompt.write_text("before")
    assert context.ok("run", "-m", model, "-f", prompt, "-p", "[[stop]]").out == result.out


def check_json_output(context):
    model = context.scripted()
    text = context.ok("run", "-m", model, "-p", "[[stop]]").out
    found = context.json("run", "-m", model, "-p", "[[stop]]", "--json", "-s", "7")
    assert found["text"] == text.rstrip("\n") and found["finish_reason"] == "stop" and found["seed"] == 7, found
    assert set(found) == {"text", "reasoning", "finish_reason", "usage", "timings", "seed"}, found
    assert found["usage"]["total_tokens"] == found["usage"]["prompt_tokens"] + found["usage"]["completion_tokens"]
    assert context.fails(2, "chat", "-m", model, "--json").out == ""


def check_limits(context):
    model = context.scripted()
    none = context.ok("run", "-m", model, "-p", "[[loop]]", "-n", "0")
    assert none.out.strip() == "" and "finish: length" in none.err, none
    three = context.json("run", "-m", model, "-p", "[[loop]]", "-n", "3", "--json")
    assert three["finish_reason"] == "length" and three["usage"]["completion_tokens"] == 3, three
    long = context.ok("run", "-m", model, "-p", "[[loop]]", "-c", "100")
    assert "finish: length" in long.err, "a full window ends the answer"
    too_long = context.fails(1, "run", "-m", model, "-p", "x" * 5000, "-c", "100")
    assert "100" in too_long.err, too_long


def check_stop_strings(context):
    model = context.scripted()
    whole = context.json("run", "-m", model, "-p", "[[stop]]", "--json")["text"]
    cut = whole[len(whole) // 2:]
    found = context.json("run", "-m", model, "-p", "[[stop]]", "--json", "-r", cut)
    assert found["text"] == whole[:len(whole) - len(cut)] and found["finish_reason"] == "stop", found


def check_token_ids_are_printed_on_request(context):
    result = context.ok("run", "-m", context.scripted(), "-p", "[[stop]]", env={"MLXCEL_PRINT_TOKEN_IDS": "0"})
    assert re.search(r"^prompt ids: [\d ]+$", result.err, re.M) and re.search(r"^generated ids: [\d ]+$", result.err, re.M), result


def check_template_flags(context):
    model = context.scripted()
    want = context.ok("run", "-m", model, "-p", "[[stop]]").out
    template = "{% if shout %}[[loop]]{% else %}{{ messages[-1]['content'] }}{% endif %}"
    assert context.ok("run", "-m", model, "-p", "[[stop]]", "--chat-template", template).out == want
    file = context.folder / "template.jinja"
    file.write_text(template)
    other = context.ok("run", "-m", model, "-p", "[[stop]]", "-n", "5", "--chat-template-file", file,
                       "--chat-template-kwargs", '{"shout": true}').out
    assert other != want
    # H19: a template that refuses says so itself.
    refused = context.fails(1, "run", "-m", model, "-p", "x", "--chat-template", "{{ raise_exception('Roles must alternate.') }}")
    assert "Roles must alternate." in refused.err and refused.out == "", refused
    assert context.ok("run", "-m", model, "-p", "[[stop]]", "-sys", "be brief", "--no-warmup").code == 0


def check_spellings(context):
    model = context.tiny()
    want = context.ok("run", "-m", model, "-p", "abc", "-n", "4").out
    for words in (["--max-tokens=4"], ["--n-predict", "4"], ["-n4"]):
        assert context.ok("run", "-m", model, "-p", "abc", *words).out == want, words
    assert context.ok("run", "-p", "abc", "-n", "9", "-n", "4", "--", model).out == want, "the last value wins"
    same = [context.ok("run", "-m", model, "-p", "abc", "-n", "8", "--temp", "1", "-s", "5").out for _ in range(2)]
    assert same[0] == same[1]


def check_rope_flags(context):
    model = context.tiny()
    plain = context.ok("run", "-m", model, "-p", "abcdefgh", "-n", "12", "--no-chat-template").out
    same = context.ok("run", "-m", model, "-p", "abcdefgh", "-n", "12", "--no-chat-template", "--rope-freq-base", "10000").out
    assert same == plain, "the model's own base changes nothing"
    far = [context.ok("run", "-m", model, "-p", "abcdefgh", "-n", "12", "--no-chat-template", *flags).out
           for flags in (["--rope-freq-base", "100"], ["--rope-scaling", "linear", "--rope-scale", "8"],
                         ["--rope-freq-scale", "0.125"])]
    assert far[0] != plain and far[1] != plain, far
    assert far[1] == far[2], "a frequency scale is one over a scale"
    context.ok("run", "-m", model, "-p", "abc", "-n", "2", "--rope-scaling", "yarn", "--rope-scale", "4", "--yarn-orig-ctx", "512")
    # Without extrapolation YaRN is plain interpolation.
    mixed = [context.ok("run", "-m", model, "-p", "abcdefgh", "-n", "12", "--no-chat-template", "--rope-scaling", "yarn",
                        "--rope-scale", "8", "--yarn-ext-factor", share).out for share in ("0", "1", "-1")]
    assert mixed[0] == far[1] != mixed[1] == mixed[2], (far, mixed)
    context.fails(2, "run", "-m", model, "-p", "x", "--yarn-ext-factor", "1.5")
    wide = context.ok("run", "-m", model, "-p", "abc", "-n", "2", "--rope-scaling", "yarn", "--rope-scale", "4")
    assert "ctx 2048" in wide.err, wide.err


def check_interrupted_answer_dies_by_the_signal(context):
    process = subprocess.Popen([context.mlxcel, "run", "-m", context.scripted(), "-p", "[[loop]]"], env=context.environment,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT, process.returncode


def check_closed_pipe(context):
    process = subprocess.Popen([context.mlxcel, "run", "-m", context.scripted(), "-p", "[[loop]]", "-n", "2000"],
                               env=context.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(5)
    process.stdout.close()
    error = process.stderr.read().decode()
    assert process.wait(timeout=60) == 1 and "stdout" in error, (process.returncode, error)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([context.mlxcel, "run", "-m", context.scripted(), "-p", "[[loop]]"], stdout=writer, stderr=subprocess.PIPE,
                          env=dict(context.environment, MLXCEL_PRINT_TOKEN_IDS="1"))
    os.close(writer)
    written = len(re.search(rb"^generated ids: (.*)$", done.stderr, re.M).group(1).split())
    assert done.returncode == 1 and written < 200, f"nobody reads: the answer ends at once, not after {written} tokens"
    # What lay in a buffer until the end counts as well.
    for words in (["arch"], ["list"], ["run", "--help"], ["--help"], ["--version"], ["run", "-m", context.tiny(), "-p", "abc", "-n", "2"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([context.mlxcel, *map(str, words)], env=context.environment, stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 1 and b"stdout: " in done.stderr, (words, done)


def check_messages_that_nobody_takes(context):
    """A stderr that is full or closed ends nothing; descriptors that were closed are no model's file."""
    words = ["run", "-m", context.tiny(), "-p", "abc", "-n", "2"]
    want = context.ok(*words).out.encode()

    def shell(redirections, *words):
        line = " ".join(f"'{word}'" for word in (context.mlxcel, *words))
        return subprocess.run(["sh", "-c", f"{line} {redirections}"], env=context.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)

    for redirections in ("2>/dev/full", "2>&-", "<&- 2>&-"):
        done = shell(redirections, *words)
        assert done.returncode == 0 and done.stdout == want, (redirections, done)
        for wrong in (["run", "--nonsense"], ["nonsense"], ["run", "-m", "a/b", "-p", "x", "--offline"]):
            done = shell(redirections, *wrong)
            assert done.returncode == (1 if "-m" in wrong else 2) and done.stdout == b"", (redirections, wrong, done)
    closed = shell(">&-", *words)
    assert closed.returncode == 1 and b"stdout" in closed.stderr, closed
    target = context.folder / "closed-streams"
    done = shell("<&- >&- 2>&-", "quantize", "-m", context.tiny(), "-o", target, "--group-size", "32")
    plain = context.folder / "open-streams"
    context.ok("quantize", "-m", context.tiny(), "-o", plain, "--group-size", "32")
    assert done.returncode == 1, "its table could not be printed"
    for file in plain.iterdir():
        assert (target / file.name).read_bytes() == file.read_bytes(), file.name


def check_list(context):
    store = context.folder / "liststore"
    env = {"MLXCEL_MODELS_DIR": str(store)}
    empty = context.ok("list", env=env)
    assert "mlxcel arch" in empty.out
    assert context.json("list", "--json", env=env) == []
    for name, size in (("a/small", 10), ("b/large", 5000)):
        (store / name).mkdir(parents=True)
        (store / name / "config.json").write_bytes(b"x" * size)
    (store / "c/quants").mkdir(parents=True)
    for quant, size in (("Q4_K_M", 300), ("Q8_0", 900)):
        (store / f"c/quants/m.{quant}.gguf").write_bytes(b"x" * size)
    os.utime(store / "a/small/config.json", (time.time() - 2 * 86400 - 60,) * 2)
    assert context.ok("list", "-q", env=env).out.split() == ["a/small", "b/large", "c/quants:Q4_K_M", "c/quants:Q8_0"]
    assert context.ok("ls", "-q", "--sort", "size", env=env).out.split()[0] == "b/large"
    assert context.ok("list", "-q", "--sort", "modified", env=env).out.split()[-1] == "a/small"
    table = context.ok("list", env=env).out
    assert "2 days ago" in table and "NAME" in table and "\033" not in table
    entry = context.json("list", "--json", env=env)[0]
    assert entry["repo_id"] == "a/small" and entry["size_bytes"] == 10 and isinstance(entry["modified"], int), entry
    assert str(store / "a/small") in context.ok("list", "-v", env=env).out
    assert context.ok("list", "-q", "--models-dir", store).out.split()[0] == "a/small"


def check_arch(context):
    catalogue = context.json("arch", "--json")
    families = {f["id"]: f for f in catalogue["families"]}
    assert "llama" in families["llama"]["keys"] and families["bert"]["kind"] == "encoder"
    for key in ("id", "keys", "kind", "runtimes", "input_modalities", "output_modalities", "backends", "tensor_parallel",
                "pipeline_parallel", "drafters", "kv_modes", "gguf"):
        assert key in families["llama"], key
    assert {"draft", "prompt-lookup"} <= set(families["llama"]["drafters"]) and families["bert"]["drafters"] == []
    assert "internal-mtp" in families["deepseek_v3"]["drafters"]
    assert families["llama"]["kv_modes"] == ["fp16", "int8", "turbo4-asym", "turbo4-delegated", "turbo4", "turbo3-asym"]
    assert families["deepseek_v3"]["kv_modes"] == ["fp16", "int8", "turbo4"]
    assert families["mamba2"]["kv_modes"] == ["fp16"] and families["bert"]["kv_modes"] == []
    assert "Embedding" in context.ok("supported").out


INSPECT_KEYS = ["mlxcel_version", "model_path", "model_type", "family", "max_tokens", "batch", "kv_cache_mode", "quant",
                "weights_bytes", "kv_bytes_total", "activation_bytes", "backend_inflight_bytes", "headroom_bytes",
                "budget_bytes", "total_bytes", "fits", "kv_bytes_per_token_fp16", "kv_bytes_per_token_int8",
                "kv_bytes_per_token_turbo4", "paged_slot_overhead_bytes"]


def check_inspect(context):
    model = context.tiny()
    found = context.json("inspect", "-m", model, "--json", "-n", "512", "--batch", "2")
    assert list(found) == INSPECT_KEYS, list(found)
    # Two layers, two KV heads of 16, keys and values, two bytes.
    assert found["kv_bytes_per_token_fp16"] == 2 * 2 * (16 + 16) * 2 and found["kv_bytes_total"] == 2 * 512 * 256
    # Of two layers one is coded; heads of 16 are too narrow for turbo4 to gain on int8.
    for mode in ("int8", "turbo4"):
        assert 128 < found[f"kv_bytes_per_token_{mode}"] < found["kv_bytes_per_token_fp16"], found
    small = context.json("inspect", "-m", model, "--json", "-n", "512", "--batch", "2", "--kv-cache-mode", "int8")
    assert small["kv_bytes_total"] == 2 * 512 * found["kv_bytes_per_token_int8"] < found["kv_bytes_total"], small
    total = found["weights_bytes"] + found["kv_bytes_total"] + found["headroom_bytes"] + found["activation_bytes"] + \
        found["backend_inflight_bytes"]
    assert found["total_bytes"] == total and found["fits"] is True
    small = context.json("inspect", "-m", model, "--json", env={"MLXCEL_MEMORY_LIMIT": "1K"})
    assert small["fits"] is False and small["budget_bytes"] == 1024
    text = context.ok("inspect", "-m", model).out
    for word in ("weights", "KV cache", "activation", "headroom", "in flight", "total", "available"):
        assert re.search(rf"^{word} ", text, re.M), word
    assert "does not fit" in context.ok("inspect", "-m", model, env={"MLXCEL_MEMORY_LIMIT": "1K"}).out
    plain = context.json("inspect", "-m", model, "--json", env={"MLXCEL_HEADROOM_FACTOR": "1.0"})
    assert plain["headroom_bytes"] == 0


def check_bounded_window(context):
    model = context.tiny()
    for words, window in ((["--max-kv-size", "64"], 64), (["--max-kv-size", "64", "-c", "100"], 64), (["--max-kv-size", "200", "-c", "100"], 100),
                          (["--max-kv-size", "100000"], 512), (["--max-kv-size", "0"], 512)):
        out = context.ok("run", "-m", model, "-p", "abc", "--ignore-eos", *words)
        assert f"| ctx {window}\n" in out.err and "finish: length" in out.err, (words, out.err)
    estimates = [context.ok("run", "-m", model, "-p", "x", "-n", "1", "--estimate-memory", *words).err for words in ([], ["--max-kv-size", "64"])]
    assert "1 x 512 tokens" in estimates[0] and "1 x 64 tokens" in estimates[1], estimates
    assert "--max-kv-size" in context.fails(2, "run", "-m", "acme/absent", "-p", "x", "--max-kv-size", "-1").err


def check_terminated_process_dies_by_the_signal(context):
    process = subprocess.Popen([context.mlxcel, "run", "-m", context.scripted(), "-p", "[[loop]]"], env=context.environment,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(5)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM, process.returncode


def check_memory_preflight(context):
    model = context.tiny()
    over = context.fails(1, "run", "-m", model, "-p", "x", "-n", "1", "--estimate-memory", env={"MLXCEL_HEADROOM_FACTOR": "1000000"})
    assert "--force" in over.err and over.out == "", over
    context.ok("run", "-m", model, "-p", "x", "-n", "1", "--estimate-memory", "--force", env={"MLXCEL_HEADROOM_FACTOR": "1000000"})
    advice = context.ok("run", "-m", model, "--recommend-quant")
    assert "KV mode" in advice.out and "weights" in advice.out


def check_bench(context):
    model = context.tiny()
    rows = context.json("bench", "-m", model, "-p", "16", "-n", "4", "-pg", "8,4", "-b", "1,2", "-d", "0,16", "-r", "2", "-o", "json")
    assert len(rows) == 3 * 2 * 2, len(rows)
    for key in ("build", "mlx_version", "device", "backend", "model", "model_size", "model_n_params", "kv_cache_mode", "batch",
                "n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns",
                "samples_ts", "peak_bytes"):
        assert key in rows[0], key
    assert len(rows[0]["samples_ns"]) == 2
    drafted = context.json("bench", "-m", model, "-p", "0", "-n", "32", "-r", "1", "-o", "json", "--draft-model", model)
    assert drafted[0]["draft_n"] >= drafted[0]["draft_n_accepted"] > 0 and 0 < drafted[0]["acceptance_rate"] <= 1, drafted
    assert "draft_n" not in rows[0]
    context.fails(2, "bench", "-m", model, "-n", "4", "--kv-cache-mode", "int7")
    table = context.ok("bench", "-m", model, "-p", "16", "-n", "4", "-r", "1").out.splitlines()
    assert [c.strip() for c in table[0].strip("|").split("|")] == ["model", "size", "params", "backend", "batch", "kv", "test", "t/s"]
    assert "pp16" in table[2] and "tg4" in table[3] and "±" in table[2], table
    assert context.ok("bench", "-m", model, "-p", "16", "-n", "0", "-r", "1", "-o", "csv").out.count("\n") == 2
    assert len(context.ok("bench", "-m", f"{model},{model}", "-p", "16", "-n", "0", "-r", "1", "-o", "jsonl").out.splitlines()) == 2


def check_perplexity(context):
    text = context.folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 12)
    model = context.tiny()
    found = context.json("perplexity", "-m", model, "-f", text, "-c", "64", "--json")
    assert set(found) == {"ppl", "stderr", "nll", "tokens", "chunks", "ctx", "stride", "model"}, found
    assert found["tokens"] == found["chunks"] * 31, "the second half of each window but for its last token"
    several = context.json("perplexity", "-m", model, "-f", text, "-c", "64", "-b", "4", "--json")
    assert several["nll"] == found["nll"], "windows do not depend on their neighbours"
    strided = context.json("perplexity", "-m", model, "-f", text, "-c", "64", "--stride", "16", "--json")
    assert strided["tokens"] == strided["chunks"] * 16, strided
    out = context.ok("perplexity", "-m", model, "-f", text, "-c", "64", "--chunks", "2")
    assert re.match(r"^Final estimate: PPL = [\d.]+ \+/- [\d.]+\n$", out.out) and out.err.count("/2]") == 2, out
    text.write_text("too short")
    short = context.fails(1, "perplexity", "-m", model, "-f", text, "-c", "512", "--json")
    assert "tokens" in short.err and short.out == "", short
    context.fails(1, "perplexity", "-m", model, "-f", text, "-c", "100000")


def check_environment(context):
    model = context.tiny()
    words = ["run", "-m", model, "-p", "abc", "-n", "2"]
    want = context.ok(*words).out
    for device in ("gpu", "cuda", "metal", "toaster"):
        noted = context.ok(*words, env={"MLXCEL_DEVICE": device})
        assert f"MLXCEL_DEVICE={device}" in noted.err and noted.out == want, noted
    assert "MLXCEL_DEVICE" not in context.ok(*words, env={"MLXCEL_DEVICE": "cpu"}).err
    for name, value in (("MLXCEL_CPU_ISA", "mmx"), ("MLXCEL_KERNELS", "magic"), ("MLXCEL_MEMORY_LIMIT", "much"), ("MLXCEL_CACHE_LIMIT", "-1"),
                        ("MLXCEL_KV_SKIP_LAST_LAYER", "perhaps"), ("MLXCEL_KV_BOUNDARY_V_LAYERS", "-1")):
        bad = context.fails(2, *words, env={name: value})
        assert name in bad.err and value in bad.err and bad.out == "", bad
    for env in ({"MLXCEL_CACHE_LIMIT": " 64mb "}, {"MLXCEL_CACHE_LIMIT": "none"}, {"MLXCEL_MEMORY_LIMIT": "none"}, {"MLXCEL_MEMORY_LIMIT": "0"}, {"MLXCEL_MEMORY_LIMIT": "64g"}, {"MLXCEL_CPU_ISA": "generic"}, {"MLXCEL_KERNELS": "reference"}):
        context.ok(*words, env=env)


def check_kv_modes(context):
    model = context.tiny()
    words = ["run", "-m", model, "-p", "abcdef", "-n", "8", "--ignore-eos"]
    plain = context.ok(*words)
    for flags, label in ((["--kv-cache-mode", "int8"], "int8"), (["--kv-bits", "8"], "int8"), (["-ctk", "q8_0", "-ctv", "q8_0"], "int8"),
                         (["--kv-cache-mode", "turbo4"], "turbo4"), (["--kv-bits", "4", "--turbo-boundary-v", "0"], "turbo4-asym")):
        out = context.ok(*words, *flags)
        assert f"KV {label}: applied to" in out.err, (flags, out.err)
    # With as many boundary layers as there are, nothing is coded; the last layer alone keeps 16 bits by default.
    assert "applied to 1 of 2" in context.ok(*words, "--kv-cache-mode", "int8").err
    assert "applied to 2 of 2" in context.ok(*words, "--kv-cache-mode", "int8", "--no-kv-skip-last-layer").err
    assert context.ok(*words, "--kv-bits", "16").out == plain.out
    wrong = context.fails(2, *words, "--kv-cache-mode", "int7").err
    assert wrong.count("kv-cache-mode") == 1 and "--kv-cache-mode int7: expected fp16" in wrong, wrong
    for flags in (["--kv-cache-mode", "int7"], ["--kv-bits", "5"], ["-ctk", "int8", "-ctv", "turbo4"], ["-ctk", "q5_1"]):
        context.fails(2, *words, *flags)


def check_prompt_cache_on_disk(context):
    model = context.tiny()
    folder = context.folder / "prompts"
    words = ["run", "-m", model, "-p", "abcdefgh" * 16, "-n", "4", "--ignore-eos", "--json", "--prompt-cache-dir", folder]
    first, second = context.json(*words), context.json(*words)
    assert first["usage"]["cached_tokens"] == 0 and second["usage"]["cached_tokens"] >= 64, (first, second)
    assert first["text"] == second["text"]
    # H4 and features.md 3.2: other positions or other weights are another model.
    other = context.json(*words, "--rope-freq-base", "100")
    assert other["usage"]["cached_tokens"] == 0, other
    surgery = context.folder / "cache-surgery.yaml"
    surgery.write_text("version: 1\noperations:\n  - op: scale\n    pattern: model.layers.0.mlp.down_proj.weight\n    factor: 0.5\n")
    edited = context.json(*words, "--surgery", surgery)
    assert edited["usage"]["cached_tokens"] == 0, edited
    assert context.json(*words)["usage"]["cached_tokens"] >= 64


def check_draft_model(context):
    model = context.tiny()
    words = ["run", "-m", model, "-p", "abcdef", "-n", "24", "--ignore-eos"]
    plain = context.ok(*words).out
    always = {"MLXCEL_MTP_ADAPTIVE": "off"}  # whether or not it pays here
    drafted = context.ok(*words, "--draft-model", model, "--draft-max", "3", env=always)
    text, _, line = drafted.out.rstrip("\n").rpartition("\n")
    assert text + "\n" == plain and line.startswith("[Speculative acceptance] rule="), drafted
    from check_answers import acceptance_of
    figures = acceptance_of(line)
    assert set(figures["places"]) == {1.0} and len(figures["places"]) <= 3, "a drafter equal to its target is always right"
    assert figures["positions_tested"] == figures["accepted"] == figures["proposed"], line
    # One that is another model is right now and then at most.
    import models
    other = context.folder / "other-drafter"
    if not other.exists():
        models.write_llama(other, context.scripted(), seed=7)
    drafted = context.ok(*words, "-md", other, "--draft-max", "3", env=always).out.rstrip("\n").rpartition("\n")
    assert drafted[0] + "\n" == plain and acceptance_of(drafted[2])["acceptance_rate"] < 1, drafted
    assert context.ok(*words, "-md", model, "--draft-kind", "none").out == plain
    for flags in (["--draft-kind", "draft"], ["--draft-kind", "dflash"], ["--draft-kind", "mtp"], ["--draft-kind", "prompt-lookup", "-md", model],
                  ["--draft-block-size", "1"], ["--draft-max", "65"]):
        context.fails(2, *words, *flags)
    assert context.fails(1, *words, "-md", model, "--draft-kind", "dflash").out == "", "a llama is no block drafter"
    missing = context.fails(1, *words, "-md", "acme/absent", "--offline")
    assert "acme/absent" in missing.err, missing


def write_adapter(context, scale=1.0):
    import models
    folder = context.folder / "adapter"
    if folder.exists():
        return folder
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "o_proj"]}))
    shapes = {}
    for layer in range(2):
        for module in ("q_proj", "o_proj"):
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}."
            shapes.update({name + "lora_A.weight": [4, 64], name + "lora_B.weight": [64, 4]})
    models.write_safetensors(folder / "adapter_model.safetensors", models.random_tensors(shapes, seed=9, dtype="F32"))
    return folder


def check_adapters(context):
    model, adapter = context.tiny(), write_adapter(context)
    words = ["run", "-m", model, "-p", "abcdef", "-n", "16", "--ignore-eos", "--quiet"]
    plain = context.ok(*words).out
    adapted = context.ok(*words, "--lora", adapter).out
    assert adapted != plain, "the adapter says something"
    assert context.ok(*words, "--adapter", adapter).out == adapted == context.ok(*words, "--lora-scaled", f"{adapter}:1").out
    assert context.ok(*words, "--lora-scaled", f"{adapter}:0").out == plain, "scale 0 adds nothing"
    context.ok(*words, "--lora", adapter, "--lora-fuse")
    missing = context.fails(1, *words, "--lora", "/nowhere/adapter")
    assert "/nowhere/adapter" in missing.err and missing.out == "", missing
    for flags in (["--lora-scaled", str(adapter)], ["--lora-scaled", f"{adapter}:much"], ["--lora-fuse"], ["--lora", ""]):
        context.fails(2, *words, *flags)


def check_log_goes_to_stderr_only_when_asked(context):
    model = context.scripted()
    assert "engine" not in context.ok("run", "-m", model, "-p", "[[stop]]", "--quiet").err
    assert "MLXCEL_LOG" in context.fails(2, "run", "-m", model, "-p", "[[stop]]", env={"MLXCEL_LOG": "loud"}).err
    asked = context.ok("run", "-m", model, "-p", "[[stop]]", "--quiet", env={"MLXCEL_LOG": "trace"})
    assert asked.err and asked.out == context.ok("run", "-m", model, "-p", "[[stop]]", "--quiet").out


def check_default_model_answers(context):
    answer = context.ok("run", "-m", context.smol(), "-p", "What is the capital of France?", "-n", "16")
    assert "Paris" in answer.out, answer


def check_peak_memory(context):
    """Weights, keys and values, and 100 MB at most."""
    if "MLXCEL_SANITIZE:STRING=\n" not in (context.build / "CMakeCache.txt").read_text():
        from harness import Skip
        raise Skip("a sanitizer keeps memory of its own")
    model = context.smol()
    needs = context.json("inspect", "-m", model, "--json", "-n", "64")
    process = subprocess.Popen([context.mlxcel, "run", "-m", model, "-p", "What is the capital of France?", "-n", "16", "--quiet"],
                               env=context.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    most = needs["weights_bytes"] + needs["kv_bytes_total"] + 100 * 10 ** 6
    assert process.returncode == 0 and usage.ru_maxrss * 1024 < most, f"{usage.ru_maxrss * 1024 / 1e6:.1f} MB, {most / 1e6:.1f} allowed"


def check_embed(context):
    import pathlib
    from harness import Skip
    model = pathlib.Path.home() / ".cache/mlxcel/models/sentence-transformers/all-MiniLM-L6-v2"
    if not (model / "config.json").exists():
        raise Skip("all-MiniLM-L6-v2 is not in the store (tests/real/fetch.sh)")
    found = context.json("embed", "-m", model, "-p", "a cat", "-p", "a kitten", "-p", "tax law", "--json")
    assert set(found) == {"embeddings", "shapes", "prompt_tokens", "similarity"} and found["shapes"] == [[384]] * 3
    assert found["similarity"][0][1] > 0.7 > 0.3 > found["similarity"][0][2], found["similarity"]
    assert abs(sum(x * x for x in found["embeddings"][0]) - 1) < 1e-4
    single = context.json("embed", "-m", model, "-p", "a cat", "-p", "a kitten", "-p", "tax law", "--json", "--batch-size", "1")
    assert single["embeddings"] == found["embeddings"], "a vector does not depend on its neighbours"
    lines = context.folder / "lines.txt"
    lines.write_text("a cat\na kitten\n")
    text = context.ok("embed", "-m", model, "-f", lines).out
    assert text.startswith("[") and "cosine similarity" in text and text.count("[") == 2
    raw = context.json("embed", "-m", model, "-p", "a cat", "--json", "--embd-normalize", "-1", "--dimensions", "8")
    assert raw["shapes"] == [[8]]
    taxi = context.json("embed", "-m", model, "-p", "a cat", "--json", "--embd-normalize", "1")
    assert abs(sum(abs(x) for x in taxi["embeddings"][0]) - 1) < 1e-4
    context.fails(2, "embed", "-m", model)
    context.fails(1, "run", "-m", model, "-p", "x")


def check_tune(context):
    plan = context.ok("tune", "--dry-run").out
    for name in ("paged-decode-splits", "qmv-multirow", "qmm-tile"):
        assert name in plan
    assert "nothing to tune" in context.ok("tune", "--op", "qmm-tile").out
    context.fails(2, "tune", "--op", "nonsense")
