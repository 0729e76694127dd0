# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Fills the tables of the docs that follow from the sources.

``python -m tools.generated_docs`` writes them; with ``--check`` it says what is out
of date and exits with 1. The parser table needs the fork installed.
"""

import argparse
import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path

from packaging.version import Version

from tools import reasoning_exits
from tools.fork.base import known_bases
from tools.fork.tree import Fork

ROOT = Path(__file__).resolve().parents[1]


def modules() -> str:
    """The table of upstream modules: what the fork adds, from its docstrings."""
    fork, known = Fork(), sorted({base.version for base in known_bases()})
    held = {
        version: {target for target, _ in fork.modules(version)} for version in known
    }
    lines = [
        f"| Module | {' | '.join(known)} | What |",
        "|---|" + "---|" * len(known) + "---|",
    ]
    for target, source in fork.modules():
        how = "edit" if source.name.endswith(".edit.py") else "whole"
        docstring = ast.get_docstring(ast.parse(source.read_text())) or ""
        summary = docstring.split("\n\n")[0].replace("\n", " ")
        path = source.relative_to(ROOT).as_posix()
        where = " | ".join(how if target in held[v] else "" for v in known)
        lines.append(f"| [`{target}`]({path}) | {where} | {summary} |")
    return "\n".join(lines) + "\n"


def parsers(page: str) -> tuple[str, str]:
    """The table of reasoning parsers that the installed vLLM belongs to.

    Returns:
        The name of its section, and what it holds.

    """
    from vllm import __version__

    if Version(__version__).release < (0, 34):
        return "reasoning-exits", reasoning_exits.markdown()
    # What an earlier vLLM gives stands in the section before.
    known = section(page, "reasoning-exits")
    return "reasoning-exits-0.34.0", reasoning_exits.markdown(known)


SECTIONS: dict[str, Callable[[str], tuple[str, str]]] = {
    "README.md": lambda _: ("modules", modules()),
    "docs/features/reasoning_outputs.md": parsers,
}


def section(text: str, name: str) -> str:
    """What stands in the section of a name.

    Raises:
        ValueError: If the text has no such section.

    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    match = re.search(f"{re.escape(begin)}(.*?){re.escape(end)}", text, re.DOTALL)
    if match is None:
        raise ValueError(f"no section {begin.strip()} ... {end}")
    return match[1]


def filled(text: str, name: str, content: str) -> str:
    """The text with the section of a name replaced.

    Raises:
        ValueError: If the text has no such section.

    """
    begin = f"<!-- {name}: begin -->\n"
    return text.replace(begin + section(text, name), begin + content)


def main(argv: list[str] | None = None) -> int:
    """Write the sections, or say which are out of date."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args(argv)
    stale = []
    for path, generate in SECTIONS.items():
        text = (ROOT / path).read_text()
        new = filled(text, *generate(text))
        if new != text:
            stale.append(path)
            if not args.check:
                (ROOT / path).write_text(new)
    for path in stale:
        print(f"{path} {'is out of date' if args.check else 'written'}")
    return int(args.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
