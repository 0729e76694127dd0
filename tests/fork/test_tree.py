# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Laying the fork over a tree and taking it off again."""

import csv
import os
import subprocess

import pytest

from tests.fork.conftest import FORK, UPSTREAM, contents, write
from tools.fork.__main__ import main
from tools.fork.errors import ForkError, MissingAnchor, UnknownBase
from tools.fork.tree import ORIGINALS, Fork, Tree, record_row

INFO = "vllm_tiny-1.0.dist-info"
EDITED = "class Params:\n    budget: int = 0\n    reserve: int = 0\n    # é\n"


def test_apply_lays_edits_replacements_and_additions(installed, fork):
    before = contents(installed)
    changes = Tree(installed, fork=fork).apply()
    assert {c.path: c.kind for c in changes} == {
        "vllm/deep/added.py": "add",
        "vllm/params.py": "edit",
        "vllm/state.py": "replace",
    }
    after = contents(installed)
    assert after["vllm/params.py"].decode() == EDITED
    assert after["vllm/state.py"].decode() == FORK["vllm/state.py"]
    assert after["vllm/deep/added.py"].decode() == FORK["vllm/deep/added.py"]
    untouched = before.keys() - {c.path for c in changes} - {f"{INFO}/RECORD"}
    assert all(after[name] == before[name] for name in untouched)


def test_record_lists_every_file_with_its_hash_and_size(installed, fork):
    Tree(installed, fork=fork).apply()
    with (installed / INFO / "RECORD").open(newline="") as file:
        rows = {row[0]: row for row in csv.reader(file)}
    now = contents(installed)
    for name in now:
        if name == f"{INFO}/RECORD":
            assert rows.pop(name) == [name, "", ""]
        elif not name.startswith("vllm_plugin"):
            assert rows.pop(name) == record_row(name, now[name])
    assert rows == {"../../bin/vllm": ["../../bin/vllm", "sha256=x", "9"]}


def test_revert_puts_every_byte_back(installed, fork):
    before = contents(installed)
    Tree(installed, fork=fork).apply()
    assert contents(installed) != before
    Tree(installed, fork=fork).revert()
    assert contents(installed) == before
    assert not (installed / "vllm" / "deep").exists()


def test_applying_twice_changes_nothing(installed, fork):
    Tree(installed, fork=fork).apply()
    once = contents(installed)
    changes = Tree(installed, fork=fork).apply()
    assert contents(installed) == once
    assert all(c.applied for c in changes)


def test_a_changed_fork_is_laid_over_the_base_again(installed, fork):
    before = contents(installed)
    Tree(installed, fork=fork).apply()
    write(
        fork.root,
        {
            "vllm/params.edit.py": FORK["vllm/params.edit.py"].replace("0", "7"),
            "vllm/late.py": "",
        },
    )
    (fork.root / "vllm/deep/added.py").unlink()
    Tree(installed, fork=fork).apply()
    now = contents(installed)
    assert now["vllm/params.py"].decode() == EDITED.replace(
        "reserve: int = 0", "reserve: int = 7"
    )
    assert "vllm/late.py" in now and "vllm/deep/added.py" not in now
    record = now[f"{INFO}/RECORD"].decode()
    assert "vllm/late.py" in record and "added" not in record
    Tree(installed, fork=fork).revert()
    assert contents(installed) == before


def test_a_source_tree_is_laid_and_reverted_too(tmp_path, bases, fork):
    source = write(tmp_path / "src", {**UPSTREAM, "setup.py": ""})
    with pytest.raises(ForkError, match="--base"):
        Tree(source, fork=fork)
    write(source, {"PKG-INFO": "Name: vllm-tiny\nVersion: 1.0\n"})
    before = contents(source)
    Tree(source / "vllm", fork=fork).apply()
    assert contents(source)["vllm/params.py"].decode() == EDITED
    Tree(source, fork=fork).revert()
    assert contents(source) == before


