"""`epic-loadgen quality` as a process: killed again and again it ends with the very file and report of a run that was
left alone; usage errors; one JSON document on stdout.

usage: loadgen_quality_test.py EPIC_LOADGEN WRITE_TINY_MODELS
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

LOADGEN, WRITE_TINY_MODELS = sys.argv[1:3]
QUESTIONS = 150
PATIENCE_S = 120


def write_questions(path):
    with open(path, "w", encoding="utf-8") as out:
        for i in range(QUESTIONS):
            out.write(json.dumps({"question": f"who is {i}", "answers": [f"number {i}"],
                                  "ctxs": [{"title": "", "text": f"Here is number {i}, a line of its own."}]}) + "\n")


def lines_of(path):
    try:
        with open(path, "rb") as file:
            return file.read().count(b"\n")
    except FileNotFoundError:
        return 0


class LoadgenQualityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        subprocess.run([WRITE_TINY_MODELS, cls.dir.name], check=True, stdout=subprocess.DEVNULL)
        cls.data = os.path.join(cls.dir.name, "questions.jsonl")
        write_questions(cls.data)

    @classmethod
    def tearDownClass(cls):
        cls.dir.cleanup()

    def command(self, results, *more):
        return [LOADGEN, "quality", "--model", os.path.join(self.dir.name, "llama"), "--dataset", self.data,
                "--strategies", "naive,legolink-4,legolink-0", "--chunks", "3", "--questions", str(QUESTIONS),
                "--max-tokens", "4", "--timing-repeats", "0", "--threads", "1", "--resume", results, "--json", *more]

    def run_to_end(self, results):
        done = subprocess.run(self.command(results), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def kill_after(self, results, lines):
        """Kills the run with SIGKILL once the file has so many lines; False when it ended before."""
        child = subprocess.Popen(self.command(results), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        try:
            while lines_of(results) < lines and child.poll() is None:
                self.assertLess(time.monotonic(), deadline, "the run does not get on")
                time.sleep(0.001)
        finally:
            child.kill()
            child.wait()
        return child.returncode == -9

    def test_killed_runs_go_on_to_the_same_file_and_report(self):
        whole = os.path.join(self.dir.name, "whole.jsonl")
        killed = os.path.join(self.dir.name, "killed.jsonl")
        expected = self.run_to_end(whole)
        kills = 0
        for lines in [2, 30, 31, 100, 250]:
            kills += self.kill_after(killed, lines)
        self.assertGreaterEqual(kills, 3, "runs ended before they could be killed")
        self.assertLess(lines_of(killed), lines_of(whole))
        report = self.run_to_end(killed)
        self.assertGreater(report["questions"]["resumed"], 0)
        self.assertEqual(report["strategies"], expected["strategies"])
        self.assertEqual(report["reference"], expected["reference"])
        with open(whole, "rb") as one, open(killed, "rb") as other:
            self.assertEqual(one.read(), other.read())

    def test_a_changed_option_is_refused_with_exit_code_1(self):
        results = os.path.join(self.dir.name, "options.jsonl")
        self.kill_after(results, 2)
        done = subprocess.run(self.command(results, "--seed", "9"), capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "")
        self.assertIn("seed 1, and this run has 9", done.stderr)

    def test_wrong_usage_is_exit_code_2(self):
        for arguments in [[], ["quality"], ["quality", "--nonsense"], ["sideways"]]:
            done = subprocess.run([LOADGEN, *arguments], capture_output=True, text=True, timeout=PATIENCE_S,
                                  check=False)
            self.assertEqual(done.returncode, 2, arguments)

    def test_a_bad_line_is_named(self):
        bad = os.path.join(self.dir.name, "bad.jsonl")
        with open(bad, "w", encoding="utf-8") as out:
            out.write(json.dumps({"question": "q", "answers": ["a"], "ctxs": [{"text": "t"}]}) + "\n{\"question\": \n")
        done = subprocess.run([LOADGEN, "quality", "--model", os.path.join(self.dir.name, "llama"), "--dataset", bad,
                               "--strategies", "naive", "--chunks", "1", "--questions", "2"],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("bad.jsonl line 2:", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
