"""The cases of users' faults on every generating route: read one byte, seven bytes and everything at a time, and
unstreamed; what streams must join to what is given whole."""
import concurrent.futures
import json
import time

from check_messages import named_events
from harness import Connection, encode_request, sse_events, until

COUNT = " one two three four five six seven eight nine ten"
EMOJI = "\U0001F600"


class Way:
    """One route: how it is asked, and what an answer says: (text, thought, finish)."""

    def __init__(self, name, path, body, whole, joined, names):
        self.name, self.path, self.body, self.whole, self.joined, self.names = name, path, body, whole, joined, names

    def request(self, text, stream, stop=None, cap=None, **more):
        body = {**self.body(text), **more}
        body["stream"] = stream
        for value, name in ((stop, self.names["stop"]), (cap, self.names["cap"])):
            if value is None:
                continue
            if "." in name:
                outer, inner = name.split(".")
                body[outer] = {**body.get(outer, {}), inner: value}
            else:
                body[name] = value
        return body

    def ask(self, server, text, size=None, random=False, **more):
        """random: a model with random weights may well write bytes that are no text."""
        found = server.post(self.path, self.request(text, size is not None, **more), read_size=size or 65536)
        assert found.status == 200, f"{self.name}: {found.status} {found.body[:300]}"
        assert random or "\ufffd" not in found.body.decode(), f"{self.name}: U+FFFD"
        return self.whole(found.json()) if size is None else self.joined(found.body)


def chat_whole(body):
    choice = body["choices"][0]
    return choice["message"]["content"] or "", choice["message"].get("reasoning_content") or "", choice["finish_reason"]


def chat_joined(body):
    events = sse_events(body)
    assert events[-1] == "[DONE]"
    choices = [c for e in events[:-1] for c in e["choices"]]
    joined = lambda key: "".join(c["delta"].get(key) or "" for c in choices)  # noqa: E731
    return joined("content"), joined("reasoning_content"), [c["finish_reason"] for c in choices if c["finish_reason"]][0]


def text_joined(body):
    choices = [c for e in sse_events(body)[:-1] for c in e["choices"]]
    return "".join(c["text"] for c in choices), "", [c["finish_reason"] for c in choices if c["finish_reason"]][0]


def messages_whole(body):
    blocks = body["content"]
    return ("".join(b["text"] for b in blocks if b["type"] == "text"), "".join(b["thinking"] for b in blocks if b["type"] == "thinking"), body["stop_reason"])


def messages_joined(body):
    events = named_events(body)
    deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
    return ("".join(d.get("text", "") for d in deltas), "".join(d.get("thinking", "") for d in deltas),
            [e["delta"]["stop_reason"] for e in events if e["type"] == "message_delta"][0])


def response_whole(body):
    thought = "".join(p["text"] for item in body["output"] if item["type"] == "reasoning" for p in item["content"])
    return body["output_text"], thought, body["status"]


def response_joined(body):
    events = named_events(body)
    numbers = [e["sequence_number"] for e in events]
    assert numbers == list(range(len(numbers))), numbers
    pick = lambda kind: "".join(e["delta"] for e in events if e["type"] == kind)  # noqa: E731
    return pick("response.output_text.delta"), pick("response.reasoning_text.delta"), events[-1]["response"]["status"]


def ollama_joined(body):
    lines = [json.loads(line) for line in body.decode().strip().split("\n")]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    return "".join(l["message"]["content"] for l in lines), "".join(l["message"].get("thinking", "") for l in lines), lines[-1]["done_reason"]


def native_joined(body):
    events = sse_events(body)
    return "".join(e["content"] for e in events), "", events[-1]["stop_type"]


def user(text):
    return [{"role": "user", "content": text}]


