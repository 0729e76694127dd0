# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A reasoning parser for models that write `<think>` and `</think>` as plain text.

Load it with `--reasoning-parser-plugin` and choose it with `--reasoning-parser
text_markers`. BPE merges the last `>` of a marker with a line break after it, so
the markers that are matched stop before it: their tokens are the same whatever
follows.
"""

from collections.abc import Sequence

from vllm.entrypoints.generate.base.protocol import DeltaMessage
from vllm.reasoning import ReasoningParser, ReasoningParserManager

START, END = "<think", "</think"
TURN_BOUNDARY = "<|im_start|>"


@ReasoningParserManager.register_module("text_markers")  # type: ignore[arg-type]
class TextMarkersReasoningParser(ReasoningParser):
    """Reasoning stands before `</think>`, in a block that the prompt has opened."""

    @property
    def reasoning_start_str(self) -> str:
        return START

    @property
    def reasoning_end_str(self) -> str:
        return END

    @property
    def turn_boundary_token_ids(self) -> list[int]:
        boundary = self.vocab.get(TURN_BOUNDARY)
        return [] if boundary is None else [boundary]

    def _end_of_reasoning(self, input_ids: Sequence[int]) -> int | None:
        """Position after the last end marker, None without one."""
        ids = list(input_ids)
        end = self.model_tokenizer.encode(END, add_special_tokens=False)
        for position in range(len(ids), len(end) - 1, -1):
            if ids[position - len(end) : position] == end:
                return position
        return None

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        return self._end_of_reasoning(input_ids) is not None

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        position = self._end_of_reasoning(input_ids)
        return [] if position is None else list(input_ids[position:])

    def extract_reasoning(
        self, model_output: str, request: object
    ) -> tuple[str | None, str | None]:
        reasoning, end, content = model_output.partition(END)
        return reasoning or None, content.removeprefix(">").lstrip() if end else None

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
    ) -> DeltaMessage | None:
        before, now = (
            self.extract_reasoning(_settled(text), None)
            for text in (previous_text, current_text)
        )
        grown = [(b or "", n or "") for b, n in zip(before, now, strict=True)]
        reasoning, content = (text[len(seen) :] or None for seen, text in grown)
        if reasoning is None and content is None:
            return None
        return DeltaMessage(reasoning=reasoning, content=content)


def _settled(text: str) -> str:
    """The text without an ending that may turn out to be the end marker."""
    for length in range(len(END) - 1, 0, -1):
        if text.endswith(END[:length]):
            return text[:-length]
    return text
