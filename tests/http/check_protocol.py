"""HTTP itself: framing, limits, slow and rude clients, TLS, keep-alive, pipelines."""
import json
import socket
import ssl
import tempfile
import time

from check_faults import processor_seconds
from harness import Connection, Server, encode_request, self_signed

CHAT = "/v1/chat/completions"
BODY = json.dumps({"messages": [{"role": "user", "content": "[[space]]"}], "temperature": 0}).encode()


def raw(server, data, timeout=20):
    with Connection(server, timeout) as connection:
        connection.send(data)
        return connection.response()


def check_keep_alive(context):
    with Connection(context.scripted) as connection:
        for _ in range(5):
            connection.send(encode_request("POST", CHAT, BODY, {"Content-Type": "application/json"}))
            found = connection.response()
            assert found.status == 200 and found.headers["connection"] == "keep-alive"
            connection.send(encode_request("GET", "/nothing"))
            assert connection.response().status == 404


def check_keep_alive_after_a_stream(context):
    with Connection(context.scripted) as connection:
        body = json.dumps({**json.loads(BODY), "stream": True}).encode()
        for _ in range(2):
            connection.send(encode_request("POST", CHAT, body, {"Content-Type": "application/json"}))
            assert connection.response().events()[-1] == "[DONE]"


def check_pipelined_requests_answer_in_order(context):
    with Connection(context.scripted) as connection:
        one = encode_request("POST", CHAT, BODY, {"Content-Type": "application/json", "X-Request-Id": "a"})
        two = encode_request("GET", "/health", headers={"X-Request-Id": "b"})
        three = encode_request("GET", "/nothing", headers={"X-Request-Id": "c"})
        connection.send(one + two + three + one)
        found = [connection.response() for _ in range(4)]
        assert [f.status for f in found] == [200, 200, 404, 200]
        assert [f.headers["x-request-id"] for f in found] == ["a", "b", "c", "a"]


def check_chunked_body(context):
    head = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n")
    pieces = [BODY[i:i + 5] for i in range(0, len(BODY), 5)]
    body = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
    assert raw(context.scripted, head + body).status == 200
    with Connection(context.scripted) as connection:  # a byte at a time, and a request behind it
        for byte in head + body:
            connection.send(bytes([byte]))
        assert connection.response().status == 200
        connection.send(encode_request("GET", "/health"))
        assert connection.response().status == 200