CHAT = Way("chat", "/v1/chat/completions", lambda t: {"messages": user(t), "temperature": 0}, chat_whole, chat_joined, {"stop": "stop", "cap": "max_tokens"})
COMPLETIONS = Way("completions", "/v1/completions", lambda t: {"prompt": "x" + t, "temperature": 0, "max_tokens": 64},
                  lambda b: (b["choices"][0]["text"], "", b["choices"][0]["finish_reason"]), text_joined, {"stop": "stop", "cap": "max_tokens"})
MESSAGES = Way("messages", "/v1/messages", lambda t: {"model": "m", "messages": user(t), "temperature": 0, "max_tokens": 64}, messages_whole, messages_joined,
               {"stop": "stop_sequences", "cap": "max_tokens"})
RESPONSES = Way("responses", "/v1/responses", lambda t: {"input": t, "temperature": 0}, response_whole, response_joined, {"stop": "stop", "cap": "max_output_tokens"})
OLLAMA = Way("ollama", "/api/chat", lambda t: {"model": "scripted", "messages": user(t), "options": {"temperature": 0}},
             lambda b: (b["message"]["content"], b["message"].get("thinking", ""), b["done_reason"]), ollama_joined, {"stop": "options.stop", "cap": "options.num_predict"})
NATIVE = Way("native", "/completion", lambda t: {"prompt": "x" + t, "temperature": 0}, lambda b: (b["content"], "", b["stop_type"]), native_joined,
             {"stop": "stop", "cap": "n_predict"})
EVERY = (CHAT, COMPLETIONS, MESSAGES, RESPONSES, OLLAMA, NATIVE)
SHOW_THOUGHTS = (CHAT, MESSAGES, RESPONSES, OLLAMA)
STOPPED = {"chat": "stop", "completions": "stop", "messages": "stop_sequence", "responses": "completed", "ollama": "stop", "native": "word"}
ENDED = {**STOPPED, "messages": "end_turn", "native": "eos"}
CUT = {"chat": "length", "completions": "length", "messages": "max_tokens", "responses": "incomplete", "ollama": "length", "native": "limit"}


def every_way(server, text, expected, finish, ways=EVERY, thought="", **more):
    for way in ways:
        for size in (None, 1, 7, 65536):
            found = way.ask(server, text, size, **more)
            assert found == (expected, thought, finish[way.name]), f"{way.name} in pieces of {size}: {found}"


def check_h1_stop_string_across_tokens(context):
    ways = [w for w in EVERY if w is not RESPONSES]  # the Responses API has no stop strings
    every_way(context.wide, "[[stop]]", "alpha", STOPPED, ways, stop=["beta gamma"])
    # Every cut of the script by a stop string of its own.
    script = "alphabeta gamma delta"
    for begin in range(1, len(script) - 3, 3):
        for length in (2, 5, 9):
            stop = script[begin:begin + length]
            if script.find(stop) != begin:
                continue
            for size in (None, 1):
                assert CHAT.ask(context.wide, "[[stop]]", size, stop=[stop])[0] == script[:begin], stop


def check_h2_emoji_over_several_tokens(context):
    for text in ("[[emoji]]", "[[emoji2]]"):
        every_way(context.wide, text, EMOJI, ENDED)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:  # and with neighbours in the batch
        for found in pool.map(lambda i: CHAT.ask(context.wide, ("[[emoji]]", "[[emoji2]]")[i % 2], (1, None)[i % 2]), range(16)):
            assert found[0] == EMOJI, found
    events = [e for e in sse_events(context.wide.post(CHAT.path, CHAT.request("[[emoji]]", True)).body) if e != "[DONE]"]
    assert [c["delta"]["content"] for e in events for c in e["choices"] if c["delta"].get("content")] == [EMOJI]


def check_h3_leading_space(context):
    every_way(context.wide, "[[space]]", " hello", ENDED)


