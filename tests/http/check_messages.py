"""Anthropic's /v1/messages: bodies, events in order, errors in their own shape, counting (H17, H24, H28)."""
import json

from check_tools import TOOLS

PATH = "/v1/messages"
CLAUDE_TOOLS = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]


def ask(context, text, size=65536, **fields):
    body = {"model": "any", "max_tokens": 64, "messages": [{"role": "user", "content": text}], "temperature": 0, **fields}
    return context.wide.post(PATH, body, read_size=size)


def named_events(body):
    out = []
    for block in body.decode().strip().split("\n\n"):
        if block.startswith(":"):
            continue
        name, data = block.split("\n")
        data = json.loads(data.removeprefix("data: "))
        assert data["type"] == name.removeprefix("event: ")
        out.append(data)
    return out


def check_answer(context):
    found = ask(context, "[[count]]").json()
    assert found["type"] == "message" and found["role"] == "assistant" and found["id"].startswith("msg_")
    assert found["content"] == [{"type": "text", "text": " one two three four five six seven eight nine ten"}]
    assert found["stop_reason"] == "end_turn" and found["stop_sequence"] is None
    assert found["usage"]["output_tokens"] == 10 and found["usage"]["input_tokens"] > 0
    cut = ask(context, "[[count]]", max_tokens=2).json()
    assert cut["stop_reason"] == "max_tokens"
    stopped = ask(context, "[[stop]]", stop_sequences=["beta gamma"]).json()  # H1
    assert stopped["content"][0]["text"] == "alpha" and stopped["stop_reason"] == "stop_sequence"
    assert stopped["stop_sequence"] == "beta gamma"


def check_events_in_order(context):
    for size in (1, 7, 65536):
        events = named_events(ask(context, "[[count]]", size, stream=True).body)
        kinds = [e["type"] for e in events]
        assert kinds[:3] == ["message_start", "ping", "content_block_start"], kinds
        assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"], kinds
        text = "".join(e["delta"]["text"] for e in events if e["type"] == "content_block_delta")
        assert text == " one two three four five six seven eight nine ten"
        assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
        assert events[-2]["usage"]["output_tokens"] == 10


def check_tool_use(context):
    found = ask(context, "[[tool]]", tools=CLAUDE_TOOLS).json()
    assert [b["type"] for b in found["content"]] == ["text", "tool_use"] and found["stop_reason"] == "tool_use"
    use = found["content"][1]
    assert use["name"] == "get_weather" and use["input"] == {"city": "Paris"} and use["id"].startswith("toolu_")
    events = named_events(ask(context, "[[tools]]", 7, tools=CLAUDE_TOOLS, stream=True).body)
    starts = [e for e in events if e["type"] == "content_block_start"]
    assert [s["content_block"]["type"] for s in starts] == ["tool_use", "tool_use"] and [s["index"] for s in starts] == [0, 1]
    inputs = ["".join(e["delta"]["partial_json"] for e in events if e["type"] == "content_block_delta" and e["index"] == i) for i in (0, 1)]
    assert [json.loads(i) for i in inputs] == [{"city": "Oslo"}, {"query": "x"}]
    history = [{"role": "user", "content": "x"}, {"role": "assistant", "content": [use]},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": [{"type": "text", "text": "rain"}]},
                                            {"type": "text", "text": "[[count]]"}]}]
    assert ask(context, "", messages=history, tools=CLAUDE_TOOLS).json()["content"][0]["text"].endswith(" ten")


def check_thinking(context):
    found = ask(context, "[[think]]").json()
    assert found["content"] == [{"type": "thinking", "thinking": "because of that", "signature": ""}, {"type": "text", "text": "Yes."}]
    events = named_events(ask(context, "[[think]]", 1, stream=True).body)
    kinds = [e["delta"]["type"] for e in events if e["type"] == "content_block_delta"]
    assert kinds[0] == "thinking_delta" and "signature_delta" in kinds and kinds[-1] == "text_delta"
    cut = ask(context, "[[muse]]", max_tokens=2).json()  # H24
    assert [b["type"] for b in cut["content"]] == ["thinking"] and cut["stop_reason"] == "max_tokens"


def check_errors_have_anthropics_shape(context):
    for body, status, kind in (({"messages": []}, 400, "invalid_request_error"),
                               ({"max_tokens": 5}, 400, "invalid_request_error"),
                               ({"max_tokens": 5, "messages": None}, 400, "invalid_request_error"),
                               ({"max_tokens": 5, "messages": [{"role": "user", "content": ""}]}, 400, "invalid_request_error"),
                               ({"max_tokens": 0, "messages": [{"role": "user", "content": "a"}]}, 400, "invalid_request_error"),
                               ({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, 501, "invalid_request_error")):
        found = context.scripted.post(PATH, body)
        error = found.json()
        assert found.status == status and error["type"] == "error" and error["error"]["type"] == kind, found.body
        assert error["request_id"] == found.headers["x-request-id"]
    found = context.shared("keys").post(PATH, {"max_tokens": 5, "messages": [{"role": "user", "content": "a"}]})
    assert found.status == 401 and found.json()["error"]["type"] == "authentication_error"
    assert context.scripted.request("GET", PATH).json()["type"] == "error"


def check_counting(context):
    body = {"model": "m", "messages": [{"role": "user", "content": "[[count]]"}], "system": "Be brief."}
    count = context.scripted.post(PATH + "/count_tokens", body).json()["input_tokens"]
    assert count == context.scripted.post(PATH, {**body, "max_tokens": 4}).json()["usage"]["input_tokens"]


def check_h28_system_turn_mid_conversation(context):
    body = {"system": "You are A.", "max_tokens": 8, "temperature": 0,
            "messages": [{"role": "user", "content": "hello"}, {"role": "system", "content": "Now be B."}, {"role": "user", "content": "[[count]]"}]}
    assert context.scripted.post(PATH, body).status == 200


def check_billing_line_is_not_rendered(context):
    plain = {"messages": [{"role": "user", "content": "hi"}], "system": "Be brief."}
    billed = {**plain, "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=123\nBe brief."}]}
    counts = [context.scripted.post(PATH + "/count_tokens", b).json()["input_tokens"] for b in (plain, billed)]
    assert counts[0] == counts[1], counts


def check_effort_reaches_the_template(context):
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if reasoning_effort is defined %}{% if reasoning_effort not in ['low', 'high'] %}{{ raise_exception('no such effort') }}{% endif %}{{ reasoning_effort }}{% endif %}"
    with context.start("--chat-template", template) as server:
        count = lambda **more: server.post(PATH + "/count_tokens", {"model": "m", "messages": [{"role": "user", "content": "ab"}], **more})  # noqa: E731
        plain = count().json()["input_tokens"]
        assert count(output_config={"effort": "high"}).json()["input_tokens"] == plain + 4
        assert count(output_config={"effort": "high"}, chat_template_kwargs={"reasoning_effort": "low"}).json()["input_tokens"] == plain + 3
        refused = count(output_config={"effort": "max"})
        assert refused.status == 400 and refused.json()["error"]["message"] == "no such effort", refused.body
        for wrong in ({"output_config": {"effort": 1}}, {"output_config": "high"}, {"context_management": "x"}):
            assert count(**wrong).status == 400, wrong
