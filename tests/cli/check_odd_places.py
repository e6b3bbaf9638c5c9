"""Where a program may find itself: no home, no folder under its feet, odd names, pipes and loops in a model's place."""
import json
import os
import shutil
import subprocess

NOWHERE = {"MLXCEL_CACHE_DIR": None, "MLXCEL_MODELS_DIR": None, "HF_HUB_CACHE": None}


def check_no_home(context):
    words = ["run", "-m", context.tiny(), "-p", "abc", "-n", "3"]
    want = context.ok(*words).out
    for home in (None, ""):
        env = dict(NOWHERE, HOME=home)
        assert context.ok(*words, env=env).out == want
        shown = context.ok("list", "--verbose", env=env).out + context.run("rm", "acme/no-such-model", "--yes", env=env).err
        assert "./.cache" not in shown and "/.cache/mlxcel/models" in shown, "the store is never where one happens to stand"
        assert not (context.folder / ".cache").exists()
    bare = subprocess.run(["env", "-i", context.mlxcel, *map(str, words)], capture_output=True, cwd=context.folder, timeout=60)
    assert bare.returncode == 0 and bare.stdout.decode("utf-8", "replace") == want, bare
    # A home whose name begins another folder's name is not that folder.
    beside = context.folder / "home-of-another"
    assert f"{beside}/m" in context.ok("list", env={"MLXCEL_MODELS_DIR": str(beside / "m")}).out


def check_a_folder_that_is_gone(context):
    model, gone = context.tiny(), context.folder / "gone"
    gone.mkdir()
    line = f"rmdir ../gone; '{context.mlxcel}' "
    for words, code in ((f"run -m '{model}' -p abc -n 2", 0), ("list", 0), ("run -m models/x -p a --offline", 1), (f"quantize -m '{model}' -o out", 1)):
        gone.mkdir(exist_ok=True)
        done = subprocess.run(["sh", "-c", line + words], env=context.environment, cwd=gone, capture_output=True, timeout=60)
        assert done.returncode == code and (code == 0) == bool(done.stdout), (words, done)


def check_names_of_every_kind(context):
    want = context.ok("run", "-m", context.tiny(), "-p", "abc", "-n", "3").out
    for name in ("with space", "日本 🙂", "new\nline", "quo'te\"s", "-dash", "a:b", "semi;$HOME", "owner/na:me", "*?[x]", "é" * 100):
        folder = context.folder / "names" / name
        shutil.copytree(context.tiny(), folder)
        for reference, where in ((folder, None), (name if name[0] != "-" else "./" + name, context.folder / "names")):
            done = context.ok("run", "-m", reference, "-p", "abc", "-n", "3", cwd=where)
            assert done.out == want, (name, done)
        assert context.json("inspect", "-m", folder, "--json")["model_path"] == str(folder)
        assert context.json("doctor", folder, "--json")["path"] == str(folder), name
        prompt = context.folder / "names" / (name.replace("/", "_") + ".txt")
        prompt.write_text("abc")
        assert context.ok("run", "-m", folder, "-f", prompt, "-n", "3").out == want
    target = context.folder / "names/ziel 日本\n"
    context.ok("quantize", "-m", context.tiny(), "-o", target, "--group-size", "32")
    assert context.ok("run", "-m", target, "-p", "abc", "-n", "3").out
    raw = os.fsencode(context.folder / "names") + b"/\xff\xfe"  # no text at all
    shutil.copytree(os.fsencode(context.tiny()), raw)
    done = subprocess.run([os.fsencode(context.mlxcel), b"inspect", b"-m", raw, b"--json"], env=context.environment, capture_output=True, timeout=60)
    assert done.returncode == 0 and "\ufffd" in json.loads(done.stdout.decode())["model_path"], done


