# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The edit language: what each primitive adds, where, and what it refuses."""

import inspect
import re
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.fork import edits
from tools.fork.engine import apply, holds
from tools.fork.errors import AmbiguousAnchor, Conflict, EditError, MissingAnchor
from tools.fork.planner import FINDERS, LIMITS

TARGET = '''\
"""A module to edit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pantry import Flour, Sugar, weigh
from pantry.cold import (
    Butter,
    Milk,
)

if TYPE_CHECKING:
    from kitchen import Oven

MAX_TRAYS = 3
"""How many trays fit."""

# The default.
temperature: int = 180


class Cake:
    """A cake."""

    flour: int = 2
    """Cups."""
    sugar: int = 1  # cups

    # Whether it is done.
    baked: bool = False

    @staticmethod
    def mix(flour: int, sugar: int = 1, *, milk=0) -> "Cake":
        """Mix."""
        return Cake(flour=flour, sugar=sugar)

    def bake(
        self,
        oven: "Oven",
        minutes: int = 40,  # at 180
        fan: bool = False,
    ) -> None:
        if oven.hot and not self.baked:
            oven.put(self)
            # Wait for it.
            oven.wait(
                minutes=minutes,
                fan=fan,
            )
            self.baked = True
        elif oven.broken or fan:
            raise RuntimeError("no oven")
        else:
            oven.heat(temperature)
        for tray in oven.trays:
            tray.clean()

    def __repr__(self) -> str:
        return (
            f"Cake(flour={self.flour}, "
            f"sugar={self.sugar}, "
            f"baked={self.baked})"
        )


def slices(cake, guests):
    with cake.knife() as knife:
        knife.cut(guests)
    return [cake] * guests
'''

