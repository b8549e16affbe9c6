#!/usr/bin/env python3
"""Malformed requests: each gets a 4xx with an error of four keys that says what to do, and the server lives.

usage: malformed_requests_test.py path/of/epic [unittest arguments]
"""

import json
import socket
import sys
import unittest

from epic_server import EpicServer

BINARY = None
CHAT = "/v1/chat/completions"
CONTEXTS = "/v1/contexts"
HELLO = [{"role": "user", "content": "Hello"}]
MISSING = "ctx_" + "a" * 32


def chat(**fields):
    return ("POST", CHAT, {"messages": HELLO, "max_tokens": 1} | fields)


def message(content, role="user"):
    return chat(messages=[{"role": role, "content": content}])


# (what the request is like, the request, statuses that are right, and the param that must be named, if any)
REQUESTS = [
    ("no JSON", ("POST", CHAT, b"hello"), {400}, None),
    ("empty body", ("POST", CHAT, b""), {400}, None),
    ("half a JSON document", ("POST", CHAT, b'{"messages": ['), {400}, None),
    ("two JSON documents", ("POST", CHAT, b"{}{}"), {400}, None),
    ("an array", ("POST", CHAT, []), {400}, None),
    ("null", ("POST", CHAT, b"null"), {400}, None),
    ("NaN", ("POST", CHAT, b'{"messages":[{"role":"user","content":"x"}],"temperature":NaN}'), {400}, None),
    ("a number too large", ("POST", CHAT, b'{"messages":[{"role":"user","content":"x"}],"top_p":1e999}'), {400}, None),
    ("bytes that are not UTF-8", ("POST", CHAT, b'{"messages":[{"role":"user","content":"\xff\xfe"}]}'), {400}, None),
    ("a lone surrogate", ("POST", CHAT, b'{"messages":[{"role":"user","content":"\\ud800"}]}'), {400}, None),
    ("deep nesting", ("POST", CHAT, b"[" * 100000 + b"]" * 100000), {400, 413}, None),
    ("deep nesting in a field", ("POST", CHAT, b'{"a":' * 5000 + b"1" + b"}" * 5000), {400}, None),
    ("no messages", ("POST", CHAT, {}), {400}, "messages"),
    ("messages null", chat(messages=None), {400}, "messages"),
    ("messages empty", chat(messages=[]), {400}, "messages"),
    ("messages of the wrong type", chat(messages="hello"), {400}, "messages"),
    ("a message that is no object", chat(messages=["hello"]), {400}, "messages"),
    ("a message without a role", chat(messages=[{"content": "x"}]), {400}, "messages"),
    ("an unknown role", message("x", "wizard"), {400}, "messages"),
    ("content of the wrong type", message(7), {400}, "messages"),
    ("a part of an unknown type", message([{"type": "smell", "text": "x"}]), {400}, "messages"),
    ("a part without its text", message([{"type": "text"}]), {400}, "messages"),
    ("an unknown key in a part", message([{"type": "text", "text": "x", "colour": 1}]), {400}, "messages"),
    ("a context part without an id", message([{"type": "context"}]), {400}, "messages"),
    ("a context part with a bad id", message([{"type": "context", "id": "ctx_!"}]), {400, 404}, None),
    ("a context that does not exist", message([{"type": "context", "id": MISSING}]), {404}, None),
    ("context_ids that do not exist", chat(context_ids=[MISSING]), {404}, None),
    ("context_ids of the wrong type", chat(context_ids="x"), {400}, "context_ids"),
    ("context_ids without a user message",
     chat(messages=[{"role": "system", "content": "x"}], context_ids=[MISSING]), {400, 404}, None),
    ("n of 0", chat(n=0), {400}, "n"),
    ("n too large", chat(n=100000), {400}, "n"),
    ("n of the wrong type", chat(n="two"), {400}, "n"),
    ("temperature below 0", chat(temperature=-1), {400}, "temperature"),
    ("temperature too high", chat(temperature=100), {400}, "temperature"),
    ("temperature of the wrong type", chat(temperature="hot"), {400}, "temperature"),
    ("top_p above 1", chat(top_p=1.5), {400}, "top_p"),
    ("top_p of 0", chat(top_p=0), {400}, "top_p"),
    ("min_p above 1", chat(min_p=2), {400}, "min_p"),
    ("top_k below -1", chat(top_k=-5), {400}, "top_k"),
    ("max_tokens of 0", chat(max_tokens=0), {400}, "max_tokens"),
    ("max_tokens below 0", chat(max_tokens=-1), {400}, "max_tokens"),
    ("max_tokens with a fraction", chat(max_tokens=1.5), {400}, "max_tokens"),
    ("presence_penalty too large", chat(presence_penalty=9), {400}, "presence_penalty"),
    ("repetition_penalty of 0", chat(repetition_penalty=0), {400}, "repetition_penalty"),
    ("an empty stop string", chat(stop=[""]), {400}, "stop"),
    ("too many stop strings", chat(stop=["a", "b", "c", "d", "e"]), {400}, "stop"),
    ("a stop string too long", chat(stop=["x" * 100000]), {400}, "stop"),
    ("stop of the wrong type", chat(stop=7), {400}, "stop"),
    ("a stop token outside of the vocabulary", chat(stop_token_ids=[10**9]), {400}, "stop_token_ids"),
    ("a bias outside of the vocabulary", chat(logit_bias={"999999999": 1}), {400}, "logit_bias"),
    ("a bias that is no number", chat(logit_bias={"1": "much"}), {400}, "logit_bias"),
    ("top_logprobs too many", chat(logprobs=True, top_logprobs=1000), {400}, "top_logprobs"),
    ("stream of the wrong type", chat(stream="yes"), {400}, "stream"),
    ("tools", chat(tools=[{"type": "function", "function": {"name": "f"}}]), {400}, "tools"),
    ("a JSON schema", chat(response_format={"type": "json_schema", "json_schema": {}}), {400}, "response_format"),
    ("another model", chat(model="no-such-model"), {404}, None),
    ("an unknown strategy", chat(linking={"strategy": "magic"}), {400}, None),
    ("a strategy and another k", chat(linking={"strategy": "legolink-16", "k": 8}), {400}, None),
    ("a ratio above 1", chat(linking={"ratio": 1.5}), {400}, "linking.ratio"),
    ("a ratio of the wrong type", chat(linking={"ratio": "0.15"}), {400}, "linking.ratio"),
    ("a ratio for a strategy without one", chat(linking={"strategy": "full", "ratio": 0.1}), {400}, "linking.ratio"),
    ("a budget of none", chat(linking={"strategy": "query-guided", "budget": 0}), {400}, "linking.budget"),
    ("options for measurements only", chat(linking={"strategy": "query-guided:first=4"}), {400}, "linking.strategy"),
    ("an unknown key in linking", chat(linking={"speed": "high"}), {400}, None),
    ("linking of the wrong type", chat(linking="legolink-16"), {400}, "linking"),
    ("more text than the context holds", message("word " * 20000), {400}, None),
    ("a create without a text", ("POST", CONTEXTS, {}), {400}, None),
    ("an empty text", ("POST", CONTEXTS, {"text": ""}), {400}, None),
    ("a text and tokens", ("POST", CONTEXTS, {"text": "x", "tokens": [1]}), {400}, None),
    ("a token outside of the vocabulary", ("POST", CONTEXTS, {"tokens": [10**9]}), {400}, None),
    ("a token below 0", ("POST", CONTEXTS, {"tokens": [-1]}), {400}, None),
    ("a text of the wrong type", ("POST", CONTEXTS, {"text": ["x"]}), {400}, "text"),
    ("ttl below 0", ("POST", CONTEXTS, {"text": "x", "ttl": -5}), {400}, "ttl"),
    ("an unknown pin", ("POST", CONTEXTS, {"text": "x", "pin": "steel"}), {400}, "pin"),
    ("tags of the wrong type", ("POST", CONTEXTS, {"text": "x", "tags": "a"}), {400}, "tags"),
    ("wait too long", ("POST", CONTEXTS, {"text": "x", "wait": 1000}), {400}, "wait"),
    ("an unknown compile prefix", ("POST", CONTEXTS, {"text": "x", "compile_prefix": {"type": "z"}}), {400}, None),
    ("a context that is not there", ("GET", f"{CONTEXTS}/{MISSING}", None), {404}, None),
    ("an id that is none", ("GET", f"{CONTEXTS}/%00%ff", None), {400, 404}, None),
    ("a limit of 0", ("GET", f"{CONTEXTS}?limit=0", None), {400}, "limit"),
    ("a limit that is no number", ("GET", f"{CONTEXTS}?limit=ten", None), {400}, "limit"),
    ("an unknown order", ("GET", f"{CONTEXTS}?order=sideways", None), {400}, "order"),
    ("a patch of the content", ("PATCH", f"{CONTEXTS}/{MISSING}", {"ttl": "soon"}), {400, 404}, None),
    ("an unknown route", ("GET", "/v1/nothing", None), {404}, None),
    ("a path upwards", ("GET", "/v1/../etc/passwd", None), {400, 404}, None),
    ("the wrong method", ("DELETE", CHAT, None), {405}, None),
    ("the admin's route on the public door", ("GET", "/metrics", None), {404}, None),
]

