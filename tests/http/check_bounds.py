"""Bounds that flags set and settings that change while the server runs: batches, kept prefixes, languages; what is told of them."""
import concurrent.futures
import pathlib
import tempfile
import time

from check_lifecycle import run_server
from check_messages import named_events
from harness import Connection, Server, encode_request, until

CHAT = "/v1/chat/completions"
STATS = "/v1/cache/stats"
WHOLE = "one two three four five six seven eight nine ten " * 8
FIGURES = """enabled entries bytes capacity_bytes lookups hits misses tokens_reused evictions kv_cache_mode_effective
snapshot_entries snapshot_bytes snapshot_capacity_bytes snapshot_hits snapshot_misses snapshot_tokens_reused snapshot_evictions
snapshot_bytes_per_entry snapshot_supersedes snapshot_self_evictions
disk_enabled disk_entries disk_bytes disk_capacity_bytes disk_hits disk_misses disk_corrupt disk_evictions
reject_too_short reject_model_owned_state reject_kv_mode_mismatch reject_fingerprint reject_oversize
pool_block_tokens pool_blocks_allocated pool_blocks_live pool_blocks_free pool_bytes_reserved pool_bytes_in_use pool_budget_bytes""".split()


def cached(found):
    return found.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def check_cache_figures_and_their_capacities(context):
    with context.start("--prompt-cache-capacity-bytes", "32M", "--prompt-cache-snapshot-capacity-bytes", "8M", "-np", "1") as server:
        server.chat(WHOLE, max_tokens=4)
        found = server.get(STATS).json()
        assert set(FIGURES) <= set(found), set(FIGURES) - set(found)
        assert found["capacity_bytes"] == 32 << 20 and found["snapshot_capacity_bytes"] == 8 << 20, found
        assert found["entries"] == 1 and 0 < found["bytes"] <= found["capacity_bytes"] and found["disk_enabled"] is False
        assert found["pool_blocks_live"] == found["pool_blocks_allocated"] - found["pool_blocks_free"]
        assert 0 < found["pool_bytes_reserved"] <= found["pool_budget_bytes"] and found["pool_bytes_in_use"] <= found["pool_budget_bytes"]
        reset = server.post("/v1/cache/reset", {}).json()
        assert reset["success"] and reset["entries"] == 1 and reset["bytes"] == found["bytes"], reset
        assert server.get(STATS).json()["entries"] == 0


def check_the_disk_tier_is_told_and_cleared(context):
    with tempfile.TemporaryDirectory() as folder:
        kept = pathlib.Path(folder) / "kept"
        start = lambda: context.start("--prompt-cache-dir", kept, "--prompt-cache-disk-bytes", "5M", "-np", "1")  # noqa: E731
        with start() as server:
            server.chat(WHOLE, max_tokens=4)
            assert until(lambda: list(kept.glob("*.prefix")))
            assert server.stop() == 0
        with start() as server:
            found = server.get(STATS).json()
            assert found["disk_enabled"] and found["disk_entries"] >= 1 and found["disk_bytes"] > 0 and found["disk_capacity_bytes"] == 5 << 20, found
            assert cached(server.chat(WHOLE, max_tokens=4)) > 0 and server.get(STATS).json()["disk_hits"] == 1
            assert server.post("/v1/cache/reset", {"disk": False}).status == 200
            assert list(kept.glob("*.prefix")) and cached(server.chat(WHOLE, max_tokens=4)) > 0, "memory alone was emptied"
            reset = server.post("/v1/cache/reset", {"disk": True}).json()
            assert reset["success"] and reset["entries"] >= 2, reset
            assert not list(kept.glob("*.prefix"))
            assert cached(server.chat(WHOLE, max_tokens=4)) == 0
            assert server.post("/v1/cache/reset", {"disk": 5}).status == 400


