"""Checks of single files: words, sizes, guards, scripts, formatting."""

import os
import re
import shutil
import subprocess

import cpp_text
from tree import Problem

LINES_LIMIT = 800
FUNCTION_LINES_LIMIT = 70
BLOB_LIMIT = 256 * 1024
BLOB_MAXIMUM = 1024 * 1024

# "path:function" -> why it may be longer. Tables belong here, logic does not.
LONG_FUNCTIONS = {
    "common/metrics/metric_table.cc:MakeTable": "the one table of metrics",
}
# Path -> why it may be over 256 KiB: golden files only.
LARGE_FILES = {}
# Path -> why it may have preprocessor conditionals besides its include guard (kernels/ may: Highway needs them).
CONDITIONALS = {}

# Built from parts, so that this file passes its own check.
LEFT_OVERS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"]) + r")\b")
MACHINE_PATHS = re.compile(r"(?:^|[^A-Za-z0-9_.])/(?:work|farm)/")
REGISTRY_HOSTS = re.compile(r"\b(?:pypi|pythonhosted|debian|npmjs|crates)\.(?:org|com|io)\b")


def _each_line(file, text, pattern, message):
    return [Problem(file.path, number, message) for number, line in enumerate(text.split("\n"), 1)
            if pattern.search(line)]


def check_words(tree):
    problems = []
    for file in tree.files:
        if not file.is_text:
            continue
        if file.is_code:
            problems += _each_line(file, file.text, LEFT_OVERS, "a left-over note: do it or file it as an issue")
        problems += _each_line(file, file.text, MACHINE_PATHS, "a path of one machine")
        problems += _each_line(file, file.text, REGISTRY_HOSTS, "a package registry's host: name the package instead")
    return problems


CPP_WORDS = [
    (re.compile(r"\busing\s+namespace\s+std\b"), lambda file: True, "`using namespace std`: name what you use"),
    (re.compile(r"\busing\s+namespace\b"), lambda file: file.is_header, "`using namespace` in a header"),
    (re.compile(r"\bFRIEND_TEST\b|\bfriend\s+class\s+\w*Test\w*\b"), lambda file: True,
     "a friend for tests: test through the interface"),
    (re.compile(r"(?<!hwy::)\b\w+For" + r"Test(ing|s)?\b"), lambda file: True, "a hook for tests: inject what differs instead"),
    (re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b"),
     lambda file: not file.path.startswith(("common/config/", "common/testing/")),
     "the environment is read by common/config alone: add a setting"),
    (re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|SleepFor)\b|\bsleep\s*\("),
     lambda file: file.name.endswith("_test.cc") or "/core/" in file.path,
     "a sleep in a test or in a core: inject a Clock, or wait for the event"),
    (re.compile(r"\bassert\s*\("), lambda file: True, "assert() is off in release: use EPIC_CHECK"),
]


DECORATION = re.compile(r"^\s*//\s*[-=*~#]{4,}\s*$")


def check_cpp_words(tree):
    problems = []
    for file in tree.files:
        if not file.is_cpp:
            continue
        problems += _each_line(file, file.text, DECORATION, "a line of decoration: say it by structure, or leave it out")
        code = cpp_text.blank(file.text)
        for pattern, applies, message in CPP_WORDS:
            if applies(file):
                problems += _each_line(file, code, pattern, message)
    return problems


def check_conditionals(tree):
    """No back-ends by #ifdef: outside of kernels/ the only conditional is the include guard."""
    problems = []
    for file in tree.files:
        if not file.is_cpp or file.path.startswith("kernels/") or file.path in CONDITIONALS:
            continue
        code = cpp_text.blank(file.text)
        for number, line in enumerate(code.split("\n"), 1):
            match = re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b\s*(\w*)", line)
            if match and not (match.group(1) == "ifndef" and match.group(2).endswith("_H_")):
                problems.append(Problem(file.path, number, "a preprocessor conditional: choose at link or run time"))
    return problems


def check_sizes(tree):
    problems = []
    for file in tree.files:
        size = len(file.data)
        if size > BLOB_MAXIMUM:
            problems.append(Problem(file.path, 0, f"{size} bytes: nothing over 1 MiB"))
        elif size > BLOB_LIMIT and file.path not in LARGE_FILES:
            problems.append(Problem(file.path, 0, f"{size} bytes: over 256 KiB, and not in LARGE_FILES"))
        if not file.is_code:
            continue
        if file.text.count("\n") > LINES_LIMIT:
            problems.append(Problem(file.path, 0, f"{file.text.count(chr(10))} lines: split it (limit {LINES_LIMIT})"))
        if not file.is_cpp:
            continue
        for function in cpp_text.functions(file.text):
            if function.length > FUNCTION_LINES_LIMIT and f"{file.path}:{function.name}" not in LONG_FUNCTIONS:
                problems.append(Problem(file.path, function.line, f"{function.name} has {function.length} lines: "
                                        f"split it (limit {FUNCTION_LINES_LIMIT})"))
    return problems


