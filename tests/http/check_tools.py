"""Tools and thoughts on every API, streamed in any pieces and whole (H21, H22, H24)."""
import json
import subprocess

from harness import Server, finishes, joined_chat

CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
             "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}},
         {"type": "function", "function": {"name": "search", "parameters": {
             "type": "object", "properties": {"query": {"type": "string"}}}}}]
MARKS = ("tool_call", "<think", "</think", "arguments\\\"")


def deltas(events, index=0):
    return [c["delta"] for e in events if e != "[DONE]" for c in e["choices"] if c["index"] == index]


def joined_calls(events):
    calls = []
    for delta in deltas(events):
        for piece in delta.get("tool_calls", []):
            if "id" in piece:
                assert piece["index"] == len(calls) and piece["type"] == "function" and piece["function"]["name"]
                calls.append({"id": piece["id"], "name": piece["function"]["name"], "arguments": ""})
            calls[piece["index"]]["arguments"] += piece["function"]["arguments"]
    return calls


def check_h22_one_call_then_two(context):
    for text, names in (("[[tool]]", ["get_weather"]), ("[[tools]]", ["get_weather", "search"])):
        whole = context.wide.chat(text, tools=TOOLS).json()["choices"][0]
        assert whole["finish_reason"] == "tool_calls", whole
        calls = whole["message"]["tool_calls"]
        assert [c["function"]["name"] for c in calls] == names
        assert all(isinstance(json.loads(c["function"]["arguments"]), dict) for c in calls)
        assert len({c["id"] for c in calls}) == len(calls) and all(c["id"] for c in calls)
        assert whole["message"]["content"] == ("Sure." if len(names) == 1 else None)
        for size in (1, 7, 65536):
            body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "tools": TOOLS, "stream": True}
            found = context.wide.post(CHAT, body, read_size=size)
            events = found.events()
            assert finishes(events) == ["tool_calls"]
            streamed = joined_calls(events)
            assert [c["name"] for c in streamed] == names
            assert [c["arguments"] for c in streamed] == [c["function"]["arguments"] for c in calls]
            assert joined_chat(events) == (whole["message"]["content"] or "")
            assert b"tool_call>" not in found.body, "a mark leaked"


def check_h21_a_call_that_is_not_json(context):
    text = '<tool_call>{"name": "search", "arguments": {"query": oops}}</tool_call>'
    whole = context.wide.chat("[[badtool]]", tools=TOOLS).json()
    assert whole["choices"][0]["message"]["content"] == text and whole["choices"][0]["finish_reason"] == "stop"
    assert [w["type"] for w in whole["warnings"]] == ["tool_call_unparsed"]
    for size in (1, 7, 65536):
        body = {"messages": [{"role": "user", "content": "[[badtool]]"}], "temperature": 0, "tools": TOOLS, "stream": True}
        events = context.wide.post(CHAT, body, read_size=size).events()
        assert joined_chat(events) == text and events[-2]["warnings"][0]["type"] == "tool_call_unparsed"
    # A call whose only fault is an escape is repaired; another format's frame stays what it is: text.
    template = "{% if tools and false %}{{ '<tool_call>' }}{% endif %}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    for name, said, arguments in (("escape", '<tool_call>{"name": "search", "arguments": {"query": "\\d+"}}</tool_call>', {"query": "\\d+"}),
                                  ("foreign", "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>\n</tool_call>", None)):
        with own_model(context, "h21-" + name, template, said) as server:
            for size in (None, 1, 7, 65536):
                body = {"messages": [{"role": "user", "content": "[[go]]"}], "temperature": 0, "tools": TOOLS, "max_tokens": 500, "stream": size is not None}
                found = server.post(CHAT, body, read_size=size or 65536)
                assert found.status == 200, found.body
                if size is None:
                    message = found.json()["choices"][0]["message"]
                    calls, content = [c["function"] for c in message.get("tool_calls") or []], message["content"] or ""
                    warned = [w["type"] for w in found.json().get("warnings", [])]
                else:
                    events = found.events()
                    calls, content = joined_calls(events), joined_chat(events)
                    warned = [w["type"] for e in events[:-1] for w in e.get("warnings", [])]
                if arguments or calls:
                    assert [json.loads(c["arguments"]) for c in calls] == [arguments or {"query": "x"}] and content == "", (name, size, found.body)
                else:
                    assert content == said and warned == ["tool_call_unparsed"], (name, size, content, warned)


