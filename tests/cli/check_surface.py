"""The flag table as the outside sees it: JSON, completions, man pages."""
import json
import re
import shutil
import subprocess

from harness import Skip
from terminal import Terminal


def check_flag_surface(context):
    surface = json.loads(context.ok("--dump-flag-surface").out)
    commands = {b["subcommand"]: b["flags"] for b in surface["binaries"]}
    assert {"run", "serve", "download", "quantize", "doctor"} <= set(commands)
    assert all(b["name"] == "mlxcel" for b in surface["binaries"])
    for flags in commands.values():
        for flag in flags:
            assert set(flag) == {"long", "short", "env", "value", "default", "status", "hidden"}, flag
            assert flag["value"] in ("none", "one", "list") and flag["status"] in ("supported", "inert", "refused"), flag
            assert isinstance(flag["env"], list) and all(re.fullmatch("[A-Z0-9_]+", name) for name in flag["env"]), flag
            assert all(name.startswith("--") for name in flag["long"]) and all(not name.startswith("--") for name in flag["short"])
    run = {name: flag for flag in commands["run"] for name in flag["long"] + flag["short"]}
    assert run["--max-tokens"]["default"] == "-1" and run["-n"] is run["--max-tokens"]
    # Rows of the server's table mean the same here; their LLAMA_ARG_ variables are the server's alone.
    assert run["--prefill-chunk-size"]["env"] == ["MLXCEL_PREFILL_CHUNK"] and run["--lang-bias"]["env"] == ["LLAMA_ARG_LANG_BIAS"]
    assert run["--typical"] is run["--typical-p"] and run["--tp-size"]["status"] == "inert" and run["--tp-size"]["hidden"]
    serve = {name: flag for flag in commands["serve"] for name in flag["long"] + flag["short"]}
    assert serve["-c"]["env"] == ["LLAMA_ARG_CTX_SIZE"] and serve["--model-url"]["status"] == "refused", serve["-c"]
    assert run["--quiet"]["value"] == "none" and run["--logit-bias"]["value"] == "list"
    server = json.loads(context.ok("--dump-flag-surface", program=context.server).out)
    assert {b["subcommand"] for b in server["binaries"]} == {None, "download"}
    # What is in the table is in the help, and the other way round.
    for command, flags in commands.items():
        text = context.ok(command, "--help").out
        for flag in flags:
            if not flag["hidden"]:
                for name in flag["long"] if command != "serve" else flag["long"][:1]:
                    assert re.search(rf"{re.escape(name)}\b", text), f"{command} {name}"


def check_bash_completion(context):
    script = context.folder / "completion.bash"
    script.write_text(context.ok("--completion-bash").out)

    def complete(*words):
        line = f"source {script}; PATH={context.mlxcel.parent}:$PATH; COMP_WORDS=({' '.join(words)}); " \
               f"COMP_CWORD={len(words) - 1}; _mlxcel; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        done = subprocess.run(["bash", "-c", line], env=context.environment, capture_output=True, text=True, check=True,
                              cwd=context.folder)
        return done.stdout.split()

    assert "quantize" in complete("mlxcel", "qu") and complete("mlxcel", "qu") == ["quantize"]
    assert complete("mlxcel", "run", "--max-t") == ["--max-tokens"]
    assert set(complete("mlxcel", "quantize", "--mode", '""')) >= {"affine", "mxfp4", "nvfp4", "mxfp8"}
    (context.store / "acme/known").mkdir(parents=True, exist_ok=True)
    (context.store / "acme/known/config.json").write_text("{}")
    assert "acme/known" in complete("mlxcel", "run", "-m", "acme")
    shutil.rmtree(context.store / "acme")


def check_bash_itself_completes(context):
    """Keys typed into a real one: words, values after a space and after "=", models with ":", names of files with spaces."""
    script, here = context.folder / "completion.bash", context.folder / "bash"
    script.write_text(context.ok("--completion-bash").out)
    for name in ("with space.txt", "adapter.yaml", "a-folder/x"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("")
    store = context.folder / "bash-store"
    (store / "acme/known").mkdir(parents=True)
    (store / "acme/known/config.json").write_text("{}")
    (store / "acme/quants").mkdir()
    for quant in ("Q4_K_M", "Q8_0"):
        (store / f"acme/quants/m.{quant}.gguf").write_bytes(b"x")
    environment = dict(context.environment, PATH=f"{context.mlxcel.parent}:{context.environment['PATH']}", PS1="ready> ", INPUTRC="/dev/null",
                       MLXCEL_MODELS_DIR=str(store))
    with Terminal(["bash", "--norc", "--noprofile", "-i"], environment, columns=200, cwd=here) as terminal:
        terminal.expect("ready> ")
        terminal.line(f"bind 'set enable-bracketed-paste off'; source {script}; echo don''e")
        terminal.expect("done")
        for typed, whole in (("mlxcel quan", "mlxcel quantize "), ("mlxcel run --max-t", "--max-tokens "), ("mlxcel quantize --mode nv", "--mode nvfp4 "),
                             ("mlxcel quantize --mode=nv", "--mode=nvfp4 "), ("mlxcel ls --sort=s", "--sort=size "), ("mlxcel run -m acme/kn", "acme/known"),
                             ("mlxcel run acme/quants:Q4", "acme/quants:Q4_K_M"), ("mlxcel run -m acme/quants:Q8", "acme/quants:Q8_0"),
                             ("mlxcel run -f wi", "with\\ space.txt "), ("mlxcel run --surgery ad", "adapter.yaml "),
                             ("mlxcel quantize -o a-f", "a-folder/"), ("mlxcel supported --mark", "--markdown ")):
            terminal.send(typed + "\t")
            terminal.expect(whole, 20)
            terminal.send("\x15\r")
            terminal.expect("ready> ")
        # Where a number is wanted nothing is offered.
        terminal.send("mlxcel run --top-k w\t\t")
        terminal.send("\x15echo en''d\r", 1)
        assert "with" not in terminal.expect("end")


def completed(context, *words, timeout=60):
    environment = dict(context.environment, PATH=f"{context.mlxcel.parent}:{context.environment['PATH']}", TERM="xterm")
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True, cwd=context.folder, timeout=timeout).stdout


