"""The flag table as the outside sees it: JSON, completions, man pages."""
import json
import re
import shutil
import subprocess


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


def check_other_completions(context):
    zsh, fish = context.ok("--completion-zsh").out, context.ok("--completion-fish").out
    assert zsh.startswith("#compdef mlxcel") and "--max-tokens[" in zsh
    assert "complete -c mlxcel" in fish and "-l max-tokens" in fish
    for shell, text in (("zsh", zsh), ("fish", fish)):
        if shutil.which(shell):
            done = subprocess.run([shell, "-n"], input=text, text=True, capture_output=True)
            assert done.returncode == 0, done.stderr


def check_man_pages(context):
    main, run = context.ok("--man-page").out, context.ok("--man-page", "run").out
    assert main.startswith(".TH MLXCEL 1") and ".SH EXIT STATUS" in main
    assert "\\-\\-max\\-tokens" in run and ".SH EXAMPLES" in run
    if shutil.which("man") or shutil.which("groff"):
        tool = ["groff", "-man", "-Tutf8", "-ww"] if shutil.which("groff") else ["man", "--warnings", "-l", "-"]
        done = subprocess.run(tool, input=run, text=True, capture_output=True)
        assert done.returncode == 0 and "warning" not in done.stderr, done.stderr[:500]
    context.fails(2, "--man-page", "nonsense")
