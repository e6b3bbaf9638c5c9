"""`download` and `rm`: what is fetched, what is there already, what goes on where it stopped."""
import json
import shutil
import signal
import subprocess
import time

import models
from hub import REPO, Hub, content, partials, repository, store_of, wait_for_partial


def check_snapshot_of_allowed_files(context):
    files = repository()
    env, folder = store_of(context, "d1")
    with Hub(files) as hub:
        env["HF_ENDPOINT"] = hub.url
        out = context.ok("download", REPO, env=env)
        assert out.out.strip() == str(folder), out
        assert (folder / "model.safetensors").read_bytes() == files[REPO]["model.safetensors"]
        there = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")}
        assert there == {"config.json", "tokenizer.json", "model.safetensors", "sub/config.json"}, there
        before = len(hub.requests)
        again = context.ok("download", REPO, env=env)
        assert "all here already" in again.err, again
        assert not [r for r in hub.requests[before:] if r[0] == "GET" and "/resolve/" in r[1]], hub.requests[before:]
        assert context.ok("list", "-q", env=env).out.split() == [REPO]
        # --force fetches again.
        context.ok("download", REPO, "--force", env=env)
        assert len(hub.bodies("model.safetensors")) == 2


def check_local_dir_and_one_file(context):
    with Hub(repository()) as hub:
        env = {"HF_ENDPOINT": hub.url}
        target = context.folder / "elsewhere"
        context.ok("download", REPO, "--local-dir", target, env=env)
        assert (target / "config.json").exists() and not (context.store / REPO).exists()
        one = context.folder / "one"
        out = context.ok("download", REPO, "--hf-file", "sub/config.json", "--local-dir", one, env=env)
        assert out.out.strip() == str(one / "sub/config.json")
        assert not (one / "model.safetensors").exists()
        context.fails(1, "download", REPO, "--hf-file", "absent.json", "--local-dir", one, env=env)


def check_gguf_by_quant(context):
    files = {REPO: {"tiny.Q8_0.gguf": content(4000, 1), "tiny.Q4_K_M.gguf": content(3000, 2), "config.json": b"{}",
                    "big-Q6_K-00001-of-00002.gguf": content(2000, 3), "big-Q6_K-00002-of-00002.gguf": content(2001, 4),
                    "mmproj-tiny.gguf": content(99, 5)}}
    env, folder = store_of(context, "d2")
    with Hub(files) as hub:
        env["HF_ENDPOINT"] = hub.url
        assert context.ok("download", f"{REPO}:q8_0", env=env).out.strip() == str(folder / "tiny.Q8_0.gguf")
        assert sorted(p.name for p in folder.glob("*.gguf")) == ["tiny.Q8_0.gguf"]
        context.ok("download", REPO, env=env)  # only GGUF here: Q4_K_M
        assert sorted(p.name for p in folder.glob("*.gguf")) == ["tiny.Q4_K_M.gguf", "tiny.Q8_0.gguf"]
        context.ok("download", f"{REPO}:Q6_K", env=env)
        assert len(list(folder.glob("big-*.gguf"))) == 2
        missing = context.fails(1, "download", f"{REPO}:Q2_K", env=env)
        assert "Q8_0" in missing.err and "Q4_K_M" in missing.err, missing
        # rm of one quantisation leaves the others.
        out = context.ok("rm", f"{REPO}:Q6_K", "--yes", env=env)
        assert "4.0 kB freed" in out.out, out
        assert sorted(p.name for p in folder.glob("*.gguf")) == ["tiny.Q4_K_M.gguf", "tiny.Q8_0.gguf"]


def check_truncated_body_is_resumed(context):
    files = repository()
    env, folder = store_of(context, "d3")
    with Hub(files) as hub:
        env["HF_ENDPOINT"] = hub.url
        hub.cut, hub.cuts_left = {"model.safetensors": 100000}, 2
        out = context.ok("download", REPO, env=env)
        assert "trying again" in out.err, out
        assert (folder / "model.safetensors").read_bytes() == files[REPO]["model.safetensors"]
        ranges = [r[2].get("Range") for r in hub.bodies("model.safetensors")]
        assert ranges == [None, "bytes=100000-", "bytes=200000-"], ranges
        assert not partials(folder)


def check_server_without_ranges(context):
    files = repository()
    env, folder = store_of(context, "d4")
    with Hub(files) as hub:
        env["HF_ENDPOINT"] = hub.url
        hub.ranges = False
        hub.cut, hub.cuts_left = {"model.safetensors": 100000}, 1
        context.ok("download", REPO, env=env)
        assert (folder / "model.safetensors").read_bytes() == files[REPO]["model.safetensors"]


