# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The same close in every situation: the table of promises.

The model is a script: each word has one successor (see `scripted_model`). So
what a request says without limits is known, what it says with them follows from
the rules (`reasoning_limits_reference`), and every engine has to produce those
tokens, whatever it drafts, caches, preempts or splits.
"""

import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle, islice
from typing import Any

import pytest

from tests.answer_reserve_utils import (
    ENGINE_ENV,
    ENGINE_OPTIONS,
    HAS_RUNNER_V1,
    forced_end,
    ngram,
    skip_unless_supported,
)
from tests.v1.e2e import async_scheduling
from tests.v1.e2e.scripted_model import END_OF_TURN, Script, continuation, markers
from tests.v1.sample.reasoning_limits_reference import Markers
from vllm import LLM, SamplingParams
from vllm.config import ModelConfig, ReasoningConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler

pytestmark = pytest.mark.slow_test

MAX_MODEL_LEN = 96
REASONING = [f"w{i}" for i in range(10)]

SCRIPT = Script(
    [
        # Opens a block, and never closes it.
        "open <think> w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 w0",
        # Goes on in a block without having opened it.
        "inside w5",
        # Closes its block by itself.
        "brief r0 r1 r2 r3 r4 r5 </think>",
        "</think> a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 <|im_end|>",
        # Says what the engine would force.
        "begun g0 g1 g2 Time is up </think>",
        # Leaves its block for a tool call.
        "tool t0 t1 t2 <tool_call> j0 j1 j2 j3 j4 j5 </tool_call> <|im_end|>",
        # Ends its turn inside the block.
        "quit q0 q1 q2 q3 <|im_end|>",
        "<|im_start|> assistant user hello",
    ]
)
# What it drafts is often wrong, also in an answer and in what is forced.
DRAFT_SCRIPT = SCRIPT.deviating(
    {
        "<think>": "w1",
        "w3": "w9",
        "w7": "</think>",
        "r2": "w0",
        "a2": "<think>",
        "t2": "</think>",
        "g2": "is",
        "j3": "</tool_call>",
        "Time": "w0",
        "up": "Time",
    }
)

MARKER, PHRASE = "</think>", "Time is up </think>"


@dataclass(frozen=True)
class Case:
    """One promise about one request."""

    says: str
    prompt: str
    max_tokens: int
    limits: dict[str, Any]
    closes_at: int | None
    """Output index of the first forced token; None if none is forced."""
    stop: tuple[str, ...] = ()

    @property
    def prompt_ids(self) -> list[int]:
        return SCRIPT.ids(self.prompt)

    def params(self, **sampling: Any) -> SamplingParams:
        return SamplingParams(
            max_tokens=self.max_tokens,
            stop=list(self.stop),
            include_stop_str_in_output=True,
            **(self.limits | {"temperature": 0.0} | sampling),
        )


def reserve(tokens: int, budget: int | None = None) -> dict[str, Any]:
    limits = {"reasoning_answer_reserve": tokens, "thinking_token_budget": budget}
    return {name: value for name, value in limits.items() if value is not None}


def expected_output(
    script: Script, known: Markers, prompt: list[int], params: SamplingParams
) -> list[int]:
    assert params.max_tokens is not None
    return continuation(
        script,
        known,
        prompt,
        num_tokens=min(params.max_tokens, MAX_MODEL_LEN - len(prompt)),
        reserve=params.reasoning_answer_reserve,
        budget=params.thinking_token_budget,
        stop=params.stop or (),
    )


def reasoning_words(count: int, begin: int = 0) -> str:
    return " ".join(islice(cycle(REASONING), begin, begin + count))


TURN = "<|im_start|> assistant"
HELLO = f"<|im_start|> user hello {END_OF_TURN}"
# A whole earlier exchange with a closed block.
EARLIER = f"{HELLO} {TURN} <think> w0 w1 </think> a0 {END_OF_TURN}"
M = 40


def cases(end: str) -> Iterator[Case]:
    """The promises to a request, for a forced end."""
    num_end = len(end.split())

    # Speculation of up to 6 tokens meets the edge on every draft and after them.
    for rest in range(2, 10):
        r = num_end + rest
        yield Case(
            f"opens its block, {rest} tokens to answer", "open", M, reserve(r), M - r
        )
        yield Case(
            f"starts inside, {rest} tokens to answer", "inside", M, reserve(r), M - r
        )
    for at in (1, 2):
        yield Case(f"edge at {at}", f"{TURN} open", M, reserve(M - at), at)

    for at in range(4, 9):
        yield Case(
            f"closes by itself at 6, edge at {at}",
            "brief",
            M,
            reserve(M - at),
            at if at <= 6 else None,
        )
    for at in range(2, 9):
        # What the model has begun of the forced end is not repeated.
        yield Case(
            f"says the phrase at 3 to 6, edge at {at}",
            "begun",
            M,
            reserve(M - at),
            at if at <= (2 if num_end > 1 else 6) else None,
        )
    for at in range(1, 7):
        yield Case(
            f"calls a tool at 3, edge at {at}",
            "tool",
            M,
            reserve(M - at),
            at if at <= 3 else None,
        )
    for at in (3, 4, 5):
        yield Case(
            f"ends its turn inside at 4, edge at {at}",
            "quit",
            M,
            reserve(M - at),
            at if at <= 4 else None,
        )

    for budget, at in (
        (0, 0),
        (7, 8),
        (25, 26),
        (26, 27),
        (27, 28),
        (28, 28),
        (60, 28),
    ):
        yield Case(
            f"budget {budget} and a reserve at 28", "open", M, reserve(12, budget), at
        )
    yield Case("budget alone", "open", M, {"thinking_token_budget": 9}, 10)
    yield Case("no limit", "open", M, {}, None)
    yield Case("reserve turned off", "open", M, reserve(0), None)

    yield Case(
        "thinking off in the prompt", f"{TURN} <think> </think>", M, reserve(12), None
    )
    yield Case(
        "a literal marker in the user's text and thinking off",
        f"<|im_start|> user <think> {END_OF_TURN} {TURN} <think> </think>",
        M,
        reserve(12),
        None,
    )
    yield Case("opened in the prompt", f"{TURN} <think>", M, reserve(12), 28)
    yield Case("earlier turns are closed", f"{EARLIER} {TURN} open", M, reserve(12), 28)
    yield Case(
        "continues reasoning begun in the prompt",
        f"{EARLIER} {TURN} <think> w0 w1 w2",
        M,
        reserve(12),
        28,
    )
    yield Case(
        "the budget counts the reasoning in the prompt",
        f"{TURN} <think> w0 w1 w2",
        M,
        reserve(12, budget=10),
        7,
    )
    # Two requests with the same long prompt: the second one finds it cached.
    long_prompt = f"{TURN} <think> {reasoning_words(40)}"
    for again in ("", ", again"):
        yield Case(f"a start marker far back{again}", long_prompt, M, reserve(12), 28)
        yield Case(
            f"a start marker far back and a budget{again}",
            long_prompt,
            M,
            reserve(12, budget=50),
            10,
        )

    yield Case("stops in the block", "open", M, reserve(12), None, stop=("w5",))
    yield Case("stops in the answer", "open", M, reserve(12), 28, stop=("a3",))
    yield Case(
        "stops in the forced end", "open", M, reserve(12), 28, stop=(end.split()[0],)
    )
    rooms = {
        "1 token": 1,
        "2 tokens": 2,
        "the close alone": num_end,
        "the close and 1 token": num_end + 1,
        "the close and 2 tokens": num_end + 2,
        "20 tokens": 20,
    }
    for name, room in rooms.items():
        # M is what the context leaves; a close that does not fit is not begun.
        filler = reasoning_words(MAX_MODEL_LEN - room - 1)
        yield Case(
            f"the context leaves {name}",
            f"{filler} inside",
            64,
            reserve(16),
            None if room <= num_end else max(room - 16, 0),
        )


CASES = {end: {case.says: case for case in cases(end)} for end in (MARKER, PHRASE)}


@dataclass(frozen=True)
class Engine:
    script: Script = SCRIPT
    options: dict[str, Any] = field(default_factory=dict)
    evicts: bool = False


def forcing(end: str, **reasoning: Any) -> dict[str, Any]:
    return {"reasoning_config": {"reasoning_end_str": end} | reasoning}


def draft_model(num_drafts: int) -> dict[str, Any]:
    return {
        "speculative_config": {
            "method": "draft_model",
            "model": DRAFT_SCRIPT,
            "num_speculative_tokens": num_drafts,
        }
    }


# Prompts come in pieces, the cache holds three blocks: requests are evicted.
TINY_CACHE = {
    "block_size": 32,
    "num_gpu_blocks_override": 4,
    "max_num_batched_tokens": 16,
    "enable_prefix_caching": True,
}
# Off in the other engines: a CPU's platform turns it off.
ASYNC = {"async_scheduling": True}
# Engines that hold to the whole table.
ENGINES = {
    "marker": Engine(options=forcing(MARKER)),
    "phrase": Engine(options=forcing(PHRASE)),
    "ngram 1": Engine(options=forcing(PHRASE) | ngram(1)),
    "ngram 3": Engine(options=forcing(PHRASE) | ngram(3)),
    "ngram 6": Engine(options=forcing(PHRASE) | ngram(6)),
    "ngram 3, marker": Engine(options=forcing(MARKER) | ngram(3)),
    "draft model 3": Engine(options=forcing(PHRASE) | draft_model(3)),
    "draft model 6, marker": Engine(options=forcing(MARKER) | draft_model(6)),
    "tiny cache": Engine(options=forcing(PHRASE) | TINY_CACHE, evicts=True),
    "tiny cache, marker": Engine(options=forcing(MARKER) | TINY_CACHE, evicts=True),
    "tiny cache, ngram 3": Engine(
        options=forcing(PHRASE) | TINY_CACHE | ngram(3), evicts=True
    ),
    "tiny cache, draft model 3": Engine(
        options=forcing(PHRASE) | TINY_CACHE | draft_model(3), evicts=True
    ),
    "two workers": Engine(options=forcing(PHRASE) | {"tensor_parallel_size": 2}),
    "async": Engine(options=forcing(PHRASE) | ASYNC),
    "async, draft model 3, marker": Engine(
        options=forcing(MARKER) | ASYNC | draft_model(3)
    ),
    "async, tiny cache, draft model 3": Engine(
        options=forcing(PHRASE) | ASYNC | TINY_CACHE | draft_model(3), evicts=True
    ),
}
WHOLE_TABLE = [*ENGINES]
SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {},
    # A successor has next to all of the probability.
    "sampled": {"temperature": 1.0},
    # Not with prompts in pieces: a generator on CPU cannot be set back.
    "seeded": {"temperature": 1.0, "seed": 7},
}


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    """Write a script's checkpoint once."""

    @cache
    def write(script: Script) -> str:
        return script.save(tmp_path_factory.mktemp("scripted") / "model")

    return write


