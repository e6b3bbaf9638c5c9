"""Answers whose form is given, on every API, streamed and not; forced calls on every wire format (H7, H23, H27)."""
import concurrent.futures
import json

from check_messages import named_events
from check_tools import CHAT, joined_calls
from harness import finishes, joined_chat

PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
          "required": ["name", "age"], "additionalProperties": False}
COLOUR = {"enum": ["red", "green"]}
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": CITY}} for name in ("likely", "unlikely")]


def no_blanks(server):
    """The scripted model likes every token of a form equally and would write blanks for ever: a bias against them."""
    ids = [t for c in "\t\n\r " for t in server.post("/tokenize", {"content": c}).json()["tokens"]]
    return {str(i): -100 for i in ids}


def content(found):
    assert found.status == 200, found.body[:400]
    return found.json()["choices"][0]["message"]["content"]


def check_every_kind_of_form(context):
    chat = context.wide.chat
    assert content(chat("[[count]]", response_format={"type": "regex", "pattern": "yes|no"})) in ("yes", "no")
    assert content(chat("[[count]]", response_format={"type": "grammar", "grammar": 'root ::= "alpha" | "beta"'})) in ("alpha", "beta")
    assert content(chat("[[count]]", response_format={"type": "grammar", "syntax": "lark", "grammar": 'start: "alpha" | "beta"'})) in ("alpha", "beta")
    assert content(chat("[[count]]", grammar='root ::= "alpha" | "beta"')) in ("alpha", "beta")
    schema = {"type": "json_schema", "json_schema": {"name": "c", "schema": COLOUR}}
    assert json.loads(content(chat("[[count]]", response_format=schema))) in COLOUR["enum"]
    for size in (1, 7, 65536):
        body = {"messages": [{"role": "user", "content": "[[count]]"}], "temperature": 0, "stream": True, "response_format": schema}
        events = context.wide.post(CHAT, body, read_size=size).events()
        assert json.loads(joined_chat(events)) in COLOUR["enum"] and finishes(events) == ["stop"]


def check_forms_on_the_other_apis(context):
    server = context.wide
    found = server.post("/v1/completions", {"prompt": "x[[count]]", "temperature": 0, "response_format": {"type": "json_schema", "json_schema": {"schema": COLOUR}}}).json()
    assert json.loads(found["choices"][0]["text"]) in COLOUR["enum"]
    found = server.post("/completion", {"prompt": "x[[count]]", "temperature": 0, "json_schema": COLOUR}).json()
    assert json.loads(found["content"]) in COLOUR["enum"]
    found = server.post("/completion", {"prompt": "x[[count]]", "temperature": 0, "grammar": 'root ::= "alpha"'}).json()
    assert found["content"] == "alpha" and found["generation_settings"]["grammar"]
    found = server.post("/api/chat", {"model": "scripted", "messages": [{"role": "user", "content": "[[count]]"}], "stream": False, "format": {**COLOUR, "type": "string"}, "options": {"temperature": 0}}).json()
    assert json.loads(found["message"]["content"]) in COLOUR["enum"]
    found = server.post("/v1/responses", {"input": "[[count]]", "temperature": 0, "text": {"format": {"type": "json_schema", "name": "c", "schema": COLOUR}}}).json()
    assert json.loads(found["output_text"]) in COLOUR["enum"]
    found = server.post("/v1/messages", {"max_tokens": 32, "messages": [{"role": "user", "content": "[[count]]"}], "temperature": 0, "output_format": {"type": "json_schema", "schema": COLOUR}}).json()
    assert json.loads(found["content"][0]["text"]) in COLOUR["enum"]


