#!/usr/bin/env python3
"""Runs what the documents show.

  ```console   every line "$ command" is run, and must print the lines below it
  ```cpp       a block with a main() is compiled against the library and run without arguments; what
               it prints must be equal to the ```output block below it, if that follows. A block that
               includes penstock/run/ needs the --run-flags, and is passed over without them. A block
               that is an example, word for word, is not compiled again. A block without a main() is
               a part of an example or of a test; comments, "penstock::" and line breaks do not
               matter, and a line "// ..." stands for anything

Commands run in a new folder in which `penstock` is the program of this build; a ```csv or ```json
block whose first line above the fence is "`name.csv`:" is put there as that file. The usage is in CMakeLists.txt.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FENCE = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"`([\w.-]+\.(?:csv|json))`:\s*$")


class Page:
    def __init__(self, path, root):
        self.name = path.relative_to(root).as_posix()
        self.text = path.read_text(encoding="utf-8")

    def blocks(self):
        """(language, text, line, paragraph before) of every fenced block."""
        for match in FENCE.finditer(self.text):
            line = self.text.count("\n", 0, match.start()) + 1
            yield match.group(1), match.group(2), line, self.text[: match.start()].rstrip()


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


def findings_in(page, folder, environment, compile_command, run_flags, examples, sources):
    blocks = list(page.blocks())
    for index, (language, text, line, before) in enumerate(blocks):
        place = f"{page.name}:{line}"
        finding = None
        if language in ("csv", "json"):
            name = FILE_NAME.search(before)
            if name is not None:
                (folder / name.group(1)).write_text(text, encoding="utf-8")
        elif language == "console":
            finding = run_console(text, place, folder, environment)
        elif language == "cpp" and "int main(" in text:
            following = blocks[index + 1] if index + 1 < len(blocks) else None
            expected = following[1] if following and following[0] == "output" else None
            needs_run = "penstock/run/" in text
            if needs_run and not run_flags:
                continue
            command = compile_command + (run_flags if needs_run else [])
            finding = run_cpp(text, expected, place, folder, command, examples)
        elif language == "cpp":
            finding = find_fragment(text, place, sources)
        if finding is not None:
            yield finding


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

    root = arguments.root.resolve()
    environment = dict(os.environ)
    environment["PATH"] = f"{arguments.program.resolve().parent}:{environment['PATH']}"
    paths = [path for pattern in ("*.md", "docs/**/*.md", "examples/*.md") for path in root.glob(pattern)]
    pages = [Page(path, root) for path in sorted(paths)]
    sources = [
        bare(path.read_text(encoding="utf-8"))
        for folder in ("examples", "tests")
        for path in (root / folder).glob("**/*.cpp")
    ]
    examples = {source.read_text(encoding="utf-8"): program for source, program in arguments.examples}
    findings = []
    for page in pages:
        findings += broken_links_in(page, root)
        with tempfile.TemporaryDirectory() as folder:
            findings += findings_in(
                page,
                pathlib.Path(folder),
                environment,
                arguments.compile_command,
                arguments.run_flags,
                examples,
                sources,
            )
    for finding in findings:
        print(finding, file=sys.stderr)
    if findings:
        sys.exit(1)
    print(f"docs: {len(pages)} pages show what happens")


if __name__ == "__main__":
    main()
