# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""`reasoning_answer_reserve`: the sampling parameter and what it refuses.

With `max_tokens` alone a request can spend all of it on reasoning.

Goes when upstream has `reasoning_answer_reserve`.
"""

from tools.fork.edits import (
    after_argument,
    after_def,
    after_field,
    after_formatted,
    after_parameter,
    after_statement,
    merge_import,
)

with merge_import():
    from pydantic import Field

with after_field("ThinkingTokenBudget"):

    def validate_reasoning_answer_reserve(value: Any) -> int | None:
        """Validate the type and sign of ``reasoning_answer_reserve``.

        Returns:
            The reserve in tokens; 0 where it is turned off, None where unset.

        Raises:
            VLLMValidationError: If it is not an integer of at least -1.

        """
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < -1:
            raise VLLMValidationError(
                "reasoning_answer_reserve must be a positive integer number of "
                f"output tokens, or 0 or -1 to turn it off, got {value!r}.",
                parameter="reasoning_answer_reserve",
                value=value,
            )
        return max(value, 0)

    def check_reasoning_answer_reserve(
        answer_reserve: int | None,
        max_tokens: int | None,
        min_tokens: int,
        kv_transfer_params: dict[str, Any] | None = None,
    ) -> None:
        """Check ``reasoning_answer_reserve`` against the limits sent with it.

        Args:
            answer_reserve: The reserve in tokens; 0 or None when it is off.
            max_tokens: Output tokens asked for, before the context limits them.
            min_tokens: Output tokens that must be generated.
            kv_transfer_params: Of a disaggregated request. A prefill-only leg
                has ``max_tokens=1`` and generates no answer.

        Raises:
            VLLMValidationError: If the reserve leaves no room for reasoning, or
                if the answer could not reach the required length inside it.

        """
        if not answer_reserve:
            return
        is_prefill_leg = bool((kv_transfer_params or {}).get("do_remote_decode"))
        takes_all = max_tokens is not None and answer_reserve >= max_tokens
        if takes_all and not is_prefill_leg:
            raise VLLMValidationError(
                f"reasoning_answer_reserve must be less than max_tokens={max_tokens}, "
                f"got {answer_reserve}: it would leave no tokens for reasoning. Lower "
                "it or raise max_tokens.",
                parameter="reasoning_answer_reserve",
                value=answer_reserve,
            )
        if answer_reserve < min_tokens:
            raise VLLMValidationError(
                "reasoning_answer_reserve must be at least "
                f"min_tokens={min_tokens}, got {answer_reserve}: an answer inside the "
                "reserve could not reach the required length. Raise it or lower "
                "min_tokens.",
                parameter="reasoning_answer_reserve",
                value=answer_reserve,
            )

    def refuse_beam_search_reserve(answer_reserve: int | None) -> None:
        """Refuse a reserve on a beam search request.

        Raises:
            VLLMValidationError: If a reserve is set.

        """
        if answer_reserve:
            raise VLLMValidationError(
                "reasoning_answer_reserve is not supported with beam search, got "
                f"{answer_reserve}. Unset it or use_beam_search.",
                parameter="reasoning_answer_reserve",
                value=answer_reserve,
            )

    ReasoningAnswerReserve = Annotated[
        int | None,
        BeforeValidator(validate_reasoning_answer_reserve),
        Field(
            description="Number of output tokens kept for the answer of a reasoning "
            "model: while the reasoning block is still open and only this many are "
            "left, the reasoning end is forced. 0 or -1 turns it off."
        ),
    ]


class SamplingParams:
    with after_field("thinking_token_budget"):
        reasoning_answer_reserve: ReasoningAnswerReserve = None
        """Number of output tokens kept for the answer of a reasoning model.

        While the reasoning block is still open and only this many output tokens
        are left, the reasoning end is forced. The forced end takes its tokens
        from the reserve; the rest is left to the answer. A block that is closed
        by then, also by a tool call, is not touched. Counted back from
        ``max_tokens`` or from the end of the context, whichever comes first.

        ``None``, ``0`` and ``-1`` leave it off. Must be less than ``max_tokens``,
        at least ``min_tokens``, and more than the tokens of the forced end. May
        be combined with ``thinking_token_budget``: whichever comes first closes
        the block."""
        _reasoning_close_len: int | None = None
        """Output length, in tokens, from which on the reserve closes an open
        block. Set by the input processor on request-local params."""
        _reasoning_needs_start_marker: bool = False
        """Whether the reserve closes only a block that a start marker opened. Set
        beside ``_reasoning_close_len``."""
        _from_chat_template: bool = False
        """Whether the prompt was rendered by the chat template, so that output may
        be reasoning before any start marker. Set by the entrypoints."""

    def from_optional():
        with after_parameter("thinking_token_budget"):
            reasoning_answer_reserve: int | None = None
        with after_argument("SamplingParams", "thinking_token_budget"):
            reasoning_answer_reserve = reasoning_answer_reserve

    def __post_init__(self):
        with after_statement(assigns="self.thinking_token_budget"):
            self.reasoning_answer_reserve = validate_reasoning_answer_reserve(
                self.reasoning_answer_reserve
            )
        with after_statement(calls="self._verify_args"):
            self._verify_reasoning_answer_reserve()

    with after_def("_verify_args"):

        def _verify_reasoning_answer_reserve(self) -> None:
            # Resolved params hold the tokens that the context leaves.
            if self._reasoning_close_len is None:
                check_reasoning_answer_reserve(
                    self.reasoning_answer_reserve,
                    self.max_tokens,
                    self.min_tokens,
                    (self.extra_args or {}).get("kv_transfer_params"),
                )

    def _validate_trace_replay(self):
        with after_statement(tests="self.thinking_token_budget"):
            if self.reasoning_answer_reserve:
                raise VLLMValidationError(
                    "reasoning_answer_reserve is not supported with "
                    "trace_decode_token_ids. Unset one of them.",
                    parameter="reasoning_answer_reserve",
                    value=self.reasoning_answer_reserve,
                )

    def __repr__(self):
        with after_formatted("self.thinking_token_budget"):
            f"reasoning_answer_reserve={self.reasoning_answer_reserve}, "
