# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Train the tiny reasoner from nothing on two CPU cores.

    python -m benchmarks.models.tiny_reasoner.train --out DIR

Two processes of one thread each work on their own documents and average their
gradients every step. Data, schedule and checkpoints count steps, not time, so
that neither the load of the machine nor an interruption changes the result.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from . import data
from .model import TinyReasoner, hf_config
from .problems import Problem, extract_answer, held_out

SEED, WORLD = 20261130, 2
STEPS, TOKENS_PER_STEP = 2600, 3072
WARMUP, DECAY_FROM = 40, 0.6
MATRIX_LR, OTHER_LR, MOMENTUM = 0.02, 4e-3, 0.95
MIX_FROM, DRILLS_BEFORE, DRILLS_AFTER = 0.55, 0.45, 0.12
POOL_STEPS, CHECKPOINT_STEPS = 10, 200
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    """Momentum whose matrix updates are made orthogonal (Jordan et al., 2024).

    Matrices of one shape are handled in one batch, in FP32, which is what a
    CPU without BF16 arithmetic needs.
    """

    def __init__(self, params, lr: float, momentum: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                by_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in by_shape.items():
                updates = []
                for parameter in parameters:
                    state = self.state[parameter]
                    if not state:
                        state["momentum"] = torch.zeros_like(parameter)
                    average = state["momentum"]
                    average.lerp_(parameter.grad, 1 - group["momentum"])
                    updates.append(parameter.grad.lerp(average, group["momentum"]))
                scale = max(1, shape[0] / shape[1]) ** 0.5
                for parameter, update in zip(
                    parameters, _orthogonal(torch.stack(updates))
                ):
                    parameter.add_(update, alpha=-group["lr"] * scale)


def _orthogonal(matrices: Tensor) -> Tensor:
    """Nearly orthogonal matrices [n, rows, columns], by Newton-Schulz steps."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = NEWTON_SCHULZ
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def _batches(tokenizer: Tokenizer, rank: int, first: int, steps: int) -> Iterator:
    """One padded batch a step: ids, and labels with -100 where there is no loss."""
    pad = tokenizer.token_to_id(data.PAD)
    for pool in range(first // POOL_STEPS, steps // POOL_STEPS):
        documents = data.Documents(seed=(SEED << 24) + (pool << 4) + rank)
        rng = documents.rng
        mixed = pool * POOL_STEPS >= MIX_FROM * steps
        drills = DRILLS_AFTER if mixed else DRILLS_BEFORE
        examples, tokens = [], 0
        while tokens < POOL_STEPS * TOKENS_PER_STEP:
            chunk = []
            for _ in range(64):
                if rng.random() < drills:
                    chunk.append(documents.drill())
                else:
                    chunk.append(documents.full() if mixed else documents.short())
            for ids, loss in data.encode(tokenizer, chunk):
                examples.append((ids, loss))
                tokens += len(ids)
        examples.sort(key=lambda example: len(example[0]))
        size = tokens / POOL_STEPS
        batches: list[list] = [[] for _ in range(POOL_STEPS)]
        seen = 0
        for ids, loss in examples:
            batches[min(int(seen / size), POOL_STEPS - 1)].append((ids, loss))
            seen += len(ids)
        # The same order for every process: batches of one step are alike in size.
        random.Random(pool).shuffle(batches)
        for batch in batches:
            width = max(len(ids) for ids, _ in batch)
            ids = torch.full((len(batch), width), pad)
            labels = torch.full((len(batch), width), -100)
            for row, (tokens_of_row, loss) in enumerate(batch):
                length = len(tokens_of_row)
                ids[row, :length] = torch.tensor(tokens_of_row)
                keep = torch.tensor(loss)
                labels[row, :length][keep] = ids[row, :length][keep]
            yield ids, labels


def _loss(model: TinyReasoner, ids: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy; only positions with loss go through the output layer."""
    targets = labels[:, 1:]
    keep = targets != -100
    hidden = model.hidden(ids[:, :-1])[keep]
    logits = F.linear(hidden, model.model.embed_tokens.weight)
    return F.cross_entropy(logits, targets[keep])


def _schedule(step: int, steps: int) -> float:
    decay = (steps - step) / (steps - DECAY_FROM * steps)
    return min(1.0, (step + 1) / WARMUP, decay)


@torch.inference_mode()
def greedy_accuracy(
    model: TinyReasoner, tokenizer: Tokenizer, problems: list[Problem], limit: int
) -> tuple[float, float]:
    """Shares of problems answered, and answered rightly, within `limit` tokens."""
    prompts = data.Prompts()
    eos = tokenizer.token_to_id(data.END)
    answered = right = 0
    by_length: dict[int, list[tuple[Problem, list[int]]]] = {}
    for problem in problems:
        text = prompts.render([{"role": "user", "content": problem.question}])
        ids = tokenizer.encode(text).ids
        by_length.setdefault(len(ids), []).append((problem, ids))
    for group in by_length.values():
        ids = torch.tensor([row for _, row in group])
        start, open_rows = ids.shape[1], torch.ones(len(group), dtype=torch.bool)
        for _ in range(limit):
            chosen = model(ids)[:, -1].argmax(-1)
            chosen[~open_rows] = eos
            ids = torch.cat((ids, chosen[:, None]), dim=1)
            open_rows &= chosen != eos
            if not open_rows.any():
                break
        for (problem, _), row in zip(group, ids[:, start:].tolist()):
            said = extract_answer(tokenizer.decode(row))
            answered += said is not None
            right += said == problem.answer
    return answered / len(problems), right / len(problems)


def export(model: TinyReasoner, tokenizer: Tokenizer, out: Path, record: dict) -> None:
    """Write what vLLM loads: weights, configuration, tokenizer, template."""
    out.mkdir(parents=True, exist_ok=True)
    eos, pad = (tokenizer.token_to_id(token) for token in (data.END, data.PAD))
    weights = {
        name: parameter.detach().to(torch.bfloat16).contiguous()
        for name, parameter in model.named_parameters()
    }
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(out / "tokenizer.json"))
    digest = hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    files = {
        "config.json": hf_config(tokenizer.get_vocab_size(), eos, pad),
        "generation_config.json": {
            "do_sample": True,
            "temperature": 0.6,
            "eos_token_id": eos,
            "pad_token_id": pad,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": data.END,
            "pad_token": data.PAD,
            "additional_special_tokens": [data.TURN],
            "model_max_length": 1024,
            "clean_up_tokenization_spaces": False,
        },
        "training.json": record | {"model.safetensors sha256": digest},
    }
    for name, content in files.items():
        (out / name).write_text(json.dumps(content, indent=2) + "\n")
    template = out / data.TEMPLATE_FILE.name
    if template.resolve() != data.TEMPLATE_FILE.resolve():
        shutil.copyfile(data.TEMPLATE_FILE, template)


