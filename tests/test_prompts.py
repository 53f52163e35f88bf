"""The prompt book: whatever happens, each index is trained on once."""

from __future__ import annotations

import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from grpo_lib.prompts import PromptBook


class Books(RuleBasedStateMachine):
    """Takes, returns, consumes, checkpoints and crashes in any order."""

    def __init__(self):
        super().__init__()
        self.book = PromptBook()
        self.out: list[int] = []
        self.consumed: list[int] = []
        self.saved = (self.book.state(), [])

    @rule(count=st.integers(1, 5))
    def take(self, count):
        taken = self.book.take(count)
        assert len(taken) == len(set(taken)) == count
        assert not set(taken) & set(self.out), "handed out twice at a time"
        assert not set(taken) & set(self.consumed), "handed out after it was trained on"
        self.out += taken

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def consume(self, data):
        index = data.draw(st.sampled_from(self.out))
        self.book.consume(index)
        self.out.remove(index)
        self.consumed.append(index)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def give_back(self, data):
        indices = data.draw(st.lists(st.sampled_from(self.out), unique=True, min_size=1))
        self.book.give_back(indices)
        self.out = [index for index in self.out if index not in indices]

    @rule()
    def checkpoint(self):
        self.saved = (json.loads(json.dumps(self.book.state())), list(self.consumed))

    @rule()
    def crash_and_resume(self):
        state, consumed = self.saved
        self.book, self.out, self.consumed = PromptBook(state), [], list(consumed)

    @invariant()
    def nothing_is_lost(self):
        state = self.book.state()
        assert set(range(state["next"])) == set(state["unconsumed"]) | set(self.consumed)
        assert not set(state["unconsumed"]) & set(self.consumed)
        assert set(self.out) <= set(state["unconsumed"])
        assert state["unconsumed"] == sorted(set(state["unconsumed"]))


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBooks = Books.TestCase


def test_new_indices_count_up_from_zero():
    book = PromptBook()
    assert book.take(3) == [0, 1, 2] and book.take(1) == [3]


def test_returned_indices_come_first_and_in_order():
    book = PromptBook()
    book.take(6)
    book.give_back([4, 1])
    assert book.take(3) == [1, 4, 6]


def test_a_restored_book_hands_out_what_was_not_trained_on():
    book = PromptBook()
    book.take(5)
    book.consume(0)
    book.consume(3)
    assert PromptBook(book.state()).take(4) == [1, 2, 4, 5]


def test_what_is_not_out_can_be_neither_consumed_nor_returned():
    book = PromptBook()
    book.take(1)
    book.consume(0)
    for misuse in (lambda: book.consume(0), lambda: book.give_back([0]), lambda: book.consume(7)):
        with pytest.raises(KeyError):
            misuse()
