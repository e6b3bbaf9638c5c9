"""What an answer must look like, how its tokens are drawn, and what was thought before it."""
import json
import re

from terminal import Terminal


def check_constrained_answers(context):
    model = context.tiny()
    for words, pattern in ((["--regex", "[0-9]{3}x"], r"^\d{3}x$"), (["--grammar", 'root ::= "yes" | "no"'], r"^(yes|no)$")):
        out = context.ok("run", "-m", model, "-p", "abc", "-n", "40", "--quiet", *words).out.strip()
        assert re.match(pattern, out), (words, out)
    schema = '{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false}'
    file = context.folder / "schema.json"
    file.write_text(schema)
    grammar = context.folder / "grammar.gbnf"
    grammar.write_text('root ::= "{\\"a\\":true}"')
    for words in (["-j", schema], ["--json-schema-file", file], ["-jf", file], ["--grammar-file", grammar]):
        out = context.ok("run", "-m", model, "-p", "abc", "-n", "200", "--quiet", *words).out
        assert isinstance(json.loads(out)["a"], bool), out
    two = context.fails(2, "run", "-m", model, "-p", "a", "--regex", "a", "-j", "{}")
    assert "--regex" in two.err and "--json-schema" in two.err, two
    bad = context.fails(1, "run", "-m", model, "-p", "a", "--regex", "(")
    assert "--regex" in bad.err and bad.out == "", bad
    context.fails(1, "run", "-m", model, "-p", "a", "--grammar", "root ::= undefined-rule")
    context.fails(2, "run", "-m", model, "-p", "a", "--grammar-file", "/nowhere")
    # H27: what cannot be enforced is refused by place, never answered freely.
    dangling = context.fails(1, "run", "-m", model, "-p", "a", "-j", '{"properties": {"x": {"$ref": "#/$defs/none"}}}')
    assert "/properties/x" in dangling.err and dangling.out == "", dangling


def check_sampling_flags(context):
    model = context.tiny()

    def run(*words, **more):
        return context.ok("run", "-m", model, "-p", "abc", "-n", "24", "--quiet", "--ignore-eos", *words, **more).out

    greedy = run()
    assert run("--temp", "2", "-s", "1", "--top-k", "1") == greedy
    warm = run("--temp", "2", "-s", "1")
    assert warm == run("--temperature", "2", "--seed", "1") != greedy
    # Each of these takes part: alone it changes what the same seed draws.
    for words in (["--typical", "0.2"], ["--top-nsigma", "0.1"], ["--xtc-probability", "1", "--xtc-threshold", "0.001"],
                  ["--mirostat", "2", "--mirostat-ent", "1"], ["--dynatemp-range", "1.9"], ["--samplers", "top_k;temperature", "--top-k", "2"],
                  ["--sampler-seq", "kt", "--top-k", "2"], ["--top-p", "0.05"], ["--min-p", "0.9"]):
        assert run("--temp", "2", "-s", "1", *words) != warm, words
    assert run("--temp", "2", "-s", "1", "--samplers", "top_k;temperature", "--top-k", "2") == \
        run("--temp", "2", "-s", "1", "--sampler-seq", "kt", "--top-k", "2")
    for words in (["--repeat-penalty", "100"], ["--frequency-penalty", "2", "--repeat-last-n", "-1"], ["--presence-penalty", "2"],
                  ["--dry-multiplier", "50", "--dry-allowed-length", "1", "--dry-sequence-breaker", "none"]):
        run(*words)
    # A bias on the token that greedy takes first forbids it.
    first = int(context.ok("run", "-m", model, "-p", "abc", "-n", "1", "--ignore-eos", env={"MLXCEL_PRINT_TOKEN_IDS": "1"})
                .err.split("generated ids: ")[1].split()[0])
    assert run("--logit-bias", f"{first}-inf") != greedy
    assert run("-l", f"{first}+100")[:1] == greedy[:1]
    for words in (["--samplers", "top_k;nonsense"], ["--samplers", "top_k;top_k"], ["--sampler-seq", "z"], ["--mirostat", "7"],
                  ["--logit-bias", "abc"], ["--logit-bias", "1+nan"], ["--top-p", "1.5"], ["--temp", "nan"], ["--top-k", "-3"],
                  ["--lang-bias", "klingon=1"], ["--lang-bias", "ko=1,ko=2"], ["--lang-bias", "ko"], ["--lang-bias-config", "/nowhere"]):
        bad = context.fails(2, "run", "-m", "acme/absent", "-p", "a", *words)
        assert words[0] in bad.err or words[0].replace("--sampler-seq", "sampler") in bad.err, bad
    # What the engine would refuse of any request is said of the flag, not of a request's field.
    for words in (["--dry-base", "0.5"], ["--adaptive-decay", "1"], ["--logit-bias", "5+1000"], ["--dry-sequence-breaker", "x" * 65]):
        bad = context.fails(2, "run", "-m", "acme/absent", "-p", "a", *words)
        assert words[0] in bad.err, bad
    outside = context.fails(1, "run", "-m", model, "-p", "a", "--logit-bias", "99999999+1")
    assert "--logit-bias: key 99999999" in outside.err, outside