def check_fish_completion(context):
    if not shutil.which("fish"):
        raise Skip("fish is not installed")
    script = context.folder / "mlxcel.fish"
    script.write_text(context.ok("--completion-fish").out)
    (context.folder / "a-file.txt").write_text("")

    def complete(line):
        out = completed(context, "fish", "--no-config", "-c", f"source {script}; complete -C '{line}'")
        return [row.split("\t")[0] for row in out.splitlines()]

    assert complete("mlxcel qu") == ["quantize"] and complete("mlxcel run --max-t") == ["--max-tokens"]
    assert set(complete("mlxcel quantize --mode ")) == {"affine", "mxfp4", "nvfp4", "mxfp8"}, "no files where words are wanted"
    assert complete("mlxcel quantize --mode=nv") == ["--mode=nvfp4"]
    assert "a-file.txt" in complete("mlxcel run -f a-") and "a-file.txt" not in complete("mlxcel run --top-k a-")
    assert "--markdown" in complete("mlxcel supported --m"), "an alias completes as its command"


ZSH = r"""
zmodload zsh/zpty
zpty -b shell zsh -f -i
zpty -w shell "PS1=; PROMPT=; fpath=($1 \$fpath); autoload -U compinit; compinit -u -D; LISTMAX=9999; bindkey '^I' list-choices; stty -echo cols 200 rows 400; print READ''Y"
while zpty -r shell line '*READY*'; do break; done
zpty -w -n shell "$2"$'\t'
sleep $3
out=
while zpty -r -t shell piece; do out+=$piece; done
print -r -- "$out"
zpty -d shell
"""


def check_zsh_completion(context):
    if not shutil.which("zsh"):
        raise Skip("zsh is not installed")
    folder = context.folder / "zsh"
    folder.mkdir(exist_ok=True)
    (folder / "_mlxcel").write_text(context.ok("--completion-zsh").out)
    (folder / "test.zsh").write_text(ZSH)
    for line, words in (("mlxcel qu", ["quantize"]), ("mlxcel run --max-t", ["--max-tokens"]),
                        ("mlxcel quantize --mode ", ["affine", "mxfp4", "mxfp8", "nvfp4"]),
                        ("mlxcel quantize --mode=m", ["mxfp4", "mxfp8"]), ("mlxcel supported --", ["--markdown"])):
        for wait in ("1", "5"):
            shown = completed(context, "zsh", "-f", folder / "test.zsh", folder, line, wait)
            out = re.sub(r"\x1b[^a-zA-Z]*[a-zA-Z]", "", shown)
            if all(re.search(rf"(?<![\w-]){re.escape(word)}\b", out.replace(line, "", 1)) for word in words):
                break
        else:
            raise AssertionError((line, words, out[-800:]))


def check_other_completions(context):
    zsh, fish = context.ok("--completion-zsh").out, context.ok("--completion-fish").out
    assert zsh.startswith("#compdef mlxcel") and "--max-tokens=[" in zsh and "--quiet[" in zsh
    assert "complete -c mlxcel" in fish and "-l max-tokens" in fish
    for shell, text in (("zsh", zsh), ("fish", fish)):
        if shutil.which(shell):
            done = subprocess.run([shell, "-n"], input=text, text=True, capture_output=True)
            assert done.returncode == 0, done.stderr


def check_man_pages(context):
    main, run = context.ok("--man-page").out, context.ok("--man-page", "run").out
    assert main.startswith(".TH MLXCEL 1") and ".SH EXIT STATUS" in main
    assert ".SH ENVIRONMENT" in main and "MLXCEL_MODELS_DIR" in main and ".SH FILES" in main and "mlxcel\\-split\\-mtp\\fR(1)" in main, main
    assert "\\-\\-max\\-tokens" in run and ".SH EXAMPLES" in run and run.startswith(".TH MLXCEL\\-RUN 1")
    commands = re.findall(r"^  ([a-z-]+) +\S", context.ok("--help").out.split("General")[0], re.M)
    assert len(commands) == 17, commands
    for page in ["", *commands]:
        text = context.ok("--man-page", *([page] if page else [])).out
        assert text.isascii(), page
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=text, text=True, capture_output=True)
            assert done.returncode == 0 and not done.stderr, (page, done.stderr[:500])
    context.fails(2, "--man-page", "nonsense")
