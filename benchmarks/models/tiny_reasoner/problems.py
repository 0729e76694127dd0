# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Short arithmetic word problems: made from a seed, split into training and held-out.

Nothing here needs torch: tests, the demo and the benchmarks take their
problems from [held_out][benchmarks.models.tiny_reasoner.problems.held_out].
"""

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import regex as re

MAX_VALUE = 999
"""Every number in a problem and every result lies in 1..MAX_VALUE."""

PEOPLE = [
    (name, pronoun)
    for pronoun, names in {
        "he": ("Tom", "Ben", "Sam", "Leo", "Max", "Raj", "Ivan", "Omar"),
        "she": ("Mia", "Ann", "Eva", "Zoe", "Lily", "Nina", "Rosa", "Kim"),
    }.items()
    for name in names
]
THINGS = [
    "apples",
    "coins",
    "books",
    "cards",
    "shells",
    "stamps",
    "pens",
    "balls",
    "stickers",
    "marbles",
    "eggs",
    "beads",
]
GOODS = ["pen", "book", "cup", "hat", "ticket", "lamp", "shirt", "ball", "plant", "toy"]
EXTRAS = ["bag", "map", "cake", "poster", "chair", "watch"]
BOXES = ["boxes", "bags", "shelves", "baskets", "rows", "tables"]
GAINS = ["buys", "finds", "wins", "gets", "collects"]
LOSSES = ["loses", "gives away", "sells", "drops", "lends"]
WORK = (
    ("book", "pages", "reads"),
    ("road", "miles", "walks"),
    ("wall", "bricks", "lays"),
    ("field", "rows", "plants"),
    ("list", "words", "learns"),
)
TIMES = {2: "doubles", 3: "triples"}
OPERATION_NAMES = {"+": "plus", "-": "minus", "*": "times"}
OPENERS = (
    "Solve this problem. ",
    "Please help me. ",
    "Think step by step. ",
    "Here is a question. ",
)
TOOL_REQUEST = " Use the calculator."


@dataclass(frozen=True)
class Term:
    """A value together with the expression that leads to it."""

    value: int
    text: str

    @classmethod
    def number(cls, value: int) -> "Term":
        return cls(value, str(value))

    @property
    def is_sum(self) -> bool:
        return "+" in self.text or "-" in self.text


@dataclass(frozen=True)
class Step:
    """One line of working: `phrase: left op right = value`."""

    phrase: str
    left: Term
    operation: str
    right: Term

    @property
    def result(self) -> Term:
        left, right = self.left, self.right
        value = {
            "+": left.value + right.value,
            "-": left.value - right.value,
            "*": left.value * right.value,
        }[self.operation]
        bind_left = self.operation == "*" and left.is_sum
        bind_right = self.operation != "+" and right.is_sum
        texts = (
            f"({left.text})" if bind_left else left.text,
            f"({right.text})" if bind_right else right.text,
        )
        return Term(value, self.operation.join(texts))

    @property
    def left_side(self) -> str:
        return f"{self.left.value}{self.operation}{self.right.value}"


@dataclass(frozen=True)
class Problem:
    """A question with its working.

    Attributes:
        question: The text of the user's turn.
        steps: The working, in order; the last one gives the answer.
        family: The kind of problem, one of `FAMILIES`.
        wants_tool: Whether the question asks for the calculator, so that the
            model's reasoning goes into a tool call.

    """

    question: str
    steps: tuple[Step, ...]
    family: str
    wants_tool: bool = False

    @property
    def answer(self) -> str:
        return str(self.steps[-1].result.value)

    @property
    def expression(self) -> str:
        """The whole working as one expression for a calculator."""
        return self.steps[-1].result.text


Draft = tuple[list[str], list[Step]]


class _Working:
    """Steps that build on one another."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def add(self, phrase: str, left: Term, operation: str, right: Term | int) -> Term:
        if isinstance(right, int):
            right = Term.number(right)
        step = Step(phrase, left, operation, right)
        self.steps.append(step)
        return step.result


