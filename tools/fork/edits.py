# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The edit language: what an edit file may say, and what it means.

``vllm/**/NAME.edit.py`` describes what the fork adds to ``vllm/**/NAME.py``. It
is valid Python that is read and never run. Its structure mirrors the target:
``class X:`` and ``def f():`` descend into the class or function of that name
(the signature is ignored, a docstring there explains the edit), and each
``with`` block names an anchor and holds what is added there::

    from tools.fork.edits import after_argument, after_field, after_parameter


    class SamplingParams:
        with after_field("top_p"):
            top_q: float = 1.0
            \"\"\"One more field.\"\"\"

        def from_optional():
            with after_parameter("top_p"):
                top_q: float = 1.0
            with after_argument("SamplingParams", "top_p"):
                top_q = top_q

The file's docstring says in three parts what it adds (a row of the README's
table), why, and when that goes (``Goes when ...``).

Anchors are names; the target's text is never quoted. An anchor must be found
exactly once. What already stands there unchanged is left alone, so that
applying twice equals applying once. Comments and blank lines in a body are
carried over, and its indentation follows the place. Blank lines at the start of
a body stand between the anchor and the body. Lines of a multi-line string move
with the body unless they start left of it.

Statements are named by what they do, and every criterion given must hold:

* ``assigns="self.x"``: an assignment to that name (``self.x[i] = ...`` too);
* ``calls="a.b"``: a simple statement that calls that name;
* ``tests="a.b"``: an ``if`` or ``while`` whose test mentions that name (an ``elif``
  too, where nothing goes before or after it);
* ``loops="x"``: a ``for`` whose target or iterable mentions that name;
* ``enters="x"``: a ``with`` whose items mention that name;
* ``raises="ValueError"``: a ``raise`` of that exception;
* ``returns="x"``: a ``return`` whose value mentions that name, ``returns=True``
  any ``return``.

They are sought in the function, class or module at hand, in its nested blocks
too, but not inside functions or classes defined there.

The fork stands on several bases at once: `since` and `until` say on which of them
a block holds. A class or function with no block that holds is not sought, and a
file with none needs no target.