def check_things_in_a_models_place(context):
    """Pipes, folders, loops: an error of one line, at once."""
    root = context.folder / "places"

    def broken(name, file, make):
        folder = root / name
        shutil.copytree(context.tiny(), folder)
        (folder / file).unlink()
        make(folder / file)
        return folder

    def itself(path):
        path.symlink_to(path)

    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        for kind, make in (("pipe", os.mkfifo), ("folder", os.mkdir), ("loop", itself), ("device", lambda path: path.symlink_to("/dev/zero")),
                           ("empty", lambda path: path.write_bytes(b"")), ("nul", lambda path: path.write_bytes(bytes(4096)))):
            folder = broken(f"{kind}-{file}", file, make)
            for words in (["run", "-m", folder, "-p", "x", "-n", "1", "--quiet"], ["doctor", folder], ["inspect", "-m", folder, "--json"]):
                if words[0] != "run" and file == "tokenizer.json":
                    continue
                done = context.run(*words, timeout=20)
                told = done.err + (done.out if words[0] == "doctor" else "")
                assert done.code == 1 and (file in told or str(folder) in told) and done.err.count("\n") <= 1, (kind, words, done)
    for kind, make in (("pipe", os.mkfifo), ("folder", os.mkdir), ("loop", itself), ("empty", lambda path: path.write_bytes(b""))):
        path = root / f"{kind}.gguf"
        make(path)
        done = context.run("run", "-m", path, "-p", "x", "--quiet", timeout=20)
        assert done.code in (1, 2) and str(path) in done.err and done.out == "", (kind, done)
        above = root / f"holds-{kind}"
        above.mkdir()
        path.rename(above / "m.gguf")
        assert context.run("run", "-m", above, "-p", "x", "--quiet", timeout=20).code == 1, kind
    without = broken("no-tokenizer", "tokenizer.json", lambda path: None)
    assert "tokenizer" in context.fails(1, "run", "-m", without, "-p", "x").err
    # What needs no text goes without.
    context.ok("inspect", "-m", without)
    context.ok("quantize", "-m", without, "-o", root / "no-tokenizer-out", "--group-size", "32")


def check_stores_that_are_none(context):
    file = context.folder / "no-store"
    file.write_text("x")
    for words, env in ((["list", "--models-dir", file], {}), (["list", "--json"], {"MLXCEL_MODELS_DIR": str(file)}), (["list", "-q"], {"MLXCEL_MODELS_DIR": str(file)})):
        out = context.fails(1, *words, env=env)
        assert str(file) in out.err and out.out == "", out
    assert "no models in /nowhere" in context.ok("list", "--models-dir", "/nowhere").out
    out = context.fails(1, "download", "acme/x", "--models-dir", file)
    assert str(file) in out.err or "connect" in out.err, out


def check_prompts_that_cannot_be_read(context):
    model = context.tiny()

    def shell(line, code):
        done = subprocess.run(["bash", "-c", f"'{context.mlxcel}' run -m '{model}' -n 2 --quiet {line}"], env=context.environment,
                              capture_output=True, text=True, errors="replace", timeout=60)
        assert done.returncode == code and bool(done.stdout) == (code == 0), (line, done)
        return done

    assert "stdin: could not be read" in shell("< /", 1).stderr
    assert "stdin is empty" in shell("<&-", 2).stderr
    assert "is a directory" in shell("-f /", 2).stderr
    assert "/nowhere" in shell("-f /nowhere", 2).stderr
    assert shell("-f <(printf abc)", 0).stdout == shell("-p abc", 0).stdout == shell("< <(printf abc)", 0).stdout
    # What ends a file or an echo is no part of the question; more of it is.
    for line in ("<<< abc", "-f <(printf 'abc\\n')", "-f <(printf 'abc\\r\\n')", "-p - <<< abc"):
        assert shell(line, 0).stdout == shell("-p abc", 0).stdout, line
    assert "stdin is empty" in shell("< <(echo)", 2).stderr
    count = [context.json("run", "-m", model, "-n", "1", "--json", stdin=text)["usage"]["prompt_tokens"] for text in (b"abc", b"abc\n", b"abc\n\n")]
    assert count[0] == count[1] < count[2], count
    shell("< <(printf 'a\\0b')", 0)
    shell("-p $'\\xff\\xfe'", 0)
    assert "64 MiB" in shell("< <(head -c 67108865 /dev/zero)", 2).stderr
    assert "exceeds the available context size" in shell("< <(head -c 3000000 /dev/zero | tr '\\0' x)", 1).stderr


def check_limits_of_the_system(context):
    line = f"'{context.mlxcel}' run -m '{context.tiny()}' -p abc -n 3"
    want = context.ok("run", "-m", context.tiny(), "-p", "abc", "-n", "3").out
    for limit, code, word in (("-n 16", 0, ""), ("-v 300000", 1, "memory"), ("-f 0", 0, ""), ("-c 0", 0, "")):
        done = subprocess.run(["bash", "-c", f"ulimit {limit}; {line}"], env=context.environment, capture_output=True, text=True, errors="replace", timeout=60)
        assert done.returncode == code and word in done.stderr and done.stdout == (want if code == 0 else ""), (limit, done)


def check_words_that_nobody_reads(context):
    for words in (["--version", "extra"], ["--version", "--verbose", "extra"], ["--help", "run"], ["help", "run", "extra"], ["--completion-bash", "x"],
                  ["--man-page", "run", "x"], ["arch", "extra"], ["list", "extra"], ["tune", "extra"], ["rm", "a/b", "c/d", "--yes"], ["doctor", "a/b", "c/d"]):
        out = context.fails(2, *words)
        assert words[-1] in out.err or "c/d" in out.err or "extra" in out.err, (words, out)
        assert out.out == "", (words, out)
