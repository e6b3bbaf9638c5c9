"""Streams that outlive their connection, and thoughts that are ended from outside."""
import json
import time

from harness import Connection, encode_request, sse_events, joined_chat, until

BODY = {"messages": [{"role": "user", "content": "[[loop]]"}], "temperature": 0, "stream": True, "max_tokens": 300}


def begin(server, conversation, body=BODY, headers=None):
    connection = Connection(server)
    connection.send(encode_request("POST", "/v1/chat/completions", body, {"X-Conversation-Id": conversation, **(headers or {})}))
    status, _ = connection.head()
    assert status == 200
    return connection


def look(server, *ids, headers=None):
    return server.request("POST", "/v1/streams/lookup", {"conversation_ids": list(ids)}, headers).json()


def check_a_stream_is_picked_up_again(context):
    server = context.scripted
    connection = begin(server, "conv one")
    first = connection.chunk() + connection.chunk()
    connection.close()
    found = server.get("/v1/stream?conv_id=conv%20one&from=0")
    assert found.status == 200 and found.body.startswith(first)
    events = sse_events(found.body)
    assert events[-1] == "[DONE]" and len(joined_chat(events).split()) == 300
    rest = server.get(f"/v1/stream?conv_id=conv+one&from={len(first)}")
    assert first + rest.body == found.body
    state = look(server, "conv one", "nobody")
    assert len(state) == 1 and state[0]["is_done"] and state[0]["total_bytes"] == len(found.body) and state[0]["completed_at"]
    assert server.get(f"/v1/stream?conv_id=conv+one&from={10 ** 9}").status == 400
    assert server.get("/v1/stream?conv_id=nobody").status == 404 and server.get("/v1/stream").status == 400


def check_a_stream_is_cancelled(context):
    server = context.scripted
    connection = begin(server, "to-cancel", {**BODY, "max_tokens": 400})
    connection.chunk()
    connection.close()
    assert server.request("DELETE", "/v1/stream?conv_id=to-cancel").status == 204
    assert until(lambda: look(server, "to-cancel")[0]["is_done"])
    assert until(lambda: not any(s["is_processing"] for s in server.get("/slots").json()))


def check_another_key_sees_nothing(context):
    server = context.shared("keys")
    mine, other = {"Authorization": "Bearer first-secret"}, {"Authorization": "Bearer second-secret"}
    begin(server, "mine", {**BODY, "max_tokens": 5}, mine).close()
    assert until(lambda: look(server, "mine", headers=mine)[0]["is_done"])
    assert look(server, "mine", headers=other) == []
    assert server.request("GET", "/v1/stream?conv_id=mine", headers=other).status == 404


def check_a_thought_is_ended_from_outside(context):
    server = context.scripted
    for wrong in ({}, {"id": "x"}, {"id": "x", "action": "stop"}):
        assert server.post("/v1/chat/completions/control", wrong).status == 400
    assert server.post("/v1/chat/completions/control", {"id": "chatcmpl-none", "action": "reasoning_end"}).json()["success"] is False
