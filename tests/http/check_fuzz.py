"""Every route with bodies that are almost right: never a 500, never a dropped connection, never a hang."""
import copy
import json
import random

TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}
CHAT = {"model": "scripted", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "[[space]]"}]},
                                          {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                                          {"role": "tool", "tool_call_id": "c", "content": "r"}, {"role": "user", "content": "[[space]]"}],
        "temperature": 0, "max_tokens": 4, "tools": [TOOL], "tool_choice": "auto", "stream": False, "stop": ["x"], "logit_bias": {"3": 1}, "n": 1,
        "return_progress": True, "id_slot": 1, "n_keep": 1, "logprobs": True, "top_logprobs": 2, "seed": 1, "response_format": {"type": "text"}, "metadata": {"a": "b"}, "reasoning_effort": "low"}
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/chat/completions/input_tokens": CHAT,
    "/apply-template": CHAT,
    "/v1/completions": {"prompt": ["[[space]]", "x"], "max_tokens": 2, "echo": True, "logprobs": 1, "temperature": 0, "stop": "x"},
    "/v1/responses": {"input": [{"role": "user", "content": [{"type": "input_text", "text": "[[space]]"}]}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                                {"type": "function_call_output", "call_id": "c", "output": "r"}], "instructions": "i", "max_output_tokens": 4, "temperature": 0,
                      "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}], "text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"}},
    "/v1/messages": {"model": "m", "max_tokens": 4, "system": [{"type": "text", "text": "s"}], "messages": [{"role": "user", "content": [{"type": "text", "text": "[[space]]"}]},
                     {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}],
                     "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto"}, "stop_sequences": ["x"], "temperature": 0},
    "/v1/messages/count_tokens": {"model": "m", "messages": [{"role": "user", "content": "a"}]},
    "/api/chat": {"model": "scripted", "messages": [{"role": "user", "content": "[[space]]"}], "stream": False, "options": {"temperature": 0, "num_predict": 2, "stop": ["x"]}, "tools": [TOOL]},
    "/api/generate": {"model": "scripted", "prompt": "[[space]]", "stream": False, "options": {"num_predict": 2}, "context": [1, 2], "keep_alive": "5m"},
    "/api/show": {"model": "scripted", "verbose": True},
    "/api/embed": {"model": "scripted", "input": ["a"], "truncate": True},
    "/completion": {"prompt": "[[space]]", "n_predict": 2, "temperature": 0, "n_probs": 1, "id_slot": 0, "n_indent": 1, "n_discard": 2, "return_progress": True, "grammar": 'root ::= "a"', "grammar_lazy": True,
                    "grammar_triggers": [{"type": 1, "value": "a"}], "preserved_tokens": ["a"], "logit_bias": [[3, 1]], "response_fields": ["content"], "stop": ["x"]},
    "/tokenize": {"content": "a", "add_special": True, "with_pieces": True},
    "/detokenize": {"tokens": [1, 2]},
    "/embedding": {"content": "a"},
    "/rerank": {"query": "a", "documents": ["b"]},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "f", "text": "t"}]},
    "/v1/embeddings": {"input": ["a"], "encoding_format": "float"},
    "/lora-adapters": [{"id": 0, "scale": 1}],
}
HOSTILE = [None, True, 0, -1, 2 ** 40, -(2 ** 63), 1e308, 0.5, "", "x" * 2000, "\x00\x1f", "\ud7ff", [], {}, [[]], [None], {"": None}, [[[[[[[[]]]]]]]], {"type": "x"},
           {"type": "json_schema"}, ["a"] * 200, "auto", "required", "none", "<tool_call>{", {"a": {"b": {"c": {}}}}]


def places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], path + (key,))
    elif isinstance(value, list):
        for i in range(len(value)):
            yield from places(value[i], path + (i,))


def replaced(value, path, new):
    if not path:
        return new
    out = copy.deepcopy(value)
    inner = out
    for step in path[:-1]:
        inner = inner[step]
    if new is Ellipsis:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return out


def check_almost_right_bodies(context):
    rng = random.Random(7)
    server = context.wide
    for path, body in BODIES.items():
        spots = list(places(body))
        for _ in range(45):
            spot = rng.choice(spots)
            new = Ellipsis if spot and rng.random() < 0.15 else rng.choice(HOSTILE)
            changed = replaced(body, spot, new)
            if isinstance(changed, dict):
                changed = {**changed}
                for cap in ("max_tokens", "n_predict"):  # a hostile cap may run to the window's end: allowed, but slow
                    if isinstance(changed.get(cap), (int, float)) and changed[cap] > 64:
                        changed[cap] = 8
            found = server.post(path, changed, timeout=60)
            fine = found.status < 500 or found.status in (501,)
            assert fine, f"{path} {json.dumps(changed)[:300]}: {found.status} {found.body[:300]}"
            if found.status >= 400:
                error = json.loads(found.body)["error"]
                assert (error["message"] if isinstance(error, dict) else error), f"{path}: no message"
    assert server.get("/health").status == 200


