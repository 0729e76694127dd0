# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reads an edit file and finds the place of each of its requests in the target.

What a primitive looks for and adds is in ``primitives``; here is what all share:
scopes, the choice of the one site, what stands there already, and the errors.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import libcst as cst
from packaging.version import InvalidVersion, Version

from tools.fork import edits
from tools.fork.errors import AmbiguousAnchor, Conflict, EditError, MissingAnchor
from tools.fork.source import (
    Block,
    Definition,
    Line,
    Source,
    Splice,
    Statement,
    defined,
    dotted,
    import_module,
    is_docstring,
    statements_of,
)

CRITERIA = ("assigns", "calls", "tests", "loops", "enters", "raises", "returns")
"""The keywords that name a statement; ``edits`` says what each means."""

LIMITS = ("since", "until")
"""The primitives that say on which bases a block holds."""

_OVERLOADS = {"overload", "typing.overload", "t.overload"}


@dataclass(frozen=True)
class Scope:
    """Where anchors are sought: a module, class, function or inner block."""

    name: str
    block: Block
    node: cst.CSTNode


@dataclass(frozen=True)
class Site:
    """One place where an anchor holds, and what to do there.

    Attributes:
        start: offset of the anchor, which orders and identifies the sites.
        splices: the changes; empty where they stand there already.
        stands: the stretch of text that holds what was added, if it stands there.
        scope: what ``inside`` narrows to.

    """

    start: int
    splices: tuple[Splice, ...] = ()
    stands: tuple[int, int] | None = None
    scope: Scope | None = None


@dataclass(frozen=True)
class Request:
    """One ``with`` block of an edit file, its arguments and its body."""

    primitive: str
    args: dict[str, Any]
    block: cst.IndentedBlock
    edit: Source
    label: str

    def body(self, scope: Scope) -> list[Line]:
        """The lines to add to a scope.

        In a module two blank lines set a definition off, of which a formatter
        leaves one inside a ``with`` block.
        """
        lines = self.edit.lines_of(self.block)
        if not isinstance(scope.block, cst.Module):
            return lines
        begin = self.edit.block_span(self.block)[0]
        set_off = {
            self.edit.text.count("\n", begin, self.edit.extent(statement)[0])
            for before, statement in zip(
                [None, *self.statements], self.statements, strict=False
            )
            if isinstance(before, Definition) or isinstance(statement, Definition)
        }
        spaced: list[Line] = []
        for number, line in enumerate(lines):
            if number in set_off:
                while spaced and not spaced[-1].text.strip():
                    spaced.pop()
                spaced += [Line(True, "")] * 2
            spaced.append(line)
        return spaced

    @property
    def statements(self) -> list[Statement]:
        """The statements to add."""
        return [s for s in self.block.body if isinstance(s, Statement)]

    @property
    def criteria(self) -> dict[str, Any]:
        """The arguments that name a statement."""
        return {k: v for k, v in self.args.items() if k in CRITERIA and v is not None}

    def fail(self, kind: type[EditError], message: str) -> EditError:
        """An error of a kind that begins with where the request stands."""
        return kind(f"{self.label}: {message}")


def in_range(
    version: str, *, since: str | None = None, until: str | None = None
) -> bool:
    """Whether a release is in a range; a pre-release counts as its release."""
    release = Version(Version(version).base_version)
    return (since is None or release >= Version(since)) and (
        until is None or release < Version(until)
    )


Finder = Callable[["Planner", Request, Scope], Iterable[Site]]
FINDERS: dict[str, Finder] = {}


def finds(*names: str) -> Callable[[Finder], Finder]:
    def register(finder: Finder) -> Finder:
        FINDERS.update(dict.fromkeys(names, finder))
        return finder

    return register


