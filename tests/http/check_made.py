"""Cases that want a model of their own: every cut of a script, SentencePiece pieces, state that is no pages, a
template that takes one system turn, a real window (H1, H3, H4, H26, H28)."""
import concurrent.futures
import json
import pathlib
import sys
import tempfile

from check_cases import CHAT, COMPLETIONS, EVERY, MESSAGES, NATIVE, OLLAMA, RESPONSES, STOPPED, every_way
from check_messages import named_events
from check_tools import own_model
from harness import Server, sse_events, until

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "cli"))  # behind this folder: names are alike

import models  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden/data"
SIZES = (None, 1, 7, 65536)
PLAIN = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def check_h1_every_cut_of_the_script(context):
    ways = [w for w in EVERY if w is not RESPONSES]
    for pieces in (1, 2, 3, 4, 5, 6, 8, 11, 30):
        (context.folder / f"cut{pieces}").mkdir()
        with own_model(context, f"cut{pieces}/scripted", PLAIN, "alphabeta gamma delta", pieces) as server:
            every_way(server, "[[go]]", "alpha", STOPPED, ways, stop=["beta gamma"])
            # The earliest wins, whatever the order of the list; one that never ends stays text.
            every_way(server, "[[go]]", "alphabeta", STOPPED, ways, stop=["delta", " gam", "gamma"])
            assert CHAT.ask(server, "[[go]]", 1, stop=["deltas"])[0] == "alphabeta gamma delta"


