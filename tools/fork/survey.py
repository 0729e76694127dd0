# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The work list of a base: how each anchor of the fork stands there, in one run.

An anchor

* ``holds``: it is found once, where the edit says;
* ``moved``: not there, but once elsewhere in the module;
* is ``gone``: neither; or the whole module is;
* is ``ambiguous``: it is found there more than once;
* is ``taken``: upstream has what the edit adds, or has the name for something else.

A module that the fork replaces holds while it is one that was compared, else it has
``changed``. A definition around an anchor that holds may still have drifted: then
its fingerprint is another than the one in the lock of an earlier base.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import libcst as cst
from packaging.version import Version

from tools.fork.base import Base, checked_hashes, known_bases, sha256
from tools.fork.errors import AmbiguousAnchor, Conflict, EditError, MissingAnchor
from tools.fork.planner import LIMITS, Planner, Request, Scope, Site
from tools.fork.source import Block, Definition, Source, descendants
from tools.fork.tree import Tree


@dataclass(frozen=True)
class Finding:
    """How one anchor stands.

    Attributes:
        file: the fork's file.
        line: the anchor's line there.
        scope: the class and function of the target it is sought in.
        anchor: the anchor as the edit writes it.
        state: see the module's docstring.
        detail: what to look at where it does not hold.

    """

    file: str
    line: int
    scope: str
    anchor: str
    state: str
    detail: str = ""


@dataclass
class WorkList:
    """What a base asks for.

    Attributes:
        base: the base.
        reference: the known base it is compared with, itself if it is known.
        findings: every anchor and every module that the fork replaces.
        fingerprints: upstream's module to class or function to its hash.

    """

    base: Base
    reference: Base
    findings: list[Finding] = field(default_factory=list)
    fingerprints: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def open(self) -> list[Finding]:
        """What does not hold."""
        return [f for f in self.findings if f.state != "holds"]

    def drifted(self, known: dict[str, dict[str, str]]) -> list[tuple[str, str]]:
        """Modules and definitions whose hashes are not the known ones.

        Args:
            known: the fingerprints of the base of reference.

        """
        return [
            (path, scope)
            for path, scopes in self.fingerprints.items()
            for scope, digest in scopes.items()
            if known.get(path, {}).get(scope, digest) != digest
        ]


def survey(tree: Tree, reference: Base) -> WorkList:
    """The work list of a tree, on a known base or not."""
    work = WorkList(tree.base, reference)
    for path, source in tree.fork.modules(tree.base.version):
        name = source.relative_to(tree.fork.root).as_posix()
        base = tree.base_content(path)
        if not name.endswith(".edit.py"):
            work.findings.append(_whole(path, base, source.read_bytes(), reference))
        elif base is None:
            detail = f"{tree.base} has no module {path}"
            work.findings.append(Finding(name, 1, "", path, "gone", detail))
        else:
            planner = Surveyor(
                Source(source.read_text(encoding="utf-8")),
                Source(base.decode()),
                name,
                str(tree.base),
                tree.base.version,
            )
            planner.survey()
            work.findings += planner.findings
            if planner.fingerprints:
                work.fingerprints[path] = planner.fingerprints
    return work


def _whole(path: str, base: bytes | None, ours: bytes, reference: Base) -> Finding:
    checked = checked_hashes(path)
    state, detail = "holds", ""
    if base is None and str(reference) in checked:
        state, detail = "gone", f"{reference} had it; limit it with until"
    elif base is not None and base == ours:
        state, detail = "taken", "upstream has the same module; limit it with until"
    elif base is not None and sha256(base) not in checked.values():
        compared = ", ".join(checked) or "none"
        state, detail = "changed", f"compare it with ours (compared: {compared})"
    return Finding(path, 1, "", path, state, detail)


def nearest(base: Base) -> Base:
    """The known base to compare with: itself, or the newest that is not newer."""
    known = known_bases()
    if str(base) in map(str, known):
        return base
    older = [b for b in known if Version(b.version) <= Version(base.version)]
    return max(older or known, key=lambda b: Version(b.version))


