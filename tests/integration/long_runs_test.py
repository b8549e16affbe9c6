#!/usr/bin/env python3
"""Long runs of one text: the ids of the reference, in linear time, and refusals with both numbers.

usage: long_runs_test.py path/of/epic [unittest arguments]
"""

import json
import pathlib
import re
import sys
import time
import unittest

from epic_server import EpicServer

BINARY = None
GOLDEN = pathlib.Path(__file__).parents[2] / "services/model/tokenizer/golden/default_model.json"
# A run of 131,072 takes well under 100 ms to tokenise; quadratic work would take minutes. The rest is for JSON and a
# machine that is busy.
SECONDS = 3.0


def fnv1a(ids):
    value = 14695981039346656037
    for token in ids:
        value = (value ^ token) * 1099511628211 % 2**64
    return str(value)


class LongRunsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = EpicServer(BINARY)
        cls.server.start()
        cls.addClassCleanup(cls.server.__exit__)
        cls.runs = json.loads(GOLDEN.read_text())["long"]
        cls.window = cls.server.get("/v1/models").json()["data"][0]["max_model_len"]

    def post(self, path, body):
        begin = time.monotonic()
        answer = self.server.post(path, body)
        self.assertLess(time.monotonic() - begin, SECONDS, path)
        return answer

    def test_runs_get_the_ids_of_the_reference_and_back(self):
        for run in self.runs:
            with self.subTest(unit=run["unit"], repeat=run["repeat"]):
                text = run["unit"] * run["repeat"]
                ids = self.post("/tokenize", {"content": text}).json()["tokens"]
                self.assertEqual((len(ids), fnv1a(ids)), (run["count"], run["hash"]))
                self.assertEqual(self.post("/detokenize", {"tokens": ids}).json()["content"], text)

    def test_runs_past_the_window_are_refused_with_both_numbers(self):
        before = self.server.get("/v1/contexts").json()["data"]
        for run in self.runs:
            if run["count"] <= self.window:
                continue
            with self.subTest(unit=run["unit"], repeat=run["repeat"]):
                text = run["unit"] * run["repeat"]
                for path, body in [("/v1/contexts", {"text": text}),
                                   ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]})]:
                    answer = self.post(path, body)
                    error = answer.json()["error"]
                    self.assertEqual((answer.status, error["code"]), (400, "context_length_exceeded"))
                    numbers = [int(number) for number in re.findall(r"\d+", error["message"])]
                    self.assertIn(self.window, numbers)
                    self.assertTrue(any(number >= run["count"] for number in numbers), error["message"])
        self.assertEqual(self.server.get("/v1/contexts").json()["data"], before)

    def test_a_run_within_the_window_is_a_context_like_any_other(self):
        text = "A" * 4000
        made = self.server.create(text)
        self.assertEqual(made.status, 201, made)
        parts = [{"type": "context", "id": made.json()["id"]}, {"type": "text", "text": "Which letter?"}]
        self.assertEqual(self.server.chat(parts).status, 200)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
