"""Starting, loading, draining, dying; flags that are wrong."""
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

from harness import Connection, Server, encode_request, until

CHAT = "/v1/chat/completions"


def run_server(context, *flags, env=None):
    return subprocess.run([context.binary, *map(str, flags)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **(env or {})})


def check_startup_lines(context):
    lines = context.scripted.output().splitlines()
    first = [l for l in lines if not l.startswith("20")]
    assert first[0].startswith("mlxcel ") and "backends:" in first[0], first[:3]
    joined = "\n".join(lines)
    for word in ("device:", "model: scripted", "KV cache:", "slots: 4", "window 512", "ready on http://127.0.0.1:"):
        assert word in joined, f"no {word!r} in {joined}"


def check_usage_errors_exit_2(context):
    model = context.scripted_folder()
    for flags in (["--no-such-flag"], ["-m", model, "--port", "99999"], ["-m", model, "--port", "x"],
                  ["-m", model, "--models-dir", "/tmp"], ["--models-preset", "/nonexistent"],
                  ["-m", model, "--parallel", "0"], ["-m", model, "-c", "600", "--parallel", "4"],
                  ["-m", model, "--ssl-cert-file", "x.pem"], ["-m", model, "--allowed-origins", "nonsense"],
                  ["-m", model, "--chat-template-kwargs", "[1]"], ["-m", model, "--api-key-file", "/nonexistent"],
                  ["-m", "a/b/c/d:e"], ["-m", model, "--log-file", "/nonexistent/x.log"],
                  ["-m", model, "--temp", "-1"], ["-m", model, "--dry-base", "0.5"], ["-m", model, "--adaptive-decay", "1"],
                  ["-m", model, "-l", "5+1000"], ["-m", model, "--dry-sequence-breaker", "x" * 65], ["-m", model, "positional"]):
        found = run_server(context, *flags)
        assert found.returncode == 2, f"{flags}: exit {found.returncode}, {found.stderr[-300:]}"
        assert found.stderr.strip() and not found.stdout, f"{flags}: {found.stdout[:200]}"


def check_help_and_version(context):
    found = run_server(context, "--help")
    assert found.returncode == 0 and "--ssl-cert-file" in found.stdout and "Examples:" in found.stdout
    found = run_server(context, "--version")
    assert found.returncode == 0 and found.stdout.startswith("mlxcel ")


def check_failed_load_exits_1(context):
    with tempfile.TemporaryDirectory() as folder:
        broken = pathlib.Path(folder) / "broken.gguf"
        broken.write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 40)
        found = run_server(context, "-m", broken, "--port", "0")
        assert found.returncode == 1 and found.stderr.strip(), f"{found.returncode} {found.stderr}"
        found = run_server(context, "-m", "nobody/nothing", "--port", "0", env={"MLXCEL_CACHE_DIR": folder, "HF_HOME": folder})
        assert found.returncode == 1, f"{found.returncode} {found.stderr}"


def check_flags_that_no_request_could_run_with(context):
    """What the engine would refuse of every request ends start-up instead, and names the flag."""
    found = run_server(context, "-m", context.scripted_folder(), "--port", "0", "--logit-bias", "99999999+1")
    assert found.returncode == 1 and "--logit-bias: key 99999999" in found.stderr, found
    found = run_server(context, "-m", "acme/absent", "--logit-bias", "5+1000")
    assert found.returncode == 2 and "--logit-bias 5+1000: expected a bias from -100 to 100" in found.stderr, found


def check_port_in_use_exits_1(context):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = run_server(context, "-m", context.scripted_folder(), "--port", taken.getsockname()[1])
        assert found.returncode == 1 and "listen" in found.stderr, found.stderr


def check_flags_from_the_environment(context):
    env = {"LLAMA_ARG_ENDPOINT_METRICS": "1", "LLAMA_API_KEY": "from-the-environment", "LLAMA_ARG_ALIAS": "zeta,alpha"}
    with context.start("--api-key", "from-the-flag", env=env) as server:
        for key in ("from-the-environment", "from-the-flag"):
            assert server.get("/metrics", headers={"X-Api-Key": key}).status == 200
        models = server.get("/v1/models", headers={"X-Api-Key": "from-the-flag"}).json()
        assert models["data"][0]["id"] == "alpha" and models["data"][0]["aliases"] == ["alpha", "zeta"]
        text = server.output() + server.errors()
        assert "from-the-environment" not in text and "from-the-flag" not in text, "a key stands in the log"


def check_api_prefix(context):
    with context.start("--api-prefix", "/llm/") as server:
        assert server.get("/llm/health").status == 200
        assert server.get("/health").status == 404


def check_allowed_origins(context):
    with context.start("--allowed-origins", "https://good.example") as server:
        assert server.get("/v1/models", headers={"Origin": "https://good.example"}).status == 200
        assert server.get("/v1/models", headers={"Origin": "https://evil.example"}).status == 403
        assert server.get("/v1/models").status == 200


