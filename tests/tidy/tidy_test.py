#!/usr/bin/env python3
"""The tidy checks against small trees, each with one fault: every fault is found, and clean code passes."""

import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import cpp_text  # noqa: E402
import tidy  # noqa: E402

HEADER = """// What it is.
#ifndef EPIC_{guard}_H_
#define EPIC_{guard}_H_
{body}
#endif  // EPIC_{guard}_H_
"""


def header(path, body=""):
    return HEADER.format(guard=path[:-2].replace("/", "_").upper(), body=body)


class TreeTest(unittest.TestCase):
    """problems(files) runs all checks on a tree of these files and returns the lines it prints."""

    def problems(self, files, executable=(), build=None):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "wb") as out:
                    out.write(text if isinstance(text, bytes) else text.encode())
                os.chmod(full, 0o755 if path in executable else 0o644)
            if build is not None:
                os.makedirs(os.path.join(root, "build"))
                with open(os.path.join(root, "build", "headers.txt"), "w", encoding="utf-8") as out:
                    out.write("".join(f"epic_x|{root}/{path}\n" for path in build))
            _, found = tidy.run(root, os.path.join(root, "build") if build is not None else None)
            return [str(problem) for problem in found if "README.md" not in problem.path]

    def assert_finds(self, message, files, **arguments):
        found = self.problems(files, **arguments)
        self.assertEqual(len(found), 1, found)
        self.assertIn(message, found[0])

    def assert_clean(self, files, **arguments):
        self.assertEqual(self.problems(files, **arguments), [])


class IncludeTest(TreeTest):
    def source(self, path, include):
        return {path: f"#include {include}\n"}

    def test_arrows_against_the_direction_are_found(self):
        wrong = [
            ("common/base/x.cc", '"services/model/model.h"', "common knows no service"),
            ("common/base/x.cc", '"kernels/matmul/matmul.h"', "common knows no service"),
            ("common/base/x.cc", '"epic/v1/chat.pb.h"', "common knows no service"),
            ("common/transport/ucx/x.cc", '"common/rpc/rpc_call.h"', "only the path in common/transport/grpc/"),
            ("kernels/rope/x.cc", '"services/model/model.h"', "kernels know no service"),
            ("kernels/rope/x.cc", '"common/config/config.h"', "kernels know no service"),
            ("services/model/x.cc", '"services/engine/engine.h"', "below everything"),
            ("services/engine/x.cc", '"services/router/core/api.h"', "through an interface"),
            ("services/router/core/x.cc", '"services/router/rpc/convert.h"', "a core knows interfaces only"),
            ("services/router/core/x.cc", '"services/kv_store/core/rows.h"', "a core knows interfaces only"),
            ("services/router/core/x.cc", '"kernels/api/dtype.h"', "a core knows interfaces only"),
            ("services/router/rpc/x.cc", '"services/router/http/door.h"', "let the core do it"),
            ("services/router/http/x.cc", '"services/router/rpc/door.h"', "let the core do it"),
            ("services/router/http/x.cc", '"services/engine/engine.h"', "let the core do it"),
            ("services/kv_store/main.cc", '"services/router/core/api.h"', "services talk by proto"),
            ("loadgen/x.cc", '"services/router/core/api.h"', "use the doors"),
            ("common/base/x.cc", '"common/testing/paths.h"', "for tests only"),
            ("common/base/x.cc", '"clock.h"', "from the top of the project"),
        ]
        for path, include, message in wrong:
            with self.subTest(path=path, include=include):
                self.assert_finds(message, self.source(path, include))

    def test_arrows_in_the_direction_pass(self):
        for path, include in [
            ("common/rpc/x.cc", '"epic/v1/chat.pb.h"'),
            ("common/transport/grpc/x.cc", '"common/rpc/rpc_call.h"'),
            ("kernels/rope/x.cc", '"common/base/check.h"'),
            ("services/engine/x.cc", '"kernels/rope/rope.h"'),
            ("services/router/core/x.cc", '"services/worker_api/linker.h"'),
            ("services/router/rpc/x.cc", '"services/router/core/api.h"'),
            ("services/node/x.cc", '"services/kv_store/core/rows.h"'),
            ("services/router/core/x_test.cc", '"services/kv_store/core/rows.h"'),
            ("common/base/x.cc", '"absl/status/status.h"'),
        ]:
            with self.subTest(path=path, include=include):
                self.assert_clean(self.source(path, include))

    def test_third_party_headers_stay_where_they_belong(self):
        for path, include, message in [
            ("services/router/core/x.cc", "<grpcpp/grpcpp.h>", "gRPC"),
            ("services/router/core/x.cc", "<google/protobuf/message.h>", "protobuf"),
            ("services/kv_store/core/x.cc", "<rocksdb/db.h>", "RocksDB"),
            ("services/kv_store/core/x.cc", "<ucp/api/ucp.h>", "UCX"),
            ("services/link_worker/core/x.cc", "<cuda_runtime.h>", "CUDA"),
            ("services/engine/x.cc", "<dnnl.h>", "oneDNN"),
            ("services/router/core/x.cc", "<boost/asio.hpp>", "Boost"),
            ("services/router/core/x.cc", "<prometheus/counter.h>", "prometheus-cpp"),
            ("common/base/x.cc", "<spdlog/spdlog.h>", "spdlog"),
            ("common/base/x.cc", "<gtest/gtest.h>", "GoogleTest"),
        ]:
            with self.subTest(path=path, include=include):
                self.assert_finds(message, self.source(path, include))
        self.assert_clean(self.source("services/kv_store/rocksdb/x.cc", "<rocksdb/db.h>"))
        self.assert_clean(self.source("services/router/http/x.cc", "<boost/asio.hpp>"))

    def test_an_include_in_a_comment_does_not_count(self):
        self.assert_clean({"common/base/x.cc": '// #include "services/model/model.h"\n'})


