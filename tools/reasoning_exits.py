# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Lists the reasoning parsers of the installed vLLM and what they tell a limit.

``python -m tools.reasoning_exits`` prints the table of
``docs/features/reasoning_outputs.md``. Parsers are built on a stand-in
tokenizer that knows every marker they ask for, so no model is needed.
"""

from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

COLUMNS = ("Parser", "Start", "Natural end", "Other exits", "Turn boundaries", "Open")


class AnyVocab(dict[str, int]):
    """A vocabulary in which every text is one token."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]

    def get(  # type: ignore[override]
        self, text: str, default: int | None = None
    ) -> int:
        """The token id of a text, known or not."""
        return self[text]

    def __contains__(self, text: object) -> bool:
        return True

    def text(self, token_id: int) -> str:
        """The text of a token id."""
        return next(text for text, known in self.items() if known == token_id)


def _tokenizer(vocab: AnyVocab) -> MagicMock:
    tokenizer = MagicMock()
    tokenizer.init_kwargs = {}
    tokenizer.get_vocab.return_value = tokenizer.vocab = vocab
    tokenizer.convert_tokens_to_ids.side_effect = vocab.__getitem__
    tokenizer.encode.side_effect = lambda text, **_: [vocab[text]]
    return tokenizer


def _code(texts: Iterator[str] | list[str]) -> str:
    cell = " ".join(f"`{text}`" for text in texts)
    return cell.replace("|", "\\|").replace("\n", "\\n")


def parsers() -> Iterator[tuple[str, AnyVocab, Any]]:
    """Name, vocabulary and instance of each registered parser.

    The instance is None where a parser needs its own model's tokenizer.
    """
    from vllm.reasoning import ReasoningParserManager

    for name in sorted(ReasoningParserManager.list_registered()):
        vocab = AnyVocab()
        try:
            parser_cls = ReasoningParserManager.get_reasoning_parser(name)
            yield name, vocab, parser_cls(_tokenizer(vocab))
        except Exception:
            yield name, vocab, None


def rows() -> list[tuple[str, ...]]:
    """One row a parser that defines a start and an end, then the others' names.

    Returns:
        Cells in the order of `COLUMNS`. Parsers that define no markers, or
        that need their own model's tokenizer, have empty cells.

    """
    table = []
    for name, vocab, parser in parsers():
        start = parser and parser.reasoning_start_str
        end = parser and parser.reasoning_end_str
        if start and end:
            exits = map(vocab.text, parser.implicit_end_token_ids)
            boundaries = map(vocab.text, parser.turn_boundary_token_ids)
            is_open = "from the first token" if parser.starts_in_reasoning else ""
            cells = ([start], [end], sorted(exits), sorted(boundaries))
            table.append((f"`{name}`", *map(_code, cells), is_open))
        else:
            table.append((f"`{name}`", "", "", "", "", ""))
    return sorted(table, key=lambda row: not row[1])


def markdown(known: str = "") -> str:
    """The table, and the parsers that need `--reasoning-config` strings.

    Args:
        known: A table that another vLLM gave, of which nothing is repeated.

    """
    table = rows()
    lines = [f"| {' | '.join(row)} |\n" for row in table if row[1]]
    head = [COLUMNS, tuple("---" for _ in COLUMNS)]
    without = [row[0] for row in table if not row[1] and row[0] not in known]
    return (
        "".join(f"| {' | '.join(row)} |\n" for row in head)
        + "".join(line for line in lines if line not in known)
        + "\nParsers that define no start or end marker by themselves: "
        + f"{', '.join(without)}.\n"
    )


if __name__ == "__main__":
    print(markdown(), end="")
