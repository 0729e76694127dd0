# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Command line of the fork tools: ``python -m tools.fork --help``."""

import argparse
import json
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

from tools.fork import base, lock
from tools.fork.errors import ForkError
from tools.fork.survey import WorkList, nearest, survey
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
            size = f"+{change.added} -{change.removed}"
        rows.append((change.path, change.kind, size))
    return rows


def check(args: argparse.Namespace) -> int:
    """Say what would change; every anchor is looked up, nothing is written."""
    if args.all or args.json:
        tree = _tree(args, known=False)
        work = survey(tree, nearest(tree.base))
        _print_json(work) if args.json else _report(work)
        return int(bool(work.open))
    tree = _tree(args)
    _table(_states(tree.changes(extras=args.tests)))
    print(f"Every anchor holds on {tree.base} in {tree.root}.")
    return 0


def _print_json(work: WorkList) -> None:
    drifted = work.drifted(lock.fingerprints(work.reference))
    report = {
        "base": str(work.base),
        "compared_with": str(work.reference),
        "anchors": [asdict(finding) for finding in work.findings],
        "drifted": [{"module": module, "around": name} for module, name in drifted],
    }
    print(json.dumps(report, indent=1))


def _report(work: WorkList) -> None:
    """Print a work list, and what to do with it."""
    drifted = work.drifted(lock.fingerprints(work.reference))
    todo = []
    if work.open:
        rows = [
            (f"{f.file}:{f.line}", f.scope, f.anchor, f.state, f.detail)
            for f in work.open
        ]
        _table([("file", "in", "anchor", "state", "detail"), *rows])
        todo.append("make every anchor hold, or limit it with since or until")
    if any(f.state == "changed" for f in work.open):
        todo.append(
            "compare each module that changed with ours, and list it with "
            "'python -m tools.fork record TREE'"
        )
    if drifted:
        _table([("module", f"drifted since {work.reference}"), *drifted])
        todo.append("see whether the edits still say the right thing in what drifted")
    if work.base != work.reference:
        option = " --reviewed" if drifted else ""
        todo.append(
            f"record it with 'python -m tools.fork lift {work.reference.version} "
            f"{work.base.version}{option}'"
        )
    states = Counter(finding.state for finding in work.findings)
    total = ", ".join(f"{number} {state}" for state, number in states.items())
    print(f"{work.base} compared with {work.reference}: {total}.")
    for number, step in enumerate(todo, 1):
        print(f"{number}. {step}")


def write_lock(args: argparse.Namespace) -> int:
    """Write what the fork makes of each base, or say which locks are out of date."""
    stale = 0
    for known in {str(b): b for b in base.known_bases()}.values():
        with tempfile.TemporaryDirectory() as scratch:
            tree = Tree(base.unpack(known, Path(scratch)))
            new = lock.text(tree.changes(), survey(tree, known))
        path = lock.path_of(known)
        if not path.is_file() or path.read_text(encoding="utf-8") != new:
            stale += 1
            print(f"{path} {'is out of date' if args.check else 'written'}")
            if not args.check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(new, encoding="utf-8")
    return int(args.check and bool(stale))


def lift(args: argparse.Namespace) -> int:
    """Record a new base once everything holds there; else print the work list."""
    known = {
        b: replace(b, version=args.to)
        for b in base.known_bases()
        if args.source in (b.version, f"{b.distribution}=={b.version}")
    }
    if len({b.distribution for b in known}) != 1:
        names = {f"{b.distribution}=={b.version}": None for b in base.known_bases()}
        raise ForkError(
            f"FROM={args.source} names no single base; give one of {', '.join(names)}"
        )
    source, target = next(iter(known.items()))
    if str(target) in map(str, base.known_bases()):
        raise ForkError(f"{target} is a known base already")
    with tempfile.TemporaryDirectory() as scratch:
        tree = Tree(args.tree or base.unpack(target, Path(scratch)), known=False)
        if str(tree.base) != str(target):
            raise ForkError(f"{tree.root} is {tree.base}, not {target}")
        work = survey(tree, source)
        drifted = work.drifted(lock.fingerprints(source))
        if work.open or (drifted and not args.reviewed):
            _report(work)
            raise ForkError(f"{target} is not recorded; what to do first is above")
        before = base.BASES_FILE.read_bytes()
        base.record(target, tree.replaced(), known)
        try:
            text = lock.text(tree.changes(), work)
        except ForkError:
            base.BASES_FILE.write_bytes(before)
            raise
        lock.path_of(target).write_text(text, encoding="utf-8")
    print(f"{target} is recorded.")
    return 0


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
    tree = _tree(args, known=False)
    hashes = tree.replaced()
    base.record(tree.base, hashes)
    _table([("module", f"SHA-256 in {tree.base}"), *hashes.items()])


def fetch(args: argparse.Namespace) -> None:
    """Fetch a base into the cache and print where it is."""
    found = base.base_for(args.device or base.target_device())
    if args.what == "sdist":
        print(base.fetch_sdist(base.base_for("cuda").version))
    else:
        print(base.fetch_wheel(found))


def _tree(args: argparse.Namespace, *, known: bool = True) -> Tree:
    return Tree(args.tree, version=args.base, known=known)


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
        if command is check:
            sub.add_argument(
                "--all",
                action="store_true",
                help="do not stop at the first anchor that does not hold: print the "
                "work list, also of a base that is not known",
            )
            sub.add_argument(
                "--json", action="store_true", help="the whole work list, every anchor"
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
    doc = write_lock.__doc__
    sub = commands.add_parser("lock", help=doc, description=doc)
    sub.set_defaults(run=write_lock)
    sub.add_argument("--check", action="store_true", help="write nothing")
    sub = commands.add_parser("lift", help=lift.__doc__, description=lift.__doc__)
    sub.set_defaults(run=lift)
    sub.add_argument(
        "source", metavar="FROM", help="a known base: VERSION or DISTRIBUTION==VERSION"
    )
    sub.add_argument("to", metavar="TO", help="the version to record")
    sub.add_argument(
        "tree", metavar="TREE", type=Path, nargs="?", help="its tree (default: fetched)"
    )
    sub.add_argument(
        "--reviewed", action="store_true", help="what drifted was looked at"
    )
    args = parser.parse_args(argv)
    try:
        return args.run(args) or 0
    except ForkError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
