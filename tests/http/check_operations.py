"""How a server is run: plain templates, hosts that may ask, logs as JSON, edits at load, figures with every token."""
import json
import pathlib
import tempfile

from check_lifecycle import run_server
from check_tools import CHAT, TOOLS
from harness import finishes, joined_chat, until


def check_no_jinja_is_plain_text(context):
    with context.start("--no-jinja") as server:
        prompt = server.post("/apply-template", {"messages": [{"role": "system", "content": "Be brief."},
                                                              {"role": "user", "content": "Hello"}]}).json()["prompt"]
        assert prompt == "System: Be brief.\nUser: Hello\nAssistant:", prompt
        found = server.chat("[[count]]", tools=TOOLS)
        assert found.status == 400 and found.json()["error"]["param"] == "tools", found.body
        assert server.chat("x", max_tokens=3).status == 200


def check_built_in_template_names_are_refused(context):
    for name in ("chatml", "llama3", "command-r"):
        found = run_server(context, "-m", context.scripted_folder(), "--chat-template", name)
        assert found.returncode == 2 and "--chat-template-file" in found.stderr, found.stderr


def check_names_of_other_hosts_are_refused(context):
    server = context.scripted
    for host in ("localhost", "127.0.0.1:8080", "[::1]:1", "mlxcel", "box.local:80", "a.localhost"):
        assert server.get("/health", headers={"Host": host}).status == 200, host
    for host in ("evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"):
        found = server.get("/health", headers={"Host": host})
        assert found.status == 403 and found.json()["error"]["type"] == "permission_error", (host, found.body)
    assert context.shared("keys").get("/health", headers={"Host": "public.example"}).status == 200
    with context.start("--allowed-hosts", "public.example") as own:
        assert own.get("/health", headers={"Host": "Public.Example:99"}).status == 200
        assert own.get("/health", headers={"Host": "evil.example"}).status == 403


def check_logs_as_json(context):
    secret = "sk-0123456789abcdef"
    with context.start("--log-jsonl", "--api-key", secret) as server:
        key = {"Authorization": f"Bearer {secret}", "X-Request-Id": "mine-1"}
        assert server.post(CHAT, {"messages": [{"role": "user", "content": "[[space]]"}]}, headers=key).status == 200
        server.get("/v1/models", headers={"Authorization": f"Bearer {secret}x"})
        lines = lambda: [json.loads(l) for l in server.output().splitlines() if l.startswith("{")]  # noqa: E731
        assert until(lambda: any(l.get("request_id") == "mine-1" for l in lines())), server.output()
        mine = next(l for l in lines() if l.get("request_id") == "mine-1")
        assert mine["route"] == CHAT and mine["status"] == 200 and mine["level"] == "info" and mine["finish"] == "stop", mine
        assert any(l.get("status") == 401 for l in lines())
        assert secret not in server.output() + server.errors()


def check_surgery_from_flag_and_environment(context):
    folder = pathlib.Path(tempfile.mkdtemp())
    good, bad = folder / "good.yaml", folder / "bad.yaml"
    good.write_text("version: 1\noperations:\n  - op: scale\n    pattern: lm_head.weight\n    factor: -1\n")
    bad.write_text("version: 1\noperations:\n  - op: nonsense\n")
    plain = context.scripted.chat("[[count]]", max_tokens=8).json()["choices"][0]["message"]["content"]
    for flags, env in ((("--surgery", good), {}), ((), {"MLXCEL_SURGERY": str(good)})):
        with context.start(*flags, env=env) as server:
            assert server.chat("[[count]]", max_tokens=8).json()["choices"][0]["message"]["content"] != plain
    found = run_server(context, "-m", context.scripted_folder(), "--surgery", bad)
    assert found.returncode == 2 and "bad.yaml" in found.stderr, found.stderr
    found = run_server(context, "-m", context.scripted_folder(), "--port", "0", env={"MLXCEL_SURGERY": str(folder / "none")})
    assert found.returncode == 2 and "MLXCEL_SURGERY" in found.stderr, found.stderr


def check_tools_beside_a_form(context):
    """With tools and tool_choice auto an answer is a call or obeys the form."""
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": {"enum": ["red", "green"]}}}
    call = context.wide.chat("[[tool]]", tools=TOOLS, response_format=form).json()["choices"][0]
    text = call["message"]["content"]
    assert call["message"].get("tool_calls") or json.loads(text) in ("red", "green"), call
    plain = context.wide.chat("[[count]]", tools=TOOLS, response_format=form).json()["choices"][0]
    assert plain["message"].get("tool_calls") or json.loads(plain["message"]["content"]) in ("red", "green"), plain
    none = context.wide.chat("[[count]]", tools=TOOLS, tool_choice="none", response_format=form).json()["choices"][0]
    assert json.loads(none["message"]["content"]) in ("red", "green")
    found = context.wide.chat("[[count]]", tools=TOOLS, grammar='root ::= "a"')
    assert found.status == 400 and found.json()["error"]["param"] == "grammar", found.body