def check_killed_download_is_resumed(context):
    files = repository(**{"model.safetensors": content(3000000)})
    env, folder = store_of(context, "d5")
    with Hub(files) as hub:
        env["HF_ENDPOINT"] = hub.url
        hub.delay = lambda name, sent: time.sleep(0.05) if name == "model.safetensors" else None
        process = subprocess.Popen([context.mlxcel, "download", REPO], env=dict(context.environment, **env),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        half_done = wait_for_partial(folder, "model.safetensors", 200000)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (folder / "model.safetensors").exists(), "nothing half-done under its own name"
        kept = half_done.stat().st_size
        hub.delay = None
        # What is there is not taken for a model while offline.
        offline = context.fails(1, "run", "-m", REPO, "-p", "x", "--offline", env=env)
        assert "download incomplete?" in offline.err, offline
        context.ok("download", REPO, env=env)
        assert (folder / "model.safetensors").read_bytes() == files[REPO]["model.safetensors"]
        last = hub.bodies("model.safetensors")[-1][2].get("Range")
        assert last and int(last.split("=")[1].split("-")[0]) >= kept, last
        assert not partials(folder)


def check_changed_etag_starts_afresh(context):
    files = repository(**{"model.safetensors": content(500000, 1)})
    env, folder = store_of(context, "d6")
    with Hub(files) as hub:
        env["HF_ENDPOINT"] = hub.url
        hub.cut, hub.cuts_left = {"model.safetensors": 0}, 100
        hub.cut["model.safetensors"] = 50000
        hub.delay = None
        # Break off for good: refuse everything after the first piece.
        hub.cuts_left = 1
        hub.refusals = []
        process = subprocess.Popen([context.mlxcel, "download", REPO], env=dict(context.environment, **env),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for_partial(folder, "model.safetensors", 50000)
        process.kill()
        process.wait()
        new = content(500000, 2)
        files[REPO]["model.safetensors"] = new
        hub.cuts_left = 0
        context.ok("download", REPO, env=env)
        assert (folder / "model.safetensors").read_bytes() == new
        assert not partials(folder), "the stale partial file is gone"
        # The repository moves on: changed files are fetched again, others are not.
        newer = content(500000, 3)
        files[REPO]["model.safetensors"] = newer
        hub.commit = "b" * 40
        before = len(hub.requests)
        context.ok("download", REPO, env=env)
        assert (folder / "model.safetensors").read_bytes() == newer
        fetched = [r[1] for r in hub.requests[before:] if r[0] == "GET" and "/resolve/" in r[1]]
        assert len(fetched) == 1 and fetched[0].endswith("model.safetensors"), fetched


def check_two_at_once(context):
    files = repository(**{"model.safetensors": content(2000000)})
    env, folder = store_of(context, "d12")
    with Hub(files) as hub:
        env["HF_ENDPOINT"] = hub.url
        hub.delay = lambda name, sent: time.sleep(0.02)
        both = [subprocess.Popen([context.mlxcel, "download", REPO], env=dict(context.environment, **env),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
        texts = [p.communicate(timeout=60)[1].decode() for p in both]
        assert [p.returncode for p in both] == [0, 0], texts
        assert (folder / "model.safetensors").read_bytes() == files[REPO]["model.safetensors"]
        assert len(hub.bodies("model.safetensors")) == 1, "fetched once"
        assert any("another download" in t for t in texts), texts
        assert not partials(folder) and not (folder / ".mlxcel.lock").exists()


def check_offline(context):
    with Hub(repository()) as hub:
        for env in ({"LLAMA_ARG_OFFLINE": "1"}, {"HF_HUB_OFFLINE": "1"}, {"LLAMA_ARG_OFFLINE": "enabled"}):
            env = dict(env, HF_ENDPOINT=hub.url)
            out = context.fails(1, "download", REPO, env=env)
            assert "offline" in out.err, out
            out = context.fails(1, "inspect", "-m", REPO, env=env)
            assert "offline" in out.err, out
        out = context.fails(1, "run", "--offline", "-p", "x", env={"HF_ENDPOINT": hub.url})
        assert "scripts/fetch_model.sh" in out.err, out
        # A hub that cannot be reached is no end of it either.
        out = context.fails(1, "run", "-p", "x", env={"HF_ENDPOINT": "http://127.0.0.1:9"})
        assert "connect" in out.err and "scripts/fetch_model.sh" in out.err, out
        assert context.run("inspect", "-m", REPO, "--json", env={"HF_ENDPOINT": hub.url}).code == 1  # offline by nature
        assert not hub.requests, hub.requests


def check_usage_errors_touch_no_network(context):
    with Hub(repository()) as hub:
        env = {"HF_ENDPOINT": hub.url}
        for words in (["download", "https://host/owner/name"], ["download", "../x"], ["download"], ["download", "a/b/c"],
                      ["run", "-m", REPO, "--temp", "abc", "-p", "x"], ["run", "-m", REPO, "--nonsense"],
                      ["rm", "../x"]):
            context.fails(2, *words, env=env)
        out = context.fails(2, "download", "name", env=dict(env, MLXCEL_DEFAULT_ORG="a/b"))
        assert "MLXCEL_DEFAULT_ORG" in out.err
        out = context.fails(1, "download", REPO, env={"HF_ENDPOINT": "ftp://x"})
        assert "HF_ENDPOINT" in out.err
        assert not hub.requests


def check_model_is_fetched_when_named(context):
    tiny = context.tiny()
    files = {p.name: p.read_bytes() for p in tiny.iterdir()}
    env, folder = store_of(context, "d13")
    with Hub({REPO: files, "mlx-community/tiny": files}) as hub:
        env["HF_ENDPOINT"] = hub.url
        out = context.ok("run", "-m", REPO, "-p", "a", "-n", "3", env=env)
        assert "fetching" in out.err, out
        count = len(hub.requests)
        again = context.ok("run", "-m", REPO, "-p", "a", "-n", "3", env=env)
        assert len(hub.requests) == count and again.out == out.out
        # A snapshot that lost a file is completed, that file only.
        (folder / "model.safetensors").unlink()
        record = json.loads((folder / ".mlxcel.json").read_text())
        record["pending"] = ["model.safetensors"]
        (folder / ".mlxcel.json").write_text(json.dumps(record))
        context.ok("run", "-m", REPO, "-p", "a", "-n", "3", env=env)
        fetched = [r[1] for r in hub.requests[count:] if r[0] == "GET" and "/resolve/" in r[1]]
        assert len(fetched) == 1, fetched
        context.ok("inspect", "-m", "tiny", env=env, cwd="/")  # a bare name is the default organisation's
        assert context.ok("list", "-q", env=env).out.split() == [REPO, "mlx-community/tiny"]


def check_what_a_snapshot_lost_is_fetched_again(context):
    """Deleted, emptied or cut: that file comes, and no other. Offline it is named."""
    files = {p.name: p.read_bytes() for p in context.tiny().iterdir()}
    gguf = {"m.Q8_0.gguf": (models.write_llama_gguf(context.folder / "lost-gguf", "m")[0]).read_bytes(), "m.Q4_0.gguf": content(3000)}
    env, folder = store_of(context, "d22")
    run, whole = ["run", "-m", REPO, "-p", "a", "-n", "2"], files["model.safetensors"]
    with Hub({REPO: files, "acme/quants": gguf}) as hub:
        env["HF_ENDPOINT"] = hub.url
        want = context.ok(*run, env=env).out
        for name, text in (("model.safetensors", None), ("model.safetensors", b""), ("model.safetensors", whole[:-1]), ("tokenizer.json", None),
                           ("tokenizer.json", b"")):
            (folder / name).unlink()
            if text is not None:
                (folder / name).write_bytes(text)
            offline = context.fails(1, *run, "--offline", env=env)
            assert name in offline.err and "download incomplete?" in offline.err, offline
            before = len(hub.requests)
            assert context.ok(*run, env=env).out == want and (folder / name).read_bytes() == files[name]
            assert [r[1].split("/")[-1] for r in hub.requests[before:] if r[0] == "GET" and "/resolve/" in r[1]] == [name]
        # What was made larger by hand, or is no part of the model, stays as it is.
        (folder / "generation_config.json").unlink()
        before = len(hub.requests)
        assert context.ok(*run, env=env).out == want and len(hub.requests) == before
        inspect = ["inspect", "-m", "acme/quants:Q8_0"]
        context.ok(*inspect, env=env)
        file = folder.parent / "quants/m.Q8_0.gguf"
        file.write_bytes(gguf["m.Q8_0.gguf"][:-1])
        cut = context.fails(1, *inspect, "--json", env=env)
        assert "m.Q8_0.gguf" in cut.err and "download incomplete?" in cut.err, cut
        context.ok(*inspect, env=env)
        assert file.read_bytes() == gguf["m.Q8_0.gguf"] and not (folder.parent / "quants/m.Q4_0.gguf").exists()


def check_the_default_model_comes_once(context):
    files = {p.name: p.read_bytes() for p in context.tiny().iterdir()}
    env, folder = store_of(context, "d23")
    with Hub({"mlx-community/SmolLM2-135M-Instruct": files}) as hub:
        env["HF_ENDPOINT"] = hub.url
        first = context.ok("run", "-p", "a", "-n", "2", env=env)
        before = len(hub.requests)
        assert "fetching" in first.err and before > 0
        assert context.ok("run", "-p", "a", "-n", "2", env=env).out == first.out and len(hub.requests) == before
        # Drafters are references too.
        out = context.fails(1, "run", "-m", context.tiny(), "-p", "a", "--draft-model", "acme/none", "--offline", env=env)
        assert "acme/none" in out.err and len(hub.requests) == before, out


def check_revision(context):
    env, folder = store_of(context, "d14")
    with Hub(repository()) as hub:
        env["HF_ENDPOINT"] = hub.url
        context.ok("download", REPO, "--revision", "v1", env=env)
        hub.commit = "c" * 40
        out = context.fails(1, "download", REPO, "--revision", "main", env=env)
        assert "v1" in out.err and "another store" in out.err, out
        out = context.fails(2, "run", "-m", context.tiny(), "--revision", "v1", "-p", "x", env=env)
        assert "--revision" in out.err


def check_hugging_face_cache_is_reused(context):
    cache = context.folder / "hf"
    shutil.rmtree(cache, ignore_errors=True)
    snapshot = cache / "models--acme--cached/snapshots" / ("d" * 40)
    shutil.copytree(context.tiny(), snapshot)
    (cache / "models--acme--cached/refs").mkdir()
    (cache / "models--acme--cached/refs/main").write_text("d" * 40)
    with Hub(repository()) as hub:
        env = {"HF_ENDPOINT": hub.url}
        out = context.ok("download", "acme/cached", env=env)
        assert out.out.strip() == str(snapshot) and "cache" in out.err, out
        context.ok("run", "-m", "acme/cached", "-p", "a", "-n", "2", env=env)
        out = context.fails(1, "rm", "acme/cached", "--yes", env=env)
        assert "Hugging Face cache" in out.err and snapshot.exists(), out
        assert not hub.requests
        # An incomplete one is passed over, never written.
        (snapshot / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"a": "model.safetensors", "b": "gone.safetensors"}}))
        listing = sorted(p.name for p in snapshot.iterdir())
        context.fails(1, "run", "-m", "acme/cached", "-p", "a", env=env)
        assert sorted(p.name for p in snapshot.iterdir()) == listing
    shutil.rmtree(cache)


def check_rm(context):
    env, folder = store_of(context, "d15")
    with Hub(repository()) as hub:
        env["HF_ENDPOINT"] = hub.url
        context.ok("download", REPO, env=env)
        out = context.fails(2, "rm", REPO, env=env)
        assert "--yes" in out.err and folder.exists(), out
        # What is not there is told first, whether or not it would be asked about.
        for words in ([], ["--yes"]):
            out = context.fails(1, "rm", "acme/other", *words, env=env)
            assert "not in the store" in out.err and "--yes" not in out.err, out
        from terminal import Terminal
        with Terminal([context.mlxcel, "rm", REPO], dict(context.environment, **env)) as terminal:
            terminal.expect("delete acme/tiny (")
            terminal.line("n")
            assert terminal.wait() == 1 and folder.exists()
        context.fails(2, "rm", "../d15", "--yes", env=env)
        out = context.ok("rm", REPO, "--yes", env=env)
        assert "freed" in out.out and not folder.exists() and not folder.parent.exists(), out
        # A symlink in the store does not lead the deletion out of it.
        outside = context.folder / "precious"
        outside.mkdir()
        (outside / "config.json").write_text("{}")
        folder.parent.parent.mkdir(exist_ok=True)
        (folder.parent.parent / "evil").symlink_to(outside.parent)
        context.fails(1, "rm", "evil/precious", "--yes", env=env)
        assert (outside / "config.json").exists()


def check_server_program_downloads_too(context):
    env, folder = store_of(context, "d16")
    with Hub(repository()) as hub:
        env["HF_ENDPOINT"] = hub.url
        context.ok("download", REPO, env=env, program=context.server)
        assert (folder / "config.json").exists()