def check_tool_choice_and_parallel_calls(context):
    none = context.wide.chat("[[tool]]", tools=TOOLS, tool_choice="none").json()["choices"][0]
    assert "<tool_call>" in none["message"]["content"] and none["finish_reason"] == "stop"
    one = context.wide.chat("[[tools]]", tools=TOOLS, parallel_tool_calls=False).json()["choices"][0]
    assert len(one["message"]["tool_calls"]) == 1 and one["finish_reason"] == "tool_calls"
    for wrong, param in ((dict(tools=TOOLS, tool_choice="maybe"), "tool_choice"), (dict(tool_choice="required"), "tool_choice"),
                         (dict(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "other"}}), "tool_choice"),
                         (dict(tools=[{"type": "web"}]), "tools[0].type"), (dict(tools=TOOLS + TOOLS[:1]), "tools"),
                         (dict(functions=[]), "functions"), (dict(tools=[{"type": "function", "function": {"name": "a b"}}]), "tools[0].function.name")):
        found = context.wide.chat("[[tool]]", **wrong)
        assert found.status == 400 and found.json()["error"]["param"] == param, f"{wrong}: {found.body[:200]}"


def check_tools_are_shown_where_the_template_has_none(context):
    body = {"messages": [{"role": "user", "content": "What now?"}], "tools": TOOLS}
    prompt = context.wide.post("/apply-template", body).json()["prompt"]
    assert '"name":"get_weather"' in prompt.replace(": ", ":") and prompt.endswith("What now?"), prompt
    body["messages"] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"},
                        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{\"query\": \"x\"}"}}]},
                        {"role": "tool", "tool_call_id": "c1", "content": "found"}]
    prompt = context.wide.post("/apply-template", body).json()["prompt"]
    assert prompt.index("Be brief.") < prompt.index("<tools>") < prompt.index("<|user|>a"), prompt
    assert "<tool_call>" in prompt and "<tool_response>\nfound" in prompt, prompt


def check_thoughts_are_split_off(context):
    whole = context.wide.chat("[[think]]").json()
    message = whole["choices"][0]["message"]
    assert message["content"] == "Yes." and message["reasoning_content"] == message["reasoning"] == "because of that", message
    assert 0 < whole["usage"]["completion_tokens_details"]["reasoning_tokens"] < whole["usage"]["completion_tokens"]
    for size in (1, 7, 65536):
        body = {"messages": [{"role": "user", "content": "[[think]]"}], "temperature": 0, "stream": True}
        found = context.wide.post(CHAT, body, read_size=size)
        assert joined_chat(found.events()) == "Yes." and b"think" not in found.body
        assert "".join(d.get("reasoning_content", "") for d in deltas(found.events())) == "because of that"
    raw = context.wide.chat("[[think]]", reasoning_format="none").json()["choices"][0]["message"]
    assert raw["content"] == "<think>\nbecause of that\n</think>\n\nYes." and "reasoning_content" not in raw
    both = context.wide.chat("[[think]]", reasoning_format="deepseek-legacy").json()["choices"][0]["message"]
    assert both["content"] == raw["content"] and both["reasoning_content"] == "because of that"


def check_h24_a_thought_cut_by_the_limit(context):
    for limit in (1, 2, 3, 4):
        choice = context.wide.chat("[[muse]]", max_tokens=limit).json()["choices"][0]
        assert not choice["message"]["content"], choice
        if limit < 4:
            assert choice["finish_reason"] == "length"
        assert "on and so it goes".startswith(choice["message"]["reasoning_content"])
        for size in (1, 7, 65536):
            body = {"messages": [{"role": "user", "content": "[[muse]]"}], "temperature": 0, "max_tokens": limit, "stream": True}
            events = context.wide.post(CHAT, body, read_size=size).events()
            assert joined_chat(events) == ""
            assert "".join(d.get("reasoning_content", "") for d in deltas(events)) == choice["message"]["reasoning_content"]