def check_figures_with_every_token(context):
    body = {"messages": [{"role": "user", "content": "[[count]]"}], "temperature": 0, "stream": True, "timings_per_token": True}
    events = context.scripted.post(CHAT, body).events()
    counts = [e["timings"]["predicted_n"] for e in events if e != "[DONE]" and "timings" in e]
    assert len(counts) > 2 and counts == sorted(counts) and counts[0] >= 1, counts
    assert joined_chat(events) and finishes(events) == ["stop"]
    plain = context.scripted.post(CHAT, {**body, "timings_per_token": False}).events()
    assert sum("timings" in e for e in plain if e != "[DONE]") == 1
    texts = context.scripted.post("/v1/completions", {"prompt": "x[[count]]", "stream": True, "timings_per_token": True, "temperature": 0}).events()
    assert sum("timings" in e for e in texts if e != "[DONE]") > 2


def check_settings_are_read_and_changed(context):
    assert context.scripted.get("/v1/settings").status == 501
    with context.start("--settings", "--temp", "1", "--top-k", "1") as server:
        def patch(body, status=200):
            found = server.request("PATCH", "/v1/settings", body)
            assert found.status == status, found.body
            return found.json()
        first = server.get("/v1/settings").json()
        assert first["current"]["default_temperature"] == 1 and first["current"]["parallel"] == 4
        count = lambda: server.post("/completion", {"prompt": "x[[count]]", "ignore_eos": True}).json()  # noqa: E731
        done = patch({"default_n_predict": 4, "default_temperature": 0.25, "parallel": 2})
        assert done["applied"]["default_n_predict"] == 4 and done["rejected"][0]["key"] == "parallel"
        found = count()
        assert found["tokens_predicted"] == 4 and found["generation_settings"]["temperature"] == 0.25, found
        patch({"op": "merge", "values": {"default_n_predict": 5}, "if_fingerprint": first["fingerprint"]}, 409)
        patch({"parallel": 2}, 400)
        patch({"op": "replace", "values": {"default_n_predict": 2}})
        assert count()["generation_settings"]["temperature"] == 1
    found = run_server(context, "-m", context.scripted_folder(), "--settings", "--host", "0.0.0.0", "--port", "0")
    assert found.returncode == 2 and "--api-key" in found.stderr


def check_several_addresses(context):
    import socket
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return
    with context.start("--host", "127.0.0.1,::1") as server:
        assert server.get("/health").status == 200
        with socket.create_connection(("::1", server.port)) as sock:
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n")
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")


def check_metrics_on_a_port_of_their_own(context):
    import re
    import urllib.error
    import urllib.request
    with context.start("--metrics-port", "0") as server:
        port = re.search(r"metrics on http://127\.0\.0\.1:(\d+)/metrics", server.output())[1]
        assert server.chat("[[count]]").status == 200
        found = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")
        text = found.read().decode()
        assert found.headers["Process-Start-Time-Unix"].isdigit() and "llamacpp:tokens_predicted_total 10" in text, text
        assert server.get("/metrics").status == 501, "the first port serves them only with --metrics"
        for path in ("/health", "/v1/models", "/slots"):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}")
                raise AssertionError(path)
            except urllib.error.HTTPError as error:
                assert error.code == 404, path
        assert server.stop() == 0
    for flags, word in ((("--metrics-port", "70000"), "--metrics-port"), (("--port", "5001", "--metrics-port", "5001"), "--metrics-port"),
                        (("--host", "/tmp/no.sock", "--metrics-port", "5001"), "--metrics-port")):
        found = run_server(context, "-m", context.scripted_folder(), *flags)
        assert found.returncode == 2 and word in found.stderr, found.stderr


def check_what_the_metrics_tell(context):
    with context.start("--metrics", "--parallel", "2") as server:
        prompt = "a prompt of more than one page of thirty-two tokens, so that it is kept " + "[[count]]"
        for _ in range(2):
            server.post("/completion", {"prompt": prompt, "temperature": 0})
        server.post("/completion", {"prompt": "x[[space]]"})
        text = server.get("/metrics").body.decode()
        metric = server.metric
        steps = metric("llamacpp:n_decode_total")
        assert metric("mlxcel_step_tokens_count") == steps and metric('mlxcel_step_tokens_bucket{le="+Inf"}') == steps, text
        assert metric("mlxcel_step_tokens_sum") >= metric("llamacpp:prompt_tokens_total")
        buckets = [metric('mlxcel_step_tokens_bucket{le="%d"}' % (1 << i)) for i in range(13)]
        assert buckets == sorted(buckets) and buckets[0] > 0
        assert metric("mlxcel_batch_prefill_grants_total") >= 3 and metric("mlxcel_prompt_cache_hits_total") >= 1
        assert metric('mlxcel_prompt_cache_reject_total{reason="too_short"}') >= 1, text
        for name in ('mlxcel_prompt_cache_evictions_total{reason="capacity"}', "mlxcel_prompt_cache_snapshot_hits_total",
                     'mlxcel_prompt_cache_snapshot_evictions_total{reason="capacity"}', 'mlxcel_prompt_cache_bytes{store="snapshot"}',
                     'mlxcel_memory_bytes{kind="active"}', 'mlxcel_memory_bytes{kind="cache"}', 'mlxcel_memory_bytes{kind="limit"}',
                     'mlxcel_memory_bytes{kind="process"}', 'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"}',
                     "mlxcel_context_shifts_total", "mlxcel_step_token_budget"):
            assert metric(name) is not None, f"no {name} in {text}"
        # Every family is described once, and its values follow its description.
        families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
        assert len(families) == len(set(families))
        family = ""
        for line in text.splitlines():
            if line.startswith("# "):
                family = line.split()[2]
            else:
                assert line.startswith(family), (family, line)


