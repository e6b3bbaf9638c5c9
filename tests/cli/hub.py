"""A model hub on this machine, with the faults real ones have."""
import hashlib
import http.server
import json
import random
import shutil
import threading
import time
import urllib.parse

REPO = "acme/tiny"


def content(size, seed=1):
    return random.Random(seed).randbytes(size)


def repository(**more):
    files = {"config.json": b'{"model_type": "llama"}', "tokenizer.json": b"{}", "README.md": b"# no model file",
             "model.safetensors": content(300000), "sub/config.json": b"{}", "evil.py": b"print()",
             "pytorch_model.bin": content(5000)}
    files.update(more)
    return {REPO: files}


def store_of(context, name):
    folder = context.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    return {"MLXCEL_MODELS_DIR": str(folder)}, folder / REPO


def partials(folder):
    return [p for p in folder.rglob("*.partial")]


def wait_for_partial(folder, of, size, seconds=30):
    """The half-done copy of the file `of`, once it holds `size` bytes. Others may come and go while this looks."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for path in partials(folder):
            try:
                if of in path.name and path.stat().st_size >= size:
                    return path
            except FileNotFoundError:
                pass  # renamed to its own name since it was listed
        time.sleep(0.01)
    raise AssertionError(f"no half-done {of} of {size} bytes within {seconds} s: {[p.name for p in partials(folder)]}")


class Hub:
    """files: {"owner/name": {"path": bytes}}. Faults are set as attributes; requests are recorded."""

    def __init__(self, files, commit="a" * 40):
        self.files = files
        self.commit = commit
        self.requests = []             # (method, path, headers)
        self.revisions = ()            # names of more of them
        self.token = None              # wanted, else 401
        self.redirect = False          # large files live on another host name
        self.cut = {}                  # path -> bytes after which the next answers break off
        self.cuts_left = 0
        self.refusals = []             # statuses to answer first, with their headers
        self.listing = None            # names instead of the real ones
        self.raw_listing = None        # or bytes instead of a listing
        self.loop = set()              # paths that are redirected to themselves
        self.headers = {}              # path -> headers of HEAD answers beside its own
        self.ranges = True
        self.corrupt = set()           # paths whose bytes arrive wrong
        self.corrupt_left = 10 ** 6
        self.etags = True
        self.delay = None              # called with (path, sent) between pieces
        self.lock = threading.Lock()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                hub.answer(self, False)

            def do_GET(self):
                hub.answer(self, True)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.http = Server(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def bodies(self, path):
        return [r for r in self.requests if r[0] == "GET" and r[1].endswith(path)]

    def answer(self, handler, body):
        path = urllib.parse.unquote(urllib.parse.urlsplit(handler.path).path)
        with self.lock:
            self.requests.append((handler.command, path, dict(handler.headers)))
            refusal = self.refusals.pop(0) if self.refusals else None
        if refusal:
            return self.send(handler, refusal[0], b"no", refusal[1], body)
        if self.token and not path.startswith("/cdn/") and handler.headers.get("Authorization") != f"Bearer {self.token}":
            return self.send(handler, 401, b"who are you", {}, body)
        if path.startswith("/api/models/"):
            return self.list(handler, path[len("/api/models/"):], body)
        if path.startswith("/cdn/"):
            repo, name = path[5:].split("//")
            return self.file(handler, repo, name, body)
        repo, _, rest = path.strip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        if repo not in self.files or name not in self.files[repo]:
            return self.send(handler, 404, b"no such file", {}, body)
        if name in self.loop:
            return self.send(handler, 302, b"", {"Location": handler.path}, body)
        if self.redirect and len(self.files[repo][name]) > 1000:
            content = self.files[repo][name]
            headers = {"Location": f"http://localhost:{self.port}/cdn/{repo}//{name}", "X-Linked-Size": str(len(content)),
                       "X-Linked-ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": self.commit}
            return self.send(handler, 302, b"", headers, body)
        return self.file(handler, repo, name, body)

    def list(self, handler, rest, body):
        repo, _, revision = rest.partition("/revision/")
        if repo not in self.files:
            return self.send(handler, 404, b"{}", {}, body)
        if revision not in ("", "main", "v1", self.commit, *self.revisions):
            return self.send(handler, 404, b"{}", {"X-Error-Code": "RevisionNotFound"}, body)
        if self.raw_listing is not None:
            return self.send(handler, 200, self.raw_listing, {"Content-Type": "application/json"}, body)
        names = self.listing if self.listing is not None else sorted(self.files[repo])
        text = json.dumps({"sha": self.commit, "siblings": [{"rfilename": name} for name in names]}).encode()
        self.send(handler, 200, text, {"Content-Type": "application/json"}, body)

    def file(self, handler, repo, name, body):
        content = self.files[repo][name]
        headers = {"Accept-Ranges": "bytes"}
        if self.etags:
            etag = hashlib.sha256(content).hexdigest() if len(content) > 1000 else \
                hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            headers["ETag"] = f'"{etag}"'
        if not body:
            headers.update(self.headers.get(name, {}))
        status, start = 200, 0
        wanted = handler.headers.get("Range")
        if wanted and self.ranges:
            start = int(wanted.split("=")[1].split("-")[0])
            if start >= len(content):
                return self.send(handler, 416, b"", {"Content-Range": f"bytes */{len(content)}"}, body)
            status = 206
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        if body and name in self.corrupt and self.corrupt_left > 0:
            self.corrupt_left -= 1
            content = bytes(b ^ 1 for b in content)
        handler.send_response(status)
        for key, value in headers.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        if not body:
            return
        rest = content[start:]
        with self.lock:
            cut = name in self.cut and self.cuts_left > 0
            if cut:
                self.cuts_left -= 1
        if cut:
            rest = rest[:self.cut[name]]
        for at in range(0, len(rest), 65536):
            handler.wfile.write(rest[at:at + 65536])
            if self.delay:
                self.delay(name, start + at)
        if cut:
            handler.wfile.flush()
            handler.close_connection = True
            handler.connection.close()

    @staticmethod
    def send(handler, status, content, headers, body):
        handler.send_response(status)
        for key, value in headers.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if body:
            handler.wfile.write(content)
