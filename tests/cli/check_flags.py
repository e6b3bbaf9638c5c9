"""cli.md 4 to 14: every flag that help shows takes a value of its kind in each of its spellings; what flags do that no
other file asks for."""
import json
import re
import shutil
import time

OWN_VALUE = {"--revision": None, "--kv-bits": "8", "--draft-kind": "none", "--lang-bias": "latin=1", "--lang-bias-config": None, "--strict": None, "--kernels": None, "--bits": "8",
             "--dry-base": "2", "--draft-block-size": None, "--draft-max": None, "--rope-freq-scale": "0.5", "--grammar": 'root ::= "a"', "--pg": "4,2",
             "--draft-p-min": None, "--lora-scaled": None, "--lora": None, "--adapter": None, "--lora-fuse": None, "--draft-model": None,
             "--model": None, "--surgery": None, "--output": None, "--op": "qmm-tile", "--prompt-lookup-policy": None,
             "--prompt-cache-disk-bytes": None, "--prompt-cache-disk-ttl": None, "--show-reasoning": None}


def rows_of(context, command):
    """(names, value's kind) of every flag in a command's help."""
    for line in context.ok(command, "--help").out.splitlines():
        found = re.match(r"  (-[^ ,]+(?:, -[^ ,]+)*)(?: ([^ ]+))?(?: +.*)?$", line)
        if found:
            yield found.group(1).split(", "), found.group(2)


def value_for(context, kind):
    file = context.folder / "value.txt"
    file.write_text("a")
    schema = context.folder / "value.json"
    schema.write_text("{}")
    if kind is None:
        return []
    if "|" in kind:
        return [kind.split("|")[0]]
    return [{"N": "1", "F": "0.5", "INT": "1", "FILE": schema, "PATH": context.folder, "DIR": context.folder, "JSON": "{}",
             "ID(+/-)BIAS": "5+1", "L=V,..": "latin=1", "A;B": "top_k;temperature", "LETTERS": "kt", "P": "high", "MODE": "fp16",
             "TYPE": "f16", "LEVEL": "low", "SIZE": "5GB", "GLOB": "*q_proj*", "GLOB=BITS[:GROUP[:MODE]]": "*q_proj*=8:32:affine"}.get(kind, "x")]


def check_every_flag_of_run_takes_its_value(context):
    model, tried = context.tiny(), 0
    for names, kind in rows_of(context, "run"):
        own = OWN_VALUE.get(names[-1], OWN_VALUE.get(names[0], ""))
        if own is None or names[0] in ("-h", "-m") or names[-1] in ("--hf-file", "--image", "--audio", "--video", "--json", "--diffusion-sampler"):
            continue  # each has a case of its own
        if any("diffusion" in name or "denoising" in name for name in names):
            continue
        value = [own] if own else value_for(context, kind)
        if "--file" in names:
            value = [context.folder / "value.txt"]
        for name in names:
            # The estimate is made, the advice printed, and nothing loaded.
            context.ok("run", "-m", model, "--recommend-quant", name, *value)
            tried += 1
    assert tried > 90, tried


def check_other_commands_flags(context):
    model = context.tiny()
    words = {"quantize": ["-m", model, "--dry-run"], "inspect": ["-m", model], "doctor": [model], "list": [], "arch": [], "tune": ["--dry-run"]}
    for command, begin in words.items():
        for names, kind in rows_of(context, command):
            own = OWN_VALUE.get(names[-1], OWN_VALUE.get(names[0], ""))
            if own is None or names[0] in ("-h", "-m") or names[-1] in ("--hf-file", "--dry-run", "--recipe", "--evaluate", "--group-size", "--dequantize"):
                continue
            for name in names:
                value = [own] if own else value_for(context, kind)
                if command == "list" and name == "--models-dir":
                    value = [context.store]
                context.ok(command, *begin, name, *value)


