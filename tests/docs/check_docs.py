#!/usr/bin/env python3
"""Runs what the documents show.

  ```console   every line "$ command" is run, and must print the lines below it
  ```cpp       a block with a main() is compiled against the library and run without arguments; what
               it prints must be equal to the ```output block below it, if that follows. A block that
               includes penstock/run/ needs the --run-flags, and is passed over without them. A block
               that is an example, word for word, is not compiled again. A block without a main() is
               a part of an example or of a test; comments, "penstock::" and line breaks do not
               matter, and a line "// ..." stands for anything
  ```json like FILE
               has the members of FILE, which a command above it has written
  ```cmake     every line is one of the examples or of the tests; my_program stands for any target
  ```sh        commands that cannot be run here, or take too long; so does a block without a language. Of
               `penstock`, the options must exist; of `make`, the targets; of `cmake -S`, the folder
  ```text      a drawing, a grammar or a message: neither code nor a command

Commands run in a new folder in which `penstock` is the program of this build and model.pt a small GPT; a
```csv or ```json block whose first line above the fence is "`name.csv`:" is put there as that file. Any
other block must be on a page that a test or tool names, since it reads it. The usage is in CMakeLists.txt.
"""

import argparse
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FENCE = re.compile(r"^```([\w-]*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"`([\w.-]+\.(?:csv|json))`:\s*$")


class Page:
    def __init__(self, path, root):
        self.name = path.relative_to(root).as_posix()
        self.text = path.read_text(encoding="utf-8")

    def blocks(self):
        """(language, remark behind it, text, line, paragraph before) of every fenced block."""
        for match in FENCE.finditer(self.text):
            line = self.text.count("\n", 0, match.start()) + 1
            yield match.group(1), match.group(2).strip(), match.group(3), line, self.text[: match.start()].rstrip()


def stripped(text):
    """Without blanks at line ends, which documents do not keep."""
    return "\n".join(line.rstrip() for line in text.rstrip("\n").splitlines())


def differ(place, expected, found):
    return f"{place}: the document shows\n{expected}\nbut it is\n{found}\n"


def run_console(block, place, folder, environment):
    """A finding, or None."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        result = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        # The answer "no" is an answer; a wrong question or a crash is a broken document.
        if result.returncode not in (0, 1) or stripped(result.stdout) != stripped(expected):
            return differ(f"{place}: $ {command}", expected, result.stdout)
    return None


def run_cpp(block, expected, place, folder, compile_command, examples):
    program = examples.get(block)
    if program is None:
        source = folder / "snippet.cpp"
        program = folder / "snippet"
        source.write_text(block, encoding="utf-8")
        command = [part.format(source=source, program=program) for part in compile_command]
        compiled = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if compiled.returncode != 0:
            return f"{place}: does not compile:\n{compiled.stderr}"
    result = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    if result.returncode != 0:
        return f"{place}: exit status {result.returncode}:\n{result.stderr}"
    if expected is not None and stripped(result.stdout) != stripped(expected):
        return differ(place, expected, result.stdout)
    return None


def bare(code):
    """What is left of C++ without comments, blanks and the namespace."""
    code = re.sub(r"//.*", "", code)
    return re.sub(r"\s+|penstock::", "", code)


def find_fragment(block, place, sources):
    """A finding, or None."""
    pieces = [bare(piece) for piece in re.split(r"^\s*// \.\.\.\n", block, flags=re.MULTILINE)]
    if any(all(piece in source for piece in pieces) for source in sources):
        return None
    return f"{place}: neither an example nor a test has these lines:\n{block}"


def differing_member(shown, found, where=""):
    """The first member of `shown` that `found` does not have; keys that are names of tensors are free."""
    if isinstance(shown, list) and isinstance(found, list):
        return differing_member(shown[0], found[0], f"{where}[0]") if shown and found else None
    if type(shown) is not type(found):
        return where
    if isinstance(shown, dict):
        for key, value in shown.items():
            if re.search(r"[./]", key):
                continue
            differing = f"{where}.{key}" if key not in found else differing_member(value, found[key], f"{where}.{key}")
            if differing is not None:
                return differing
    return None


def compare_json(block, remark, place, folder):
    """A finding, or None."""
    shown = json.loads(block)
    name = remark.removeprefix("like ")
    found = json.loads((folder / name).read_text(encoding="utf-8"))
    if list(shown) != list(found):
        return differ(f"{place}: the members of {name}", " ".join(shown), " ".join(found))
    differing = differing_member(shown, found)
    return f"{place}: {name} has no such member: {differing[1:]}" if differing is not None else None


def check_cmake(block, place, cmake_lists):
    """A finding, or None."""
    for line in re.sub(r"\s*#.*", "", block).splitlines():
        pattern = re.escape(line).replace("my_program", r"\S+")
        if not any(re.search(pattern, text) for text in cmake_lists):
            return f"{place}: neither an example nor a test has this line:\n{line}"
    return None


@functools.lru_cache(maxsize=None)
def help_of(command, path):
    result = subprocess.run(
        ["penstock", *command.split(), "--help"],
        env=dict(os.environ, PATH=path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return result.stdout if result.returncode == 0 else ""


def check_shell(block, place, root, path):
    """A finding, or None."""
    block = re.sub(r"\\\n", " ", block)
    for line in re.sub(r"\s+#.*", "", block).splitlines():
        program = line.split()[0] if line.split() else ""
        if program == "make":
            makefile = (root / "Makefile").read_text(encoding="utf-8")
            missing = [word for word in line.split()[1:] if not re.search(rf"^{word}:", makefile, re.MULTILINE)]
            if missing:
                return f"{place}: make has no target {missing[0]}"
        elif program == "cmake":
            folder = re.search(r"-S (\S+)", line)
            if folder is not None and not (root / folder.group(1) / "CMakeLists.txt").exists():
                return f"{place}: there is no CMakeLists.txt in {folder.group(1)}"
        elif program not in ("penstock", "export", "srun", "mpirun"):
            return f"{place}: it is not known how to check this line:\n{line}"
        for command, arguments in re.findall(r"\bpenstock ([a-z-]+)([^|'\"]*)", line):
            known = help_of(command, path)
            if not known:
                return f"{place}: there is no command: penstock {command}"
            for option in re.findall(r"(?:^| )(--?[a-z][\w-]*)", re.sub(r" -- .*", "", arguments)):
                if not re.search(rf"(?<![\w-]){option}(?![\w-])", known):
                    return f"{place}: penstock {command} has no option {option}"
    return None


class Checker:
    """Everything that blocks are compared with."""

    def __init__(self, arguments):
        self.root = arguments.root.resolve()
        self.compile_command = arguments.compile_command
        self.run_flags = arguments.run_flags
        self.environment = dict(os.environ)
        self.environment["PATH"] = f"{arguments.program.resolve().parent}:{self.environment['PATH']}"
        sources = self.texts_in(("examples", "tests"), "*.cpp")
        self.sources = [bare(source) for source in sources]
        self.readers = "".join(sources + self.texts_in(("tools",), "*.py"))
        self.cmake_lists = self.texts_in(("examples", "tests/install"), "CMakeLists.txt")
        self.examples = {source.read_text(encoding="utf-8"): program for source, program in arguments.examples}

    def texts_in(self, folders, pattern):
        return [
            path.read_text(encoding="utf-8") for folder in folders for path in (self.root / folder).glob(f"**/{pattern}")
        ]

    def findings_in(self, page, folder):
        shutil.copy(self.root / "tests/run/pipe/fixtures/tied_gpt.pt", folder / "model.pt")
        blocks = list(page.blocks())
        for index, block in enumerate(blocks):
            following = blocks[index + 1] if index + 1 < len(blocks) else None
            expected = following[2] if following and following[0] == "output" else None
            finding = self.finding_in(page, block, expected, folder)
            if finding is not None:
                yield finding

    def finding_in(self, page, block, expected, folder):
        """What is wrong with a block, or None; `expected` is the output that the page shows below it."""
        language, remark, text, line, before = block
        place = f"{page.name}:{line}"
        name = FILE_NAME.search(before)
        if language in ("csv", "json") and name is not None:
            (folder / name.group(1)).write_text(text, encoding="utf-8")
        elif language == "json" and remark.startswith("like "):
            return compare_json(text, remark, place, folder)
        elif language == "console":
            return run_console(text, place, folder, self.environment)
        elif language == "cpp" and "int main(" in text:
            needs_run = "penstock/run/" in text
            if needs_run and not self.run_flags:
                return None
            command = self.compile_command + (self.run_flags if needs_run else [])
            return run_cpp(text, expected, place, folder, command, self.examples)
        elif language == "cpp":
            return find_fragment(text, place, self.sources)
        elif language == "cmake":
            return check_cmake(text, place, self.cmake_lists)
        elif language in ("sh", ""):
            return check_shell(text, place, self.root, self.environment["PATH"])
        elif language not in ("output", "text") and page.name not in self.readers:
            return f"{place}: nothing checks a block of the kind {language!r} here"
        return None


def broken_links_in(page, root):
    text = re.sub(r"^```.*?^```", "", page.text, flags=re.DOTALL | re.MULTILINE)  # lambdas are no links
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        if not ((root / page.name).parent / target).exists():
            yield f"{page.name}: the link to {target} leads nowhere"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--run-flag", action="append", default=[], dest="run_flags")
    parser.add_argument(
        "--example",
        action="append",
        nargs=2,
        default=[],
        type=pathlib.Path,
        metavar=("SOURCE", "PROGRAM"),
        dest="examples",
    )
    parser.add_argument("compile_command", nargs="+", help="with {source} and {program}")
    arguments = parser.parse_args()

    checker = Checker(arguments)
    root = checker.root
    paths = [path for pattern in ("*.md", "docs/**/*.md", "examples/*.md") for path in root.glob(pattern)]
    pages = [Page(path, root) for path in sorted(paths)]
    findings = []
    for page in pages:
        findings += broken_links_in(page, root)
        with tempfile.TemporaryDirectory() as folder:
            findings += checker.findings_in(page, pathlib.Path(folder))
    for finding in findings:
        print(finding, file=sys.stderr)
    if findings:
        sys.exit(1)
    print(f"docs: {len(pages)} pages show what happens")


if __name__ == "__main__":
    main()