@pytest.fixture(scope="module", autouse=True)
def engine_env():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENGINE_ENV.items():
            patch.setenv(name, value)
        # Two workers share what cores there are.
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        yield


# Sampling steps of the engines with async scheduling.
STEPS: dict[str, async_scheduling.Steps] = {}


@pytest.fixture(scope="module")
def llm(request, model_path) -> Iterator[LLM]:
    """The engine of a test. One lives at a time: they share global state."""
    engine = ENGINES[request.param]
    options = ENGINE_OPTIONS | {
        "max_model_len": MAX_MODEL_LEN,
        "max_num_seqs": 6,
        "num_gpu_blocks_override": 64,
        "disable_log_stats": False,
        **engine.options,
    }
    skip_unless_supported(options)
    if (speculative := options.get("speculative_config")) and "model" in speculative:
        draft = model_path(speculative["model"])
        options["speculative_config"] = speculative | {"model": draft}
    with ExitStack() as stack:
        if options.get("async_scheduling"):
            stack.enter_context(async_scheduling.stays_on())
            if HAS_RUNNER_V1:
                steps = stack.enter_context(async_scheduling.late_token_ids())
                STEPS[request.param] = steps
        llm = LLM(model_path(engine.script), **options)
        yield llm
        llm.llm_engine.engine_core.shutdown()
        del llm
    gc.collect()


