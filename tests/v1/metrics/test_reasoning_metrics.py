# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The counters of limited reasoning, and the dashboard that reads them."""

import json
from functools import partial
from pathlib import Path

import pytest
import regex as re
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from vllm.v1.metrics.reasoning import ReasoningProm
from vllm.v1.sample.reasoning_outcome import ReasoningOutcome

DASHBOARD = (
    Path(__file__).parents[3]
    / "examples/observability/dashboards/grafana/answer_reserve.json"
)


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def prom(registry):
    return ReasoningProm(
        partial(Counter, registry=registry),
        partial(Histogram, registry=registry),
        ["model_name", "engine"],
        {0: ["m", "0"]},
        token_buckets=[1, 10, 100],
    )


def outcome(closed_by, num_answer_tokens=0, ended_inside=False, has_reserve=True):
    return ReasoningOutcome(closed_by, ended_inside, num_answer_tokens, has_reserve)


def value(registry, name, **labels):
    return registry.get_sample_value(
        f"vllm:reasoning_{name}", {"model_name": "m", "engine": "0"} | labels
    )


def test_closed_blocks_are_counted_by_what_closed_them(prom, registry):
    for closed_by in ["model", "answer_reserve", "answer_reserve"]:
        prom.observe(outcome(closed_by), 0)
    counts = {
        closed_by: value(registry, "blocks_closed_total", closed_by=closed_by)
        for closed_by in ["model", "answer_reserve", "thinking_token_budget"]
    }
    assert counts == {"model": 1, "answer_reserve": 2, "thinking_token_budget": 0}


def test_requests_that_carried_a_reserve_are_counted(prom, registry):
    prom.observe(outcome("model"), 0)
    prom.observe(outcome("thinking_token_budget", has_reserve=False), 0)
    assert value(registry, "answer_reserve_requests_total") == 1


def test_answer_tokens_are_observed_after_a_forced_close_only(prom, registry):
    prom.observe(outcome("model", num_answer_tokens=50), 0)
    prom.observe(outcome("answer_reserve", num_answer_tokens=8), 0)
    prom.observe(outcome("thinking_token_budget", num_answer_tokens=70), 0)
    assert value(registry, "forced_close_answer_tokens_count") == 2
    assert value(registry, "forced_close_answer_tokens_sum") == 78


def test_outputs_that_ended_inside_the_block_are_counted(prom, registry):
    prom.observe(outcome(None, ended_inside=True), 0)
    assert value(registry, "unclosed_requests_total") == 1


def test_a_request_without_limits_counts_nothing(prom, registry):
    before = generate_latest(registry)
    prom.observe(None, 0)
    assert generate_latest(registry) == before


def test_the_dashboard_reads_only_metrics_that_exist(prom, registry):
    prom.observe(outcome("answer_reserve"), 0)
    exported = {
        sample.name for metric in registry.collect() for sample in metric.samples
    }
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    read = {name for query in queries for name in re.findall(r"vllm:\w+", query)}
    assert read and read <= exported


def test_the_dashboard_shows_the_trigger_rate():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    (panel,) = [panel for panel in panels if panel["title"] == "Trigger rate"]
    (target,) = panel["targets"]
    assert 'closed_by="answer_reserve"' in target["expr"]
    assert "vllm:reasoning_answer_reserve_requests_total" in target["expr"]
