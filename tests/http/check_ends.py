"""How a server begins and ends badly: signals at any moment, ports that are taken, clients that are gone, early errors. Never a crash."""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

from check_lifecycle import run_server
from check_router import Several, ask
from harness import Connection, Server, encode_request, until

CHAT = "/v1/chat/completions"
CLEAN = (0, -signal.SIGTERM, -signal.SIGINT)  # died of the signal: before anything listened


def loop(**more):
    return {"messages": [{"role": "user", "content": "[[loop]]"}], "temperature": 0, "max_tokens": 400, **more}


def check_signals_at_any_moment(context):
    for i in range(12):
        server = context.start(wait=False)
        with server:
            time.sleep(0.03 * i)
            assert server.stop((signal.SIGTERM, signal.SIGINT)[i % 2]) in CLEAN, (i, server.process.returncode, server.errors(), server.output()[-500:])


def check_a_signal_while_a_request_loads_its_model(context):
    for i in range(4):
        with Several(context, models=("one",)) as server:
            with Connection(server) as connection:
                connection.send(encode_request("POST", CHAT, loop(model="one", stream=True)))
                time.sleep(0.04 * i)
                assert server.stop() == 0, (i, server.process.returncode, server.errors())


def check_signals_between_whole_answers(context):
    for i in range(6):
        with context.start() as server:
            with Connection(server) as connection:
                connection.send(encode_request("POST", CHAT, loop(max_tokens=30)))
                time.sleep(0.004 * i)
                assert server.stop() == 0, (i, server.errors())


def check_two_servers_on_one_port(context):
    model = context.scripted_folder()
    with context.start() as first:
        for _ in range(5):
            second = run_server(context, "-m", model, "--port", first.port)
            assert second.returncode == 1 and f":{first.port}" in second.stderr and "in use" in second.stderr, second
        assert first.chat("[[space]]").status == 200
    with context.start("--reuse-port") as first:
        second = Server(context.binary, model, "--port", first.port, "--reuse-port", wait=False)
        with second:
            second.wait_line(r"ready on ")
            assert first.chat("[[space]]").status == 200 and second.stop() == 0
        assert first.chat("[[space]]").status == 200 and first.stop() == 0
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/s.sock"
        with context.start("--host", path, wait=False) as first:
            first.wait_line(r"ready on unix:")
            second = run_server(context, "-m", model, "--host", path)
            assert second.returncode == 1 and "another server listens there" in second.stderr, second
            first.process.kill()
            first.process.wait()
        assert os.path.exists(path), "a server that was killed leaves its socket"
        with context.start("--host", path, wait=False) as third:
            third.wait_line(r"ready on unix:")
            assert third.stop() == 0


def check_clients_that_leave_while_the_model_loads(context):
    for hard in (False, True):
        server = context.start(wait=False)
        with server:
            server.port = int(server.wait_line(r"listening on http://[^ ]*:(\d+)")[1])
            left = [Connection(server) for _ in range(8)]
            for i, connection in enumerate(left):
                try:
                    connection.send(encode_request("POST", CHAT, loop(stream=True))[:(10, 80, 10000)[i % 3]])
                except ConnectionError:
                    pass
            for connection in left:
                connection.close(hard)
            server.wait_ready()
            assert server.chat("[[space]]").json()["choices"][0]["message"]["content"] == " hello"
            assert until(lambda: all(not s["is_processing"] for s in server.get("/slots").json()))
            assert server.stop() == 0


CLIENT = """
import socket, sys
held = []
for i in range(4):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.sendall(bytes.fromhex(sys.argv[2]))
    s.recv(300)
    held.append(s)
print("streaming", flush=True)
held[0].recv(1 << 20)
import time; time.sleep(60)
"""


def check_a_client_killed_in_mid_stream(context):
    with context.start("--parallel", "4") as server:
        request = encode_request("POST", CHAT, loop(stream=True)).hex()
        for _ in range(4):
            client = subprocess.Popen([sys.executable, "-c", CLIENT, str(server.port), request], stdout=subprocess.PIPE, text=True)
            assert client.stdout.readline() == "streaming\n"
            client.kill()
            client.wait()
            assert until(lambda: all(not s["is_processing"] for s in server.get("/slots").json())), server.get("/slots").body
        assert server.chat("[[space]]").status == 200 and server.stop() == 0


def check_a_server_killed_in_mid_stream(context):
    with tempfile.TemporaryDirectory() as folder:
        kept = pathlib.Path(folder) / "kept"
        for _ in range(3):
            with context.start("--prompt-cache-dir", kept) as server:
                with Connection(server) as connection:
                    connection.send(encode_request("POST", CHAT, loop(stream=True)))
                    connection.head()
                    connection.chunk()
                    server.process.kill()
                    server.process.wait()
        with context.start("--prompt-cache-dir", kept) as server:  # what it left does no harm
            assert server.chat("[[space]]").status == 200 and server.get("/v1/cache/stats").json()["disk_corrupt"] == 0
            assert server.stop() == 0


def check_early_ends_are_clean(context):
    """Errors found before, while and after the model is loaded: their exit code, and never that of a crash."""
    model = context.scripted_folder()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for flags, code in ((["--max-denoising-steps", "4"], 2), (["--grammar", "root ::= ("], 2), (["--json-schema", '{"type": 5}'], 2),
                            (["--port", str(taken.getsockname()[1])], 1), (["--kv-cache-mode", "turbo4"], 1), (["--lora", "/nonexistent"], 1)):
            for _ in range(2):
                found = run_server(context, "-m", model, "--port", "0", *flags)
                assert found.returncode == code and found.stderr.strip(), (flags, found.returncode, found.stderr[-400:], found.stdout[-200:])