def check_a_budget_of_thinking_tokens_ends_the_thought(context):
    choice = context.wide.chat("[[muse]]", thinking_token_budget=2, max_tokens=8).json()["choices"][0]
    assert choice["message"]["reasoning_content"] == "on and", choice


def check_an_ended_thought_leaves_form_and_figures_alone(context):
    """The rest of an answer whose thought was cut obeys its schema, and is counted as if there had been no cut."""
    text = "<think>" + " ".join(f"thought number {i} goes on" for i in range(60)) + "</think>The answer."
    template = "{# <think> #}{% for m in messages %}{{ m['content'] }}{% endfor %}<think>"
    with own_model(context, "budget", template, text) as server:
        blanks = {str(t): -100 for c in "\t\n\r " for t in server.post("/tokenize", {"content": c}).json()["tokens"]}
        body = {"messages": [{"role": "user", "content": "word " * 20 + "[[go]]"}], "temperature": 0, "max_tokens": 200, "thinking_token_budget": 80, "logit_bias": blanks,
                "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["red", "green"]}}}}
        count = server.post(CHAT + "/input_tokens", body).json()["input_tokens"]
        for size in (None, 1, 7, 65536, None):
            found = server.post(CHAT, {**body, "stream": size is not None, **({"stream_options": {"include_usage": True}} if size else {})}, read_size=size or 65536)
            assert found.status == 200, found.body
            if size is None:
                whole = found.json()
                said, usage, timings = whole["choices"][0]["message"]["content"], whole["usage"], whole["timings"]
                assert whole["choices"][0]["finish_reason"] == "stop", whole
            else:
                events = found.events()
                said, usage, timings = joined_chat(events), events[-2]["usage"], events[-3]["timings"]
            assert json.loads(said) in ("red", "green"), said
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            assert usage["prompt_tokens"] == count and cached <= count - 1, usage
            assert timings["cache_n"] == cached and timings["prompt_n"] == count - cached, timings
            assert usage["completion_tokens_details"]["reasoning_tokens"] == 80, usage


def own_model(context, name, template, text, pieces=5):
    """A model with this chat template that answers `text` to [[go]], cut into tokens of `pieces` bytes, made distinct."""
    raw = text.encode()
    tokens, seen, at = [], set(), 0
    while at < len(raw):  # a token may stand only once in a script
        size = pieces
        while raw[at:at + size] in seen and at + size <= len(raw):
            size += 1
        token = raw[at:at + size]
        seen.add(token)
        tokens.append({"hex": token.hex()})
        at += size
    folder = context.folder / name
    script = context.folder / (name + ".json")
    script.write_text(json.dumps({"special": ["<|end|>"], "eos": ["<|end|>"], "bos": "", "added": ["[[go]]"], "window": 2048,
                                  "scripts": [[{"hex": b"[[go]]".hex()}, *tokens]], "chat_template": template}))
    subprocess.run([context.maker, folder, script], check=True, capture_output=True)
    return Server(context.binary, folder)


FORMATS = {
    "mistral": ("[TOOL_CALLS]", '[TOOL_CALLS]search[ARGS]{"query": "x"}'),
    "qwen3-coder": ("<tool_call> <function=", "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n</function>\n</tool_call>"),
    "glm": ("<arg_key>", "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"),
    "llama": ("<|python_tag|>", '{"name": "search", "parameters": {"query": "x"}}'),
    "kimi": ("<|tool_calls_section_begin|>", '<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{"query": "x"}<|tool_call_end|><|tool_calls_section_end|>'),
    "gemma4": ("<|tool_call>", '<|tool_call>call:search{query:<|"|>x<|"|>}<tool_call|>'),
    "harmony": ("<|channel|> <|message|>", '<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "x"}'),
}


def check_h22_every_family_of_formats_on_the_wire(context):
    for name, (sign, text) in FORMATS.items():
        template = "{% if tools and false %}" + "{{ '" + sign.replace("'", "\\'") + "' }}{% endif %}{% for m in messages %}{{ m['content'] }}{% endfor %}"
        with own_model(context, "format-" + name, template, text) as server:
            body = {"messages": [{"role": "user", "content": "[[go]]"}], "temperature": 0, "tools": TOOLS, "max_tokens": 500}
            whole = server.post(CHAT, body).json()["choices"][0]
            assert whole["finish_reason"] == "tool_calls", f"{name}: {whole}"
            call = whole["message"]["tool_calls"][0]["function"]
            assert call == {"name": "search", "arguments": '{"query":"x"}'}, f"{name}: {call}"
            for size in (1, 7, 65536):
                found = server.post(CHAT, {**body, "stream": True}, read_size=size)
                streamed = joined_calls(found.events())
                assert [c["arguments"] for c in streamed] == ['{"query":"x"}'], f"{name}: {streamed}"
                assert joined_chat(found.events()) == "", f"{name}: {joined_chat(found.events())!r}"


def check_tools_keep_the_order_of_their_author(context):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
        "zebra": {"type": "string"}, "apple": {"type": "string"}}, "required": ["zebra"]}}}]
    prompt = context.wide.post("/apply-template", {"messages": [{"role": "user", "content": "x"}], "tools": tools}).json()["prompt"]
    assert prompt.index("zebra") < prompt.index("apple"), prompt


