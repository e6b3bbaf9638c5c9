"""cli.md 2 and 3: every form of a model reference, the order of the places, completeness."""
import json
import shutil
import time

import models
from hub import Hub


def found_at(context, *words, **more):
    return context.json("inspect", "-m", *words, "--json", **more)["model_path"]


def place(context, name):
    folder = context.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def check_paths_are_taken_as_they_are(context):
    here = place(context, "paths")
    shutil.copytree(context.tiny(), here / "acme/tiny")
    models.write_llama_gguf(here / "one", "only")
    models.write_llama_gguf(here / "two", "a.Q8_0")
    models.write_llama_gguf(here / "two", "b.Q8_0")
    parts = models.write_llama_gguf(here / "set", "big", parts=3)
    assert found_at(context, here / "acme/tiny") == str(here / "acme/tiny")
    # It exists, so it is a path, though it looks like owner/name.
    assert found_at(context, "acme/tiny", cwd=here) == str(here / "acme/tiny")
    assert found_at(context, here / "one") == str(here / "one/only.gguf") == found_at(context, here / "one/only.gguf")
    several = context.fails(1, "inspect", "-m", here / "two")
    assert "2 GGUF models" in several.err and "a.Q8_0.gguf" in several.err, several
    whole = context.json("inspect", "-m", parts[0], "--json")
    for part in parts[1:]:
        assert context.json("inspect", "-m", part, "--json")["weights_bytes"] == whole["weights_bytes"], part
    one = context.json("inspect", "-m", here / "one", "--json")
    assert whole["weights_bytes"] == one["weights_bytes"]
    # A local path is never repaired: it is refused at once, by the file that is missing.
    parts[1].unlink()
    begun = time.monotonic()
    missing = context.fails(1, "run", "-m", parts[0], "-p", "x")
    assert "big-00002-of-00003.gguf" in missing.err and "download incomplete?" in missing.err, missing
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (here / "acme/tiny/model.safetensors.index.json").write_text(json.dumps(index))
    missing = context.fails(1, "run", "-m", here / "acme/tiny", "-p", "x")
    assert "model-00002-of-00002.safetensors" in missing.err and "download incomplete?" in missing.err, missing
    assert time.monotonic() - begun < 10, "two refusals are quick"
    # An index that names none of the shards is stale: the shards that are there are loaded, with a warning.
    (here / "acme/tiny/model.safetensors.index.json").write_text('{"weight_map": {"a": "old.safetensors"}}')
    stale = context.ok("run", "-m", here / "acme/tiny", "-p", "abc", "-n", "2")
    assert "warning" in stale.err and "index" in stale.err, stale


def check_places_in_their_order(context):
    here, store, cache = place(context, "order"), place(context, "order-store"), place(context, "order-hf")
    env = {"MLXCEL_MODELS_DIR": str(store), "HF_HUB_CACHE": str(cache)}
    local, snapshot, stored = here / "models/tiny", cache / "models--acme--tiny/snapshots" / ("e" * 40), store / "acme/tiny"
    for folder in (local, snapshot, stored):
        shutil.copytree(context.tiny(), folder)
    (cache / "models--acme--tiny/refs").mkdir()
    (cache / "models--acme--tiny/refs/main").write_text("e" * 40)
    files = {p.name: p.read_bytes() for p in context.tiny().iterdir()}
    with Hub({"acme/tiny": files}) as hub:
        env["HF_ENDPOINT"] = hub.url
        for folder in (local, snapshot, stored):
            assert found_at(context, "acme/tiny", cwd=here, env=env) == str(folder)
            assert not hub.requests
            shutil.rmtree(folder)
        out = context.ok("run", "-m", "acme/tiny", "-p", "abc", "-n", "2", cwd=here, env=env)
        assert hub.requests and (stored / "config.json").exists(), out
    # HF_HOME's hub folder stands in for HF_HUB_CACHE.
    moved = place(context, "order-home") / "hub"
    shutil.copytree(context.tiny(), moved / "models--acme--other/snapshots/main")
    assert found_at(context, "acme/other", env={"HF_HUB_CACHE": None, "HF_HOME": str(moved.parent)}).startswith(str(moved))


def check_quantisations_by_name(context):
    store = place(context, "quants")
    env = {"MLXCEL_MODELS_DIR": str(store)}
    folder = store / "acme/m"
    for stem in ("m.Q8_0", "m.Q4_K_M", "m-IQ4_XS"):
        models.write_llama_gguf(folder, stem)
    models.write_llama_gguf(folder, "m-Q6_K", parts=2)
    for reference, name in (("acme/m", "m.Q4_K_M"), ("acme/m:q8_0", "m.Q8_0"), ("acme/m:IQ4_XS", "m-IQ4_XS"),
                            ("acme/m:Q6_K", "m-Q6_K-00001-of-00002")):
        assert found_at(context, reference, env=env) == str(folder / f"{name}.gguf"), reference
    # One file by its name beats the quantisation.
    assert found_at(context, "acme/m:Q8_0", "--hf-file", "m-IQ4_XS.gguf", env=env) == str(folder / "m-IQ4_XS.gguf")
    (folder / "m.Q4_K_M.gguf").unlink()
    assert found_at(context, "acme/m", env=env) == str(folder / "m-IQ4_XS.gguf"), "without it: the first in name order"
    # Safetensors come first where both are there.
    for path in context.tiny().iterdir():
        shutil.copy(path, folder)
    assert found_at(context, "acme/m", env=env) == str(folder)
    assert found_at(context, "acme/m:Q8_0", env=env) == str(folder / "m.Q8_0.gguf")
    absent = context.fails(1, "inspect", "-m", "acme/m:Q2_K", "--json", env=env)
    assert "acme/m:Q2_K" in absent.err and absent.out == "", absent


