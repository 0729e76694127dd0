# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Makes the edits of an edit file in its target (the language: ``edits``)."""

import ast

# Registers the primitives with the planner.
from tools.fork import primitives  # noqa: F401
from tools.fork.errors import EditError
from tools.fork.planner import Planner
from tools.fork.source import Source


def holds(edit: str, *, path: str = "", version: str | None = None) -> bool:
    """Whether any part of an edit file holds on a base.

    Args:
        edit: text of the edit file.
        path: the edit file's path, for messages.
        version: the base's version.

    """
    source = Source(edit)
    return Planner(source, Source(""), path, version=version).holds(source.module)


def apply(
    edit: str,
    target: str,
    *,
    path: str = "",
    base: str = "",
    version: str | None = None,
) -> str:
    """The target with the edits made.

    Args:
        edit: text of the edit file.
        target: text of the module it applies to.
        path: the edit file's path, for messages.
        base: the target's base and version, for messages.
        version: the base's version, which ``since`` and ``until`` compare.

    Returns:
        The target's text; unchanged where everything stands there already.

    Raises:
        EditError: an anchor is missing, ambiguous or taken, or the edit file says
            what the language does not have.

    """
    source = Source(target)
    splices = Planner(Source(edit), source, path, base, version).plan()
    if not splices:
        return target
    result = source.splice(splices)
    try:
        ast.parse(result)
    except SyntaxError as e:
        raise EditError(f"{path}: the result is not valid Python: {e}") from e
    return result