class WordTest(TreeTest):
    def test_words_that_must_not_stand_in_the_tree(self):
        wrong = [
            ("a.cc", "// TO" + "DO: later\n", "left-over"),
            ("a.py", "x = 1  # FIX" + "ME\n", "left-over"),
            ("a.cc", "using namespace std;\n", "using namespace std"),
            ("a.h", header("a.h", "using namespace foo;"), "in a header"),
            ("a.cc", "class A {\n  friend class ATest;\n};\n", "friend for tests"),
            ("a.cc", "void SetClockFor" + "Test();\n", "hook for tests"),
            ("a.cc", 'const char* x = getenv("A");\n', "add a setting"),
            ("a.cc", "void F() { assert(true); }\n", "EPIC_CHECK"),
            ("a_test.cc", "void F() { std::this_thread::sleep_for(x); }\n", "inject a Clock"),
            ("services/x/core/a.cc", "void F() { usleep(1); }\n", "inject a Clock"),
            ("a.md", "see /wo" + "rk/main\n", "one machine"),
            ("a.md", "from pypi." + "org\n", "registry"),
            ("a.cc", "#ifdef HAVE_THING\n#endif\n", "preprocessor conditional"),
            ("a.cc", "// --- reading\n  // " + "-" * 40 + "\nint a;\n", "decoration"),
            ("a.cc", "int a; \n", "white space"),
            ("a.cc", "int a;", "one line break"),
        ]
        for path, text, message in wrong:
            with self.subTest(path=path, text=text):
                found = self.problems({path: text})
                self.assertTrue(found and all(message in line for line in found), found)

    def test_the_same_words_in_literals_comments_or_the_right_folder_pass(self):
        self.assert_clean({"a.cc": '// getenv("A") is not called here\nconst char* x = "sleep_for(1)";\n'})
        self.assert_clean({"common/config/a.cc": 'const char* x = getenv("A");\n'})
        self.assert_clean({"kernels/x/a.cc": "#if HWY_ONCE\n#endif\n"})
        self.assert_clean({"a.cc": "static_assert(true);\n"})
        self.assert_clean({"a.cc": "void F() { hwy::SetTargetsFor" + "Test(0); }\n"})
        self.assert_clean({"a.sh": "mktemp -d /tmp/epic_XX" + "XXXX\nls ../place/\n"})


class SizeTest(TreeTest):
    def function(self, lines):
        return "int F(int a,\n      int b) {\n" + "  a += 1;\n" * (lines - 4) + "  return a;\n}\n"

    def test_long_files_and_functions(self):
        self.assert_clean({"a.cc": self.function(70)})
        self.assert_finds("F has 71 lines", {"a.cc": self.function(71)})
        self.assert_clean({"a.py": "x = 1\n" * 800})
        self.assert_finds("801 lines", {"a.py": "x = 1\n" * 801})

    def test_blobs(self):
        self.assert_clean({"a.bin": b"\0" * (256 * 1024)})
        self.assert_finds("over 256 KiB", {"a.bin": b"\0" * (256 * 1024 + 1)})
        self.assert_finds("nothing over 1 MiB", {"a.bin": b"\0" * (1024 * 1024 + 1)})


