# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the prompt closed is no reasoning; a stray end marker is no content.

A whole reply was read without its prompt, so that an answer continued after a closed
block came back as reasoning. A model whose block was closed for it may write the
marker itself soon afterwards.

Goes when upstream reads whole replies with their prompt, and drops such markers
outside of the parser engine too.
"""

from tools.fork.edits import (
    after_field,
    after_statement,
    at_end,
    at_start,
    before_def,
    before_import,
    before_statement,
    since,
    until,
)

with before_import("openai.types.responses"):
    import regex as re

with before_def("StreamState"):

    class StrayReasoningEnds:
        """Takes end markers that close no block out of an output.

        A model whose block was closed for it may write the marker itself soon
        afterwards. The parser engine drops such a marker. This does it where the
        output does not pass through the engine.
        """

        def __init__(self, parser: ReasoningParser, inside: bool) -> None:
            """Read the markers of a parser that names a reasoning end.

            Args:
                parser: The reasoning parser of the output.
                inside: Whether the output begins inside a block.

            """
            start, end = parser.reasoning_start_str, parser.reasoning_end_str
            markers = [marker for marker in (start, end) if marker]
            self._end = end
            self._in_text = re.compile("|".join(map(re.escape, markers)))
            # One that is no single token is found in the text alone.
            self._ids = {parser.vocab.get(marker): marker for marker in markers}
            # Token ids may be ahead of the text, which stop strings hold back.
            self._inside = {"text": inside, "token_ids": inside}

        def drop(
            self,
            text: str,
            token_ids: Sequence[int] = (),
        ) -> tuple[str, list[int]]:
            """Return the next part of the output without stray end markers."""
            kept_text = self._in_text.sub(
                lambda found: "" if self._is_stray(found[0], "text") else found[0], text
            )
            kept_token_ids = [
                token_id
                for token_id in token_ids
                if token_id not in self._ids
                or not self._is_stray(self._ids[token_id], "token_ids")
            ]
            return kept_text, kept_token_ids

        def _is_stray(self, marker: str, where: str) -> bool:
            is_end = marker == self._end
            is_stray = is_end and not self._inside[where]
            self._inside[where] = not is_end
            return is_stray


class StreamState:
    with after_field("engine_based"):
        # Set once a block was open.
        stray_ends: StrayReasoningEnds | None = None


class DelegatingParser:
    with before_def("extract_reasoning"):
        # Then no token of the output is reasoning.
        _prompt_closed_reasoning = False

        def _read_prompt(self, prompt_token_ids: Sequence[int]) -> None:
            """Learn from the prompt whether the output begins in reasoning."""
            prompt_token_ids = list(prompt_token_ids)
            self._prompt_closed_reasoning = self.is_reasoning_end(prompt_token_ids)
            parser = self._reasoning_parser
            if parser is not None and not self._prompt_closed_reasoning:
                parser.adjust_initial_state_from_prompt(prompt_token_ids)

    with until("0.33.0"), before_def("is_reasoning_end"):

        def set_prompt_token_ids(self, prompt_token_ids: Sequence[int]) -> None:
            self._read_prompt(prompt_token_ids)

    def extract_reasoning(self):
        with at_start():
            if self._prompt_closed_reasoning:
                return None, model_output

    def is_reasoning_end(self):
        with at_start():
            # A block of an earlier turn says nothing about this one.
            end_of_turn = getattr(self.model_tokenizer, "eos_token_id", None)
            if end_of_turn in input_ids:
                turn_start = len(input_ids) - input_ids[::-1].index(end_of_turn)
                input_ids = input_ids[turn_start:]

    with since("0.33.0"):

        def set_prompt_token_ids(self):
            with until("0.34.0"), at_end():
                self._read_prompt(prompt_token_ids)
            with since("0.34.0"), at_end():
                self._read_prompt(prompt_token_ids)
                if self._reasoning_engine_streams_all:
                    # The engine reads all of the output, from content on.
                    engine = self._reasoning_parser._parser_engine  # type: ignore[union-attr]
                    engine._prompt_closes_reasoning = self._prompt_closed_reasoning
                    self._prompt_closed_reasoning = False

    def count_reasoning_tokens(self):
        with at_start():
            if self._prompt_closed_reasoning:
                return 0

    with before_def("parse"):

        def _drop_stray_ends(
            self, state: StreamState, delta_text: str, delta_token_ids: list[int]
        ) -> tuple[str, list[int]]:
            """Drop stray end markers that the parser engine will not see."""
            parser = self._reasoning_parser
            engine_sees_all = self._engine_based and self._tool_parser is not None
            if engine_sees_all or parser is None or not parser.reasoning_end_str:
                return delta_text, delta_token_ids
            in_reasoning = self._in_reasoning_phase(state)
            engine_sees_block = parser.engine_based_streaming
            if in_reasoning and state.stray_ends is None:
                inside = not engine_sees_block
                state.stray_ends = StrayReasoningEnds(parser, inside=inside)
            if state.stray_ends is None or (in_reasoning and engine_sees_block):
                return delta_text, delta_token_ids
            return state.stray_ends.drop(delta_text, delta_token_ids)

    def parse(self):
        with after_statement(calls="self.extract_reasoning"):
            parser = self._reasoning_parser
            if reasoning is not None and parser is not None:
                reasoning = reasoning.removeprefix(parser.reasoning_start_str or "")
            # Without reasoning no block was closed.
            if (
                parser is not None
                and reasoning is not None
                and content
                and parser.reasoning_end_str
            ):
                stray_ends = StrayReasoningEnds(parser, inside=False)
                content = stray_ends.drop(content)[0]

    def parse_delta(self):
        with until("0.33.0"), before_statement(tests="self.is_reasoning_end"):
            self.set_prompt_token_ids(prompt_token_ids)
        with before_statement(calls="state.advance"):
            kept_text, kept_token_ids = self._drop_stray_ends(
                state, delta_text, delta_token_ids
            )
            is_dropped = delta_token_ids and not kept_token_ids and not kept_text
            if is_dropped and not finished:
                return None
            delta_text, delta_token_ids = kept_text, kept_token_ids
        with after_statement(calls="self.extract_reasoning_streaming"):
            parser = self._reasoning_parser
            if parser and delta_message and delta_message.reasoning:
                start = parser.reasoning_start_str or ""
                if not state.previous_text:
                    without_start = delta_message.reasoning.removeprefix(start)
                    delta_message.reasoning = without_start or None