def check_bare_names(context):
    store = place(context, "bare")
    env = {"MLXCEL_MODELS_DIR": str(store)}
    for owner in ("mlx-community", "acme"):
        shutil.copytree(context.tiny(), store / owner / "tiny")
    models.write_llama_gguf(store / "acme/g", "g.Q8_0")
    assert found_at(context, "tiny", cwd=store, env=env) == str(store / "mlx-community/tiny")
    assert found_at(context, "tiny", env=dict(env, MLXCEL_DEFAULT_ORG="acme"), cwd=store) == str(store / "acme/tiny")
    assert found_at(context, "tiny", env=dict(env, MLXCEL_DEFAULT_ORG=""), cwd=store) == str(store / "mlx-community/tiny")
    assert found_at(context, "g:Q8_0", env=dict(env, MLXCEL_DEFAULT_ORG="acme"), cwd=store) == str(store / "acme/g/g.Q8_0.gguf")
    for org in ("a/b", "..", "a b"):
        bad = context.fails(2, "run", "-m", "tiny", "-p", "x", env=dict(env, MLXCEL_DEFAULT_ORG=org), cwd=store)
        assert "MLXCEL_DEFAULT_ORG" in bad.err and bad.out == "", bad
    for reference in ("https://host/acme/tiny", "acme/../tiny", "a/b/c", "acme/ti ny", "acme/tiny:", ":Q8_0", "../nowhere/x", "acme/"):
        bad = context.fails(2, "run", "-m", reference, "-p", "x", env=env)
        assert "owner/name" in bad.err and "letters, digits" in bad.err, bad


def check_where_the_store_is(context):
    cache = place(context, "cacheroot")
    shutil.copytree(context.tiny(), cache / "models/acme/tiny")
    under = {"MLXCEL_MODELS_DIR": None, "MLXCEL_CACHE_DIR": str(cache)}
    assert found_at(context, "acme/tiny", env=under) == str(cache / "models/acme/tiny")
    # The variable names the root itself, and the flag beats it.
    assert found_at(context, "acme/tiny", env={"MLXCEL_MODELS_DIR": str(cache / "models")}) == str(cache / "models/acme/tiny")
    assert found_at(context, "acme/tiny", "--models-dir", cache / "models", env={"MLXCEL_MODELS_DIR": "/nowhere"}) == \
        str(cache / "models/acme/tiny")
    home = place(context, "homeroot")
    shutil.copytree(context.tiny(), home / ".cache/mlxcel/models/acme/tiny")
    own = {"MLXCEL_MODELS_DIR": None, "MLXCEL_CACHE_DIR": None, "HOME": str(home)}
    assert found_at(context, "acme/tiny", env=own) == str(home / ".cache/mlxcel/models/acme/tiny")
    # A folder right under the root is listed too.
    shutil.copytree(context.tiny(), cache / "models/bare")
    assert context.ok("list", "-q", env=under).out.split() == ["acme/tiny", "bare"]


def check_revisions(context):
    cache, store = place(context, "rev-hf"), place(context, "rev-store")
    repo = cache / "models--acme--tiny"
    for commit in ("1" * 40, "2" * 40):
        shutil.copytree(context.tiny(), repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs/main").write_text("1" * 40)
    (repo / "refs/v2").write_text("2" * 40)
    shutil.copytree(context.tiny(), store / "acme/tiny")
    here = place(context, "rev-here")
    shutil.copytree(context.tiny(), here / "models/tiny")
    env = {"HF_HUB_CACHE": str(cache), "MLXCEL_MODELS_DIR": str(store)}
    assert found_at(context, "acme/tiny", "--revision", "v2", cwd=here, env=env) == str(repo / "snapshots" / ("2" * 40))
    assert found_at(context, "acme/tiny", "--revision", "2" * 40, cwd=here, env=env).endswith("2" * 40)
    # The store has no revisions: another one than it holds is refused.
    with Hub({"acme/tiny": {"config.json": b"{}", "model.safetensors": b"x" * 2000}}) as hub:
        there = context.fails(1, "inspect", "-m", "acme/tiny", "--revision", "v1", env=dict(env, HF_ENDPOINT=hub.url))
        assert str(store) in there.err and "another store" in there.err, there
    # What --json may not fetch is not found.
    context.fails(1, "inspect", "-m", "acme/tiny", "--revision", "v9", "--json", env=env)


def check_a_drafter_is_no_model(context):
    folder = place(context, "dflash")
    for name, more in (("by-architecture", {"architectures": ["DFlashDraftModel"]}), ("by-block", {"dflash_config": {"block_size": 8}})):
        shutil.copytree(context.tiny(), folder / name)
        config = json.loads((folder / name / "config.json").read_text())
        (folder / name / "config.json").write_text(json.dumps(dict(config, **more)))
        refused = context.fails(1, "run", "-m", folder / name, "-p", "x")
        assert "DFlash" in refused.err and "--draft-model" in refused.err and refused.out == "", refused
