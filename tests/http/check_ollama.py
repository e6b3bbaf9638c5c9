"""Ollama's /api: lines, durations, tools, thoughts, lists of models, errors in their own shape."""
import json

from check_tools import TOOLS


def lines(found):
    assert found.headers["content-type"] == "application/x-ndjson", found.headers
    return [json.loads(line) for line in found.body.decode().splitlines()]


def chat(context, text, size=65536, **fields):
    body = {"model": "scripted", "messages": [{"role": "user", "content": text}], "options": {"temperature": 0}, **fields}
    return context.wide.post("/api/chat", body, read_size=size)


def check_chat(context):
    for size in (1, 7, 65536):
        out = lines(chat(context, "[[count]]", size))
        assert "".join(l["message"]["content"] for l in out) == " one two three four five six seven eight nine ten"
        assert all(not l["done"] for l in out[:-1]) and out[-1]["done"] and out[-1]["done_reason"] == "stop"
        assert out[-1]["eval_count"] == 10 and out[-1]["total_duration"] > 0 and out[-1]["prompt_eval_count"] > 0
    whole = chat(context, "[[count]]", stream=False).json()
    assert whole["message"]["content"].endswith(" ten") and whole["done"] is True and whole["created_at"].endswith("Z")
    assert lines(chat(context, "[[count]]", options={"temperature": 0, "num_predict": 2}))[-1]["done_reason"] == "length"


def check_tools_and_thoughts(context):
    whole = chat(context, "[[tools]]", stream=False, tools=TOOLS).json()["message"]
    assert [c["function"]["name"] for c in whole["tool_calls"]] == ["get_weather", "search"]
    assert whole["tool_calls"][0]["function"]["arguments"] == {"city": "Oslo"}
    out = lines(chat(context, "[[tool]]", 7, tools=TOOLS))
    assert [c["function"]["arguments"] for l in out for c in l["message"].get("tool_calls", [])] == [{"city": "Paris"}]
    thought = chat(context, "[[think]]", stream=False, think=True).json()["message"]
    assert thought["content"] == "Yes." and thought["thinking"] == "because of that"


def check_generate(context):
    body = {"model": "scripted:latest", "prompt": "[[count]]", "options": {"temperature": 0}, "stream": False}
    whole = context.scripted.post("/api/generate", body).json()
    assert whole["response"].endswith(" ten") and len(whole["context"]) > 10
    raw = context.scripted.post("/api/generate", {**body, "raw": True}).json()
    assert raw["response"].endswith(" ten") and "context" not in raw
    out = lines(context.scripted.post("/api/generate", {**body, "stream": True}, read_size=1))
    assert "".join(l["response"] for l in out) == whole["response"]
    again = context.scripted.post("/api/generate", {**body, "prompt": "[[space]]", "context": whole["context"]}).json()
    assert again["response"] == " hello" and again["prompt_eval_count"] > len(whole["context"])
    for empty in ({"model": "scripted"}, {"model": "scripted", "prompt": ""}):
        assert lines(context.scripted.post("/api/generate", empty))[-1]["done_reason"] == "load"


def check_lists(context):
    server = context.scripted
    assert server.get("/api/version").json()["version"] == "0.12.0"
    tags = server.get("/api/tags").json()["models"]
    assert tags[0]["name"] == "scripted" and len(tags[0]["digest"]) == 64 and tags[0]["details"]["format"] == "safetensors"
    ps = server.get("/api/ps").json()["models"]
    assert [m["name"] for m in ps] == ["scripted"] and ps[0]["context_length"] > 0
    shown = server.post("/api/show", {"model": "scripted"}).json()
    assert "completion" in shown["capabilities"] and "tools" in shown["capabilities"]
    assert shown["model_info"]["general.architecture"] and "role" in shown["template"]


def check_errors(context):
    server = context.scripted
    for path, body, status in (("/api/chat", {"model": "other", "messages": [{"role": "user", "content": "a"}]}, 404),
                               ("/api/chat", {"messages": []}, 400), ("/api/show", {"model": "other"}, 404),
                               ("/api/chat", {"model": "scripted", "messages": [{"role": "user", "content": "a"}], "options": {"num_ctx": 100000}}, 400),
                               ("/api/chat", {"model": "scripted", "messages": [{"role": "user", "content": "a"}], "format": "xml"}, 400),
                               ("/api/embed", {"model": "scripted", "input": "a"}, 501), ("/api/create", {}, 501)):
        found = server.post(path, body)
        assert found.status == status and list(found.json()) == ["error"] and isinstance(found.json()["error"], str), f"{path}: {found.status} {found.body[:200]}"
    found = server.request("POST", "/api/chat", b'{"model": "scripted", "stream": false, "messages": [{"role": "user", "content": "[[space]]"}], "options": {"temperature": 0, "num_gpu": 1}}',
                           {"Content-Type": "application/x-www-form-urlencoded"})
    assert found.json()["message"]["content"] == " hello" and found.headers["x-mlxcel-ignored-fields"] == "options.num_gpu"
