# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The fork on the released vLLMs: every edit holds, and nothing is copied."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.fork.base import ROOT, known_bases
from tools.fork.engine import apply
from tools.fork.tree import Tree

TREES = [*map(str, known_bases()), "sdist"]
RUN = 6
FOLDERS = ("vllm", "tests", "tools", "benchmarks", "docs", "examples")


@pytest.mark.parametrize("name", TREES)
def test_every_edit_holds_and_applies_once(released, name):
    tree = Tree(released[name])
    changes = tree.changes()
    assert changes
    for change in changes:
        compile(change.content, change.path, "exec")
        if change.kind == "edit":
            assert change.base != change.content
            edit = ROOT / change.path.replace(".py", ".edit.py")
            once = change.content.decode()
            assert apply(edit.read_text(encoding="utf-8"), once) == once


def code_lines(text: str) -> Iterator[str]:
    """The lines that count as content, their whitespace made alike.

    Imports, comments and signatures do not count: a fork keeps an interface, and
    says what it uses.
    """
    skipping = 0
    for line in text.splitlines():
        line = " ".join(re.sub(r"(^|\s)#(\s.*|$)", "", line).split())
        starts = re.match(r"(from \S+ import|import |(async )?def \w+)", line)
        if not line or (starts is None and not skipping):
            if line:
                yield line
            continue
        # A signature or an import goes on until its brackets are closed.
        bare = re.sub(r"\"[^\"]*\"|'[^']*'", "", line)
        opened = sum(map(bare.count, "([")) - sum(map(bare.count, ")]"))
        skipping = max(skipping + opened, 0)


def shared_runs(ours: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """Where a file of ours has ``RUN`` or more lines in a row with one of theirs."""
    windows: dict[tuple[str, ...], str] = {}
    for name, text in ours.items():
        lines = list(code_lines(text))
        for i in range(len(lines) - RUN + 1):
            windows.setdefault(tuple(lines[i : i + RUN]), name)
    firsts = {window[0] for window in windows}
    found = []
    for name, text in theirs.items():
        lines = list(code_lines(text))
        for i, line in enumerate(lines):
            window = tuple(lines[i : i + RUN])
            if line in firsts and window in windows:
                found.append(f"{windows[window]} and {name}: {' | '.join(window)}")
    return found


def _texts(root: Path, folders: tuple[str, ...] = ("",)) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for folder in folders
        for path in (root / folder).rglob("*")
        if path.suffix in (".py", ".md") and path.is_file()
    }


@pytest.mark.parametrize("name", TREES)
def test_no_file_shares_six_lines_with_the_base(released, name):
    ours = _texts(ROOT, FOLDERS)
    ours |= {p.name: p.read_text(encoding="utf-8") for p in ROOT.glob("*.py")}
    assert ours.keys() & {"setup.py", "tools/fork/engine.py"}
    assert shared_runs(ours, _texts(released[name])) == []


@pytest.fixture(scope="module")
def upstream(released) -> dict[str, str]:
    return _texts(released["sdist"])


def _body(text: str, count: int) -> list[str]:
    """The first lines in a row below a signature that all count."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        body = lines[i + 1 : i + 1 + count]
        counted = len(list(code_lines("\n".join(body))))
        if line.startswith("    def ") and line.endswith(":") and counted == count:
            return body
    raise AssertionError("no such function")


@pytest.mark.parametrize(
    "path", ["vllm/v1/core/block_pool.py", "tests/v1/core/test_prefix_caching.py"]
)
def test_a_copied_body_is_found(upstream, path):
    body = _body(upstream[path], RUN)
    spread = "".join(f"{' ' * 7}{line.strip()}  # noted\n\n# more\n" for line in body)
    assert shared_runs({"copy.py": f"def mine():\n{spread}"}, upstream)
    assert not shared_runs({"copy.py": "\n".join(body[: RUN - 1])}, upstream)


def test_a_kept_interface_is_not_a_copy(upstream):
    text = upstream["vllm/v1/core/block_pool.py"]
    kept = re.findall(r"^    def \w+\([^)]*\)[^:]*:$|^(?:from|import) .*$", text, re.M)
    assert len(kept) > RUN
    assert not shared_runs({"kept.py": "\n        ...\n".join(kept)}, upstream)
