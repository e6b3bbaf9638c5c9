"""Rerankers and models beside the first: a tiny cross-encoder whose scores are transformers' own, and MiniLM."""
import importlib.util
import math
import os
import pathlib
import struct
import sys
import base64

from check_lifecycle import run_server
from harness import Server

CLI = pathlib.Path(__file__).resolve().parent.parent / "cli"
QUERY = "what is a panda"
DOCUMENTS = ["a bear of china", "the wheel of a car", "food", "panda food in china"]
# sigmoid of BertForSequenceClassification's logit, transformers 5.24, for the checkpoint that cross_encoder writes
SCORES = [0.8221950, 0.8248024, 0.8196481, 0.8232798]
TOKENS = 11 + 12 + 8 + 11
PATHS = ("/v1/rerank", "/v1/reranking", "/rerank", "/reranking")


def cross_encoder(context):
    """The checkpoint that the command line's tests use; it is written without any library."""
    sys.path.append(str(CLI))
    try:
        spec = importlib.util.spec_from_file_location("cli_check_rerank", CLI / "check_rerank.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(CLI))
    return module.cross_encoder(context)


def mini_lm():
    store = os.environ.get("MLXCEL_MODELS_DIR") or pathlib.Path(os.environ.get("MLXCEL_CACHE_DIR") or pathlib.Path.home() / ".cache/mlxcel") / "models"
    folder = pathlib.Path(store) / "sentence-transformers/all-MiniLM-L6-v2"
    return folder if folder.exists() else None


def agree(found):
    """Jina's answer: sorted, and each score transformers' own."""
    scores = {r["index"]: r["relevance_score"] for r in found["results"]}
    assert all(abs(scores[i] - SCORES[i]) < 2e-4 for i in scores), found
    order = [r["index"] for r in found["results"]]
    assert order == sorted(order, key=lambda i: (-scores[i], i)), found
    return order


def check_scores_are_those_of_transformers(context):
    with Server(context.binary, cross_encoder(context)) as server:
        body = {"query": QUERY, "documents": DOCUMENTS}
        for path in PATHS:
            found = server.post(path, body).json()
            assert agree(found) == [1, 3, 0, 2] and found["model"] == "cross-encoder" and found["object"] == "list", found
            assert found["usage"] == {"prompt_tokens": TOKENS, "total_tokens": TOKENS}, found["usage"]
            assert all("document" not in r for r in found["results"])
        two = server.post("/v1/rerank", {**body, "top_n": 2, "return_documents": True}).json()["results"]
        assert [r["index"] for r in two] == [1, 3] and two[0]["document"] in (DOCUMENTS[1], {"text": DOCUMENTS[1]}), two
        tei = server.post("/rerank", {"query": QUERY, "texts": DOCUMENTS, "return_text": True}).json()
        assert [t["index"] for t in tei] == [1, 3, 0, 2] and tei[0]["text"] == DOCUMENTS[1] and abs(tei[0]["score"] - SCORES[1]) < 2e-4, tei
        alone = server.post("/rerank", {"query": QUERY, "documents": DOCUMENTS[2:3]}).json()
        assert alone["results"][0]["relevance_score"] == next(r for r in found["results"] if r["index"] == 2)["relevance_score"], "neighbours do not count"
        for wrong, message in (({"documents": DOCUMENTS}, '"query" must be provided'), ({"query": 5, "documents": DOCUMENTS}, '"query" must be a string'),
                               ({"query": "a"}, '"documents" must be a non-empty string array'), ({"query": "a", "documents": []}, '"documents" must be a non-empty string array'),
                               ({"query": "a", "documents": [1]}, '"documents" must be a non-empty string array')):
            refused = server.post("/rerank", wrong)
            assert refused.status == 400 and refused.json()["error"]["message"] == message, (wrong, refused.body)
        for path, ask in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}), ("/v1/completions", {"prompt": "x"}),
                          ("/completion", {"prompt": "x"}), ("/v1/embeddings", {"input": "x"})):
            assert server.post(path, ask).status == 501, path
        entry = server.get("/v1/models").json()["data"][0]
        assert entry["capabilities"] == ["rerank"], entry


