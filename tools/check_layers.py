#!/usr/bin/env python3
"""Compares the layers listed in ARCHITECTURE.md with the #include lines of the sources.

A layer may include itself, base, and the layers the list names. Nobody includes another layer's
internal/ headers, and nothing in base/, plan/ or launch/ includes libtorch. No two headers define a type of
one name, also internal ones: they share a namespace, and the linker would take one for the other. Every
finding is printed with file and line; the exit status is 1 if there is any.
"""

import argparse
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')
TYPE = re.compile(r"^(?:struct|class|enum class) (\w+)\b(?!::)[^;]*$")
LIBTORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
EVERYTHING = "everything"


def fail(message):
    sys.exit(f"check_layers: {message}")


def read_allowed(architecture):
    """{layer: set of layers} from the fenced block that is marked `layers`."""
    text = architecture.read_text(encoding="utf-8")
    block = re.search(r"^```layers\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if block is None:
        fail(f"{architecture} has no block that starts with ```layers")
    allowed = {}
    for line in block.group(1).splitlines():
        if not line.strip():
            continue
        layers, arrow, targets = line.partition("->")
        names = [name.strip() for name in layers.split(",")]
        if not arrow or not all(names):
            fail(f'{architecture}: expected "layer, ... -> layer, ...", found "{line}"')
        for name in names:
            if name in allowed:
                fail(f"{architecture}: layer {name} is listed twice")
            allowed[name] = {target.strip() for target in targets.split(",") if target.strip()}
    known = set(allowed) | {EVERYTHING, "nothing"}
    for name, targets in allowed.items():
        if targets - known:
            fail(f"{architecture}: {name} names unknown layers: {', '.join(sorted(targets - known))}")
    return allowed


def layer_of(path):
    """The layer of a path below the root or of an include: penstock/plan/passes/lower.h -> passes."""
    parts = pathlib.PurePosixPath(path).parts
    if parts[0] == "apps":
        return "apps"
    if parts[0] == "src":
        parts = parts[1:]
    if len(parts) < 3 or parts[0] != "penstock":
        return None
    return parts[2] if parts[1] in ("plan", "run") else parts[1]


def findings_in(path, root, allowed):
    name = path.relative_to(root).as_posix()
    layer = layer_of(name)
    if layer not in allowed:
        yield f"{name}:1: layer {layer} is not listed in ARCHITECTURE.md"
        return
    is_torch_free = name.startswith(("src/penstock/base/", "src/penstock/plan/", "src/penstock/launch/"))
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = INCLUDE.match(line)
        if match is None:
            continue
        included = match.group(1)
        if is_torch_free and LIBTORCH.match(included):
            yield f"{name}:{number}: includes {included}, but base/, plan/ and launch/ know no libtorch"
        target = layer_of(included)
        if target is None or target == layer:
            continue
        if "/internal/" in included:
            yield f"{name}:{number}: includes {included}, which is internal to layer {target}"
        permitted = allowed[layer] | {"base"}
        if target not in permitted and EVERYTHING not in permitted:
            yield (
                f"{name}:{number}: layer {layer} includes {included} of layer {target}; "
                f"it may include {', '.join(sorted(permitted))}"
            )


def find_shared_names(headers, root):
    first = {}
    for path in headers:
        name = path.relative_to(root).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            match = TYPE.match(line)
            if match is None:
                continue
            place = first.setdefault(match.group(1), f"{name}:{number}")
            if place != f"{name}:{number}":
                yield f"{name}:{number}: defines {match.group(1)}, as does {place}; rename one of them"


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=here, help="root of the tree")
    root = parser.parse_args().root.resolve()

    allowed = read_allowed(root / "ARCHITECTURE.md")
    files = sorted(
        path
        for folder in ("src/penstock", "apps")
        for path in (root / folder).rglob("*")
        if path.suffix in (".h", ".cpp")
    )
    findings = [finding for path in files for finding in findings_in(path, root, allowed)]
    findings += find_shared_names((path for path in files if path.suffix == ".h"), root)
    used = {layer_of(path.relative_to(root).as_posix()) for path in files}
    findings += [f"ARCHITECTURE.md: layer {name} has no files" for name in sorted(set(allowed) - used)]
    for finding in findings:
        print(finding, file=sys.stderr)
    if findings:
        sys.exit(1)
    print(f"layers: {len(files)} files keep to the {len(allowed)} layers of ARCHITECTURE.md")


if __name__ == "__main__":
    main()
