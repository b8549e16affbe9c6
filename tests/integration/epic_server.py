"""One `epic serve` for a test: its own ports and data folder, ready when entered, stopped when left."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

SKIPPED = 77  # CTest counts this exit code as skipped
READY_SECONDS = 120
STOP_SECONDS = 40


def default_model():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    path = cache / "epic/models/smollm2-135m-instruct-q4_1.gguf"
    if not path.exists():
        print(f"skipped: {path} is not here; deploy/fetch_model.sh brings it")
        sys.exit(SKIPPED)
    return str(path)


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = {name.lower(): value for name, value in headers}
        self.body = body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


class EpicServer:
    """binary: the path of `epic`. data_dir: None makes one that goes with the server. settings: name=value, ...
    model: None is the default model."""

    def __init__(self, binary, data_dir=None, settings=(), model=None):
        self.binary = binary
        self.model = str(model or default_model())
        self.settings = settings
        self.owned = None if data_dir else tempfile.TemporaryDirectory(prefix="epic_test_")
        self.data_dir = data_dir or self.owned.name
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        if self.owned:
            self.owned.cleanup()

    def start(self):
        self.http_port, grpc, self.admin_port, admin_grpc = free_ports(4)
        self.log_path = os.path.join(self.data_dir, f"server-{time.monotonic_ns()}.log")
        command = [self.binary, "serve", "--model", self.model, "--data-dir", os.path.join(self.data_dir, "store")]
        for flag, port in [("--http", self.http_port), ("--grpc", grpc), ("--admin", self.admin_port),
                           ("--admin-grpc", admin_grpc)]:
            command += [flag, f"127.0.0.1:{port}"]
        for setting in self.settings:
            command += ["--set", setting]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.log_tail()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/health").status == 200:
                    return
            time.sleep(0.1)
        self.kill()
        raise RuntimeError(f"the server was not ready within {READY_SECONDS} s:\n{self.log_tail()}")

    def stop(self):
        """Asks it to stop, as an operator would. Returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                raise RuntimeError(f"the server did not stop within {STOP_SECONDS} s") from None
        return self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.wait()

    def is_alive(self):
        return self.process.poll() is None

    def log_tail(self):
        return pathlib.Path(self.log_path).read_text(errors="replace")[-3000:]

    def request(self, method, path, body=None, headers=None, port=None, timeout=120):
        """body: bytes as they are, anything else as JSON."""
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("content-type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", port or self.http_port, timeout=timeout)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()

    def get(self, path, **arguments):
        return self.request("GET", path, **arguments)

    def post(self, path, body, **arguments):
        return self.request("POST", path, body, **arguments)

    def create(self, text, **fields):
        return self.post("/v1/contexts", {"text": text, **fields})

    def chat(self, content, **fields):
        """content: a string or a list of parts of the one user message."""
        fields = {"max_tokens": 8, "temperature": 0} | fields
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **fields})

    def metrics(self):
        """Every sample of the admin door's /metrics."""
        text = self.get("/metrics", port=self.admin_port).body.decode()
        return {name: float(value) for name, value in re.findall(r"^(\S+) (\S+)$", text, re.MULTILINE)}


def words(count, seed):
    """Plain text of `count` words, different for each seed."""
    vocabulary = ("river stone green letter window morning seven carries under the small house of a quiet teacher "
                  "who reads old maps and counts ships in every harbour before winter").split()
    state = seed * 2654435761 + 1
    chosen = []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        chosen.append(vocabulary[(state >> 33) % len(vocabulary)])
    return f"Report {seed}. " + " ".join(chosen) + "."
