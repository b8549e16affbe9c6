#!/usr/bin/env python3
"""The `epic` command as a user types it: contexts, chats, the demo, settings, and what it says when something is wrong.

usage: command_line_test.py path/of/epic [unittest arguments]
"""

import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

from epic_server import EpicServer

BINARY = None
TEXT = "The lighthouse of Norden was built in 1871 by Ada Holm. It is 41 metres tall.\n"
OTHER = "The bakery on Mill Street opens at six and sells rye bread.\n"


class CommandLineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = EpicServer(BINARY)
        cls.server.start()
        cls.addClassCleanup(cls.server.__exit__)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.text, cls.other = cls.folder / "norden.txt", cls.folder / "bakery.txt"
        cls.text.write_text(TEXT)
        cls.other.write_text(OTHER)

    def epic(self, *arguments, stdin="", code=0):
        """Runs `epic`; the server is named by the environment, as an operator would."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EPIC_")}
        environment |= {"EPIC_LISTEN_HTTP": f"127.0.0.1:{self.server.http_port}",
                        "EPIC_LISTEN_ADMIN": f"127.0.0.1:{self.server.admin_port}"}
        done = subprocess.run([BINARY, *map(str, arguments)], input=stdin, capture_output=True, text=True,
                              timeout=120, env=environment, check=False)
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stdout}{done.stderr}")
        return done

    def test_a_repeated_option_takes_one_value_each_time(self):
        self.epic("context", "create", "--tag", "one", "--tag", "two", self.text, self.other)
        listed = json.loads(self.epic("context", "list", "--tag", "one", "--json").stdout)["data"]
        self.assertEqual([sorted(record["tags"]) for record in listed], [["one", "two"]] * 2)

    def test_a_question_may_follow_files_and_contexts(self):
        self.epic("context", "create", self.other)
        for before in (["-f", self.text], ["-f", self.text, "-f", self.other]):
            answer = json.loads(self.epic("chat", "--json", "--max-tokens", 12, *before, "Who built it?").stdout)
            self.assertGreater(answer["cached_tokens"], 0)
            self.assertEqual(answer["cached_tokens"] + answer["recomputed_tokens"] + answer["fresh_tokens"],
                             answer["prompt_tokens"])
        piped = self.epic("chat", "--max-tokens", 12, "-f", self.text, stdin="Who built it?")
        self.assertIn("first token after", piped.stderr)

    def test_a_name_serves_in_place_of_a_cache_id(self):
        made = self.epic("context", "create", "-", "--name", "mio", "--json", stdin="The cat is called Mio.")
        self.assertIn("compiling standard input", made.stderr)
        context = json.loads(made.stdout)["id"]
        self.assertEqual(json.loads(self.epic("context", "get", "mio", "--json").stdout)["id"], context)
        self.assertIn("cached", self.epic("chat", "-c", "mio", "--max-tokens", 8, "What is its name?").stderr)
        self.assertIn("deleted and erased", self.epic("context", "delete", "mio", "--wait-for-erasure").stdout)
        self.assertIn("was deleted", self.epic("context", "get", context, code=1).stderr)
        gone = self.epic("chat", "-c", "mio", "hello", code=1).stderr
        self.assertIn("no context has the Cache ID or name 'mio'", gone)

    def test_json_is_one_document_on_standard_output(self):
        for arguments in (["version"], ["status"], ["config", "show"], ["config", "check"], ["context", "list"]):
            out = self.epic(*arguments, "--json").stdout
            self.assertIsInstance(json.loads(out), dict)
            self.assertTrue(out.endswith("}\n"), arguments)
        self.assertIn("cpu", json.loads(self.epic("version", "--json").stdout))

    def test_status_tells_a_server_that_hangs_from_one_that_serves(self):
        self.assertIn(": ok\n", self.epic("status").stdout)
        cause = "the engine has stood still for 31 s with 2 requests running and 5 waiting"

        class Stuck(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps({"status": "stuck", "causes": [cause]} if self.path == "/health" else {}).encode()
                self.send_response(503)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stuck) as stuck:
            threading.Thread(target=stuck.serve_forever, daemon=True).start()
            address = f"127.0.0.1:{stuck.server_port}"
            said = self.epic("status", "--http", address, code=1)
            self.assertIn(f"{address}: stuck", said.stdout)
            self.assertIn(cause, said.stdout)
            self.assertIn("is stuck and serves nothing", said.stderr)
            report = json.loads(self.epic("status", "--http", address, "--json", code=1).stdout)
            self.assertEqual((report["able"], report["health"]["causes"]), (False, [cause]))
            stuck.shutdown()

    def test_the_demo_compares_both_ways_of_asking(self):
        report = json.loads(self.epic("demo", "--json", "--repeat", 1, "--max-tokens", 8, self.text, self.other).stdout)
        self.assertEqual(report["full"]["prompt_tokens"], report["linked"]["prompt_tokens"])
        self.assertEqual(report["full"]["cached_tokens"], 0)
        self.assertGreater(report["ttft_ratio"], 0)
        self.assertGreaterEqual(report["quality"]["kl_mean"], 0)

    def test_what_is_wrong_is_named_with_what_to_do(self):
        def serve(flag, value):
            flags = {name: "127.0.0.1:0" for name in ("--http", "--grpc", "--admin", "--admin-grpc")}
            flags |= {"--data-dir": self.folder / "data", flag: value}
            return ["serve", *(word for pair in flags.items() for word in pair)]

        taken = f"127.0.0.1:{self.server.http_port}"
        config = self.folder / "bad.yaml"
        config.write_text("engine: {threads: two}\nfoo: 1\n")
        for arguments, code, said in [
            (serve("--http", taken), 1, "--http: cannot bind"),
            (serve("--admin", taken), 1, "--admin: cannot bind"),
            (serve("--grpc", taken), 1, f"--grpc: cannot bind {taken}: Address already in use; choose another"),
            (serve("--admin-grpc", taken), 1, f"--admin-grpc: cannot bind {taken}: "),
            (serve("--http", "0.0.0.0:0"), 1, "insecure: true"),
            (serve("--model", self.folder / "none.gguf"), 1, "deploy/fetch_model.sh"),
            (serve("--model", self.text), 1, "GGUF"),
            (serve("--data-dir", self.text), 1, "--data-dir"),
            (serve("--data-dir", os.path.join(self.server.data_dir, "store")), 1, "another process uses"),
            (["--config", config, "config", "check"], 1, "there is no setting 'foo'"),
            (["--config", self.folder / "none.yaml", "config", "show"], 1, "cannot be read"),
            (["status", "--http", "127.0.0.1:1"], 1, "start one with `epic serve`"),
            (["context", "create", self.folder / "none.txt"], 1, "does it exist"),
            (["context", "get", "nothing"], 1, "`epic context list`"),
            (["chat", "--strategy", "bogus", "hello"], 1, "legolink-K"),
            (["chat", "-f", self.text], 1, "standard input is empty"),
            (["bogus"], 2, "there is no command 'bogus'"),
            (["context", "bogus"], 2, "there is no command 'bogus'"),
        ]:
            with self.subTest(arguments):
                stderr = self.epic(*arguments, code=code).stderr
                self.assertIn(said, stderr)
                if "cannot bind" in said:
                    self.assertEqual(1, stderr.count("\n"), stderr)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
