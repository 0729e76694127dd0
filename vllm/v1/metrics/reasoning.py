# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Prometheus metrics of limited reasoning.

Only requests that set a limit are counted: `thinking_token_budget`,
`reasoning_answer_reserve`, or the server's default of the latter. The share of
reserves that fired is, over five minutes::

    rate(vllm:reasoning_blocks_closed_total{closed_by="answer_reserve"}[5m])
      / rate(vllm:reasoning_answer_reserve_requests_total[5m])
"""

from collections.abc import Sequence
from typing import Any, get_args

from prometheus_client import Counter, Histogram

from vllm.v1.metrics.utils import create_metric_per_engine
from vllm.v1.sample.reasoning_limits import ReasoningClosedBy
from vllm.v1.sample.reasoning_outcome import ReasoningOutcome


class ReasoningProm:
    """Counts how the reasoning of finished outputs ended.

    Args:
        counter_cls: Counter class of the logger.
        histogram_cls: Histogram class of the logger.
        labelnames: Labels of every metric.
        per_engine_labelvalues: Their values by engine index.
        token_buckets: Upper bounds of the histogram's buckets, in tokens.

    """

    def __init__(
        self,
        counter_cls: type[Counter],
        histogram_cls: type[Histogram],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
        token_buckets: Sequence[float],
    ) -> None:
        blocks_closed = counter_cls(
            name="vllm:reasoning_blocks_closed",
            documentation=(
                "Finished outputs whose reasoning block closed, by what closed it "
                "(requests with a reasoning limit)."
            ),
            labelnames=[*labelnames, "closed_by"],
        )
        self.blocks_closed: dict[str, dict[int, Any]] = {
            closed_by: create_metric_per_engine(
                blocks_closed,
                {
                    idx: [*labelvalues, closed_by]
                    for idx, labelvalues in per_engine_labelvalues.items()
                },
            )
            for closed_by in get_args(ReasoningClosedBy)
        }
        self.answer_reserve_requests: dict[int, Any] = create_metric_per_engine(
            counter_cls(
                name="vllm:reasoning_answer_reserve_requests",
                documentation=(
                    "Finished outputs of requests that carried an answer reserve."
                ),
                labelnames=labelnames,
            ),
            per_engine_labelvalues,
        )
        self.unclosed_requests: dict[int, Any] = create_metric_per_engine(
            counter_cls(
                name="vllm:reasoning_unclosed_requests",
                documentation=(
                    "Finished outputs that ended inside their reasoning block "
                    "(requests with a reasoning limit)."
                ),
                labelnames=labelnames,
            ),
            per_engine_labelvalues,
        )
        self.forced_close_answer_tokens: dict[int, Any] = create_metric_per_engine(
            histogram_cls(
                name="vllm:reasoning_forced_close_answer_tokens",
                documentation=(
                    "Histogram of output tokens after a forced reasoning end."
                ),
                buckets=token_buckets,
                labelnames=labelnames,
            ),
            per_engine_labelvalues,
        )

    def observe(self, outcome: ReasoningOutcome | None, engine_idx: int) -> None:
        """Count one finished output; None where its request sets no limit."""
        if outcome is None:
            return
        if outcome.has_answer_reserve:
            self.answer_reserve_requests[engine_idx].inc()
        if outcome.ended_inside:
            self.unclosed_requests[engine_idx].inc()
        if outcome.closed_by is not None:
            self.blocks_closed[outcome.closed_by][engine_idx].inc()
            if outcome.closed_by != "model":
                self.forced_close_answer_tokens[engine_idx].observe(
                    outcome.num_answer_tokens
                )
