"""Slots by name: which one a request has, what it held on disk and back, how far its prompt is."""
import concurrent.futures
import pathlib
import tempfile

from check_lifecycle import run_server
from check_tools import CHAT
from harness import Connection, Server, encode_request, until

PROMPT = "A prompt that is long enough to fill a page of the pool, and then some more of it. " * 2 + "[[count]]"


def complete(server, prompt=PROMPT, **fields):
    found = server.post("/completion", {"prompt": prompt, "temperature": 0, "n_predict": 16, **fields})
    assert found.status == 200, found.body[:300]
    return found.json()


def act(server, slot, action, filename=None):
    return server.post(f"/slots/{slot}?action={action}", {"filename": filename} if filename else {})


def check_a_slot_is_saved_and_restored(context):
    folder = pathlib.Path(tempfile.mkdtemp())
    with context.start("--slot-save-path", folder, "--parallel", "2") as server:
        first = complete(server, id_slot=1)
        assert first["id_slot"] == 1 and first["timings"]["cache_n"] == 0, first["timings"]
        saved = act(server, 1, "save", "one.bin").json()
        held = first["tokens_cached"]
        assert saved["id_slot"] == 1 and saved["filename"] == "one.bin" and saved["n_saved"] in (held, held + 1), saved
        size = (folder / "one.bin").stat().st_size
        assert saved["n_written"] == size and saved["timings"]["save_ms"] >= 0
        erased = act(server, 1, "erase").json()
        assert erased == {"id_slot": 1, "n_erased": saved["n_saved"]}, erased
        assert act(server, 1, "save", "two.bin").status == 400, "there is nothing left to save"
        assert not (folder / "two.bin").exists()
    # Another process, as after a restart: the prompt is not evaluated again.
    with context.start("--slot-save-path", folder, "--parallel", "2") as server:
        restored = act(server, 0, "restore", "one.bin").json()
        assert restored["n_restored"] == saved["n_saved"] and restored["n_read"] == size, restored
        again = complete(server, id_slot=0)
        assert again["content"] == first["content"] and again["id_slot"] == 0
        assert again["timings"]["prompt_n"] < first["timings"]["prompt_n"] // 2, again["timings"]


def check_files_that_are_no_slots_of_this_model(context):
    folder = pathlib.Path(tempfile.mkdtemp())
    with context.start("--slot-save-path", folder) as server:
        complete(server, id_slot=0)
        assert act(server, 0, "save", "good.bin").status == 200
        good = (folder / "good.bin").read_bytes()
        (folder / "cut.bin").write_bytes(good[:len(good) // 2])
        (folder / "bent.bin").write_bytes(good[:-100] + bytes([good[-100] ^ 1]) + good[-99:])
        (folder / "empty.bin").write_bytes(b"")
        (folder / "other.bin").write_bytes(b"\0" * 4096)
        (folder / "link.bin").symlink_to(folder / "good.bin")
        for name in ("cut.bin", "bent.bin", "empty.bin", "other.bin", "link.bin", "none.bin"):
            found = act(server, 0, "restore", name)
            assert found.status == 400 and str(folder) not in found.body.decode(), (name, found.status, found.body)
        # What the slot held is still there.
        assert act(server, 0, "save", "again.bin").json()["n_saved"] > 0
    with Server(context.binary, context.wide_folder(), "--slot-save-path", folder) as other:
        found = act(other, 0, "restore", "good.bin")
        assert found.status == 400, "another model's file"


def check_names_stay_in_the_folder(context):
    folder = pathlib.Path(tempfile.mkdtemp()) / "slots"
    folder.mkdir()
    with context.start("--slot-save-path", folder) as server:
        complete(server, id_slot=0)
        for name in ("../out.bin", "a/b", "/tmp/x", "a\\b", ".", "..", ".hidden", "a\nb", "a:b", " a", "a ", "a.", "x" * 256, "a%2fb", "é", "a*"):
            for action in ("save", "restore"):
                found = act(server, 0, action, name)
                assert found.status == 400 and found.json()["error"]["param"] == "filename", (name, found.body)
        assert server.post("/slots/0?action=save", {}).json()["error"]["param"] == "filename"
        assert server.post("/slots/0?action=save", {"filename": 5}).status == 400
        assert act(server, 0, "copy", "a").json()["error"]["param"] == "action"
        assert server.post("/slots/0", {"filename": "a"}).status == 400
        for slot in ("4", "-1", "x", "99999999999"):
            assert act(server, slot, "save", "a").status == 400, slot
        assert list(folder.iterdir()) == [] and list(folder.parent.iterdir()) == [folder]
    assert act(context.scripted, 0, "save", "a").status == 501
    found = run_server(context, "-m", context.scripted_folder(), "--slot-save-path", folder / "none")
    assert found.returncode == 2 and "--slot-save-path" in found.stderr, found.stderr


def check_a_slot_that_runs_is_busy(context):
    folder = pathlib.Path(tempfile.mkdtemp())
    with context.start("--slot-save-path", folder, "--parallel", "2") as server:
        with Connection(server) as connection:
            connection.send(encode_request("POST", "/completion", {"prompt": "x[[loop]]", "n_predict": 450, "stream": True, "id_slot": 1}))
            connection.head()
            connection.chunk()
            for action in ("save", "restore", "erase"):
                found = act(server, 1, action, "x.bin")
                assert found.status in (400, 503) and (action == "restore" or found.status == 503), found.body
        assert until(lambda: not any(s["is_processing"] for s in server.get("/slots").json()))


def check_requests_wait_for_their_slot(context):
    with context.start("--parallel", "4") as server:
        assert server.post("/completion", {"prompt": "x", "id_slot": 4}).json()["error"]["param"] == "id_slot"
        for slot in (3, 0, 2):
            assert complete(server, "x[[space]]", id_slot=slot)["id_slot"] == slot
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda i: complete(server, f"x{i}[[count]]", id_slot=2), range(6)))
        assert [f["id_slot"] for f in found] == [2] * 6 and all(f["content"].endswith(" ten") for f in found)
        several = server.post("/completion", {"prompt": "x[[flat]]", "n": 3, "n_predict": 4, "id_slot": 1})
        assert several.status == 200 and len(several.json()) == 3, "choices run side by side"


