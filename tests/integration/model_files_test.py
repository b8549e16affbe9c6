#!/usr/bin/env python3
"""Model files that are damaged, cut, replaced or removed: before a server starts, while it loads, and under it.

usage: model_files_test.py path/of/epic [unittest arguments]
"""

import contextlib
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

from epic_server import EpicServer, default_model, words

BINARY = None
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes by GGUF type
STRING, ARRAY = 8, 9
HUGE = 2**60


class GgufFields:
    """Where the fields of a GGUF header lie: offset and struct format, by name."""

    def __init__(self, data):
        self.data = data
        self.at = {"magic": (0, "<4s"), "version": (4, "<I"), "tensor_count": (8, "<Q"), "kv_count": (16, "<Q")}
        offset = 24
        for _ in range(self.read("kv_count")):
            offset = self.key(offset)
        for _ in range(self.read("tensor_count")):
            offset = self.tensor(offset)

    def read(self, name):
        offset, form = self.at[name]
        return struct.unpack_from(form, self.data, offset)[0]

    def string(self, offset):
        length = struct.unpack_from("<Q", self.data, offset)[0]
        return self.data[offset + 8:offset + 8 + length].decode(), offset + 8 + length

    def key(self, offset):
        self.at.setdefault("first key length", (offset, "<Q"))
        name, offset = self.string(offset)
        kind = struct.unpack_from("<I", self.data, offset)[0]
        self.at[name + " type"] = (offset, "<I")
        self.at[name] = (offset + 4, "<I" if SCALARS.get(kind) == 4 else "<Q")
        offset += 4
        if kind == ARRAY:
            element, count = struct.unpack_from("<IQ", self.data, offset)
            self.at[name + " element type"] = (offset, "<I")
            self.at[name + " count"] = (offset + 4, "<Q")
            offset += 12
            for _ in range(count):
                offset = self.string(offset)[1] if element == STRING else offset + SCALARS[element]
            return offset
        return self.string(offset)[1] if kind == STRING else offset + SCALARS[kind]

    def tensor(self, offset):
        name, offset = self.string(offset)
        dims = struct.unpack_from("<I", self.data, offset)[0]
        self.at[name + " n_dims"] = (offset, "<I")
        self.at[name + " dim 0"] = (offset + 4, "<Q")
        self.at[name + " type"] = (offset + 4 + 8 * dims, "<I")
        self.at[name + " offset"] = (offset + 8 + 8 * dims, "<Q")
        return offset + 16 + 8 * dims