CASES = {
    "after_import puts an import below another": (
        """
        with after_import("typing"):
            import spoon
        """,
        "from typing import TYPE_CHECKING, Any\n+import spoon\n",
    ),
    "after_import keeps the blank lines between its statements": (
        """
        with after_import("typing"):
            from zoneinfo import ZoneInfo

            import spoon

            # Sharp.
            import knife
        """,
        "from typing import TYPE_CHECKING, Any\n+from zoneinfo import ZoneInfo\n+\n"
        "+import spoon\n+\n+# Sharp.\n+import knife\n\nfrom pantry import",
    ),
    "before_import puts an import above another": (
        """
        with before_import("pantry"):
            import oven_glove
            import spoon
        """,
        "Any\n\n+import oven_glove\n+import spoon\nfrom pantry import Flour",
    ),
    "after_import looks under TYPE_CHECKING when told to": (
        """
        with after_import("kitchen", in_type_checking=True):
            from kitchen.tools import Whisk
        """,
        "    from kitchen import Oven\n+    from kitchen.tools import Whisk\n",
    ),
    "merge_import keeps names sorted in one line": (
        """
        with merge_import():
            from pantry import Salt, sift
        """,
        "\n-from pantry import Flour, Sugar, weigh\n"
        "+from pantry import Flour, Salt, Sugar, sift, weigh\n",
    ),
    "merge_import keeps one name a line": (
        """
        with merge_import():
            from pantry.cold import Cream, Yoghurt
        """,
        "    Butter,\n+    Cream,\n    Milk,\n+    Yoghurt,\n)\n",
    ),
    "merge_import lays out a line that grows too long": (
        """
        with merge_import():
            from pantry import BitterChocolate, VanillaEssence, candied_orange_peel
        """,
        "\n-from pantry import Flour, Sugar, weigh\n"
        "+from pantry import (\n+    BitterChocolate,\n+    Flour,\n+    Sugar,\n"
        "+    VanillaEssence,\n+    candied_orange_peel,\n+    weigh,\n+)\n",
    ),
    "after_field comes after the field's docstring": (
        '''
        class Cake:
            with after_field("flour"):
                eggs: int = 3
                """How many
                eggs."""
        ''',
        '    """Cups."""\n+    eggs: int = 3\n+    """How many\n+    eggs."""\n'
        "    sugar: int = 1  # cups\n",
    ),
    "after_field keeps the comment on the field's line": (
        """
        class Cake:
            with after_field("sugar"):
                salt: int = 0
        """,
        "    sugar: int = 1  # cups\n+    salt: int = 0\n\n",
    ),
    "before_field comes before the field's comment": (
        """
        class Cake:
            with before_field("baked"):

                # Always.
                tasty: bool = True
        """,
        "+    # Always.\n+    tasty: bool = True\n+\n    # Whether it is done.\n",
    ),
    "after_field sets a definition in a module off": (
        """
        with after_field("temperature"):

            def trays():
                return MAX_TRAYS

            LIMIT = trays()
        """,
        "temperature: int = 180\n+\n+\n+def trays():\n+    return MAX_TRAYS\n+\n+\n"
        "+LIMIT = trays()\n\n\nclass Cake:\n",
    ),
    "after_def adds a method": (
        """
        class Cake:
            with after_def("mix"):

                @property
                def raw(self) -> bool:
                    return not self.baked
        """,
        "        return Cake(flour=flour, sugar=sugar)\n+\n+    @property\n"
        "+    def raw(self) -> bool:\n+        return not self.baked\n\n"
        "    def bake(\n",
    ),
    "after_def adds a function at the end of a module": (
        """
        with after_def("slices"):
            def crumbs(cake): ...
        """,
        "    return [cake] * guests\n+\n+\n+def crumbs(cake): ...\n",
    ),
    "before_def comes before the decorators": (
        """
        class Cake:
            with before_def("mix"):
                def smell(self):
                    # Good.
                    return 1
        """,
        "+    def smell(self):\n+        # Good.\n+        return 1\n+\n"
        "    @staticmethod\n    def mix",
    ),
    "at_start comes after the docstring": (
        """
        class Cake:
            def mix():
                with at_start():
                    sugar += 1
        """,
        '        """Mix."""\n+        sugar += 1\n        return Cake',
    ),
    "at_start comes first where there is no docstring": (
        """
        class Cake:
            def bake():
                with at_start():
                    # First.
                    minutes = max(minutes, 1)
        """,
        "    ) -> None:\n+        # First.\n+        minutes = max(minutes, 1)\n"
        "        if oven.hot",
    ),
    "at_end closes a function": (
        """
        class Cake:
            def bake():
                with at_end():
                    oven.off()
        """,
        "            tray.clean()\n+        oven.off()\n\n    def __repr__",
    ),
    "after_parameter in one line": (
        """
        class Cake:
            def mix():
                with after_parameter("sugar"):
                    salt: int = 0
        """,
        None,
        ("sugar: int = 1, *,", "sugar: int = 1, salt: int = 0, *,"),
    ),
    "after_parameter keeps a comment with its parameter": (
        """
        class Cake:
            def bake():
                with after_parameter("minutes"):
                    # In cups.
                    water: int | None = None
        """,
        "        minutes: int = 40,  # at 180\n+        # In cups.\n"
        "+        water: int | None = None,\n        fan: bool = False,\n",
    ),
    "after_parameter after the last one": (
        """
        class Cake:
            def bake():
                with after_parameter("fan"):
                    grill: bool = False
                    light: bool = True
        """,
        "        fan: bool = False,\n+        grill: bool = False,\n"
        "+        light: bool = True,\n    ) -> None:\n",
    ),
    "after_argument in one line": (
        """
        class Cake:
            def mix():
                with after_argument("Cake", "sugar"):
                    milk = milk
        """,
        None,
        ("sugar=sugar)", "sugar=sugar, milk=milk)"),
    ),
    "after_argument with one argument a line": (
        """
        class Cake:
            def bake():
                with after_argument("oven.wait", "minutes"):
                    # Never more.
                    limit = max(
                        minutes,
                        60,
                    )
        """,
        "                minutes=minutes,\n+                # Never more.\n"
        "+                limit=max(\n+                    minutes,\n"
        "+                    60,\n+                ),\n                fan=fan,\n",
    ),
    "after_formatted adds a part": (
        """
        class Cake:
            def __repr__():
                with after_formatted("self.sugar"):
                    f"salt={self.salt}, "
        """,
        '            f"sugar={self.sugar}, "\n+            f"salt={self.salt}, "\n',
    ),
    "after_statement by assigns, in a nested block": (
        """
        class Cake:
            def bake():
                with after_statement(assigns="self.baked"):

                    self.cool()
        """,
        "            self.baked = True\n+\n+            self.cool()\n        elif",
    ),
    "before_statement by calls comes before the comment": (
        """
        class Cake:
            def bake():
                with before_statement(calls="oven.wait"):
                    print(minutes)
        """,
        "+            print(minutes)\n            # Wait for it.\n",
    ),
    "after_statement by tests comes after the whole if": (
        """
        class Cake:
            def bake():
                with after_statement(tests="oven.hot"):
                    if oven.dirty:
                        oven.clean()
        """,
        "            oven.heat(temperature)\n+        if oven.dirty:\n"
        "+            oven.clean()\n        for tray",
    ),
    "after_statement by loops": (
        """
        class Cake:
            def bake():
                with after_statement(loops="oven.trays"):
                    done()
        """,
        "            tray.clean()\n+        done()\n",
    ),
    "before_statement by enters": (
        """
        def slices():
            with before_statement(enters="cake.knife"):
                assert guests
        """,
        "+    assert guests\n    with cake.knife",
    ),
    "before_statement by returns": (
        """
        def slices():
            with before_statement(returns=True):
                guests += 1
        """,
        "        knife.cut(guests)\n+    guests += 1\n    return",
    ),
    "before_statement by raises": (
        """
        class Cake:
            def bake():
                with before_statement(raises="RuntimeError"):
                    oven.call_help()
        """,
        "+            oven.call_help()\n            raise RuntimeError",
    ),
    "inside narrows to a block": (
        """
        def slices():
            with inside(enters="cake.knife"), at_end():
                knife.wash()
        """,
        "        knife.cut(guests)\n+        knife.wash()\n",
    ),
    "inside reaches the else of a chain": (
        """
        class Cake:
            def bake():
                with inside(tests="oven.broken", orelse=True):
                    with after_statement(calls="oven.heat"):
                        oven.ring()
        """,
        "            oven.heat(temperature)\n+            oven.ring()\n",
    ),
    "replace_statement": (
        """
        class Cake:
            def bake():
                with replace_statement(calls="oven.put"):
                    oven.put(self, fan)
                    oven.close()
        """,
        "-            oven.put(self)\n+            oven.put(self, fan)\n"
        "+            oven.close()\n            # Wait",
    ),
    "bind_return": (
        """
        def slices():
            with bind_return("pieces"):
                # One for the cook.
                pieces.pop()
        """,
        "-    return [cake] * guests\n+    pieces = [cake] * guests\n"
        "+    # One for the cook.\n+    pieces.pop()\n+    return pieces\n",
    ),
    "and_condition joins a conjunction": (
        """
        class Cake:
            def bake():
                with and_condition(tests="oven.hot"):
                    oven.empty or fan
        """,
        None,
        ("not self.baked:", "not self.baked and (oven.empty or fan):"),
    ),
    "and_condition gives each operand a line where one is too short": (
        """
        class Cake:
            def bake():
                with and_condition(tests="oven.hot"):
                    oven.thermometer.temperature > self.recipe.lowest_temperature
        """,
        "-        if oven.hot and not self.baked:\n"
        "+        if (\n+            oven.hot\n+            and not self.baked\n"
        "+            and oven.thermometer.temperature > "
        "self.recipe.lowest_temperature\n+        ):\n",
    ),
    "and_condition puts parentheses around a disjunction": (
        """
        class Cake:
            def bake():
                with and_condition(tests="oven.broken"):
                    minutes
        """,
        None,
        ("elif oven.broken or fan:", "elif (oven.broken or fan) and minutes:"),
    ),
    "or_condition joins a disjunction": (
        """
        class Cake:
            def bake():
                with or_condition(tests="oven.broken"):
                    oven.cold
        """,
        None,
        ("oven.broken or fan:", "oven.broken or fan or oven.cold:"),
    ),
    "move_def takes a definition out and imports it": (
        """
        with move_def("slices", after_import="os"):
            import cutlery
            from cakes import slices
        """,
        None,
        ("import os\n", "import os\nimport cutlery\nfrom cakes import slices\n"),
        (TARGET[TARGET.index("\n\ndef slices") :], ""),
    ),
    "move_def takes along what only the definition mentioned": (
        """
        with move_def("Cake", after_import="os"):
            from cakes import Cake
        """,
        None,
        ("import os\n", "import os\nfrom cakes import Cake\n"),
        ("import TYPE_CHECKING, Any", "import Any"),
        ("\nif TYPE_CHECKING:\n    from kitchen import Oven\n", ""),
        (TARGET[TARGET.index("\n\nclass Cake") : TARGET.index("\n\ndef slices")], ""),
    ),
}