def check_progress_of_a_prompt(context):
    prompt = "word " * 1200 + "[[space]]"
    with Server(context.binary, context.wide_folder(), "--prefill-chunk-size", "256", "--parallel", "1") as server:
        for path, body in (("/completion", {"prompt": prompt}), (CHAT, {"messages": [{"role": "user", "content": prompt}]})):
            for round in ("cold", "kept"):
                body = {**body, "stream": True, "return_progress": True, "temperature": 0, "max_tokens": 4}
                events = [e for e in server.post(path, body).events() if e != "[DONE]"]
                told = [e["prompt_progress"] for e in events if "prompt_progress" in e]
                assert told[0]["processed"] == told[0]["cache"] and told[-1]["processed"] == told[-1]["total"], told
                assert all(a["processed"] < b["processed"] and a["total"] == b["total"] and a["cache"] == b["cache"] for a, b in zip(told, told[1:])), told
                assert all(a["time_ms"] <= b["time_ms"] for a, b in zip(told, told[1:])), told
                assert (told[0]["cache"] > 0) == (round == "kept") and (len(told) > 4) == (round == "cold"), told
            plain = server.post(path, {**body, "return_progress": False}).events()
            assert not any("prompt_progress" in e for e in plain if e != "[DONE]")
        events = server.post("/completion", {"prompt": "other " + prompt, "n_predict": 1, "stream": True, "return_progress": True, "timings_per_token": True}).events()
        told = [e for e in events if "prompt_progress" in e]
        assert told[0]["timings"]["prompt_n"] == 0 == told[0]["timings"]["predicted_n"] and told[0]["timings"]["prompt_ms"] == 0, told[0]
        assert all(e["timings"]["prompt_n"] == e["prompt_progress"]["processed"] - e["prompt_progress"]["cache"] for e in told), told
        # Without a stream there is nobody to tell.
        assert server.post("/completion", {"prompt": prompt, "return_progress": True, "n_predict": 1}).status == 200


def check_prompts_are_shown_only_for_debugging(context):
    for env, shown in (({}, False), ({"LLAMA_SERVER_SLOTS_DEBUG": "1"}, True)):
        with context.start("--parallel", "1", env=env) as server:
            with Connection(server) as connection:
                connection.send(encode_request("POST", "/completion", {"prompt": "secret words [[loop]]", "n_predict": 450, "stream": True}))
                connection.head()
                connection.chunk()
                slot = server.get("/slots").json()[0]
                assert slot["is_processing"] and ("secret words" in slot.get("prompt", "")) == shown, slot
                assert server.get("/slots?fail_on_no_slot=1").status == 503