class HeaderTest(TreeTest):
    def test_guards_and_openings(self):
        self.assert_clean({"common/a/b.h": header("common/a/b.h")})
        self.assert_finds("must be EPIC_COMMON_A_B_H_", {"common/a/b.h": header("common/a/c.h")})
        self.assert_finds("a header opens with", {"a.h": header("a.h").split("\n", 1)[1]})

    def test_a_source_includes_its_own_header_first(self):
        files = {"common/a.h": header("common/a.h")}
        self.assert_clean(files | {"common/a.cc": '// x\n#include "common/a.h"\n#include <string>\n'})
        self.assert_finds("first", files | {"common/a.cc": '#include <string>\n#include "common/a.h"\n'})

    def test_every_header_is_in_a_library(self):
        files = {"common/a.h": header("common/a.h"), "common/b.h": header("common/b.h")}
        self.assert_clean(files, build=["common/a.h", "common/b.h"])
        self.assert_finds("common/b.h", files, build=["common/a.h"])


class ScriptTest(TreeTest):
    GOOD = "#!/usr/bin/env bash\nset -euo pipefail\necho hello\n"

    def test_scripts(self):
        self.assert_clean({"a.sh": self.GOOD}, executable=["a.sh"])
        self.assert_finds("not executable", {"a.sh": self.GOOD})
        self.assert_finds("no script", {"a.cc": "int a;\n"}, executable=["a.cc"])
        self.assert_finds("bash -n", {"a.sh": self.GOOD + "if\n"}, executable=["a.sh"])
        self.assert_finds("pipefail", {"a.sh": "#!/usr/bin/env bash\necho\n"}, executable=["a.sh"])
        self.assert_finds("not Python", {"a.py": "def\n"})


class ReadmeTest(unittest.TestCase):
    def test_a_folder_that_no_table_names_is_found(self):
        with tempfile.TemporaryDirectory() as root:
            for folder in ["common/base", "common/log"]:
                os.makedirs(os.path.join(root, folder))
                with open(os.path.join(root, folder, "README.md"), "w", encoding="utf-8") as out:
                    out.write("x\n")
            with open(os.path.join(root, "README.md"), "w", encoding="utf-8") as out:
                out.write("| `common/` | shared |\n")
            with open(os.path.join(root, "common/README.md"), "w", encoding="utf-8") as out:
                out.write("| `base` | basics; `log` too |\n")
            _, found = tidy.run(root)
        self.assertEqual([str(problem) for problem in found],
                         ["common/README.md:0: no row of a table names the folder `log`"])


class FunctionTest(unittest.TestCase):
    def names(self, text):
        return [(function.name, function.length) for function in cpp_text.functions(text)]

    def test_functions_of_every_shape_are_measured(self):
        self.assertEqual(self.names("void F() {\n}\n"), [("F", 2)])
        self.assertEqual(self.names("namespace a {\nclass B : public C {\n public:\n  int F() const {\n    return 1;\n"
                                    "  }\n  int x_ = 0;\n};\n}\n"), [("F", 3)])
        self.assertEqual(self.names("A::A(int b)\n    : b_(b), c_{1} {\n  G();\n}\n"), [("A::A", 4)])
        self.assertEqual(self.names("TEST(FooTest, Bar) {\n  if (x) {\n    y();\n  }\n}\n"), [("TEST", 5)])
        self.assertEqual(self.names("auto F() -> std::vector<int> {\n  return {};\n}\n"), [("F", 3)])
        self.assertEqual(self.names("constexpr int kTable[] = {\n  F(1),\n  F(2),\n};\n"), [])
        self.assertEqual(self.names('void F() {\n  x("}{");  // }\n  auto g = [](int a) {\n    return a;\n  };\n}\n'),
                         [("F", 6)])
        self.assertEqual(self.names("constexpr std::array kTable = {\n    S{.f = +[](C& c) -> T {\n      return x;\n"
                                    "    }},\n};\nint F() {\n  return 0;\n}\n"), [("F", 3)])


class BlankTest(unittest.TestCase):
    def test_comments_and_literals_become_spaces_and_lines_stay(self):
        self.assertEqual(cpp_text.blank('a /* b\nc */ d // e\nf'), "a     \n     d     \nf")
        self.assertEqual(cpp_text.blank(r'x = "a\"b"; y'), r'x = "    "; y')
        self.assertNotIn("secret", cpp_text.blank('R"(secret " // )" "x"'))
        self.assertIn("1'000'000", cpp_text.blank("int a = 1'000'000;"))
        self.assertNotIn("{", cpp_text.blank("case '{': "))


if __name__ == "__main__":
    unittest.main()