def check_bounds_of_kept_prefixes(context):
    with context.start("--prompt-cache-max-entries", "2", "-np", "1") as server:
        for i in range(4):
            server.chat(f"{i} " + WHOLE, max_tokens=2)
        found = server.get(STATS).json()
        assert found["entries"] == 2 and found["evictions"] == 2, found
    with context.start("-np", "1", env={"MLXCEL_PROMPT_CACHE_TTL": "0.3", "MLXCEL_PROMPT_CACHE_MIN_PREFIX": "16"}) as server:
        assert "32 is in effect" in server.output()
        server.chat(WHOLE, max_tokens=2)
        assert cached(server.chat(WHOLE, max_tokens=2)) > 0
        time.sleep(0.5)
        assert cached(server.chat(WHOLE, max_tokens=2)) == 0 and server.get(STATS).json()["expired"] == 1
    with context.start("--prompt-cache-min-prefix", "5000", "-np", "1") as server:
        server.chat(WHOLE, max_tokens=2)
        assert cached(server.chat(WHOLE, max_tokens=2)) == 0 and server.get(STATS).json()["reject_too_short"] == 2
    with context.start("--apc-enabled=false", "--apc-num-blocks", "40", "-np", "1") as server:
        half = WHOLE[:len(WHOLE) // 2]
        server.chat(half + "a" + half, max_tokens=2)
        assert cached(server.chat(half + "b" + half, max_tokens=2)) == 0, "an entry that is not wholly inside"
        assert cached(server.chat(half + "a" + half, max_tokens=2)) > 0


def check_flags_of_batches(context):
    with context.start("--max-batch-size", "2", "-c", "1024", "--metrics") as server:
        props = server.get("/props").json()
        assert props["total_slots"] == 4 and props["default_generation_settings"]["n_ctx"] == 512, "the window is divided by the rows of a step"
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = [f.result() for f in [pool.submit(server.chat, "[[count]]") for _ in range(4)]]
        assert {a.json()["choices"][0]["message"]["content"] for a in answers} == {" one two three four five six seven eight nine ten"}
    with context.start("--max-batch-size", "8", "--max-batch-prefill", "2", env={"MLXCEL_MAX_BATCH_PREFILL_TOKENS": "64"}) as server:
        assert server.get("/props").json()["total_slots"] == 8
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = [f.result() for f in [pool.submit(server.chat, f"{i} {'word ' * 30}[[space]]", max_tokens=4) for i in range(8)]]
        assert all(a.json()["choices"][0]["message"]["content"] == " hello" for a in answers)
    model = context.scripted_folder()
    for flags in (["--max-batch-size", "4", "-np", "2"], ["--max-batch-size", "2", "--no-batch"], ["--max-batch-size", "0"], ["--max-batch-prefill", "0"],
                  ["--max-batch-prefill-tokens", "-1"], ["--prompt-cache-max-entries", "0"], ["--prompt-cache-ttl", "-1"], ["--apc-num-blocks", "x"],
                  ["--apc-block-size", "64"], ["--max-batch-size", "2", "-c", "1000"]):
        found = run_server(context, "-m", model, "--port", "0", *flags)
        assert found.returncode == 2 and flags[0] in found.stderr or "-c" in flags and found.returncode == 2, (flags, found)


def check_settings_that_the_engine_follows(context):
    key = {"X-Api-Key": "k1"}
    with context.start("--settings", "--api-key", "k1,k2", "-np", "2", "-c", "1024", "--step-token-budget", "50") as server:
        patch = lambda body: server.request("PATCH", "/v1/settings", body, key)  # noqa: E731
        now = server.get("/v1/settings", headers=key).json()
        assert now["current"]["step_token_budget"] == 50 and now["current"]["max_concurrent_per_key"] == 0 and now["current"]["lang_bias"] is None, now["current"]
        assert patch({"step_token_budget": 9, "max_concurrent_per_key": 1}).status == 200
        assert server.get("/props", headers=key).json()["step_token_budget"] == 9
        found = patch({"step_token_budget": 1})
        assert found.status == 400 and found.json()["rejected"][0]["key"] == "step_token_budget", found.body
        assert patch({"step_token_budget": None}).status == 200
        # One row of a key at a time: its second request waits though there is a slot, another key's does not.
        body = {"messages": [{"role": "user", "content": "[[loop]]"}], "temperature": 0, "stream": True, "max_tokens": 400}
        with Connection(server) as one, Connection(server) as two:
            for connection in (one, two):
                connection.send(encode_request("POST", CHAT, body, key))
            one.head()
            one.chunk()
            busy = lambda: sum(s["is_processing"] for s in server.get("/slots", headers=key).json())  # noqa: E731
            assert until(lambda: busy() == 1)
            other = server.post(CHAT, {**body, "stream": False, "max_tokens": 3}, headers={"X-Api-Key": "k2"})
            assert other.status == 200, other.body
        assert until(lambda: busy() == 0)
    with context.start("--settings") as server:
        found = server.request("PATCH", "/v1/settings", {"max_concurrent_per_key": 1})
        assert found.status == 400 and "no API keys" in found.json()["rejected"][0]["reason"], found.body
        for name in ("max_denoising_steps", "diffusion_threshold", "diffusion_sampler", "diffusion_full_canvas"):
            found = server.request("PATCH", "/v1/settings", {name: None})
            assert found.status == 400 and "one token after another" in found.json()["rejected"][0]["reason"], found.body


def check_language_bias_is_live_and_counted(context):
    with context.start("--settings", "--metrics", env={"MLXCEL_LANG_BIAS_COUNTERS": "1"}) as server:
        text = lambda: server.chat("[[stop]]", max_tokens=12).json()["choices"][0]["message"]["content"]  # noqa: E731
        plain = text()
        assert plain.startswith("alpha") and server.metric("mlxcel_lang_bias_applied_total") == 0
        assert server.request("PATCH", "/v1/settings", {"lang_bias": "latin=-inf"}).status == 200
        assert server.get("/v1/settings").json()["current"]["lang_bias"] == "latin=-inf"
        biased = text()
        assert not any("a" <= c <= "z" for c in biased.lower()), biased
        applied, suppressed = server.metric("mlxcel_lang_bias_applied_total"), server.metric("mlxcel_lang_bias_tokens_suppressed_total")
        assert applied > 0 and 0 < suppressed <= applied, (applied, suppressed)
        assert server.metric("mlxcel_lang_bias_byte_fragment_suppressions_total") == 0
        found = server.request("PATCH", "/v1/settings", {"lang_bias": "klingon=1"})
        assert found.status == 400 and "klingon" in found.json()["rejected"][0]["reason"], found.body
        assert server.request("PATCH", "/v1/settings", {"lang_bias_policy": "loose"}).status == 400
        assert server.request("PATCH", "/v1/settings", {"lang_bias": None}).status == 200 and text() == plain
        assert server.metric("mlxcel_lang_bias_applied_total") == applied
    with context.start("--lang-bias", "latin=-inf", "--settings") as server:
        assert server.get("/v1/settings").json()["current"]["lang_bias"] == "latin=-inf"
        assert server.chat("[[stop]]", max_tokens=12).json()["choices"][0]["message"]["content"] == biased
        assert server.request("PATCH", "/v1/settings", {"op": "replace", "values": {"lang_bias": ""}}).status == 200
        assert server.chat("[[stop]]", max_tokens=12).json()["choices"][0]["message"]["content"] == plain


def check_progress_and_figures_in_a_response(context):
    body = {"input": WHOLE * 6 + "[[space]]", "temperature": 0, "stream": True}
    for size in (1, 7, 65536):
        plain = named_events(context.wide.post("/v1/responses", body, read_size=size).body)
        assert not any("prompt_progress" in e or "timings" in e for e in plain)
        with Server(context.binary, context.wide_folder(), "-b", "300") as server:
            events = named_events(server.post("/v1/responses", {**body, "return_progress": True, "timings_per_token": True}, read_size=size).body)
        progress = [e for e in events if "prompt_progress" in e]
        assert len(progress) > 3 and all(e["type"] == "response.in_progress" and e["response"]["status"] == "in_progress" for e in progress)
        done = [e["prompt_progress"]["processed"] for e in progress]
        assert done == sorted(done) and done[-1] == progress[-1]["prompt_progress"]["total"] == events[-1]["response"]["usage"]["input_tokens"], done
        deltas = [e for e in events if e["type"] == "response.output_text.delta"]
        assert deltas and all(e["timings"]["predicted_n"] >= 1 for e in deltas)
        assert events[-1]["type"] == "response.completed" and events[-1]["timings"]["prompt_n"] > 0
        assert "".join(e["delta"] for e in deltas) == " hello"
        assert [e["sequence_number"] for e in events] == list(range(len(events)))
    whole = context.wide.post("/v1/responses", {"input": "[[space]]", "temperature": 0, "return_progress": True, "timings_per_token": True}).json()
    assert whole["output_text"] == " hello" and "timings" not in whole
    assert context.wide.post("/v1/responses", {**body, "timings_per_token": "yes"}).status == 400
