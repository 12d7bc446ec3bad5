#!/usr/bin/env python3
"""Shows that tools/check_layers.py finds what it is there for: check_layers_test.py SCRIPT."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(sys.argv.pop()).resolve()

ARCHITECTURE = """# Architecture

```layers
base      -> nothing
schedule  -> nothing
passes    -> schedule
apps      -> everything
```
"""

CLEAN = {
    "src/penstock/base/text.h": "#include <string>\n",
    "src/penstock/plan/schedule/action.h": '#include "penstock/base/text.h"\n',
    "src/penstock/plan/passes/lower.cpp": '#include "penstock/plan/schedule/action.h"\n',
    "apps/penstock/main.cpp": '#include "penstock/plan/schedule/action.h"\n',
}


def check(files):
    """(exit status, findings) for a tree of CLEAN and `files`."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {"ARCHITECTURE.md": ARCHITECTURE, **CLEAN, **files}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        result = subprocess.run(
            [sys.executable, SCRIPT, "--root", root], capture_output=True, text=True, check=False
        )
        return result.returncode, result.stderr


class CheckLayers(unittest.TestCase):
    def expect_finding(self, files, text):
        status, findings = check(files)
        self.assertEqual(status, 1)
        self.assertIn(text, findings)
        self.assertEqual(findings.count("\n"), 1, findings)

    def test_clean_tree_passes(self):
        self.assertEqual(check({}), (0, ""))

    def test_arrow_that_is_not_listed(self):
        self.expect_finding(
            {"src/penstock/plan/schedule/csv.cpp": '\n#include "penstock/plan/passes/lower.h"\n'},
            "src/penstock/plan/schedule/csv.cpp:2: layer schedule includes",
        )

    def test_internal_header_of_another_layer(self):
        self.expect_finding(
            {"apps/penstock/a.cpp": '#include "penstock/plan/schedule/internal/parser.h"\n'},
            "which is internal to layer schedule",
        )

    def test_libtorch_in_the_plan_half(self):
        self.expect_finding(
            {"src/penstock/plan/passes/a.cpp": "#include <torch/torch.h>\n"}, "know no libtorch"
        )

    def test_layer_that_is_not_listed(self):
        self.expect_finding({"src/penstock/plan/extra/a.h": "\n"}, "layer extra is not listed")

    def test_types_of_one_name(self):
        self.expect_finding(
            {
                "src/penstock/plan/schedule/wait.h": "struct Wait {\n};\nclass Wait::State {\n",
                "src/penstock/plan/passes/internal/wait.h": "struct Wait;\nstruct Wait {\n};\n",
            },
            "src/penstock/plan/schedule/wait.h:1: defines Wait, as does src/penstock/plan/passes/internal/wait.h:2",
        )

    def test_listed_layer_without_files(self):
        listed = ARCHITECTURE.replace("apps ", "ghost     -> schedule\napps ")
        self.expect_finding({"ARCHITECTURE.md": listed}, "layer ghost has no files")


if __name__ == "__main__":
    unittest.main()
