# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Plans what an edit file changes in its target (the language: ``edits``)."""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import libcst as cst

from tools.fork import edits
from tools.fork.errors import AmbiguousAnchor, Conflict, EditError, MissingAnchor
from tools.fork.source import (
    Block,
    Definition,
    Line,
    Source,
    Splice,
    Statement,
    descendants,
    dotted,
    import_module,
    is_docstring,
    mentions,
    statements_of,
)

LINE_LENGTH = 88


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
        return {k: v for k, v in self.args.items() if k in _CRITERIA and v is not None}

    def fail(self, kind: type[EditError], message: str) -> EditError:
        """An error of a kind that begins with where the request stands."""
        return kind(f"{self.label}: {message}")


Finder = Callable[["Planner", Request, Scope], Iterable[Site]]
_FINDERS: dict[str, Finder] = {}


def _finds(*names: str) -> Callable[[Finder], Finder]:
    def register(finder: Finder) -> Finder:
        _FINDERS.update(dict.fromkeys(names, finder))
        return finder

    return register


def plan(edit: str, target: str, *, path: str = "", base: str = "") -> list[Splice]:
    """What an edit file changes in a target.

    Args:
        edit: text of the edit file.
        target: text of the module it applies to.
        path: the edit file's path, for messages.
        base: the target's base and version, for messages.

    Returns:
        The splices to make; none where everything stands there already.

    Raises:
        EditError: an anchor is missing, ambiguous or taken, or the edit file says
            what the language does not have.
    """
    return Planner(Source(edit), Source(target), path, base).plan()


def apply(edit: str, target: str, *, path: str = "", base: str = "") -> str:
    """The target with the edit made; see ``plan``."""
    source = Source(target)
    splices = Planner(Source(edit), source, path, base).plan()
    if not splices:
        return target
    result = source.splice(splices)
    try:
        ast.parse(result)
    except SyntaxError as e:
        raise EditError(f"{path}: the result is not valid Python: {e}") from e
    return result


