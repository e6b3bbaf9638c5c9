"""`download` against a hub that refuses, lies and breaks off (hub.py)."""
import time

from hub import REPO, Hub, content, partials, repository, store_of


def check_statuses(context):
    env, folder = store_of(context, "d8")
    with Hub(repository()) as hub:
        env["HF_ENDPOINT"] = hub.url
        out = context.fails(1, "download", "acme/absent", env=env)
        assert "acme/absent" in out.err and "not found" in out.err, out
        out = context.fails(1, "download", REPO, "--revision", "nowhere", env=env)
        assert "nowhere" in out.err, out
        hub.refusals = [(429, {"Retry-After": "1"}), (503, {}), (500, {})]
        begun = time.monotonic()
        context.ok("download", REPO, env=env)
        assert time.monotonic() - begun >= 1, "Retry-After is kept"
        hub.refusals = [(429, {"Retry-After": "9999"})]
        out = context.fails(1, "download", REPO, "--force", env=env)
        assert "9999" in out.err, out
        hub.token = "secret"
        out = context.fails(1, "download", REPO, env=env)
        assert "token" in out.err and "401" in out.err, out
        # A token does not go over plain HTTP …
        out = context.fails(1, "download", REPO, "--token", "secret", env=env)
        assert "not HTTPS" in out.err and "secret" not in out.err, out
        # … unless asked for; the environment's names work too.
        env["MLXCEL_ALLOW_INSECURE_ENDPOINT"] = "1"
        context.ok("download", REPO, "--token", "secret", env=env)
        context.ok("download", REPO, "--force", env=dict(env, HF_TOKEN="secret"))
        out = context.fails(1, "download", REPO, "--force", env=dict(env, HUGGING_FACE_HUB_TOKEN="wrong"))
        assert "refuses the access token" in out.err and "wrong" not in out.err, out


def check_redirects(context):
    files = repository()
    env, folder = store_of(context, "d9")
    with Hub(files) as hub:
        hub.redirect, hub.token = True, "secret"
        env.update(HF_ENDPOINT=hub.url, HF_TOKEN="secret", MLXCEL_ALLOW_INSECURE_ENDPOINT="1")
        context.ok("download", REPO, env=env)
        assert (folder / "model.safetensors").read_bytes() == files[REPO]["model.safetensors"]
        elsewhere = [r for r in hub.requests if r[1].startswith("/cdn/")]
        assert elsewhere and all("Authorization" not in r[2] for r in elsewhere), "the token stays with the hub"


def check_path_tricks(context):
    for name in ("../outside.json", "/etc/outside.json", "a/../../outside.json", "a\\b.json", "a//b.json", ".", "c:/x.json"):
        env, folder = store_of(context, "d10")
        with Hub(repository()) as hub:
            env["HF_ENDPOINT"] = hub.url
            hub.listing = ["config.json", name]
            out = context.fails(1, "download", REPO, env=env)
            assert "refused" in out.err, out
            assert not list((context.folder / "d10").rglob("outside*")) and not (context.folder / "outside.json").exists()
    # A symlink inside the folder leads nowhere.
    env, folder = store_of(context, "d11")
    with Hub(repository()) as hub:
        env["HF_ENDPOINT"] = hub.url
        folder.mkdir(parents=True)
        (context.folder / "target").mkdir(exist_ok=True)
        (folder / "sub").symlink_to(context.folder / "target")
        out = context.fails(1, "download", REPO, env=env)
        assert "outside" in out.err, out
        assert not list((context.folder / "target").iterdir())


def check_wrong_bytes_are_not_kept(context):
    env, folder = store_of(context, "d7")
    with Hub(repository()) as hub:
        env["HF_ENDPOINT"] = hub.url
        hub.corrupt = {"model.safetensors"}
        out = context.fails(1, "download", REPO, env=env)
        assert "checksum" in out.err and "model.safetensors" in out.err, out
        assert not (folder / "model.safetensors").exists() and not partials(folder)
        hub.corrupt_left = 1  # once wrong, then right
        context.ok("download", REPO, env=env)
        hub.corrupt, hub.corrupt_left = {"config.json"}, 2
        context.fails(1, "download", REPO, "--force", env=env)  # git's checksum of small files


