"""A model that fills in blocks of tokens (LLaDA-2) behind every API: its fields, its settings, what it cannot do."""
import concurrent.futures
import json
import pathlib
import re
import sys

from check_cases import CHAT, COMPLETIONS, EVERY, MESSAGES, NATIVE, OLLAMA, RESPONSES
from harness import Server, sse_events

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from check_diffusion import llada  # noqa: E402

FIELDS = {"max_denoising_steps": [0, 9, "x", 1.5], "diffusion_threshold": [-0.1, 1.1, "x"], "diffusion_sampler": ["entropy-bound", "random", "other", 5]}


class Folder:
    """What llada() wants to know of a context."""

    def __init__(self, context):
        self.folder, self.scripted = context.folder, context.scripted_folder


def started(context, *flags):
    return Server(context.binary, llada(Folder(context)), "-np", "4", *flags)


def fields(**more):
    return {"ignore_eos": True, "temperature": 0, **more}


def asked(way, server, text, size=None, **more):
    return way.ask(server, text, size, random=True, **fields(**more))


def check_fields_of_blocks_on_every_api(context):
    with started(context) as server:
        for way in (CHAT, COMPLETIONS, RESPONSES, NATIVE):
            plain = asked(way, server, "abc", cap=24)
            assert plain[0] or plain[1], (way.name, plain)
            for size in (1, 7, 65536):
                assert asked(way, server, "abc", size, cap=24) == plain, way.name
            once = asked(way, server, "abc", cap=24, max_denoising_steps=1)
            assert once != plain, f"{way.name}: all of a block at once is another text"
            assert asked(way, server, "abc", cap=24, diffusion_threshold=0) == once, way.name
            assert asked(way, server, "abc", cap=24, diffusion_sampler="confidence", max_denoising_steps=8) == plain, way.name
            for name, values in FIELDS.items():
                for value in values:
                    found = server.post(way.path, way.request("abc", False, cap=24, **fields(**{name: value})))
                    assert found.status == 400 and name in found.body.decode(), (way.name, name, value, found.status, found.body)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:  # each with a canvas of its own
            alone = [asked(CHAT, server, text, cap=20) for text in ("a", "bc", "def", "ghij")]
            assert list(pool.map(lambda t: asked(CHAT, server, t, cap=20), ("a", "bc", "def", "ghij"))) == alone


def check_a_stream_sends_a_block_at_a_time(context):
    with started(context) as server:
        events = sse_events(server.post(CHAT.path, CHAT.request("abc", True, cap=24, **fields())).body)[:-1]
        pieces = [c["delta"]["content"] for e in events for c in e["choices"] if c["delta"].get("content")]
        assert pieces and "".join(pieces) == asked(CHAT, server, "abc", cap=24)[0]


def check_forms_hold_from_block_to_block(context):
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "yy"]}, "b": {"type": "boolean"}}, "required": ["a", "b"],
              "additionalProperties": False}
    asks = [({"grammar": 'root ::= "no: " [0-9]{3} "-" [0-9]{4} "!"'}, r"no: [0-9]{3}-[0-9]{4}!"),
            ({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}}, None)]
    with started(context) as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        def answer(which):
            more, pattern = asks[which % 2]
            found = server.post(CHAT.path, CHAT.request("abc"[: 1 + which], False, temperature=0, cap=200, **more))
            assert found.status == 200, found.body
            text = json.loads(found.body)["choices"][0]["message"]["content"]
            if pattern:
                assert re.fullmatch(pattern, text), text
            else:
                held = json.loads(text)
                assert held["a"] in ("x", "yy") and isinstance(held["b"], bool) and len(held) == 2, text
            return text

        alone = [answer(i) for i in range(4)]
        assert list(pool.map(answer, range(4))) == alone  # each row is in a form of its own


def check_what_blocks_cannot_do(context):
    with started(context) as server:
        found = server.post(COMPLETIONS.path, COMPLETIONS.request("abc", False, echo=True, logprobs=1))
        assert found.status == 400, found.body
    for way in EVERY:  # and other models have none
        if way is OLLAMA:
            continue
        if way is MESSAGES:  # nobody's name there: named as ignored
            found = context.wide.post(way.path, way.request("abc", False, max_denoising_steps=4))
            assert found.status == 200 and "max_denoising_steps" in found.headers["x-mlxcel-ignored-fields"], found.headers
            continue
        found = context.wide.post(way.path, way.request("abc", False, max_denoising_steps=4))
        assert found.status == 400 and "one token after another" in found.body.decode(), (way.name, found.body)


def check_settings_of_blocks(context):
    with started(context, "--settings") as server:
        ask = lambda **more: asked(CHAT, server, "abc", cap=24, **more)  # noqa: E731
        plain, once = ask(), ask(max_denoising_steps=1)
        patch = lambda body: server.request("PATCH", "/v1/settings", body)  # noqa: E731
        assert patch({"max_denoising_steps": 1}).status == 200 and ask() == once
        assert ask(max_denoising_steps=8) == plain, "the request's own wins"
        assert patch({"max_denoising_steps": None, "diffusion_threshold": 0}).status == 200 and ask() == once
        assert patch({"diffusion_threshold": None}).status == 200 and ask() == plain
        for name, value in (("max_denoising_steps", 0), ("diffusion_sampler", "x"), ("diffusion_full_canvas", None)):
            assert patch({name: value}).status == 400, name
