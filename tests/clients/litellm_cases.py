"""Cases of litellm, which speaks OpenAI's, Anthropic's and Ollama's dialects (run by run.py)."""
import json

import litellm

import runner
from runner import KEY, address

litellm.suppress_debug_info = True
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}},
         {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}}]


def ask(text, dialect="openai", **fields):
    base = address("scripted") + ("/v1" if dialect == "openai" else "")
    more = {"max_tokens": 64} if dialect == "anthropic" else {}
    return litellm.completion(model=f"{dialect}/scripted", api_base=base, api_key=KEY, temperature=0, num_retries=0,
                              messages=[{"role": "user", "content": text}], **{**more, **fields})


def case_chat_in_two_dialects():
    for dialect in ("openai", "anthropic"):
        answer = ask("[[count]]", dialect)
        assert answer.choices[0].message.content.endswith(" ten"), answer
        assert answer.usage.completion_tokens == 10, answer.usage


def case_streams_in_two_dialects():
    for dialect in ("openai", "anthropic"):
        pieces = [c.choices[0].delta.content or "" for c in ask("[[emoji]]", dialect, stream=True)]
        assert "".join(pieces) == "\U0001F600", pieces


def case_tools_streamed_and_not():
    whole = ask("[[tools]]", tools=TOOLS)
    assert whole.choices[0].finish_reason == "tool_calls"
    assert [c.function.name for c in whole.choices[0].message.tool_calls] == ["get_weather", "search"]
    chunks = list(ask("[[tools]]", tools=TOOLS, stream=True))
    built = litellm.stream_chunk_builder(chunks)
    calls = built.choices[0].message.tool_calls
    assert [json.loads(c.function.arguments) for c in calls] == [json.loads(c.function.arguments) for c in whole.choices[0].message.tool_calls]


def case_tools_of_anthropic():
    answer = ask("[[tool]]", "anthropic", tools=TOOLS)
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather" and isinstance(json.loads(call.function.arguments), dict)


def case_structured_output():
    schema = {"type": "json_schema", "json_schema": {"name": "c", "schema": {"enum": ["red", "green"]}, "strict": False}}
    assert json.loads(ask("[[count]]", response_format=schema).choices[0].message.content) in ("red", "green")


def case_errors_have_their_class():
    for kind, fields in ((litellm.BadRequestError, {"top_p": 5}), (litellm.BadRequestError, {"n": 0})):
        try:
            ask("x", **fields)
        except kind:
            continue
        raise AssertionError(f"{fields} was accepted")
    try:
        litellm.completion(model="openai/x", api_base=address("scripted") + "/v1", api_key="wrong", num_retries=0, messages=[{"role": "user", "content": "x"}])
    except litellm.AuthenticationError:
        return
    raise AssertionError("a wrong key was accepted")


runner.run(globals())
