# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The work list of a base, its lock, and how a new base is recorded."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.fork.conftest import FORK, UPSTREAM, contents, write
from tools.fork import base, lock
from tools.fork.__main__ import main
from tools.fork.source import Source
from tools.fork.survey import Surveyor
from tools.fork.tree import Fork, sha256

TARGET = """\
import os


class Oven:
    heat: int = 180
    light: bool = False

    def bake(self, minutes=40):
        self.wait(minutes=minutes)
        self.done = True


class Grill:
    def turn(self):
        self.side = 1
"""

BAKE = "class Oven:\n    def bake():\n        with {}:\n            x = 1\n"
# Edit, target, and the state of each anchor: class, def, with.
STATES = {
    "an anchor where the edit says holds": (
        BAKE.format('after_statement(calls="self.wait")'),
        TARGET,
        ["holds", "holds", "holds"],
    ),
    "a statement in another method has moved": (
        BAKE.format('after_statement(assigns="self.side")'),
        TARGET,
        ["holds", "holds", "moved"],
    ),
    "a method of another class has moved, and what is in it holds there": (
        "class Oven:\n    def turn():\n        with after_statement("
        'assigns="self.side"):\n            x = 1\n',
        TARGET,
        ["holds", "moved", "holds"],
    ),
    "what is nowhere is gone": (
        BAKE.format('after_statement(calls="self.open")'),
        TARGET,
        ["holds", "holds", "gone"],
    ),
    "of a class that is gone the rest is sought elsewhere": (
        "class Stove:\n    def light():\n        with at_end():\n            x = 1\n"
        '    with after_field("heat"):\n        x: int\n',
        TARGET,
        ["gone", "gone", "gone", "moved"],
    ),
    "what is in two other places is gone": (
        BAKE.format('after_statement(assigns="self.side")'),
        TARGET + "        self.side = 2\n",
        ["holds", "holds", "gone"],
    ),
    "what is there twice is ambiguous": (
        BAKE.format('after_statement(calls="self.wait")'),
        TARGET.replace("self.done = True", "self.wait()"),
        ["holds", "holds", "ambiguous"],
    ),
    "a method that is there twice is ambiguous, and nothing is sought in it": (
        BAKE.format("at_end()"),
        TARGET.replace("\n\nclass Grill", "\n    def bake(self): ...\n\nclass Grill"),
        ["holds", "ambiguous", "gone"],
    ),
    "upstream has the same": (
        'with after_import("os"):\n    import os\n',
        TARGET,
        ["taken"],
    ),
    "upstream has the name for something else": (
        'class Oven:\n    with after_field("heat"):\n        light: int = 9\n',
        TARGET,
        ["holds", "taken"],
    ),
    "the block narrowed to is gone, and what is in it is sought elsewhere": (
        BAKE.format('inside(tests="self.hot"), after_statement(calls="self.wait")'),
        TARGET,
        ["holds", "holds", "gone", "moved"],
    ),
    "blocks for other bases are no work": (
        'with since("2"), after_import("gone"):\n    import x\n',
        TARGET,
        [],
    ),
}


def surveyed(edit: str, target: str) -> Surveyor:
    surveyor = Surveyor(Source(edit), Source(target), "e.py", "tiny 1.0", "1.0")
    surveyor.survey()
    return surveyor


@pytest.mark.parametrize("name", STATES)
def test_every_anchor_gets_its_state_in_one_run(name):
    edit, target, states = STATES[name]
    assert [f.state for f in surveyed(edit, target).findings] == states


def test_what_has_moved_tells_where_it_is_now():
    edit = BAKE.format('after_statement(assigns="self.side")')
    (finding,) = (f for f in surveyed(edit, TARGET).findings if f.state == "moved")
    assert (finding.line, finding.scope) == (3, "Oven.bake")
    line = TARGET.splitlines().index("        self.side = 1") + 1
    assert finding.detail == f"now in def turn, line {line}"


