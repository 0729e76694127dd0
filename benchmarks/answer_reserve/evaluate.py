# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Does the answer reserve help? The same requests with it unset and set.

    python -m benchmarks.answer_reserve.evaluate --model NAME --dataset gsm8k:FILE
        --max-tokens 2048 --reserve 128 256 512 1024 --out DIR

One engine (or the server at `--server URL`) runs each batch of problems without
the reserve and with each reserve in turn: same prompts, same sampling seeds, same
batch. An interrupted run is resumed by the same command. The report says what was
measured, whatever it is; `--check` makes a criterion that fails the exit status.
"""

import argparse
import hashlib
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.answer_reserve.clients import (
    Client,
    EngineOptions,
    Sampling,
    open_client,
)
from benchmarks.answer_reserve.records import (
    Judge,
    Record,
    RecordStore,
    pack_records,
    read_records,
)
from benchmarks.answer_reserve.report import FAIL, build_report, write_report
from benchmarks.answer_reserve.tasks import PROMPTS, Task, load_task
from benchmarks.answer_reserve.throughput import (
    MAX_REQUESTS,
    Arm,
    Requests,
    alternate,
    summary,
    timed_run,
)

TINY_REASONER = os.path.relpath(Path(__file__).parents[1] / "models/tiny_reasoner")
SETTINGS_FILE, RUN_FILE = "settings.json", "run.json"

NOT_COMPARED = {"reserves"}
"""Settings that may grow when a run is resumed: each reserve stands alone."""


@dataclass(frozen=True)
class Settings:
    """Everything that decides the requests of an evaluation."""

    engine: EngineOptions
    dataset: str
    sampling: Sampling
    reserves: list[int]
    seeds: list[int]
    batch_size: int
    limit: int | None = None
    prompt: str | None = None
    server: str | None = None
    model_sha256: dict[str, str] = field(default_factory=dict)
    dataset_sha256: str | None = None

    @classmethod
    def load(cls, folder: Path) -> "Settings":
        """Read the settings of an evaluation."""
        row = json.loads((folder / SETTINGS_FILE).read_text())
        engine, sampling = EngineOptions(**row["engine"]), Sampling(**row["sampling"])
        return cls(**(row | {"engine": engine, "sampling": sampling}))

    def save(self, folder: Path) -> None:
        """Write the settings, or check that the folder's run has the same ones.

        Raises:
            ValueError: If the folder holds an evaluation with other settings.

        """
        file = folder / SETTINGS_FILE
        if file.exists():
            before, now = asdict(Settings.load(folder)), asdict(self)
            for name in before.keys() - NOT_COMPARED:
                if before[name] != now[name]:
                    raise ValueError(
                        f"{folder} holds an evaluation with {name}={before[name]!r}, "
                        f"not {now[name]!r}. Give another --out to start a new one."
                    )
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @property
    def arms(self) -> list[int | None]:
        return [None, *self.reserves]

    def task(self) -> Task:
        return load_task(self.dataset, self.limit, self.prompt)


def request_seed(seed: int, problem: int) -> int:
    """The sampling seed of a request: the same in every arm."""
    digest = hashlib.sha256(f"{seed}/{problem}".encode()).digest()
    return int.from_bytes(digest[:4])


@dataclass(frozen=True)
class Batch:
    """Requests that run together in every arm."""

    seed: int
    problems: range
    arms: list[int | None]

    def keys(self, arm: int | None) -> list[tuple[int | None, int, int]]:
        return [(arm, self.seed, problem) for problem in self.problems]


def batches(settings: Settings, num_problems: int) -> Iterator[Batch]:
    """The batches in order; the arms take turns in going first."""
    arms, turn = settings.arms, 0
    for seed in settings.seeds:
        for begin in range(0, num_problems, settings.batch_size):
            problems = range(begin, min(begin + settings.batch_size, num_problems))
            shift = turn % len(arms)
            yield Batch(seed, problems, arms[shift:] + arms[:shift])
            turn += 1


def run_requests(
    settings: Settings, task: Task, client: Client, store: RecordStore
) -> None:
    """Run what the store does not hold yet."""
    judge = Judge(task, client, settings.sampling.max_tokens)
    planned = list(batches(settings, len(task.problems)))
    total = sum(len(batch.problems) * len(batch.arms) for batch in planned)
    with tqdm(total=total, unit="request", smoothing=0.1) as progress:
        for batch in planned:
            for arm in batch.arms:
                progress.set_description(_arm_name(arm))
                if not all(key in store for key in batch.keys(arm)):
                    store.add(_run_batch(settings, task, client, judge, batch, arm))
                progress.update(len(batch.problems))


def _arm_name(reserve: int | None) -> str:
    return "unset" if reserve is None else f"reserve {reserve}"


def _run_batch(
    settings: Settings,
    task: Task,
    client: Client,
    judge: Judge,
    batch: Batch,
    arm: int | None,
) -> list[Record]:
    conversations = [task.prompt(task.problems[i].question) for i in batch.problems]
    seeds = [request_seed(batch.seed, i) for i in batch.problems]
    completions = client.generate(conversations, seeds, settings.sampling, arm)
    return [
        judge.record(completion, arm, batch.seed, i)
        for completion, i in zip(completions, batch.problems, strict=True)
    ]


def quiet_requests(
    settings: Settings, records: Sequence[Record], reserve: int
) -> Requests:
    """Requests of the first seed in which a reserve never fires, for timing."""
    task, seed = settings.task(), settings.seeds[0]
    quiet = [
        record.problem
        for record in records
        if record.reserve == reserve and record.seed == seed and not record.fired
    ][:MAX_REQUESTS]
    conversations = [task.prompt(task.problems[i].question) for i in quiet]
    return conversations, [request_seed(seed, i) for i in quiet]


def measure_throughput(
    settings: Settings, client: Client, records: Sequence[Record], rounds: int
) -> dict[str, Any] | None:
    """Time unset against set and never firing; None without such requests."""
    reserve = min(settings.reserves)
    requests = quiet_requests(settings, records, reserve)
    if not requests[0]:
        return None

    def arm(value: int | None) -> Arm:
        return lambda name, round: timed_run(
            client, requests, settings.sampling, name, round, value
        )

    runs = alternate({"unset": arm(None), "set": arm(reserve)}, rounds)
    return summary(runs) | {"requests": len(requests[0]), "reserve": reserve}


def greedy_records(settings: Settings, task: Task, client: Client) -> list[Record]:
    """Run the largest reserve once more, greedily, with the first seed."""
    greedy = replace(
        settings,
        sampling=replace(settings.sampling, temperature=0.0),
        reserves=[max(settings.reserves)],
        seeds=settings.seeds[:1],
    )
    judge = Judge(task, client, greedy.sampling.max_tokens)
    return [
        record
        for batch in batches(greedy, min(len(task.problems), MAX_REQUESTS))
        for record in _run_batch(greedy, task, client, judge, batch, greedy.reserves[0])
    ]


def compare_closes(
    plain: Sequence[Record], drafted: Sequence[Record]
) -> dict[str, int]:
    """Compare where the reserve closed without and with speculative decoding.

    Both are greedy: drafts leave those tokens as they are, but not sampled ones.
    """
    both = [
        (one, other)
        for one, other in zip(plain, drafted, strict=True)
        if one.fired and other.fired
    ]
    return {
        "requests": len(drafted),
        "fired": sum(record.fired for record in drafted),
        "honoured": sum(record.honoured for record in drafted),
        "fired_in_both": len(both),
        "same_position": sum(one.closed_at == other.closed_at for one, other in both),
        "identical": sum(
            one.digest == other.digest
            for one, other in zip(plain, drafted, strict=True)
        ),
    }


def model_hashes(model: str) -> dict[str, str]:
    """SHA-256 of each weight file of a model folder; none for a hub name."""
    files = sorted(Path(model).glob("*.safetensors"))
    return {file.name: _sha256(file) for file in files}


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def machine() -> dict[str, str]:
    """What the evaluation ran on."""
    import torch

    import vllm

    info = Path("/proc/cpuinfo")
    names = [
        line.partition(":")[2].strip()
        for line in (info.read_text().splitlines() if info.exists() else [])
        if line.startswith("model name")
    ]
    device = (
        torch.cuda.get_device_name() if torch.cuda.is_available() else "no accelerator"
    )
    return {
        "processor": f"{len(names)} x {names[0]}" if names else platform.processor(),
        "accelerator": device,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "vllm": vllm.__version__,
    }


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", default=str(TINY_REASONER), help="folder or hub name"
    )
    parser.add_argument(
        "--dataset", default="arithmetic", help="arithmetic, gsm8k:FILE or aime:FILE"
    )
    parser.add_argument("--max-tokens", type=int, help="default: the dataset's own")
    parser.add_argument(
        "--reserve", type=int, nargs="+", help="in tokens; default: the dataset's own"
    )
    parser.add_argument("--limit", type=int, help="problems, from the first")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--repetition-penalty", type=float, default=1.0)
    parser.add_argument("--batch-size", type=int, default=64, help="requests at once")
    parser.add_argument("--prompt", choices=sorted(PROMPTS), help="the form of the ask")
    parser.add_argument(
        "--reasoning-parser",
        default="qwen3",
        help="as in vLLM, or text_markers for a model without marker tokens",
    )
    parser.add_argument(
        "--reasoning-end-str",
        default="",
        help="what is forced to close a block; default: the parser's own end",
    )
    parser.add_argument(
        "--engine-args", type=json.loads, default={}, help="JSON, arguments of LLM"
    )
    parser.add_argument("--server", help="URL of a running server instead of an engine")
    parser.add_argument(
        "--throughput-rounds", type=int, default=0, help="3 or more to compare speed"
    )
    parser.add_argument(
        "--speculative-config",
        type=json.loads,
        help="JSON; compare greedy outputs with those of speculative decoding",
    )
    parser.add_argument("--out", type=Path, default=Path("answer_reserve_results"))
    parser.add_argument(
        "--report-only", action="store_true", help="from the records in --out"
    )
    parser.add_argument(
        "--pack", action="store_true", help="keep a small copy of the records as well"
    )
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if a criterion fails"
    )
    return parser.parse_args(argv)


def settings_from(args: argparse.Namespace) -> Settings:
    """Put the settings together and check them.

    Raises:
        ValueError: If a reserve does not fit, or seeds could make no difference.

    """
    task = load_task(args.dataset, 1, args.prompt)
    max_tokens = args.max_tokens or task.max_tokens
    reserves = sorted(set(args.reserve or task.reserves))
    for reserve in reserves:
        if not 0 < reserve < max_tokens:
            raise ValueError(
                f"reserve must lie between 0 and max_tokens={max_tokens}, got "
                f"{reserve}. Lower it or raise --max-tokens."
            )
    if args.temperature == 0 and len(args.seeds) > 1:
        raise ValueError(
            f"seeds {args.seeds} would give the same outputs at temperature 0. Give "
            "one seed or a higher --temperature."
        )
    file = args.dataset.partition(":")[2]
    return Settings(
        engine=EngineOptions(
            args.model, args.reasoning_parser, args.reasoning_end_str, args.engine_args
        ),
        dataset=args.dataset,
        sampling=Sampling(
            max_tokens,
            args.temperature,
            args.top_p,
            args.top_k,
            args.repetition_penalty,
        ),
        reserves=reserves,
        seeds=args.seeds,
        batch_size=args.batch_size,
        limit=args.limit,
        prompt=args.prompt,
        server=args.server,
        model_sha256=model_hashes(args.model),
        dataset_sha256=_sha256(Path(file)) if file else None,
    )


def evaluate(settings: Settings, args: argparse.Namespace) -> None:
    """Run the requests and what is compared beside them."""
    run_file = args.out / RUN_FILE
    run = json.loads(run_file.read_text()) if run_file.exists() else {"seconds": 0}
    run |= {"machine": machine(), "command": shlex.join(sys.argv[1:])}
    begin = time.time()
    run.setdefault("begun", time.strftime("%Y-%m-%d %H:%M", time.gmtime(begin)))
    task, store = settings.task(), RecordStore(args.out)
    speculative = args.speculative_config is not None
    try:
        with open_client(
            settings.engine, settings.batch_size, settings.server
        ) as client:
            run_requests(settings, task, client, store)
            if args.throughput_rounds:
                run["throughput"] = measure_throughput(
                    settings, client, list(store), args.throughput_rounds
                )
            plain = greedy_records(settings, task, client) if speculative else []
        if speculative:
            config = {"speculative_config": args.speculative_config}
            options = replace(
                settings.engine, overrides=settings.engine.overrides | config
            )
            with open_client(options, settings.batch_size) as client:
                drafted = greedy_records(settings, task, client)
            run["speculative"] = config | compare_closes(plain, drafted)
    finally:
        run["seconds"] = round(run["seconds"] + time.time() - begin)
        run_file.write_text(json.dumps(run, indent=1) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    try:
        if args.report_only:
            settings = Settings.load(args.out)
        else:
            settings = settings_from(args)
            args.out.mkdir(parents=True, exist_ok=True)
            settings.save(args.out)
    except (ValueError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not args.report_only:
        evaluate(settings, args)
    run = json.loads((args.out / RUN_FILE).read_text())
    records = read_records(args.out)
    planned = len(settings.seeds) * len(settings.task().problems)
    report = build_report(asdict(settings), run, records, planned)
    print(write_report(report, records, args.out))
    if args.pack:
        pack_records(args.out)
    failed = [c["name"] for c in report["criteria"] if c["result"] == FAIL]
    if args.check and failed:
        print(f"error: failed: {'; '.join(failed)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