def _train(rank: int, out: Path, work: Path, steps: int) -> None:
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    dist.init_process_group(
        "gloo", init_method=f"file://{work}/rendezvous", rank=rank, world_size=WORLD
    )
    torch.manual_seed(SEED)
    tokenizer = data.train_tokenizer(SEED)
    model = TinyReasoner(tokenizer.get_vocab_size())
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "proj" in n]
    others = [p for n, p in model.named_parameters() if p.ndim < 2 or "proj" not in n]
    muon = Muon(matrices, lr=MATRIX_LR, momentum=MOMENTUM)
    adam = torch.optim.AdamW(
        others, lr=OTHER_LR, betas=(0.9, 0.98), weight_decay=0.0, fused=True
    )
    optimizers = ((muon, MATRIX_LR), (adam, OTHER_LR))
    step, seconds, checkpoint = 0, 0.0, work / f"checkpoint-{steps}.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        for (optimizer, _), state in zip(optimizers, saved["optimizers"]):
            optimizer.load_state_dict(state)
        step, seconds = saved["step"], saved["seconds"]
    dist.barrier()
    begun = time.monotonic() - seconds
    parameters, problems = list(model.parameters()), held_out(40, SEED)
    bar = tqdm(total=steps, initial=step, disable=rank != 0, mininterval=5)
    for ids, labels in _batches(tokenizer, rank, step, steps):
        loss = _loss(model, ids, labels)
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in parameters])
        dist.all_reduce(flat)
        flat /= WORLD
        torch.nn.utils.vector_to_parameters(flat, [p.grad for p in parameters])
        for optimizer, rate in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * _schedule(step, steps)
            optimizer.step()
        model.zero_grad(set_to_none=True)
        step += 1
        if rank == 0:
            bar.update()
            bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
        if rank == 0 and (step % CHECKPOINT_STEPS == 0 or step == steps):
            seconds = time.monotonic() - begun
            record = {
                "seed": SEED,
                "steps": step,
                "of": steps,
                "tokens_per_step": WORLD * TOKENS_PER_STEP,
                "minutes": round(seconds / 60, 1),
                "parameters": sum(p.numel() for p in parameters),
            }
            export(model, tokenizer, out, record)
            partial = checkpoint.with_suffix(".part")
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizers": [o.state_dict() for o, _ in optimizers],
                    "step": step,
                    "seconds": seconds,
                },
                partial,
            )
            partial.replace(checkpoint)
            answered, right = greedy_accuracy(model, tokenizer, problems, 120)
            bar.write(
                f"step {step}: loss {loss.item():.3f}, greedy within 120 tokens: "
                f"answered {answered:.0%}, right {right:.0%}, {seconds / 60:.1f} min"
            )
    bar.close()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="model directory")
    parser.add_argument(
        "--work",
        type=Path,
        help="directory of the checkpoint, from which an interrupted run goes on "
        "(default: OUT.work)",
    )
    parser.add_argument(
        "--steps", type=int, default=STEPS, help="fewer steps for a quick trial"
    )
    args = parser.parse_args()
    if args.steps < POOL_STEPS or args.steps % POOL_STEPS:
        parser.error(f"--steps={args.steps}: give a multiple of {POOL_STEPS}")
    work = (args.work or args.out.with_name(args.out.name + ".work")).resolve()
    work.mkdir(parents=True, exist_ok=True)
    (work / "rendezvous").unlink(missing_ok=True)
    torch.multiprocessing.spawn(
        _train, (args.out.resolve(), work, args.steps), nprocs=WORLD
    )


if __name__ == "__main__":
    main()
