"""Several models behind one server, and one that sleeps: loading, choosing, evicting, forgetting."""
import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading

from check_lifecycle import run_server
from harness import Server, until

CHAT = "/v1/chat/completions"


class Several(Server):
    """A router: no -m."""

    def __init__(self, context, *flags, env=None, models=("one", "two", "three")):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="mlxcel-router-"))
        (self.root / "store").mkdir()
        (self.root / "models").mkdir()
        for name in models:
            shutil.copytree(context.scripted_folder(), self.root / "models" / name)
        super().__init__(context.binary, "", "--models-dir", self.root / "models", "--model-store-root",
                         self.root / "store", *flags, env=env)


def ask(server, model, text="[[space]]", **more):
    return server.post(CHAT, {"model": model, "messages": [{"role": "user", "content": text}], "temperature": 0, **more})


def states(server):
    return {m["id"]: m["status"]["value"] for m in server.get("/models").json()["data"]}


def check_a_request_loads_its_model(context):
    with Several(context) as server:
        assert states(server) == {"one": "unloaded", "two": "unloaded", "three": "unloaded"}
        assert server.get("/health").status == 200
        plain = context.scripted.chat("[[space]]").json()["choices"][0]["message"]["content"]
        found = ask(server, "one")
        assert found.status == 200, found.body
        assert found.json()["model"] == "one" and found.json()["choices"][0]["message"]["content"] == plain
        assert states(server)["one"] == "loaded"
        stream = server.post(CHAT, {"model": "two", "stream": True, "temperature": 0, "messages": [{"role": "user", "content": "[[space]]"}]})
        assert stream.events()[-1] == "[DONE]"
        assert states(server) == {"one": "loaded", "two": "loaded", "three": "unloaded"}
        assert server.post("/tokenize", {"model": "one", "content": "x"}).json()["tokens"]
        assert server.get("/props?model=one").json()["model_alias"] == "one"
        assert server.get("/slots?model=two").status == 200
        assert server.get("/props").json()["role"] == "router"


def check_names_that_are_missing_or_unknown(context):
    with Several(context, models=("one",)) as server:
        found = server.post(CHAT, {"messages": [{"role": "user", "content": "x"}]})
        assert found.status == 400 and "model name is missing" in found.json()["error"]["message"], found.body
        found = ask(server, "nobody")
        assert found.status == 404 and found.json()["error"]["param"] == "model", found.body
        found = server.post("/api/chat", {"model": "nobody", "messages": [{"role": "user", "content": "x"}]})
        assert found.status == 404 and "try pulling it first" in found.json()["error"], found.body
        assert server.get("/slots").status == 400
        assert server.post("/models/load", {"model": "nobody"}).status == 404
        assert server.post("/models/load", {}).status == 400
        assert server.post(CHAT, b"{", headers={"Content-Type": "application/json"}).status == 400


def check_load_and_unload_by_hand(context):
    with Several(context, "--no-models-autoload") as server:
        found = ask(server, "one")
        assert found.status == 400 and "not loaded" in found.json()["error"]["message"], found.body
        assert server.post(CHAT + "?autoload=1", {"model": "one", "messages": [{"role": "user", "content": "[[space]]"}]}).status == 200
        assert server.post("/models/load", {"model": "two"}).json() == {"success": True}
        assert until(lambda: states(server)["two"] == "loaded")
        assert server.post("/models/load", {"model": "two"}).status == 400
        assert server.post("/models/unload", {"model": "two"}).json() == {"success": True}
        assert until(lambda: states(server)["two"] == "unloaded")
        assert server.post("/models/unload", {"model": "two"}).status == 400


def check_the_oldest_leaves_and_busy_ones_stay(context):
    with Several(context, "--models-max", "2") as server:
        ask(server, "one")
        ask(server, "two")
        ask(server, "one")
        assert ask(server, "three").status == 200
        assert states(server) == {"one": "loaded", "two": "unloaded", "three": "loaded"}
        # Both places are taken by answers that run: the third waits for one of them and loses nothing.
        results = {}
        body = lambda m: {"model": m, "messages": [{"role": "user", "content": "[[count]]"}], "temperature": 0, "ignore_eos": True, "max_tokens": 400}  # noqa: E731
        threads = [threading.Thread(target=lambda m=m: results.__setitem__(m, server.post(CHAT, body(m)).status))
                   for m in ("one", "three", "two")]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert results == {"one": 200, "two": 200, "three": 200}, results


def check_a_client_that_leaves_while_a_model_waits(context):
    with Several(context, "--models-max", "1") as server:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", server.port)) as sock:
                text = json.dumps({"model": "one", "messages": [{"role": "user", "content": "[[space]]"}]}).encode()
                sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
            assert ask(server, "two").status == 200
        assert ask(server, "one").status == 200


def check_a_model_that_cannot_be_loaded(context):
    with Several(context, models=("one",)) as server:
        bad = server.root / "models" / "bad"
        bad.mkdir()
        (bad / "config.json").write_text("{\"model_type\": \"nonsense\"}")
        assert "bad" not in states(server)
        assert {m["id"] for m in server.get("/models?reload=1").json()["data"]} == {"one", "bad"}
        found = ask(server, "bad")
        assert found.status == 500 and "could not be loaded" in found.json()["error"]["message"], found.body
        entry = next(m for m in server.get("/models").json()["data"] if m["id"] == "bad")
        assert entry["status"]["failed"] and entry["status"]["value"] == "unloaded"
        assert ask(server, "one").status == 200


