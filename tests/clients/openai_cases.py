"""Cases of the official OpenAI client (run by run.py, inside the client environment)."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "http"))

from harness import Server  # noqa: E402
import openai  # noqa: E402


class Skip(Exception):
    pass


BUILD = pathlib.Path(sys.argv[1])
BINARY = BUILD / "bin/mlxcel-server"
SERVERS = {}


def client(name):
    if name not in SERVERS:
        if name == "scripted":
            folder = pathlib.Path(tempfile.mkdtemp(prefix="mlxcel-clients-")) / "scripted"
            subprocess.run([BUILD / "tests/make_scripted_model", folder], check=True, capture_output=True)
            SERVERS[name] = Server(BINARY, folder, "--api-key", "client-secret")
        else:
            model = os.environ.get({"real": "MLXCEL_TEST_MODEL", "embed": "MLXCEL_TEST_EMBED_MODEL"}[name])
            if not model and name == "real":
                store = os.environ.get("MLXCEL_MODELS_DIR") or pathlib.Path(
                    os.environ.get("MLXCEL_CACHE_DIR") or pathlib.Path.home() / ".cache/mlxcel") / "models"
                found = sorted(pathlib.Path(store).glob("HuggingFaceTB/SmolLM2-135M-Instruct/*.gguf"))
                model = found[0] if found else None
            if not model:
                raise Skip(f"no {name} model")
            size = [] if name == "embed" else ["--parallel", "8", "-c", "8192"]
            SERVERS[name] = Server(BINARY, model, "--api-key", "client-secret", *size)
    return openai.OpenAI(base_url=f"http://127.0.0.1:{SERVERS[name].port}/v1", api_key="client-secret", max_retries=0)


def ask(name, text, **fields):
    return client(name).chat.completions.create(model="any", messages=[{"role": "user", "content": text}], **fields)


def case_models():
    assert [m.id for m in client("scripted").models.list()] == ["scripted"]
    assert client("scripted").models.retrieve("scripted").object == "model"


def case_chat():
    answer = ask("scripted", "[[count]]", temperature=0)
    assert answer.choices[0].message.content.endswith(" ten") and answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 10 and answer.usage.prompt_tokens_details.cached_tokens == 0


def case_chat_stream_with_usage():
    chunks = list(ask("scripted", "[[count]]", temperature=0, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices).endswith(" ten")
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 10


def case_chat_logprobs():
    answer = ask("scripted", "[[dist]]", temperature=0, logprobs=True, top_logprobs=3, max_completion_tokens=1)
    token = answer.choices[0].logprobs.content[0]
    assert token.token == " half" and abs(token.logprob + 0.6931) < 1e-3 and len(token.top_logprobs) == 3
    assert bytes(token.bytes) == b" half"


def case_stream_helper():
    with client("scripted").chat.completions.stream(model="m", messages=[{"role": "user", "content": "[[emoji]]"}], temperature=0) as stream:
        text = "".join(e.delta for e in stream if e.type == "content.delta")
        final = stream.get_final_completion()
    assert text == "\U0001F600" and final.choices[0].message.content == text


def case_completions():
    answer = client("scripted").completions.create(model="m", prompt=["[[space]]", "[[eos2]]"], n=2, temperature=0, logprobs=1)
    assert [c.text for c in answer.choices] == [" hello", " hello", "bye", "bye"]
    assert answer.choices[0].logprobs.tokens == [" hello"] and answer.choices[0].logprobs.text_offset == [0]


def case_completions_stream_and_stop():
    chunks = list(client("scripted").completions.create(model="m", prompt="[[stop]]", stop="beta gamma", stream=True, temperature=0))
    assert "".join(c.choices[0].text for c in chunks) == "alpha" and chunks[-1].choices[0].finish_reason == "stop"


def case_errors_become_exceptions():
    for wrong, kind in (({"temperature": 5}, openai.BadRequestError), ({"logit_bias": {"abc": 1}}, openai.BadRequestError)):
        try:
            ask("scripted", "x", **wrong)
        except kind as error:
            assert error.body["type"] == "invalid_request_error" and error.param
        else:
            raise AssertionError(f"{wrong} was accepted")
    bad = openai.OpenAI(base_url=client("scripted").base_url, api_key="wrong", max_retries=0)
    try:
        bad.models.list()
    except openai.AuthenticationError as error:
        assert error.body["message"] == "Invalid API Key"
    else:
        raise AssertionError("a wrong key was accepted")


def case_disconnect_and_go_on():
    for _ in range(5):
        stream = ask("scripted", "[[loop]]", temperature=0, stream=True, max_tokens=400)
        next(iter(stream))
        stream.close()
    assert ask("scripted", "[[space]]", temperature=0).choices[0].message.content == " hello"


def case_sixteen_at_once():
    prompts = [f"Say only the number {n}." for n in range(100, 116)]

    def one(prompt):
        return ask("real", prompt, temperature=0, max_tokens=6).choices[0].message.content

    def streamed(prompt):
        chunks = ask("real", prompt, temperature=0, max_tokens=6, stream=True)
        return "".join(c.choices[0].delta.content or "" for c in chunks)

    solo = [one(p) for p in prompts]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(streamed, prompts)) == solo


def case_real_answer_names_paris():
    assert "Paris" in ask("real", "What is the capital of France?", temperature=0, max_tokens=32).choices[0].message.content


def case_embeddings():  # H29
    texts = ["a cat", "a dog"]
    default = client("embed").embeddings.create(model=client("embed").models.list().data[0].id, input=texts)
    model = default.model
    floats = client("embed").embeddings.create(model=model, input=texts, encoding_format="float")
    for a, b in zip(default.data, floats.data):
        assert len(a.embedding) == len(b.embedding) > 0
        assert max(abs(x - y) for x, y in zip(a.embedding, b.embedding)) < 1e-6
    for wrong in ({"encoding_format": "foo"}, {"model": "gpt-4o"}):
        try:
            client("embed").embeddings.create(**{"model": model, "input": texts, **wrong})
        except openai.BadRequestError:
            continue
        raise AssertionError(f"{wrong} was accepted")


def main():
    passed = failed = skipped = 0
    for name, body in [(n, f) for n, f in globals().items() if n.startswith("case_")]:
        try:
            body()
            passed += 1
        except Skip as reason:
            skipped += 1
            print(f"SKIPPED {name}: {reason}")
        except Exception as error:
            failed += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            cause = f" from {error.__cause__!r}" if error.__cause__ else ""
            print(f"FAILED {name}: {type(error).__name__}: {error}{cause} ({pathlib.Path(where.filename).name}:{where.lineno})")
            for kind, server in SERVERS.items():
                if not server.alive():
                    print(f"  the {kind} server has ended with {server.process.returncode}: {(server.output() + server.errors())[-1500:]}")
    for server in SERVERS.values():
        failed += server.stop() != 0
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


sys.exit(main())
