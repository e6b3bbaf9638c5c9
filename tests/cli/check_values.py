"""cli.md 1 and 4: what a value may be, and that a refusal names the flag as it was typed."""
import json


def refused(context, *words, named=None):
    out = context.fails(2, *words)
    name = named or words[-2]
    assert out.err.splitlines()[0].split(": ", 1)[1].startswith(name) and out.out == "", (words, out)
    return out.err


def check_numbers_are_decimal_digits(context):
    wrong = ("0x10", " 5", "5 ", "+5", "1e2", "5.0", "5,", "", "--", "99999999999", "five", "5\n")
    for begin in (["run", "-p", "x", "-n"], ["run", "-p", "x", "-c"], ["run", "-p", "x", "--top-k"], ["run", "-p", "x", "--seed"],
                  ["perplexity", "-m", "a/b", "-f", "x", "-c"], ["embed", "-m", "a/b", "-p", "x", "--dimensions"], ["inspect", "-m", "a/b", "--batch"],
                  ["bench", "-m", "a/b", "-r"], ["rerank", "-m", "a/b", "-q", "x", "-d", "y", "--top-n"]):
        for value in wrong:
            if (begin[-1], value) != ("--seed", "99999999999"):
                refused(context, *begin, value)
    for value in ("0x10", " 5", "+5", "5,+5", "five", "-1"):
        refused(context, "bench", "-m", "a/b", "-n", value)
    for value in ("0x4", " 4", "+4", "04.0", "7"):
        refused(context, "quantize", "-m", "a/b", "-o", "z", "--bits", value)
    for value in ("0x1", " 1", "nan", "inf", "1s", ""):
        refused(context, "bench", "-m", "a/b", "--delay", value)
        refused(context, "run", "-p", "x", "--temp", value)
    for value in ("5", "5,", "5,6,7", " 5,6", "0x5,6", "5,0", ",5"):
        refused(context, "bench", "-m", "a/b", "-pg", value)
    # Seeds are folded to 32 bits: these are two spellings of one, and -1 is a fresh one.
    draw = [context.json("run", "-m", context.tiny(), "-p", "abc", "-n", "12", "--temp", "1", "--ignore-eos", "--json", "--seed", seed)
            for seed in ("-2", "4294967294", "-1", "-1")]
    assert draw[0]["text"] == draw[1]["text"] and draw[0]["seed"] == draw[1]["seed"] == 4294967294, draw
    assert draw[2]["seed"] != draw[3]["seed"], draw


def check_the_flag_is_named_as_it_was_typed(context):
    run = ["run", "-m", "acme/absent", "-p", "x"]
    for words in (["-n", "-2"], ["--max-tokens", "-2"], ["--n-predict", "x"], ["--temp", "-1"], ["--temperature", "-1"], ["-s", "x"], ["--seed", "x"],
                  ["-c", "-1"], ["--ctx-size", "x"], ["--typical-p", "2"], ["--top-n-sigma", "x"], ["--samplers", "top_k;top_k"], ["--sampler-seq", "kk"],
                  ["--sampling-seq", "z"], ["-l", "5+1000"], ["--logit-bias", "x"], ["-r", ""], ["--reverse-prompt", ""], ["-t", "x"], ["--dry-base", "0.9"],
                  ["--adaptive-decay", "1"], ["--draft-max", "x"], ["--num-draft-tokens", "x"], ["--mirostat-ent", "x"], ["--reasoning", "maybe"]):
        text = refused(context, *run, *words)
        assert text.count(words[0]) == 1 + text.count(f"see {words[0]}"), (words, text)
        if words[0].startswith("--") and words[1]:
            refused(context, *run, "=".join(words), named=words[0])
    refused(context, *run, "-nx", named="-n")
    refused(context, "bench", "-m", "a/b", "--repetitions", "0")
    refused(context, "bench", "-m", "a/b", "-r", "0")
    for words in (["--temperature", "-1"], ["-s", "x"], ["--port", "x"], ["--sampling-seq", "kk"], ["-np", "x"], ["--logit-bias", "5+1000"]):
        out = context.fails(2, "-m", "acme/absent", *words, program=context.server)
        assert words[0] + " " in out.err or words[0] + ":" in out.err, (words, out)


