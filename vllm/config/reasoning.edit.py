# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What leaves a reasoning block and where one can open, from the parser."""

from tools.fork.edits import after_def, after_field, after_statement, inside


class ReasoningConfig:
    with after_field("_natural_reasoning_end_token_ids"):
        _implicit_reasoning_end_token_ids: list[int] = field(
            default_factory=list, init=False, repr=False
        )
        """Tokens that leave reasoning and are content, as the parser knows them."""
        _turn_boundary_token_ids: list[int] = field(
            default_factory=list, init=False, repr=False
        )
        """Tokens that begin a turn, as the parser declares them."""
        _starts_in_reasoning: bool = field(default=False, init=False, repr=False)
        """Whether the parser's initial state is reasoning."""

    with after_def("natural_reasoning_end_token_ids"):

        @property
        def reasoning_exit_token_ids(self) -> list[list[int]]:
            """Every sequence that leaves a reasoning block: the natural end first,
            then the parser's implicit ends, such as a tool-call opener."""
            natural_end = self._natural_reasoning_end_token_ids
            if not natural_end:
                return []
            return [
                natural_end,
                *([token_id] for token_id in self._implicit_reasoning_end_token_ids),
            ]

        @property
        def turn_boundary_token_ids(self) -> list[int]:
            """Tokens that begin a turn: a start marker in an earlier turn of the
            prompt opens no block. Empty where the parser declares none."""
            return self._turn_boundary_token_ids

        @property
        def starts_in_reasoning(self) -> bool:
            """Whether the model's output is reasoning before any start marker,
            unless the prompt has closed it."""
            return self._starts_in_reasoning

    def initialize_token_ids(self):
        with inside(tests="self.reasoning_parser"):
            with after_statement(assigns="natural_reasoning_end_str"):
                self._implicit_reasoning_end_token_ids = (
                    reasoning_parser.implicit_end_token_ids
                )
                self._turn_boundary_token_ids = reasoning_parser.turn_boundary_token_ids
                self._starts_in_reasoning = reasoning_parser.starts_in_reasoning
