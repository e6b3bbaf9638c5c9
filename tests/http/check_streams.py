"""Order and content of event streams, usage, seeds, many clients at once, clients that leave."""
import concurrent.futures
import json
import time

from harness import Connection, encode_request, finishes, joined_chat, joined_text, until

CHAT = "/v1/chat/completions"


def user(text, **fields):
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, **fields}


def check_chunk_order(context):
    events = context.scripted.chat("[[count]]", stream=True).events()
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    assert chunks[0]["choices"] == [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}]
    assert all(c["object"] == "chat.completion.chunk" for c in chunks)
    assert len({c["id"] for c in chunks}) == 1 and len({c["created"] for c in chunks}) == 1
    last = chunks[-1]
    assert last["choices"][0]["delta"] == {} and last["choices"][0]["finish_reason"] == "stop"
    assert last["timings"]["predicted_n"] == 10
    assert all(c["choices"][0]["finish_reason"] is None for c in chunks[:-1])


def check_h25_usage_chunk(context):
    for path, body in [(CHAT, user("[[count]]")), ("/v1/completions", {"prompt": "x[[count]]", "temperature": 0})]:
        for options in (None, {}, {"include_usage": False}):
            more = {"stream": True} if options is None else {"stream": True, "stream_options": options}
            events = context.scripted.post(path, {**body, **more}).events()
            assert all("usage" not in e for e in events[:-1]), f"{path} {options}: a usage nobody asked for"
            assert all(e["choices"] for e in events[:-1])
        events = context.scripted.post(path, {**body, "stream": True, "stream_options": {"include_usage": True}}).events()
        assert events[-1] == "[DONE]"
        usage = events[-2]
        assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 10
        assert all(e["usage"] is None for e in events[:-2]), f"{path}: earlier chunks carry usage: null"


def check_stream_logprobs_join_to_the_text(context):
    for text in ("[[emoji]]", "[[emoji2]]", "[[stop]]", "[[long]]"):
        events = context.scripted.chat(text, stream=True, logprobs=True, top_logprobs=1).events()
        tokens = [t for e in events[:-1] for c in e["choices"] if c["logprobs"] for t in c["logprobs"]["content"]]
        joined = bytes(b for t in tokens for b in t["bytes"]).decode()
        assert joined == joined_chat(events), f"{joined!r} against {joined_chat(events)!r}"
        whole = context.scripted.chat(text, logprobs=True, top_logprobs=1).json()["choices"][0]
        assert whole["message"]["content"] == joined
        assert [t["bytes"] for t in whole["logprobs"]["content"]] == [t["bytes"] for t in tokens]


def check_n_choices_in_a_stream(context):
    events = context.scripted.chat("[[count]]", stream=True, n=3).events()
    texts = [joined_chat(events, i) for i in range(3)]
    assert len(set(texts)) == 1 and texts[0].endswith(" ten"), texts
    assert finishes(events) == ["stop"] * 3


def check_echoed_prompt_is_the_first_chunk(context):
    body = {"prompt": "x[[space]]", "echo": True, "stream": True, "temperature": 0}
    events = context.scripted.post("/v1/completions", body).events()
    assert events[0]["choices"][0]["text"] == "x[[space]]"
    body.update(logprobs=1)
    events = context.scripted.post("/v1/completions", body).events()
    first = events[0]["choices"][0]
    assert first["text"] == "x[[space]]", first
    assert first["logprobs"]["tokens"] == ["x", "[[space]]"] and first["logprobs"]["token_logprobs"][0] is None
    tokens = [t for e in events[:-1] for c in e["choices"] if c["logprobs"] for t in c["logprobs"]["tokens"]]
    assert "".join(tokens) == joined_text(events) == "x[[space]] hello"
    offsets = [o for e in events[:-1] for c in e["choices"] if c["logprobs"] for o in c["logprobs"]["text_offset"]]
    assert offsets == [0, 1, 10], offsets


