# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The fork on the released vLLMs: every edit holds, and nothing is copied."""

import filecmp
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from tools.fork import lock
from tools.fork.__main__ import main
from tools.fork.base import ROOT, base_for, fetch_wheel, find_base, known_bases
from tools.fork.build import BaseWheel, build_wheel
from tools.fork.engine import apply
from tools.fork.survey import survey
from tools.fork.tree import ORIGINALS, Change, Fork, Tree

TREES = list(dict.fromkeys(map(str, known_bases())))
NEWEST = str(base_for("cuda"))
RUN = 6
FOLDERS = ("vllm", "tests", "tools", "benchmarks", "docs", "examples")


@pytest.fixture(scope="module")
def changes(released) -> dict[str, list[Change]]:
    """What the fork changes in each tree; in the newest all of it."""
    return {
        name: Tree(root).changes(extras=name == NEWEST)
        for name, root in released.items()
    }


@pytest.mark.parametrize("name", TREES)
def test_every_edit_holds_and_applies_once(changes, name):
    modules = [c for c in changes[name] if c.path.startswith("vllm/")]
    assert modules
    version = find_base(*name.split()).version
    for change in modules:
        compile(change.content, change.path, "exec")
        if change.kind == "edit":
            assert change.base != change.content
            edit = ROOT / change.path.replace(".py", ".edit.py")
            once = change.content.decode()
            text = edit.read_text(encoding="utf-8")
            assert apply(text, once, version=version) == once


@pytest.mark.parametrize("name", TREES)
def test_the_lock_of_a_base_is_current(released, changes, name):
    work = survey(Tree(released[name]), find_base(*name.split()))
    assert not work.open
    modules = [c for c in changes[name] if c.path.startswith("vllm/")]
    current = lock.path_of(work.base).read_text(encoding="utf-8")
    remedy = "run 'python -m tools.fork lock', and look at what it changes"
    assert lock.text(modules, work) == current, remedy


def test_every_lock_is_of_a_known_base_and_holds_no_text():
    known = {lock.path_of(base) for base in known_bases()}
    assert set(lock.LOCKS.iterdir()) == known
    for path in known:
        for entry in tomllib.loads(path.read_text(encoding="utf-8")).values():
            assert entry.keys() <= {"how", "added", "removed", "sha256", "around"}


def test_the_wheel_for_cuda_is_the_newest_one_with_the_listed_changes(tmp_path):
    wheel = BaseWheel(fetch_wheel(base_for("cuda")), base_for("cuda"))
    version = wheel.base.fork_version

    def built(folder: str) -> Path:
        metadata = {"METADATA": f"Name: vllm\nVersion: {version}\n".encode()}
        return build_wheel(wheel, version, metadata, tmp_path / folder)

    def members(path: Path) -> dict[str, int]:
        with zipfile.ZipFile(path) as archive:
            return {m.filename: m.CRC for m in archive.infolist() if not m.is_dir()}

    ours = built("once")
    assert filecmp.cmp(ours, built("twice"), shallow=False)
    before, after = members(wheel.path).items(), members(ours).items()
    info = f"vllm-{version}.dist-info/"
    with zipfile.ZipFile(ours) as archive, archive.open(info + ORIGINALS) as originals:
        listed = json.loads(zipfile.ZipFile(originals).read("manifest.json"))
    differing = {name for name, _ in before ^ after if ".dist-info/" not in name}
    assert differing == {*listed, "vllm/_version.py"}


def test_every_part_of_the_fork_holds_somewhere(changes):
    laid = {c.path for found in changes.values() for c in found}
    assert {path for path, _ in Fork().modules()} <= laid


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
    return _texts(released[NEWEST])


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


@pytest.fixture(scope="module")
def exported(released, changes, tmp_path_factory) -> Path:
    """The newest source with the whole fork as git applies its diff."""
    root = tmp_path_factory.mktemp("exported") / "vllm"
    shutil.copytree(released[NEWEST], root)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as diff:
        patch.setattr(Tree, "changes", lambda self, *, extras: changes[NEWEST])
        assert main(["diff", "--tests", str(root)]) == 0
    apply_diff = ["git", "apply", "-"]
    subprocess.run(apply_diff, cwd=root, input=diff.getvalue().encode(), check=True)
    return root


@pytest.fixture(scope="module")
def exported_modules(changes) -> list[str]:
    """The Python files that the fork changes or adds there."""
    changed = [c.path for c in changes[NEWEST] if c.base != c.content]
    return [path for path in changed if path.endswith(".py")]


# What the pre-commit hooks of upstream run on changed files, with upstream's
# settings.
CHECKS = {
    "ruff check": ["-m", "ruff", "check", "--no-cache"],
    "ruff format": ["-m", "ruff", "format", "--no-cache", "--check"],
    **{
        name: [f"tools/pre_commit/{name}.py"]
        for name in (
            "check_boolean_context_manager",
            "check_forbidden_imports",
            "check_spdx_header",
            "check_torch_cuda",
            "check_trust_remote_code",
            "validate_config",
        )
    },
}


def run_check(name: str, root: Path, files: list[str]) -> subprocess.CompletedProcess:
    command = [sys.executable, *CHECKS[name], *files]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


@pytest.mark.parametrize("name", CHECKS)
def test_the_export_passes_upstreams_own_checks(exported, exported_modules, name):
    result = run_check(name, exported, exported_modules)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", ["ruff check", "check_forbidden_imports"])
def test_upstreams_checks_find_a_fault(exported, name):
    (exported / "fault.py").write_text("import re, os\n")
    assert run_check(name, exported, ["fault.py"]).returncode != 0


def test_the_export_needs_nothing_that_stays_here(exported, exported_modules):
    assert (exported / "tools/reasoning_exits.py").is_file()
    uses = re.compile(r"^\s*(?:from|import) (tools\.(?!reasoning_exits)[\w.]+)", re.M)
    found = {
        path: uses.findall((exported / path).read_text(encoding="utf-8"))
        for path in exported_modules
    }
    assert not {path: names for path, names in found.items() if names}


def test_the_diff_with_tests_applies_with_git(exported, changes):
    for change in changes[NEWEST]:
        if b"\0" not in change.content:
            assert (exported / change.path).read_bytes() == change.content