def check_help_tells_what_values_are(context):
    text = context.ok("quantize", "--help").out
    assert "--override GLOB=BITS[:GROUP[:MODE]]" in text and "--lora-scaled PATH:SCALE" in text, text
    assert "--mode affine|mxfp4|nvfp4|mxfp8" in text and "--bits 2|3|4|5|6|8" in text, text
    run = context.ok("run", "--help").out
    assert "--chat-template-file FILE" in run and "--temp, --temperature F " in run and "--grammar-file FILE" in run, run
    for command in ("run", "generate", "chat", "embed", "rerank", "serve", "list", "download", "rm", "arch", "inspect", "doctor", "quantize",
                    "split-mtp", "bench", "perplexity", "tune"):
        own = context.ok(command, "--help").out
        assert "Examples" in own and own == context.ok("help", command).out, command
        page = context.ok("--man-page", command).out
        for names, _ in rows_of(context, command):
            for name in names:
                assert name.replace("-", "\\-") in page, f"{command} {name} is not in the manual"
        lines = own.split("Examples")[0].splitlines()
        for line, following in zip(lines, lines[1:]):
            if line.startswith("  -"):
                assert line[33:34] == " " and line[34:].strip() or "  " in line[3:] or following.startswith(" " * 20), f"{command}: no word about {line}"


def check_stages_of_sampling_with_their_parameters(context):
    model = context.tiny()

    def run(*words):
        return context.ok("run", "-m", model, "-p", "abcabcabc", "-n", "24", "--quiet", "--ignore-eos", "--temp", "2", "-s", "1", *words).out

    warm = run()
    ranged = run("--dynatemp-range", "1.9")
    assert run("--dynatemp-range", "1.9", "--dynatemp-exp", "4") != ranged != warm
    learning = run("--mirostat", "2", "--mirostat-ent", "1")
    assert run("--mirostat", "2", "--mirostat-ent", "1", "--mirostat-lr", "0.9") != learning
    chain = ["--samplers", "top_k;temperature;adaptive_p", "--top-k", "0"]
    aimed = run(*chain, "--adaptive-target", "0.9")
    assert aimed != run(*chain) and aimed != run(*chain, "--adaptive-target", "0.1")
    assert run("--adaptive-target", "0.9") == warm, "it acts where the stages name it"
    context.ok("run", "-m", model, "-p", "a", "-n", "2", *chain, "--adaptive-target", "0.5", "--adaptive-decay", "0.5")
    dry = ["-n", "64", "--temp", "0", "--dry-multiplier", "50", "--dry-allowed-length", "1", "--dry-sequence-breaker", "none"]
    greedy = run("-n", "64", "--temp", "0")
    assert run(*dry) != greedy == run(*dry, "--dry-penalty-last-n", "0")
    context.fails(2, "run", "-m", "a/b", "-p", "x", "--dry-base", "-1")
    for words in (["--typical", "0.2"], ["--top-nsigma", "0.1"]):
        other = {"--typical": "--typical-p", "--top-nsigma": "--top-n-sigma"}[words[0]]
        assert run(*words) == run(other, words[1])


def check_several_names_of_one_flag(context):
    model = context.tiny()
    file = context.folder / "names.txt"
    file.write_text("abc")
    words = ["run", "-m", model, "-n", "6", "--ignore-eos", "--quiet"]
    want = context.ok(*words, "-p", "abc").out
    assert context.ok(*words, "--file", file).out == want == context.ok(*words, f"--file={file}").out
    for name in ("--ctx-size", "-c"):
        assert "ctx 40\n" in context.ok("run", "-m", model, "-p", "abc", "-n", "1", name, "40").err
    stops = [context.ok(*words, "-p", "abc", name, want[2:4]).out for name in ("-r", "--reverse-prompt")]
    assert stops[0] == stops[1] != want
    template = ["--chat-template", "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }};{% endfor %}"]
    ids = [context.ok(*words, "-p", "abc", *template, name, "be brief", env={"MLXCEL_PRINT_TOKEN_IDS": ""}).err.splitlines()[0]
           for name in ("--system", "-sys", "--system-prompt")]
    assert len(set(ids)) == 1 and ids[0].startswith("prompt ids: "), ids
    kept = [context.ok("run", "-m", model, "-p", "abc", "-n", "1", *flags).err for flags in
            (["--cache-type-k", "q8_0", "--cache-type-v", "q8_0"], ["-ctk", "q8_0", "-ctv", "q8_0"])]
    assert all("KV int8: applied to 1 of 2" in text for text in kept), kept
    for flag, layers in (("--kv-skip-last-layer", 1), ("--kv-skip-last-layer=true", 1), ("--kv-skip-last-layer=false", 2), ("--no-kv-skip-last-layer", 2)):
        assert f"applied to {layers} of 2" in context.ok("run", "-m", model, "-p", "abc", "-n", "1", "--kv-bits", "8", flag).err, flag
    for name in ("--draft", "--draft-n", "--draft-max", "--num-draft-tokens"):
        line = context.ok("run", "-m", model, "-p", "abc", "-n", "16", "--ignore-eos", "--model-draft", model, name, "2",
                          env={"MLXCEL_MTP_ADAPTIVE": "off"}).out.splitlines()[-1]
        places = re.search(r"per_position_acceptance=\[([^\]]*)\]", line)
        assert places and places.group(1).count(",") == 1, f"{name}: drafts of two: {line}"
    for name in ("--force", "--no-memory-check"):
        context.ok("run", "-m", model, "-p", "x", "-n", "1", "--estimate-memory", name, env={"MLXCEL_HEADROOM_FACTOR": "1000000"})


