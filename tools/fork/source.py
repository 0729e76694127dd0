# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A module's text with LibCST's view of it: what is where, by character offset.

Edits are planned on the tree and made on the text, so every character they do
not touch stays as it was.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import libcst as cst
from libcst.metadata import (
    CodeRange,
    MetadataWrapper,
    PositionProvider,
    WhitespaceInclusivePositionProvider,
)

Block = cst.Module | cst.IndentedBlock
Statement = cst.BaseStatement
Definition = cst.FunctionDef | cst.ClassDef


@dataclass(frozen=True)
class Splice:
    """Replace ``text[start:end]`` with ``new``; equal ends insert."""

    start: int
    end: int
    new: str

    @property
    def depth(self) -> int:
        """How far the first line of the new text is indented, in characters."""
        text = self.new.lstrip("\r\n")
        return len(text) - len(text.lstrip(" \t"))


class Line(NamedTuple):
    """One line of an edit: its text, and whether it moves with its block.

    A line of a multi-line string that starts left of the block stays where it is.
    """

    moves: bool
    text: str


def dotted(node: cst.CSTNode | None) -> str | None:
    """The dotted name a node spells, or None; a subscript counts as its base."""
    match node:
        case cst.Name(value=name):
            return name
        case cst.Attribute(value=base, attr=attr):
            prefix = dotted(base)
            return prefix and f"{prefix}.{attr.value}"
        case cst.Subscript(value=base):
            return dotted(base)
    return None