def check_presets(context):
    folder = pathlib.Path(tempfile.mkdtemp())
    ini = folder / "models.ini"
    ini.write_text(f"version = 1\n[*]\nn-predict = 3\n[mine]\nmodel = {context.scripted_folder()}\nalias = other-name\nload-on-startup = true\nctx-size = 2048\nparallel = 2\n")
    with Several(context, "--models-preset", ini, models=()) as server:
        assert until(lambda: states(server).get("mine") == "loaded"), states(server)
        found = ask(server, "other-name", "[[count]]", ignore_eos=True).json()
        assert found["usage"]["completion_tokens"] == 3 and found["model"] == "mine", found
        assert server.get("/props?model=mine").json()["total_slots"] == 2
    for wrong in ("[a]\nport = 1\n", "temp = 1\n"):
        ini.write_text(wrong)
        found = run_server(context, "--models-preset", ini, "--port", "0")
        assert found.returncode == 2 and "models.ini:" in found.stderr, found.stderr


def check_responses_and_streams_are_found_without_a_model(context):
    with Several(context, models=("one",)) as server:
        made = server.post("/v1/responses", {"model": "one", "input": "[[space]]"}).json()
        assert server.get(f"/v1/responses/{made['id']}").json()["id"] == made["id"]
        again = server.post("/v1/responses", {"model": "one", "input": "[[space]]", "previous_response_id": made["id"]})
        assert again.status == 200
        server.post(CHAT, {"model": "one", "stream": True, "messages": [{"role": "user", "content": "[[space]]"}]}, headers={"X-Conversation-Id": "c1"})
        assert server.get("/v1/stream?conv_id=c1&from=0").status == 200


def check_ollama_lists_and_unloads(context):
    with Several(context, models=("one", "two")) as server:
        assert {m["name"] for m in server.get("/api/tags").json()["models"]} == {"one", "two"}
        assert server.get("/api/ps").json()["models"] == []
        assert server.post("/api/generate", {"model": "one"}).json()["done_reason"] == "load"
        assert [m["name"] for m in server.get("/api/ps").json()["models"]] == ["one"]
        assert server.post("/api/generate", {"model": "one", "keep_alive": 0}).json()["done_reason"] == "unload"
        assert until(lambda: server.get("/api/ps").json()["models"] == [])
        assert server.request("DELETE", "/api/delete", {"model": "one"}).status == 400  # not the store's
        assert server.request("DELETE", "/api/delete", {"model": "nobody/nothing"}).status == 404
        assert server.request("DELETE", "/models?model=one").status == 400


def check_removing_from_the_store(context):
    with Several(context, models=()) as server:
        target = server.root / "store" / "owner" / "name"
        target.parent.mkdir(parents=True)
        shutil.copytree(context.scripted_folder(), target)
        assert {m["id"] for m in server.get("/models?reload=1").json()["data"]} == {"owner/name"}
        assert ask(server, "owner/name").status == 200
        assert server.request("DELETE", "/models?model=owner/name").json() == {"success": True}
        assert not target.exists() and states(server) == {}


def check_events_of_models(context):
    with Several(context, models=("one",)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
            sock.sendall(b"GET /models/sse HTTP/1.1\r\nHost: x\r\n\r\n")
            seen = sock.recv(4096)
            ask(server, "one")
            while b'"loaded"' not in seen:
                more = sock.recv(4096)
                assert more, seen
                seen += more
            assert b'"model":"one"' in seen and b'"event":"model_status"' in seen, seen


def check_a_model_sleeps_and_wakes(context):
    with context.start("--sleep-idle-seconds", "1", "--metrics") as server:
        first = server.chat("[[space]]").json()["choices"][0]["message"]["content"]
        assert until(lambda: server.get("/props").json()["is_sleeping"], 20), server.output()
        assert server.get("/health").status == 200
        for path in ("/v1/models", "/metrics", "/api/tags", "/api/version"):
            assert server.get(path).status == 200, path
        assert server.post("/tokenize", {"content": "x"}).json()["tokens"]
        assert server.get("/props").json()["is_sleeping"], "it was woken"
        assert server.chat("[[space]]").json()["choices"][0]["message"]["content"] == first
        assert not server.get("/props").json()["is_sleeping"]
        for _ in range(3):  # several at once wake it once
            assert until(lambda: server.get("/props").json()["is_sleeping"], 20)
            answers = []
            threads = [threading.Thread(target=lambda: answers.append(server.chat("[[space]]").status)) for _ in range(6)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert answers == [200] * 6


def check_pull_needs_a_network_and_a_name(context):
    with context.start("--offline") as server:
        found = server.post("/api/pull", {"model": "owner/name"})
        assert found.status == 400 and "network" in found.json()["error"], found.body
        assert server.post("/api/pull", {}).status == 400
        assert server.request("DELETE", "/api/delete", {"model": "scripted"}).status == 400
        for path in ("/models/load", "/models/unload", "/models"):
            assert server.post(path, {"model": "x"}).status == 501, path