@dataclass
class Planner:
    """Resolves the requests of one edit file against one target."""

    edit: Source
    target: Source
    path: str = ""
    base: str = ""
    _standing: set[tuple[int, int]] = field(default_factory=set)

    def plan(self) -> list[Splice]:
        """See the function of this name."""
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
        for statement in block.body:
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
                    yield from self._with(statement, body, scope)
                case _ if is_docstring(statement) or _is_preamble(statement):
                    pass
                case _:
                    raise EditError(
                        f"{self.path}:{self.edit.line(statement)}: outside a primitive "
                        f"only classes, functions and with blocks have a meaning"
                    )

    def _with(
        self, node: cst.With, body: cst.IndentedBlock, scope: Scope
    ) -> Iterator[tuple[Splice, ...] | AmbiguousAnchor]:
        """One block; what comes before its last item narrows the scope."""
        for i, item in enumerate(node.items):
            request = self._request(item.item, body)
            try:
                site = self._pick(request, scope)
            except AmbiguousAnchor as e:
                yield e
                return
            if site.scope is not None:
                scope = site.scope
            elif i + 1 == len(node.items):
                yield site.splices
                return
            else:
                raise request.fail(EditError, "only inside(...) takes a further item")
        yield from self._walk(body, scope)

    def _definition(
        self, statement: cst.FunctionDef | cst.ClassDef, scope: Scope
    ) -> Scope | AmbiguousAnchor:
        kind = "class" if isinstance(statement, cst.ClassDef) else "def"
        name = statement.name.value
        label = f"{self.path}:{self.edit.line(statement)}: {kind} {name}"
        found = [
            node
            for node in self._definitions(scope, name)
            if isinstance(node, cst.ClassDef) == (kind == "class")
            and not self._stands(self.target.span(node)[0])
        ]
        if not found:
            raise MissingAnchor(f"{label}: not found in {self._place(scope)}")
        if len(found) > 1:
            return AmbiguousAnchor(
                f"{label}: found {self._times(self.target.line(n) for n in found)} "
                f"in {self._place(scope)}"
            )
        if not isinstance(found[0].body, cst.IndentedBlock):
            raise EditError(f"{label}: its body is on the line of its header")
        return Scope(f"{kind} {name}", found[0].body, found[0])

    def _request(self, call: cst.BaseExpression, block: cst.IndentedBlock) -> Request:
        where = f"{self.path}:{self.edit.line(call)}"
        code = self.edit.code(call)
        name = dotted(call.func) if isinstance(call, cst.Call) else None
        if name not in _FINDERS or not isinstance(call, cst.Call):
            raise EditError(
                f"{where}: {code} is not a primitive; there are "
                f"{', '.join(sorted(_FINDERS))}"
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

    def _pick(self, request: Request, scope: Scope) -> Site:
        sites = [
            site
            for site in _FINDERS[request.primitive](self, request, scope)
            if site.stands is not None or not self._stands(site.start)
        ]
        standing = [site for site in sites if site.stands is not None]
        if len(standing) == 1:
            start, end = standing[0].stands or (0, 0)
            self._standing.add((start, end))
            sites = [s for s in sites if not start <= s.start < end] or standing
        if not sites:
            raise request.fail(MissingAnchor, f"not found in {self._place(scope)}")
        if len(sites) > 1:
            lines = (self.target.text.count("\n", 0, s.start) + 1 for s in sites)
            raise request.fail(
                AmbiguousAnchor,
                f"found {self._times(lines)} in {self._place(scope)}",
            )
        return sites[0]

    def _stands(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self._standing)

    def _place(self, scope: Scope) -> str:
        return f"{scope.name} of the target ({self.base or 'unnamed base'})"

    @staticmethod
    def _times(lines: Iterable[int]) -> str:
        numbers = list(lines)
        return f"{len(numbers)} times (lines {', '.join(map(str, numbers))})"

    # What follows is used by the finders.

    def statements(self, scope: Scope) -> Iterator[tuple[Statement, Block]]:
        """The statements of a scope, nested blocks included."""
        return statements_of(scope.block)

    def _definitions(self, scope: Scope, name: str) -> list[Definition]:
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
            new = set().union(*map(_defined, request.statements))
            for statement, _ in self.statements(scope):
                if taken := new & _defined(statement):
                    raise request.fail(
                        Conflict,
                        f"{', '.join(sorted(taken))} is defined with other content on "
                        f"line {self.target.line(statement)} of {self._place(scope)}",
                    )
        return site


_CRITERIA = ("assigns", "calls", "tests", "loops", "enters", "raises", "returns")
_OVERLOADS = {"overload", "typing.overload", "t.overload"}


def _is_preamble(statement: cst.CSTNode) -> bool:
    match statement:
        case cst.SimpleStatementLine(body=[cst.ImportFrom() as node]):
            return import_module(node) == "tools.fork.edits"
        case cst.SimpleStatementLine(body=[cst.Pass()]):
            return True
    return False


def _assigned(node: cst.CSTNode) -> list[str | None]:
    """The dotted targets of an assignment of any kind."""
    match node:
        case cst.Assign(targets=targets):
            found = [t.target for t in targets]
        case cst.AnnAssign(target=target) | cst.AugAssign(target=target):
            found = [target]
        case _:
            return []
    names: list[str | None] = []
    for target in found:
        if isinstance(target, cst.Tuple | cst.List):
            names += [dotted(e.value) for e in target.elements]
        else:
            names.append(dotted(target))
    return names


def _imported(statement: cst.CSTNode) -> dict[str, tuple[str, str]]:
    """Names that an import statement binds: name to (module, name there)."""
    bound: dict[str, tuple[str, str]] = {}
    for node in (
        statement.body if isinstance(statement, cst.SimpleStatementLine) else []
    ):
        names = getattr(node, "names", ())
        if not isinstance(node, cst.Import | cst.ImportFrom) or names == cst.ImportStar:
            continue
        for alias in names if isinstance(names, tuple | list) else ():
            name = dotted(alias.name) or ""
            as_name = dotted(alias.asname.name) if alias.asname else None
            if isinstance(node, cst.ImportFrom):
                bound[as_name or name] = (import_module(node), name)
            else:
                bound[as_name or name] = (name, "")
    return bound


def _defined(statement: cst.CSTNode) -> set[str]:
    """The plain names a statement defines in its class or module."""
    match statement:
        case cst.FunctionDef(name=name) | cst.ClassDef(name=name):
            return {name.value}
        case cst.SimpleStatementLine(body=parts):
            names = {n for part in parts for n in _assigned(part)}
            return {n for n in names if n and "." not in n} | set(_imported(statement))
    return set()


def _split(lines: list[Line]) -> tuple[list[Line], list[Line]]:
    """The blank lines a body starts with, and the rest."""
    first = next((i for i, line in enumerate(lines) if line.text.strip()), 0)
    return lines[:first], lines[first:]


def _holds(statement: Statement, criteria: dict[str, Any]) -> bool:
    """Whether a statement meets every criterion."""
    parts = statement.body if isinstance(statement, cst.SimpleStatementLine) else []

    def meets(criterion: str, name: Any) -> bool:
        match criterion, statement:
            case "assigns", cst.SimpleStatementLine():
                return any(name in _assigned(part) for part in parts)
            case "calls", cst.SimpleStatementLine():
                return any(
                    isinstance(n, cst.Call) and dotted(n.func) == name
                    for n in descendants(statement)
                )
            case "raises", cst.SimpleStatementLine(body=[cst.Raise(exc=exc)]):
                return dotted(exc.func if isinstance(exc, cst.Call) else exc) == name
            case "returns", cst.SimpleStatementLine(body=[cst.Return(value=value)]):
                return name is True or mentions(value, name)
            case "tests", cst.If(test=test) | cst.While(test=test):
                return mentions(test, name)
            case "loops", cst.For(target=target, iter=iterable):
                return mentions(target, name) or mentions(iterable, name)
            case "enters", cst.With(items=items):
                return any(mentions(item, name) for item in items)
        return False

    return all(meets(*criterion) for criterion in criteria.items())


def _matching(
    planner: Planner, request: Request, scope: Scope
) -> Iterator[tuple[Statement, Block]]:
    if not request.criteria:
        raise request.fail(EditError, f"give one or more of {', '.join(_CRITERIA)}")
    for statement, block in planner.statements(scope):
        if _holds(statement, request.criteria):
            yield statement, block
        # An elif is the else of its if and no statement of the block.
        tail = getattr(statement, "orelse", None)
        while isinstance(tail, cst.If):
            if _holds(tail, request.criteria):
                yield tail, block
            tail = tail.orelse


def _type_checking(scope: Scope) -> Iterator[Statement]:
    for statement, _ in statements_of(scope.block):
        match statement:
            case cst.If(test=test, body=cst.IndentedBlock() as body) if (
                dotted(test) or ""
            ).split(".")[-1] == "TYPE_CHECKING":
                yield from (s for s, _ in statements_of(body))


def _imports(
    request: Request, scope: Scope, module: str
) -> Iterator[cst.SimpleStatementLine]:
    """The statements of a scope that import from, or import, a module."""
    guarded = list(_type_checking(scope))
    for statement, _ in statements_of(scope.block):
        match statement:
            case cst.SimpleStatementLine(body=[cst.ImportFrom() as node]):
                found = import_module(node) == module
            case cst.SimpleStatementLine(body=[cst.Import(names=names)]):
                found = any(dotted(alias.name) == module for alias in names)
            case _:
                continue
        inside = any(statement is s for s in guarded)
        if found and inside == request.args["in_type_checking"]:
            yield statement


def _known_imports(scope: Scope) -> dict[str, tuple[str, str]]:
    known: dict[str, tuple[str, str]] = {}
    for statement, _ in statements_of(scope.block):
        known |= _imported(statement)
    return known


@_finds("after_import")
def _after_import(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    known = _known_imports(scope)
    lines: list[Line] = []
    for statement in request.statements:
        bound = _imported(statement)
        if not bound:
            raise request.fail(EditError, "its body holds import statements only")
        if all(known.get(name) == origin for name, origin in bound.items()):
            continue
        if taken := bound.keys() & known.keys():
            raise request.fail(
                Conflict,
                f"{', '.join(sorted(taken))} is imported from elsewhere in "
                f"{planner._place(scope)}",
            )
        lines += request.edit.lines_at(
            *request.edit.extent(statement), request.edit.indent_of(request.block)
        )
    for anchor in _imports(request, scope, request.args["module"]):
        start, end = planner.target.extent(anchor)
        if lines:
            text = planner.target.render(lines, planner.target.indent_at(start))
            yield Site(start, (Splice(end, end, text),))
        else:
            yield Site(start)


def _import_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: how isort and ruff sort members."""
    return (0 if name.isupper() and len(name) > 1 else 1 + name[0].islower(), name)


@_finds("merge_import")
def _merge_import(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    target = planner.target
    match request.statements:
        case [cst.SimpleStatementLine(body=[cst.ImportFrom() as wanted])]:
            module = import_module(wanted)
        case _:
            raise request.fail(EditError, "its body holds one from ... import ...")
    bound = _imported(request.statements[0])
    known = _known_imports(scope)
    for name, origin in bound.items():
        if known.get(name, origin) != origin:
            raise request.fail(
                Conflict,
                f"{name} is imported from elsewhere in {planner._place(scope)}",
            )
    new = [
        target_name if name == target_name else f"{target_name} as {name}"
        for name, (_, target_name) in bound.items()
        if name not in known
    ]
    for statement in _imports(request, scope, module):
        node = statement.body[0]
        start = target.span(statement)[0]
        if not isinstance(node, cst.ImportFrom) or isinstance(
            node.names, cst.ImportStar
        ):
            continue
        if not new:
            yield Site(start)
            continue
        names = sorted([*(target.code(a) for a in node.names), *new], key=_import_order)
        yield Site(start, _import_splices(target, node, new, names))


def _import_splices(
    target: Source, node: cst.ImportFrom, new: list[str], names: list[str]
) -> tuple[Splice, ...]:
    """Puts names into an import, one by one, or lays out a line that is too long."""
    assert not isinstance(node.names, cst.ImportStar)
    spans = [target.span(alias) for alias in node.names]
    begin, stop = target.span(node)
    line_start = target.line_start(begin)
    one_line = target.line_start(stop) == line_start
    grown = stop - line_start + sum(len(name) + 2 for name in new)
    if one_line and node.lpar is None and grown > LINE_LENGTH:
        indent = target.indent_at(begin)
        rows = "".join(f"{target.newline}{indent}    {name}," for name in names)
        return (Splice(spans[0][0], stop, f"({rows}{target.newline}{indent})"),)
    by_line = target.starts_line(spans[-1][0])
    space = target.newline + target.indent_at(spans[-1][0]) if by_line else " "
    old = [target.text[a:b] for a, b in spans]
    splices: dict[int, str] = {}
    for name in sorted(new, key=_import_order):
        later = [i for i, o in enumerate(old) if _import_order(o) > _import_order(name)]
        if later:
            at = spans[later[0]][0]
            splices[at] = splices.get(at, "") + f"{name},{space}"
        else:
            at = spans[-1][1]
            splices[at] = splices.get(at, "") + f",{space}{name}"
    return tuple(Splice(at, at, text) for at, text in splices.items())


@_finds("after_field", "before_field")
def _field(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    name = request.args["name"]
    for statement, block in planner.statements(scope):
        if isinstance(statement, cst.SimpleStatementLine) and any(
            name in _assigned(part) for part in statement.body
        ):
            following = list(block.body)[_index(block, statement) + 1 :][:1]
            last = (
                following[0] if following and is_docstring(following[0]) else statement
            )
            yield _around(planner, request, scope, statement, last)


def _index(block: Block, statement: cst.CSTNode) -> int:
    return next(i for i, s in enumerate(block.body) if s is statement)


def _around(
    planner: Planner,
    request: Request,
    scope: Scope,
    first: cst.CSTNode,
    last: cst.CSTNode,
    gap: list[Line] | None = None,
) -> Site:
    """Adds the body before the first or after the last statement of an anchor.

    Args:
        planner: the planner.
        request: the request.
        scope: where the anchor was sought.
        first: the anchor's first statement.
        last: the anchor's last statement.
        gap: what separates the two, instead of the body's own first blank lines.
    """
    target = planner.target
    start = target.own_start(first)
    indent = target.indent_at(start)
    blank, lines = _split(request.body(scope))
    blank = blank if gap is None else gap
    if request.primitive.startswith("before"):
        text = target.render(lines + blank, indent)
        site = planner.insert_before(start, target.extent(first)[0], text)
    else:
        text = target.render(blank + lines, indent)
        site = planner.insert_after(start, target.extent(last)[1], text)
    return planner.refuse_taken(request, scope, site)


@_finds("after_def", "before_def")
def _def(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    gap = [Line(True, "")] * (2 if isinstance(scope.node, cst.Module) else 1)
    for node in planner._definitions(scope, request.args["name"]):
        yield _around(planner, request, scope, node, node, gap)


@_finds("at_start")
def _at_start(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    target = planner.target
    first = scope.block.body[0]
    indent = target.indent_of(scope.block)
    blank, lines = _split(request.body(scope))
    if is_docstring(first):
        at = target.extent(first)[1]
        site = planner.insert_after(at, at, target.render(blank + lines, indent))
    else:
        at = target.extent(first)[0]
        text = target.render(lines + blank, indent)
        site = planner.insert_after(at, at, text)
    yield planner.refuse_taken(request, scope, site)


@_finds("at_end")
def _at_end(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    target = planner.target
    at = target.extent(scope.block.body[-1])[1]
    text = target.render(request.body(scope), target.indent_of(scope.block))
    if target.text.endswith(text, 0, at):
        yield Site(at, stands=(at - len(text), at))
        return
    yield planner.refuse_taken(request, scope, planner.insert_after(at, at, text))


@_finds("after_statement", "before_statement")
def _statement(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    for statement, block in _matching(planner, request, scope):
        # An elif has no place before or after it.
        if any(statement is s for s in block.body):
            yield _around(planner, request, scope, statement, statement)


@_finds("replace_statement")
def _replace(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    target = planner.target
    lines = _split(request.body(scope))[1]
    for statement, _ in planner.statements(scope):
        start = target.own_start(statement)
        text = target.render(lines, target.indent_at(start))
        if target.text.startswith(text, start):
            yield Site(start, stands=(start, start + len(text)))
    for statement, _ in _matching(planner, request, scope):
        start = target.own_start(statement)
        text = target.render(lines, target.indent_at(start))
        if not target.text.startswith(text, start):
            end = target.span(statement, full=True)[1]
            yield Site(start, (Splice(start, end, text),))


@_finds("bind_return")
def _bind_return(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    target = planner.target
    name = request.args["name"]
    if not isinstance(scope.node, cst.FunctionDef):
        raise request.fail(EditError, "it belongs in a function")
    taken = any(dotted(n) == name for n in descendants(scope.node))
    for statement, _ in planner.statements(scope):
        match statement:
            case cst.SimpleStatementLine(
                body=[cst.Return(value=cst.BaseExpression() as value) as node]
            ):
                start, end = target.own_start(statement), target.extent(statement)[1]
                begin = target.span(node)[0]
                indent = target.indent_at(begin)
                body = target.render(request.body(scope), indent)
            case _:
                continue
        if dotted(value) == name and target.text.endswith(body, 0, start):
            yield Site(start, stands=(start - len(body), end))
        elif taken:
            raise request.fail(
                Conflict, f"{name} is used already in {planner._place(scope)}"
            )
        else:
            last = f"{indent}return {name}{target.newline}"
            bind = Splice(begin, begin + len("return"), f"{name} =")
            yield Site(start, (bind, Splice(end, end, body + last)))


@_finds("inside")
def _inside(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    for statement, _ in _matching(planner, request, scope):
        start = planner.target.span(statement)[0]
        node: Any = statement
        if request.args["orelse"]:
            node = getattr(statement, "orelse", None)
            if not isinstance(node, cst.Else):
                raise request.fail(
                    MissingAnchor, f"it has no else in {planner._place(scope)}"
                )
        if not isinstance(getattr(node, "body", None), cst.IndentedBlock):
            raise request.fail(EditError, "it has no block to look inside")
        name = f"{request.label.rsplit(': ', 1)[-1]} in {scope.name}"
        yield Site(start, scope=Scope(name, node.body, scope.node))


def _listed(
    planner: Planner,
    request: Request,
    at: int,
    anchor: int,
    items: list[tuple[Statement, str]],
) -> Site:
    """Adds items to a list in parentheses, one a line where the anchor is so.

    Args:
        planner: the planner.
        request: the request.
        at: offset where the anchor ends, before its comma.
        anchor: offset where the anchor starts.
        items: the statement that asks for an item, and the item without comma.
    """
    target = planner.target
    by_line = target.starts_line(anchor)
    space = target.newline + target.indent_at(anchor) if by_line else " "
    rows = []
    for statement, item in items:
        comments = [
            line.comment.value
            for line in getattr(statement, "leading_lines", ())
            if line.comment is not None
        ]
        if comments and not by_line:
            raise request.fail(EditError, "a comment needs a list with one item a line")
        rows.append("".join(space + comment for comment in comments) + space + item)
    comma = _comment_after_comma(target, at)
    if comma is not None:
        # The comment behind the anchor's comma stays on the anchor's line.
        site = _insert_items(planner, comma, "".join(f"{row}," for row in rows))
    else:
        site = _insert_items(planner, at, "".join(f",{row}" for row in rows))
    return replace(site, start=anchor)


def _insert_items(planner: Planner, at: int, text: str) -> Site:
    if planner.target.text.startswith(text, at):
        return Site(at, stands=(at, at + len(text)))
    return Site(at, (Splice(at, at, text),))


def _comment_after_comma(target: Source, at: int) -> int | None:
    """The end of the line when it goes on with a comma and a comment."""
    end = target.line_end(at)
    rest = target.text[at:end].strip()
    return end if rest.startswith(",") and rest[1:].lstrip().startswith("#") else None


@_finds("after_parameter")
def _parameter(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    target = planner.target
    if not isinstance(scope.node, cst.FunctionDef):
        raise request.fail(EditError, "it belongs directly in a function")
    every = scope.node.params
    params = [*every.posonly_params, *every.params, *every.kwonly_params]
    params += [
        p for p in (every.star_arg, every.star_kwarg) if isinstance(p, cst.Param)
    ]
    taken = {p.name.value for p in params}
    new = {n for s in request.statements for n in _defined(s)}
    for param in params:
        if param.name.value == request.args["name"]:
            last = param.default or (param.annotation and param.annotation.annotation)
            end = target.span(last or param.name, full=True)[1]
            rows = [(s, request.edit.code(s)) for s in request.statements]
            site = _listed(planner, request, end, target.span(param)[0], rows)
            if site.stands is None and new & taken:
                raise request.fail(
                    Conflict,
                    f"the parameter {', '.join(sorted(new & taken))} exists already in "
                    f"{planner._place(scope)}",
                )
            yield site


@_finds("after_argument")
def _argument(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    target, edit = planner.target, request.edit
    new: dict[str, tuple[Statement, cst.BaseExpression]] = {}
    for statement in request.statements:
        match statement:
            case cst.SimpleStatementLine(
                body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(n))]) as a]
            ):
                new[n] = (statement, a.value)
            case _:
                raise request.fail(EditError, "its body holds name = value only")
    calls = [
        n
        for n in descendants(scope.block)
        if isinstance(n, cst.Call) and dotted(n.func) == request.args["callee"]
    ]
    for call in calls:
        keywords = {a.keyword.value: a for a in call.args if a.keyword is not None}
        anchor = keywords.get(request.args["keyword"])
        if anchor is None:
            continue
        begin = target.span(anchor)[0]
        indent = target.indent_at(begin)
        rows: list[tuple[Statement, str]] = []
        for name, (statement, value) in new.items():
            lines = edit.lines_at(
                *edit.span(value, full=True), edit.indent_of(request.block)
            )
            text = target.render(lines, indent).strip()
            rows.append((statement, f"{name}={text}"))
        end = target.span(anchor.value, full=True)[1]
        site = _listed(planner, request, end, begin, rows)
        if site.stands is None and new.keys() & keywords.keys():
            raise request.fail(
                Conflict,
                f"the argument {', '.join(sorted(new.keys() & keywords.keys()))} "
                f"exists already in {planner._place(scope)}",
            )
        yield site


@_finds("after_formatted")
def _formatted(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    target = planner.target
    expression = request.args["expression"]
    parts = [
        part
        for node in descendants(scope.block)
        if isinstance(node, cst.ConcatenatedString)
        for part in (node.left, node.right)
        if isinstance(part, cst.FormattedString)
    ]
    for part in parts:
        if any(
            isinstance(p, cst.FormattedStringExpression)
            and dotted(p.expression) == expression
            for p in part.parts
        ):
            begin, end = target.span(part)
            by_line = target.starts_line(begin)
            space = target.newline + target.indent_at(begin) if by_line else " "
            rows = [request.edit.code(s) for s in request.statements]
            site = _insert_items(planner, end, "".join(space + row for row in rows))
            yield replace(site, start=begin)


@_finds("and_condition", "or_condition")
def _condition(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    target = planner.target
    operator, kind = ("and", cst.And) if "and" in request.primitive else ("or", cst.Or)
    match request.statements:
        case [cst.SimpleStatementLine(body=[cst.Expr(value=added)])]:
            code = request.edit.code(added, full=True)
        case _:
            raise request.fail(EditError, "its body holds one expression")
    if isinstance(added, _LOOSER) and not added.lpar:
        code = f"({code})"
    for statement, _ in _matching(planner, request, scope):
        assert isinstance(statement, cst.If | cst.While)
        start, test = target.span(statement)[0], statement.test
        same = isinstance(test, cst.BooleanOperation) and isinstance(
            test.operator, kind
        )
        begin, end = target.span(test, full=not same)
        inner = target.span(test)
        if (
            isinstance(test, cst.BooleanOperation)
            and same
            and target.code(test.right, full=True) == code
        ):
            yield Site(start, stands=target.span(test.right))
        elif same or not isinstance(test, _LOOSER) or test.lpar:
            by_line = same and target.line_start(inner[0]) != target.line_start(
                inner[1]
            )
            space = target.newline + target.indent_at(inner[1]) if by_line else " "
            yield Site(start, (Splice(end, end, f"{space}{operator} {code}"),))
        else:
            yield Site(
                start,
                (
                    Splice(begin, begin, "("),
                    Splice(end, end, f") {operator} {code}"),
                ),
            )


_LOOSER = (cst.BooleanOperation, cst.IfExp, cst.Lambda, cst.NamedExpr)