def test_a_fingerprint_is_of_the_definition_around_an_anchor():
    edit = BAKE.format("at_end()")
    edit += '    with after_field("heat"):\n        x: int\n'
    edit += 'with after_import("os"):\n    import spoon\n'
    before = surveyed(edit, TARGET).fingerprints
    assert before.keys() == {"Oven", "Oven.bake"}
    in_method = surveyed(edit, TARGET.replace("minutes)", "minutes + 1)")).fingerprints
    assert {k for k in before if before[k] != in_method[k]} == {"Oven.bake"}
    in_field = surveyed(edit, TARGET.replace("180", "200")).fingerprints
    assert {k for k in before if before[k] != in_field[k]} == {"Oven"}
    elsewhere = surveyed(edit, TARGET.replace("side = 1", "side = 2")).fingerprints
    assert elsewhere == before


def test_a_fingerprint_of_a_class_that_is_taken_out_is_of_all_of_it():
    edit = 'with move_def("Oven", after_import="os"):\n    from ovens import Oven\n'
    before = surveyed(edit, TARGET).fingerprints
    assert before.keys() == {"Oven"}
    in_method = TARGET.replace("minutes)", "minutes + 1)")
    assert surveyed(edit, in_method).fingerprints != before


@pytest.fixture
def tiny(bases, fork, tmp_path, monkeypatch) -> Path:
    """Version 1.0 of the small vLLM, locked; 1.1 is the same till a test changes it.

    Returns:
        The tree of 1.1.

    """
    trees = {
        version: write(
            tmp_path / version,
            {**UPSTREAM, "PKG-INFO": f"Name: vllm-tiny\nVersion: {version}\n"},
        )
        for version in ("1.0", "1.1")
    }
    monkeypatch.setattr(Fork.__init__, "__defaults__", (fork.root,))
    monkeypatch.setattr(lock, "LOCKS", tmp_path / "locks")
    # Copied, since the tools put it in a folder of their own.
    monkeypatch.setattr(
        base, "unpack", lambda b, at: shutil.copytree(trees[b.version], at / "tree")
    )
    assert main(["lock"]) == 0
    return trees["1.1"]


def test_a_lock_says_what_the_fork_makes_of_a_base(tiny, fork, tmp_path, capsys):
    (path,) = (tmp_path / "locks").iterdir()
    assert path.name == "vllm-tiny-1.0.toml"
    locked = tomllib.loads(path.read_text())
    edited = "class Params:\n    budget: int = 0\n    reserve: int = 0\n    # é\n"
    params = locked["vllm/params.py"]
    assert params.pop("around").keys() == {"Params"}
    assert params == {
        "how": "edit",
        "added": 1,
        "removed": 0,
        "sha256": sha256(edited.encode()),
    }
    assert locked["vllm/state.py"] == {
        "how": "replace",
        "added": 1,
        "removed": 1,
        "sha256": sha256(FORK["vllm/state.py"].encode()),
    }
    assert locked["vllm/deep/added.py"]["how"] == "add"
    before = path.read_bytes()
    assert main(["lock", "--check"]) == 0
    write(fork.root, {"vllm/deep/added.py": "y = 3\n"})
    assert main(["lock", "--check"]) == 1
    assert "is out of date" in capsys.readouterr().out
    assert path.read_bytes() == before


def test_a_known_base_has_nothing_to_do(tiny, capsys):
    assert main(["check", "--all", str(tiny.parent / "1.0")]) == 0
    assert capsys.readouterr().out == "vllm-tiny 1.0 compared with vllm-tiny 1.0: " + (
        "4 holds.\n"
    )


def test_an_unknown_base_is_recorded_once_everything_holds(tiny, bases, capsys):
    assert main(["check", str(tiny)]) == 1
    assert "check --all" in capsys.readouterr().err
    assert main(["check", "--all", str(tiny)]) == 0
    assert "lift 1.0 1.1'" in capsys.readouterr().out
    assert main(["lift", "1.0", "1.1"]) == 0
    assert main(["check", str(tiny)]) == 0
    assert main(["lock", "--check"]) == 0
    # The newest comes first, which makes it the one to build on.
    assert [b.version for b in base.known_bases()] == ["1.1", "1.0"]
    assert base.checked_hashes("vllm/state.py").keys() == {
        "vllm-tiny 1.0",
        "vllm-tiny 1.1",
    }
    assert main(["lift", "1.0", "1.1"]) == 1
    assert "is a known base already" in capsys.readouterr().err