def check_language_bias(context):
    model = context.scripted()
    plain = context.ok("run", "-m", model, "-p", "[[stop]]", "--quiet").out
    assert re.search("[a-z]", plain)
    without = context.ok("run", "-m", model, "-p", "[[stop]]", "--quiet", "--lang-bias", "latin=-inf", "-n", "20").out
    assert not re.search("[A-Za-z]", without), without
    config = context.folder / "bias.yaml"
    config.write_text("policy: conservative\nbias:\n  latin: -inf\n")
    assert context.ok("run", "-m", model, "-p", "[[stop]]", "--quiet", "--lang-bias-config", config, "-n", "20").out == without
    assert context.ok("run", "-m", model, "-p", "[[stop]]", "--quiet", "-n", "20", env={"LLAMA_ARG_LANG_BIAS": "latin=-inf"}).out == without
    for text in ("policy: lax\nbias: {ko: 1}", "bias: {ko: 1}\nextra: 1", "bias: {ko: x}", "bias: [1]", "bias: {ko: 1, ko: 2}", "]["):
        config.write_text(text)
        context.fails(2, "run", "-m", model, "-p", "a", "--lang-bias-config", config)


def check_thoughts_are_hidden_unless_asked_for(context):
    model = context.scripted()
    plain = context.ok("run", "-m", model, "-p", "[[think]]", "--quiet").out
    assert "<think>" not in plain and "</think>" not in plain, plain
    shown = context.ok("run", "-m", model, "-p", "[[think]]", "--quiet", "--show-reasoning").out
    assert shown.endswith(plain) and len(shown) > len(plain) and "think>" not in shown, (plain, shown)
    found = context.json("run", "-m", model, "-p", "[[think]]", "--json")
    assert found["reasoning"] and found["text"] == plain.rstrip("\n"), found
    # H24: a thought that the limit cuts stays a thought.
    cut = context.json("run", "-m", model, "-p", "[[think]]", "--json", "-n", "3")
    assert cut["text"] == "" and cut["reasoning"] and cut["finish_reason"] == "length", cut
    # Taken as it is, nothing is parsed.
    raw = context.ok("run", "-m", model, "-p", "[[think]]", "--quiet", "--no-chat-template").out
    assert "think>" in raw, raw


def check_thoughts_are_dimmed_on_a_terminal(context):
    with Terminal([context.mlxcel, "run", "-m", context.scripted(), "-p", "[[think]]", "--quiet", "--show-reasoning"],
                  context.environment) as terminal:
        terminal.wait()
        seen = terminal.bytes
        assert b"\x1b[2m" in seen and seen.rindex(b"\x1b[0m") > seen.index(b"\x1b[2m"), seen


def check_reasoning_budget(context):
    model = context.tiny()
    # One token of this vocabulary opens a thought again; it is kept out.
    again = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]["<think>on"]
    opened = ["--chat-template", "{{ messages[-1]['content'] }}<think>", "-l", f"{again}-inf"]
    free = context.json("run", "-m", model, "-p", "abc", "-n", "30", "--ignore-eos", "--json", *opened)
    assert free["text"] == "" and free["reasoning"] and free["finish_reason"] == "length", free
    none = context.json("run", "-m", model, "-p", "abc", "-n", "30", "--ignore-eos", "--json", "--reasoning-budget", "0", *opened)
    assert none["text"] and not none["reasoning"], none
    some = context.json("run", "-m", model, "-p", "abc", "-n", "30", "--ignore-eos", "--json", "--reasoning-budget", "5", *opened)
    assert some["text"] and some["reasoning"] and some["usage"]["completion_tokens"] <= 32, some
    assert free["reasoning"].startswith(some["reasoning"].rstrip("\n")), (free, some)
    said = context.json("run", "-m", model, "-p", "abc", "-n", "30", "--ignore-eos", "--json", "--reasoning-budget", "5",
                        "--reasoning-budget-message", "Enough.", *opened)
    assert "Enough." in said["reasoning"], said
    # A grammar holds from the thought's end on.
    held = context.json("run", "-m", model, "-p", "abc", "-n", "60", "--json", "--reasoning-budget", "4", "--regex", "yes|no", *opened)
    assert held["text"] in ("yes", "no") and held["reasoning"], held