def _edit(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def _expected(case: tuple) -> str:
    """The target with the lines marked + added and those marked - gone."""
    if case[1] is None:
        expected = TARGET
        for old, new in case[2:]:
            assert TARGET.count(old) == 1
            expected = expected.replace(old, new)
        return expected
    lines = case[1].splitlines(keepends=True)
    old = "".join(line.removeprefix("-") for line in lines if line[0] != "+")
    new = "".join(line.removeprefix("+") for line in lines if line[0] != "-")
    assert TARGET.count(old) == 1
    return TARGET.replace(old, new)


@pytest.mark.parametrize("name", CASES)
def test_a_primitive_changes_what_it_says_and_nothing_else(name):
    case = CASES[name]
    assert apply(_edit(case[0]), TARGET) == _expected(case)


@pytest.mark.parametrize("name", CASES)
def test_applying_twice_equals_applying_once(name):
    edit = _edit(CASES[name][0])
    once = apply(edit, TARGET)
    assert once != TARGET
    assert apply(edit, once) == once


@pytest.mark.parametrize("name", CASES)
def test_newlines_of_the_target_are_kept(name):
    edit = _edit(CASES[name][0])
    crlf = apply(edit, TARGET.replace("\n", "\r\n"))
    assert crlf == apply(edit, TARGET).replace("\n", "\r\n")


def test_every_primitive_has_a_case():
    used = {name for name in FINDERS if any(f"{name}(" in c[0] for c in CASES.values())}
    assert used == set(FINDERS)


def test_every_primitive_is_documented_under_its_name():
    documented = {
        name
        for name, value in vars(edits).items()
        if inspect.isfunction(value) and value.__module__ == edits.__name__
    }
    assert documented == {*FINDERS, *LIMITS}
    assert all(getattr(edits, name).__doc__ for name in documented)


RANGES = {
    "since includes its release": ('since("1.2")', {"1.1.9": 0, "1.2": 1, "1.2.0": 1}),
    "until excludes its release": ('until("1.2")', {"1.1.9": 1, "1.2": 0, "2.0": 0}),
    "together they make a range": (
        'since("1.2"), until("1.10")',
        {"1.1": 0, "1.2": 1, "1.9": 1, "1.10": 0},
    ),
    "a build for a device and a pre-release count as the release": (
        'since("1.2")',
        {"1.2+cpu": 1, "1.2rc1": 1, "1.1+cpu": 0},
    ),
}


@pytest.mark.parametrize("name", RANGES)
def test_a_limited_block_holds_on_the_bases_in_its_range(name):
    limits, outcomes = RANGES[name]
    edit = f'with {limits}, after_field("temperature"):\n    humidity = 1\n'
    edited = TARGET.replace("int = 180\n", "int = 180\nhumidity = 1\n")
    for version, is_in_range in outcomes.items():
        assert holds(edit, version=version) == is_in_range
        result = apply(edit, TARGET, version=version)
        assert result == (edited if is_in_range else TARGET)
        assert apply(edit, result, version=version) == result


@pytest.mark.parametrize(
    "edit",
    [
        "class Cake:\n    def bake():\n        with {}, at_end():\n"
        "            oven.off()\n",
        "with {}:\n    class Cake:\n        def bake():\n            with at_end():\n"
        "                oven.off()\n",
        "class Cake:\n    with {}:\n        def bake():\n            with at_end():\n"
        "                oven.off()\n",
    ],
)
def test_a_limit_may_stand_at_any_depth(edit):
    edited = TARGET.replace("tray.clean()\n", "tray.clean()\n        oven.off()\n")
    assert apply(edit.format('since("2")'), TARGET, version="2") == edited
    assert apply(edit.format('since("2")'), TARGET, version="1") == TARGET


@pytest.mark.parametrize(
    "edit",
    [
        'with since("2"):\n    class Pie:\n        with at_end():\n            x = 1\n',
        'class Pie:\n    with since("2"), at_end():\n        x = 1\n',
        "class Pie:\n    def eat():\n"
        '        with inside(tests="x"):\n'
        '            with since("2"), after_statement(calls="f"):\n'
        "                x = 1\n",
    ],
)
def test_an_anchor_is_not_sought_for_blocks_that_do_not_hold(edit):
    assert not holds(edit, version="1")
    assert apply(edit, TARGET, version="1") == TARGET
    with pytest.raises(MissingAnchor, match="class Pie"):
        apply(edit, TARGET, version="2")


def test_a_file_holds_where_one_of_its_blocks_does():
    edit = (
        'with since("2"), after_import("os"):\n    import spoon\n'
        'with until("1"), after_import("os"):\n    import fork\n'
    )
    found = {version: holds(edit, version=version) for version in ("0.9", "1", "2")}
    assert found == {"0.9": True, "1": False, "2": True}


def test_a_limit_needs_versions():
    edit = 'with since("{}"), after_import("os"):\n    import spoon\n'
    with pytest.raises(EditError, match="version of the base is not known"):
        apply(edit.format("1"), TARGET)
    with pytest.raises(EditError, match="newest"):
        apply(edit.format("newest"), TARGET, version="1")


def test_an_edit_may_add_its_own_anchor_again_and_still_apply_once():
    edit = _edit(
        """
        class Cake:
            def bake():
                with after_statement(calls="oven.put"):
                    oven.put(self)
                with before_statement(tests="oven.hot"):
                    if oven.hot:
                        self.baked = False
                with after_statement(assigns="self.baked"):
                    print("done")
        """
    )
    once = apply(edit, TARGET)
    assert once.count("oven.put(self)") == 2
    assert apply(edit, once) == once


def test_an_addition_may_look_like_the_block_it_stands_in():
    edit = _edit(
        """
        def slices():
            with inside(enters="cake.knife"), after_statement(calls="knife.cut"):
                with cake.knife() as second:
                    second.cut(guests)
        """
    )
    once = apply(edit, TARGET)
    assert once.count("with cake.knife()") == 2
    assert apply(edit, once) == once


def test_the_end_of_a_method_and_the_place_after_it_are_two_places():
    edit = _edit(
        """
        class Cake:
            with after_def("bake"):
                def eat(self): ...

            def bake():
                with at_end():
                    oven.off()
        """
    )
    once = apply(edit, TARGET)
    assert "        oven.off()\n\n    def eat(self): ...\n\n    def __repr__" in once
    assert apply(edit, once) == once


def test_an_import_that_the_target_has_already_is_no_change():
    edit = 'with after_import("os"):\n    from typing import Any\n'
    assert apply(edit, TARGET) == TARGET
    edit = "with merge_import():\n    from pantry import Sugar\n"
    assert apply(edit, TARGET) == TARGET


@pytest.mark.parametrize(
    ("names", "mentioned", "left"),
    [
        ("import a, b, c", "a", "import b, c"),
        ("import a, b, c", "b", "import a, c"),
        ("import a, b, c", "c", "import a, b"),
        ("import a, b, c", "a, b", "import c"),
        ("import a, b, c", "b, c", "import a"),
        ("import a, b, c", "a, b, c", ""),
        ("import a.b, x as y", "a", "import x as y"),
        ("import a.b, x as y", "y", "import a.b"),
        ("from m import (\n    a,\n    b,\n)", "a", "from m import (\n    b,\n)"),
        ("from m import (\n    a,\n    b,\n)", "b", "from m import (\n    a,\n)"),
        ("_x = 1\n_y = 2", "_x", "_y = 2"),
        ("import a", "a  # see b.py", ""),
    ],
)
def test_names_that_only_a_moved_definition_mentions_go_with_it(names, mentioned, left):
    edit = 'with move_def("f", after_import="os"):\n    from g import f\n'
    target = "import os\n{}\n\n\ndef f():\n    return {}\n\n\nf()\n"
    once = apply(edit, target.format(names, mentioned))
    assert once == f"import os\nfrom g import f\n{left}\n\n\nf()\n".replace(
        "\n\n\n\n", "\n\n\n"
    )
    assert apply(edit, once) == once


def test_names_that_others_mention_or_nothing_did_stay_behind_a_moved_definition():
    edit = 'with move_def("f", after_import="os"):\n    from g import f\n'
    target = (
        "import os\nimport shared\nimport unused\n\nx = 1\n\n\n"
        "def f():\n    return shared, x\n\n\nprint(f(), 'x', shared)\n"
    )
    moved = apply(edit, target)
    assert "import shared\nimport unused\n\nx = 1\n\n\nprint(" in moved


def test_a_definition_beside_the_import_that_moved_it_is_taken_out_again():
    edit = 'with move_def("f", after_import="os"):\n    from g import f\n'
    moved = apply(edit, "import os\n\n\ndef f(): ...\n\n\nf()\n")
    assert apply(edit, moved + "\n\ndef f(): ...\n") == moved


def test_lines_of_a_string_left_of_the_body_stay_where_they_are():
    edit = (
        "class Cake:\n    def bake():\n        with at_end():\n"
        '            print("""\nas it is\n            moves""")\n'
    )
    assert 'print("""\nas it is\n        moves""")\n' in apply(edit, TARGET)


def test_overloads_are_not_the_definition():
    target = (
        "@overload\ndef f(a: int): ...\n@overload\ndef f(a: str): ...\n"
        "def f(a):\n    pass\n"
    )
    edit = 'with after_def("f"):\n    def g(): ...\n'
    assert apply(edit, target) == target + "\n\ndef g(): ...\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_statement_between_imports_and_a_definition_has_one_blank_line_above(newline):
    imports, definition = "import os\n", "\n\nclass Cake:\n    pass\n"
    edit = 'with before_def("Cake"):\n    {}\n'

    def applied(added: str, target: str) -> str:
        target = target.replace("\n", newline)
        once = apply(edit.format(added), target)
        assert apply(edit.format(added), once) == once
        return once.replace(newline, "\n")

    added = "size = 3"
    assert applied(added, imports + definition) == f"{imports}\n{added}\n{definition}"
    # What else stands there keeps its distance.
    for above in ("x = 1\n", f"{imports}\n\nx = 1\n"):
        assert applied(added, above + definition) == f"{above}\n\n{added}\n{definition}"
    function = "def f(): ..."
    assert (
        applied(function, imports + definition)
        == f"{imports}\n\n{function}\n{definition}"
    )


MISSING = {
    'with after_import("fridge"):\n    import ice\n': "after_import",
    "with merge_import():\n    from fridge import ice\n": "merge_import",
    "class Pie:\n    pass\n": "class Pie",
    "class Cake:\n    def slice():\n        pass\n": "def slice",
    'class Cake:\n    with after_field("eggs"):\n        x: int\n': "after_field",
    'with before_def("eat"):\n    def f(): ...\n': "before_def",
    'with move_def("eat", after_import="os"):\n    from m import eat\n': "move_def",
    'with move_def("Cake", after_import="m"):\n    from m import Cake\n': "move_def",
    'def slices():\n    with after_parameter("plates"):\n        x = 1\n': "plates",
    'def slices():\n    with after_argument("knife.cut", "n"):\n        x = 1\n': "n",
    'def slices():\n    with after_formatted("cake"):\n        "x"\n': "cake",
    'def slices():\n    with inside(tests="x"), at_end():\n        x = 1\n': "inside",
}


@pytest.mark.parametrize("edit", MISSING)
def test_a_missing_anchor_names_file_line_anchor_and_base(edit):
    with pytest.raises(MissingAnchor) as e:
        apply(edit, TARGET, path="vllm/cake.edit.py", base="vllm 9.9.9")
    line = next(i for i, t in enumerate(edit.splitlines(), 1) if MISSING[edit] in t)
    assert str(e.value).startswith(f"vllm/cake.edit.py:{line}: ")
    assert MISSING[edit] in str(e.value)
    assert "not found" in str(e.value) and "vllm 9.9.9" in str(e.value)


AMBIGUOUS = {
    "if oven": 'with inside(tests="oven"), at_end():\n            x = 1\n',
    "oven.": 'with before_statement(calls="oven.wait"):\n            x = 1\n',
    "oven.clean": 'with after_formatted("oven.clean"):\n            "x"\n',
}


@pytest.mark.parametrize("edit", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_an_ambiguous_anchor_tells_its_lines(edit):
    target = TARGET.replace(
        "            oven.heat(temperature)\n",
        "            oven.wait(1)\n"
        '            print(f"{oven.clean}" f"")\n'
        '            print(f"{oven.clean}" f"")\n',
    )
    with pytest.raises(AmbiguousAnchor) as e:
        apply(
            f"class Cake:\n    def bake():\n        {edit}",
            target,
            path="vllm/cake.edit.py",
            base="vllm 9.9.9",
        )
    numbers = [int(n) for n in re.findall(r"lines (\d+), (\d+)", str(e.value))[0]]
    found = [target.splitlines()[n - 1] for n in numbers]
    assert len(found) == 2 and all("oven" in line for line in found)
    assert str(e.value).startswith("vllm/cake.edit.py:3: ")
    assert "found 2 times" in str(e.value) and "vllm 9.9.9" in str(e.value)


@pytest.mark.parametrize(
    "edit",
    [
        'class Cake:\n    with after_field("flour"):\n        sugar: int = 9\n',
        'class Cake:\n    with after_def("mix"):\n        def bake(self): ...\n',
        'with after_def("slices"):\n    temperature = 9\n',
        'with after_import("os"):\n    from spices import Any\n',
        "with merge_import():\n    from pantry import Butter\n",
        'class Cake:\n    def mix():\n        with after_parameter("flour"):\n'
        "            milk: int = 2\n",
        'class Cake:\n    def mix():\n        with after_argument("Cake", "sugar"):\n'
        "            flour = 2\n",
        'def slices():\n    with bind_return("knife"):\n        knife.wash()\n',
        'with move_def("Cake", after_import="os"):\n'
        "    from m import Cake\n    from m import weigh\n",
    ],
)
def test_what_is_there_with_other_content_is_a_conflict(edit):
    with pytest.raises(Conflict, match=r"vllm 9\.9\.9") as e:
        apply(edit, TARGET, path="vllm/cake.edit.py", base="vllm 9.9.9")
    assert str(e.value).startswith("vllm/cake.edit.py:")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("x = 1\n", "outside a primitive"),
        ("with after_dinner():\n    x = 1\n", "not a primitive"),
        ("with after_field():\n    x = 1\n", "missing a required argument"),
        ("with after_field(name):\n    x = 1\n", "malformed"),
        ("with after_statement():\n    x = 1\n", "give one or more of assigns"),
        ('with after_parameter("a"):\n    x = 1\n', "directly in a function"),
        ('with after_import("os"):\n    x = 1\n', "import statements only"),
        (
            'def slices():\n    with after_argument("a", "b"):\n        f()\n',
            "name = value",
        ),
        ('with bind_return("a"):\n    x = 1\n', "belongs in a function"),
        (
            'with move_def("Cake", after_import="os"):\n    from m import Pie\n',
            "does not import Cake",
        ),
        (
            'class Cake:\n    with move_def("mix", after_import="os"):\n'
            "        from m import mix\n",
            "belongs in the module",
        ),
        (
            'with after_field("MAX_TRAYS"):\n    x = 1\n'
            'with after_field("MAX_TRAYS"):\n    y = 1\n',
            "two edits change the same place",
        ),
    ],
)
def test_what_the_language_does_not_have_is_refused(edit, message):
    with pytest.raises(EditError, match=message):
        apply(edit, TARGET, path="vllm/cake.edit.py")


NAMES = st.lists(
    st.sampled_from(["alpha", "beta", "gamma", "delta"]), min_size=1, unique=True
)
NOISE = st.text(alphabet=" \t#'()é→", max_size=12)


@settings(max_examples=60, deadline=None)
@given(names=NAMES, noise=NOISE, blank=st.integers(0, 2), data=st.data())
def test_every_character_that_is_not_added_stays(names, noise, blank, data):
    comment = f"    # {noise}\n"
    fields = [
        f"    {name}: str = {noise!r}  #{noise}\n" + "\n" * blank for name in names
    ]
    target = "class Box:\n" + comment + comment.join(fields) + f"\n# {noise}"
    anchor = data.draw(st.sampled_from(names))
    edit = f'class Box:\n    with after_field("{anchor}"):\n        omega: int = 1\n'
    result = apply(edit, target)
    added = "    omega: int = 1\n"
    assert result.count(added) == 1
    assert result.replace(added, "") == target
    assert apply(edit, result) == result