def test_a_merged_fork_is_no_change(tmp_path, bases, fork):
    source = write(
        tmp_path / "src",
        {**UPSTREAM, "vllm/params.py": EDITED, "vllm/state.py": FORK["vllm/state.py"]},
    )
    write(source, {"vllm/deep/added.py": FORK["vllm/deep/added.py"]})
    write(source, {"PKG-INFO": "Name: vllm-tiny\nVersion: 1.0\n"})
    before = contents(source)
    assert all(c.applied for c in Tree(source, fork=fork).apply())
    assert contents(source) == before


def test_hard_links_to_a_cache_are_not_written_through(installed, fork, tmp_path):
    cached = tmp_path / "cached.py"
    os.link(installed / "vllm/params.py", cached)
    Tree(installed, fork=fork).apply()
    assert cached.read_text(encoding="utf-8") == UPSTREAM["vllm/params.py"]


def test_nothing_is_written_when_an_anchor_is_missing(installed, fork):
    write(fork.root, {"vllm/other.edit.py": FORK["vllm/params.edit.py"]})
    before = contents(installed)
    with pytest.raises(
        MissingAnchor, match=r"vllm/other\.edit\.py:4: .*vllm-tiny 1\.0"
    ):
        Tree(installed, fork=fork).apply()
    assert contents(installed) == before


def test_an_edit_of_a_module_that_is_not_there_is_refused(installed, fork):
    write(fork.root, {"vllm/gone.edit.py": ""})
    with pytest.raises(ForkError, match=r"vllm-tiny 1\.0 has no module vllm/gone\.py"):
        Tree(installed, fork=fork).changes()


def test_what_holds_on_other_bases_only_is_not_laid(installed, fork, bases):
    late = 'with since("1.1"):\n\n    class Gone:\n        pass\n'
    write(fork.root, {"vllm/gone.edit.py": late, "vllm/new.py": "", "vllm/old.py": ""})
    ranges = '[module."vllm/new.py"]\nsince = "1.1"\n'
    ranges += '[module."vllm/old.py"]\nuntil = "1.1"\n'
    bases.write_text(bases.read_text() + ranges)
    laid = {c.path for c in Tree(installed, fork=fork).apply()}
    assert "vllm/old.py" in laid
    assert not laid & {"vllm/gone.py", "vllm/new.py"}
    # What an earlier state of the fork laid is taken off again.
    bases.write_text(bases.read_text().replace('until = "1.1"', 'until = "1.0"'))
    Tree(installed, fork=fork).apply()
    assert not (installed / "vllm/old.py").exists()


def test_an_unlisted_version_is_refused(installed, fork):
    metadata = installed / INFO / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.0", "Version: 1.1"))
    with pytest.raises(UnknownBase, match=r"vllm-tiny 1\.1 .*check --all"):
        Tree(installed, fork=fork)


def test_a_replaced_module_that_was_never_compared_is_refused(installed, fork, bases):
    write(installed, {"vllm/state.py": "def state():\n    return 'newer'\n"})
    with pytest.raises(UnknownBase, match=r"vllm/state\.py.*vllm-tiny 1\.0") as e:
        Tree(installed, fork=fork).apply()
    assert "record" in str(e.value)


def test_record_lists_a_compared_module(installed, fork, bases, monkeypatch):
    write(installed, {"vllm/state.py": "def state():\n    return 'newer'\n"})
    monkeypatch.setattr("tools.fork.tree.ROOT", fork.root)
    monkeypatch.setattr(Fork.__init__, "__defaults__", (fork.root,))
    assert main(["check", str(installed)]) == 1
    ranges = '[module."vllm/late.py"]\nsince = "1.1"\n'
    bases.write_text(bases.read_text() + ranges)
    assert main(["record", str(installed)]) == 0
    assert ranges in bases.read_text()
    assert main(["check", str(installed)]) == 0


def test_a_file_changed_since_is_not_overwritten_unasked(installed, fork):
    Tree(installed, fork=fork).apply()
    write(installed, {"vllm/params.py": "mine\n"})
    write(fork.root, {"vllm/late.py": ""})
    for change in (Tree(installed, fork=fork).apply, Tree(installed, fork=fork).revert):
        with pytest.raises(ForkError, match=r"params\.py was changed.*--force"):
            change()
    assert (installed / "vllm/params.py").read_text() == "mine\n"
    Tree(installed, fork=fork).apply(force=True)
    assert (installed / "vllm/params.py").read_text(encoding="utf-8") == EDITED