# Raw bytes that are no proper HTTP. The server answers with a 4xx or closes.
RAW = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n{}",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 1000000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10000 + b"\r\n",
    b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
]


class MalformedRequestsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = EpicServer(BINARY)
        cls.server.start()
        cls.addClassCleanup(cls.server.__exit__)

    def assert_is_error(self, answer):
        self.assertTrue(answer.headers["content-type"].startswith("application/json"), answer)
        error = json.loads(answer.body)["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertTrue(error["message"])
        self.assertTrue(error["code"])
        return error

    def test_every_malformed_request_gets_a_clear_refusal(self):
        self.assertGreaterEqual(len(REQUESTS), 60)
        for what, (method, path, body), statuses, param in REQUESTS:
            with self.subTest(what):
                headers = {"content-type": "application/json"} if body is not None else {}
                answer = self.server.request(method, path, body, headers)
                self.assertIn(answer.status, statuses, answer)
                error = self.assert_is_error(answer)
                if param:
                    self.assertTrue(str(error["param"]).startswith(param), error)
                self.assertTrue(self.server.is_alive(), self.server.log_tail())
        self.assertEqual(self.server.chat("Hello").status, 200)

    def test_bodies_and_types_that_are_not_taken(self):
        too_large = self.server.post(CHAT, b" " * (17 << 20), headers={"content-type": "application/json"})
        self.assertEqual(too_large.status, 413)
        self.assert_is_error(too_large)
        wrong_type = self.server.post(CHAT, b"a=1", headers={"content-type": "application/x-www-form-urlencoded"})
        self.assertEqual(wrong_type.status, 415)
        self.assert_is_error(wrong_type)

    def test_what_is_no_http_is_refused_or_closed(self):
        for data in RAW:
            with self.subTest(data[:60]):
                with socket.create_connection(("127.0.0.1", self.server.http_port), timeout=20) as connection:
                    try:
                        connection.sendall(data)
                        answer = connection.recv(4096)
                    except (ConnectionResetError, BrokenPipeError):
                        answer = b""
                self.assertRegex(answer, rb"^$|^HTTP/1\.[01] 4\d\d ")
                self.assertTrue(self.server.is_alive(), self.server.log_tail())
        self.assertEqual(self.server.get("/health").status, 200)

    def test_texts_of_clients_do_not_enter_the_log(self):
        secret = "zanzibar-marmalade"
        self.server.chat(secret)
        self.server.create(secret, name=secret + "-name", tags=[secret + "-tag"])
        self.server.chat([{"type": "text", "text": secret, "colour": secret}])
        self.assertNotIn("zanzibar", self.server.log_tail())


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
