"""KV modes as they are asked for and told, prompts that outlive the server, budgets."""
import os
import pathlib
import subprocess
import tempfile

ALL_LAYERS = ["--no-kv-skip-last-layer", "--turbo-boundary-v", "0"]  # the scripted model has one


def refused(context, code, *flags):
    found = subprocess.run([context.binary, "-m", context.scripted_folder(), "--port", "0", *map(str, flags)],
                           capture_output=True, text=True, timeout=60)
    assert found.returncode == code, f"{flags}: exit {found.returncode}, {found.stderr[-300:]}"
    return found.stderr


def check_kv_modes_are_applied_and_told(context):
    for flags, mode in ((["--cache-type-k", "q8_0", "--cache-type-v", "q8_0"], "int8"),
                        (["-ctk", "turbo4", "-ctv", "q4_0"], "turbo4"), (["--kv-bits", "3"], "turbo3-asym"),
                        (["--kv-cache-mode", "fp16+turbo4"], "turbo4-asym")):
        with context.start(*flags, *ALL_LAYERS) as server:
            told = f"{mode}: applied to 1 of 1 layers"
            assert f"KV cache: {told}" in server.output(), server.output()
            assert server.get("/props").json()["kv_cache_mode"] == told
            assert server.get("/v1/cache/stats").json()["kv_cache_mode_effective"] == told
            assert server.chat("say hello", max_tokens=4).status == 200


def check_kv_modes_that_cannot_be(context):
    assert "turbo4" in refused(context, 2, "--cache-type-k", "q5_1")
    assert "cache-type-v" in refused(context, 2, "--cache-type-k", "int8")
    assert "fp16" in refused(context, 2, "--kv-cache-mode", "turbo9")
    refused(context, 2, "--kv-bits", "5")
    refused(context, 2, "--kv-admission-watermark", "0.7")
    refused(context, 2, "--kv-cache-budget", "lots")
    # One layer, and that is the last: said before the server is ready.
    assert "kv-skip-last-layer" in refused(context, 1, "--kv-cache-mode", "turbo4")


def check_a_pool_too_small_for_the_window(context):
    assert "window" in refused(context, 1, "--kv-cache-budget", "1K", "-c", "512", "-np", "1")
    with context.start("--kv-cache-budget", "64M", "--kv-admission-watermark", "0.1", "--enable-preemption") as server:
        assert server.chat("say hello", max_tokens=4).status == 200


def check_H4_the_prompt_outlives_the_server(context):
    with tempfile.TemporaryDirectory() as folder:
        kept = pathlib.Path(folder) / "prompts"
        text = "one two three four five six seven eight nine ten " * 8
        answers, cached = [], []
        for _ in range(2):
            with context.start("--prompt-cache-dir", kept, "-np", "1") as server:
                answer = server.chat(text, max_tokens=6).json()
                answers.append(answer["choices"][0]["message"]["content"])
                usage = answer["usage"]
                cached.append(usage["prompt_tokens_details"]["cached_tokens"])
                assert server.stop() == 0
        assert answers[0] == answers[1]
        assert cached[0] == 0 and 0 < cached[1] < usage["prompt_tokens"], cached
        assert os.stat(kept).st_mode & 0o777 == 0o700
        files = list(kept.iterdir())
        assert files and all(f.stat().st_mode & 0o777 == 0o600 for f in files)
        for file in files:
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
        with context.start("--prompt-cache-dir", kept, "-np", "1") as server:
            answer = server.chat(text, max_tokens=6).json()
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
            assert answer["choices"][0]["message"]["content"] == answers[0]
            assert server.get("/v1/cache/stats").json()["disk_corrupt"] >= 1
