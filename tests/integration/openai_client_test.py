#!/usr/bin/env python3
"""A stock OpenAI client works unchanged: models, chats, streams with usage, errors.

usage: openai_client_test.py path/of/epic [unittest arguments]
Runs itself again with build/venv/bin/python, where tests/run.sh puts the client, if this Python has none.
"""

import os
import pathlib
import sys
import unittest

from epic_server import SKIPPED, EpicServer, words

try:
    import openai
except ImportError:
    python = pathlib.Path(__file__).resolve().parents[2] / "build/venv/bin/python"
    if python.exists() and pathlib.Path(sys.prefix) != python.parents[1]:
        os.execv(python, [str(python), *sys.argv])
    print("skipped: the openai client is not here; tests/run.sh installs it where there is a network")
    sys.exit(SKIPPED)

BINARY = None
HELLO = [{"role": "user", "content": "Say hello."}]


class OpenAiClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = EpicServer(BINARY)
        cls.server.start()
        cls.addClassCleanup(cls.server.__exit__)
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.http_port}/v1", api_key="unused",
                                   timeout=120, max_retries=0)
        cls.model = cls.client.models.list().data[0].id

    def test_models(self):
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)

    def test_a_chat(self):
        answer = self.client.chat.completions.create(model=self.model, messages=HELLO, max_tokens=8, temperature=0)
        self.assertTrue(answer.choices[0].message.content)
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)

    def test_a_stream_says_the_same_as_a_whole_answer(self):
        asked = {"model": self.model, "messages": HELLO, "max_tokens": 24, "temperature": 0}
        whole = self.client.chat.completions.create(**asked)
        text, reasons, usage = "", [], None
        for chunk in self.client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reasons += [choice.finish_reason] if choice.finish_reason else []
            usage = chunk.usage or usage
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(reasons, [whole.choices[0].finish_reason])
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_several_answers_with_logprobs(self):
        answer = self.client.chat.completions.create(model=self.model, messages=HELLO, max_tokens=4, n=3, seed=7,
                                                     temperature=1, logprobs=True, top_logprobs=2)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
        for choice in answer.choices:
            tokens = b"".join(bytes(entry.bytes) for entry in choice.logprobs.content)
            self.assertTrue(tokens.decode("utf-8", "ignore").startswith(choice.message.content[:1]))

    def test_context_parts_and_the_accounting_of_tokens(self):
        context = self.server.create(words(60, 1)).json()
        answer = self.client.chat.completions.create(
            model=self.model, max_tokens=4, messages=[{"role": "user", "content": [
                {"type": "context", "id": context["id"]}, {"type": "text", "text": "What is this?"}]}])
        self.assertGreater(answer.usage.prompt_tokens_details.cached_tokens, 0)

    def test_refusals_are_the_errors_that_the_client_knows(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model=self.model, messages=HELLO, temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="no-such-model", messages=HELLO)
        self.assertEqual(caught.exception.code, "model_not_found")


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