def check_a_reranker_beside_a_chat_model(context):
    with context.start("--reranker-model", cross_encoder(context)) as server:
        assert "reranking: cross-encoder" in server.output()
        assert server.chat("[[space]]").json()["choices"][0]["message"]["content"] == " hello"
        found = server.post("/v1/rerank", {"query": QUERY, "documents": DOCUMENTS}).json()
        assert agree(found) == [1, 3, 0, 2] and found["model"] == "cross-encoder"
        entries = server.get("/v1/models").json()["data"]
        assert [(e["id"], e["capabilities"]) for e in entries] == [("scripted", ["completion"]), ("cross-encoder", ["rerank"])], entries
        assert server.get("/v1/models/cross-encoder").json()["id"] == "cross-encoder"
        assert server.post("/v1/embeddings", {"input": "x"}).status == 501
        assert server.stop() == 0
    # Alone it is the model that is served.
    with Server(context.binary, cross_encoder(context), "--reranker-model", cross_encoder(context)) as server:
        assert agree(server.post("/rerank", {"query": QUERY, "documents": DOCUMENTS}).json()) == [1, 3, 0, 2]
    for flags, word in ((("-m", cross_encoder(context), "--reranker-model", context.scripted_folder()), "scores already"),
                        (("-m", context.scripted_folder(), "--embedding-model", cross_encoder(context)), "gives no vectors")):
        found = run_server(context, "--port", "0", *flags)
        assert found.returncode == 1 and word in found.stderr, (flags, found.stderr)
    found = run_server(context, "--models-dir", context.folder, "--reranker-model", "x", "--port", "0")
    assert found.returncode == 2 and "router" in found.stderr, found.stderr


def check_an_embedder_beside_a_chat_model(context):
    folder = mini_lm()
    if not folder:
        return
    with context.start("--embedding-model", folder, "--reranker-model", cross_encoder(context), "--embedding-max-length", "16") as server:
        assert server.chat("[[space]]").status == 200
        body = {"input": ["a panda", "a car"], "model": folder.name}
        found = server.post("/v1/embeddings", body).json()
        vectors = [d["embedding"] for d in found["data"]]
        assert found["model"] == folder.name and len(vectors[0]) == 384 and abs(math.hypot(*vectors[0]) - 1) < 1e-3, found["model"]
        packed = server.post("/v1/embeddings", {**body, "encoding_format": "base64"}).json()["data"][0]["embedding"]
        assert list(struct.unpack("<384f", base64.b64decode(packed))) == [struct.unpack("<f", struct.pack("<f", x))[0] for x in vectors[0]]
        wrong = server.post("/v1/embeddings", {**body, "model": "scripted"})
        assert wrong.status == 400 and wrong.json()["error"]["param"] == "model", wrong.body
        assert server.post("/v1/embeddings", {"input": "word " * 100}).json()["usage"]["prompt_tokens"] == 16
        assert len(server.post("/embedding", {"content": "x"}).json()[0]["embedding"][0]) == 384
        assert agree(server.post("/rerank", {"query": QUERY, "documents": DOCUMENTS}).json()) == [1, 3, 0, 2]
        assert [e["capabilities"] for e in server.get("/v1/models").json()["data"]] == [["completion"], ["embedding"], ["rerank"]]
    with Server(context.binary, folder, "--embd-normalize", "1") as server:
        vector = server.post("/v1/embeddings", {"input": "a panda"}).json()["data"][0]["embedding"]
        assert abs(sum(abs(x) for x in vector) - 1) < 1e-3
        own = server.post("/v1/embeddings", {"input": "a panda", "embd_normalize": 2}).json()["data"][0]["embedding"]
        assert abs(math.hypot(*own) - 1) < 1e-3
    with Server(context.binary, folder, "--embedding-request-timeout-secs", "0.001") as server:
        found = server.post("/v1/embeddings", {"input": ["word " * 200] * 64})
        assert found.status == 504 and found.json()["error"]["type"] == "server_timeout", found.body[:200]
        assert server.get("/health").status == 200
