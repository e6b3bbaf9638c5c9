"""Runs the programs in an environment of their own: store, cache and hub of the test, nothing of the user's."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile


class Skip(Exception):
    pass


class Result:
    def __init__(self, done):
        self.code = done.returncode
        self.out = done.stdout.decode("utf-8", "replace")
        self.err = done.stderr.decode("utf-8", "replace")

    def __repr__(self):
        return f"exit {self.code}\nstdout: {self.out[-3000:]}\nstderr: {self.err[-3000:]}"


def default_model():
    root = os.environ.get("MLXCEL_MODELS_DIR") or os.path.expanduser("~/.cache/mlxcel/models")
    return pathlib.Path(root) / "HuggingFaceTB/SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf"


class Disk:
    """A small file system of its own; needs root."""

    def __init__(self, context, name, size):
        self.path, self.size = context.folder / name, size
        self.path.mkdir()
        if self.plug() != 0:
            raise Skip("no permission to mount a small disk")

    def plug(self):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", self.path], capture_output=True).returncode

    def remount(self, options):
        subprocess.run(["mount", "-o", f"remount,{options}", self.path], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pull()

    def pull(self):
        subprocess.run(["umount", "-l", self.path], capture_output=True)


class Context:
    def __init__(self, build):
        self.build = build
        self.mlxcel = build / "bin/mlxcel"
        self.server = build / "bin/mlxcel-server"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mlxcel-cli-"))
        self.store = self.folder / "store"
        self.store.mkdir()
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder / "home"), "LANG": "C.UTF-8",
            "MLXCEL_MODELS_DIR": str(self.store), "MLXCEL_CACHE_DIR": str(self.folder / "cache"),
            "HF_HUB_CACHE": str(self.folder / "hf"), "HF_ENDPOINT": "http://127.0.0.1:9",  # nothing listens there
        }
        for name in ("LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                self.environment[name] = os.environ[name]
        (self.folder / "home").mkdir()
        self.made = {}

    def run(self, *words, env=None, stdin=b"", cwd=None, timeout=120, program=None):
        environment = dict(self.environment, **(env or {}))
        environment = {k: v for k, v in environment.items() if v is not None}
        done = subprocess.run([str(program or self.mlxcel), *map(str, words)], env=environment, input=stdin,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd or self.folder, timeout=timeout)
        return Result(done)

    def ok(self, *words, **more):
        result = self.run(*words, **more)
        assert result.code == 0, f"mlxcel {' '.join(map(str, words))}: {result}"
        return result

    def fails(self, code, *words, **more):
        result = self.run(*words, **more)
        assert result.code == code, f"mlxcel {' '.join(map(str, words))}: expected exit {code}, {result}"
        assert result.err.strip(), "a failure says why"
        return result

    def json(self, *words, **more):
        return json.loads(self.ok(*words, **more).out)

    def scripted(self):
        """The scripted model: a prompt that ends in [[stop]], [[loop]], … gets that text."""
        target = self.folder / "scripted"
        if not target.exists():
            subprocess.run([self.build / "tests/make_scripted_model", target], check=True, stdout=subprocess.DEVNULL)
        return target

    def tiny(self):
        """A random llama of 64 units with the scripted model's tokenizer."""
        import models
        target = self.folder / "tiny"
        if not target.exists():
            models.write_llama(target, self.scripted())
        return target

    def smol(self):
        path = default_model()
        if not path.exists():
            raise Skip("SmolLM2 is not in the store (scripts/fetch_model.sh)")
        return path

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)