@dataclass
class Surveyor(Planner):
    """Judges every anchor of an edit file instead of stopping at the first error.

    Attributes:
        findings: how each anchor stands.
        fingerprints: class or function around an anchor to a hash of it; of a class
            without its methods, unless all of it moves.

    """

    findings: list[Finding] = field(default_factory=list)
    fingerprints: dict[str, str] = field(default_factory=dict)

    def survey(self) -> None:
        """Judge every anchor."""
        self._visit(self.edit.module, next(self._scopes()), ())

    def _visit(
        self, block: Block, scope: Scope | None, within: tuple[str, ...]
    ) -> None:
        for statement in filter(self.holds, block.body):
            match statement:
                case (
                    cst.FunctionDef(body=cst.IndentedBlock() as body)
                    | cst.ClassDef(body=cst.IndentedBlock() as body)
                ):
                    inner = self._enter(statement, scope, within)
                    self._visit(body, inner, (*within, statement.name.value))
                case cst.With(items=items, body=cst.IndentedBlock() as body):
                    self._narrow(items, body, scope, within)

    def _enter(
        self,
        statement: Definition,
        scope: Scope | None,
        within: tuple[str, ...],
    ) -> Scope | None:
        """The definition of the target that one of the edit means, if it is there."""
        kind = "class" if isinstance(statement, cst.ClassDef) else "def"
        name = statement.name.value
        inner, state, detail = None, "gone", ""
        try:
            found = self._definition(statement, scope) if scope else None
            if isinstance(found, AmbiguousAnchor):
                state, detail = "ambiguous", str(found)
            elif found is not None:
                inner, state = found, "holds"
        except MissingAnchor:
            pass
        if state == "gone":
            others = [
                (node, other)
                for other in self._scopes()
                for node in self.definitions(other, name)
                if isinstance(node, type(statement))
                and isinstance(node.body, cst.IndentedBlock)
            ]
            if len(others) == 1:
                node, other = others[0]
                assert isinstance(node.body, cst.IndentedBlock)
                inner, state = Scope(f"{kind} {name}", node.body, node), "moved"
                detail = f"now in {other.name}, line {self.target.line(node)}"
        self._note(self.edit.line(statement), within, f"{kind} {name}", state, detail)
        return inner

    def _narrow(
        self,
        items: Sequence[cst.WithItem],
        body: cst.IndentedBlock,
        scope: Scope | None,
        within: tuple[str, ...],
    ) -> None:
        for item in items:
            request = self._request(item.item, body)
            if request.primitive in LIMITS:
                continue
            site, state, detail = self._judge(request, scope)
            anchor = self.edit.code(item.item)
            self._note(self.edit.line(item.item), within, anchor, state, detail)
            if scope is not None and isinstance(scope.node, Definition):
                self.fingerprints[".".join(within)] = self._fingerprint(scope.node)
            if request.primitive == "move_def" and scope is not None:
                # What is taken out is compared whole.
                name = request.args["name"]
                for node in self.definitions(scope, name):
                    self.fingerprints[name] = _digest(self.target.code(node))
            if request.primitive != "inside":
                return
            scope = site.scope if site else None
        self._visit(body, scope, within)

    def _judge(
        self, request: Request, scope: Scope | None
    ) -> tuple[Site | None, str, str]:
        try:
            site = self._pick(request, scope) if scope else None
        except (Conflict, AmbiguousAnchor) as e:
            state = "taken" if isinstance(e, Conflict) else "ambiguous"
            return None, state, str(e).removeprefix(f"{request.label}: ")
        except MissingAnchor:
            site = None
        if site is not None:
            if site.scope is None and not site.splices:
                return site, "taken", "upstream has it already"
            return site, "holds", ""
        elsewhere: dict[int, tuple[Site, Scope]] = {}
        for other in self._scopes():
            # Not every primitive has a meaning in every scope.
            with suppress(EditError):
                for site in self._sites(request, other):
                    elsewhere.setdefault(site.start, (site, other))
        # Without an argument it names nothing that could be found again.
        if request.args and len(elsewhere) == 1:
            ((site, other),) = elsewhere.values()
            line = self.target.text.count("\n", 0, site.start) + 1
            return site, "moved", f"now in {other.name}, line {line}"
        return None, "gone", ""

    def _scopes(self) -> Iterator[Scope]:
        """The module and every class and function in it."""
        module = self.target.module
        yield Scope("the module", module, module)
        for node in descendants(module):
            if isinstance(node, Definition) and isinstance(
                node.body, cst.IndentedBlock
            ):
                kind = "class" if isinstance(node, cst.ClassDef) else "def"
                yield Scope(f"{kind} {node.name.value}", node.body, node)

    def _fingerprint(self, node: Definition) -> str:
        parts: Sequence[cst.CSTNode] = [node]
        if isinstance(node, cst.ClassDef):
            parts = [s for s in node.body.body if not isinstance(s, Definition)]
        return _digest("\n".join(map(self.target.code, parts)))

    def _note(
        self, line: int, within: tuple[str, ...], anchor: str, state: str, detail: str
    ) -> None:
        scope = ".".join(within)
        self.findings.append(Finding(self.path, line, scope, anchor, state, detail))


def _digest(code: str) -> str:
    return sha256(code.encode())[:16]