def check_listings_that_are_none(context):
    env, folder = store_of(context, "d19")
    with Hub(repository()) as hub:
        env["HF_ENDPOINT"] = hub.url
        for raw in (b"", b"{", b"[]", b"<html>", b'{"sha": "main"}', b'{"siblings": null}', b'{"siblings": [1]}',
                    b'{"siblings": [{"rfilename": 1}]}', b'{"sha": "../../x", "siblings": []}', b'{"siblings": []}',
                    b'{"siblings": [{"rfilename": "README.md"}]}',
                    b'{"siblings": [' + b",".join(b'{"rfilename": "%d.json"}' % i for i in range(20001)) + b"]}"):
            hub.raw_listing = raw
            out = context.fails(1, "download", REPO, env=env)
            assert REPO in out.err and not list(folder.rglob("*.json")), (raw[:60], out)


def check_sizes_that_lie(context):
    env, folder = store_of(context, "d20")
    with Hub(repository()) as hub:
        env["HF_ENDPOINT"] = hub.url
        for size, word in (("-5", "size"), ("1e3", "size"), ("9" * 30, "size"), ("1000", "longer than"), ("99999999999999999", "free")):
            hub.headers = {"model.safetensors": {"X-Linked-Size": size}}
            out = context.fails(1, "download", REPO, env=env)
            assert word in out.err and not (folder / "model.safetensors").exists(), (size, out)
        hub.headers = {}
        context.ok("download", REPO, env=env)


def check_gates_and_loops(context):
    env, folder = store_of(context, "d21")
    with Hub(repository()) as hub:
        env["HF_ENDPOINT"] = hub.url
        for status in (401, 403):
            hub.refusals = [(status, {"X-Error-Code": "GatedRepo"})]
            out = context.fails(1, "download", REPO, env=env)
            assert "gated" in out.err and "accept its terms" in out.err, out
        hub.refusals = [(404, {}), (404, {})]
        assert "not found on the hub" in context.fails(1, "download", REPO, env=env).err
        # What no later try will change is not tried again.
        before = len(hub.requests)
        hub.refusals = [(403, {})]
        context.fails(1, "download", REPO, env=env)
        assert len(hub.requests) == before + 1
        hub.loop = {"config.json"}
        out = context.fails(1, "download", REPO, env=env)
        assert "redirects" in out.err and "config.json" in out.err, out
        # A date in Retry-After is no reason to fail.
        hub.loop = set()
        hub.refusals = [(429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})]
        context.ok("download", REPO, env=env)


def check_unplugged_network(context):
    env, folder = store_of(context, "d17")
    begun = time.monotonic()
    for endpoint in ("http://127.0.0.1:9", "http://no-such-host.invalid"):
        out = context.fails(1, "run", "-m", REPO, "-p", "x", env=dict(env, HF_ENDPOINT=endpoint))
        assert endpoint in out.err and REPO in out.err, out
    assert time.monotonic() - begun < 45, "an unplugged network is told soon"
    # The cable goes while a file comes; the next try goes on where it stopped.
    files = repository(**{"model.safetensors": content(4 << 20)})
    with Hub(files) as hub:
        env["HF_ENDPOINT"] = hub.url

        def unplug(name, sent):
            if name == "model.safetensors" and sent >= 1 << 20:
                hub.http.socket.close()
                raise ConnectionResetError

        hub.delay = unplug
        out = context.fails(1, "download", REPO, env=env)
        assert hub.url in out.err, out
        kept = partials(folder)[0].stat().st_size
        assert kept > 0 and not (folder / "model.safetensors").exists()
    with Hub(files) as hub:
        env["HF_ENDPOINT"] = hub.url
        context.ok("download", REPO, env=env)
        assert (folder / "model.safetensors").read_bytes() == files[REPO]["model.safetensors"]
        assert hub.bodies("model.safetensors")[-1][2]["Range"] == f"bytes={kept}-"