def test_reverting_what_was_not_laid_is_an_error(installed, fork):
    with pytest.raises(ForkError, match="was not laid"):
        Tree(installed, fork=fork).revert()


def test_tests_docs_and_benchmarks_go_into_a_source_tree_on_request(
    tmp_path, bases, fork
):
    source = write(
        tmp_path / "src",
        {**UPSTREAM, "docs/page.md": "# Page\n", "tests/test_old.py": "old = 1\n"},
    )
    write(source, {"PKG-INFO": "Name: vllm-tiny\nVersion: 1.0\n"})
    write(
        fork.root,
        {
            "tests/test_new.py": "new = 1\n",
            "tests/fork/test_tools.py": "",
            "docs/page.md": "## Section\n",
            "benchmarks/run.py": "",
        },
    )
    before = contents(source)
    Tree(source, fork=fork).apply(extras=True)
    now = contents(source)
    assert {"tests/test_new.py", "benchmarks/run.py"} <= now.keys()
    assert "tests/fork/test_tools.py" not in now
    assert now["docs/page.md"] == b"# Page\n\n## Section\n"
    Tree(source, fork=fork).apply(extras=True)
    assert contents(source) == now
    Tree(source, fork=fork).revert()
    assert contents(source) == before
    write(fork.root, {"tests/test_old.py": "ours = 1\n"})
    with pytest.raises(ForkError, match=r"tests/test_old\.py exists"):
        Tree(source, fork=fork).apply(extras=True)


def test_a_file_that_is_the_same_in_both_stays_the_bases(
    tmp_path, bases, fork, capsys, monkeypatch
):
    monkeypatch.setattr(Fork.__init__, "__defaults__", (fork.root,))
    write(fork.root, {"tests/__init__.py": "", "tests/new/__init__.py": ""})
    source = write(tmp_path / "src", {**UPSTREAM, "tests/__init__.py": ""})
    write(source, {"PKG-INFO": "Name: vllm-tiny\nVersion: 1.0\n"})
    before = contents(source)
    assert main(["diff", "--tests", str(source)]) == 0
    diff = capsys.readouterr().out
    assert "tests/new/__init__.py" in diff and "a/tests/__init__.py" not in diff
    assert main(["apply", "--tests", str(source)]) == 0
    assert "tests/new/__init__.py" in contents(source)
    assert main(["revert", str(source)]) == 0
    assert contents(source) == before


def test_the_diff_applied_with_git_equals_apply(
    installed, fork, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(Fork.__init__, "__defaults__", (fork.root,))
    assert main(["diff", str(installed)]) == 0
    diff = capsys.readouterr().out
    copy = write(tmp_path / "copy", {})
    for name, content in contents(installed).items():
        write(copy, {name: ""})
        (copy / name).write_bytes(content)
    subprocess.run(["git", "apply", "-"], cwd=copy, input=diff.encode(), check=True)
    Tree(installed, fork=fork).apply()
    ours, theirs = contents(installed / "vllm"), contents(copy / "vllm")
    assert ours == theirs


def test_the_commands_report_and_exit_by_outcome(installed, fork, capsys, monkeypatch):
    monkeypatch.setattr(Fork.__init__, "__defaults__", (fork.root,))
    before = contents(installed)
    assert main(["check", str(installed)]) == 0
    assert "+1 -0" in capsys.readouterr().out
    assert contents(installed) == before
    assert main(["apply", str(installed)]) == 0
    assert main(["check", str(installed)]) == 0
    assert "as it is" in capsys.readouterr().out
    assert main(["revert", str(installed)]) == 0
    assert contents(installed) == before
    write(installed, {"vllm/params.py": "\n"})
    assert main(["check", str(installed)]) == 1
    assert "after_field" not in capsys.readouterr().out


def test_the_archive_of_originals_is_listed_for_uninstallation(installed, fork):
    Tree(installed, fork=fork).apply()
    assert f"{INFO}/{ORIGINALS}," in (installed / INFO / "RECORD").read_text()
