"""A program in a real pseudo-terminal."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

ESCAPE = re.compile(rb"\x1b(\[[0-9;?]*[A-Za-z]|[=>]|\][^\x07]*\x07)")


def as_a_window_does():
    """The new process has the terminal, and the signals that a runner under nohup ignores are its own again."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


class Terminal:
    def __init__(self, command, env, columns=80, rows=24, stdout=None, cwd=None):
        self.master, slave = pty.openpty()
        self.resize(columns, rows, False)
        environment = dict({"TERM": "xterm"}, **env)
        self.process = subprocess.Popen([str(word) for word in command], env=environment, stdin=slave,
                                        stdout=stdout if stdout is not None else slave, stderr=slave, start_new_session=True,
                                        cwd=cwd, preexec_fn=as_a_window_does)
        os.close(slave)
        self.bytes = b""
        self.seen = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)

    def resize(self, columns, rows=24, tell=True):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if tell:
            os.kill(self.process.pid, signal.SIGWINCH)

    def pump(self, seconds):
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return True
        try:
            piece = os.read(self.master, 65536)
        except OSError:
            return False
        self.bytes += piece
        return bool(piece)

    def text(self):
        return ESCAPE.sub(b"", self.bytes).replace(b"\r", b"").decode("utf-8", "replace")

    def expect(self, wanted, seconds=60):
        """Waits for `wanted` after what was expected before; returns the text up to its end."""
        until = time.monotonic() + seconds
        while True:
            text = self.text()
            at = text.find(wanted, self.seen)
            if at >= 0:
                part = text[self.seen:at + len(wanted)]
                self.seen = at + len(wanted)
                return part
            if time.monotonic() > until or not self.pump(0.2):
                raise AssertionError(f"expected {wanted!r} in {text[self.seen:][-2000:]!r}")

    def send(self, text, pause=0.2):
        # A line editor shows its prompt a moment before it takes single keys; people are slower than that.
        time.sleep(pause)
        os.write(self.master, text.encode() if isinstance(text, str) else text)

    def line(self, text):
        self.send(text + "\r")

    def wait(self, seconds=30):
        until = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < until:
            self.pump(0.1)
        while self.pump(0.05):
            if not select.select([self.master], [], [], 0.05)[0]:
                break
        assert self.process.poll() is not None, f"still running: {self.text()[-1000:]!r}"
        return self.process.returncode
