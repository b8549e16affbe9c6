#!/usr/bin/env python3
"""The comparison with llama.cpp: its parsing and arithmetic, and whole runs over stand-ins for both programs."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import rates  # noqa: E402

SHORT = ("--tests=prefill:512", "--llama-options=")
# Rates that depend on the settings, so that a wrong choice shows: 100, +20 with attention on, -50 without
# repacking, +5 with blocks of 256; 2048 tokens at half of it; decoding at 10. It dies
# where --repack is `crash`.
LLAMA = """#!{python}
import json, sys
a = sys.argv[1:]
of = lambda name, default: a[a.index(name) + 1] if name in a else default
p, n = int(of("-p", "0")), int(of("-n", "0"))
if {crash!r} == of("--repack", "1"):
    sys.stderr.write("no such instruction\\n")
    sys.exit(3)
rate = 100 + 20 * (of("-fa", "off") == "on") - 50 * (of("--repack", "1") == "0") + 5 * (of("-ub", "512") == "256")
if p == 2048:
    rate /= 2
if n:
    rate = 10
print("loading")
print(json.dumps(dict(n_prompt=p, n_gen=n, samples_ts=[rate], build_number=7, build_commit="abc")))
"""
EPIC = """#!{python}
import json, sys
print(json.dumps(dict(model="tiny", isa={isa!r})), flush=True)
for line in sys.stdin:
    kind, tokens = line.strip().split(":")
    rate = 9.5 if kind == "decode" else 500 if tokens == "512" else 150
    print(json.dumps(dict(command=line.strip(), seconds=1, tokens_per_second=rate)), flush=True)
