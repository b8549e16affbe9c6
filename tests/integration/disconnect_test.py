#!/usr/bin/env python3
"""A client that closes during compile, link or decode: what it held is free within a second.

usage: disconnect_test.py path/of/epic [unittest arguments]
"""

import json
import socket
import sys
import time
import unittest

from epic_server import EpicServer, words

BINARY = None
FREE_SECONDS = 1.0
BUSY_SECONDS = 30.0
GAUGES = ["epic_requests_running", "epic_requests_waiting", "epic_engine_rows_in_flight",
          "epic_engine_private_segment_bytes", "epic_store_reservations", "epic_http_streams"]


class DisconnectTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = EpicServer(BINARY)
        cls.server.start()
        cls.addClassCleanup(cls.server.__exit__)

    def send(self, path, body):
        data = json.dumps(body).encode()
        connection = socket.create_connection(("127.0.0.1", self.server.http_port), timeout=30)
        connection.sendall(f"POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n"
                           f"content-length: {len(data)}\r\n\r\n".encode() + data)
        return connection

    def wait_until(self, condition, seconds, what):
        deadline = time.monotonic() + seconds
        while True:
            gauges = {name: self.server.metrics()[name] for name in GAUGES}
            if condition(gauges):
                return
            self.assertLess(time.monotonic(), deadline, f"{what} within {seconds} s: {gauges}")
            time.sleep(0.01)

    def close_while(self, connection, is_busy):
        self.wait_until(is_busy, BUSY_SECONDS, "work begins")
        connection.close()
        self.wait_until(lambda gauges: not any(gauges.values()), FREE_SECONDS, "everything is free")
        self.assertTrue(self.server.is_alive())

    def chat(self, text, **fields):
        return {"messages": [{"role": "user", "content": text}], "temperature": 0} | fields

    def test_during_a_compile(self):
        connection = self.send("/v1/contexts", {"text": words(5000, 1)})
        self.close_while(connection, lambda gauges: gauges["epic_engine_rows_in_flight"] > 0)

    def test_during_a_link(self):
        connection = self.send("/v1/chat/completions", self.chat(words(5000, 2), linking={"strategy": "full"}))
        self.close_while(connection, lambda gauges: gauges["epic_engine_rows_in_flight"] > 0)

    def test_during_a_decode(self):
        for stream in (True, False):
            for n in (1, 4):
                with self.subTest(stream=stream, n=n):
                    connection = self.send("/v1/chat/completions", self.chat(
                        "Count.", stream=stream, n=n, max_tokens=2000, ignore_eos=True, temperature=1, seed=1))
                    if stream:
                        while b'"content":"' not in connection.recv(65536).replace(b'"content":""', b""):
                            pass
                    self.close_while(connection, lambda gauges: gauges["epic_requests_running"] > 0)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