def check_a_flag_with_nothing(context):
    """An empty value where something is named is no default: a script's variable was not set."""
    for flag in ("-m", "--model", "-f", "--models-dir", "--hf-file", "--revision", "--grammar", "--grammar-file", "-j", "-jf", "--regex", "--surgery",
                 "--chat-template-file", "--draft-model", "--lora", "--image", "--prompt-cache-dir"):
        refused(context, "run", "-p", "x", flag, "")
        if flag.startswith("--"):
            refused(context, "run", "-p", "x", flag + "=", named=flag)
    for words in (["run", ""], ["doctor", ""], ["download", ""], ["rm", ""]):
        out = context.fails(2, *words)
        assert "expected something" in out.err, out
    for command, flag in (("quantize", "-o"), ("perplexity", "-f"), ("embed", "-m"), ("list", "--models-dir"), ("download", "--local-dir")):
        refused(context, command, flag, "")
    # Texts may be empty, and "--system=" takes no other flag for its value.
    model = context.tiny()
    want = context.ok("run", "-m", model, "-p", "abc", "-n", "4").out
    assert context.ok("run", "-m", model, "--system=", "-p", "abc", "-n", "4").out == context.ok("run", "-m", model, "--system", "", "-p", "abc", "-n", "4").out
    assert context.ok("run", "-m", model, "--hf-token=", "-p", "abc", "-n", "4").out == want
    for word in ("-n", "--temp", "-m", "--system"):
        out = context.fails(2, "run", "-p", "x", word)
        assert word in out.err, out


def check_flags_that_contradict(context):
    run = ["run", "-m", "acme/absent", "-p", "x"]
    for words in (["--grammar", 'root ::= "a"', "--regex", "a"], ["-j", "{}", "--regex", "a"], ["--chat-template", "x", "--chat-template-file", "/dev/null"],
                  ["--no-chat-template", "--chat-template", "x"], ["--no-chat-template", "--system", "s"], ["--no-chat-template", "--reasoning", "off"],
                  ["--prompt-lookup", "--draft-kind", "draft"], ["--prompt-lookup", "--draft-model", "a/b"], ["--prompt-lookup-policy", "gated"],
                  ["--lora-fuse"], ["--rope-scale", "2", "--rope-freq-scale", "0.25"], ["--cache-type-k", "int8", "--cache-type-v", "turbo4"]):
        out = context.fails(2, *run, *words)
        named = [word for word in words if word.startswith("-") and word.strip("-") in out.err]
        assert named and out.out == "", (words, out)
    for words in (["list", "-v", "--json"], ["list", "-q", "--json"], ["bench", "-m", "a/b", "--kernels"], ["chat", "-m", "a/b", "--json"],
                  ["quantize", "-m", "a/b", "-o", "z", "--dequantize", "--bits", "4"], ["embed", "-m", "a/b"], ["run", "a/b", "c/d", "-p", "x"]):
        assert context.fails(2, *words).out == "", words
    # What is given twice: the last one counts, also between two spellings.
    model = context.tiny()
    want = context.json("run", "-m", model, "-p", "abc", "-n", "3", "--json")
    assert want["usage"]["completion_tokens"] == 3
    assert context.json("run", "-m", model, "-p", "x", "--prompt", "abc", "--max-tokens", "9", "-n3", "--json")["text"] == want["text"]
    for words in (["--nonsense"], ["--max-token", "3"], ["-Z"], ["--tempp", "1"], ["-max-tokens", "3"]):
        out = context.fails(2, *run, *words)
        assert words[0] in out.err and "--help" in out.err, out


def check_switches_take_no_words(context):
    for words in (["--quiet=maybe"], ["--json=2x"], ["--ignore-eos=perhaps"]):
        out = context.fails(2, "run", "-m", "acme/absent", "-p", "x", *words)
        assert words[0].split("=")[0] in out.err, out
    assert context.ok("run", "-m", context.tiny(), "-p", "abc", "-n", "2", "--quiet=true").err == ""
    assert "[Generated" in context.ok("run", "-m", context.tiny(), "-p", "abc", "-n", "2", "--quiet=false").err
    json.loads(context.ok("run", "-m", context.tiny(), "-p", "abc", "-n", "2", "--json=true").out)
