"""Cases of users' faults that concern one request among others, templates that refuse, two BOS, odd biases (H8, H16, H18 to H20)."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import time

from check_cases import CHAT, COMPLETIONS, COUNT, EVERY, MESSAGES, NATIVE, OLLAMA, RESPONSES, user
from check_messages import named_events
from harness import Server, sse_events

SIZES = (None, 1, 7, 65536)


def processor_seconds(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shape_of_a_failure(failing, broken, stream):
    text = broken.body.decode()
    if not stream:
        error = broken.json()["error"]
        assert broken.status == 500, broken.body
        assert isinstance(error, str) if failing is OLLAMA else error["type"] == ("api_error" if failing is MESSAGES else "server_error"), broken.body
        return
    assert broken.status == 200 and "error" in text and "[DONE]" not in text, text
    if failing is MESSAGES:
        assert named_events(broken.body)[-1]["type"] == "error", text
    elif failing is RESPONSES:
        assert [e["type"] for e in named_events(broken.body)][-1] == "response.failed", text
    elif failing is OLLAMA:
        assert isinstance(json.loads(text.strip().split("\n")[-1])["error"], str), text
    else:
        assert sse_events(broken.body)[-1]["error"]["code"] == 500, text


def check_h8_one_failing_request(context):
    for failing in EVERY:
        good = CHAT if failing is not CHAT else NATIVE
        with Server(context.binary, context.wide_folder(), "--parallel", "10", env={"MLXCEL_FAIL_STEP": f"{failing.path}:4"}) as server:
            for size in SIZES:  # unstreamed, then by one byte, seven, all
                def bad():
                    return server.post(failing.path, failing.request("[[count]]", size is not None), read_size=size or 65536)
                with concurrent.futures.ThreadPoolExecutor(10) as pool:
                    jobs = [pool.submit(good.ask, server, "[[count]]", SIZES[i % 4]) for i in range(9)]
                    broken = pool.submit(bad).result()
                    answers = [job.result() for job in jobs]
                assert all(a[0] == COUNT for a in answers), answers
                shape_of_a_failure(failing, broken, size is not None)
            before = processor_seconds(server)
            time.sleep(0.3)
            assert processor_seconds(server) - before < 0.2, "something goes on trying"
            assert server.get("/health").status == 200 and good.ask(server, "[[count]]")[0] == COUNT


def check_h19_a_template_that_refuses(context):
    sentence = "Conversation roles must alternate user/assistant"
    template = ("{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('" + sentence + "') }}{% endif %}"
                "{{ m['content'] }}{% endfor %}")
    turns = user("one") + user("two[[space]]")
    with context.start("--chat-template", template) as server:
        for way in (CHAT, MESSAGES, RESPONSES, OLLAMA):
            for size in SIZES:
                body = way.request("x", size is not None)
                body["input" if way is RESPONSES else "messages"] = turns
                found = server.post(way.path, body, read_size=size or 65536)
                assert found.status == 400 and sentence in found.body.decode(), (way.name, found.status, found.body)
                assert "text/event-stream" not in found.headers.get("content-type", ""), found.headers
                assert way.ask(server, "[[space]]", size)[0] == " hello"
        for path in ("/apply-template", "/v1/chat/completions/input_tokens"):
            found = server.post(path, {"messages": turns})
            assert found.status == 400 and found.json()["error"]["message"] == sentence, found.body
    broken = "{% for m in messages %}{{ m['content'] }}{% endfor %}\n{{ messages[0].content.nothing() }}"
    with context.start("--chat-template", broken) as server:
        found = server.chat("x")
        assert found.status == 400 and "line 2" in found.json()["error"]["message"], found.body


def check_h20_two_bos(context):
    folder, script = context.folder / "bos", context.folder / "bos.json"
    script.write_text(json.dumps({"special": ["<|end|>", "<s>"], "eos": ["<|end|>"], "bos": "<s>", "add_bos": True, "added": ["[[go]]"], "window": 512,
                                  "scripts": [["[[go]]", "yes"]], "chat_template": "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"}))
    ids = json.loads(subprocess.run([context.maker, folder, script], check=True, capture_output=True).stdout)
    with Server(context.binary, folder) as server:
        chat = server.post(CHAT.path, {"messages": user("ab[[go]]"), "temperature": 0}).json()
        assert chat["usage"]["prompt_tokens"] == 4 and chat["choices"][0]["message"]["content"] == "yes" and "warnings" not in chat, chat
        text = server.post("/apply-template", {"messages": user("ab[[go]]")}).json()["prompt"]
        assert text == "<s>ab[[go]]", text
        for size in SIZES:
            assert CHAT.ask(server, "ab[[go]]", size)[0] == "yes"
            body = {"messages": user("ab[[go]]"), "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
            if size:
                assert sse_events(server.post(CHAT.path, body, read_size=size).body)[-2]["usage"]["prompt_tokens"] == 4
        for path, body in (("/v1/completions", {"prompt": text}), ("/completion", {"prompt": text})):
            found = server.post(path, {**body, "temperature": 0}).json()
            count = found["usage"]["prompt_tokens"] if "usage" in found else found["tokens_evaluated"]
            assert count == 4, (path, found)
        # Two that the text itself spells: one goes, and the answer says so.
        twice = server.post(CHAT.path, {"messages": user("<s>ab[[go]]"), "temperature": 0}).json()
        assert twice["usage"]["prompt_tokens"] == 4 and [w["type"] for w in twice["warnings"]] == ["double_bos"], twice
        for add, first in ((True, [ids["<s>"]]), (False, [])):
            tokens = server.post("/tokenize", {"content": "ab", "add_special": add}).json()["tokens"]
            assert tokens == first + [ord("a"), ord("b")], tokens


def check_h16_logprobs_at_every_chunk_size(context):
    def scores(size, **more):
        body = {"messages": user("[[dist]]"), "temperature": 0, "max_tokens": 1, "logprobs": True, **more}
        if size is None:
            return context.wide.post(CHAT.path, body).json()["choices"][0]["logprobs"]["content"]
        events = sse_events(context.wide.post(CHAT.path, {**body, "stream": True}, read_size=size).body)[:-1]
        return [s for e in events for c in e["choices"] if c.get("logprobs") for s in c["logprobs"]["content"]]

    for more, count in (({}, 0), ({"top_logprobs": 0}, 0), ({"top_logprobs": 5}, 5), ({"top_logprobs": 20}, 20)):
        for size in SIZES:
            found = scores(size, **more)
            assert len(found) == 1 and bytes(found[0]["bytes"]) == b" half" and abs(found[0]["logprob"] + 0.6931) < 1e-3, found
            assert len(found[0]["top_logprobs"]) == count, (more, size, found)
    for wrong in ({"logprobs": True, "top_logprobs": 21}, {"top_logprobs": 5}, {"logprobs": False, "top_logprobs": 5}):
        for stream in (False, True):
            found = context.wide.post(CHAT.path, {"messages": user("[[dist]]"), "stream": stream, **wrong})
            assert found.status == 400 and found.json()["error"]["param"] == "top_logprobs", found.body


def check_h18_biases_outside_the_vocabulary_beside_running_streams(context):
    size = context.wide.get("/v1/models").json()["data"][0]["meta"]["n_vocab"]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = [pool.submit(CHAT.ask, context.wide, "[[loop]]", 7, cap=300) for _ in range(2)]
        for key, value, status in ((str(size - 1), 100, 200), (str(size - 1), -100, 200), (str(size), 1, 400), (str(2 ** 31), 1, 400), ("-1", 1, 400),
                                   ("abc", 1, 400), (str(size - 1), 1000, 400), (str(size - 1), "NaN", 400)):
            for size in SIZES:
                body = {**CHAT.request("[[space]]", size is not None, cap=2), "logit_bias": {key: value}}
                found = context.wide.post(CHAT.path, body, read_size=size or 65536)
                assert found.status == status, (key, value, found.body[:200])
                if status == 400:
                    assert key in found.body.decode(), found.body
        answers = [job.result() for job in running]
    assert answers[0] == answers[1] and answers[0][0].startswith(" tick tock tick"), answers[0][0][:60]


def check_ways_are_all_there(context):
    assert {w.name for w in EVERY} == {"chat", "completions", "messages", "responses", "ollama", "native"}
