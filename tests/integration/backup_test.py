#!/usr/bin/env python3
"""A node's store under the offline tools, as an operator uses them: serve, create, stop, check, back up, wipe, restore,
serve again, where the same contexts answer the same.

usage: backup_test.py path/of/epic [unittest arguments]
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from epic_server import EpicServer, words

BINARY = None
NAME = "harbour report"
TAG = "quarterly"


def digest(folder):
    """Of every file below it, by path."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            for path in sorted(pathlib.Path(folder).rglob("*"))}


class BackupTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="epic_test_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.store = os.path.join(folder.name, "store")
        self.backup = os.path.join(folder.name, "contexts.backup")

    def epic(self, *arguments, code=0):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EPIC_")}
        done = subprocess.run([BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120, env=environment, check=False)
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stdout}{done.stderr}")
        return done

    def json(self, *arguments, code=0):
        return json.loads(self.epic(*arguments, "--json", code=code).stdout)

    def serve_and_fill(self):
        """Leaves a stopped store with two contexts that were used and one that was deleted; their Cache IDs, and what
        the first answered."""
        with EpicServer(BINARY, data_dir=self.folder) as server:
            ids = [server.create(words(150, seed), name=NAME if seed == 1 else "", tags=[TAG]).json()["id"]
                   for seed in (1, 2, 3)]
            answer = self.ask(server, ids[0])
            self.assertEqual(server.request("DELETE", f"/v1/contexts/{ids[2]}").status, 200)
        return ids, answer

    def ask(self, server, context):
        chat = server.chat([{"type": "context", "id": context}, {"type": "text", "text": "What does it carry?"}])
        self.assertEqual(chat.status, 200, chat)
        return chat.json()["choices"][0]["message"]["content"]

    def test_contexts_survive_a_lost_disk_by_their_backup(self):
        ids, answer = self.serve_and_fill()
        before = digest(self.store)
        report = self.json("store", "check", self.store)
        self.assertTrue(report["sound"] and report["complete"] and report["deep"], report)
        self.assertEqual(report["faults"], [])
        self.assertGreaterEqual(report["counts"]["objects"], 2)
        self.assertEqual(report["counts"]["verified_bytes"], report["counts"]["object_bytes"])
        made = self.json("backup", "create", "--data-dir", self.store, self.backup)
        self.assertEqual(digest(self.store), before, "neither changes a byte")
        self.assertEqual(made["contexts"], report["counts"]["records"])
        self.assertEqual((made["gone"], os.stat(self.backup).st_mode & 0o777), (1, 0o600))
        self.assertTrue(self.json("backup", "verify", self.backup)["sound"])

        shutil.rmtree(self.store)
        restored = self.json("backup", "restore", self.backup, "--data-dir", self.store)
        self.assertEqual((restored["added"], restored["changed"]), (made["contexts"], 1))
        self.assertIn("sound", self.epic("store", "check", self.store).stdout)
        with EpicServer(BINARY, data_dir=self.folder) as server:
            self.assertEqual(server.get(f"/v1/contexts/{ids[0]}").json()["name"], NAME)
            self.assertEqual(self.ask(server, ids[0]), answer)
            self.assertEqual(server.get(f"/v1/contexts/{ids[1]}").json()["tags"], [TAG])
            gone = server.get(f"/v1/contexts/{ids[2]}")
            self.assertEqual((gone.status, gone.json()["error"]["code"]), (404, "context_deleted"))
            self.assertEqual(server.request("DELETE", f"/v1/contexts/{ids[1]}").status, 200)

        again = self.json("backup", "restore", self.backup, "--data-dir", self.store)
        self.assertEqual(again["stayed_gone"], 1, again)
        with EpicServer(BINARY, data_dir=self.folder) as server:
            self.assertEqual(server.get(f"/v1/contexts/{ids[1]}").json()["error"]["code"], "context_deleted")
            self.assertEqual(self.ask(server, ids[0]), answer)

    def test_a_dump_shows_no_text_unless_asked(self):
        ids, _ = self.serve_and_fill()
        dump = self.epic("store", "dump", self.store).stdout
        contexts = {context["id"]: context for context in map(json.loads, dump.splitlines())}
        self.assertEqual([contexts[context]["state"] for context in ids], ["ready", "ready", "deleted"])
        self.assertNotIn(NAME, dump)
        self.assertNotIn(TAG, dump)
        self.assertNotIn("token_ids", dump)
        first = contexts[ids[0]]
        self.assertEqual((first["tenant"], first["has_name"], first["tags"]), ("default", True, 1))
        self.assertEqual(first["objects"][0]["tokens"], first["tokens"])
        self.assertTrue(contexts[ids[2]]["tombstone"]["deleted"]["unix_ms"] > 0)
        one = self.json("store", "dump", self.store, "--id", ids[0], "--with-names", "--with-tokens")["contexts"]
        self.assertEqual([(context["name"], context["tag_names"]) for context in one], [(NAME, [TAG])])
        self.assertEqual(len(one[0]["token_ids"]), one[0]["tokens"])
        self.assertEqual(self.json("store", "dump", self.store, "--tenant", "nobody")["contexts"], [])

    def test_damage_is_named_and_objects_are_dropped(self):
        ids, answer = self.serve_and_fill()
        extents = pathlib.Path(self.store, "slabs/extents-000000.dat")
        where = json.loads(self.epic("store", "dump", self.store, "--id", ids[0]).stdout)["objects"][0]["where"]
        with extents.open("r+b") as file:
            file.seek(where[0]["page"] * 4096 + 1000)
            file.write(b"damage")
        report = self.json("store", "check", self.store, code=1)
        self.assertEqual([fault["kind"] for fault in report["faults"]], ["damaged_slabs"])
        self.assertIn(ids[0], bytes.fromhex(report["faults"][0]["key"]).decode(errors="replace"))
        self.assertIn("--repair", report["faults"][0]["what_to_do"])
        self.assertTrue(self.json("store", "check", self.store, "--no-deep")["sound"])
        mended = self.json("store", "check", self.store, "--repair")
        self.assertEqual((mended["dropped"], mended["sound"]), (1, True))
        self.assertEqual(mended["counts"]["records"], report["counts"]["records"])
        with EpicServer(BINARY, data_dir=self.folder) as server:
            self.assertEqual(self.ask(server, ids[0]), answer)

    def test_what_cannot_be_done_is_told_with_what_to_do(self):
        self.serve_and_fill()
        self.epic("backup", "create", self.backup, "--data-dir", self.store)
        cut = os.path.join(self.folder, "cut.backup")
        pathlib.Path(cut).write_bytes(pathlib.Path(self.backup).read_bytes()[:-1])
        for arguments, said in [
            (["store", "check", self.folder], "there is no store in"),
            (["store", "dump", os.path.join(self.folder, "none")], "there is no store in"),
            (["store", "dump", self.store, "--id", "what"], "Cache ID"),
            (["backup", "create", self.backup, "--data-dir", self.store], "--force"),
            (["backup", "verify", cut], "is cut off"),
            (["backup", "restore", cut, "--data-dir", self.store], "is cut off"),
            (["backup", "verify", self.store], "is not a file"),
        ]:
            with self.subTest(arguments):
                done = self.epic(*arguments, "--json", code=1)
                self.assertIn(said, done.stderr)
                self.assertEqual(done.stdout, "", "no document where nothing was done")
        self.epic("backup", "create", self.backup, "--data-dir", self.store, "--force")
        self.epic("backup", "create", code=2)
        with EpicServer(BINARY, data_dir=self.folder):
            for arguments in (["store", "check", self.store], ["store", "dump", self.store],
                              ["backup", "restore", self.backup, "--data-dir", self.store],
                              ["backup", "create", self.backup, "--data-dir", self.store, "--force"]):
                with self.subTest(arguments):
                    self.assertIn("another process uses", self.epic(*arguments, code=1).stderr)
        # A table file that ends the table library's process does not end the command without a word.
        tables = [path for path in pathlib.Path(self.store, "rocksdb").glob("*.sst")]
        for path in tables:
            data = bytearray(path.read_bytes())
            for at in range(len(data) // 2, len(data) - 60):
                data[at] ^= 0x5A
            path.write_bytes(data)
        self.assertIn("damaged", self.epic("store", "dump", self.store, code=1).stderr)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
