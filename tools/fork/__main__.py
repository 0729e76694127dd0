# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Command line of the fork tools: ``python -m tools.fork --help``."""

import argparse
import sys
from collections import Counter
from pathlib import Path

from tools.fork import base
from tools.fork.errors import ForkError
from tools.fork.tree import Change, Tree


def _table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


def _states(changes: list[Change]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("file", "how", "lines")]
    for change in changes:
        if change.applied:
            size = "as it is"
        elif b"\0" in change.content:
            size = f"{len(change.content)} bytes"
        else:
            marks = Counter(
                line[0]
                for line in change.diff().splitlines()
                if line.startswith(("+", "-")) and not line.startswith(("+++", "---"))
            )
            size = f"+{marks['+']} -{marks['-']}"
        rows.append((change.path, change.kind, size))
    return rows


def check(args: argparse.Namespace) -> None:
    """Say what would change; every anchor is looked up, nothing is written."""
    tree = _tree(args)
    _table(_states(tree.changes(extras=args.tests)))
    print(f"Every anchor holds on {tree.base} in {tree.root}.")


def apply(args: argparse.Namespace) -> None:
    """Lay the fork over the tree."""
    tree = _tree(args)
    _table(_states(tree.apply(extras=args.tests, force=args.force)))
    print(f"The fork is laid over {tree.base} in {tree.root}.")


def revert(args: argparse.Namespace) -> None:
    """Take the fork off the tree, byte for byte."""
    tree = _tree(args)
    for path in tree.revert(force=args.force):
        print(path)
    print(f"{tree.base} in {tree.root} is as it was released.")


def diff(args: argparse.Namespace) -> None:
    """Print the fork as one unified diff against the tree."""
    for change in _tree(args).changes(extras=args.tests):
        if b"\0" in change.content:
            print(f"{change.path}: binary, not in the diff", file=sys.stderr)
        elif change.base != change.content:
            sys.stdout.write(change.diff())


def record(args: argparse.Namespace) -> None:
    """List the tree's modules that the fork replaces as compared, in bases.toml."""
    tree = _tree(args)
    hashes = tree.replaced()
    base.record_hashes(tree.base, hashes)
    _table([("module", f"SHA-256 in {tree.base}"), *hashes.items()])


def fetch(args: argparse.Namespace) -> None:
    """Fetch a base into the cache and print where it is."""
    found = base.base_for(args.device or base.target_device())
    if args.what == "sdist":
        print(base.fetch_sdist(base.base_for("cuda").version))
    else:
        print(base.fetch_wheel(found))


def _tree(args: argparse.Namespace) -> Tree:
    return Tree(args.tree, version=args.base)


def main(argv: list[str] | None = None) -> int:
    """Run a command; errors go to stderr with status 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fork",
        description="Lay this fork over a released vLLM, or export it.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (apply, check, diff, revert, record):
        doc = command.__doc__
        sub = commands.add_parser(command.__name__, help=doc, description=doc)
        sub.set_defaults(run=command)
        sub.add_argument(
            "tree",
            metavar="TREE",
            type=Path,
            nargs="?",
            help="an installed vLLM (the package or its site-packages), an unpacked "
            "wheel, a source checkout or an unpacked source distribution (default: "
            "the vLLM installed in this environment)",
        )
        sub.add_argument(
            "--base", metavar="VERSION", help="version of a checkout that has none"
        )
        if command in (apply, check, diff):
            sub.add_argument(
                "--tests",
                action="store_true",
                help="tests, docs, benchmarks, examples too (source checkouts only)",
            )
        if command in (apply, revert):
            sub.add_argument(
                "--force",
                action="store_true",
                help="overwrite files changed since the fork was laid",
            )
    sub = commands.add_parser("fetch", help=fetch.__doc__, description=fetch.__doc__)
    sub.set_defaults(run=fetch)
    sub.add_argument("what", choices=["wheel", "sdist"])
    sub.add_argument("--device", help="cpu or cuda (default: as the build chooses)")
    args = parser.parse_args(argv)
    try:
        args.run(args)
    except ForkError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