def check_a_turn_of_calls_alone_under_templates_that_want_text(context):
    """Clients send such a turn with content null; some templates add it to a text."""
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}]},
             {"role": "tool", "tool_call_id": "c1", "content": "r"}]
    adds = "{% for m in messages %}{{ m.role + ':' + m.content + '|' }}{% endfor %}{{ tools }}"
    with context.start("--chat-template", adds) as server:
        assert server.post("/apply-template", {"messages": turns}).json()["prompt"].startswith("user:q|assistant:|tool:r|")
    refuses = "{% for m in messages %}{{ raise_exception('never ' + m.role) }}{% endfor %}{{ tools }}"
    with context.start("--chat-template", refuses) as server:
        found = server.post("/apply-template", {"messages": turns})
        assert found.status == 400 and "never user" in found.json()["error"]["message"], found.body


def check_arguments_arrive_in_pieces(context):
    from check_messages import CLAUDE_TOOLS, named_events
    wanted = {"query": "a rather long text, with \"quotes\", that comes in many pieces", "limit": 3}
    written = json.dumps(wanted)
    compact = json.dumps(wanted, separators=(",", ":"))
    for name, (sign, text) in {"hermes": ("<tool_call>", '<tool_call>\n{"name": "search", "arguments": ' + written + "}\n</tool_call>"),
                               "mistral": ("[TOOL_CALLS]", "[TOOL_CALLS]search[ARGS]" + written),
                               "kimi": ("<|tool_calls_section_begin|>", "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>" + written + "<|tool_call_end|><|tool_calls_section_end|>"),
                               "harmony": ("<|channel|> <|message|>", "<|channel|>commentary to=functions.search <|constrain|>json<|message|>" + written)}.items():
        template = "{% if tools and false %}" + "{{ '" + sign + "' }}{% endif %}{% for m in messages %}{{ m['content'] }}{% endfor %}"
        with own_model(context, "pieces-" + name, template, text) as server:
            body = {"messages": [{"role": "user", "content": "[[go]]"}], "temperature": 0, "tools": TOOLS, "max_tokens": 500}
            whole = server.post(CHAT, body).json()["choices"][0]["message"]["tool_calls"][0]["function"]
            assert whole["arguments"] == compact, (name, whole)
            events = server.post(CHAT, {**body, "stream": True}).events()
            pieces = [p["function"]["arguments"] for d in deltas(events) for p in d.get("tool_calls", [])]
            assert len([p for p in pieces if p]) > 5 and "".join(pieces) == compact, (name, pieces)
            assert joined_chat(events) == "" and finishes(events) == ["tool_calls"]
            named = named_events(server.post("/v1/messages", {"model": "m", "max_tokens": 500, "temperature": 0, "stream": True, "tools": CLAUDE_TOOLS, "messages": body["messages"]}).body)
            pieces = [e["delta"]["partial_json"] for e in named if e["type"] == "content_block_delta" and e["delta"]["type"] == "input_json_delta"]
            assert len(pieces) > 5 and json.loads("".join(pieces)) == wanted, (name, pieces)
            responses = named_events(server.post("/v1/responses", {"input": "[[go]]", "temperature": 0, "stream": True, "max_output_tokens": 500,
                                                                   "tools": [{"type": "function", **t["function"]} for t in TOOLS]}).body)
            pieces = [e["delta"] for e in responses if e["type"] == "response.function_call_arguments.delta"]
            assert len(pieces) > 5 and json.loads("".join(pieces)) == wanted, (name, pieces)
            # Cut inside the arguments: what came stays, and no other API is given broken JSON.
            cut = server.post(CHAT, {**body, "max_tokens": 16}).json()["choices"][0]
            if cut["message"].get("tool_calls"):
                assert cut["finish_reason"] == "length" and compact.startswith(cut["message"]["tool_calls"][0]["function"]["arguments"]), cut
            short = server.post("/v1/messages", {"model": "m", "max_tokens": 16, "temperature": 0, "tools": CLAUDE_TOOLS, "messages": body["messages"]}).json()
            assert short["stop_reason"] == "max_tokens", short
            ollama = server.post("/api/chat", {"model": "pieces-" + name, "stream": False, "options": {"temperature": 0, "num_predict": 16}, "tools": TOOLS, "messages": body["messages"]})
            assert ollama.status == 200 and ollama.json()["done_reason"] == "length", ollama.body


