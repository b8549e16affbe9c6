#!/usr/bin/env python3
"""Contexts and chats against a real server: reuse in any order, accounting, restarts, and a kill -9 under load.

usage: contexts_test.py path/of/epic [unittest arguments]
"""

import itertools
import sys
import tempfile
import threading
import time
import unittest

from epic_server import EpicServer, words

BINARY = None
FIRST_ROWS = 16  # legolink-16, the default strategy


def part(context):
    return {"type": "context", "id": context["id"]}


def question(text="Which report names a harbour?"):
    return {"type": "text", "text": text}


class AccountingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = EpicServer(BINARY)
        cls.server.start()
        cls.addClassCleanup(cls.server.__exit__)
        cls.contexts = []
        for seed in range(8):
            answer = cls.server.create(words(100, seed))
            assert answer.status == 201, answer
            cls.contexts.append(answer.json())

    def usage(self, answer):
        self.assertEqual(answer.status, 200, answer)
        usage = answer.json()["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(cached + usage["recomputed_tokens"] + usage["fresh_tokens"], usage["prompt_tokens"], usage)
        return usage

    def test_the_same_objects_in_other_orders_need_no_compile(self):
        before = self.server.metrics()
        orders = [self.contexts, self.contexts[::-1], self.contexts[3:] + self.contexts[:3],
                  self.contexts[1::2] + self.contexts[::2]]
        for order in orders:
            usage = self.usage(self.server.chat([part(context) for context in order] + [question()]))
            self.assertEqual(usage["recomputed_tokens"], FIRST_ROWS * len(order))
            self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"],
                                    sum(context["tokens"] - FIRST_ROWS for context in order))
        name = "epic_compile_tokens_total"
        head_only = self.server.metrics()[name] - before[name]
        self.assertLess(head_only, 100, "only the head of the chat template may have been compiled")

    def test_full_computes_every_row(self):
        parts = [part(context) for context in self.contexts] + [question()]
        usage = self.usage(self.server.chat(parts, linking={"strategy": "full"}))
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertGreaterEqual(usage["recomputed_tokens"], sum(context["tokens"] for context in self.contexts))

    def test_strategies_that_look_first_account_for_what_they_picked(self):
        parts = [part(context) for context in self.contexts[:4]] + [question()]
        covered = sum(context["tokens"] for context in self.contexts[:4])
        for linking, name, rows in [
            ({"strategy": "query-guided"}, "query-guided-16", 4 * 16),
            ({"strategy": "query-guided", "budget": 5}, "query-guided-5", 4 * 5),
            ({"strategy": "cacheblend-0.15"}, "cacheblend-0.15", covered * 15 // 100),
            ({"strategy": "cacheblend:attention", "ratio": 0.25}, "cacheblend-0.25:attention", covered // 4),
        ]:
            with self.subTest(linking):
                before = self.server.metrics()
                answer = self.server.chat(parts, linking=linking)
                usage = self.usage(answer)
                self.assertEqual(usage["recomputed_tokens"], rows)
                self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], covered - rows)
                self.assertEqual(answer.headers["x-epic-linking"], f"{name}; recomputed={rows}")
                self.assertGreater(answer.json()["timings"]["decide_ms"], 0)
                family = name.rsplit("-", 1)[0]
                series = f'epic_links_total{{strategy="{family}"}}'
                self.assertEqual(self.server.metrics()[series] - before[series], 1)

    def test_the_same_text_again_is_the_same_context(self):
        answer = self.server.create(words(100, 0))
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.json()["id"], self.contexts[0]["id"])

    def test_the_server_counts_what_it_tells_the_client(self):
        before = self.server.metrics()
        usage = self.usage(self.server.chat([part(self.contexts[0]), question()]))
        after = self.server.metrics()

        def grown(series):
            return after[series] - before[series]

        self.assertEqual(grown('epic_prompt_tokens_total{source="recomputed"}'), usage["recomputed_tokens"])
        self.assertEqual(grown('epic_prompt_tokens_total{source="fresh"}'), usage["fresh_tokens"])
        self.assertEqual(grown("epic_generation_tokens_total"), usage["completion_tokens"])
        self.assertEqual(grown("epic_time_to_first_token_seconds_count"), 1)


class RestartTest(unittest.TestCase):
    def test_contexts_and_answers_survive_a_restart(self):
        with tempfile.TemporaryDirectory() as folder:
            with EpicServer(BINARY, folder) as server:
                created = [server.create(words(80, seed)).json() for seed in range(3)]
                parts = [part(context) for context in created] + [question()]
                text = server.chat(parts).json()["choices"][0]["message"]["content"]
            self.assertEqual(server.process.returncode, 0, server.log_tail())
            with EpicServer(BINARY, folder) as server:
                for seed, context in enumerate(created):
                    again = server.create(words(80, seed))
                    self.assertEqual((again.status, again.json()["id"]), (200, context["id"]))
                self.assertEqual(server.metrics()["epic_compile_tokens_total"], 0)
                self.assertEqual(server.chat(parts).json()["choices"][0]["message"]["content"], text)

    def test_every_acknowledged_context_answers_after_a_kill_under_load(self):
        with tempfile.TemporaryDirectory() as folder:
            server = EpicServer(BINARY, folder)
            server.start()
            acknowledged = {}
            numbers = itertools.count(1)
            lock = threading.Lock()

            def client():
                while True:
                    with lock:
                        seed = next(numbers)
                    try:
                        answer = server.create(words(60, seed))
                        if answer.status not in (200, 201):
                            return
                        context = answer.json()
                        chat = server.chat([part(context), question()], max_tokens=4)
                        text = chat.json()["choices"][0]["message"]["content"] if chat.status == 200 else None
                    except (OSError, ValueError, KeyError):
                        return  # killed
                    except Exception:  # http.client's own
                        return
                    with lock:
                        acknowledged[seed] = (context["id"], text)

            clients = [threading.Thread(target=client) for _ in range(4)]
            for thread in clients:
                thread.start()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and len(acknowledged) < 12:
                time.sleep(0.05)
            server.kill()
            for thread in clients:
                thread.join(60)
            self.assertGreaterEqual(len(acknowledged), 12, server.log_tail())
            with EpicServer(BINARY, folder) as again:
                for seed, (context_id, text) in acknowledged.items():
                    got = again.get(f"/v1/contexts/{context_id}")
                    self.assertEqual(got.status, 200, f"context of seed {seed}: {got}")
                    chat = again.chat([{"type": "context", "id": context_id}, question()], max_tokens=4)
                    self.assertEqual(chat.status, 200, chat)
                    if text is not None:
                        self.assertEqual(chat.json()["choices"][0]["message"]["content"], text, f"seed {seed}")


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