def check_spans_to_a_collector_behind_tls(context):
    import http.server
    import ssl
    import threading
    from harness import self_signed
    folder = pathlib.Path(tempfile.mkdtemp())
    made = self_signed(folder)
    if not made:
        return
    seen = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made[0], made[1])
    listener.socket = tls.wrap_socket(listener.socket, server_side=True)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    endpoint = f"https://localhost:{listener.server_port}"
    try:
        with context.start("--otlp-endpoint", endpoint, env={"MLXCEL_EXTRA_CA_CERTS": str(made[0])}) as server:
            assert server.chat("[[space]]").status == 200
            assert until(lambda: seen, 10), server.output()[-500:]
            spans = seen[0][1]["resourceSpans"][0]["scopeSpans"][0]["spans"]
            assert seen[0][0] == "/v1/traces" and any(s["name"] == f"POST {CHAT}" for s in spans), seen
        seen.clear()
        with context.start("--otlp-endpoint", endpoint) as server:  # nobody vouches for it
            assert server.chat("[[space]]").status == 200
            assert until(lambda: "traces: the collector" in server.output(), 10), server.output()[-500:]
            assert not seen
    finally:
        listener.shutdown()


def check_a_form_of_every_answer(context):
    colour = json.dumps({"enum": ["red", "green"]})
    with context.start("--json-schema", colour) as server:
        assert json.loads(server.chat("[[count]]").json()["choices"][0]["message"]["content"]) in ("red", "green")
        assert json.loads(server.post("/completion", {"prompt": "x[[count]]", "temperature": 0}).json()["content"]) in ("red", "green")
        own = server.chat("[[count]]", grammar='root ::= "alpha"').json()["choices"][0]["message"]["content"]
        free = server.chat("[[count]]", response_format={"type": "text"}).json()["choices"][0]["message"]["content"]
        assert own == "alpha" and free.endswith(" ten"), (own, free)
    with context.start("--grammar", 'root ::= "alpha" | "beta"') as server:
        assert server.post("/v1/completions", {"prompt": "x[[count]]", "temperature": 0}).json()["choices"][0]["text"] in ("alpha", "beta")
    for flags in (("--grammar", "root ::= missing"), ("--json-schema", "{"), ("--json-schema", '{"$ref": "#/none"}'), ("--grammar-file", "/none"),
                  ("--grammar", 'root ::= "a"', "--json-schema", "{}")):
        found = run_server(context, "-m", context.scripted_folder(), "--port", "0", *flags)
        assert found.returncode == 2 and flags[0] in found.stderr, (flags, found.stderr)


def check_thoughts_return_to_histories(context):
    template = ("{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{% if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}"
                "{% endif %}{{ m['content'] }}{% endfor %}")
    turns = [{"role": "user", "content": "[[think]]"}, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "x"}]
    shown = "<|user|>[[think]]<|assistant|><think>because of that</think>Yes.<|user|>x"
    keys = {"a": {"Authorization": "Bearer key-a"}, "b": {"Authorization": "Bearer key-b"}}
    with context.start("--chat-template", template, "--api-key", "key-a,key-b") as server:
        ask = lambda who, more={}: server.post("/apply-template", {"messages": turns, **more}, headers=keys[who]).json()["prompt"]  # noqa: E731
        assert "because" not in ask("a")
        found = server.post(CHAT, {"messages": turns[:1], "temperature": 0}, headers=keys["a"]).json()["choices"][0]["message"]
        assert found["reasoning_content"] == "because of that" and found["content"] == "Yes.", found
        assert ask("a") == shown, ask("a")
        assert "because" not in ask("b"), "another key's thoughts"
        turns[1]["content"] = "No."
        assert "because" not in ask("a")
    turns[1]["content"] = "Yes."
    with context.start("--chat-template", template, env={"MLXCEL_REASONING_ECHO_MAX_BYTES": "0"}) as server:
        server.post(CHAT, {"messages": turns[:1], "temperature": 0})
        assert "because" not in server.post("/apply-template", {"messages": turns}).json()["prompt"]