def check_content_of_a_call_only_turn_is_none_to_templates_that_ask(context):
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}]}]
    asks = "{% for m in messages %}{% if m.content is none %}CALLS{% else %}{{ '[' ~ m.content ~ ']' }}{% endif %}{% endfor %}{{ tools }}"
    with context.start("--chat-template", asks) as server:
        for body in ({"messages": turns}, {"messages": [turns[0], {k: v for k, v in turns[1].items() if k != "content"}]}):
            found = server.post("/apply-template", {**body, "add_generation_prompt": True})
            assert found.json()["prompt"].startswith("[q]CALLS"), found.body


def check_arguments_in_tags_arrive_in_pieces(context):
    value = 'a rather long text, "quoted", 1 < 2,\nin two lines, that comes in many pieces'
    wanted = {"query": value, "limit": 3}
    typed = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}}}}]
    compact = json.dumps(wanted, separators=(",", ":"))
    for name, (sign, text, many) in {
            "coder": ("<tool_call> <function=", f"<tool_call>\n<function=search>\n<parameter=query>\n{value}\n</parameter>\n<parameter=limit>\n3\n</parameter>\n</function>\n</tool_call>", 8),
            "glm": ("<arg_key>", f"<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>{value}</arg_value>\n<arg_key>limit</arg_key>\n<arg_value>3</arg_value>\n</tool_call>", 8),
            "minimax": ("<minimax:tool_call>", f'<minimax:tool_call>\n<invoke name="search">\n<parameter name="query">{value}</parameter>\n<parameter name="limit">3</parameter>\n</invoke>\n</minimax:tool_call>', 8),
            "python": ("<|tool_call_start|>", f"<|tool_call_start|>[search(query={json.dumps(value)}, limit=3)]<|tool_call_end|>", 2)}.items():
        template = "{% if tools and false %}" + "{{ '" + sign + "' }}{% endif %}{% for m in messages %}{{ m['content'] }}{% endfor %}"
        with own_model(context, "tags-" + name, template, text) as server:
            body = {"messages": [{"role": "user", "content": "[[go]]"}], "temperature": 0, "tools": typed, "max_tokens": 500}
            whole = server.post(CHAT, body).json()["choices"][0]["message"]
            assert whole.get("tool_calls") and whole["tool_calls"][0]["function"]["arguments"] == compact, (name, whole)
            for size in (1, 7, 65536):
                events = server.post(CHAT, {**body, "stream": True}, read_size=size).events()
                pieces = [p["function"]["arguments"] for d in deltas(events) for p in d.get("tool_calls", [])]
                assert len([p for p in pieces if p]) >= many and "".join(pieces) == compact, (name, pieces)
                assert joined_chat(events) == "" and finishes(events) == ["tool_calls"], name
