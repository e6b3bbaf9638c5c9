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
    assert found.returncode == 2 and "nonsense" in found.stderr, found.stderr
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
