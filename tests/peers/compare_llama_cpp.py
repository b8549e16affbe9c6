#!/usr/bin/env python3
"""Prefill and decode rates of EPIC's engine beside llama.cpp's, on one model file, measured in turn in one run.

llama.cpp runs at the best of its settings that run here: found first, for each test, or given by --llama-options; of
several that are given each runs in every round, and the one with the highest median counts.
With --llama-quantize it also runs the same weights in other formats, made from the file.

  compare_llama_cpp.py --llama-bench PATH --epic build/release/bin/epic_engine_rates_bench --model FILE
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import rates  # noqa: E402

# One after another: each choice is kept when it is faster than what was best before.
SETTINGS = [("--repack", ("1", "0")), ("-fa", ("off", "on")), ("-ub", ("512", "256", "128", "2048"))]
SECONDS = 280


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", required=True, help="llama.cpp's llama-bench")
    parser.add_argument("--llama-quantize", help="llama.cpp's llama-quantize: also compare with other formats")
    parser.add_argument("--formats", default="Q8_0,F16,BF16", help="which (default %(default)s)")
    parser.add_argument("--llama-options", action="append",
                        help="settings of llama-bench, in place of a search for the best; may be repeated")
    parser.add_argument("--settings", help="a report of an earlier run: take the settings that it found")
    parser.add_argument("--llama-version", default="", help="what to report where llama-bench does not know")
    parser.add_argument("--epic", required=True, help="epic_engine_rates_bench")
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tests", default="prefill:512,prefill:2048,decode:64")
    parser.add_argument("--tune-only", action="store_true", help="find llama.cpp's best settings, and stop")
    parser.add_argument("--json", help="write the report to this file too")
    parser.add_argument("--enforce", action="store_true", help="exit with 1 when a bar is missed")
    return parser.parse_args()


class Llama:
    """llama.cpp with one model file."""

    def __init__(self, options, path):
        self.options = options
        self.path = str(path)
        self.version = options.llama_version
        self.failures = {}

    def rate(self, test, settings, warm_up=True):
        """Tokens per second, or None where llama.cpp does not run like this."""
        kind, tokens = test.split(":")
        prompt, generate = (int(tokens), 0) if kind == "prefill" else (0, int(tokens))
        command = [self.options.llama_bench, "-m", self.path, "-t", str(self.options.threads), "-p", str(prompt),
                   "-n", str(generate), "-r", "1", "-o", "jsonl",
                   *([] if warm_up else ["--no-warmup"]), *settings]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS,
                              check=False)
        if done.returncode != 0:
            ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit {done.returncode}"
            last = done.stderr.strip().splitlines()[-1:] or [""]
            self.failures[" ".join(settings)] = f"{ended}: {last[0]}"
            return None
        rate, record = rates.parse_llama_bench(done.stdout, prompt, generate)
        if not self.version:
            self.version = f"build {record.get('build_number')} ({record.get('build_commit')})"
        return rate

    def candidates(self, name, test):
        """The settings to compare with."""
        if self.options.llama_options is not None:
            return self.options.llama_options
        if self.options.settings:
            known = json.loads(pathlib.Path(self.options.settings).read_text())["settings"]
            if f"{test} {name}" in known:
                return [known[f"{test} {name}"]]
        return [self.tune(test)]

    def tune(self, test):
        """The fastest settings for a test."""
        chosen = []
        for flag, values in SETTINGS:
            found = {value: self.rate(test, [*chosen, flag, value], warm_up=False) for value in values}
            best = rates.best_of(found)
            if best is not None:
                chosen += [flag, best]
            print(f"  {test}: {' '.join(chosen)}  of {flag} {found}", file=sys.stderr)
        return " ".join(chosen)


class Epic:
    """The engine's bench, which loads the model once and measures what it is told."""

    def __init__(self, options):
        self.process = subprocess.Popen(
            [options.epic, "--model", options.model, "--threads", str(options.threads), "--json", "-"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about = json.loads(self.process.stdout.readline() or "null")
        if self.about is None:
            raise rates.NotUsable("epic_engine_rates_bench ended before it began")

    def rate(self, test):
        self.process.stdin.write(test + "\n")
        self.process.stdin.flush()
        return rates.parse_epic(self.process.stdout.readline(), test)

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=SECONDS)


def other_formats(options, folder):
    """{format: file} of the same weights, as far as llama-quantize makes them."""
    files = {}
    for name in options.formats.split(",") if options.llama_quantize else []:
        path = pathlib.Path(folder) / f"{name}.gguf"
        done = subprocess.run([options.llama_quantize, "--allow-requantize", options.model, str(path), name],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode == 0:
            files[name] = path
        else:
            print(f"llama-quantize makes no {name}: exit {done.returncode}", file=sys.stderr)
    return files


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def measure(options, epic, llamas, tests):
    """Rounds of everything in turn: ours by test, llama.cpp's by test and format: {settings: rates}."""
    settings = {(test, name): llama.candidates(name, test) for name, llama in llamas.items() for test in tests}
    ours = {test: [] for test in tests}
    theirs = {key: {setting: [] for setting in candidates} for key, candidates in settings.items()}
    for test in tests if not options.tune_only else []:
        epic.rate(test)  # a warm-up; llama-bench makes its own
        for _ in range(options.repeats):
            ours[test].append(epic.rate(test))
            for name, llama in llamas.items():
                for setting, found in theirs[test, name].items():
                    rate = llama.rate(test, setting.split())
                    if rate is not None:
                        found.append(rate)
    return ours, theirs


def report(options, epic, llamas, ours, theirs):
    rows = []
    settings = {}
    for (test, name), found in theirs.items():
        whole = {setting: values for setting, values in found.items() if len(values) == options.repeats}
        best = rates.best_of({setting: rates.spread(values)["median"] for setting, values in whole.items()})
        settings[f"{test} {name}"] = best if best is not None else next(iter(found))
        if best is not None:
            row = {"test": test, "format": name, "llama_options": best,
                   "others": {setting: rates.spread(values) for setting, values in whole.items() if setting != best},
                   "bar": rates.bar_of(test, epic.about["isa"], name), **rates.compare(ours[test], whole[best])}
            row["met"] = row["bar"] is None or row["ratio"]["median"] >= row["bar"]
            rows.append(row)
    rows.sort(key=lambda row: (list(ours).index(row["test"]), row["format"] != "same file"))
    return {"cpu": cpu_model(), "isa": epic.about["isa"], "threads": options.threads, "repeats": options.repeats,
            "model": epic.about["model"], "epic": epic.about, "llama_cpp": llamas["same file"].version,
            "not_run": {name: llama.failures for name, llama in llamas.items() if llama.failures},
            "settings": settings,
            "results": rows}


def main():
    options = parse_arguments()
    for path in filter(None, (options.llama_bench, options.llama_quantize, options.epic, options.model)):
        if not pathlib.Path(path).is_file():
            print(f"compare_llama_cpp.py: there is no file {path}", file=sys.stderr)
            return 2
    try:
        return compare(options)
    except (rates.NotUsable, subprocess.TimeoutExpired) as error:
        print(f"compare_llama_cpp.py: {error}", file=sys.stderr)
        return 1


def compare(options):
    tests = options.tests.split(",")
    with tempfile.TemporaryDirectory() as folder:
        llamas = {"same file": Llama(options, options.model)}
        for name, path in other_formats(options, folder).items():
            llamas[name] = Llama(options, path)
        epic = Epic(options)
        ours, theirs = measure(options, epic, llamas, tests)
        epic.close()
    found = report(options, epic, llamas, ours, theirs)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['cpu']}, {found['isa']}, {found['threads']} threads, {found['model']}, "
          f"llama.cpp {found['llama_cpp']}, {found['repeats']} rounds in turn")
    for name, value in found["settings"].items():
        print(f"  llama.cpp, {name}: {value or 'as it comes'}")
    for name, failures in found["not_run"].items():
        for setting, why in failures.items():
            print(f"  llama.cpp, {name}: does not run with {setting}: {why}")
    print(rates.table(found["results"]))
    ran = options.tune_only or len(found["results"]) >= len(tests)
    if not ran or (options.enforce and not all(row["met"] for row in found["results"])):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
