"""The source tree as the checks see it: every file of the project, with its text, and what a check reports."""

import dataclasses
import functools
import os
import pathlib
import subprocess

CPP_SUFFIXES = (".h", ".cc", ".cu", ".cuh")
CODE_SUFFIXES = CPP_SUFFIXES + (".py", ".sh", ".cmake", ".proto", ".js")
SKIPPED_FOLDERS = {".git", "build", "__pycache__", ".venv"}


@dataclasses.dataclass(frozen=True, order=True)
class Problem:
    path: str
    line: int  # 1-based; 0 is the whole file
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.message}"


class SourceFile:
    def __init__(self, root, path):
        self.path = path  # from the top of the tree, with slashes
        self.full = os.path.join(root, path)
        self.name = os.path.basename(path)
        self.is_cpp = path.endswith(CPP_SUFFIXES)
        self.is_header = path.endswith((".h", ".cuh"))
        stem = os.path.splitext(self.name)[0]
        parts = path.split("/")[:-1]
        self.is_test = stem.endswith(("_test", "_bench", "_fuzz", "_test_util", "_fixture")) or parts[:1] == ["tests"] or not {"testing", "golden"}.isdisjoint(parts)
        self.is_code = path.endswith(CODE_SUFFIXES) or self.name == "CMakeLists.txt"

    @functools.cached_property
    def data(self):
        return pathlib.Path(self.full).read_bytes()

    @functools.cached_property
    def is_text(self):
        return b"\0" not in self.data[:8192]

    @functools.cached_property
    def text(self):
        return self.data.decode("utf-8", "replace") if self.is_text else ""

    @functools.cached_property
    def lines(self):
        return self.text.split("\n")


class Tree:
    def __init__(self, root):
        self.root = root
        self.files = [SourceFile(root, path) for path in sorted(list_files(root))]
        self.by_path = {file.path: file for file in self.files}

    def folders(self):
        found = set()
        for file in self.files:
            parts = file.path.split("/")[:-1]
            found.update("/".join(parts[: i + 1]) for i in range(len(parts)))
        return found


def list_files(root):
    """Tracked files and untracked ones that git does not ignore; without git, all but build folders."""
    if os.path.exists(os.path.join(root, ".git")):
        command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, check=False)
        if listed.returncode == 0:
            paths = {os.fsdecode(path) for path in listed.stdout.split(b"\0") if path}
            return [path for path in paths if os.path.isfile(os.path.join(root, path))]
    paths = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        paths += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return paths
