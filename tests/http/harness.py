"""Starts servers, speaks HTTP over plain sockets, reads event streams in any chunk size. Standard library only."""
import json
import os
import pathlib
import re
import select
import signal
import socket
import ssl
import subprocess
import tempfile
import time


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def events(self):
        return sse_events(self.body)


def sse_events(body):
    """The data of every event; comments are dropped. The stream must end with a blank line."""
    text = body.decode()
    assert text.endswith("\n\n"), f"the stream does not end with a blank line: {text[-80:]!r}"
    out = []
    for block in text[:-2].split("\n\n"):
        if block.startswith(":"):
            continue
        assert block.startswith("data: ") and "\n" not in block, f"not one line of data: {block!r}"
        data = block[len("data: "):]
        out.append(data if data == "[DONE]" else json.loads(data))
    return out


class Connection:
    """A socket with a reader that understands just enough HTTP/1.1."""

    def __init__(self, server, timeout=60, read_size=65536):
        self.sock = socket.create_connection(("127.0.0.1", server.port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if server.tls:
            self.sock = server.tls.wrap_socket(self.sock, server_hostname="localhost")
        self.buffer = b""
        self.read_size = read_size

    def send(self, data):
        self.sock.sendall(data)

    def more(self):
        data = self.sock.recv(self.read_size)
        self.buffer += data
        return bool(data)

    def until(self, mark):
        while mark not in self.buffer:
            if not self.more():
                raise EOFError(f"the server closed; so far: {self.buffer[:200]!r}")
        head, _, self.buffer = self.buffer.partition(mark)
        return head

    def exactly(self, count):
        while len(self.buffer) < count:
            if not self.more():
                raise EOFError(f"the server closed {count - len(self.buffer)} bytes early")
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def chunk(self):
        """One HTTP chunk; b"" at the end."""
        size = int(self.until(b"\r\n"), 16)
        data = self.exactly(size)
        assert self.exactly(2) == b"\r\n"
        return data

    def head(self):
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.1 (\d{3}) .*", lines[0])
        assert match, f"not a status line: {lines[0]!r}"
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        return int(match[1]), headers

    def response(self, method="GET"):
        status, headers = self.head()
        body = b""
        if method == "HEAD" or status in (100, 204):
            pass
        elif headers.get("transfer-encoding") == "chunked":
            while True:
                data = self.chunk()
                if not data:
                    break
                body += data
        elif "content-length" in headers:
            body = self.exactly(int(headers["content-length"]))
        else:
            while self.more():
                pass
            body, self.buffer = self.buffer, b""
        return Response(status, headers, body)

    def closed(self, timeout=5):
        """True when the server closes without another byte."""
        self.sock.settimeout(timeout)
        try:
            return self.buffer == b"" and self.sock.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def close(self, hard=False):
        if hard:  # a reset, as when a process is killed
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def encode_request(method, path, body=None, headers=None):
    headers = {"Host": "localhost", **(headers or {})}
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        headers.setdefault("Content-Type", "application/json")
    if body is not None:
        headers.setdefault("Content-Length", str(len(body)))
    lines = [f"{method} {path} HTTP/1.1"] + [f"{k}: {v}" for k, v in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


class Server:
    """One mlxcel-server process."""

    def __init__(self, binary, model, *flags, env=None, tls=None, wait=True):
        self.tls = tls
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log", delete=False)
        self.err = tempfile.NamedTemporaryFile("w+", suffix=".err", delete=False)
        command = [str(binary), "-m", str(model), "--port", "0", *map(str, flags)]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "MLXCEL_LOG"))}
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.err, env={**clean, **(env or {})})
        self.port = None
        if wait:
            self.wait_ready()

    def output(self):
        return pathlib.Path(self.log.name).read_text()

    def errors(self):
        return pathlib.Path(self.err.name).read_text()

    def wait_line(self, pattern, timeout=180):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            match = re.search(pattern, self.output())
            if match:
                return match
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}: {self.errors()}{self.output()}")
            time.sleep(0.02)
        raise TimeoutError(f"no line {pattern!r} in {timeout} s: {self.output()}")

    def wait_ready(self):
        self.port = int(self.wait_line(r"ready on https?://[^ \n]*:(\d+)")[1])

    def alive(self):
        return self.process.poll() is None

    def resident(self):
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def request(self, method, path, body=None, headers=None, timeout=120, read_size=65536):
        with Connection(self, timeout, read_size) as connection:
            connection.send(encode_request(method, path, body, {"Connection": "close", **(headers or {})}))
            return connection.response(method)

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def chat(self, text, **fields):
        body = {"messages": [{"role": "user", "content": text}], "temperature": 0, **fields}
        return self.post("/v1/chat/completions", body)

    def metric(self, name):
        text = self.get("/metrics").body.decode()
        match = re.search(rf"^{re.escape(name)} ([-+.\de]+)$", text, re.M)
        return float(match[1]) if match else None

    def stop(self, how=signal.SIGTERM, timeout=60):
        if self.alive():
            self.process.send_signal(how)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.alive():
            self.process.kill()
        self.process.wait()
        report = re.search(r"^.*(?:Sanitizer|runtime error): .*", self.errors(), re.M)
        assert report is None, f"{report[0]}\n{self.errors()[report.start():][:4000]}"


def readable(sock, seconds):
    return bool(select.select([sock], [], [], seconds)[0])


def joined_chat(events, index=0):
    return "".join(choice["delta"].get("content") or "" for event in events if event != "[DONE]"
                   for choice in event["choices"] if choice["index"] == index)


def joined_text(events, index=0):
    return "".join(choice["text"] for event in events if event != "[DONE]"
                   for choice in event["choices"] if choice["index"] == index)


def finishes(events):
    return [choice["finish_reason"] for event in events if event != "[DONE]"
            for choice in event["choices"] if choice["finish_reason"]]


def until(condition, seconds=10, step=0.02):
    """Polls; the last value of the condition."""
    end = time.monotonic() + seconds
    value = condition()
    while not value and time.monotonic() < end:
        time.sleep(step)
        value = condition()
    return value


def self_signed(folder):
    """A certificate for localhost; None where there is no openssl program."""
    cert, key = pathlib.Path(folder) / "cert.pem", pathlib.Path(folder) / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
               "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    context = ssl.create_default_context(cafile=str(cert))
    return cert, key, context