def check_h27_what_cannot_be_enforced_is_refused(context):
    for form, param in (({"type": "json_schema", "json_schema": {"schema": {"$ref": "#/$defs/none"}}}, "response_format"),
                        ({"type": "regex", "pattern": "(open"}, "response_format.pattern"),
                        ({"type": "grammar", "grammar": "root ::= missing"}, "response_format.grammar"),
                        ({"type": "json_schema", "json_schema": {"schema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<x>"}}}}}, "response_format")):
        for size in (None, 1, 7, 65536):
            body = {"messages": [{"role": "user", "content": "[[count]]"}], "temperature": 0, "response_format": form, "stream": size is not None}
            found = context.wide.post(CHAT, body, read_size=size or 65536)
            error = found.json()["error"]
            assert found.status == 400 and error["param"].startswith(param), f"{form}: {found.status} {found.body[:300]}"
    strict = {"type": "json_schema", "json_schema": {"strict": True, "schema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "^hello there indeed\\!$"}}, "required": ["a"], "additionalProperties": False}}}
    found = context.wide.chat("[[count]]", response_format=strict, max_tokens=64, logit_bias=no_blanks(context.wide))
    assert found.status == 400 or json.loads(content(found)) == {"a": "hello there indeed!"}, found.body[:300]


def check_h7_neighbours_of_a_constrained_answer(context):
    schema = {"type": "json_schema", "json_schema": {"schema": COLOUR}}
    plain = content(context.wide.chat("[[count]]"))
    fresh = content(context.wide.chat("[[count]]", response_format=schema))
    for _ in range(3):
        assert content(context.wide.chat("[[count]]")) == plain
        assert content(context.wide.chat("[[count]]", response_format=schema)) == fresh
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(context.wide.chat, "[[count]]", **({"response_format": schema} if i % 2 else {})) for i in range(16)]
        for i, job in enumerate(jobs):
            assert content(job.result()) == (fresh if i % 2 else plain)
    for size in (1, 7, 65536):
        for form, expected in ((None, plain), (schema, fresh)):
            body = {"messages": [{"role": "user", "content": "[[count]]"}], "temperature": 0, "stream": True, **({"response_format": form} if form else {})}
            assert joined_chat(context.wide.post(CHAT, body, read_size=size).events()) == expected


def check_h23_named_tool_choice(context):
    for choice in ({"type": "function", "function": {"name": "unlikely"}}, "required"):
        for size in (1, 7, 65536):
            body = {"messages": [{"role": "user", "content": "[[count]]"}], "temperature": 0, "tools": TOOLS, "tool_choice": choice, "max_tokens": 200,
                    "logit_bias": no_blanks(context.wide)}
            whole = context.wide.post(CHAT, body).json()["choices"][0]
            call = whole["message"]["tool_calls"][0]["function"]
            assert whole["finish_reason"] == "tool_calls" and json.loads(call["arguments"])["city"] in ("Oslo", "Rome"), whole
            if choice != "required":
                assert call["name"] == "unlikely", call
            streamed = joined_calls(context.wide.post(CHAT, {**body, "stream": True}, read_size=size).events())
            assert [c["name"] for c in streamed][0] == call["name"]
    both = context.wide.chat("[[count]]", tools=TOOLS, tool_choice="required", response_format={"type": "json_object"})
    assert both.status == 400


# What tells each wire format in a template's text.
SIGNS = {"harmony": "<|channel|> <|message|>", "minimax": "<minimax:tool_call>", "atem": "<atem:function_calls> to=self", "minimax_m3": "]<]minimax[>[", "dsml": "<｜DSML｜function_calls>", "minicpm": '<function name="',
         "gemma4": "<|tool_call> <|channel>", "function_gemma": "<start_function_call>", "kimi_k3": "<|open|>tools", "kimi": "<|tool_calls_section_begin|>",
         "deepseek": "<｜tool▁calls▁begin｜>", "longcat": "<longcat_tool_call>", "seed": "<seed:tool_call>", "lfm2": "<|tool_call_start|>", "mistral": "[TOOL_CALLS] [ARGS]",
         "command": "<|START_ACTION|>", "command_r": "Action: ```json", "apertus": "<|tools_prefix|>", "internlm": "<|action_start|>", "nemotron": "<TOOLCALL>",
         "glm": "<tool_call> <arg_key>", "qwen3_coder": "<tool_call> <function=", "hermes": "<tool_call>", "hunyuan": "<tool_calls>", "phi": "<|tool_call|> <|/tool_call|>",
         "granite": "<|tool_call|>", "functools": "functools[", "olmo": "<function_calls>", "pythonic": "[func_name1(", "llama": "<|python_tag|>"}


COUNTED = " one two three four five six seven eight nine ten"


def check_h23_on_every_wire_format(context):
    for name, sign in SIGNS.items():
        with context.start("--chat-template", "{# tools " + sign + " #}{% for m in messages %}{{ m['content'] }}{% endfor %}", "-np", "1") as server:
            assert server.get("/props").json()["chat_template_caps"]["tool_call_format"] == name
            blanks = no_blanks(server)
            for choice in ({"type": "function", "function": {"name": "unlikely"}}, "required"):
                body = {"messages": [{"role": "user", "content": "[[count]]"}], "temperature": 0, "tools": TOOLS, "max_tokens": 300, "tool_choice": choice, "logit_bias": blanks}
                whole = server.post(CHAT, body).json()["choices"][0]
                calls = whole["message"].get("tool_calls")
                assert calls and whole["finish_reason"] == "tool_calls" and not whole["message"]["content"], f"{name}: {whole}"
                assert choice == "required" or calls[0]["function"]["name"] == "unlikely", f"{name}: {calls}"
                assert all(json.loads(c["function"]["arguments"])["city"] in ("Oslo", "Rome") for c in calls), f"{name}: {calls}"
                for size in (1, 7, 65536):
                    found = server.post(CHAT, {**body, "stream": True}, read_size=size)
                    streamed = joined_calls(found.events())
                    assert [(c["name"], c["arguments"]) for c in streamed] == [(c["function"]["name"], c["function"]["arguments"]) for c in calls], f"{name}: {streamed}"
                    assert joined_chat(found.events()) == "" and finishes(found.events()) == ["tool_calls"], f"{name}: {found.body[-300:]}"
            # A strict tool that may be called leaves text alone.
            strict = [{"type": "function", "function": {**t["function"], "strict": True}} for t in TOOLS]
            free = server.chat("[[count]]", tools=strict).json()
            assert free["choices"][0]["message"]["content"] == COUNTED and free["choices"][0]["finish_reason"] == "stop", f"{name}: {free}"
            assert [w["type"] for w in free.get("warnings", [])] == (["tool_schema_relaxed"] if name == "minicpm" else []), f"{name}: {free}"


def check_a_real_model_obeys_a_schema(context):
    schema = {"type": "json_schema", "json_schema": {"name": "p", "strict": True, "schema": PERSON}}
    for stream in (False, True):
        found = context.real.chat("Invent a person.", response_format=schema, max_tokens=80, stream=stream)
        text = joined_chat(found.events()) if stream else content(found)
        person = json.loads(text)
        assert set(person) == {"name", "age"} and isinstance(person["age"], int), text
    events = named_events(context.real.post("/v1/responses", {"input": "Invent a person.", "temperature": 0, "max_output_tokens": 80, "stream": True,
                                                              "text": {"format": {"type": "json_schema", "name": "p", "schema": PERSON}}}).body)
    assert set(json.loads(events[-1]["response"]["output_text"])) == {"name", "age"}


def check_strict_tools_are_held_to_their_schema_or_refused(context):
    bad = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<x>"}}}
    ask = lambda path, body: context.wide.post(path, {"temperature": 0, **body})  # noqa: E731
    user = [{"role": "user", "content": "[[count]]"}]
    for choice in ("auto", "required", {"type": "function", "function": {"name": "f"}}):
        for strict in (None, False, True):
            for stream in (False, True):
                tool = {"type": "function", "function": {"name": "f", "parameters": bad, **({} if strict is None else {"strict": strict})}}
                found = ask(CHAT, {"messages": user, "tools": [tool], "tool_choice": choice, "max_tokens": 8, "stream": stream})
                if strict:
                    error = found.json()["error"]
                    assert found.status == 400 and "tools[0].function.parameters" in error["message"] + error["param"], (choice, found.body[:300])
                    continue
                assert found.status == 200, (choice, strict, found.body[:300])
                warned = found.events()[-2].get("warnings", []) if stream else found.json().get("warnings", [])
                assert [w["type"] for w in warned] == ([] if choice == "auto" else ["tool_schema_relaxed"]), (choice, warned)
    found = ask("/v1/responses", {"input": "[[count]]", "tools": [{"type": "function", "name": "f", "parameters": bad, "strict": True}]})
    assert found.status == 400, found.body
    found = ask("/v1/messages", {"max_tokens": 8, "messages": user, "tools": [{"name": "f", "input_schema": bad, "strict": True}]})
    assert found.status == 400 and found.json()["error"]["type"] == "invalid_request_error", found.body
    assert ask(CHAT, {"messages": user, "tools": [{"type": "function", "function": {"name": "f", "strict": "yes"}}]}).status == 400
    # A tool that is not strict may stay loose beside one that is held.
    tools = [{"type": "function", "function": {"name": "loose", "parameters": bad}}, {"type": "function", "function": {"name": "f", "parameters": CITY, "strict": True}}]
    found = ask(CHAT, {"messages": user, "tools": tools, "tool_choice": "required", "max_tokens": 200, "logit_bias": no_blanks(context.wide)}).json()
    assert [w["type"] for w in found["warnings"]] == ["tool_schema_relaxed"], found
    # The word is for the grammar: no template sees it.
    shown = [context.wide.post("/apply-template", {"messages": user, "tools": [{"type": "function", "function": {"name": "f", "parameters": CITY, **more}}]}).json()["prompt"]
             for more in ({}, {"strict": True})]
    assert shown[0] == shown[1] and "strict" not in shown[1], shown


def check_a_strict_tool_is_held_once_a_call_has_begun(context):
    """tool_choice auto: the model may talk, but what it calls fits; what it would have written does not."""
    def asked(server, text, tools, **more):
        for stream in (False, True):
            body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "tools": tools, "max_tokens": 200, "logit_bias": no_blanks(server), "stream": stream, **more}
            found = server.post(CHAT, body)
            assert found.status == 200, found.body
            if stream:
                calls, said, finish = joined_calls(found.events()), joined_chat(found.events()), finishes(found.events())[0]
            else:
                choice = found.json()["choices"][0]
                calls, said, finish = [c["function"] for c in choice["message"].get("tool_calls") or []], choice["message"]["content"] or "", choice["finish_reason"]
            yield [(c["name"], json.loads(c["arguments"])) for c in calls], said, finish

    def tool(name, strict):
        return {"type": "function", "function": {"name": name, "parameters": CITY, "strict": strict}}

    # [[tool]] says "Sure.", then asks for the weather in Paris, where the schema knows Oslo and Rome.
    assert list(asked(context.wide, "[[tool]]", [tool("get_weather", False)])) == [([("get_weather", {"city": "Paris"})], "Sure.", "tool_calls")] * 2
    for calls, said, finish in asked(context.wide, "[[tool]]", [tool("get_weather", True), tool("other", False)]):
        assert said == "Sure." and finish == "tool_calls" and calls[0][0] == "get_weather" and calls[0][1]["city"] in ("Oslo", "Rome"), (calls, said)
    # A name that nobody has given, and a token that ends the mark and goes on as no call does.
    for calls, said, finish in asked(context.wide, "[[tool]]", [tool("get_news", True)]):
        assert said == "Sure." and [name for name, _ in calls][:1] == ["get_news"], (calls, said)
    for calls, said, finish in asked(context.wide, "[[badtool]]", [tool("search", True)]):
        assert all(arguments["city"] in ("Oslo", "Rome") for _, arguments in calls) and "oops" not in said, (calls, said)
    # Text in place of the call, and no call where none may come.
    for calls, said, finish in asked(context.wide, "[[count]]", [tool("search", True)]):
        assert (calls, said, finish) == ([], COUNTED, "stop")
    for calls, said, finish in asked(context.wide, "[[tool]]", [tool("get_weather", True)], tool_choice="none"):
        assert calls == [] and "Paris" in said


def check_h23_on_the_real_model(context):
    """Twenty draws, and never the tool that the question asks for."""
    tools = [{"type": "function", "function": {"name": name, "description": text, "parameters": CITY}}
             for name, text in (("get_weather", "The weather in a city"), ("get_population", "How many people live in a city"))]

    def call(seed):
        body = {"messages": [{"role": "user", "content": "What is the weather in Rome?"}], "temperature": 1, "seed": seed, "max_tokens": 80, "tools": tools,
                "tool_choice": {"type": "function", "function": {"name": "get_population"}}, "stream": seed % 2 == 1}
        found = context.real.post(CHAT, body, read_size=(65536, 1, 7)[seed % 3], timeout=300)
        if seed % 2:
            return [(c["name"], c["arguments"]) for c in joined_calls(found.events())]
        return [(c["function"]["name"], c["function"]["arguments"]) for c in found.json()["choices"][0]["message"]["tool_calls"]]

    context.real
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for calls in pool.map(call, range(20)):
            assert [name for name, _ in calls] == ["get_population"] and json.loads(calls[0][1])["city"] in ("Oslo", "Rome"), calls
