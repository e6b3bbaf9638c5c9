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


def check_infill_with_marks_of_its_own(context):
    """Where the vocabulary has fill-in-the-middle tokens they frame prefix, suffix and gap; --spm-infill turns them round."""
    import json
    import subprocess
    from harness import Server
    marks = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
    folder, script = context.folder / "fim", context.folder / "fim.json"
    script.write_text(json.dumps({"special": ["<|end|>", *marks], "eos": ["<|end|>"], "bos": "", "window": 512,
                                  "scripts": [["<|fim_middle|>", "return", " 42"], ["[[s]]", "suffix", " last"]], "added": ["[[s]]"], "chat_template": ""}))
    subprocess.run([context.maker, folder, script], check=True, capture_output=True)
    body = {"input_prefix": "def f():\n    ", "input_suffix": "\nprint(f())[[s]]", "temperature": 0, "n_predict": 8}
    with Server(context.binary, folder) as server:
        found = server.post("/infill", body).json()
        assert found["content"] == "return 42" and found["stop_type"] == "eos", found
        assert found["prompt"] == marks[0] + body["input_prefix"] + marks[1] + body["input_suffix"] + marks[2], found["prompt"]
        more = server.post("/infill", {**body, "prompt": "x = ", "input_extra": [{"filename": "a.py", "text": "import b"}]}).json()["prompt"]
        assert more.startswith(marks[0] + "# a.py\nimport b\n" + body["input_prefix"] + "x = " + marks[1]), more
        streamed = server.post("/infill", {**body, "stream": True}).events()
        assert "".join(e["content"] for e in streamed) == "return 42"
        suffix = server.post("/v1/completions", {"prompt": body["input_prefix"], "suffix": body["input_suffix"], "max_tokens": 8, "temperature": 0}).json()
        assert suffix["choices"][0]["text"] == "return 42", suffix
        for field in ("input_prefix", "input_suffix"):
            found = server.post("/infill", {**body, field: "a<|fim_suffix|>b"})
            assert found.status == 400 and "<|fim_suffix|>" in found.json()["error"]["message"], found.body
    with Server(context.binary, folder, "--spm-infill") as server:
        prompt = server.post("/infill", body).json()["prompt"]
        assert prompt == marks[1] + body["input_suffix"] + marks[0] + body["input_prefix"] + marks[2], prompt
    found = context.scripted.post("/v1/completions", {"prompt": "a", "suffix": "b"})
    assert found.status == 400 and found.json()["error"]["param"] == "suffix", found.body


def check_lazy_grammars(context):
    """The answer is free until the trigger has been written; then the grammar holds, the trigger being its beginning."""
    body = {"prompt": "x[[count]]", "temperature": 0, "n_predict": 24, "grammar": 'root ::= " three" "!" "?"', "grammar_lazy": True}
    found = context.scripted.post("/completion", {**body, "grammar_triggers": [{"type": 1, "value": " three"}]}).json()
    assert found["content"] == " one two three!?" and found["generation_settings"]["grammar_lazy"] is True, found["content"]
    token = context.token_ids()[" three"]
    found = context.scripted.post("/completion", {**body, "grammar_triggers": [{"type": 0, "token": token}]}).json()
    assert found["content"] == " one two three!?", found["content"]
    early = context.scripted.post("/completion", {**body, "n_predict": 2, "grammar_triggers": [{"type": 1, "value": " three"}]}).json()
    assert early["content"] == " one two" and early["stop_type"] == "limit", early["content"]
    never = context.scripted.post("/completion", {**body, "grammar_triggers": [{"type": 1, "value": "nowhere"}]})
    assert never.status == 400 and never.json()["error"]["param"] == "grammar_triggers", "the grammar does not begin with it"
    for wrong, param in (([], "grammar_triggers"), ([{"type": 2, "value": "a+"}], "grammar_triggers[0].type"), ([{"type": 1, "value": ""}], "grammar_triggers[0].value"),
                         ([{"type": 0, "token": 10 ** 9}], "grammar_triggers[0].token"), ([5], "grammar_triggers[0]")):
        refused = context.scripted.post("/completion", {**body, "grammar_triggers": wrong})
        assert refused.status == 400 and refused.json()["error"]["param"] == param, (wrong, refused.body)
    shown = context.scripted.post("/completion", {"prompt": "x[[eos2]]", "temperature": 0, "ignore_eos": True, "n_predict": 2, "preserved_tokens": ["<|stop|>"]}).json()
    assert shown["content"].startswith("bye"), shown["content"]


def check_answers_end_with_a_line_that_is_indented_less(context):
    from check_tools import own_model
    with own_model(context, "indent", "{{ messages[0]['content'] }}", "if x:\n    one\n\n        two\n  three\n    four") as server:
        body = {"prompt": "x[[go]]", "temperature": 0, "n_predict": 100}
        assert server.post("/completion", body).json()["content"].endswith("four")
        for stream in (False, True):
            found = server.post("/completion", {**body, "n_indent": 4, "stream": stream})
            text = "".join(e["content"] for e in found.events()) if stream else found.json()["content"]
            assert "two\n  t" in text and "four" not in text, text


def check_props_name_what_is_in_force(context):
    props = context.scripted.get("/props").json()
    assert props["kv_bits"] == 32 and props["prefill_chunk_size"] == 2048 and props["max_token_gap"] == 100 and props["step_token_budget"] >= 16, props
    assert props["speculative"] is None and props["endpoint_slots"] is True and props["endpoint_slot_save"] is False and props["device"], props
    with context.start("--draft-kind", "prompt-lookup", "--prefill-chunk-size", "64", "--max-token-gap", "50", "--step-token-budget", "33") as server:
        props = server.get("/props").json()
        assert props["kv_bits"] == 32 and props["prefill_chunk_size"] == 64 and props["max_token_gap"] == 50 and props["step_token_budget"] == 33, props
        assert props["speculative"]["kind"] == "prompt-lookup", props["speculative"]


def check_breakers_of_repeats_as_tokens(context):
    ids = context.token_ids()
    used = context.scripted.post("/completion", {"prompt": "x[[count]]", "temperature": 0, "n_predict": 1, "dry_multiplier": 1, "dry_sequence_breakers": ["a", [ids[" one"], ord("b")]]}).json()
    assert used["generation_settings"]["dry_sequence_breakers"] == ["a", " oneb"], used["generation_settings"]["dry_sequence_breakers"]
    for wrong in ([[10 ** 6]], [[-1]], [[]], [""], [5], ["a", ["b"]]):
        found = context.scripted.chat("[[count]]", dry_sequence_breakers=wrong)
        assert found.status == 400 and found.json()["error"]["param"].startswith("dry_sequence_breakers"), (wrong, found.body)