"""


class ArithmeticTest(unittest.TestCase):
    def test_a_spread_is_the_median_and_both_ends(self):
        self.assertEqual(rates.spread([3.0, 9.0, 1.0]), {"median": 3.0, "min": 1.0, "max": 9.0})
        self.assertEqual(rates.spread([1.0, 2.0, 4.0, 9.0])["median"], 3.0)

    def test_a_ratio_is_taken_within_each_round(self):
        found = rates.compare([10.0, 30.0, 20.0], [5.0, 10.0, 20.0])
        self.assertEqual(found["ratio"], {"median": 2.0, "min": 1.0, "max": 3.0})
        self.assertEqual(found["ours"]["median"], 20.0)
        self.assertEqual(found["theirs"]["median"], 10.0)

    def test_rounds_that_do_not_match_are_refused(self):
        with self.assertRaises(ValueError):
            rates.compare([1.0, 2.0], [1.0])
        with self.assertRaises(ValueError):
            rates.compare([], [])

    def test_the_best_setting_is_the_fastest_that_ran(self):
        self.assertEqual(rates.best_of({"a": 1.0, "b": None, "c": 2.0}), "c")
        self.assertIsNone(rates.best_of({"a": None}))

    def test_bars_follow_the_cpu_and_the_format(self):
        self.assertEqual(rates.bar_of("prefill:512", "AVX-512 bf16", "same file"), 2.0)
        self.assertEqual(rates.bar_of("prefill:512", "AMX bf16", "same file"), 8.0)
        self.assertEqual(rates.bar_of("prefill:512", "AMX bf16", "F16"), 4.0)
        self.assertIsNone(rates.bar_of("prefill:512", "AVX2", "F16"))
        self.assertEqual(rates.bar_of("decode:64", "AMX bf16", "same file"), 0.9)
        self.assertIsNone(rates.bar_of("decode:64", "AMX bf16", "F16"))


class ParsingTest(unittest.TestCase):
    @staticmethod
    def line(**changed):
        return json.dumps({"n_prompt": 512, "n_gen": 0, "samples_ts": [177.5], **changed})

    def test_one_test_among_other_output(self):
        rate, record = rates.parse_llama_bench("loading\n" + self.line(build_commit="abc") + "\n", 512, 0)
        self.assertEqual(rate, 177.5)
        self.assertEqual(record["build_commit"], "abc")

    def test_another_test_than_asked_for_is_refused(self):
        for text in ("", self.line() + "\n" + self.line(), self.line(n_prompt=256), self.line(n_gen=1),
                     self.line(samples_ts=[]), self.line(samples_ts=[0.0]), self.line(samples_ts=[1.0, 2.0]), "{"):
            with self.assertRaises(rates.NotUsable, msg=text):
                rates.parse_llama_bench(text, 512, 0)

    def test_an_answer_of_ours_must_be_to_the_command(self):
        line = json.dumps({"command": "decode:64", "tokens_per_second": 94.0})
        self.assertEqual(rates.parse_epic(line, "decode:64"), 94.0)
        for wrong in ("", "{}", line.replace("94.0", "0"), line.replace("decode:64", "decode:6")):
            with self.assertRaises(rates.NotUsable, msg=wrong):
                rates.parse_epic(wrong, "decode:64")


class WholeRunTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        (self.path / "model.gguf").write_text("not read")

    def script(self, name, text, **values):
        path = self.path / name
        path.write_text(text.format(python=sys.executable, **values))
        path.chmod(0o755)
        return str(path)

    def compare(self, *arguments, isa="AVX-512", crash="never"):
        report = self.path / "report.json"
        done = subprocess.run(
            [sys.executable, str(HERE / "compare_llama_cpp.py"), "--llama-bench", self.script("llama", LLAMA, crash=crash),
             "--epic", self.script("epic", EPIC, isa=isa), "--model", str(self.path / "model.gguf"), "--threads", "2",
             "--repeats", "3", "--json", str(report), *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False)
        return done, json.loads(report.read_text()) if report.exists() else None

    def test_each_test_meets_llama_cpp_at_its_best(self):
        done, report = self.compare("--enforce")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = {row["test"]: row for row in report["results"]}
        self.assertEqual(rows["prefill:512"]["theirs"]["median"], 125.0)
        self.assertEqual(rows["prefill:512"]["llama_options"], "--repack 1 -fa on -ub 256")
        self.assertEqual(rows["prefill:512"]["ratio"], {"median": 4.0, "min": 4.0, "max": 4.0})
        self.assertEqual(rows["prefill:2048"]["ratio"]["median"], 2.4)
        self.assertEqual(rows["decode:64"]["ratio"]["median"], 0.95)
        self.assertTrue(all(row["met"] for row in rows.values()))
        self.assertEqual(report["llama_cpp"], "build 7 (abc)")

    def test_a_missed_bar_fails_when_it_is_enforced_only(self):
        self.assertEqual(self.compare("--enforce", *SHORT, isa="AMX bf16")[0].returncode, 1)
        done, report = self.compare(*SHORT, isa="AMX bf16")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("8 NOT met", done.stdout)
        self.assertFalse(report["results"][0]["met"])

    def test_a_setting_that_crashes_is_left_out_and_named(self):
        done, report = self.compare("--tests=prefill:512", crash="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--repack 0", report["results"][0]["llama_options"])
        self.assertEqual(report["results"][0]["theirs"]["median"], 75.0)
        self.assertIn("exit 3: no such instruction", done.stdout)

    def test_given_settings_are_taken_as_they_are(self):
        _, report = self.compare("--llama-options=-fa on --repack 0", "--tests=prefill:512")
        self.assertEqual(report["results"][0]["theirs"]["median"], 70.0)

    def test_what_is_missing_or_ends_early_is_said_without_a_report(self):
        done, report = self.compare("--model", str(self.path / "none.gguf"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no file", done.stderr)
        done, report = self.compare("--epic", self.script("ends", "#!/bin/sh\n"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("ended before it began", done.stderr)
        self.assertIsNone(report)

    def test_of_several_given_settings_the_fastest_counts(self):
        _, report = self.compare("--llama-options=-fa off", "--llama-options=-fa on", "--llama-options=--repack 0",
                                 "--tests=prefill:512")
        row = report["results"][0]
        self.assertEqual(row["llama_options"], "-fa on")
        self.assertEqual(row["theirs"]["median"], 120.0)
        self.assertEqual({key: value["median"] for key, value in row["others"].items()},
                         {"-fa off": 100.0, "--repack 0": 50.0})

    def test_settings_of_an_earlier_run_are_taken_for_its_tests(self):
        known = self.path / "known.json"
        known.write_text(json.dumps({"settings": {"prefill:512 same file": "-fa on -ub 64"}}))
        _, report = self.compare("--settings", str(known), "--tests=prefill:512")
        self.assertEqual(report["results"][0]["llama_options"], "-fa on -ub 64")

    def test_a_peer_that_does_not_run_at_all_is_a_failure(self):
        done, _ = self.compare("--llama-options=--repack 0", "--tests=prefill:512", crash="0")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
