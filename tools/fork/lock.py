# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the fork makes of each base, committed: hashes and line counts, no text.

A change of the fork shows there what it does to every base. The fingerprints say
how the classes and functions that the edits are made in stood (``survey``).
"""

import tomllib
from pathlib import Path

from tools.fork.base import Base, sha256
from tools.fork.survey import WorkList
from tools.fork.tree import Change

LOCKS = Path(__file__).with_name("locks")


def path_of(base: Base) -> Path:
    """The lock of a base."""
    return LOCKS / f"{base.distribution}-{base.version}.toml"


def fingerprints(base: Base) -> dict[str, dict[str, str]]:
    """The fingerprints in the lock of a base: module to definition to hash."""
    path = path_of(base)
    lock = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {module: entry.get("around", {}) for module, entry in lock.items()}


def text(changes: list[Change], work: WorkList) -> str:
    """The lock of a base.

    Args:
        changes: what the fork changes there.
        work: the work list of the base.

    """
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        f"# What the fork makes of {work.base}, by 'python -m tools.fork lock'.",
    ]
    for change in changes:
        lines += [
            "",
            f'["{change.path}"]',
            f'how = "{change.kind}"',
            f"added = {change.added}",
            f"removed = {change.removed}",
            f'sha256 = "{sha256(change.content)}"',
        ]
        if around := work.fingerprints.get(change.path):
            lines += ["", f'["{change.path}".around]']
            lines += [f'"{scope}" = "{digest}"' for scope, digest in around.items()]
    return "\n".join(lines) + "\n"
