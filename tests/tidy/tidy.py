#!/usr/bin/env python3
"""Checks the source tree: directions of includes, forbidden words, sizes, guards, scripts, READMEs, formatting.

usage: tidy.py [--root DIR] [--build DIR]
Prints path:line: what is wrong and what to do, one a line, and exits with 1 if there is any. With --build, headers
are also compared with the list that CMake wrote there. What each rule means is said beside it, in include_rules.py
and file_rules.py.
"""

import argparse
import os
import sys

sys.dont_write_bytecode = True

import file_rules  # noqa: E402
import include_rules  # noqa: E402
from tree import Tree  # noqa: E402

CHECKS = [
    include_rules.check,
    file_rules.check_words,
    file_rules.check_cpp_words,
    file_rules.check_conditionals,
    file_rules.check_sizes,
    file_rules.check_headers,
    file_rules.check_text_form,
    file_rules.check_scripts,
    file_rules.check_readmes,
    file_rules.check_format,
]


def run(root, build_dir=None):
    tree = Tree(root)
    problems = [problem for check in CHECKS for problem in check(tree)]
    if build_dir:
        problems += file_rules.check_headers_are_registered(tree, build_dir)
    return tree, sorted(problems)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description="Checks the source tree.")
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(here)))
    parser.add_argument("--build", default=None)
    arguments = parser.parse_args()
    tree, problems = run(os.path.abspath(arguments.root), arguments.build)
    for problem in problems:
        print(problem)
    print(f"{len(tree.files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
