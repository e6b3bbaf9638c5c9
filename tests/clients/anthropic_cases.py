"""Cases of the official Anthropic client (run by run.py, inside the client environment)."""
import runner
from runner import KEY, Skip, address

try:
    import anthropic
except ImportError:
    anthropic = None

TOOLS = [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}},
         {"name": "search", "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}}}]


def client(name="scripted"):
    if anthropic is None:
        raise Skip("the anthropic package is not installed")
    return anthropic.Anthropic(base_url=address(name), api_key=KEY, max_retries=0)


def ask(text, **fields):
    return client().messages.create(model="m", max_tokens=64, extra_body={"temperature": 0}, messages=[{"role": "user", "content": text}], **fields)


def case_message():
    answer = ask("[[count]]", system="Be brief.")
    assert answer.content[0].text.endswith(" ten") and answer.stop_reason == "end_turn" and answer.usage.output_tokens == 10


def case_stream_helper():
    with client().messages.stream(model="m", max_tokens=64, extra_body={"temperature": 0}, messages=[{"role": "user", "content": "[[emoji]]"}]) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "\U0001F600" == final.content[0].text and final.stop_reason == "end_turn"


def case_tool_use():
    answer = ask("[[tools]]", tools=TOOLS)
    uses = [b for b in answer.content if b.type == "tool_use"]
    assert answer.stop_reason == "tool_use" and [u.input for u in uses] == [{"city": "Oslo"}, {"query": "x"}]
    with client().messages.stream(model="m", max_tokens=64, extra_body={"temperature": 0}, tools=TOOLS, messages=[{"role": "user", "content": "[[tool]]"}]) as stream:
        kinds = [e.type for e in stream]
        final = stream.get_final_message()
    assert "input_json" in kinds and final.content[1].input == {"city": "Paris"}
    again = client().messages.create(model="m", max_tokens=64, extra_body={"temperature": 0}, tools=TOOLS, messages=[
        {"role": "user", "content": "x"}, {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": uses[0].id, "content": "rain"}, {"type": "text", "text": "[[count]]"}]}])
    assert again.content[0].text.endswith(" ten")


def case_thinking():
    answer = client().messages.create(model="m", max_tokens=64, thinking={"type": "enabled", "budget_tokens": 32},
                                      messages=[{"role": "user", "content": "[[think]]"}])
    assert [b.type for b in answer.content] == ["thinking", "text"] and answer.content[0].thinking == "because of that"


def case_count_tokens():
    counted = client().messages.count_tokens(model="m", messages=[{"role": "user", "content": "[[count]]"}])
    assert counted.input_tokens == ask("[[count]]").usage.input_tokens


def case_errors_become_exceptions():
    try:
        ask("", )
    except anthropic.BadRequestError as error:
        assert error.body["error"]["type"] == "invalid_request_error"
    else:
        raise AssertionError("an empty message was accepted")
    bad = anthropic.Anthropic(base_url=address("scripted"), api_key="wrong", max_retries=0)
    try:
        bad.messages.create(model="m", max_tokens=4, messages=[{"role": "user", "content": "a"}])
    except anthropic.AuthenticationError:
        pass
    else:
        raise AssertionError("a wrong key was accepted")


def case_aborted_stream():
    for _ in range(3):
        with client().messages.stream(model="m", max_tokens=400, extra_body={"temperature": 0}, messages=[{"role": "user", "content": "[[loop]]"}]) as stream:
            next(iter(stream.text_stream))
    assert ask("[[space]]").content[0].text == " hello"


runner.run(globals())
