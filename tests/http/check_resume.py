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
    assert look(server, "to-cancel")[0]["is_done"] is False
    assert server.request("DELETE", "/v1/stream?conv_id=to-cancel").status == 204
    assert until(lambda: not any(s["is_processing"] for s in server.get("/slots").json()))
    assert look(server, "to-cancel") == [] and server.get("/v1/stream?conv_id=to-cancel").status == 404
    assert server.request("DELETE", "/v1/stream?conv_id=to-cancel").status == 404


def check_a_cancelled_stream_ends_for_all_who_read_it(context):
    server = context.wide
    for i, size in enumerate((1, 7, 65536)):
        connection = begin(server, f"read-{i}", {**BODY, "max_tokens": 8000, "ignore_eos": True})
        connection.read_size = size
        first = connection.chunk() + connection.chunk()
        with Connection(server, 20, size) as follower:
            follower.send(encode_request("GET", f"/v1/stream?conv_id=read-{i}"))
            assert follower.head()[0] == 200
            assert follower.chunk()
            assert server.request("DELETE", f"/v1/stream?conv_id=read-{i}").status == 204
            for reader in (connection, follower):
                reader.sock.settimeout(20)
                rest = b""
                while data := reader.chunk():  # to the end of the chunks: nobody is left waiting
                    rest += data
                assert b"[DONE]" not in rest and (not rest or rest.endswith(b"\n\n")), rest[-80:]
        connection.close()
        assert first and until(lambda: not any(s["is_processing"] for s in server.get("/slots").json()))


def check_a_stream_whose_model_is_loading(context):
    """It is there before its first byte: it can be asked after, it can be ended, and it does not need its client."""
    from check_router import Several
    body = {"model": "one", "messages": [{"role": "user", "content": "[[count]]"}], "temperature": 0, "stream": True}
    seen = set()
    for i in range(6):
        with Several(context, models=("one",)) as server:
            connection = Connection(server)
            connection.send(encode_request("POST", "/v1/chat/completions", body, {"X-Conversation-Id": "waits"}))
            asked = until(lambda: (s := server.get("/v1/stream?conv_id=waits").status) != 404 and s, 20, 0.001)
            seen.add(asked)
            if i % 2:
                connection.close(hard=i == 3)
                found = until(lambda: (r := server.get("/v1/stream?conv_id=waits")).status == 200 and r, 60)
                assert joined_chat(sse_events(found.body)).endswith(" ten"), found.body
            elif asked == 503:
                assert server.request("DELETE", "/v1/stream?conv_id=waits").status == 204
                found = connection.response()
                assert found.status in (200, 400), found.body
                assert found.status == 200 or "cancelled" in found.json()["error"]["message"], found.body
                assert server.get("/v1/stream?conv_id=waits").status == 404
                connection.close()
            assert until(lambda: server.get("/health").status == 200)
            assert server.stop() == 0
    assert 503 in seen and seen <= {200, 503}, seen


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


def check_a_cancelled_stream_lets_its_model_go(context):
    """Whoever still reads such a stream does not hold the model that another one needs the place of."""
    from check_router import Several, ask
    with Several(context, "--models-max", "1", models=("one", "two")) as server:
        assert ask(server, "one").status == 200
        for i in range(3):
            connection = begin(server, f"held-{i}", {**BODY, "model": "one", "max_tokens": 480})
            connection.chunk()
            assert server.request("DELETE", f"/v1/stream?conv_id=held-{i}").status == 204
            body = {"model": "two", "messages": [{"role": "user", "content": "[[space]]"}], "temperature": 0}
            assert server.post("/v1/chat/completions", body, timeout=30).status == 200
            assert ask(server, "one").status == 200
            connection.close()
        assert server.stop() == 0