The functions below do nothing; their signatures are the grammar.
"""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def since(version: str) -> Iterator[None]:
    """The body holds on that release of vLLM and later ones.

    The body may be anything an edit file may hold, and `since` may share the
    ``with`` of what it limits: ``with since("0.34.0"), at_end():``.
    """
    yield


@contextmanager
def until(version: str) -> Iterator[None]:
    """The body holds on releases of vLLM before that one.

    As `since` otherwise; together they make a range.
    """
    yield


@contextmanager
def after_import(module: str, *, in_type_checking: bool = False) -> Iterator[None]:
    """Add the import statements of the body after the import of ``module``.

    An import whose names the target already imports from the same module is
    left out. A blank line between two statements stays between them.

    Args:
        module: the module as written in ``from module import ...`` or
            ``import module`` (with leading dots where it is relative).
        in_type_checking: look inside ``if TYPE_CHECKING:`` instead.

    """
    yield


@contextmanager
def before_import(module: str, *, in_type_checking: bool = False) -> Iterator[None]:
    """Add the import statements of the body before the import of ``module``.

    As `after_import` otherwise.
    """
    yield


@contextmanager
def merge_import(*, in_type_checking: bool = False) -> Iterator[None]:
    """Add the names of the body's ``from M import A, B`` to the target's own.

    The target must import from the same module already; its names stay sorted
    and its layout (one line, or one name a line) stays as it is.
    """
    yield


@contextmanager
def after_field(name: str) -> Iterator[None]:
    """Add statements after the assignment of ``name`` in a class or module.

    A docstring that follows the assignment belongs to it.
    """
    yield


@contextmanager
def before_field(name: str) -> Iterator[None]:
    """Add statements before the assignment of ``name`` in a class or module.

    Comments directly above the assignment belong to it.
    """
    yield


@contextmanager
def after_def(name: str) -> Iterator[None]:
    """Add definitions after the function or class ``name``.

    One blank line separates them in a class, two in a module. Signatures marked
    ``@overload`` do not count as the definition.
    """
    yield


@contextmanager
def before_def(name: str) -> Iterator[None]:
    """Add definitions before the function or class ``name``.

    Decorators and comments directly above it belong to it.
    """
    yield


@contextmanager
def move_def(name: str, *, after_import: str) -> Iterator[None]:
    """Take the function or class ``name`` out of the module; another holds it.

    The body is the import that brings the name back, after the import of
    ``after_import`` (as in `after_import`). Imported names and plain assignments
    (``X = ...``) that nothing else mentions go with it.
    """
    yield


@contextmanager
def at_start() -> Iterator[None]:
    """Add statements at the start of the body, after its docstring."""
    yield


@contextmanager
def at_end() -> Iterator[None]:
    """Add statements at the end of the body of the module, class or function."""
    yield


@contextmanager
def after_parameter(name: str) -> Iterator[None]:
    """Add parameters after the parameter ``name`` of the function.

    The body holds ``x: T = default``, ``x: T`` or ``x = default``.
    """
    yield


@contextmanager
def after_argument(callee: str, keyword: str) -> Iterator[None]:
    """Add keyword arguments after ``keyword`` in the one call of ``callee``.

    The body holds ``name = value`` for each argument ``name=value``.
    """
    yield


@contextmanager
def after_formatted(expression: str) -> Iterator[None]:
    """Add f-strings after the part that formats ``expression``.

    The anchor is one part of an implicitly concatenated string; the body holds
    one string expression for each part to add.
    """
    yield


@contextmanager
def after_statement(
    *,
    assigns: str | None = None,
    calls: str | None = None,
    tests: str | None = None,
    loops: str | None = None,
    enters: str | None = None,
    raises: str | None = None,
    returns: str | bool | None = None,
) -> Iterator[None]:
    """Add statements after the statement named by the criteria."""
    yield


@contextmanager
def before_statement(
    *,
    assigns: str | None = None,
    calls: str | None = None,
    tests: str | None = None,
    loops: str | None = None,
    enters: str | None = None,
    raises: str | None = None,
    returns: str | bool | None = None,
) -> Iterator[None]:
    """Add statements before the statement named by the criteria.

    Comments directly above the statement belong to it.
    """
    yield


@contextmanager
def replace_statement(
    *,
    assigns: str | None = None,
    calls: str | None = None,
    tests: str | None = None,
    loops: str | None = None,
    enters: str | None = None,
    raises: str | None = None,
    returns: str | bool | None = None,
) -> Iterator[None]:
    """Put the body in the place of the statement named by the criteria.

    Comments above the statement stay. Use it only where an addition cannot say
    the same.
    """
    yield


@contextmanager
def bind_return(name: str) -> Iterator[None]:
    """Name the value of the function's one ``return`` and add statements to it.

    ``return value`` becomes ``name = value``, the body, and ``return name``.
    """
    yield


@contextmanager
def inside(
    *,
    orelse: bool = False,
    assigns: str | None = None,
    calls: str | None = None,
    tests: str | None = None,
    loops: str | None = None,
    enters: str | None = None,
    raises: str | None = None,
    returns: str | bool | None = None,
) -> Iterator[None]:
    """Look for the anchors of the body inside one compound statement.

    It may share the ``with`` of what it narrows:
    ``with inside(tests="x"), after_statement(calls="f"):``.

    Args:
        orelse: inside its ``else`` block instead of its body.
        assigns: see the module's docstring, as for the other criteria.
        calls: criterion.
        tests: criterion.
        loops: criterion.
        enters: criterion.
        raises: criterion.
        returns: criterion.

    """
    yield


@contextmanager
def and_condition(*, tests: str) -> Iterator[None]:
    """And the expression in the body to the test that mentions ``tests``."""
    yield


@contextmanager
def or_condition(*, tests: str) -> Iterator[None]:
    """Or the expression in the body to the test that mentions ``tests``."""
    yield