def check_reasoning_reaches_the_template(context):
    model = context.scripted()
    template = "{% if enable_thinking is defined and not enable_thinking %}[[loop]]{% else %}{{ messages[-1]['content'] }}{% endif %}"

    def run(*words):
        return context.ok("run", "-m", model, "-p", "[[stop]]", "-n", "6", "--quiet", "--chat-template", template, *words).out

    plain = run()
    assert run("--reasoning", "on") == plain == run("--reasoning", "auto")
    off = run("--reasoning", "off")
    assert off != plain and run("--reasoning-effort", "none") == off
    assert run("--reasoning", "off", "--chat-template-kwargs", '{"enable_thinking": true}') == plain, "what is given by hand wins"
    effort = "{% if reasoning_effort == 'high' %}[[loop]]{% else %}{{ messages[-1]['content'] }}{% endif %}"
    high = context.ok("run", "-m", model, "-p", "[[stop]]", "-n", "6", "--quiet", "--chat-template", effort, "--reasoning-effort", "high").out
    assert high == off
    for words in (["--reasoning", "maybe"], ["--reasoning", "on", "--no-chat-template"], ["--reasoning-budget", "-2"]):
        context.fails(2, "run", "-m", model, "-p", "a", *words)


def acceptance_of(line):
    """The figures of a speculation line, which have to agree with each other."""
    found = dict(word.split("=", 1) for word in line.split("] ", 1)[1].split())
    places = [float(x) for x in found.pop("per_position_acceptance").strip("[]").split(",") if x]
    rule = found.pop("rule", None)
    numbers = {name: float(value) for name, value in found.items()}
    assert set(numbers) == {"rounds", "proposed", "positions_tested", "accepted", "acceptance_rate", "mean_accepted_len"}, line
    assert rule in (None, "match") and numbers["accepted"] <= numbers["positions_tested"] <= numbers["proposed"], line
    # A round tests what it accepts, and one place more where the draft went on.
    assert numbers["positions_tested"] <= numbers["accepted"] + numbers["rounds"], line
    assert abs(numbers["acceptance_rate"] - numbers["accepted"] / max(numbers["proposed"], 1)) < 1e-3, line
    assert abs(numbers["mean_accepted_len"] - numbers["accepted"] / max(numbers["rounds"], 1)) < 1e-2, line
    assert all(0 <= share <= 1 for share in places) and bool(places) == (numbers["positions_tested"] > 0), line
    return dict(numbers, places=places)


def check_prompt_lookup_changes_nothing_but_the_speed(context):
    model = context.tiny()
    plain = context.ok("run", "-m", model, "-p", "ab" * 40, "-n", "60", "--quiet", "--ignore-eos").out
    for words in (["--prompt-lookup"], ["--draft-kind", "prompt-lookup", "--draft-max", "2"]):
        drafted = context.ok("run", "-m", model, "-p", "ab" * 40, "-n", "60", "--ignore-eos", *words).out
        text, _, line = drafted.rstrip("\n").rpartition("\n")
        assert text + "\n" == plain and line.startswith("[Prompt lookup] rounds="), (plain, drafted)
        assert acceptance_of(line)["proposed"] > 0, line
    for policy in ("graded", "gated"):
        drafted = context.ok("run", "-m", model, "-p", "ab" * 40, "-n", "60", "--ignore-eos", "--prompt-lookup",
                             "--prompt-lookup-policy", policy).out
        assert drafted.rpartition("\n[")[0] + "\n" == plain, (policy, drafted)
    for words in (["--prompt-lookup-policy", "gated"], ["--prompt-lookup", "--prompt-lookup-policy", "eager"]):
        refused = context.fails(2, "run", "-m", "acme/absent", "-p", "a", *words)
        assert "--prompt-lookup-policy" in refused.err, refused
    quiet = context.ok("run", "-m", model, "-p", "ab" * 40, "-n", "60", "--ignore-eos", "--prompt-lookup", "--quiet").out
    assert quiet == plain


