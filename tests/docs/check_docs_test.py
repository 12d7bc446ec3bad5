#!/usr/bin/env python3
"""Tests of check_docs.py: what it finds in blocks that are not run."""

import pathlib
import tempfile
import types
import unittest

import check_docs

ROOT = pathlib.Path(__file__).resolve().parents[2]


class BlocksThatAreNotRun(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        program = self.path / "penstock"
        program.write_text('#!/bin/sh\n[ "$1" = launch ] && echo "  -n,--ranks N  --hosts LIST"\n', encoding="utf-8")
        program.chmod(0o755)
        self.checker = check_docs.Checker(
            types.SimpleNamespace(root=ROOT, compile_command=[], run_flags=[], program=program, examples=[])
        )

    def finding(self, fence, block):
        page = types.SimpleNamespace(name="page.md", text=f"```{fence}\n{block}\n```\n")
        (found,) = check_docs.Page.blocks(page)
        return self.checker.finding_in(page, found, None, self.path)

    def test_unknown_kinds(self):
        self.assertIn("page.md:1: nothing checks a block of the kind 'yaml'", self.finding("yaml", "a: b"))
        self.assertIn("nothing checks a block of the kind 'json'", self.finding("json", "{}"))
        self.assertIsNone(self.finding("text", "a -> b"))

    def test_commands(self):
        self.assertIsNone(self.finding("sh", "penstock launch -n 4 --hosts a,b -- ./train --any"))
        self.assertIn("penstock launch has no option --host", self.finding("sh", "penstock launch --host a"))
        self.assertIn("has no option --node", self.finding("", "srun bash -c \\\n 'penstock launch --node 2 -- ./a'"))
        self.assertIn("there is no command: penstock lunch", self.finding("sh", "penstock lunch"))
        self.assertIsNone(self.finding("", "make test   # all of them"))
        self.assertIn("make has no target tset", self.finding("", "make tset"))
        self.assertIn("no CMakeLists.txt in nowhere", self.finding("sh", "cmake -S nowhere -B build"))
        self.assertIn("it is not known how to check", self.finding("", "a -> b"))

    def test_cmake(self):
        self.assertIsNone(self.finding("cmake", "target_link_libraries(my_program PRIVATE penstock::run)  # all"))
        self.assertIn("neither an example nor a test", self.finding("cmake", "find_package(penstok)"))

    def test_json_like_a_file(self):
        (self.path / "a.json").write_text('{"a": [{"b": 1, "x.y": 2}], "c": {"d": "e", "f": 1}}', encoding="utf-8")
        self.assertIsNone(self.finding("json like a.json", '{"a": [{"b": 5, "u.v": 1}], "c": {"d": ""}}'))
        self.assertIn("has no such member: a[0].z", self.finding("json like a.json", '{"a": [{"z": 5}], "c": {}}'))
        self.assertIn("no such member: c.d", self.finding("json like a.json", '{"a": [], "c": {"d": 1}}'))
        self.assertIn("the members of a.json", self.finding("json like a.json", '{"a": []}'))


if __name__ == "__main__":
    unittest.main()
