"""Cases of the official OpenAI client (run by run.py, inside the client environment)."""
import concurrent.futures
import json

import openai

import runner
from runner import KEY, address

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}},
         {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}}]


def client(name):
    return openai.OpenAI(base_url=address(name) + "/v1", api_key=KEY, max_retries=0)


def ask(name, text, **fields):
    return client(name).chat.completions.create(model="any", messages=[{"role": "user", "content": text}], **fields)


def case_models():
    assert [m.id for m in client("scripted").models.list()] == ["scripted"]
    assert client("scripted").models.retrieve("scripted").object == "model"


def case_chat():
    answer = ask("scripted", "[[count]]", temperature=0)
    assert answer.choices[0].message.content.endswith(" ten") and answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 10 and answer.usage.prompt_tokens_details.cached_tokens == 0


def case_chat_stream_with_usage():
    chunks = list(ask("scripted", "[[count]]", temperature=0, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices).endswith(" ten")
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 10


def case_chat_logprobs():
    answer = ask("scripted", "[[dist]]", temperature=0, logprobs=True, top_logprobs=3, max_completion_tokens=1)
    token = answer.choices[0].logprobs.content[0]
    assert token.token == " half" and abs(token.logprob + 0.6931) < 1e-3 and len(token.top_logprobs) == 3
    assert bytes(token.bytes) == b" half"


def case_stream_helper():
    with client("scripted").chat.completions.stream(model="m", messages=[{"role": "user", "content": "[[emoji]]"}], temperature=0) as stream:
        text = "".join(e.delta for e in stream if e.type == "content.delta")
        final = stream.get_final_completion()
    assert text == "\U0001F600" and final.choices[0].message.content == text


def case_completions():
    answer = client("scripted").completions.create(model="m", prompt=["[[space]]", "[[eos2]]"], n=2, temperature=0, logprobs=1)
    assert [c.text for c in answer.choices] == [" hello", " hello", "bye", "bye"]
    assert answer.choices[0].logprobs.tokens == [" hello"] and answer.choices[0].logprobs.text_offset == [0]


def case_completions_stream_and_stop():
    chunks = list(client("scripted").completions.create(model="m", prompt="[[stop]]", stop="beta gamma", stream=True, temperature=0))
    assert "".join(c.choices[0].text for c in chunks) == "alpha" and chunks[-1].choices[0].finish_reason == "stop"


def case_errors_become_exceptions():
    for wrong, kind in (({"temperature": 5}, openai.BadRequestError), ({"logit_bias": {"abc": 1}}, openai.BadRequestError)):
        try:
            ask("scripted", "x", **wrong)
        except kind as error:
            assert error.body["type"] == "invalid_request_error" and error.param
        else:
            raise AssertionError(f"{wrong} was accepted")
    bad = openai.OpenAI(base_url=client("scripted").base_url, api_key="wrong", max_retries=0)
    try:
        bad.models.list()
    except openai.AuthenticationError as error:
        assert error.body["message"] == "Invalid API Key"
    else:
        raise AssertionError("a wrong key was accepted")


def case_disconnect_and_go_on():
    for _ in range(5):
        stream = ask("scripted", "[[loop]]", temperature=0, stream=True, max_tokens=400)
        next(iter(stream))
        stream.close()
    assert ask("scripted", "[[space]]", temperature=0).choices[0].message.content == " hello"


def case_sixteen_at_once():
    prompts = [f"Say only the number {n}." for n in range(100, 116)]

    def one(prompt):
        return ask("real", prompt, temperature=0, max_tokens=6).choices[0].message.content

    def streamed(prompt):
        chunks = ask("real", prompt, temperature=0, max_tokens=6, stream=True)
        return "".join(c.choices[0].delta.content or "" for c in chunks)

    solo = [one(p) for p in prompts]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(streamed, prompts)) == solo


def case_real_answer_names_paris():
    assert "Paris" in ask("real", "What is the capital of France?", temperature=0, max_tokens=32).choices[0].message.content