def check_unix_socket(context):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/s.sock"
        server = context.start("--host", path, wait=False)
        with server:
            server.wait_line(r"ready on unix:")
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(path)
                sock.sendall(encode_request("GET", "/health", headers={"Connection": "close"}))
                data = b""
                while piece := sock.recv(4096):
                    data += piece
            assert b'{"status":"ok"}' in data
            assert os.stat(path).st_mode & 0o077 == 0
            assert server.stop() == 0
            assert not os.path.exists(path)


def check_health_while_loading(context):
    """Before the model is there the server answers: health says so, everything else waits outside."""
    if not context.real_model:
        from run import Skip
        raise Skip("needs a model that takes a moment to load")
    server = Server(context.binary, context.real_model, wait=False)
    with server:
        server.port = int(server.wait_line(r"listening on http://[^ ]*:(\d+)")[1])
        found = server.get("/health")
        if found.status == 503:
            error = found.json()["error"]
            assert error["message"] == "Loading model" and error["type"] == "unavailable_error" and error["code"] == 503
            assert server.get("/v1/health").status in (200, 503)
        server.wait_ready()
        assert server.get("/health").status == 200


def check_signal_while_loading(context):
    server = context.start(wait=False)
    with server:
        server.wait_line(r"listening on")
        assert server.stop() == 0


def check_sigterm_drains(context):
    """A running stream ends properly, new requests are refused, the exit status is 0."""
    for how in (signal.SIGTERM, signal.SIGINT):
        with context.start("--parallel", "2", "-c", "1024") as server:
            streaming = Connection(server, 60)
            waiting = Connection(server, 60)
            waiting.send(encode_request("GET", "/health"))
            assert waiting.response().status == 200
            body = {"messages": [{"role": "user", "content": "[[loop]]"}], "temperature": 0, "stream": True, "max_tokens": 60}
            streaming.send(encode_request("POST", CHAT, body))
            status, _ = streaming.head()
            streaming.chunk()
            server.process.send_signal(how)
            text = b""
            while piece := streaming.chunk():
                text += piece
            assert status == 200 and text.endswith(b"data: [DONE]\n\n"), text[-200:]
            assert waiting.closed(), "an idle connection survives the drain"
            try:
                refused = server.get("/health")
                assert refused.status == 503
            except ConnectionError:
                pass
            assert server.process.wait(40) == 0


def check_second_signal_kills(context):
    with context.start("--parallel", "1", "-c", "512") as server:
        connection = Connection(server, 60)
        body = {"prompt": "[[loop]]", "temperature": 0, "stream": True, "max_tokens": 500}
        connection.send(encode_request("POST", "/v1/completions", body))
        connection.head()
        os.kill(server.process.pid, signal.SIGSTOP)  # so that both signals meet the stream still running
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGINT)
        os.kill(server.process.pid, signal.SIGCONT)
        begun = time.monotonic()
        code = server.process.wait(20)
        assert code in (-signal.SIGTERM, -signal.SIGINT, 0), code
        assert time.monotonic() - begun < 10


def check_log_file(context):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "server.log"
        with context.start("--log-file", path) as server:
            server.chat("[[space]]")
            assert until(lambda: "/v1/chat/completions" in path.read_text())
            line = [l for l in path.read_text().splitlines() if "/v1/chat/completions" in l][0]
            for part in ("model=scripted", "status=200", "finish=stop", "tokens="):
                assert part in line, line
            assert path.stat().st_mode & 0o777 == 0o600
        os.symlink(path, pathlib.Path(folder) / "link.log")
        found = run_server(context, "-m", context.scripted_folder(), "--log-file", pathlib.Path(folder) / "link.log")
        assert found.returncode == 2, found.returncode


def check_metrics_count(context):
    server = context.scripted
    before = server.metric("llamacpp:tokens_predicted_total")
    server.chat("[[count]]")
    after = server.metric("llamacpp:tokens_predicted_total")
    assert after >= before + 10, f"{before} -> {after}"
    text = server.get("/metrics").body.decode()
    for name in ("llamacpp:prompt_tokens_total", "llamacpp:n_decode_total", "mlxcel_requests_total", "mlxcel_batch_rows",
                 "mlxcel_time_to_first_token_seconds_bucket", "mlxcel_inter_token_gap_seconds_count",
                 'mlxcel_memory_bytes{kind="peak"}', 'mlxcel_kv_pool_blocks{state="free"}', "mlxcel_build_info{", "mlxcel_model_info{"):
        assert name in text, f"no {name}"
    for line in text.splitlines():
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2 and float(line.rsplit(" ", 1)[1]) >= 0, line


def check_systemd_is_told_when_the_server_is_ready(context):
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/notify"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.bind(path)
        listener.settimeout(60)
        with context.start(env={"NOTIFY_SOCKET": path}) as server:
            said = [listener.recv(100), listener.recv(100)]
            assert said == [b"STATUS=loading the model", b"READY=1"], said
            server.stop()
            assert listener.recv(100) == b"STOPPING=1"
        listener.close()