def check_stop_strings_read_escapes(context):
    model = context.scripted()
    whole = context.json("run", "-m", model, "-p", "a[[stop]]", "--json")["text"]
    letter = whole[2]
    found = context.json("run", "-m", model, "-p", "a[[stop]]", "--json", "-r", "\\n", "-r", letter)
    assert found["text"] == whole[:whole.index(letter)], found


def check_files_that_the_model_cannot_take(context):
    picture = context.folder / "x.png"
    picture.write_bytes(b"\x89PNG")
    # Before the model is looked for.
    for flag in ("--image", "--audio", "--video"):
        refused = context.fails(1, "run", "-m", "acme/absent", "-p", "a", flag, picture)
        assert f"{flag} {picture}" in refused.err and "text only" in refused.err and refused.out == "", refused
        context.fails(2, "run", "-m", "acme/absent", "-p", "a", flag, "/nowhere.png")
    for words in (["embed", "-p", "a", "--image"], ["rerank", "-q", "a", "-d", "b", "--image"], ["rerank", "-q", "a", "-d", "b", "--query-image"]):
        refused = context.fails(1, words[0], "-m", "acme/absent", *words[1:], picture)
        assert words[-1] in refused.err and "text only" in refused.err, refused


def check_flags_of_other_models_are_refused_with_a_reason(context):
    for words in (["--image-soft-tokens", "280"], ["--image-min-tokens", "4"], ["--image-max-tokens", "9"], ["--fps", "1"],
                  ["--video-max-frames", "8"], ["--layout-detections", "x.json"], ["--output-audio", "x.wav"],
                  ["--extra-decoding-seconds", "1"], ["--stream"], ["--max-streaming-seconds", "9"], ["--language", "de"],
                  ["--translate"], ["--format", "srt"], ["--tp-size", "2"], ["--tp-moe-mode", "expert"],
                  ["--tp-embedding-mode", "sharded"], ["--tp-lm-head-mode", "sharded"], ["--pp-size", "2"], ["--pp-layers", "0-3,4-7"],
                  ["--pp-micro-batch-size", "2"]):
        refused = context.fails(2, "run", "-m", "acme/absent", "-p", "a", *words)
        assert words[0] in refused.err and len(refused.err) > len(words[0]) + 40 and "acme/absent" not in refused.err, refused
    # What says what is so anyway passes.
    for words in (["--tp-size", "1"], ["--pp-size", "1"], ["--video-max-frames", "16"]):
        context.ok("run", "-m", context.tiny(), "-p", "abc", "-n", "1", *words)
    for words in (["detect", "-m", "acme/absent", "-i", "x.png"], ["help", "detect"]):
        refused = context.fails(2, *words)
        assert "RT-DETRv2" in refused.err and refused.out == "", refused


def check_variables_of_shared_flags(context):
    model = context.tiny()
    for name, value in (("MLXCEL_PREFILL_CHUNK", "x"), ("MLXCEL_CPU_PRECISION", "sloppy"), ("MLXCEL_DRAFT_KIND", "psychic")):
        bad = context.fails(2, "run", "-m", "acme/absent", "-p", "a", env={name: value})
        assert name in bad.err and value in bad.err, bad
    want = context.ok("run", "-m", model, "-p", "abc", "-n", "8", "--quiet").out
    chunked = context.ok("run", "-m", model, "-p", "abc", "-n", "8", "--quiet", env={"MLXCEL_PREFILL_CHUNK": "1"}).out
    assert chunked == want
    # A flag beats its variable; the server's LLAMA_ARG_ names are the server's.
    context.ok("run", "-m", model, "-p", "abc", "-n", "1", "--cpu-precision", "exact", env={"MLXCEL_CPU_PRECISION": "high"})
    assert context.ok("run", "-m", model, "-p", "abc", "-n", "8", "--quiet", env={"LLAMA_ARG_TOP_K": "1", "LLAMA_ARG_BATCH": "x"}).out == want
