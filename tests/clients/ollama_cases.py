"""Cases of Ollama's client for Python (run by run.py, inside the client environment)."""
import runner
from runner import KEY, Skip, address

try:
    import ollama
except ImportError:
    ollama = None

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}]


def client(name="scripted"):
    if ollama is None:
        raise Skip("the ollama package is not installed")
    return ollama.Client(host=address(name), headers={"Authorization": "Bearer " + KEY})


def ask(text, **fields):
    return client().chat(model="scripted", messages=[{"role": "user", "content": text}], options={"temperature": 0}, **fields)


def case_chat():
    answer = ask("[[count]]")
    assert answer.message.content.endswith(" ten") and answer.done_reason == "stop" and answer.eval_count == 10
    assert "".join(part.message.content for part in ask("[[count]]", stream=True)) == answer.message.content


def case_tools_and_thoughts():
    calls = ask("[[tool]]", tools=TOOLS).message.tool_calls
    assert calls[0].function.name == "get_weather" and calls[0].function.arguments == {"city": "Paris"}
    thought = ask("[[think]]", think=True).message
    assert thought.content == "Yes." and thought.thinking == "because of that"


def case_generate():
    answer = client().generate(model="scripted", prompt="[[count]]", options={"temperature": 0})
    assert answer.response.endswith(" ten") and len(answer.context) > 10


def case_lists():
    assert [m.model for m in client().list().models][0] == "scripted"
    assert client().ps().models[0].model == "scripted"
    shown = client().show("scripted")
    assert "completion" in shown.capabilities and shown.modelinfo["general.architecture"]


def case_errors():
    try:
        client().chat(model="other", messages=[{"role": "user", "content": "a"}])
    except ollama.ResponseError as error:
        assert error.status_code == 404 and "not found" in error.error
    else:
        raise AssertionError("an unknown model was accepted")


runner.run(globals())
