# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The grammar of a parser engine tells where reasoning starts and ends.

The limits ask the reasoning parser, and the grammar of an engine knows.

Goes when upstream's parsers declare what leaves a reasoning block
(vllm-project/vllm#44676 asks for it).
"""

from tools.fork.edits import after_def, at_start, before_def, before_statement, until


class ParserEngineReasoningAdapter:
    with until("0.34.0"), before_def("adjust_request"):

        @property
        def implicit_end_token_ids(self) -> list[int]:
            engine = self._parser_engine
            natural_end = {engine._reasoning_end_token_id}
            return sorted(engine.reasoning_end_token_ids - natural_end)

    with after_def("reasoning_end_token_ids"):

        @property
        def turn_boundary_token_ids(self) -> list[int]:
            return sorted(self._parser_engine._turn_boundary_token_ids)

        @property
        def starts_in_reasoning(self) -> bool:
            config = self._parser_engine.parser_engine_config
            return config.initial_state is ParserState.REASONING

    def adjust_initial_state_from_prompt(self):
        with at_start():
            self._parser_engine._prompt_token_ids = prompt_token_ids

    def count_reasoning_tokens(self):
        with before_statement(calls="self._counting_parser_engine._single_pass_parse"):
            self._counting_parser_engine._prompt_token_ids = (
                self._parser_engine._prompt_token_ids
            )
