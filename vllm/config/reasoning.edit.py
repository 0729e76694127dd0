# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What leaves a reasoning block and where one can open, from the parser; the
default of the answer reserve.

Upstream knows one end marker. A tool call leaves a block too, and a start marker in an
earlier turn of the prompt opens none.

Goes when upstream knows the exits and turns (vllm-project/vllm#44676 asks for the
former) and `reasoning_answer_reserve`.
"""

from tools.fork.edits import (
    after_def,
    after_field,
    after_import,
    after_statement,
    at_end,
    before_def,
    before_import,
    inside,
    merge_import,
)

with after_import("dataclasses"):
    from typing import Any

    from pydantic import field_validator

with before_import("vllm.config.model"):
    import vllm.envs as envs
with after_import("vllm.config.utils"):
    from vllm.logger import init_logger

with merge_import():
    from vllm.reasoning import ReasoningParser, ReasoningParserManager

with before_def("ReasoningConfig"):
    logger = init_logger(__name__)


class ReasoningConfig:
    with after_field("reasoning_end_str"):
        answer_reserve: int | float | None = None
        """Default of `reasoning_answer_reserve`: output tokens that a request which
        leaves the field unset keeps for its answer, but no more than half of what it
        can produce. A number below 1 is a fraction of what it can produce."""

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

        @field_validator("answer_reserve", mode="before")
        @classmethod
        def _validate_answer_reserve(cls, value: Any) -> Any:
            """Check the type and range; 0 and -1 turn it off, as on a request."""
            if value is None:
                return None
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if is_number and value in (0, -1):
                return 0
            if not is_number or value < 0 or (value >= 1 and value != int(value)):
                raise ValueError(
                    "answer_reserve must be a positive number of output tokens or a "
                    "fraction between 0 and 1 of a request's limit, or 0 or -1 to turn "
                    f"it off, got {value!r}."
                )
            return int(value) if value >= 1 else value

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
        with at_end():
            self._warn_of_markers(reasoning_parser if self.reasoning_parser else None)

    with before_def("initialize_token_ids"):

        def _warn_of_markers(self, reasoning_parser: ReasoningParser | None) -> None:
            """Say at startup what a limit on reasoning could stumble over."""
            start = tuple(self._reasoning_start_token_ids or ())
            natural_end = tuple(self._natural_reasoning_end_token_ids or ())
            forced_end = tuple(self._reasoning_end_token_ids or ())
            if reasoning_parser is not None and not reasoning_parser.is_reasoning_end(
                [*start, *forced_end]
            ):
                logger.warning_once(
                    "After the forced reasoning end %s the reasoning parser %r still "
                    "reports reasoning, so that a forced close gives no answer. Set "
                    "reasoning_end_str to a text that ends with what the model emits "
                    "before its answer.",
                    forced_end,
                    self.reasoning_parser,
                )
            # The parser of Harmony's channels names no markers, so these are given.
            end = self.reasoning_end_str
            opens_next = "<|end|>" in end and "<|channel|>" in end
            if "<|channel|>" in self.reasoning_start_str and not opens_next:
                logger.warning_once(
                    "Reasoning is a channel (start %s) but the forced reasoning end %s "
                    "does not open the next one, so that the model can go on in "
                    "another analysis channel. Set reasoning_end_str to "
                    "'<|end|><|start|>assistant<|channel|>final<|message|>'.",
                    start,
                    forced_end,
                )
            if len(start) > 1 or len(natural_end) > 1:
                logger.warning_once(
                    "The reasoning markers are not single tokens (start %s, end %s). "
                    "A model may spell them with other tokens, for example merged "
                    "with what follows, and a limit on reasoning does not see those.",
                    start,
                    natural_end,
                )

        def resolve_answer_reserve(self, model_config: ModelConfig) -> None:
            """Settle `answer_reserve` once the markers are known.

            Where it is unset, `reasoning_answer_reserve` of the generation config
            counts, as other sampling defaults do.

            Raises:
                ValueError: If it is set without reasoning being enabled, or if the
                    forced reasoning end alone would use it up.

            """
            overrides = model_config.override_generation_config
            asked = self.answer_reserve or overrides.get("reasoning_answer_reserve")
            if not self._enabled:
                if asked:
                    raise ValueError(
                        f"A default answer reserve of {asked} is set but reasoning is "
                        "not enabled. Please set --reasoning-parser, or "
                        "reasoning_start_str and reasoning_end_str in "
                        "--reasoning-config."
                    )
                return
            if envs.VLLM_USE_RUST_FRONTEND:
                logger.warning_once(
                    "The Rust frontend (VLLM_USE_RUST_FRONTEND) does not read "
                    "reasoning_answer_reserve: a request's own reserve, also one "
                    "that turns the default off, has no effect there. The default "
                    "(answer_reserve in --reasoning-config) holds after a start "
                    "marker. Unset VLLM_USE_RUST_FRONTEND to serve the field."
                )
            if self.answer_reserve is None:
                defaults = overrides
                if model_config.generation_config != "vllm":
                    defaults = model_config.try_get_generation_config() | overrides
                self.answer_reserve = self._validate_answer_reserve(
                    defaults.get("reasoning_answer_reserve")
                )
            if not self.answer_reserve:
                self.answer_reserve = None
                return

            assert self._reasoning_end_token_ids is not None
            num_close_tokens = len(self._reasoning_end_token_ids)
            if 1 <= self.answer_reserve <= num_close_tokens:
                raise ValueError(
                    f"answer_reserve must be more than the {num_close_tokens} token(s) "
                    f"of the forced reasoning end, got {self.answer_reserve}: the "
                    "close alone would use it up. Raise it."
                )
            logger.info_once(
                "Answer reserve: where a request leaves reasoning_answer_reserve "
                "unset, it is %s, and at most half of what the request can produce.",
                f"{self.answer_reserve} tokens"
                if self.answer_reserve >= 1
                else f"{self.answer_reserve:.0%} of what the request can produce",
            )