@dataclass
class Planner:
    """Resolves the requests of one edit file against one target.

    Attributes:
        edit: the edit file.
        target: the module it applies to.
        path: the edit file's path, for messages.
        base: the target's base and version, for messages.
        version: the base's version, which ``since`` and ``until`` compare.

    """

    edit: Source
    target: Source
    path: str = ""
    base: str = ""
    version: str | None = None
    _standing: set[tuple[int, int]] = field(default_factory=set)

    def plan(self) -> list[Splice]:
        """What to change, in order; nothing where everything stands already."""
        module = Scope("the module", self.target.module, self.target.module)
        while True:
            # An anchor's name may also occur in what an earlier application
            # added. What stands there is learnt first, then left out.
            known = set(self._standing)
            splices: list[Splice] = []
            ambiguous: list[AmbiguousAnchor] = []
            for outcome in self._walk(self.edit.module, module):
                if isinstance(outcome, AmbiguousAnchor):
                    ambiguous.append(outcome)
                else:
                    splices += outcome
            if not ambiguous:
                return self._checked(splices)
            if self._standing == known:
                raise ambiguous[0]

    def _checked(self, splices: list[Splice]) -> list[Splice]:
        """The splices in order; where a function ends, what is inside comes first."""
        splices.sort(key=lambda s: (s.start, s.end, -s.depth))
        for a, b in pairwise(splices):
            if b.start < a.end or (b.start == a.start and b.depth == a.depth):
                line = self.target.text.count("\n", 0, b.start) + 1
                raise EditError(
                    f"{self.path}: two edits change the same place (line {line} of "
                    f"the target); put them in one block"
                )
        return splices

    def _walk(
        self, block: Block, scope: Scope
    ) -> Iterator[tuple[Splice, ...] | AmbiguousAnchor]:
        for statement in filter(self.holds, block.body):
            match statement:
                case (
                    cst.FunctionDef(body=cst.IndentedBlock() as body)
                    | cst.ClassDef(body=cst.IndentedBlock() as body)
                ):
                    inner = self._definition(statement, scope)
                    if isinstance(inner, AmbiguousAnchor):
                        yield inner
                    else:
                        yield from self._walk(body, inner)
                case cst.With(body=cst.IndentedBlock() as body):
                    yield from self._with(statement.items, body, scope)
                case _ if is_docstring(statement) or _is_preamble(statement):
                    pass
                case _:
                    raise EditError(
                        f"{self.path}:{self.edit.line(statement)}: outside a primitive "
                        f"only classes, functions and with blocks have a meaning"
                    )

    def holds(self, node: cst.CSTNode) -> bool:
        """Whether an edit file, or a statement in it, says anything for the base."""
        match node:
            case cst.With(items=items, body=cst.IndentedBlock(body=inner) as body):
                requests = [self._request(item.item, body) for item in items]
                if not all(map(self._in_range, requests)):
                    return False
                if {r.primitive for r in requests} - {*LIMITS, "inside"}:
                    return True
            case (
                cst.Module(body=inner)
                | cst.FunctionDef(body=cst.IndentedBlock(body=inner))
                | cst.ClassDef(body=cst.IndentedBlock(body=inner))
            ):
                pass
            case _:
                return True
        parts = [s for s in inner if isinstance(s, cst.With | Definition)]
        return not parts or any(map(self.holds, parts))

    def _in_range(self, request: Request) -> bool:
        """Whether a request, if it is a limit, holds on the base."""
        if request.primitive not in LIMITS:
            return True
        if self.version is None:
            raise request.fail(EditError, "the version of the base is not known")
        try:
            limit = {request.primitive: request.args["version"]}
            return in_range(self.version, **limit)
        except InvalidVersion as e:
            raise request.fail(EditError, str(e)) from e

    def _with(
        self, items: Sequence[cst.WithItem], body: cst.IndentedBlock, scope: Scope
    ) -> Iterator[tuple[Splice, ...] | AmbiguousAnchor]:
        """One block; what comes before its last item narrows the scope."""
        if not items:
            yield from self._walk(body, scope)
            return
        request = self._request(items[0].item, body)
        if request.primitive in LIMITS:
            yield from self._with(items[1:], body, scope)
            return
        try:
            site = self._pick(request, scope)
        except AmbiguousAnchor as e:
            # One of the places may be what the body added in the other.
            for candidate in self._sites(request, scope):
                if candidate.scope is not None:
                    with suppress(EditError):
                        list(self._with(items[1:], body, candidate.scope))
            yield e
            return
        if site.scope is not None:
            yield from self._with(items[1:], body, site.scope)
        elif len(items) == 1:
            yield site.splices
        else:
            raise request.fail(EditError, "only inside(...) takes a further item")

    def _definition(
        self, statement: cst.FunctionDef | cst.ClassDef, scope: Scope
    ) -> Scope | AmbiguousAnchor:
        kind = "class" if isinstance(statement, cst.ClassDef) else "def"
        name = statement.name.value
        label = f"{self.path}:{self.edit.line(statement)}: {kind} {name}"
        found = [
            node
            for node in self.definitions(scope, name)
            if isinstance(node, cst.ClassDef) == (kind == "class")
            and not self._stands(self.target.span(node)[0])
        ]
        if not found:
            raise MissingAnchor(f"{label}: not found in {self.place(scope)}")
        if len(found) > 1:
            return AmbiguousAnchor(
                f"{label}: found {self._times(self.target.line(n) for n in found)} "
                f"in {self.place(scope)}"
            )
        if not isinstance(found[0].body, cst.IndentedBlock):
            raise EditError(f"{label}: its body is on the line of its header")
        return Scope(f"{kind} {name}", found[0].body, found[0])

    def _request(self, call: cst.BaseExpression, block: cst.IndentedBlock) -> Request:
        where = f"{self.path}:{self.edit.line(call)}"
        code = self.edit.code(call)
        name = dotted(call.func) if isinstance(call, cst.Call) else None
        primitives = {*FINDERS, *LIMITS}
        if name not in primitives or not isinstance(call, cst.Call):
            raise EditError(
                f"{where}: {code} is not a primitive; there are "
                f"{', '.join(sorted(primitives))}"
            )
        label = f"{where}: {code}"
        try:
            args = [a for a in call.args if a.keyword is None]
            keywords = {a.keyword.value: a for a in call.args if a.keyword is not None}
            bound = inspect.signature(getattr(edits, name)).bind(
                *(ast.literal_eval(self.edit.code(a.value)) for a in args),
                **{
                    k: ast.literal_eval(self.edit.code(a.value))
                    for k, a in keywords.items()
                },
            )
        except (TypeError, ValueError, SyntaxError) as e:
            raise EditError(f"{label}: {e}") from e
        bound.apply_defaults()
        return Request(name, bound.arguments, block, self.edit, label)

    def _sites(self, request: Request, scope: Scope) -> list[Site]:
        """Where the anchor holds, less what the edits themselves added."""
        return [
            site
            for site in FINDERS[request.primitive](self, request, scope)
            if site.stands is not None or not self._stands(site.start)
        ]

    def _pick(self, request: Request, scope: Scope) -> Site:
        sites = self._sites(request, scope)
        standing = [site for site in sites if site.stands is not None]
        if len(standing) == 1:
            start, end = standing[0].stands or (0, 0)
            self._standing.add((start, end))
            sites = [s for s in sites if not start <= s.start < end] or standing
        if not sites:
            raise request.fail(MissingAnchor, f"not found in {self.place(scope)}")
        if len(sites) > 1:
            lines = (self.target.text.count("\n", 0, s.start) + 1 for s in sites)
            raise request.fail(
                AmbiguousAnchor,
                f"found {self._times(lines)} in {self.place(scope)}",
            )
        return sites[0]

    def _stands(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self._standing)

    def place(self, scope: Scope) -> str:
        return f"{scope.name} of the target ({self.base or 'unnamed base'})"

    @staticmethod
    def _times(lines: Iterable[int]) -> str:
        numbers = list(lines)
        return f"{len(numbers)} times (lines {', '.join(map(str, numbers))})"

    # What follows is used by the finders.

    def statements(self, scope: Scope) -> Iterator[tuple[Statement, Block]]:
        """The statements of a scope, nested blocks included."""
        return statements_of(scope.block)

    def definitions(self, scope: Scope, name: str) -> list[Definition]:
        return [
            s
            for s, _ in self.statements(scope)
            if isinstance(s, cst.FunctionDef | cst.ClassDef)
            and s.name.value == name
            and not any(dotted(d.decorator) in _OVERLOADS for d in s.decorators)
        ]

    def insert_after(self, start: int, at: int, text: str) -> Site:
        """A site whose addition follows its anchor."""
        if self.target.text.startswith(text, at):
            return Site(start, stands=(at, at + len(text)))
        if at and self.target.text[at - 1] not in "\r\n":
            text = self.target.newline + text
        return Site(start, (Splice(at, at, text),))

    def insert_before(self, start: int, at: int, text: str) -> Site:
        """A site whose addition precedes its anchor."""
        if self.target.text.endswith(text, 0, at):
            return Site(start, stands=(at - len(text), at))
        return Site(start, (Splice(at, at, text),))

    def refuse_taken(self, request: Request, scope: Scope, site: Site) -> Site:
        """The site, unless a name it adds to a class or module is defined there."""
        if site.stands is None and not isinstance(scope.node, cst.FunctionDef):
            new = set().union(*map(defined, request.statements))
            for statement, _ in self.statements(scope):
                if taken := new & defined(statement):
                    raise request.fail(
                        Conflict,
                        f"{', '.join(sorted(taken))} is defined with other content on "
                        f"line {self.target.line(statement)} of {self.place(scope)}",
                    )
        return site


def _is_preamble(statement: cst.CSTNode) -> bool:
    match statement:
        case cst.SimpleStatementLine(body=[cst.ImportFrom() as node]):
            return import_module(node) == "tools.fork.edits"
        case cst.SimpleStatementLine(body=[cst.Pass()]):
            return True
    return False