def sentencepiece(folder):
    """The folder's byte-level tokenizer as SentencePiece would have it: the same ids, a mark for the blank, bytes by name."""
    table = {}
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    table.update({chr(b): b for b in printable})
    table.update({chr(256 + i): b for i, b in enumerate(rest)})
    path = folder / "tokenizer.json"
    own = json.loads(path.read_text())
    vocabulary = {}
    for piece, token in own["model"]["vocab"].items():
        raw = bytes(table[c] for c in piece) if all(c in table for c in piece) else piece.encode()
        name = f"<0x{raw[0]:02X}>" if len(raw) == 1 else raw.decode().replace(" ", "\u2581")
        vocabulary["\u2581" if raw == b" " else name] = token
    own["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    own["pre_tokenizer"] = own["post_processor"] = None
    own["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                                       {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    own["model"].update(vocab=vocabulary, merges=[], byte_fallback=True, fuse_unk=True, unk_token=None)
    path.write_text(json.dumps(own))


def check_h3_sentencepiece_pieces(context):
    folder, script = context.folder / "pieces/scripted", context.folder / "pieces.json"
    folder.parent.mkdir()
    script.write_text(json.dumps({"special": ["<|end|>"], "eos": ["<|end|>"], "bos": "", "added": ["[[go]]", "[[one]]"], "window": 512, "chat_template": PLAIN,
                                  "scripts": [["[[go]]", " ", " leading", " x"], ["[[one]]", " hello"]]}))
    import subprocess
    subprocess.run([context.maker, folder, script], check=True, capture_output=True)
    sentencepiece(folder)
    with Server(context.binary, folder) as server:
        ids = server.post("/completion", {"prompt": "[[go]]", "temperature": 0, "return_tokens": True}).json()["tokens"]
        whole = server.post("/detokenize", {"tokens": ids}).json()["content"]
        assert len(ids) == 3 and whole == " leading x", (ids, whole)  # the tokenizer's own decode of the list
        for way in EVERY:
            for size in SIZES:
                assert way.ask(server, "[[go]]", size)[0] == whole, (way.name, size)
                assert way.ask(server, "[[one]]", size)[0] == "hello", (way.name, size)


def random_model(context, golden):
    """A model of that layout with random weights and the scripted model's tokenizer."""
    described = json.loads((GOLDEN / f"{golden}.json").read_text())
    source = context.scripted_folder()
    small, size = described["config"]["vocab_size"], json.loads((source / "config.json").read_text())["vocab_size"]
    folder = context.folder / golden
    folder.mkdir()
    shapes = {name: [size if extent == small and ("embed" in name or "head" in name) else extent for extent in shape] for name, shape in described["tensors"].items()}
    config = {**described["config"], "vocab_size": size, "max_position_embeddings": 512, "eos_token_id": size - 1}
    (folder / "config.json").write_text(json.dumps(config))
    models.write_safetensors(folder / "model.safetensors", models.random_tensors(shapes, dtype="F32"))
    models.companions(folder, source)
    return folder


def check_h4_twice_on_states_that_are_no_pages(context):
    for golden in ("mamba2-groups", "lfm2-published", "qwen3_next-mixed", "jamba-dense"):
        folder = random_model(context, golden)
        long = "".join(chr(97 + i * 7 % 26) for i in range(150))
        body = {"prompt": long, "n_predict": 16, "temperature": 0, "return_tokens": True, "ignore_eos": True}
        with tempfile.TemporaryDirectory() as kept:
            answers = []
            for start in range(2):  # and across a restart
                with Server(context.binary, folder, "-np", "2", "--prompt-cache-dir", kept) as server:
                    for size in (*SIZES, None):
                        found = server.post(NATIVE.path, {**body, "stream": size is not None}, read_size=size or 65536)
                        assert found.status == 200, found.body[:300]
                        frames = [found.json()] if size is None else sse_events(found.body)
                        last, tokens = frames[-1], [t for f in frames for t in f["tokens"]]
                        assert len(tokens) == 16 and last["timings"]["cache_n"] <= last["tokens_evaluated"] - 1, last
                        answers.append(tokens)
                    # A second turn behind the first, also beside another row.
                    with concurrent.futures.ThreadPoolExecutor(2) as pool:
                        more = list(pool.map(lambda text: server.post(NATIVE.path, {**body, "prompt": text}).json()["tokens"], (long + "tail", long + "tail")))
                    alone = server.post(NATIVE.path, {**body, "prompt": long + "tail", "cache_prompt": False}).json()["tokens"]
                    assert more[0] == more[1] == alone, (golden, more, alone)
                    until(lambda: list(pathlib.Path(kept).glob("*.prefix")), 2)
                    assert server.stop() == 0
            assert all(a == answers[0] for a in answers), (golden, answers)


def check_h26_on_the_real_model(context):
    context.real  # skips where there is none
    with Server(context.binary, context.real_model, "-c", "512", "-np", "1", "--alias", "scripted") as server:
        fact = "The code word is heron. " + "word " * 5000
        for way in EVERY:
            for size in SIZES:
                found = server.post(way.path, way.request(fact, size is not None), read_size=size or 65536)
                assert found.status == 400 and b"exceeds the available context size (512 tokens)" in found.body, (way.name, found.status, found.body[:200])
                numbers = [int(word.strip("(")) for word in found.body.decode().split() if word.strip("(").isdigit()]
                assert numbers[0] > 5000 and 512 in numbers, (way.name, found.body[:300])
        token = server.post("/tokenize", {"content": " word"}).json()["tokens"][0]
        for count, status in ((511, 200), (512, 400), (513, 400), (5000, 400)):
            for size in (None, 7):
                found = server.post(COMPLETIONS.path, {"prompt": [token] * count, "max_tokens": 1, "stream": size is not None}, read_size=size or 65536)
                assert found.status == status, (count, found.status, found.body[:200])
                if size is None and status == 200:
                    assert found.json()["usage"]["prompt_tokens"] == count, found.json()["usage"]
                elif status == 400:
                    assert f"({count} tokens)" in found.body.decode(), found.body


def check_h28_the_prefix_stays_cached_over_three_turns(context):
    template = ("{% for m in messages %}{% if m['role'] == 'system' and not loop.first %}{{ raise_exception('The system message comes first') }}{% endif %}"
                "{{ '<|' + m['role'] + '|>' + m['content'] }}{% endfor %}")
    with Server(context.binary, context.wide_folder(), "--chat-template", template) as server:
        say = lambda who, text: {"role": who, "content": text}  # noqa: E731
        turns = [say("user", "first question " * 8)]
        steps = [turns[:]]
        for i in range(2):
            turns += [say("assistant", f"answer number {i} " * 6), say("system", f"SECRET-{i} " * 5), say("user", f"question number {i} " * 6)]
            steps.append(turns[:])
        for size in SIZES:
            server.post("/v1/cache/reset", {})
            before = 0
            for step in steps:
                body = {"model": "m", "max_tokens": 4, "temperature": 0, "system": "Be kind and brief. " * 4, "messages": step, "stream": size is not None}
                found = server.post(MESSAGES.path, body, read_size=size or 65536)
                assert found.status == 200, found.body
                usage = found.json()["usage"] if size is None else named_events(found.body)[-2]["usage"]
                # What stood before this turn's system text is read from the cache, but for an unfinished page.
                assert usage["cache_read_input_tokens"] >= before // 32 * 32 - 32, (size, before, usage)
                whole = usage["input_tokens"] + usage["cache_read_input_tokens"]
                assert before == 0 or whole > before
                before = whole
            prompt = server.post("/apply-template", {"messages": [say("system", "Be kind.")] + steps[-1]}).json()["prompt"]
            places = [prompt.index(text) for text in ("first question", "answer number 0", "SECRET-0", "question number 0", "SECRET-1", "question number 1")]
            assert places == sorted(places) and prompt.count("<|system|>") == 1, prompt


def check_ollama_keeps_what_it_is_told(context):
    """num_keep is a wish of Ollama's that the engine has; odd types of it are refused like any other."""
    body = OLLAMA.request("[[space]]", False)
    for value, status in ((4, 200), (-1, 200), (-2, 400), ("4", 400), (0.5, 400)):
        found = context.wide.post(OLLAMA.path, {**body, "options": {"temperature": 0, "num_keep": value}})
        assert found.status == status, (value, found.body)
        assert status != 200 or "num_keep" not in found.headers.get("x-mlxcel-ignored-fields", ""), found.headers
    found = context.wide.post(OLLAMA.path, {**body, "format": {"type": "object", "description": "x" * 70000}})
    assert found.status == 400 and "65536" in found.json()["error"], found.body
    found = context.wide.post(OLLAMA.path, body, headers={"X-Priority": "urgent"})
    assert found.status == 400 and "X-Priority" in found.json()["error"], found.body


def check_priority_words(context):
    for way in EVERY:
        for word, status in (("high", 200), ("low", 200), ("normal", 200), ("urgent", 400), ("HIGH", 400)):
            found = context.wide.post(way.path, way.request("[[space]]", False), headers={"X-Priority": word})
            assert found.status == status, (way.name, word, found.body[:200])
