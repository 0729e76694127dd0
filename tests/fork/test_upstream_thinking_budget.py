# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Upstream's own tests of thinking budgets, run against the installed fork.

They come from the source distribution at test time. What is left out reads or
writes bookkeeping of upstream's state machine that a derived state does not have
(``in_end``, ``think_count``, ``scan_offset``, ``_mask_capacity``); the behaviour it
is after is tested by the test of ours that stands beside it.
"""

import ast
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.v1.sample import test_reasoning_limits

UPSTREAM_VERSION = "0.33.0"

UPSTREAM_RUNS = [
    ("tests/v1/sample/test_thinking_budget_state.py",),
    ("tests/v1/logits_processors/test_correctness.py", "-k", "thinking"),
    (
        "tests/entrypoints/openai/chat_completion/"
        "test_thinking_token_budget_validation.py",
    ),
]

_CORRECTNESS = "tests/v1/logits_processors/test_correctness.py"
_HOLDER = f"{_CORRECTNESS}::test_thinking_budget"
_FORCED = f"{_CORRECTNESS}::TestThinkingBudgetReentry::test"
_NATURAL = f"{_CORRECTNESS}::TestThinkingBudgetNaturalEndReentry::test"

REPLACED_BY = {
    f"{_HOLDER}_holder_update_state_repeat_indices_last_row_wins": (
        "test_of_repeated_rows_the_last_of_a_request_counts"
    ),
    f"{_HOLDER}_holder_spec_mode_tensor_layout": (
        "test_with_drafts_there_is_room_for_a_row_of_each_draft_of_a_full_batch"
    ),
    f"{_HOLDER}_holder_empty_end_tokens_disables_row": (
        "test_an_engine_without_an_end_marker_forces_nothing"
    ),
    f"{_HOLDER}_enforced_without_penalties": (
        "test_an_empty_list_of_rows_leaves_the_budget_for_the_next_step"
    ),
    f"{_HOLDER}_long_thinking_section_end_marker_found_at_correct_index": (
        "test_a_natural_end_after_a_long_block_is_seen"
    ),
    f"{_FORCED}_single_token_end_reentry": (
        "test_a_block_after_a_forced_end_is_limited"
    ),
    f"{_FORCED}_multi_token_end_reentry": (
        "test_a_block_after_a_forced_end_is_limited"
    ),
    f"{_FORCED}_single_block_not_broken": (
        "test_an_answer_after_a_forced_end_is_left_alone"
    ),
    f"{_NATURAL}_natural_end_reentry_single_token": (
        "test_a_block_after_natural_ends_is_limited"
    ),
    f"{_NATURAL}_natural_end_reentry_multi_token": (
        "test_a_block_after_natural_ends_is_limited"
    ),
    f"{_NATURAL}_natural_end_immediate_reentry": (
        "test_a_block_after_natural_ends_is_limited"
    ),
    f"{_NATURAL}_multiple_natural_reentries": (
        "test_a_block_after_natural_ends_is_limited"
    ),
    f"{_NATURAL}_natural_then_forced_in_block_2": (
        "test_a_block_after_natural_ends_is_limited"
    ),
    f"{_NATURAL}_budget_one_natural_end_reentry": (
        "test_a_block_after_natural_ends_is_limited"
    ),
    f"{_NATURAL}_partial_end_sequence_in_content": (
        "test_part_of_an_end_marker_in_the_answer_changes_nothing"
    ),
    f"{_NATURAL}_continue_thinking_natural_end_reentry": (
        "test_a_block_after_natural_ends_is_limited"
    ),
}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory) -> Path:
    """A folder with upstream's tests and without upstream's code."""
    folder = tmp_path_factory.mktemp("upstream")
    if unpacked := os.getenv("VLLM_SDIST"):
        folder.joinpath("tests").symlink_to(Path(unpacked, "tests").resolve())
        return folder

    from tools.fork.base import fetch_sdist

    with tarfile.open(fetch_sdist(UPSTREAM_VERSION)) as archive:
        root = f"vllm-{UPSTREAM_VERSION}/"
        members = [
            member.replace(name=member.name.removeprefix(root), deep=False)
            for member in archive
            if member.name.startswith(f"{root}tests/")
        ]
        archive.extractall(folder, members, filter="data")
    return folder


@pytest.mark.parametrize("run", UPSTREAM_RUNS, ids=lambda run: Path(run[0]).stem)
def test_upstream_tests_pass(upstream, run):
    deselected = [f"--deselect={node}" for node in REPLACED_BY]
    result = subprocess.run(
        # Without upstream's fixtures, which reach for the network and for models.
        [sys.executable, "-m", "pytest", "-q", "--noconftest", *run, *deselected],
        cwd=upstream,
        env={**os.environ, "PYTHONPATH": _python_path(upstream)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout


@pytest.mark.parametrize("node", REPLACED_BY)
def test_a_test_that_is_left_out_exists_and_reads_private_bookkeeping(upstream, node):
    path, *names = node.split("::")
    scope: ast.AST = ast.parse(upstream.joinpath(path).read_text())
    # Helpers that the tests of a class share may do the reading.
    outermost = None
    for name in names:
        scope = next(
            child
            for child in ast.iter_child_nodes(scope)
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name == name
        )
        outermost = outermost or scope
    private = {"_state", "_mask_capacity"}
    assert any(
        isinstance(part, ast.Attribute) and part.attr in private
        for part in ast.walk(outermost)
    )


@pytest.mark.parametrize("replacement", sorted(set(REPLACED_BY.values())))
def test_what_replaces_it_is_a_test_of_ours(replacement):
    assert callable(getattr(test_reasoning_limits, replacement))


def _python_path(upstream: Path) -> str:
    return os.pathsep.join([str(upstream), *filter(None, [os.getenv("PYTHONPATH")])])