def check_h15_no_seed_varies(context):
    def draw(**fields):
        body = {"prompt": "[[flat]]", "temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "max_tokens": 8, **fields}
        return [c["text"] for c in context.scripted.post("/v1/completions", body).json()["choices"]]

    serial = {draw()[0] for _ in range(8)}
    assert len(serial) == 8, f"answers repeat: {serial}"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = {r[0] for r in pool.map(lambda _: draw(), range(8))}
    assert len(together) == 8, f"answers repeat in one batch: {together}"
    assert len(set(draw(n=20))) == 20, "choices repeat"
    solo = draw(seed=7)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        seeded = list(pool.map(lambda _: draw(seed=7), range(8)))
    assert all(r == solo for r in seeded), "a seed does not decide"
    assert draw(seed=0) == draw(seed=0) and draw(seed=0) != solo


def check_h18_last_id_of_the_vocabulary(context):
    ids = context.token_ids()
    last = max(ids.values())
    server = context.scripted
    assert server.chat("[[count]]", logit_bias={str(last): 100}, max_tokens=1).status == 200
    wrong = server.chat("[[count]]", logit_bias={str(last + 1): 1}, max_tokens=1)
    # A vocabulary may be padded beyond its named tokens; far beyond it nothing may pass.
    if wrong.status != 400:
        wrong = server.chat("[[count]]", logit_bias={str(last + 100000): 1}, max_tokens=1)
    assert wrong.status == 400 and wrong.json()["error"]["param"].startswith("logit_bias."), wrong.body


def check_token_id_prompts(context):
    ids = context.token_ids()
    body = {"prompt": [ids["[[count]]"]], "temperature": 0}
    whole = context.scripted.post("/v1/completions", body).json()
    assert whole["choices"][0]["text"].endswith(" ten") and whole["usage"]["prompt_tokens"] == 1
    body = {"prompt": [[ids["[[count]]"]], [ids["[[space]]"]]], "temperature": 0}
    assert context.scripted.post("/v1/completions", body).json()["choices"][1]["text"] == " hello"


def check_h26_prompt_longer_than_the_window(context):
    server = context.scripted
    for count, status in ((511, 200), (512, 400), (513, 400), (5000, 400)):
        text = "a" * (count - 1) + "[[loop]]"
        for stream in (False, True):
            found = server.post("/v1/completions", {"prompt": text, "stream": stream, "temperature": 0, "max_tokens": 4})
            assert found.status == status, f"{count} tokens: {found.status} {found.body[:200]}"
            if status == 400:
                message = found.json()["error"]["message"]
                assert str(count) in message and "512" in message and "exceeds the available context size" in message, message
            elif not stream:
                usage = found.json()["usage"]
                assert usage["prompt_tokens"] == count and usage["completion_tokens"] == 1
                assert found.json()["choices"][0]["finish_reason"] == "length"
    chat = server.chat("a" * 600)
    assert chat.status == 400 and chat.json()["error"]["param"] == "messages", chat.body


def idle(server):
    return server.metric("mlxcel_slots_busy") == 0 and server.metric("mlxcel_queue_depth") == 0


def leave(server, stream, hard):
    with Connection(server) as connection:
        connection.send(encode_request("POST", CHAT, user("[[loop]]", stream=stream, max_tokens=480)))
        if stream:
            status, _ = connection.head()
            assert status == 200
            connection.chunk()
            connection.chunk()
        else:
            time.sleep(0.01)
        connection.close(hard)


def check_h5_client_leaves_mid_stream(context):
    server = context.start("--metrics", "--parallel", "2", "-c", "1024")
    with server:
        leave(server, True, False)
        assert until(lambda: idle(server))
        before = server.resident()
        for i in range(20):
            leave(server, True, hard=i % 2 == 1)
            assert until(lambda: idle(server), 5), f"the slot of client {i} stays busy"
        assert server.alive()
        grown = server.resident() - before
        assert grown < (32 << 20) * context.slack, f"{grown >> 20} MiB more than before"
        cancelled = server.metric('mlxcel_requests_cancelled_total{reason="client disconnected"}') or 0
        assert cancelled >= 15, f"only {cancelled} of 21 were noticed before they ended"
        lines = [l for l in server.output().splitlines() if "client disconnected" in l]
        assert len(lines) == cancelled, f"{len(lines)} log lines for {cancelled} cancelled requests"
        assert server.chat("[[space]]").json()["choices"][0]["message"]["content"] == " hello"
        assert server.stop() == 0


def check_h6_sixteen_clients_on_the_scripted_model(context):
    server = context.scripted
    prompts = ["[[count]]", "[[stop]]", "[[long]]", "[[emoji]]", "[[space]]", "[[eos2]]", "[[half]]", "[[emoji2]]"]
    solo = {p: server.chat(p).json()["choices"][0]["message"]["content"] for p in prompts}

    def ask(i):
        prompt = prompts[i % len(prompts)]
        if i % 4:
            return prompt, joined_chat(server.post(CHAT, user(prompt, stream=True), read_size=(1, 7, 65536)[i % 4 - 1]).events())
        return prompt, server.chat(prompt).json()["choices"][0]["message"]["content"]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for prompt, text in pool.map(ask, range(96)):
            assert text == solo[prompt], f"{prompt}: {text!r} instead of {solo[prompt]!r}"


def check_queue_full_is_503(context):
    server = context.start("--parallel", "1", "--max-queue-depth", "1", "-c", "512", "--metrics")
    with server:
        held = []
        statuses = []
        for _ in range(4):
            connection = Connection(server)
            connection.send(encode_request("POST", CHAT, user("[[loop]]", stream=True, max_tokens=480)))
            held.append(connection)
        for connection in held:
            status, headers = connection.head()
            statuses.append(status)
            if status == 503:
                body = json.loads(connection.exactly(int(headers["content-length"])))
                assert body["error"]["type"] == "server_busy" and body["error"]["message"] == "All slots are busy"
                assert headers["retry-after"]
        for connection in held:
            connection.close()
        assert set(statuses) == {200, 503}, statuses
        assert until(lambda: idle(server))
        assert server.chat("[[space]]").status == 200


def check_real_model_answers(context):
    server = context.real
    found = server.chat("What is the capital of France?", max_tokens=32).json()
    assert "Paris" in found["choices"][0]["message"]["content"], found
    assert found["usage"]["prompt_tokens"] > 10
    events = server.chat("What is the capital of France?", max_tokens=32, stream=True).events()
    assert joined_chat(events) == found["choices"][0]["message"]["content"]


def check_h6_sixteen_clients_on_the_real_model(context):
    server = context.real
    prompts = [f"Repeat exactly this number and nothing else: {n}" for n in range(4711, 4723)]

    def ask(prompt, stream):
        body = user(prompt, max_tokens=8, stream=stream)
        found = server.post(CHAT, body, timeout=900)  # a loaded machine takes its time
        return joined_chat(found.events()) if stream else found.json()["choices"][0]["message"]["content"]

    solo = [ask(p, False) for p in prompts]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(ask, prompts[i % 12], i % 2 == 0) for i in range(32)]
        for i, job in enumerate(jobs):
            assert job.result() == solo[i % 12], f"{prompts[i % 12]}: {job.result()!r} instead of {solo[i % 12]!r}"