def _chain(rng: random.Random) -> Draft:
    (name, he), thing = rng.choice(PEOPLE), rng.choice(THINGS)
    He, working = he.capitalize(), _Working()
    total = Term.number(rng.randint(12, 250))
    said = [f"{name} has {total.value} {thing}."]
    multiplied = False
    for _ in range(rng.choice((2, 3, 4))):
        kind = rng.random()
        if kind < 0.15 and not multiplied and total.value < 300:
            multiplied, factor = True, rng.choice((2, 3))
            said.append(f"Then {he} {TIMES[factor]} what {he} has.")
            total = working.add(TIMES[factor], total, "*", factor)
        elif kind < 0.55 or total.value < 12:
            verb, change = rng.choice(GAINS), rng.randint(4, 180)
            said.append(f"{He} {verb} {change} more.")
            total = working.add(verb, total, "+", change)
        else:
            verb, change = rng.choice(LOSSES), rng.randint(3, total.value - 2)
            said.append(f"{He} {verb} {change}.")
            total = working.add(verb, total, "-", change)
    ending = rng.choice(("now", "in the end", "after that"))
    said.append(f"How many {thing} does {he} have {ending}?")
    return said, working.steps


def _cost(rng: random.Random) -> Draft:
    name, he = rng.choice(PEOPLE)
    He, working = he.capitalize(), _Working()
    goods, extras = rng.sample(GOODS, 2), rng.choice(EXTRAS)
    price, count = Term.number(rng.randint(3, 60)), rng.randint(2, 9)
    said = [f"A {goods[0]} costs {price.value} dollars."]
    said.append(f"{name} buys {count} {goods[0]}s.")
    total = working.add(f"{goods[0]}s", price, "*", count)
    shape = rng.randrange(4)
    if shape == 1:
        price, count = Term.number(rng.randint(3, 40)), rng.randint(2, 9)
        said.append(f"{He} buys {count} {goods[1]}s for {price.value} dollars each.")
        second = working.add(f"{goods[1]}s", price, "*", count)
        total = working.add("together", total, "+", second)
    else:
        extra = rng.randint(5, 150)
        said.append(f"{He} also buys a {extras} for {extra} dollars.")
        total = working.add(extras, total, "+", extra)
    if shape == 2 and total.value > 30:
        off = rng.randint(3, 25)
        said.append(f"A coupon takes {off} dollars off.")
        total = working.add("coupon", total, "-", off)
    if rng.random() < 0.4 and total.value < 900:
        paid = rng.choice([p for p in (100, 200, 300, 500, 999) if p > total.value])
        said.append(f"{He} has {paid} dollars. How much is left?")
        working.add("left", Term.number(paid), "-", total)
    else:
        said.append(rng.choice((f"How much does {he} pay?", "What is the total cost?")))
    return said, working.steps


def _rate(rng: random.Random) -> Draft:
    name, he = rng.choice(PEOPLE)
    working = _Working()
    whole, units, verb = rng.choice(WORK)
    size = Term.number(rng.randint(120, 990))
    pace, days = Term.number(rng.randint(4, 70)), rng.randint(2, 9)
    said = [f"A {whole} has {size.value} {units}."]
    said.append(f"{name} {verb} {pace.value} {units} a day for {days} days.")
    done = working.add("first", pace, "*", days)
    shape = rng.randrange(3)
    if shape == 1:
        more = rng.randint(5, 90)
        said.append(f"Then {he} {verb} {more} more.")
        done = working.add("more", done, "+", more)
    elif shape == 2:
        pace, days = Term.number(rng.randint(4, 40)), rng.randint(2, 9)
        said.append(f"Then {he} {verb} {pace.value} {units} a day for {days} days.")
        second = working.add("then", pace, "*", days)
        done = working.add("together", done, "+", second)
    said.append(f"How many {units} are left?")
    working.add("left", size, "-", done)
    return said, working.steps


def _comparison(rng: random.Random) -> Draft:
    names, thing = [person[0] for person in rng.sample(PEOPLE, 3)], rng.choice(THINGS)
    working = _Working()
    held = [Term.number(rng.randint(8, 160))]
    said = [f"{names[0]} has {held[0].value} {thing}."]
    for previous, current in pairwise(names[: rng.choice((2, 3, 3))]):
        kind = rng.random()
        if kind < 0.4 or held[-1].value < 8:
            change = rng.randint(3, 120)
            said.append(f"{current} has {change} more than {previous}.")
            held.append(working.add(current, held[-1], "+", change))
        elif kind < 0.75:
            change = rng.randint(2, held[-1].value - 2)
            said.append(f"{current} has {change} fewer than {previous}.")
            held.append(working.add(current, held[-1], "-", change))
        else:
            factor = rng.choice((2, 3, 4))
            said.append(f"{current} has {factor} times as many as {previous}.")
            held.append(working.add(current, held[-1], "*", factor))
    if len(held) == 2 or rng.random() < 0.7:
        said.append(f"How many {thing} do they have together?")
        total = held[0]
        for other in held[1:]:
            total = working.add("together", total, "+", other)
    else:
        said.append(f"How many {thing} does {names[2]} have?")
    return said, working.steps


