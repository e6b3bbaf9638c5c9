"""Answers whose form is given, on every API, streamed and not; forced calls on every wire format (H7, H23, H27)."""
import concurrent.futures
import json

from check_messages import named_events
from check_tools import CHAT, FORMATS, joined_calls, own_model
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


def check_h23_on_every_family_of_formats(context):
    for name, (sign, text) in FORMATS.items():
        template = "{% if tools and false %}" + "{{ '" + sign.replace("'", "\\'") + "' }}{% endif %}{% for m in messages %}{{ m['content'] }}{% endfor %}"
        with own_model(context, "forced-" + name, template, text) as server:
            body = {"messages": [{"role": "user", "content": "[[go]]"}], "temperature": 0, "tools": TOOLS, "max_tokens": 300,
                    "tool_choice": {"type": "function", "function": {"name": "unlikely"}}, "logit_bias": no_blanks(server)}
            found = server.post(CHAT, body).json()
            calls = found["choices"][0]["message"].get("tool_calls")
            assert calls and calls[0]["function"]["name"] == "unlikely", f"{name}: {found}"
            assert json.loads(calls[0]["function"]["arguments"])["city"] in ("Oslo", "Rome"), f"{name}: {calls}"


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
