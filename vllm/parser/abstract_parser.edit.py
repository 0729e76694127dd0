# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""An end marker that closes no block is no content, as in the parser engine.

A model whose block was closed for it may write the marker itself soon afterwards.

Goes when upstream drops such markers outside of the parser engine too.
"""

from tools.fork.edits import (
    after_field,
    after_statement,
    before_def,
    before_import,
    before_statement,
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
        with before_statement(calls="state.advance"):
            kept_text, kept_token_ids = self._drop_stray_ends(
                state, delta_text, delta_token_ids
            )
            is_dropped = delta_token_ids and not kept_token_ids and not kept_text
            if is_dropped and not finished:
                return None
            delta_text, delta_token_ids = kept_text, kept_token_ids
