# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The primitives of the edit language: where each adds what (see ``edits``).

A finder yields a site for every place where the request's anchor holds; the
planner wants exactly one.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import libcst as cst

from tools.fork.errors import Conflict, EditError, MissingAnchor
from tools.fork.planner import CRITERIA, Planner, Request, Scope, Site, finds
from tools.fork.source import (
    Block,
    Definition,
    Line,
    Source,
    Splice,
    Statement,
    assigned,
    blocks_of,
    defined,
    descendants,
    dotted,
    import_module,
    imported,
    is_docstring,
    mentions,
    statements_of,
)

LINE_LENGTH = 88


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
                return any(name in assigned(part) for part in parts)
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
        raise request.fail(EditError, f"give one or more of {', '.join(CRITERIA)}")
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
        known |= imported(statement)
    return known


@finds("after_import", "before_import")
def _import(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    known = _known_imports(scope)
    lines: list[Line] = []
    for statement in request.statements:
        bound = imported(statement)
        if not bound:
            raise request.fail(EditError, "its body holds import statements only")
        if all(known.get(name) == origin for name, origin in bound.items()):
            continue
        if taken := bound.keys() & known.keys():
            raise request.fail(
                Conflict,
                f"{', '.join(sorted(taken))} is imported from elsewhere in "
                f"{planner.place(scope)}",
            )
        above = getattr(statement, "leading_lines", ())
        if lines and any(line.comment is None for line in above):
            lines.append(Line(True, ""))
        lines += request.edit.lines_at(
            *request.edit.extent(statement), request.edit.indent_of(request.block)
        )
    for anchor in _imports(request, scope, request.args["module"]):
        start, end = planner.target.extent(anchor)
        if lines:
            text = planner.target.render(lines, planner.target.indent_at(start))
            at = start if request.primitive.startswith("before") else end
            yield Site(start, (Splice(at, at, text),))
        else:
            yield Site(start)


def _import_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: how isort and ruff sort members."""
    return (0 if name.isupper() and len(name) > 1 else 1 + name[0].islower(), name)


@finds("merge_import")
def _merge_import(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    target = planner.target
    match request.statements:
        case [cst.SimpleStatementLine(body=[cst.ImportFrom() as wanted])]:
            module = import_module(wanted)
        case _:
            raise request.fail(EditError, "its body holds one from ... import ...")
    bound = imported(request.statements[0])
    known = _known_imports(scope)
    for name, origin in bound.items():
        if known.get(name, origin) != origin:
            raise request.fail(
                Conflict,
                f"{name} is imported from elsewhere in {planner.place(scope)}",
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


@finds("after_field", "before_field")
def _field(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    name = request.args["name"]
    for statement, block in planner.statements(scope):
        if isinstance(statement, cst.SimpleStatementLine) and any(
            name in assigned(part) for part in statement.body
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


@finds("after_def", "before_def")
def _def(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    in_module = isinstance(scope.node, cst.Module)
    gap = [Line(True, "")] * (2 if in_module else 1)
    is_plain = not isinstance(request.statements[0], Definition)
    for node in planner.definitions(scope, request.args["name"]):
        site = _around(planner, request, scope, node, node, gap)
        if request.primitive == "before_def" and in_module and is_plain:
            site = _below_imports(planner.target, site)
        yield site


@finds("move_def")
def _move_def(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    target, name = planner.target, request.args["name"]
    if not isinstance(scope.node, cst.Module):
        raise request.fail(EditError, "it belongs in the module")
    if not any(name in imported(statement) for statement in request.statements):
        raise request.fail(EditError, f"its body does not import {name}")
    found = planner.definitions(scope, name)
    if not found and name not in _known_imports(scope):
        return
    where = {"module": request.args["after_import"], "in_type_checking": False}
    brought_back = replace(request, primitive="after_import", args=where)
    for site in _import(planner, brought_back, scope):
        if not found:
            yield site
        for node in found:
            # Where the import meets what goes, one splice does both.
            ends = dict(_gone(target, scope.node, node))
            added = [replace(s, end=ends.pop(s.start, s.end)) for s in site.splices]
            gone = [Splice(start, end, "") for start, end in ends.items()]
            yield Site(target.own_start(node), (*added, *gone))


def _gone(
    target: Source, module: cst.Module, node: Definition
) -> Iterator[tuple[int, int]]:
    """What goes with a definition: itself and what nothing else mentions."""
    places: dict[str, list[int]] = {}
    for word in re.finditer(r"\w+", target.text):
        places.setdefault(word.group(), []).append(word.start())
    statements = [statement for statement, _ in statements_of(module)]
    gone: list[cst.CSTNode] = [node]
    grown = True
    while grown:
        spans = [target.span(n) for n in gone]
        orphans = [
            binding
            for name, binding in _bindings(statements)
            if binding not in gone
            and any(_within(at, spans) for at in places[name])
            and all(_within(at, [*spans, target.span(binding)]) for at in places[name])
        ]
        gone += orphans
        emptied = [s for s in statements if s not in gone and _is_emptied(s, gone)]
        gone += emptied
        grown = bool(orphans or emptied)
    outer = [target.span(s) for s in gone if isinstance(s, cst.If)]
    for statement in statements:
        if any(a < target.span(statement)[0] < b for a, b in outer):
            continue
        if statement in gone:
            yield _lines(target, statement)
        else:
            yield from _names(target, statement, gone)


def _within(at: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= at < end for start, end in spans)


def _aliases(statement: cst.CSTNode) -> list[cst.ImportAlias]:
    match statement:
        case cst.SimpleStatementLine(
            body=[cst.ImportFrom(names=[*names]) | cst.Import(names=[*names])]
        ):
            return list(names)
    return []


def _bindings(statements: list[Statement]) -> Iterator[tuple[str, cst.CSTNode]]:
    """The names that imports and plain assignments bind, and where."""
    for statement in statements:
        for alias in _aliases(statement):
            bound = dotted(alias.asname.name if alias.asname else alias.name)
            yield (bound or "").split(".")[0], alias
        match statement:
            case cst.SimpleStatementLine(
                body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(name))])]
            ):
                yield name, statement


def _is_emptied(statement: Statement, gone: list[cst.CSTNode]) -> bool:
    """Whether all that an import, or the blocks of an ``if``, held is gone."""
    held = [*_aliases(statement), *(s for b in blocks_of(statement) for s in b.body)]
    return bool(held) and all(part in gone for part in held)


def _lines(target: Source, statement: Statement) -> tuple[int, int]:
    """The lines of a statement, with the blank ones above where more follow."""
    start, end = target.extent(statement)
    if not target.text[end : target.line_end(end)].strip():
        while start and not target.text[target.line_start(start - 1) : start].strip():
            start = target.line_start(start - 1)
    return start, end


def _names(
    target: Source, statement: Statement, gone: list[cst.CSTNode]
) -> Iterator[tuple[int, int]]:
    """The stretches of an import that hold names which are gone."""
    aliases = _aliases(statement)
    spans = [target.span(alias) for alias in aliases]
    kept = [i for i, alias in enumerate(aliases) if alias not in gone]
    for i in range(kept[-1] if kept else 0):
        if i not in kept:
            yield spans[i][0], spans[i + 1][0]
    if kept and kept[-1] < len(aliases) - 1:
        yield spans[kept[-1]][1], spans[-1][1]


def _below_imports(target: Source, site: Site) -> Site:
    """The site with one blank line above it where it follows a module's imports.

    The two that stand there set off the definition below them.
    """
    for splice in site.splices:
        above = [s for s in target.module.body if target.span(s)[1] <= splice.start]
        is_set_off = target.text.endswith(target.newline * 3, 0, splice.start)
        if is_set_off and above and imported(above[-1]):
            start = splice.start - len(target.newline)
            return replace(site, splices=(replace(splice, start=start),))
    return site


@finds("at_start")
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


@finds("at_end")
def _at_end(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    target = planner.target
    at = target.extent(scope.block.body[-1])[1]
    text = target.render(request.body(scope), target.indent_of(scope.block))
    if target.text.endswith(text, 0, at):
        yield Site(at, stands=(at - len(text), at))
        return
    yield planner.refuse_taken(request, scope, planner.insert_after(at, at, text))


@finds("after_statement", "before_statement")
def _statement(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    for statement, block in _matching(planner, request, scope):
        # An elif has no place before or after it.
        if any(statement is s for s in block.body):
            yield _around(planner, request, scope, statement, statement)


@finds("replace_statement")
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


@finds("bind_return")
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
                Conflict, f"{name} is used already in {planner.place(scope)}"
            )
        else:
            last = f"{indent}return {name}{target.newline}"
            bind = Splice(begin, begin + len("return"), f"{name} =")
            yield Site(start, (bind, Splice(end, end, body + last)))


@finds("inside")
def _inside(planner: Planner, request: Request, scope: Scope) -> Iterator[Site]:
    for statement, _ in _matching(planner, request, scope):
        start = planner.target.span(statement)[0]
        node: Any = statement
        if request.args["orelse"]:
            node = getattr(statement, "orelse", None)
            if not isinstance(node, cst.Else):
                raise request.fail(
                    MissingAnchor, f"it has no else in {planner.place(scope)}"
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


@finds("after_parameter")
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
    new = {n for s in request.statements for n in defined(s)}
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
                    f"{planner.place(scope)}",
                )
            yield site


@finds("after_argument")
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
                f"exists already in {planner.place(scope)}",
            )
        yield site


@finds("after_formatted")
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


@finds("and_condition", "or_condition")
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
            grown = target.line_end(end) - target.line_start(inner[0]) + len(code)
            if not by_line and not test.lpar and grown + 5 > LINE_LENGTH:
                yield Site(start, _by_line(target, test, kind, f"{operator} {code}"))
                continue
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


def _by_line(
    target: Source, test: cst.BaseExpression, kind: type, added: str
) -> tuple[Splice, ...]:
    """Put a condition in parentheses with a line for each operand."""
    begin, end = target.span(test)
    closing = target.newline + target.indent_at(begin)
    line = closing + "    "
    gaps: list[Splice] = []
    while (
        isinstance(test, cst.BooleanOperation)
        and isinstance(test.operator, kind)
        and not test.lpar
    ):
        gap = (
            target.span(test.left, full=True)[1],
            target.span(test.right, full=True)[0],
        )
        gaps.insert(0, Splice(*gap, line + target.text[slice(*gap)].lstrip()))
        test = test.left
    return (
        Splice(begin, begin, "(" + line),
        *gaps,
        Splice(end, end, f"{line}{added}{closing})"),
    )


_LOOSER = (cst.BooleanOperation, cst.IfExp, cst.Lambda, cst.NamedExpr)