def on(*names: str):
    """Run a test on these engines."""
    return pytest.mark.parametrize("llm", names, indirect=True)


def on_own(engines: dict[str, Engine]):
    """Run a test on engines of its own."""
    ENGINES.update(engines)
    return on(*engines)


def generate(
    llm: LLM, prompts: Sequence[list[int]], params: Sequence[SamplingParams]
) -> list[list[int]]:
    outputs = llm.generate(
        [{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False
    )
    return [list(sample.token_ids) for output in outputs for sample in output.outputs]


def metric(llm: LLM, name: str) -> int:
    metrics: list[Any] = llm.get_metrics()
    return sum(m.value for m in metrics if m.name == f"vllm:{name}")


@pytest.fixture(scope="module")
def outputs(llm) -> dict[str, dict[str, list[int]]]:
    """All cases of an engine in one batch: they join and leave it all the time."""
    table = CASES[SCRIPT.text(forced_end(llm))].values()
    scheduler_config = llm.llm_engine.vllm_config.scheduler_config
    in_pieces = scheduler_config.max_num_batched_tokens < MAX_MODEL_LEN
    return {
        name: dict(
            zip(
                (case.says for case in table),
                generate(
                    llm,
                    [case.prompt_ids for case in table],
                    [case.params(**sampling) for case in table],
                ),
                strict=True,
            )
        )
        for name, sampling in SAMPLING.items()
        if not (in_pieces and "seed" in sampling)
        and not (scheduler_config.async_scheduling and sampling)
    }


@on(*WHOLE_TABLE)
@pytest.mark.parametrize("says", CASES[PHRASE])
def test_a_request_says_what_the_rules_say(llm, outputs, says):
    end = forced_end(llm)
    known, case = markers(SCRIPT, SCRIPT.text(end)), CASES[SCRIPT.text(end)][says]
    params = case.params()
    expected = expected_output(SCRIPT, known, case.prompt_ids, params)
    for of_sampling in outputs.values():
        output = of_sampling[says]
        if case.stop:
            # A step can accept drafts after the stop string.
            output = output[: len(expected)]
        assert SCRIPT.text(output) == SCRIPT.text(expected)
        if case.closes_at is None:
            free = SamplingParams(max_tokens=case.max_tokens, stop=params.stop)
            assert output == expected_output(SCRIPT, known, case.prompt_ids, free)
        elif output[-1] not in SCRIPT.ids(" ".join(case.stop)):
            assert output[case.closes_at :][: len(end)] == end


@on(*WHOLE_TABLE)
def test_the_situation_of_an_engine_does_occur(llm, outputs, request):
    engine = ENGINES[request.node.callspec.params["llm"]]
    assert outputs
    if "speculative_config" in engine.options:
        drafts = metric(llm, "spec_decode_num_draft_tokens")
        accepted = metric(llm, "spec_decode_num_accepted_tokens")
        assert 0 < accepted < drafts
    assert bool(metric(llm, "num_preemptions")) == engine.evicts
    if engine.options.get("enable_prefix_caching"):
        assert metric(llm, "prefix_cache_hits")
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    assert isinstance(scheduler, AsyncScheduler) == (
        "async_scheduling" in engine.options
    )


of_runner_v1 = pytest.mark.skipif(
    not HAS_RUNNER_V1, reason="looks into model runner V1, which this vLLM has not"
)


@of_runner_v1
@on("async")
@pytest.mark.parametrize("num_reqs", [1, 3])
def test_under_async_scheduling_a_reserve_that_is_not_due_adds_nothing_to_a_step(
    llm, request, num_reqs
):
    steps = STEPS[request.node.callspec.params["llm"]]

    def steps_with(limits: dict[str, Any]) -> list[async_scheduling.Step]:
        steps.clear()
        params = SamplingParams(temperature=0, max_tokens=M, **limits)
        generate(llm, [SCRIPT.ids("open")] * num_reqs, [params] * num_reqs)
        assert len(steps) == M
        return steps.copy()

    unset, reserved = steps_with({}), steps_with(reserve(RESERVE))
    assert reserved[:CLOSE_LEN] == unset[:CLOSE_LEN]
    assert not any(step.waits for step in unset)
    # From there on each token could have to be forced.
    assert [step.waits for step in reserved[CLOSE_LEN:]] == [1] * RESERVE


@of_runner_v1
@on("async, draft model 3, marker")
def test_with_drafts_too_a_reserve_that_is_not_due_waits_for_nothing(llm, request):
    steps = STEPS[request.node.callspec.params["llm"]]

    def waits_with(limits: dict[str, Any]) -> list[int]:
        steps.clear()
        params = SamplingParams(temperature=0, max_tokens=M, **limits)
        generate(llm, [SCRIPT.ids("open")] * 3, [params] * 3)
        return [step.waits for step in steps]

    # A step has at most 4 tokens, and may be due as many before the edge.
    num_idle = (CLOSE_LEN - 8) // 4
    assert not any(waits_with({}))
    waits = waits_with(reserve(RESERVE))
    assert not any(waits[:num_idle])
    # The sampled ids and the draft ids.
    assert max(waits) == 2 and waits[-1] == 2


def tracked_requests(llm: LLM) -> int:
    """Requests that the sampler of the engine's worker still has a limit of."""

    def count(worker) -> int:
        return len(worker.model_runner.input_batch.thinking_budget_state_holder._state)

    return sum(llm.collective_rpc(count))


@of_runner_v1
@on("phrase", "ngram 3", "tiny cache", "async")
def test_nothing_is_tracked_once_the_requests_have_left(llm, outputs):
    assert outputs
    # What has finished leaves the batch with the next step.
    generate(llm, [SCRIPT.ids("open")], [SamplingParams(max_tokens=2)])
    assert tracked_requests(llm) == 0


# Output lengths at which all requests are preempted: in the reasoning, at each
# token of the forced end, and in the answer.
RESERVE = 12
CLOSE_LEN = M - RESERVE


@on("phrase", "ngram 3", "draft model 3", "tiny cache")
@pytest.mark.parametrize("limits", [reserve(RESERVE), reserve(RESERVE, budget=20)])
def test_a_request_preempted_at_any_length_resumes_where_it_was(llm, limits):
    known = markers(SCRIPT, PHRASE)
    prompts = [SCRIPT.ids("open"), SCRIPT.ids("inside"), SCRIPT.ids("begun")]
    params = SamplingParams(temperature=0, max_tokens=M, **limits)
    expected = [expected_output(SCRIPT, known, prompt, params) for prompt in prompts]
    close_len = min(CLOSE_LEN, limits.get("thinking_token_budget", M))
    for length in (1, 3, *range(close_len - 1, close_len + len(known.forced_end) + 3)):
        outputs: dict[str, list[int]] = {}
        for i, prompt in enumerate(prompts):
            llm.llm_engine.add_request(f"{i}", {"prompt_token_ids": prompt}, params)
        preempted = False
        while llm.llm_engine.has_unfinished_requests():
            for output in llm.llm_engine.step():
                outputs[output.request_id] = list(output.outputs[0].token_ids)
            if not preempted and len(outputs.get("0", ())) >= length:
                llm.reset_prefix_cache(reset_running_requests=True)
                preempted = True
        assert preempted
        assert [outputs[f"{i}"] for i in range(len(prompts))] == expected


# What a caller can ask of the sampler that would keep the end from coming.
FORCED_WORDS = PHRASE.split()
ALLOWED = [word for word in SCRIPT.words if word not in FORCED_WORDS]
CONTROLS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature 1": {"temperature": 1.0},
    "a high temperature": {"temperature": 1.5, "top_k": 2},
    "top_k 1": {"temperature": 1.0, "top_k": 1},
    "min_p": {"temperature": 1.0, "min_p": 0.9},
    "a tiny top_p": {"temperature": 1.0, "top_p": 1e-6},
    "logit_bias": {
        "logit_bias": {SCRIPT.ids(word)[0]: -100.0 for word in set(FORCED_WORDS)}
    },
    "bad_words": {"bad_words": FORCED_WORDS},
    "bad_words of the whole end": {"bad_words": [PHRASE]},
    "allowed_token_ids": {"allowed_token_ids": [SCRIPT.ids(w)[0] for w in ALLOWED]},
    "min_tokens": {"min_tokens": RESERVE},
    "min_tokens and stop_token_ids": {
        "min_tokens": RESERVE,
        "stop_token_ids": SCRIPT.ids("a9"),
    },
    "penalties": {
        "presence_penalty": 2.0,
        "frequency_penalty": 2.0,
        "repetition_penalty": 1.5,
    },
    "ignore_eos": {"ignore_eos": True},
}

NOT_WITH_DRAFTS = {"min_p", "logit_bias"}


@on("marker", "phrase", "ngram 3", "draft model 3")
@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("num_logprobs", [None, 0, 5])
def test_a_sampling_control_changes_nothing_of_the_forced_end(
    llm, control, num_logprobs
):
    end = forced_end(llm)
    options = {"temperature": 0.0, "seed": 3} | CONTROLS[control]
    if llm.llm_engine.vllm_config.speculative_config and control in NOT_WITH_DRAFTS:
        pytest.skip("vLLM refuses it with speculative decoding")
    params = SamplingParams(
        max_tokens=M, logprobs=num_logprobs, **(options | reserve(RESERVE))
    )
    (result,) = llm.generate(
        [{"prompt_token_ids": SCRIPT.ids("open")}], params, use_tqdm=False
    )
    (sample,) = result.outputs
    output = list(sample.token_ids)
    assert SCRIPT.ids("</think>")[0] not in output[:CLOSE_LEN]
    assert SCRIPT.text(output[CLOSE_LEN:][: len(end)]) == SCRIPT.text(end)
    stops = {SCRIPT.ids(END_OF_TURN)[0], *(params.stop_token_ids or ())}
    assert len(output) == M or output[-1] in stops
    if num_logprobs is not None:
        check_logprobs(sample, slice(CLOSE_LEN, CLOSE_LEN + len(end)), num_logprobs)


def check_logprobs(sample, forced: slice, num_logprobs: int) -> None:
    assert len(sample.logprobs) == len(sample.token_ids)
    for token_id, logprobs in zip(sample.token_ids, sample.logprobs, strict=True):
        assert len(logprobs) >= max(num_logprobs, 1)
        assert not any(math.isnan(entry.logprob) for entry in logprobs.values())
        assert token_id in logprobs
    for token_id, logprobs in zip(
        sample.token_ids[forced], sample.logprobs[forced], strict=True
    ):
        assert math.isfinite(logprobs[token_id].logprob)
    assert math.isfinite(sample.cumulative_logprob)


@on_own(
    {
        mode: Engine(options=forcing(PHRASE) | {"logprobs_mode": mode})
        for mode in ("processed_logprobs", "processed_logits")
    }
)
def test_processed_logprobs_say_that_the_end_is_forced(llm, request):
    mode = ENGINES[request.node.callspec.params["llm"]].options["logprobs_mode"]
    for options in CONTROLS.values():
        params = SamplingParams(
            **({"temperature": 0.0, "seed": 3} | options),
            **reserve(RESERVE),
            max_tokens=M,
            logprobs=5,
        )
        (result,) = llm.generate(
            [{"prompt_token_ids": SCRIPT.ids("open")}], params, use_tqdm=False
        )
        (sample,) = result.outputs
        end = SCRIPT.ids(PHRASE)
        forced = slice(CLOSE_LEN, CLOSE_LEN + len(end))
        assert list(sample.token_ids[forced]) == end
        check_logprobs(sample, forced, 5)
        if mode == "processed_logprobs":
            for token_id, logprobs in zip(end, sample.logprobs[forced], strict=True):
                assert logprobs[token_id].logprob == pytest.approx(0.0)


@on("phrase", "ngram 3")
@pytest.mark.parametrize("num_samples", [2, 5])
def test_each_sample_of_a_request_closes_by_itself(llm, num_samples):
    params = SamplingParams(
        n=num_samples, temperature=1.0, seed=1, max_tokens=M, **reserve(RESERVE)
    )
    prompt = SCRIPT.ids("open")
    samples = generate(llm, [prompt], [params])
    assert len(samples) == num_samples
    expected = expected_output(SCRIPT, markers(SCRIPT, PHRASE), prompt, params)
    assert samples == [expected] * num_samples


DEFAULT_RESERVE = 10


@on_own({"default": Engine(options=forcing(PHRASE, answer_reserve=DEFAULT_RESERVE))})
def test_a_default_is_half_of_a_short_output_and_off_where_the_close_does_not_fit(llm):
    known, prompt = markers(SCRIPT, PHRASE), SCRIPT.ids("open")
    limits = [{}, {"thinking_token_budget": 8}, {"reasoning_answer_reserve": 0}]
    table = [(m, given) for m in range(1, 26) for given in limits]
    asked = [SamplingParams(temperature=0, max_tokens=m, **given) for m, given in table]
    rows = zip(table, asked, generate(llm, [prompt] * len(table), asked), strict=True)
    for (m, given), params, output in rows:
        tokens = min(DEFAULT_RESERVE, m // 2)
        fires = tokens > len(known.forced_end) and limits.index(given) < 2
        params.reasoning_answer_reserve = tokens if fires else 0
        assert output == expected_output(SCRIPT, known, prompt, params)
        if fires and not given:
            assert output[m - tokens :][: len(known.forced_end)] == known.forced_end


def check_table(llm: LLM, script: Script, known: Markers, table) -> None:
    """Hold (prompt, limits, index of the close) against an engine's output."""
    prompts = [script.ids(prompt) for prompt, _, _ in table]
    asked = [
        SamplingParams(temperature=0, max_tokens=M, **limits) for _, limits, _ in table
    ]
    rows = zip(table, prompts, asked, generate(llm, prompts, asked), strict=True)
    for (text, limits, closes_at), prompt, params, output in rows:
        expected = expected_output(script, known, prompt, params)
        row = f"{text} {limits}"
        assert (row, script.text(output)) == (row, script.text(expected))
        if closes_at is None:
            free = SamplingParams(max_tokens=M)
            assert output == expected_output(script, known, prompt, free), row
        else:
            end = known.forced_end
            assert script.text(output[closes_at:][: len(end)]) == script.text(end), row


END_FIRST = f"{MARKER} Time is up"


@on_own(
    {
        "end first": Engine(options=forcing(END_FIRST)),
        "end first, ngram 3": Engine(options=forcing(END_FIRST) | ngram(3)),
    }
)
def test_a_forced_end_that_begins_with_the_natural_end_is_completed(llm):
    table = [
        ("open", reserve(RESERVE), CLOSE_LEN),
        ("inside", reserve(RESERVE), CLOSE_LEN),
        ("open", reserve(RESERVE, budget=M), CLOSE_LEN),
    ]
    check_table(llm, SCRIPT, markers(SCRIPT, END_FIRST), table)


SPELLED_START, SPELLED_END = "let me think", "done with thought"
SPELLED_SCRIPT = Script(
    [
        f"ask {SPELLED_START} w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 w0",
        f"late l0 l1 l2 l3 l4 l5 {SPELLED_START}",
        f"brief r0 r1 r2 {SPELLED_END}",
        # A new block after each answer.
        f"{SPELLED_END} a0 a1 a2 a3 a4 a5 {SPELLED_START}",
        "plain p0 p1 p2 p3 p4 p5 p6 p7 p0",
    ]
)
SPELLED_TABLE = [
    ("ask", reserve(RESERVE), CLOSE_LEN),
    (f"ask {SPELLED_START}", reserve(RESERVE), CLOSE_LEN),
    (f"ask {SPELLED_START} w0 w1", reserve(RESERVE, budget=10), 8),
    # Not open at the edge: closed right after its start marker, 9 tokens in.
    *(("late", reserve(M - at), max(at, 9)) for at in range(5, 14)),
    # The natural end is at 3 to 5: what has begun is not repeated.
    *((f"{SPELLED_START} brief", reserve(M - at), 3) for at in (3, 4, 5)),
    (f"{SPELLED_START} brief", reserve(M - 2), 2),
    (f"{SPELLED_START} brief", reserve(M - 1), 1),
    # Closed by itself at 3; a second block opens at 12 to 14.
    *((f"{SPELLED_START} brief", reserve(M - at), max(at, 15)) for at in range(6, 18)),
    ("plain", reserve(RESERVE), None),
    (f"{SPELLED_START} w0 {SPELLED_END} plain", reserve(RESERVE), None),
]


SPELLED = {
    "reasoning_parser": "",
    **forcing(SPELLED_END, reasoning_start_str=SPELLED_START),
}


@on_own(
    {
        "spelled": Engine(SPELLED_SCRIPT, SPELLED),
        "spelled, ngram 3": Engine(SPELLED_SCRIPT, SPELLED | ngram(3)),
        "spelled, tiny cache": Engine(SPELLED_SCRIPT, SPELLED | TINY_CACHE),
    }
)
def test_a_marker_of_several_tokens_closes_as_a_single_one_does(llm):
    end = SPELLED_SCRIPT.ids(SPELLED_END)
    start_ids = SPELLED_SCRIPT.ids(SPELLED_START)
    check_table(llm, SPELLED_SCRIPT, Markers(start_ids, end, end), SPELLED_TABLE)


# Parser: prompts, limits and where the block is closed.
PARSER_TABLES: dict[str, list[tuple[str, dict[str, Any], int | None]]] = {
    # Starts in reasoning, without a marker.
    "deepseek_r1": [
        ("inside", reserve(RESERVE), CLOSE_LEN),
        ("user hello inside", reserve(RESERVE), CLOSE_LEN),
        ("<think>", reserve(RESERVE), CLOSE_LEN),
        ("open", reserve(RESERVE, budget=9), 10),
        ("brief", reserve(RESERVE), None),
        ("<think> </think>", reserve(RESERVE), None),
    ],
    # Starts outside: no block without its marker.
    "step3": [
        ("inside", reserve(RESERVE), None),
        ("open", reserve(RESERVE), CLOSE_LEN),
        ("<think>", reserve(RESERVE), CLOSE_LEN),
        ("<think> </think>", reserve(RESERVE), None),
    ],
}


@on_own(
    {
        parser: Engine(options=forcing(PHRASE) | {"reasoning_parser": parser})
        for parser in PARSER_TABLES
    }
)
def test_a_parser_tells_whether_output_starts_in_a_block(llm, request):
    parser = ENGINES[request.node.callspec.params["llm"]].options["reasoning_parser"]
    known = markers(
        SCRIPT,
        PHRASE,
        implicit_ends=[],
        turn_boundaries=[],
        starts_inside=parser == "deepseek_r1",
    )
    check_table(llm, SCRIPT, known, PARSER_TABLES[parser])


CHANNEL_WORDS = ("<|start|>", "<|end|>", "<|channel|>", "<|message|>")
CHANNEL_SCRIPT = Script(
    ["<|message|> w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 w0", "assistant analysis final hello"],
    special=("<unk>", *CHANNEL_WORDS, END_OF_TURN),
)
ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"
ANALYSIS_IDS = CHANNEL_SCRIPT.ids("<|channel|> analysis <|message|>")
FINAL_IDS = CHANNEL_SCRIPT.ids(
    "<|end|> <|start|> assistant <|channel|> final <|message|>"
)
CHANNELS = {
    "reasoning_parser": "openai_gptoss",
    **forcing(FINAL, reasoning_start_str=ANALYSIS),
}


@on_own(
    {
        "channels": Engine(CHANNEL_SCRIPT, CHANNELS),
        "channels, ngram 3": Engine(CHANNEL_SCRIPT, CHANNELS | ngram(3)),
    }
)
def test_the_whole_opener_of_the_final_channel_follows_the_analysis(llm):
    assert forced_end(llm) == FINAL_IDS
    turn = "<|start|> assistant <|channel|>"
    table: list[tuple[str, dict[str, Any], int | None]] = [
        (f"{turn} analysis <|message|>", reserve(r), M - r) for r in range(8, 20)
    ]
    table.append((f"{turn} final <|message|>", reserve(RESERVE), None))
    check_table(llm, CHANNEL_SCRIPT, Markers(ANALYSIS_IDS, FINAL_IDS, FINAL_IDS), table)


@pytest.mark.parametrize("parser", ["openai_gptoss", ""])
@pytest.mark.parametrize(
    "end, warned",
    [(FINAL, False), ("<|channel|>final<|message|>", True), ("<|end|>", True)],
)
def test_an_end_that_opens_no_other_channel_is_warned_about(
    model_path, monkeypatch, parser, end, warned
):
    warnings: list[str] = []
    monkeypatch.setattr(
        "vllm.config.reasoning.logger.warning_once",
        lambda message, *args: warnings.append(message % args),
    )
    config = ReasoningConfig(
        reasoning_parser=parser, reasoning_start_str=ANALYSIS, reasoning_end_str=end
    )
    config.initialize_token_ids(
        ModelConfig(model=model_path(CHANNEL_SCRIPT), max_model_len=MAX_MODEL_LEN)
    )
    assert config.reasoning_start_token_ids == ANALYSIS_IDS
    assert any(FINAL in warning for warning in warnings) == warned