def _groups(rng: random.Random) -> Draft:
    boxes, thing, working = rng.choice(BOXES), rng.choice(THINGS), _Working()
    count, each = Term.number(rng.randint(4, 99)), rng.randint(2, 9)
    said = [f"There are {each} {boxes} with {count.value} {thing} each."]
    total = working.add(boxes, count, "*", each)
    for _ in range(rng.choice((1, 2, 3))):
        if rng.random() < 0.5 and total.value > 12:
            change = rng.randint(3, total.value - 2)
            said.append(f"{change} {thing} are taken away.")
            total = working.add("taken away", total, "-", change)
        else:
            change = rng.randint(4, 150)
            said.append(f"{change} {thing} are added.")
            total = working.add("added", total, "+", change)
    said.append(f"How many {thing} are there {rng.choice(('now', 'in the end'))}?")
    return said, working.steps


def _plain(rng: random.Random) -> Draft:
    working, total = _Working(), Term.number(rng.randint(2, 300))
    worded, spaced = rng.random() < 0.3, rng.random() < 0.5
    asked = str(total.value)
    product_first = rng.random() < 0.25
    for index in range(rng.choice((1, 1, 2, 3))):
        if index == 0 and product_first:
            total = Term.number(rng.randint(2, 99))
            asked, operation, other = str(total.value), "*", rng.randint(2, 9)
        else:
            operation = rng.choice("+-")
            other = rng.randint(1, 300 if operation == "+" else max(total.value - 1, 1))
        sign = f" {OPERATION_NAMES[operation]} " if worded else operation
        asked += (f" {sign} " if spaced and not worded else sign) + str(other)
        total = working.add("then" if index else "first", total, operation, other)
    frame = rng.choice(("What is {}?", "Compute {}.", "How much is {}?", "{}"))
    return [frame.format(asked)], working.steps


FAMILIES: dict[str, Callable[[random.Random], Draft]] = {
    "chain": _chain,
    "cost": _cost,
    "rate": _rate,
    "comparison": _comparison,
    "groups": _groups,
    "plain": _plain,
}
WEIGHTS = (23, 19, 18, 18, 14, 8)


def is_held_out(question: str) -> bool:
    """Whether a question is kept from training: one in twenty, by its hash."""
    return hashlib.sha256(question.encode()).digest()[0] < 13


def generate(rng: random.Random, *, held_out: bool) -> Iterator[Problem]:
    """Problems of one side of the split, without end."""
    while True:
        family = rng.choices(list(FAMILIES), WEIGHTS)[0]
        said, steps = FAMILIES[family](rng)
        if not all(1 <= step.result.value <= MAX_VALUE for step in steps):
            continue
        question = " ".join(said)
        if is_held_out(question) != held_out:
            continue
        if rng.random() < 0.1:
            question = rng.choice(OPENERS) + question
        yield Problem(question, tuple(steps), family)


def with_tool(problem: Problem) -> Problem:
    """The same problem, asking for the calculator."""
    return replace(problem, question=problem.question + TOOL_REQUEST, wants_tool=True)


def held_out(n: int, seed: int = 0, *, wants_tool: bool = False) -> list[Problem]:
    """Problems that the model was not trained on.

    Args:
        n: How many problems.
        seed: The same seed gives the same problems.
        wants_tool: Let every question ask for the calculator.

    Returns:
        `n` problems with different questions.

    """
    found: dict[str, Problem] = {}
    for problem in generate(random.Random(seed), held_out=True):
        if len(found) >= n:
            break
        found.setdefault(problem.question, problem)
    problems = list(found.values())
    return [with_tool(problem) for problem in problems] if wants_tool else problems


_ANSWER = re.compile(r"Answer:\s*(\d+)(?!\d)")


def extract_answer(text: str | None) -> str | None:
    """The number after the last `Answer:` outside the reasoning, or None."""
    found = _ANSWER.findall((text or "").split("</think>")[-1])
    return str(int(found[-1])) if found else None