def check_version_of_everything(context):
    for program in (context.mlxcel, context.server):
        lines = context.ok("--version", "--verbose", program=program).out.splitlines()
        assert re.match(r"mlxcel \d+\.\d+\.\d+ \(mlx ", lines[0]) and re.match(r"device: cpu \w+, \d+ threads?, high$", lines[1]), lines
        assert context.ok("-h", program=program).out == context.ok("--help", program=program).out


def check_perplexity_with_and_without_a_beginning(context):
    text = context.folder / "bos.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 8)
    model = context.folder / "with-bos"
    shutil.copytree(context.tiny(), model)
    words, vocabulary = ((model / name, json.loads((model / name).read_text())) for name in ("tokenizer_config.json", "tokenizer.json"))
    first = vocabulary[1]["added_tokens"][0]
    words[0].write_text(json.dumps(dict(words[1], bos_token=first["content"])))
    special = {"SpecialToken": {"id": first["content"], "type_id": 0}}
    text_of = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    vocabulary[1]["post_processor"] = {
        "type": "TemplateProcessing", "single": [special, text_of[0]], "pair": [special, *text_of],
        "special_tokens": {first["content"]: {"id": first["content"], "ids": [first["id"]], "tokens": [first["content"]]}}}
    vocabulary[0].write_text(json.dumps(vocabulary[1]))
    found = [context.json("perplexity", "-m", model, "-f", text, "-c", "64", "--chunks", "2", "--json", *flags) for flags in ([], ["--no-bos"])]
    assert found[0]["tokens"] == found[1]["tokens"] and found[0]["nll"] != found[1]["nll"], found


def check_bench_rests_between_repetitions(context):
    begun = time.monotonic()
    context.ok("bench", "-m", context.tiny(), "-p", "8", "-n", "0", "-r", "2", "--delay", "0.5")
    assert time.monotonic() - begun > 1.0


def check_arguments_of_a_store(context):
    store = context.folder / "flag-store"
    (store / "acme/m").mkdir(parents=True)
    (store / "acme/m/config.json").write_text("{}")
    (store / "acme/s").mkdir()
    (store / "acme/s/model.safetensors").write_bytes(b"x" * 10)
    assert f"{store}/acme/m" in context.ok("list", "--verbose", "--models-dir", store).out
    assert context.ok("list", "-q", "--models-dir", store).out.split() == ["acme/m"]
    # The server names its store otherwise, and counts a folder of weights alone as one.
    cached = context.ok("--cache-list", "--model-store-root", store, program=context.server).out
    assert "acme/m" in cached and "acme/s" in cached, cached
    rows = context.json("list", "--json", "--models-dir", store)
    assert rows[0]["path"] == str(store / "acme/m") and rows[0]["size_bytes"] == 2
    assert "~" in context.ok("list", env={"MLXCEL_MODELS_DIR": str(context.folder / "home/m")}).out


def check_exit_codes_of_what_prints_and_ends(context):
    for words in (["--version"], ["--help"], ["-h"], ["help"], ["help", "run"], ["--completion-bash"], ["--completion-zsh"], ["--completion-fish"],
                  ["--man-page"], ["--dump-flag-surface"], ["arch"], ["list"], ["tune", "--dry-run"]):
        done = context.ok(*words)
        assert done.out and not done.err, (words, done)
    for words in (["--version"], ["--help"], ["--cache-list"], ["--completion-bash"], ["--dump-flag-surface"]):
        assert context.ok(*words, program=context.server).out or words == ["--cache-list"], words
    json.loads(context.ok("--dump-flag-surface").out)
