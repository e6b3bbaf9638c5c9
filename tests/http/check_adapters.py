"""LoRA adapters over HTTP: an adapter on the scripted model's head that makes one letter follow everything."""
import json
import pathlib
import struct
import tempfile

from harness import Server

CHAT = "/v1/chat/completions"
TEXT = "[[space]]"


def safetensors(path, tensors):
    """{name: (shape, values)} as F32."""
    header, at = {}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            file.write(struct.pack(f"<{len(values)}f", *values))


def adapter(context, letter):
    """A folder as PEFT writes it; with scale 1 every next token is `letter`."""
    config = json.loads((pathlib.Path(context.scripted_folder()) / "config.json").read_text())
    width, vocab = config["hidden_size"], config["vocab_size"]
    token = context.scripted.post("/tokenize", {"content": letter}).json()["tokens"][-1]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mlxcel-adapter-"))
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 1, "lora_alpha": 1}))
    column = [0.0] * vocab
    column[token] = 50.0
    safetensors(folder / "adapter_model.safetensors",
                {"base_model.model.lm_head.lora_A.weight": ([1, width], [1.0] * width),
                 "base_model.model.lm_head.lora_B.weight": ([vocab, 1], column)})
    return folder


def text_of(server, **fields):
    found = server.post(CHAT, {"messages": [{"role": "user", "content": TEXT}], "temperature": 0, "max_tokens": 4, **fields})
    assert found.status == 200, found.body
    return found.json()["choices"][0]["message"]["content"]


def check_scales_by_route_and_by_request(context):
    first, second = adapter(context, "q"), adapter(context, "z")
    plain = text_of(context.scripted)
    with Server(context.binary, context.scripted_folder(), "--lora", first, "--lora-scaled", f"{second}:0") as server:
        listed = server.get("/lora-adapters").json()
        assert [(a["id"], a["path"], a["scale"]) for a in listed] == [(0, str(first), 1.0), (1, str(second), 0.0)], listed
        assert set(listed[0]) >= {"id", "path", "scale", "task_name", "prompt_prefix"}
        assert text_of(server) == "qqqq"
        assert text_of(server, lora=[]) == plain
        assert text_of(server, lora=[{"id": 1, "scale": 1}]) == "zzzz"
        assert text_of(server, lora=[{"id": 0, "scale": 0}]) == plain
        assert text_of(server) == "qqqq"
        # Everywhere, not only in chat.
        for path, body in (("/completion", {"prompt": TEXT, "n_predict": 3}), ("/v1/completions", {"prompt": TEXT, "max_tokens": 3})):
            found = server.post(path, {**body, "temperature": 0, "lora": [{"id": 1, "scale": 1}]}).json()
            assert "zzz" in json.dumps(found), found
        found = server.post("/completion", {"prompt": TEXT, "n_predict": 1, "lora": [{"id": 1, "scale": 0.5}]}).json()
        assert found["generation_settings"]["lora"] == [{"id": 1, "scale": 0.5}], found["generation_settings"]
        assert server.post("/lora-adapters", [{"id": 1, "scale": 1.0}, {"id": 9, "scale": 1.0}]).json() == {"success": True}
        assert [a["scale"] for a in server.get("/lora-adapters").json()] == [0.0, 1.0]
        assert text_of(server) == "zzzz"


def check_refusals(context):
    folder = adapter(context, "q")
    with Server(context.binary, context.scripted_folder(), "--lora", folder, "--lora-init-without-apply") as server:
        assert server.get("/lora-adapters").json()[0]["scale"] == 0.0
        for bad in ([{"id": 3, "scale": 1}], [{"id": 0}], [{"id": 0, "scale": "1"}], {"id": 0}, [{"id": 0, "scale": 1}] * 2):
            found = server.post(CHAT, {"messages": [{"role": "user", "content": TEXT}], "lora": bad})
            assert found.status == 400, (bad, found.body)
            assert found.json()["error"]["param"].startswith("lora"), found.body
        for bad in ({}, [{"id": 0}], [1]):
            assert server.post("/lora-adapters", bad).status == 400, bad
        assert server.get("/health").status == 200


def check_fused(context):
    folder = adapter(context, "q")
    with Server(context.binary, context.scripted_folder(), "--lora", folder, "--lora-fuse") as server:
        assert text_of(server) == "qqqq"
        assert server.post("/lora-adapters", [{"id": 0, "scale": 0.0}]).status == 501
