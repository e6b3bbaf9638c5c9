"""Disks that are full or read-only, for the commands that write something other than downloads."""
import shutil

from harness import Disk
from terminal import Terminal


def check_quantize(context):
    with Disk(context, "quantize-disk", "60k") as disk:
        target = disk.path / "model"
        full = context.fails(1, "quantize", "-m", context.tiny(), "-o", target)
        assert "No space left" in full.err and str(disk.path) in full.err, full
        assert not list(disk.path.iterdir()), "nothing of it stays"
        disk.remount("size=4m")
        context.ok("quantize", "-m", context.tiny(), "-o", target)
        before = {file.name: file.read_bytes() for file in target.iterdir()}
        disk.remount("size=" + str(sum(map(len, before.values())) // 1024 + 30) + "k")
        full = context.fails(1, "quantize", "-m", context.tiny(), "-o", target, "--bits", "8", "--force")
        assert "No space left" in full.err and {file.name: file.read_bytes() for file in target.iterdir()} == before
        disk.remount("size=4m,ro")
        for words in (["-o", disk.path / "other"], ["-o", target, "--force"]):
            refused = context.fails(1, "quantize", "-m", context.tiny(), *words)
            assert "ead-only" in refused.err and str(disk.path) in refused.err, refused
        assert context.ok("run", "-m", target, "-p", "abc", "-n", "2").out


def check_stores_and_caches(context):
    words = ["-p", "abc", "-n", "2"]
    want = context.ok("run", "-m", context.tiny(), *words).out
    with Disk(context, "store-disk", "4m") as disk:
        model = disk.path / "store/acme/m"
        shutil.copytree(context.tiny(), model)
        disk.remount("ro")
        env = {"MLXCEL_MODELS_DIR": str(disk.path / "store"), "MLXCEL_CACHE_DIR": str(disk.path / "cache")}
        # A model in a store that cannot be written to answers, and no cache beside it is asked for twice.
        done = context.ok("run", "-m", "acme/m", *words, env=env)
        assert done.out == want and "warning" not in done.err, done
        assert context.ok("list", "-q", env=env).out.split() == ["acme/m"]
        kept = context.fails(1, "rm", "acme/m", "--yes", env=env)
        assert "ead-only" in kept.err and (model / "model.safetensors").exists(), kept
        refused = context.fails(1, "run", "-m", "acme/m", *words, "--prompt-cache-dir", disk.path / "prompts", env=env)
        assert "prompt-cache-dir" in refused.err and "ead-only" in refused.err and refused.out == "", refused
        named = context.ok("run", "-m", "acme/m", *words, env=dict(env, MLXCEL_PACKED_CACHE=str(disk.path / "packed")))
        assert "MLXCEL_PACKED_CACHE" in named.err and "ead-only" in named.err and named.out == want, named


def check_the_chat(context):
    with Disk(context, "chat-disk", "4m") as disk:
        disk.remount("ro")
        env = dict(context.environment, MLXCEL_CACHE_DIR=str(disk.path))
        with Terminal([context.mlxcel, "run", "-m", context.scripted()], env) as terminal:
            terminal.expect(">>> ")
            terminal.line("[[stop]]")
            terminal.expect("[Generated")
            terminal.expect(">>> ")
            terminal.line(f"/save {disk.path}/talk.json")
            terminal.expect("could not be written")
            terminal.send("\x1b[A\x1b[A\r")  # what was said is recalled, though no file keeps it
            terminal.expect("[Generated")
            terminal.line("/bye")
            assert terminal.wait() == 0
        assert not list(disk.path.iterdir())