def check_headers(tree):
    """Guards equal the path; a source includes its own header first, which proves that the header stands alone."""
    problems = []
    for file in tree.files:
        if file.is_header:
            guard = "EPIC_" + re.sub(r"[^A-Za-z0-9]", "_", file.path).upper() + "_"
            # Highway includes -inl.h once per target: their guard toggles.
            opening = f"#ifdef {guard}\n" if file.name.endswith("-inl.h") else f"#ifndef {guard}\n#define {guard}\n"
            if opening not in file.text:
                problems.append(Problem(file.path, 1, f"the include guard must be {guard}"))
            if not file.text.startswith("//"):
                problems.append(Problem(file.path, 1, "a header opens with what it is, who owns it, which threads"))
        elif file.is_cpp:
            own = os.path.splitext(file.path)[0] + ".h"
            included = cpp_text.includes(file.text)
            if own in tree.by_path and (not included or included[0][1] != own):
                problems.append(Problem(file.path, 1, f'include "{own}" first: that proves that it compiles alone'))
    return problems


def check_headers_are_registered(tree, build_dir):
    """headers.txt has a line target|header for every header of a library (CMake writes it)."""
    listed = os.path.join(build_dir, "headers.txt")
    if not os.path.exists(listed):
        return [Problem("CMakeLists.txt", 0, f"{listed} is missing: configure the build first")]
    with open(listed, encoding="utf-8") as lines:
        known = {os.path.relpath(line.strip().split("|", 1)[1], tree.root) for line in lines if "|" in line}
    return [Problem(file.path, 0, "no epic_cc_library names this header in HDRS") for file in tree.files
            if file.is_header and file.path not in known]


def check_text_form(tree):
    problems = []
    for file in tree.files:
        if not file.is_code or not file.text:
            continue
        problems += _each_line(file, file.text, re.compile(r"[ \t]+$"), "white space at the end of the line")
        if not file.text.endswith("\n") or file.text.endswith("\n\n"):
            problems.append(Problem(file.path, len(file.lines), "a file ends with exactly one line break"))
    return problems


def check_scripts(tree):
    problems = []
    for file in tree.files:
        if not file.is_text:
            continue
        first = file.lines[0]
        is_executable = os.access(file.full, os.X_OK)
        if is_executable != first.startswith("#!"):
            wanted = "is not executable, but has a #! line" if first.startswith("#!") else "is executable, but no script"
            problems.append(Problem(file.path, 1, wanted))
        if file.path.endswith(".sh") or re.match(r"#!.*\bbash\b", first):
            done = subprocess.run(["bash", "-n", file.full], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                problems.append(Problem(file.path, 0, "bash -n: " + done.stderr.strip().split("\n")[0]))
            if "set -euo pipefail" not in file.text and is_executable:
                problems.append(Problem(file.path, 1, "a script says set -euo pipefail"))
        elif file.path.endswith(".py"):
            try:
                compile(file.text, file.path, "exec")
            except SyntaxError as error:
                problems.append(Problem(file.path, error.lineno or 0, f"not Python: {error.msg}"))
    return problems


def check_readmes(tree):
    """The README of each of these folders has a table that names every folder below it."""
    problems = []
    folders = tree.folders()
    for top in ["", "common", "services", "kernels", "tests", "proto"]:
        below = sorted(folder[len(top):].lstrip("/") for folder in folders
                       if os.path.dirname(folder) == top and not os.path.basename(folder).startswith("."))
        readme = os.path.join(top, "README.md") if top else "README.md"
        if not below or (top and top not in folders):
            continue
        if readme not in tree.by_path:
            problems.append(Problem(readme, 0, "is missing: a folder has a README with a table of what is in it"))
            continue
        rows = re.findall(r"^\|\s*`([^`]+)`", tree.by_path[readme].text, re.MULTILINE)
        named = {row.rstrip("/").removeprefix(top + "/") for row in rows}
        problems += [Problem(readme, 0, f"no row of a table names the folder `{folder}`") for folder in below
                     if not any(name == folder or name.startswith(folder + "/") for name in named)]
    return problems


def check_format(tree):
    """clang-format, where it is installed."""
    tool = shutil.which("clang-format")
    files = [file.full for file in tree.files if file.is_cpp]
    if not tool or not files or ".clang-format" not in tree.by_path:
        return []
    done = subprocess.run([tool, "--dry-run", "-Werror", "--style=file", *files], capture_output=True, text=True,
                          check=False, cwd=tree.root)
    problems = {}
    for path, line in re.findall(r"^(\S+?):(\d+):\d+: error: ", done.stderr, re.MULTILINE):
        problems.setdefault(path, Problem(os.path.relpath(path, tree.root), int(line), "run clang-format -i on it"))
    return list(problems.values())
