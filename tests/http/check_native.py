"""llama-server's own routes: completion, tokens, templates, props, slots, infill."""
from harness import until


def complete(context, prompt, size=65536, **fields):
    return context.scripted.post("/completion", {"prompt": prompt, "temperature": 0, **fields}, read_size=size)


def check_completion(context):
    found = complete(context, "[[count]]", n_predict=64).json()
    assert found["content"].endswith(" ten") and found["stop"] is True and found["stop_type"] == "eos"
    assert found["tokens_predicted"] == 10 and found["tokens_cached"] == found["tokens_evaluated"] + 9
    assert found["tokens"] == [] and found["prompt"] == "[[count]]" and found["timings"]["predicted_n"] == 10
    settings = found["generation_settings"]
    assert settings["temperature"] == 0 and settings["n_predict"] == 64 and "temperature" in settings["samplers"]
    assert complete(context, "[[count]]", n_predict=3).json()["stop_type"] == "limit"
    word = complete(context, "[[stop]]", stop=["beta gamma"]).json()
    assert word["content"] == "alpha" and word["stop_type"] == "word" and word["stopping_word"] == "beta gamma"
    assert len(complete(context, "[[count]]", return_tokens=True).json()["tokens"]) == 10
    assert complete(context, "[[count]]", n_predict=0).json()["tokens_predicted"] == 0


def check_h32_zero_is_a_value(context):
    settings = complete(context, "[[flat]]", n_predict=1, top_p=0, seed=0, presence_penalty=0, min_p=0).json()["generation_settings"]
    assert settings["temperature"] == 0 and settings["top_p"] == 0 and settings["seed"] == 0 and settings["min_p"] == 0
    assert len({complete(context, "[[flat]]", n_predict=4).json()["content"] for _ in range(5)}) == 1


def check_stream(context):
    for size in (1, 7, 65536):
        events = complete(context, "[[long]]", size, stream=True).events()
        assert "".join(e["content"] for e in events) == "A long answer that goes on and on and stops."
        assert all(e["stop"] is False and len(e["tokens"]) >= 1 for e in events[:-1])
        assert events[-1]["stop"] is True and events[-1]["stop_type"] == "eos" and events[-1]["content"] == ""


def check_prompts_of_every_kind(context):
    ids = context.token_ids()
    many = complete(context, ["[[count]]", "[[space]]"]).json()
    assert [m["content"][:4] for m in many] == [" one", " hel"] and [m["index"] for m in many] == [0, 1]
    assert complete(context, [ids["[[space]]"]]).json()["content"] == " hello"
    assert complete(context, ["x ", ids["[[space]]"]]).json()["content"] == " hello"
    assert complete(context, {"prompt_string": "[[space]]"}).json()["content"] == " hello"
    assert len(complete(context, "[[flat]]", n=3, n_predict=2).json()) == 3
    for wrong in ([[]], [{}], 5, [1e9], ["a", None], None):
        assert complete(context, wrong).status in (200, 400), wrong


def check_probabilities(context):
    found = complete(context, "[[dist]]", n_predict=1, n_probs=3).json()["completion_probabilities"]
    assert len(found) == 1 and found[0]["token"] == " half" and abs(found[0]["logprob"] + 0.6931) < 1e-3
    assert len(found[0]["top_logprobs"]) == 3 and bytes(found[0]["bytes"]) == b" half" and isinstance(found[0]["id"], int)


def check_logit_bias_forms(context):
    ids = context.token_ids()
    quarter = ids[" quarter"]
    for bias in ([[quarter, 50]], {str(quarter): 50}, [[ids[" half"], False]]):
        assert complete(context, "[[dist]]", n_predict=1, logit_bias=bias).json()["content"] == " quarter", bias
    for bias in ([["x", 100]], {"x": 100}):  # by text
        assert complete(context, "[[dist]]", n_predict=1, logit_bias=bias).json()["content"] == "x", bias


def check_response_fields(context):
    found = complete(context, "[[space]]", response_fields=["content", "generation_settings/seed", "missing", "timings/x"]).json()
    assert set(found) == {"content", "generation_settings/seed"} and found["content"] == " hello"


def check_tokens(context):
    server = context.scripted
    tokens = server.post("/tokenize", {"content": "[[count]] x"}).json()["tokens"]
    assert tokens[0] == context.token_ids()["[[count]]"]
    assert server.post("/detokenize", {"tokens": tokens}).json()["content"] == "[[count]] x"
    pieces = server.post("/tokenize", {"content": "é", "with_pieces": True}).json()["tokens"]
    assert all(isinstance(p["piece"], (str, list)) for p in pieces)
    assert server.post("/tokenize", {}).json() == {"tokens": []}
    assert server.post("/detokenize", {"tokens": [10 ** 9]}).status == 400


def check_props_and_slots(context):
    server = context.scripted
    props = server.get("/props").json()
    assert props["total_slots"] == 4 and props["default_generation_settings"]["n_ctx"] > 0 and props["chat_template"]
    assert server.post("/props", {}).status == 501
    slots = server.get("/slots").json()
    assert len(slots) == 4 and all(not s["is_processing"] for s in slots)
    from harness import Connection, encode_request
    with Connection(server) as connection:
        connection.send(encode_request("POST", "/completion", {"prompt": "[[loop]]", "n_predict": 400, "stream": True, "temperature": 0}))
        connection.head()
        connection.chunk()
        busy = until(lambda: [s for s in server.get("/slots").json() if s["is_processing"]])
        assert len(busy) == 1 and busy[0]["n_prompt_tokens"] >= 1
    assert until(lambda: not any(s["is_processing"] for s in server.get("/slots").json()))


def check_what_is_not_served_says_why(context):
    server = context.scripted
    for method, path, body, status in (("POST", "/infill", {"input_prefix": "a", "input_suffix": "b"}, 501), ("GET", "/tools", None, 403),
                                       ("POST", "/cors-proxy", {}, 403), ("POST", "/v1/audio/speech", {}, 501), ("POST", "/models/load", {"model": "x"}, 501),
                                       ("POST", "/rerank", {"query": "a", "documents": ["b"]}, 501), ("POST", "/rerank", {"query": "a"}, 400),
                                       ("POST", "/embedding", {"content": "a"}, 501), ("GET", "/v1/nothing", None, 404)):
        found = server.request(method, path, body)
        assert found.status == status and found.json()["error"]["message"], f"{path}: {found.status} {found.body[:200]}"
