"""The gate: empty and unknown are denied, whatever else is said."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from grpo_lib.residency import address_class, decide
from grpo_lib.runfolder import canonical, sha256
from grpo_lib.settings import DATA_CLASSES, RunSettings, load

CLASSES = ("", *DATA_CLASSES, "unheard-of")
PERSONAL = ("", "none", "some", "unheard-of")


def settings(**changes) -> RunSettings:
    # `model_copy` does not validate: the gate must hold whatever validation once lets through.
    return load({"run_id": "run-1"}).model_copy(update=changes)


@pytest.mark.parametrize(("data_class", "personal_data"), list(itertools.product(CLASSES, PERSONAL)))
def test_only_what_is_named_is_allowed(data_class, personal_data):
    allowed = data_class in ("synthetic", "public") and personal_data == "none"
    for country, bind in itertools.product(("", "SA", "US"), ("127.0.0.1", "10.0.0.7", "0.0.0.0")):
        given = dict(data_class=data_class, personal_data=personal_data, country=country, bind=bind)
        decision = decide(settings(**given))
        assert decision["verdict"] == ("allow" if allowed else "deny"), given
        rules = [reason["rule"] for reason in decision["reasons"]]
        assert rules and len(set(rules)) == len(rules)
        for reason in decision["reasons"]:
            assert set(reason) == {"rule", "ar", "en"}
            assert re.search("[\u0600-\u06ff]", reason["ar"]) and not re.search(
                "[\u0600-\u06ff]", reason["en"]
            )


def test_empty_is_denied_and_says_what_to_state():
    decision = decide(settings(data_class="", personal_data=""))
    assert decision["verdict"] == "deny"
    assert {r["rule"] for r in decision["reasons"]} == {"class-empty", "personal-data-empty"}
    assert all(name in str(decision["reasons"]) for name in ("data_class", "personal_data"))


def test_the_digest_covers_the_whole_decision():
    decision = decide(settings())
    rest = {key: value for key, value in decision.items() if key != "digest"}
    assert decision["digest"] == sha256(canonical(rest))
    assert json.loads(json.dumps(decision)) == decision
    assert set(rest) == {"verdict", "reasons", "conditions", "place", "data", "decided_at"}


def test_the_place_is_observed_and_the_country_only_declared():
    place = decide(settings(country="SA"))["place"]
    assert place == {"backend": "local", "declared_country": "SA", "observed": "this machine"}
    assert "private" in decide(settings(bind="10.0.0.7"))["place"]["observed"]
    assert "public" in decide(settings(bind="0.0.0.0"))["place"]["observed"]


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.8.8", "loopback"),
        ("localhost", "loopback"),
        ("::1", "loopback"),
        ("10.1.2.3", "private"),
        ("192.168.0.1", "private"),
        ("fd00::1", "private"),
        ("0.0.0.0", "public"),
        ("::", "public"),
        ("8.8.8.8", "public"),
        ("2001:4860:4860::8888", "public"),
        ("some-host", "public"),
        ("", "public"),
    ],
)
def test_addresses_are_classed_by_who_reaches_them(address, kind):
    assert address_class(address) == kind