def case_embeddings():  # H29
    texts = ["a cat", "a dog"]
    default = client("embed").embeddings.create(model=client("embed").models.list().data[0].id, input=texts)
    model = default.model
    floats = client("embed").embeddings.create(model=model, input=texts, encoding_format="float")
    for a, b in zip(default.data, floats.data):
        assert len(a.embedding) == len(b.embedding) > 0
        assert max(abs(x - y) for x, y in zip(a.embedding, b.embedding)) < 1e-6
    for wrong in ({"encoding_format": "foo"}, {"model": "gpt-4o"}):
        try:
            client("embed").embeddings.create(**{"model": model, "input": texts, **wrong})
        except openai.BadRequestError:
            continue
        raise AssertionError(f"{wrong} was accepted")


def case_tool_calls():
    answer = ask("scripted", "[[tools]]", temperature=0, tools=TOOLS)
    calls = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls" and [c.function.name for c in calls] == ["get_weather", "search"]
    assert json.loads(calls[0].function.arguments) == {"city": "Oslo"}
    more = [{"role": "user", "content": "a"}, answer.choices[0].message,
            {"role": "tool", "tool_call_id": calls[0].id, "content": "rain"}, {"role": "user", "content": "[[count]]"}]
    again = client("scripted").chat.completions.create(model="m", messages=more, tools=TOOLS, temperature=0)
    assert again.choices[0].message.content.endswith(" ten")


def case_h22_tool_stream_helper():
    for text, count in (("[[tool]]", 1), ("[[tools]]", 2)):
        with client("scripted").chat.completions.stream(model="m", messages=[{"role": "user", "content": text}], tools=TOOLS, temperature=0) as stream:
            kinds = [e.type for e in stream]
            final = stream.get_final_completion()
        assert "tool_calls.function.arguments.delta" in kinds and "tool_calls.function.arguments.done" in kinds
        calls = final.choices[0].message.tool_calls
        assert len(calls) == count and all(isinstance(json.loads(c.function.arguments), dict) for c in calls)


def case_reasoning_content():
    message = ask("scripted", "[[think]]", temperature=0).choices[0].message
    assert message.content == "Yes." and message.reasoning_content == "because of that"


def case_responses():
    first = client("scripted").responses.create(model="m", input="[[count]]", temperature=0)
    assert first.output_text.endswith(" ten") and first.status == "completed" and first.usage.output_tokens == 10
    second = client("scripted").responses.create(model="m", input="[[space]]", temperature=0, previous_response_id=first.id)
    assert second.output_text == " hello" and second.usage.input_tokens > first.usage.input_tokens
    assert client("scripted").responses.retrieve(first.id).output_text == first.output_text
    client("scripted").responses.delete(first.id)
    try:
        client("scripted").responses.retrieve(first.id)
    except openai.NotFoundError:
        pass
    else:
        raise AssertionError("a deleted response was found")


def case_responses_stream_helper():
    flat = [{"type": "function", **t["function"]} for t in TOOLS]
    with client("scripted").responses.stream(model="m", input="[[tool]]", temperature=0, tools=flat) as stream:
        events = [e.type for e in stream]
        final = stream.get_final_response()
    assert events[0] == "response.created" and events[-1] == "response.completed"
    calls = [i for i in final.output if i.type == "function_call"]
    assert len(calls) == 1 and json.loads(calls[0].arguments) == {"city": "Paris"}
    with client("scripted").responses.stream(model="m", input="[[think]]", temperature=0) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
    assert text == "Yes."


def case_parsed_structured_output():
    import pydantic

    class Person(pydantic.BaseModel):
        name: str
        age: int

    answer = client("real").chat.completions.parse(model="m", messages=[{"role": "user", "content": "Invent a person with a short name."}],
                                                   response_format=Person, temperature=0, max_tokens=120)
    assert isinstance(answer.choices[0].message.parsed, Person)


runner.run(globals())