# Routes that change what is served or kept, on a server of their own without a network.
OTHERS = {
    ("POST", "/v1/streams/lookup"): {"conversation_ids": ["a", "b"]},
    ("POST", "/v1/chat/completions/control"): {"id": "chatcmpl-x", "action": "reasoning_end"},
    ("POST", "/v1/responses/input_tokens"): BODIES["/v1/responses"],
    ("POST", "/v1/cache/reset"): {"disk": False},
    ("POST", "/props"): {"a": 1},
    ("POST", "/models"): {"model": "owner/name"},
    ("POST", "/models/load"): {"model": "owner/name"},
    ("POST", "/models/unload"): {"model": "owner/name"},
    ("DELETE", "/models?model=x"): {"model": "x"},
    ("POST", "/api/pull"): {"model": "owner/name", "stream": True, "insecure": False},
    ("DELETE", "/api/delete"): {"model": "owner/name"},
    ("POST", "/api/embeddings"): {"model": "scripted", "prompt": "a"},
    ("PATCH", "/v1/settings"): {"op": "merge", "values": {"default_temperature": 0.5, "default_n_predict": 4}, "if_fingerprint": "x"},
    ("POST", "/slots/0?action=save"): {"filename": "a.bin"},
    ("POST", "/slots/1?action=restore"): {"filename": "a.bin"},
    ("POST", "/slots/0?action=erase"): {},
    ("POST", "/predict"): {"instances": [{"@requestFormat": "chatCompletions", "messages": [{"role": "user", "content": "[[space]]"}], "max_tokens": 2},
                                         {"@requestFormat": "tokenize", "content": "a"}]},
}
SAME = {"/completions": "/completion", "/chat/completions": "/v1/chat/completions", "/responses": "/v1/responses", "/embeddings": "/embedding", "/settings": "/v1/settings",
        "/v1/rerank": "/rerank", "/v1/reranking": "/rerank", "/reranking": "/rerank", "/chat/completions/input_tokens": "/v1/chat/completions/input_tokens",
        "/responses/input_tokens": "/v1/responses/input_tokens", "/chat/completions/control": "/v1/chat/completions/control"}


def check_routes_that_change_things(context):
    rng = random.Random(11)
    import tempfile
    flags = ("--offline", "--settings", "--props", "--sleep-idle-seconds", "100000", "--slot-save-path", tempfile.mkdtemp())
    with context.start(*flags, env={"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "0", "MLXCEL_MODELS_DIR": str(context.folder / "no-store")}) as server:
        for (method, path), body in OTHERS.items():
            spots = list(places(body))
            for _ in range(30):
                spot = rng.choice(spots)
                changed = replaced(body, spot, Ellipsis if spot and rng.random() < 0.15 else rng.choice(HOSTILE))
                found = server.request(method, path, changed, timeout=60)
                assert found.status < 500 or found.status == 501, f"{method} {path} {json.dumps(changed)[:300]}: {found.status} {found.body[:300]}"
        assert server.get("/health").status == 200 and server.alive()
        assert server.chat("[[space]]").status == 200


def check_every_route_is_among_them(context):
    """A route that is added must be added here."""
    import subprocess
    tables = subprocess.run([context.binary, "--help-markdown"], check=True, capture_output=True, text=True).stdout
    rows = [line.split("|")[1:3] for line in tables.split("\n## Flags\n")[0].splitlines() if line.startswith("| `")]
    known = set(BODIES) | {path.split("?")[0] for _, path in OTHERS}
    # Without bodies, or refused whatever they say.
    known |= {"/tools", "/cors-proxy", "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations", "/audio/speech", "/audio/transcriptions", "/audio/translations",
              "/slots/{id}", "/v1/responses/{id}/cancel", "/responses/{id}/cancel", "/api/push", "/api/create", "/api/copy", "/api/blobs/{digest}"}
    for path, methods in ((p.strip(" `"), m) for p, m in rows):
        if "POST" in methods or "PATCH" in methods:
            assert SAME.get(path, path) in known, f"{path} is not fuzzed"