def start_to_end(model, folder):
    """Runs `epic serve` on a model that it must refuse. Returns its exit code and what it said."""
    command = [BINARY, "serve", "--model", str(model), "--data-dir", str(folder / "data")]
    for flag in ("--http", "--grpc", "--admin", "--admin-grpc"):
        command += [flag, "127.0.0.1:0"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


class ModelFilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="epic_model_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = self.folder / "model.gguf"
        shutil.copyfile(default_model(), self.model)

    def test_a_damaged_header_is_refused_by_name(self):
        with open(default_model(), "rb") as file:
            head = file.read(8 << 20)
        fields = GgufFields(head)
        first = "blk.0.attn_q.weight"
        cases = [  # field, what it becomes, a word of the message
            ("magic", b"GGML", "GGUF"), ("version", 77, "version"), ("tensor_count", HUGE, "tensor"),
            ("kv_count", HUGE, "metadata"), ("first key length", HUGE, "key"),
            ("general.architecture type", 99, "general.architecture"), ("llama.block_count", 513, "blk."),
            ("llama.block_count", 0, "block_count"), ("llama.embedding_length", 1 << 31, "llama."),
            ("llama.attention.head_count", 0, "head_count"), ("llama.rope.freq_base", 0x7fc00000, "freq_base"),
            ("tokenizer.ggml.tokens count", HUGE, "tokenizer.ggml.tokens"),
            ("tokenizer.ggml.tokens element type", 4, "metadata key"),
            ("tokenizer.ggml.merges element type", 9, "tokenizer.ggml.merges"),
            (first + " n_dims", 9, first), (first + " dim 0", HUGE, first), (first + " type", 99, first),
            (first + " offset", HUGE, first)]
        with open(self.model, "r+b") as file:
            for name, value, word in cases:
                with self.subTest(name, value=value):
                    offset, form = fields.at[name]
                    self.patch(file, offset, struct.pack(form, value))
                    code, said = start_to_end(self.model, self.folder)
                    self.patch(file, offset, head[offset:offset + struct.calcsize(form)])
                    self.assertEqual(code, 1, said)
                    self.assertIn(str(self.model), said)
                    self.assertIn(word, said)
        for size in (0, 3, 43, len(head), os.path.getsize(self.model) - 1):
            with self.subTest(size=size):
                os.truncate(self.model, size)
                code, said = start_to_end(self.model, self.folder)
                self.assertEqual(code, 1, said)
                self.assertIn(str(self.model), said)
                shutil.copyfile(default_model(), self.model)

    @staticmethod
    def patch(file, offset, data):
        file.seek(offset)
        file.write(data)
        file.flush()

    def test_a_file_that_changes_while_it_is_loaded_never_ends_the_server_by_a_signal(self):
        size = os.path.getsize(self.model)
        stop = threading.Event()

        def rewrite():
            while not stop.is_set():
                os.truncate(self.model, size // 2)
                stop.wait(0.01)
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(default_model(), self.model)
                stop.wait(0.02)

        writer = threading.Thread(target=rewrite)
        writer.start()
        try:
            for _ in range(4):
                server = EpicServer(BINARY, model=self.model)
                try:
                    server.start()
                    self.assertEqual(server.chat("Hello", max_tokens=2).status, 200)
                    self.assertEqual(server.stop(), 0)
                except RuntimeError:
                    self.assertEqual(server.process.returncode, 1, server.log_tail())
                    self.assertIn(str(self.model), server.log_tail())
                finally:
                    server.__exit__()
        finally:
            stop.set()
            writer.join()

    def test_a_server_goes_on_when_its_file_is_written_over_cut_and_removed(self):
        with EpicServer(BINARY, model=self.model) as server:
            context = server.create(words(60, 1)).json()
            parts = [{"type": "context", "id": context["id"]}, {"type": "text", "text": "What is counted?"}]

            def text():
                answer = server.chat(parts)
                self.assertEqual(answer.status, 200, answer)
                return answer.json()["choices"][0]["message"]["content"]

            before = text()
            with open(self.model, "r+b") as file:
                file.write(b"\xff" * os.path.getsize(self.model))
            self.assertEqual(text(), before)
            os.truncate(self.model, 0)
            self.assertEqual(text(), before)
            self.assertEqual(server.create(words(60, 2)).status, 201)
            os.unlink(self.model)
            self.assertEqual(text(), before)
            self.assertEqual(server.create(words(60, 3)).status, 201)
            self.assertEqual(server.get("/health").json()["status"], "ok")
            self.assertEqual(server.stop(), 0)

    def test_another_model_in_its_place_has_contexts_of_its_own(self):
        data = str(self.folder / "served")
        os.mkdir(data)
        question = {"type": "text", "text": "What is counted?"}

        def identity(server):
            return server.get("/v1/models").json()["data"][0]["identity"]

        with EpicServer(BINARY, data, model=self.model) as server:
            first = identity(server)
            old = server.create(words(60, 1)).json()
            answer = server.chat([{"type": "context", "id": old["id"]}, question]).json()["choices"]
        with open(self.model, "r+b") as file:  # one bit of one weight
            file.seek(-64, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-64, os.SEEK_END)
            file.write(bytes([byte ^ 1]))
        with EpicServer(BINARY, data, model=self.model) as server:
            self.assertNotEqual(identity(server), first)
            refused = server.chat([{"type": "context", "id": old["id"]}, question])
            self.assertEqual((refused.status, refused.json()["error"]["code"]), (409, "context_model_mismatch"))
            self.assertEqual(refused.headers.get("x-should-retry"), "false")
            self.assertEqual(server.get("/v1/contexts/" + old["id"]).status, 200)
            new = server.create(words(60, 1))
            self.assertEqual(new.status, 201)
            self.assertNotEqual(new.json()["id"], old["id"])
            listed = [record["id"] for record in server.get("/v1/contexts").json()["data"]]
            self.assertEqual(sorted(listed), sorted([old["id"], new.json()["id"]]))
        shutil.copyfile(default_model(), self.model)
        with EpicServer(BINARY, data, model=self.model) as server:
            self.assertEqual(identity(server), first)
            again = server.chat([{"type": "context", "id": old["id"]}, question])
            self.assertEqual(again.json()["choices"], answer)
            self.assertEqual(server.metrics()["epic_compile_tokens_total"], 0)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