def descendants(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The node and everything below it."""
    yield node
    for child in node.children:
        yield from descendants(child)


def mentions(node: cst.CSTNode | None, name: str) -> bool:
    """Whether an expression uses ``name``, alone or as the start of a longer one."""
    return node is not None and any(dotted(n) == name for n in descendants(node))


def import_module(node: cst.ImportFrom) -> str:
    """The module of ``from module import ...``, with its leading dots."""
    return "." * len(node.relative) + (dotted(node.module) or "")


def assigned(node: cst.CSTNode) -> list[str | None]:
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


def imported(statement: cst.CSTNode) -> dict[str, tuple[str, str]]:
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


def defined(statement: cst.CSTNode) -> set[str]:
    """The plain names a statement defines in its class or module."""
    match statement:
        case cst.FunctionDef(name=name) | cst.ClassDef(name=name):
            return {name.value}
        case cst.SimpleStatementLine(body=parts):
            names = {n for part in parts for n in assigned(part)}
            return {n for n in names if n and "." not in n} | set(imported(statement))
    return set()


def blocks_of(statement: cst.CSTNode) -> Iterator[cst.IndentedBlock]:
    """The blocks of a compound statement that belong to the same scope."""
    if isinstance(statement, cst.FunctionDef | cst.ClassDef):
        return
    for child in statement.children:
        if isinstance(child, cst.IndentedBlock):
            yield child
        elif isinstance(
            child,
            cst.Else | cst.Finally | cst.ExceptHandler | cst.MatchCase | cst.If,
        ):
            yield from blocks_of(child)


def statements_of(block: Block) -> Iterator[tuple[Statement, Block]]:
    """Every statement of a scope with the block that holds it, nested ones too."""
    for statement in block.body:
        assert isinstance(statement, Statement)
        yield statement, block
        for inner in blocks_of(statement):
            yield from statements_of(inner)


def is_docstring(statement: cst.CSTNode) -> bool:
    """Whether a statement is a string on its own."""
    match statement:
        case cst.SimpleStatementLine(
            body=[cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString())]
        ):
            return True
    return False


class Source:
    """A parsed module and the character offsets of its nodes."""

    def __init__(self, text: str) -> None:
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        self.text = text
        self.module = wrapper.module
        self.newline = wrapper.module.default_newline
        positions = (PositionProvider, WhitespaceInclusivePositionProvider)
        # Both in one pass; the wrapper keeps them.
        wrapper.resolve_many(positions)
        self._ranges, self._full_ranges = map(wrapper.resolve, positions)
        ends = [m.end() for m in re.finditer(r"\r\n|\n|\r", text)]
        self._lines = [0, *ends, len(text)]

    def _offset(self, line: int, column: int) -> int:
        return min(
            self._lines[min(line, len(self._lines)) - 1] + column, len(self.text)
        )

    def _range(self, node: cst.CSTNode, full: bool) -> CodeRange:
        return (self._full_ranges if full else self._ranges)[node]

    def span(self, node: cst.CSTNode, *, full: bool = False) -> tuple[int, int]:
        """Where a node is; ``full`` takes in its parentheses and whitespace."""
        where = self._range(node, full)
        return (
            self._offset(where.start.line, where.start.column),
            self._offset(where.end.line, where.end.column),
        )

    def code(self, node: cst.CSTNode, *, full: bool = False) -> str:
        """The text of a node."""
        start, end = self.span(node, full=full)
        return self.text[start:end]

    def line(self, node: cst.CSTNode) -> int:
        """The line a node starts on, counted from 1."""
        if isinstance(node, Definition) and node.decorators:
            node = node.decorators[0]
        return self._range(node, full=False).start.line

    def line_start(self, offset: int) -> int:
        """Where the line that holds an offset starts."""
        # The last entry is the end of the text, which starts no line.
        return self._lines[
            bisect_right(self._lines, offset, hi=len(self._lines) - 1) - 1
        ]

    def line_end(self, offset: int) -> int:
        """Where the line that holds an offset ends, before its newline."""
        match = re.compile(r"[^\r\n]*").match(self.text, offset)
        assert match is not None
        return match.end()

    def indent_at(self, offset: int) -> str:
        """The indentation of the line that holds an offset."""
        start = self.line_start(offset)
        match = re.compile(r"[ \t]*").match(self.text, start)
        assert match is not None
        return match.group()

    def starts_line(self, offset: int) -> bool:
        """Whether nothing but indentation precedes an offset on its line."""
        return not self.text[self.line_start(offset) : offset].strip()

    def extent(self, statement: cst.CSTNode) -> tuple[int, int]:
        """The whole lines of a statement, with the comments directly above it."""
        start = self.own_start(statement)
        for comment in reversed(getattr(statement, "leading_lines", ())):
            if comment.comment is None:
                break
            start = self.line_start(start - 1)
        return start, self.span(statement, full=True)[1]

    def own_start(self, statement: cst.CSTNode) -> int:
        """Where the first line of a statement starts, decorators included."""
        return self._offset(self.line(statement), 0)

    def indent_of(self, block: Block) -> str:
        """The indentation of the statements of a block."""
        if isinstance(block, cst.Module) or not block.body:
            return ""
        return self.indent_at(self.span(block.body[0])[0])

    def lines_of(self, block: cst.IndentedBlock) -> list[Line]:
        """The lines of a block, comments included."""
        return self.lines_at(*self.block_span(block), self.indent_of(block))

    def block_span(self, block: cst.IndentedBlock) -> tuple[int, int]:
        """The whole lines of a block, which begin below its header."""
        where = self._range(block, full=True)
        return self._offset(where.start.line + 1, 0), self.span(block, full=True)[1]

    def lines_at(self, start: int, end: int, indent: str) -> list[Line]:
        """The lines of a stretch of text, less one indentation."""
        return [
            Line(line.startswith(indent), line.removeprefix(indent))
            for line in self.text[start:end].splitlines()
        ]

    def render(self, lines: list[Line], indent: str) -> str:
        """Lines at another indentation, with this file's newlines."""
        return "".join(
            ("" if not line.text.strip() else indent * line.moves + line.text)
            + self.newline
            for line in lines
        )

    def splice(self, splices: list[Splice]) -> str:
        """The text after the splices, which are in order and do not overlap."""
        parts, at = [], 0
        for s in splices:
            assert s.start >= at, "overlapping splices"
            parts += [self.text[at : s.start], s.new]
            at = s.end
        return "".join([*parts, self.text[at:]])
