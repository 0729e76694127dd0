# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""One record for each request: judged from its token ids, kept in a JSONL file."""

import gzip
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from benchmarks.answer_reserve.clients import Completion
from benchmarks.answer_reserve.extractors import without_cut_number
from benchmarks.answer_reserve.tasks import Outcome, Problem, Task
from vllm.v1.sample.reasoning_limits import (
    ReasoningBlockScan,
    ReasoningLimits,
    ReasoningMarkers,
    effective_max_tokens,
    reserve_close_len,
)

RECORDS_FILE, PACKED_FILE = "records.jsonl", "records.jsonl.gz"

End = Literal["complete", "cut in reasoning", "cut in answer", "ended in reasoning"]

ENDS: tuple[End, ...] = (
    "complete",
    "cut in reasoning",
    "cut in answer",
    "ended in reasoning",
)


@dataclass(frozen=True)
class Record:
    """What one request did. Positions and lengths count output tokens."""

    reserve: int | None
    """None for the baseline, where it is unset."""
    seed: int
    problem: int
    outcome: Outcome
    answer: str | None
    """What the extractor found after the reasoning."""
    end: End
    finish_reason: str
    fired: bool
    """Whether a block was open when the reserve was due, so that it had to close."""
    honoured: bool
    """Whether it did so there."""
    closed_at: int | None
    """Position after the close of the last block; None while it is open."""
    num_tokens: int
    num_reasoning_tokens: int
    empty_answer: bool
    """Whether the reasoning was closed and nothing came after it."""
    digest: str
    """Tells outputs apart: of the token ids."""
    token_ids: list[int] | None = None

    @property
    def key(self) -> tuple[int | None, int, int]:
        return self.reserve, self.seed, self.problem

    @property
    def is_right(self) -> bool:
        return self.outcome == "right"

    @property
    def is_answered(self) -> bool:
        return self.outcome != "unanswered"

    @property
    def is_truncated(self) -> bool:
        return self.finish_reason == "length"


class Judge:
    """Makes records of completions."""

    def __init__(self, task: Task, client: Any, max_tokens: int) -> None:
        markers = ReasoningMarkers.from_config(client.reasoning_config)
        if markers is None:
            raise ValueError("The model has no reasoning markers; choose a parser.")
        self.task, self.markers, self.tokenizer = task, markers, client.tokenizer
        self.max_tokens, self.max_model_len = max_tokens, client.max_model_len

    def record(
        self, completion: Completion, reserve: int | None, seed: int, index: int
    ) -> Record:
        """Judge one completion.

        Args:
            completion: What the model returned.
            reserve: The request's reserve in tokens; None where unset.
            seed: The run it belongs to.
            index: Of the task's problem.

        """
        token_ids = completion.token_ids
        scan = self._scan(completion)
        scan.extend(token_ids)
        closed_at = None if scan.inside else max(scan.exit_end, 0)
        content = "" if scan.inside else self._content(token_ids, scan)
        is_empty = not any(map(str.isalnum, content))
        fired, honoured = self._trigger(completion, scan, reserve)
        if completion.finish_reason == "length":
            content = without_cut_number(content)
        answer = self.task.extract(content)
        problem: Problem = self.task.problems[index]
        return Record(
            reserve=reserve,
            seed=seed,
            problem=index,
            outcome=self.task.outcome(answer, problem),
            answer=answer,
            end=_end(completion.finish_reason, scan.inside),
            finish_reason=completion.finish_reason,
            fired=fired,
            honoured=honoured,
            closed_at=closed_at,
            num_tokens=len(token_ids),
            num_reasoning_tokens=len(token_ids) if closed_at is None else closed_at,
            empty_answer=not scan.inside and is_empty,
            digest=hashlib.sha256(repr(token_ids).encode()).hexdigest()[:12],
            token_ids=token_ids,
        )

    def _scan(self, completion: Completion) -> ReasoningBlockScan:
        return ReasoningBlockScan(self.markers, completion.prompt_token_ids)

    def _content(self, token_ids: list[int], scan: ReasoningBlockScan) -> str:
        """The text after the reasoning.

        A forced end may open the answer after the natural end, so the text
        begins at the latter.
        """
        begin, natural_end = max(scan.exit_end, 0), self.markers.natural_end
        earliest = max(begin - len(self.markers.forced_end), 0)
        for position in range(begin - len(natural_end), earliest - 1, -1):
            if token_ids[position : position + len(natural_end)] == natural_end:
                begin = position + len(natural_end)
                break
        return self.tokenizer.decode(token_ids[begin:], skip_special_tokens=True)

    def _trigger(
        self, completion: Completion, scan: ReasoningBlockScan, reserve: int | None
    ) -> tuple[bool, bool]:
        if reserve is None:
            return False, False
        num_output_tokens = effective_max_tokens(
            self.max_tokens, self.max_model_len, len(completion.prompt_token_ids)
        )
        edge = reserve_close_len(
            reserve, num_output_tokens, len(self.markers.forced_end)
        )
        if edge is None:
            return False, False
        at_edge = self._scan(completion)
        at_edge.extend(completion.token_ids[:edge])
        if at_edge.inside and len(completion.token_ids) > edge:
            window_end = edge + len(self.markers.forced_end)
            at_edge.extend(completion.token_ids[edge:window_end])
            return True, not at_edge.inside
        # A block opened after the edge is closed at once.
        fired = scan.closed_by(ReasoningLimits(close_len=edge)) == "answer_reserve"
        return fired, fired


def _end(finish_reason: str, inside: bool) -> End:
    if finish_reason == "length":
        return "cut in reasoning" if inside else "cut in answer"
    return "ended in reasoning" if inside else "complete"


class RecordStore:
    """The records of one evaluation, appended as they come."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RECORDS_FILE
        self._records = {record.key: record for record in self._read()}

    def _read(self) -> Iterable[Record]:
        if not self.path.exists():
            return
        whole = 0
        with self.path.open("rb+") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    # Written halfway when the run was interrupted.
                    file.truncate(whole)
                    break
                whole += len(line)
                yield Record(**json.loads(line))

    def __contains__(self, key: tuple[int | None, int, int]) -> bool:
        return key in self._records

    @cached_property
    def _file(self):
        return self.path.open("a")

    def add(self, records: Iterable[Record]) -> None:
        """Append records and write them out."""
        for record in records:
            self._records[record.key] = record
            self._file.write(json.dumps(asdict(record), separators=(",", ":")) + "\n")
        self._file.flush()

    def __iter__(self):
        return iter(self._records.values())


def read_records(folder: Path) -> list[Record]:
    """Read the records of an evaluation, packed or not.

    Raises:
        FileNotFoundError: If the folder holds none.

    """
    if (folder / RECORDS_FILE).exists():
        return list(RecordStore(folder))
    with gzip.open(folder / PACKED_FILE, "rt") as file:
        return [Record(**json.loads(line)) for line in file]


def pack_records(folder: Path) -> Path:
    """Write the records without their token ids, compressed, for keeping."""
    packed = folder / PACKED_FILE
    # Without a time of writing, the same records give the same file.
    with packed.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        for record in RecordStore(folder):
            row = asdict(record)
            del row["token_ids"]
            file.write((json.dumps(row, separators=(",", ":")) + "\n").encode())
    return packed