def check_expect_continue(context):
    headers = {"Expect": "100-continue", "Content-Type": "application/json"}
    with Connection(context.scripted) as connection:
        request = encode_request("POST", CHAT, BODY, headers)
        head, _, _ = request.partition(b"\r\n\r\n")
        connection.send(head + b"\r\n\r\n")
        assert connection.response().status == 100
        connection.send(BODY)
        assert connection.response().status == 200
    with Connection(context.shared("keys")) as connection:  # refused before the body is asked for
        connection.send(head + b"\r\n\r\n")
        assert connection.response().status == 401
    assert raw(context.scripted, b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 2\r\n\r\n{}").status == 417


def check_malformed_http(context):
    cases = [
        (b"GARBAGE\r\n\r\n", (400,)),
        (b"GET /health HTTP/1.1\r\n\r\n", (400,)),                                          # no Host
        (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", (400,)),
        (b"GET /health HTTP/3.0\r\nHost: a\r\n\r\n", (400, 505)),
        (b"GET health HTTP/1.1\r\nHost: a\r\n\r\n", (400,)),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nBad Header: x\r\n\r\n", (400,)),
        (b"GET /health HTTP/1.1\nHost: a\n\n", (400,)),
        (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
        (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", (400,)),
        (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", (400,)),
        (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", (400,)),
        (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", (400, 501)),
        (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", (501,)),
        (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", (501,)),
        (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", (400,)),
        (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;" + b"x" * 200000, (400, 413)),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (400,)),                           # TLS on a plain port
        (b"\x00" * 64, (400,)),
    ]
    for data, statuses in cases:
        with Connection(context.scripted, 10) as connection:
            connection.send(data)
            connection.sock.shutdown(socket.SHUT_WR)
            found = connection.response()
            assert found.status in statuses, f"{data[:60]!r}: {found.status}"
            error = found.json()["error"]
            assert error["type"] == "invalid_request_error" and error["code"] == found.status, found.body
            assert found.headers["x-request-id"]
            assert connection.closed(), f"{data[:60]!r}: still open"
    assert context.scripted.get("/health").status == 200


def check_bodies_that_end_early_are_answered(context):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    for data in (head + b"Content-Length: 50\r\n\r\n{\"prompt\"", head + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"pro"):
        with Connection(context.scripted, 10) as connection:
            connection.send(data)
            connection.sock.shutdown(socket.SHUT_WR)
            found = connection.response()
            assert found.status == 400 and "ended early" in found.json()["error"]["message"], found.body
            assert connection.closed()


def check_nothing_may_follow_the_json(context):
    body = b'{"prompt": "x[[space]]", "temperature": 0}'
    for tail in (b"\x00", b"\x00{}", b"\x00garbage", b"{}", b"]", b",", b"//", b"\xff"):
        found = context.scripted.post("/v1/completions", body + tail, headers={"Content-Type": "application/json"})
        assert found.status == 400 and "valid JSON" in found.json()["error"]["message"], (tail, found.status, found.body[:200])
    for around in (b" \r\n\t" + body + b"\n\n", b"\xef\xbb\xbf" + body):
        assert context.scripted.post("/v1/completions", around, headers={"Content-Type": "application/json"}).status == 200


def check_ids_with_a_slash(context):
    found = context.scripted.get("/v1/models/owner%2Fname")
    assert found.status == 404 and found.json()["error"]["param"] == "model" and "owner/name" in found.json()["error"]["message"], found.body
    assert context.scripted.get("/v1/models/owner/name").status == 404 and context.scripted.get("/v1/models/scripted").status == 200
    found = context.scripted.post("/api/nothing", {})
    assert found.status == 501 and found.json() == {"error": "not supported by mlxcel"}, found.body


def check_ten_megabytes_of_header(context):
    for data in (b"GET /health HTTP/1.1\r\nHost: a\r\nX-Big: " + b"a" * (10 << 20) + b"\r\n\r\n",
                 b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"X-Many: b\r\n" * 900000 + b"\r\n",
                 b"GET /" + b"a" * (10 << 20) + b" HTTP/1.1\r\nHost: a\r\n\r\n"):
        with Connection(context.scripted, 20) as connection:
            try:
                connection.send(data)
            except ConnectionError:
                pass
            found = connection.response()
            assert found.status == 431, found.status
            assert found.json()["error"]["code"] == 431
    assert context.scripted.get("/health").status == 200


def check_oversized_body(context):
    with Connection(context.scripted, 20) as connection:
        connection.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n")
        found = connection.response()
        assert found.status == 413 and found.json()["error"]["code"] == 413, found.body
        assert connection.closed()
    with Connection(context.scripted, 60) as connection:
        connection.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        try:
            for _ in range(40):
                connection.send(chunk)
        except ConnectionError:
            pass
        assert connection.response().status == 413
    # Text that is far over the window is refused without being encoded whole.
    big = "ab " * (2 << 20)
    for path, body in ((CHAT, {"messages": [{"role": "user", "content": big}]}), ("/v1/completions", {"prompt": big}), ("/completion", {"prompt": ["x", big]}),
                       ("/v1/messages", {"max_tokens": 4, "messages": [{"role": "user", "content": big}]}), ("/v1/responses", {"input": big}),
                       ("/api/chat", {"model": "scripted", "messages": [{"role": "user", "content": big}]}), ("/api/generate", {"model": "scripted", "prompt": big, "raw": True})):
        body = json.dumps(body).encode()
        before = processor_seconds(context.scripted)
        found = context.scripted.post(path, body, headers={"Content-Type": "application/json"})
        took = processor_seconds(context.scripted) - before
        assert found.status == 400 and b"exceeds the available context size (512 tokens)" in found.body, (path, found.body[:300])
        assert took < 3 * context.slack, f"{path}: {took:.1f} s of processor time to refuse 6 MB of text"


def check_slow_clients_do_not_hold_others(context):
    server = context.start("--timeout", "2")
    with server:
        loris = []
        for _ in range(50):
            connection = Connection(server, 30)
            connection.send(b"GET /health HTTP/1.1\r\nHost: a\r\n")
            loris.append(connection)
        begun = time.monotonic()
        assert server.get("/health").status == 200
        assert time.monotonic() - begun < 2
        found = loris[0].response()
        assert found.status == 408, found.status
        slow_body = Connection(server, 30)
        slow_body.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        assert slow_body.response().status == 408
        idle = Connection(server, 30)
        assert idle.closed(10), "an idle connection stays for ever"
        assert server.chat("[[space]]").status == 200
        assert server.stop() == 0


def check_http_1_0(context):
    with Connection(context.scripted) as connection:
        connection.send(b"GET /health HTTP/1.0\r\n\r\n")
        assert connection.response().status == 200
    with Connection(context.scripted) as connection:
        body = json.dumps({**json.loads(BODY), "stream": True}).encode()
        connection.send(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        found = connection.response()
        assert "transfer-encoding" not in found.headers and found.events()[-1] == "[DONE]"


def check_connection_close(context):
    with Connection(context.scripted) as connection:
        connection.send(encode_request("GET", "/health", headers={"Connection": "close"}))
        assert connection.response().headers["connection"] == "close"
        assert connection.closed()


def check_tls(context):
    with tempfile.TemporaryDirectory() as folder:
        made = self_signed(folder)
        if made is None:
            from run import Skip
            raise Skip("no openssl program")
        cert, key, tls = made
        with context.start("--ssl-cert-file", cert, "--ssl-key-file", key, "--metrics", tls=tls) as server:
            assert "ready on https://" in server.output()
            assert server.chat("[[count]]").json()["choices"][0]["message"]["content"].endswith(" ten")
            assert server.chat("[[count]]", stream=True).events()[-1] == "[DONE]"
            with Connection(server) as connection:
                assert connection.sock.version() in ("TLSv1.2", "TLSv1.3")
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
            old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_1
            try:
                with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
                    old.wrap_socket(plain)
                raise AssertionError("TLS 1.1 was accepted")
            except (ssl.SSLError, ConnectionError):
                pass
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
                plain.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
                plain.settimeout(10)
                try:
                    while plain.recv(4096):
                        pass
                except ConnectionError:
                    pass
            # A client that leaves mid-stream frees its slot over TLS too.
            from check_streams import leave, idle
            from harness import until
            for hard in (False, True):
                leave(server, True, hard)
                assert until(lambda: idle(server), 5), "the slot stays busy"
            assert server.get("/health").status == 200
            assert server.stop() == 0


def check_tls_key_of_another_certificate(context):
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first, second = self_signed(one), self_signed(two)
        if first is None:
            from run import Skip
            raise Skip("no openssl program")
        server = Server(context.binary, context.scripted_folder(), "--ssl-cert-file", first[0], "--ssl-key-file", second[1], wait=False)
        with server:
            assert server.process.wait(60) == 1
            assert "--ssl-key-file" in server.errors()
