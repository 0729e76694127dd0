# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a reasoning parser can say about where reasoning starts and ends.

Nothing may be forced inside a tool call, which only the parser tells from reasoning.

Goes when upstream's parsers declare what leaves a reasoning block
(vllm-project/vllm#44676 asks for it).
"""

from tools.fork.edits import after_def, before_def, since, until


class ReasoningParser:
    with after_def("reasoning_end_str"):

        @property
        def turn_boundary_token_ids(self) -> list[int]:
            """Tokens that begin a turn in the rendered prompt."""
            return []

        @property
        def starts_in_reasoning(self) -> bool:
            """Whether output is reasoning before any start marker, unless the
            prompt has closed it."""
            return False

    with until("0.34.0"), before_def("has_engine_confirmed_reasoning_end"):

        @property
        def implicit_end_token_ids(self) -> list[int]:
            """Tokens that end reasoning and belong to what follows, such as a
            tool-call opener."""
            return []

    with since("0.34.0"), after_def("implicit_reasoning_end_token_ids"):

        @property
        def implicit_end_token_ids(self) -> list[int]:
            """Tokens that end reasoning and belong to what follows, also where
            reasoning can end on more than single tokens."""
            return sorted(self.implicit_reasoning_end_token_ids)
