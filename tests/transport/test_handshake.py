"""The handshake: both sides prove the secret; nothing that a stranger writes gets past it or breaks it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_lib.errors import WrongInput
from grpo_lib.transport import PROTOCOL, handshake
from grpo_lib.transport.handshake import (
    HandshakeError,
    check_answer,
    check_hello,
    check_secret,
    check_worker_id,
    make_answer,
    make_hello,
    make_refusal,
)

SECRET, OTHER = b"s" * 32, b"o" * 32


def reason_of(call, *args) -> str:
    with pytest.raises(HandshakeError) as caught:
        call(*args)
    return caught.value.reason


def test_both_sides_get_the_same_keys():
    raw, hello = make_hello(SECRET, "run", "worker-0", "10.0.0.2")
    seen = check_hello(raw, SECRET, "run")
    assert seen == hello
    answer, keys = make_answer(SECRET, "run", seen, 7)
    assert check_answer(answer, SECRET, "run", hello) == (keys, 7)


def test_each_session_has_its_own_keys():
    _, hello = make_hello(SECRET, "run", "worker-0", "h")
    assert make_answer(SECRET, "run", hello, 1)[1] != make_answer(SECRET, "run", hello, 1)[1]


def test_wrong_secret_wrong_run_wrong_protocol(monkeypatch):
    raw, _ = make_hello(OTHER, "run", "worker-0", "h")
    assert reason_of(check_hello, raw, SECRET, "run") == "join secret"
    raw, _ = make_hello(SECRET, "another", "worker-0", "h")
    assert reason_of(check_hello, raw, SECRET, "run") == "run"
    monkeypatch.setattr(handshake, "PROTOCOL", PROTOCOL + "0")
    raw, _ = make_hello(SECRET, "run", "worker-0", "h")
    monkeypatch.undo()
    assert reason_of(check_hello, raw, SECRET, "run") == "protocol"


@pytest.mark.parametrize("name", ["protocol", "run_id", "worker_id", "host", "nonce", "mac"])
def test_every_field_of_a_hello_is_protected(name):
    raw, _ = make_hello(SECRET, "run", "worker-0", "h")
    fields = json.loads(raw)
    fields[name] = fields[name][:-1] + ("0" if fields[name][-1] != "0" else "1")
    assert reason_of(check_hello, json.dumps(fields).encode(), SECRET, "run") == "join secret"


@pytest.mark.parametrize(
    "raw",
    [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 4000, b'{"mac": 1}', b"1" * 5000, b"1" * 4096],
)
def test_what_is_not_a_hello_is_malformed(raw):
    assert reason_of(check_hello, raw, SECRET, "run") == "malformed hello"


@pytest.mark.parametrize("worker_id", ["", "../x", "a" * 65, "عامل", "a\n", "a b", "\ud800"])
def test_a_claimed_id_never_carries_odd_characters(worker_id):
    raw, _ = make_hello(SECRET, "run", worker_id, "h")
    assert reason_of(check_hello, raw, SECRET, "run") == "malformed hello"
    with pytest.raises(WrongInput):
        check_worker_id(worker_id)


@pytest.mark.parametrize("name", ["nonce", "slot", "mac"])
def test_a_false_learner_is_noticed(name):
    _, hello = make_hello(SECRET, "run", "worker-0", "h")
    answer = json.loads(make_answer(SECRET, "run", hello, 1)[0])
    forged = {**answer, name: answer[name][:-1] + ("0" if answer[name][-1] != "0" else "1")}
    assert reason_of(check_answer, json.dumps(forged).encode(), SECRET, "run", hello) == "join secret"
    foreign, _ = make_answer(OTHER, "run", hello, 1)
    assert reason_of(check_answer, foreign, SECRET, "run", hello) == "join secret"


def test_an_answer_serves_one_hello():
    _, first = make_hello(SECRET, "run", "worker-0", "h")
    _, second = make_hello(SECRET, "run", "worker-0", "h")
    answer, _ = make_answer(SECRET, "run", first, 1)
    assert reason_of(check_answer, answer, SECRET, "run", second) == "join secret"


def test_a_refusal_is_believed_only_when_signed():
    _, hello = make_hello(SECRET, "run", "worker-0", "h")
    assert reason_of(check_answer, make_refusal(SECRET, "run", hello), SECRET, "run", hello) == "run"
    unsigned = make_refusal(OTHER, "run", hello)
    assert reason_of(check_answer, unsigned, SECRET, "run", hello) == "join secret"


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=300), st.recursive(st.text(), st.lists).map(lambda j: json.dumps(j).encode())
    )
)
def test_fuzz_only_the_typed_error_escapes(raw):
    _, hello = make_hello(SECRET, "run", "worker-0", "h")
    reason_of(check_hello, raw, SECRET, "run")
    reason_of(check_answer, raw, SECRET, "run", hello)


def test_a_short_secret_is_refused_in_both_languages():
    with pytest.raises(WrongInput) as caught:
        check_secret(b"short")
    assert "سرّ الانضمام" in caught.value.ar
    assert "join secret" in caught.value.en