NOT_YET = {
    "an anchor is gone": (
        {"vllm/params.py": "class Params:\n    limit: int = 0\n"},
        ("vllm/params.edit.py", "gone"),
    ),
    "a module is gone": ({"vllm/params.py": None}, ("vllm/params.edit.py", "gone")),
    "upstream has the edit": (
        {"vllm/params.py": "class Params:\n    budget = 0\n    reserve: int = 0\n"},
        ("vllm/params.edit.py", "taken"),
    ),
    "a replaced module has changed": (
        {"vllm/state.py": "def state():\n    return 'newer'\n"},
        ("vllm/state.py", "changed"),
    ),
    "a replaced module is gone": ({"vllm/state.py": None}, ("vllm/state.py", "gone")),
    "upstream has the module": (
        {"vllm/deep/added.py": FORK["vllm/deep/added.py"]},
        ("vllm/deep/added.py", "taken"),
    ),
    "upstream has another module of that name": (
        {"vllm/deep/added.py": "z = 1\n"},
        ("vllm/deep/added.py", "changed"),
    ),
}


@pytest.mark.parametrize("name", NOT_YET)
def test_a_base_on_which_something_does_not_hold_is_not_recorded(
    tiny, bases, capsys, name
):
    changed, expected = NOT_YET[name]
    write(tiny, {path: text for path, text in changed.items() if text is not None})
    for path in (path for path, text in changed.items() if text is None):
        (tiny / path).unlink()
    before = contents(bases.parent)
    assert main(["check", "--json", str(tiny)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["base"], report["compared_with"]) == (
        "vllm-tiny 1.1",
        "vllm-tiny 1.0",
    )
    work = [a for a in report["anchors"] if a["state"] != "holds"]
    assert [(a["file"], a["state"]) for a in work] == [expected]
    assert main(["lift", "1.0", "1.1"]) == 1
    printed = capsys.readouterr()
    assert f"{expected[0]}:" in printed.out and expected[1] in printed.out
    assert "is not recorded" in printed.err
    assert contents(bases.parent) == before


def test_a_module_that_changed_is_recorded_as_compared(tiny, capsys):
    write(tiny, {"vllm/state.py": "def state():\n    return 'newer'\n"})
    assert main(["check", "--all", str(tiny)]) == 1
    assert "record TREE" in capsys.readouterr().out
    assert main(["record", str(tiny)]) == 0
    assert main(["lift", "1.0", "1.1"]) == 0


def test_what_drifted_is_to_be_reviewed(tiny, capsys):
    params = UPSTREAM["vllm/params.py"].replace("budget: int = 0", "budget: int = 1")
    write(tiny, {"vllm/params.py": params})
    assert main(["check", "--all", str(tiny)]) == 0
    printed = capsys.readouterr().out
    assert "drifted since vllm-tiny 1.0\nvllm/params.py  Params\n" in printed
    assert "--reviewed" in printed
    assert main(["check", "--json", str(tiny)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["drifted"] == [{"module": "vllm/params.py", "around": "Params"}]
    assert main(["lift", "1.0", "1.1"]) == 1
    assert main(["lift", "1.0", "1.1", "--reviewed"]) == 0


def test_lift_says_which_bases_there_are_and_takes_no_other_tree(tiny, capsys):
    assert main(["lift", "0.9", "1.1"]) == 1
    assert "give one of vllm-tiny==1.0" in capsys.readouterr().err
    assert main(["lift", "vllm-tiny==1.0", "1.2", str(tiny)]) == 1
    assert "is vllm-tiny 1.1, not vllm-tiny 1.2" in capsys.readouterr().err
