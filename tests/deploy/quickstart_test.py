#!/usr/bin/env python3
"""deploy/quickstart.sh in a tree whose packages, build and model are stand-ins: it starts, reuses and stops its server.

The stand-in for the binary `epic` is a copy of the Python interpreter; `epic serve …` then runs the file `serve`, and
`epic demo …` the file `demo`, of the tree's top folder, where quickstart.sh stands while it runs.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]

SERVE = """
import http.server, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if "FAIL" in open("mode").read():
    sys.exit("no such model: this line is the cause")
host, port = sys.argv[sys.argv.index("--http") + 1].split(":")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer((host, int(port)), Handler).serve_forever()
"""
DEMO = """
import sys
print("demo with", *sys.argv[1:])
sys.exit(1 if "BAD_DEMO" in open("mode").read() else 0)
"""
STAND_INS = {
    "deploy/install_packages.sh": "#!/usr/bin/env bash\necho packages\n",
    "deploy/build.sh": '#!/usr/bin/env bash\necho "build $*"\n',
    "deploy/fetch_model.sh": "#!/usr/bin/env bash\necho fetching >&2\necho /model.gguf\n",
    "serve": SERVE,
    "demo": DEMO,
    "mode": "",
}


class QuickstartTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.top = pathlib.Path(self.folder.name).resolve()
        (self.top / "deploy").mkdir()
        (self.top / "build/release/bin").mkdir(parents=True)
        for name, text in STAND_INS.items():
            (self.top / name).write_text(text)
            (self.top / name).chmod(0o755)
        shutil.copy(TOP / "deploy/quickstart.sh", self.top / "deploy/quickstart.sh")
        shutil.copy(os.path.realpath(sys.executable), self.top / "build/release/bin/epic")
        self.addCleanup(self.folder.cleanup)
        self.addCleanup(self.stop)

    def stop(self):
        pid = self.server()
        if pid:
            os.kill(pid, signal.SIGKILL)

    def server(self):
        """The process of the server, if it runs."""
        try:
            pid = int((self.top / "build/quickstart/server.pid").read_text())
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            return pid if state != "Z" else None
        except (OSError, ValueError):
            return None

    def run_script(self, *arguments, cwd=None):
        environment = dict(os.environ, PYTHONHOME=sys.base_prefix)
        return subprocess.run([str(self.top / "deploy/quickstart.sh"), *arguments], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, cwd=cwd, env=environment, check=False)

    def address(self):
        return (self.top / "build/quickstart/server.http").read_text().strip()

    def test_it_runs_the_demo_and_stops_its_server(self):
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("build release epic_binary", done.stdout)
        self.assertIn("demo with --http 127.0.0.1:", done.stdout)
        self.assertIsNone(self.server())

    def test_a_server_that_was_left_running_is_used_again(self):
        self.assertEqual(self.run_script("--serve").returncode, 0)
        first = self.server()
        self.assertIsNotNone(first)
        with urllib.request.urlopen(f"http://{self.address()}/health", timeout=5) as answer:
            self.assertEqual(answer.status, 200)
        again = self.run_script()
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("the server of an earlier run is up", again.stdout)
        self.assertEqual(self.server(), first)

    def test_a_server_of_an_older_build_is_replaced(self):
        self.assertEqual(self.run_script("--serve").returncode, 0)
        first = self.server()
        binary = self.top / "build/release/bin/epic"
        shutil.copy(binary, self.top / "new")
        os.replace(self.top / "new", binary)
        self.assertEqual(self.run_script("--serve").returncode, 0)
        self.assertIsNotNone(self.server())
        self.assertNotEqual(self.server(), first)
        self.assertFalse(os.path.exists(f"/proc/{first}/exe"))

    def test_taken_ports_are_avoided(self):
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind(("127.0.0.1", 8080))
                taken.listen()
            except OSError:
                pass  # somebody else has it: as good
            done = self.run_script("--serve")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotEqual(self.address(), "127.0.0.1:8080")

    def test_the_demo_is_told_both_doors_of_the_server(self):
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind(("127.0.0.1", 8082))
                taken.listen()
            except OSError:
                pass  # somebody else has it: as good
            done = self.run_script("--serve")
        self.assertEqual(done.returncode, 0, done.stderr)
        command = pathlib.Path(f"/proc/{self.server()}/cmdline").read_text().split("\0")
        admin = command[command.index("--admin") + 1]
        self.assertNotEqual(admin, "127.0.0.1:8082")
        self.assertIn(f"demo with --http {self.address()} --admin {admin}", done.stdout)

    def test_a_server_that_ends_at_the_start_is_reported_with_its_log(self):
        (self.top / "mode").write_text("FAIL")
        began = time.monotonic()
        done = self.run_script("--serve")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the server ended while it was starting", done.stderr)
        self.assertIn("this line is the cause", done.stderr)
        self.assertLess(time.monotonic() - began, 30)

    def test_a_demo_that_fails_fails_the_script_and_stops_the_server(self):
        (self.top / "mode").write_text("BAD_DEMO")
        done = self.run_script("--serve")
        self.assertEqual(done.returncode, 1)
        self.assertIn("did not succeed", done.stderr)
        self.assertIsNone(self.server())

    def test_files_are_found_from_where_the_user_stands_and_checked_first(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "my text.txt").write_text("hello")
            done = self.run_script("my text.txt", cwd=folder)
            self.assertIn(f"{os.path.realpath(folder)}/my text.txt", done.stdout)
            missing = self.run_script("nothing.txt", cwd=folder)
        self.assertEqual(missing.returncode, 2)
        self.assertIn("nothing.txt", missing.stderr)
        self.assertNotIn("build", missing.stdout)

    def test_an_unknown_option_is_refused_and_help_is_printed(self):
        self.assertEqual(self.run_script("--nonsense").returncode, 2)
        self.assertIn("usage:", self.run_script("--help").stdout)


if __name__ == "__main__":
    unittest.main()
