"""Cases of langchain-openai (run by run.py)."""
import langchain_openai
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from pydantic import BaseModel

import runner
from runner import KEY, Skip, address

TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}


def model(**fields):
    return langchain_openai.ChatOpenAI(base_url=address("scripted") + "/v1", api_key=KEY, model="scripted", temperature=0, max_retries=0, **fields)


def case_invoke_and_usage():
    answer = model().invoke("[[count]]")
    assert answer.content.endswith(" ten") and answer.usage_metadata["output_tokens"] == 10
    assert answer.response_metadata["finish_reason"] == "stop"


def case_stream():
    assert "".join(c.content for c in model(stream_usage=True).stream("[[emoji]]")) == "\U0001F600"


def case_tools_streamed_and_not():
    bound = model().bind_tools([TOOL])
    call = bound.invoke("[[tool]]").tool_calls[0]
    assert call["name"] == "get_weather" and call["args"] == {"city": "Paris"} and call["id"]
    whole = None
    for chunk in bound.stream("[[tool]]"):
        whole = chunk if whole is None else whole + chunk
    assert whole.tool_calls[0]["args"] == call["args"] and whole.tool_calls[0]["name"] == call["name"]


def case_a_tool_result_goes_back():
    bound = model().bind_tools([TOOL])
    first = bound.invoke("[[tool]]")
    history = [HumanMessage("[[tool]]"), first, ToolMessage("rain", tool_call_id=first.tool_calls[0]["id"]), HumanMessage("[[count]]")]
    assert isinstance(bound.invoke(history), AIMessage)


class Colour(BaseModel):
    red: bool


def case_structured_output():
    # The scripted model fills any form; the parser of the client reads it.
    parsed = model(max_tokens=200).with_structured_output(Colour, method="json_schema").invoke("[[count]]")
    assert isinstance(parsed, Colour)


def case_responses():
    answer = model(use_responses_api=True).invoke("[[count]]")
    text = answer.content if isinstance(answer.content, str) else "".join(p.get("text", "") for p in answer.content)
    assert text.endswith(" ten"), answer


def case_embeddings():
    client = langchain_openai.OpenAIEmbeddings(base_url=address("embed") + "/v1", api_key=KEY, check_embedding_ctx_length=False,
                                               model=runner.server("embed").get("/v1/models", headers={"X-Api-Key": KEY}).json()["data"][0]["id"])
    one, two = client.embed_documents(["a cat", "a dog"])
    assert len(one) == len(two) == 384 and one != two


runner.run(globals())
