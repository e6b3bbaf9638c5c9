"""OpenAI's Responses: objects, events in order, chaining, tools, what is kept and for whom."""
import json

from check_messages import named_events
from check_tools import TOOLS

PATH = "/v1/responses"
FLAT_TOOLS = [{"type": "function", **t["function"]} for t in TOOLS]


def ask(context, text, size=65536, **fields):
    return context.wide.post(PATH, {"model": "m", "input": text, "temperature": 0, **fields}, read_size=size)


def check_object(context):
    found = ask(context, "[[count]]", instructions="Be brief.", metadata={"a": "b"}).json()
    assert found["object"] == "response" and found["status"] == "completed" and found["id"].startswith("resp_")
    assert found["output"][0]["type"] == "message" and found["output"][0]["content"][0]["text"].endswith(" ten")
    assert found["output_text"].endswith(" ten") and found["metadata"] == {"a": "b"} and found["instructions"] == "Be brief."
    assert found["usage"]["output_tokens"] == 10 and found["usage"]["total_tokens"] == found["usage"]["input_tokens"] + 10
    cut = ask(context, "[[count]]", max_output_tokens=2).json()
    assert cut["status"] == "incomplete" and cut["incomplete_details"] == {"reason": "max_output_tokens"}


def check_events_in_order(context):
    for size in (1, 7, 65536):
        events = named_events(ask(context, "[[think]]", size, stream=True).body)
        assert [e["sequence_number"] for e in events] == list(range(len(events)))
        kinds = [e["type"] for e in events]
        assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
        for kind in ("reasoning_text", "output_text"):
            assert kinds.index(f"response.{kind}.delta") < kinds.index(f"response.{kind}.done")
        assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 2
        text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
        assert text == "Yes." == events[-1]["response"]["output_text"]
        assert events[-1]["response"]["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def check_function_calls(context):
    found = ask(context, "[[tools]]", tools=FLAT_TOOLS).json()
    calls = [i for i in found["output"] if i["type"] == "function_call"]
    assert [c["name"] for c in calls] == ["get_weather", "search"] and json.loads(calls[0]["arguments"]) == {"city": "Oslo"}
    events = named_events(ask(context, "[[tool]]", 1, tools=FLAT_TOOLS, stream=True).body)
    done = [e for e in events if e["type"] == "response.function_call_arguments.done"]
    assert len(done) == 1 and json.loads(done[0]["arguments"]) == {"city": "Paris"}
    more = [{"role": "user", "content": "a"}, *found["output"], {"type": "function_call_output", "call_id": calls[0]["call_id"], "output": "[[count]]"}]
    assert ask(context, more, tools=FLAT_TOOLS).status == 200
    dropped = ask(context, "[[count]]", tools=[{"type": "web_search"}]).json()
    assert dropped["warnings"][0]["type"] == "tool_dropped"
    assert ask(context, "x", tools=[{"type": "web_search"}], tool_choice="required").status == 400


def check_chaining_and_store(context):
    server = context.wide
    first = ask(context, "[[space]]").json()
    assert server.get(f"{PATH}/{first['id']}").json() == first
    before = server.post(PATH + "/input_tokens", {"input": "[[count]]"}).json()["input_tokens"]
    chained = ask(context, "[[count]]", previous_response_id=first["id"]).json()
    assert chained["usage"]["input_tokens"] > before and chained["previous_response_id"] == first["id"]
    assert server.request("DELETE", f"{PATH}/{first['id']}").json() == {"id": first["id"], "object": "response", "deleted": True}
    assert server.get(f"{PATH}/{first['id']}").status == 404
    assert ask(context, "x", previous_response_id=first["id"]).status == 404
    assert server.get(f"{PATH}/{ask(context, '[[space]]', store=False).json()['id']}").status == 404
    talk = ask(context, "[[space]]", conversation={}).json()["conversation"]["id"]
    assert ask(context, "[[count]]", conversation=talk).json()["usage"]["input_tokens"] > before
    assert ask(context, "x", conversation="conv_unknown").status == 404
    assert ask(context, "x", conversation=talk, previous_response_id=chained["id"]).status == 400


def check_what_one_key_keeps_is_not_anothers(context):
    server = context.shared("keys")
    first = {"Authorization": "Bearer first-secret"}
    body = {"input": "[[space]]", "temperature": 0}
    kept = server.request("POST", PATH, body, first).json()["id"]
    assert server.request("GET", f"{PATH}/{kept}", headers=first).status == 200
    assert server.request("GET", f"{PATH}/{kept}", headers={"X-Api-Key": "second-secret"}).status == 404


def check_h17_nothing_to_answer(context):
    for wrong in (None, "", [], [{"role": "user", "content": ""}], [{"role": "user", "content": []}], 5):
        for stream in (False, True):
            found = context.scripted.post(PATH, {"input": wrong, "stream": stream})
            assert found.status == 400 and found.json()["error"]["param"] is not None, f"{wrong}: {found.body[:200]}"


def check_refusals(context):
    for wrong in ({"background": True}, {"truncation": "maybe"}, {"max_output_tokens": 0}, {"tool_choice": "x"}, {"input": [{"type": "item_reference", "id": "a"}]},
                  {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}):
        found = context.scripted.post(PATH, {"input": "x", **wrong})
        assert found.status in (400, 404), f"{wrong}: {found.status}"


def check_truncation_drops_the_oldest_turns(context):
    long = [{"role": "user", "content": "a" * 300}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c" * 300 + "[[space]]"}]
    body = {"input": long, "temperature": 0}
    assert context.scripted.post(PATH, body).status == 400
    found = context.scripted.post(PATH, {**body, "truncation": "auto"}).json()
    assert found["output_text"] == " hello" and found["warnings"][0]["type"] == "truncated", found


def check_references_to_items_that_were_kept(context):
    """What newer clients send back: the ids of items instead of the items."""
    server = context.wide
    first = ask(context, "[[tools]]", tools=FLAT_TOOLS).json()
    calls = [i for i in first["output"] if i["type"] == "function_call"]
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    results = [{"type": "function_call_output", "call_id": c["call_id"], "output": "rain"} for c in calls]
    turn = [{"role": "user", "content": "a"}, *references, *results, {"role": "user", "content": "[[count]]"}]
    whole = [{"role": "user", "content": "a"}, *first["output"], *results, {"role": "user", "content": "[[count]]"}]
    for size in (None, 1, 7, 65536):
        counts = []
        for items in (turn, whole):
            found = ask(context, items, size or 65536, tools=FLAT_TOOLS, stream=size is not None)
            assert found.status == 200, found.body[:300]
            done = found.json() if size is None else named_events(found.body)[-1]["response"]
            assert done["output_text"].endswith(" ten"), done
            counts.append(done["usage"]["input_tokens"])
        assert counts[0] == counts[1], counts
    thought = ask(context, "[[think]]").json()
    assert [i["type"] for i in thought["output"]] == ["reasoning", "message"]
    more = [{"role": "user", "content": "a"}, *({"type": "item_reference", "id": i["id"]} for i in thought["output"]), {"role": "user", "content": "[[space]]"}]
    assert ask(context, more).json()["output_text"] == " hello"
    forgotten = ask(context, "[[space]]", store=False).json()["output"][0]["id"]
    for wrong in (forgotten, "msg_unknown", '","x":"', ""):
        found = ask(context, [{"type": "item_reference", "id": wrong}, {"role": "user", "content": "x"}])
        assert found.status == 404 and found.json()["error"]["param"] == "input[0]", found.body
    assert ask(context, [{"type": "item_reference"}, {"role": "user", "content": "x"}]).status == 400
    server.request("DELETE", f"{PATH}/{first['id']}")
    assert ask(context, turn, tools=FLAT_TOOLS).status == 404


def check_what_may_be_included(context):
    for names, status in ((["reasoning.encrypted_content", "message.output_text.logprobs"], 200), (["web_search_call.action.sources"], 200), ([], 200),
                          (["everything"], 400), ([1], 400), ("message.output_text.logprobs", 400)):
        found = ask(context, "[[space]]", include=names)
        assert found.status == status, (names, found.body[:200])
        assert status == 200 or found.json()["error"]["param"].startswith("include"), found.body
    scored = ask(context, "[[space]]", include=["message.output_text.logprobs"]).json()["output"][0]["content"][0]["logprobs"]
    assert len(scored) == 1 and scored[0]["token"] == " hello", scored
    for field in ("stream_options", "prediction", "prompt"):
        assert ask(context, "[[space]]", **{field: "yes"}).status == 400