def check_h4_the_same_request_twice(context):
    for way in EVERY:
        answers = [way.ask(context.wide, "[[count]]", size) for size in (None, 1, 7, 65536, None)]
        assert len(set(answers)) == 1 and answers[0][0] == COUNT, (way.name, answers)
    long = "word " * 200 + "[[count]]"
    for _ in range(2):
        usage = context.wide.post(CHAT.path, CHAT.request(long, False)).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"] - 1, usage


def check_h5_clients_that_leave(context):
    server = context.scripted
    before = server.output().count("client disconnected")
    for i in range(20):
        with Connection(server) as connection:
            connection.send(encode_request("POST", CHAT.path, CHAT.request("[[loop]]", True, cap=100000)))
            connection.head()
            connection.chunk()
            connection.chunk()
            connection.close(hard=i % 2 == 0)
    assert until(lambda: all(not s["is_processing"] for s in server.get("/slots").json())), server.get("/slots").body
    assert until(lambda: server.output().count("client disconnected") >= before + 20), server.output()[-500:]
    assert server.output().count("client disconnected") == before + 20
    assert CHAT.ask(server, "[[space]]")[0] == " hello"


def check_h14_second_end_token(context):
    every_way(context.wide, "[[eos2]]", "bye", ENDED)


def check_h15_no_seed_varies(context):
    body = {"messages": user("[[flat]]"), "temperature": 1, "max_tokens": 12, "top_k": 0, "top_p": 1, "min_p": 0, "ignore_eos": True}
    ask = lambda more=None: context.wide.post(CHAT.path, {**body, **(more or {})}).json()["choices"]  # noqa: E731
    one = [ask()[0]["message"]["content"] for _ in range(20)]
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        many = list(pool.map(lambda _: ask()[0]["message"]["content"], range(20)))
    choices = [c["message"]["content"] for c in ask({"n": 20})]
    for answers in (one, many, choices):
        assert len(set(answers)) > 15, answers
    seeded = {ask({"seed": 7})[0]["message"]["content"] for _ in range(5)}
    seeded |= {chat_joined(context.wide.post(CHAT.path, {**body, "seed": 7, "stream": True}, read_size=size).body)[0] for size in (1, 7, 65536)}
    assert len(seeded) == 1, seeded


def check_h17_empty_conversations(context):
    chats = [{}, {"messages": []}, {"messages": None}, {"messages": "x"}, {"messages": user("")}, {"messages": user(None)}, {"messages": user([])}]
    for stream in (False, True):
        for body in chats:
            for path, more in ((CHAT.path, {}), (MESSAGES.path, {"model": "m", "max_tokens": 4})):
                found = context.wide.post(path, {**body, **more, "stream": stream})
                assert found.status == 400, (path, body, found.status, found.body[:200])
                assert found.json()["error"]["type"] == "invalid_request_error", found.body
        for body in ({}, {"input": []}, {"input": None}, {"input": ""}, {"input": user("")}):
            found = context.wide.post(RESPONSES.path, {**body, "stream": stream})
            assert found.status == 400 and found.json()["error"]["param"], (body, found.body[:200])


def check_h24_thought_cut_by_length(context):
    server = context.wide
    full = [way.ask(server, "[[think]]") for way in SHOW_THOUGHTS]
    assert all(f[:2] == ("Yes.", "because of that") for f in full), full
    for cap in range(1, 4):
        for way in SHOW_THOUGHTS:
            answers = {way.ask(server, "[[think]]", size, cap=cap) for size in (None, 1, 7, 65536)}
            assert len(answers) == 1, (way.name, cap, answers)
            text, thought, finish = answers.pop()
            assert text == "" and finish == CUT[way.name], (way.name, cap, text, thought, finish)
            assert "because of that".startswith(thought.strip()), (way.name, cap, thought)


