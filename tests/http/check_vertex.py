"""Vertex AI's prediction route: instances of several kinds in order, errors in place, nothing streamed."""
from check_lifecycle import run_server

ENV = {"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "0", "AIP_HEALTH_ROUTE": "/aip/health", "AIP_PREDICT_ROUTE": "/aip/predict"}


def chat(text, **more):
    return {"@requestFormat": "chatCompletions", "messages": [{"role": "user", "content": text}], "temperature": 0, **more}


def check_instances_of_every_kind(context):
    with context.start(env=ENV) as server:
        assert server.get("/aip/health").status == 200
        found = server.post("/aip/predict", {"instances": [
            chat("[[space]]", stream=True), {"@requestFormat": "/v1/completions", "prompt": "x[[count]]", "temperature": 0, "max_tokens": 2},
            {"@requestFormat": "tokenize", "content": "ab"}, {"@requestFormat": "nonsense"}, {"messages": []}, 5,
            chat("[[space]]", temperature=9), {"@requestFormat": "/api/chat", "model": "scripted", "messages": [{"role": "user", "content": "[[space]]"}]}]})
        assert found.status == 200, found.body
        answers = found.json()["predictions"]
        assert answers[0]["choices"][0]["message"]["content"] == " hello"
        assert answers[1]["choices"][0]["text"] == " one two"
        assert answers[2]["tokens"]
        for i in (3, 4, 5, 6):
            assert answers[i]["error"]["code"] == 400, answers[i]
        assert answers[7]["message"]["content"] == " hello" and answers[7]["done"]
        many = server.post("/aip/predict", {"instances": [chat("[[count]]", max_tokens=1 + i % 9) for i in range(40)]}).json()["predictions"]
        assert [a["usage"]["completion_tokens"] for a in many] == [1 + i % 9 for i in range(40)]
        assert server.post("/aip/predict", {"instances": []}).json() == {"predictions": []}
        for wrong in ({}, {"instances": 5}, {"instances": [chat("x")] * 129}):
            assert server.post("/aip/predict", wrong).status == 400
        assert server.post("/aip/predict", b"[", headers={"Content-Type": "application/json"}).status == 400


def check_keys_apply(context):
    with context.start("--api-key", "secret-key", env=ENV) as server:
        assert server.post("/aip/predict", {"instances": []}).status == 401
        assert server.get("/aip/health").status == 200
        found = server.post("/aip/predict", {"instances": [chat("[[space]]")]}, headers={"X-Api-Key": "secret-key"}).json()
        assert found["predictions"][0]["choices"]


def check_routes_that_are_taken(context):
    for path in ("/v1/models", "/health"):
        found = run_server(context, "-m", context.scripted_folder(), env={**ENV, "AIP_PREDICT_ROUTE": path})
        assert found.returncode == 2 and "AIP_PREDICT_ROUTE" in found.stderr, (path, found.returncode, found.stderr)


def check_off_without_the_variable(context):
    assert context.scripted.post("/predict", {"instances": []}).status == 404