def check_h25_usage_chunk(context):
    for way in (CHAT, COMPLETIONS):
        for options, wanted in ((None, False), ({"include_usage": False}, False), ({"include_usage": True}, True), ({}, False)):
            more = {} if options is None else {"stream_options": options}
            for size in (1, 7, 65536):
                events = sse_events(context.wide.post(way.path, way.request("[[count]]", True, **more), read_size=size).body)[:-1]
                with_usage = [e for e in events if e.get("usage")]
                assert len(with_usage) == wanted, (way.name, options, with_usage)
                if wanted:
                    assert events[-1] is with_usage[0] and events[-1]["choices"] == [] and events[-1]["timings"]["predicted_n"] == 10
                    assert all("usage" in e and e["usage"] is None for e in events[:-1])
            whole = context.wide.post(way.path, way.request("[[count]]", False, **({"stream_options": None} if more else {}))).json()
            assert whole["usage"]["completion_tokens"] == 10
    assert named_events(context.wide.post(RESPONSES.path, RESPONSES.request("[[count]]", True)).body)[-1]["response"]["usage"]["output_tokens"] == 10
    assert named_events(context.wide.post(MESSAGES.path, MESSAGES.request("[[count]]", True)).body)[-2]["usage"]["output_tokens"] == 10


def check_h26_prompt_longer_than_the_window(context):
    server = context.scripted  # 512 tokens a slot
    for way in EVERY:
        for stream in (False, True):
            found = server.post(way.path, way.request("a " * 5000, stream))
            assert found.status == 400, (way.name, found.status, found.body[:200])
            assert b"exceeds the available context size (512 tokens)" in found.body, (way.name, found.body[:300])
    tokens = lambda n: [5] * n  # noqa: E731
    for count, status in ((511, 200), (512, 400), (513, 400)):
        found = server.post(COMPLETIONS.path, {"prompt": tokens(count), "max_tokens": 1})
        assert found.status == status, (count, found.body[:200])
        if status == 200:
            assert found.json()["usage"]["prompt_tokens"] == count


def check_h28_system_turn_in_mid_conversation(context):
    base = [{"role": "user", "content": "first"}, {"role": "assistant", "content": "yes"}]
    body = {"model": "m", "max_tokens": 4, "temperature": 0, "system": "Be kind.", "messages": base + [{"role": "system", "content": "SECRET-WORD"}, {"role": "user", "content": "[[space]]"}]}
    found = context.wide.post(MESSAGES.path, body)
    assert found.status == 200, found.body
    prompt = context.wide.post("/apply-template", {"messages": [{"role": "system", "content": "Be kind."}] + body["messages"]}).json()["prompt"]
    assert prompt.index("first") < prompt.index("SECRET-WORD") < prompt.index("[[space]]"), prompt


def check_h32_zero_is_a_value(context):
    with context.start("--temp", "1.5", "--top-p", "0.9", "--presence-penalty", "1", "--seed", "9", "-n", "7") as server:
        flat = {"prompt": "x[[flat]]", "n_predict": 6, "ignore_eos": True}
        greedy = {server.post("/completion", {**flat, "temperature": 0, "seed": i}).json()["content"] for i in range(20)}
        assert len(greedy) == 1, greedy
        streamed = {native_joined(server.post("/completion", {**flat, "temperature": 0, "stream": True}, read_size=size).body)[0] for size in (1, 7, 65536)}
        assert streamed == greedy, (streamed, greedy)
        used = server.post("/completion", {**flat, "temperature": 0, "top_p": 0, "presence_penalty": 0, "seed": 0, "min_p": 0, "top_k": 0}).json()["generation_settings"]
        assert used["temperature"] == 0 and used["top_p"] == 0 and used["presence_penalty"] == 0 and used["seed"] == 0, used
        assert server.post("/completion", {**flat, "n_predict": 0}).json()["tokens_predicted"] == 0
        assert server.post(CHAT.path, CHAT.request("x", False, cap=0)).status == 400


def check_reader_sizes_agree_on_long_answers(context):
    started = time.monotonic()
    every_way(context.wide, "[[long]]", "A long answer that goes on and on and stops.", ENDED)
    assert time.monotonic() - started < 60
