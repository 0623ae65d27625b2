from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcompact.text.secrets import REDACTED, Redactor, secret_values
from tests.secrets_of_40_kinds import ORDINARY, SECRETS

KEYS = [
    "sk-" + "abcDEF123456" * 3,
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "A1b2_" * 6,
    "AKIA" + "ABCDEFGH12345678",
    "AIza" + "Sy0123456789" * 3,
    "xoxb-" + "1234567890-abc",
    "hf_" + "aBcDeFgH12" * 3,
    "glpat-" + "x1Y2z3" * 4,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.dBjftJeZ4CVPmB92K27uhbUJU1p1r",
]


@pytest.mark.parametrize("key", KEYS)
def test_keys_with_a_well_known_form_are_redacted_wherever_they_stand(key: str) -> None:
    assert Redactor()(f"curl -H 'x: {key}' https://api") == f"curl -H 'x: {REDACTED}' https://api"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("API_KEY=q8Zr2vX9pLm4", "q8Zr2vX9pLm4"),
        ('{"db_password": "tr0ub4dor&3x"}', "tr0ub4dor&3x"),
        ("postgres://app:s3cr3tpw@db.local/x", "s3cr3tpw"),
        ("Authorization: Bearer abcdefghijklmnop1234", "abcdefghijklmnop1234"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEow cut off", "MIIEow"),
    ],
)
def test_values_beside_a_key_like_name_and_credentials_are_redacted(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in Redactor()(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens = 16384",
        "token: str = field(default='')",
        "password = os.environ['PASSWORD']",
        "tokens_before=177657, secret santa is on friday",
        "the tokenizer counts tokens: 4 per word",
        "keyword: configuration",
    ],
)
def test_ordinary_text_about_tokens_and_passwords_is_left_alone(text: str) -> None:
    assert Redactor()(text) == text


def test_values_that_the_host_knows_are_redacted_by_value() -> None:
    values = secret_values({"MY_API_KEY": "plainwordsecret", "HOME": "/home/someone", "SHORT_TOKEN": "abc"})
    assert values == ("plainwordsecret",)
    assert Redactor(values)("it was plainwordsecret.") == f"it was {REDACTED}."


@given(st.text(), st.lists(st.text(min_size=8, max_size=20), max_size=3))
def test_redaction_never_fails_and_leaves_no_known_value(text: str, values: list[str]) -> None:
    values = [value for value in values if value not in REDACTED and REDACTED not in value]
    assert Redactor(values)(text + "".join(values)) is not None
    one = Redactor(values[:1])
    if values:
        assert values[0] not in one(f"a {values[0]} b") or values[0] in REDACTED


@pytest.mark.parametrize(("text", "secret"), SECRETS[:-1])
def test_forty_kinds_of_secrets_are_found_where_they_usually_stand(text: str, secret: str) -> None:
    redact = Redactor()
    clean = redact(f"before\n{text.format(secret)}\nafter")
    assert secret not in clean
    assert REDACTED in clean
    assert clean.startswith("before")
    assert clean.endswith("after")
    assert redact(clean) == clean
    for wrapped in (repr(f"a\n{text.format(secret)}"), json.dumps({"code": f"a\n{text.format(secret)}"})):
        assert json.dumps(secret)[1:-1] not in redact(wrapped), wrapped


@pytest.mark.parametrize("text", ORDINARY)
def test_what_only_looks_a_little_like_a_secret_stays(text: str) -> None:
    assert Redactor()(text) == text


@pytest.mark.parametrize("value", ['pass"word\\with marks', "zwei wörter\nund eine zeile", "a/b+c=d e&f"])
def test_a_value_that_the_host_knows_is_found_in_every_form_it_is_written_in(value: str) -> None:
    redact = Redactor([value])
    forms = [
        value,
        json.dumps({"x": value}),
        repr(value),
        quote(value, safe=""),
        base64.b64encode(value.encode()).decode(),
    ]
    for form in forms:
        assert REDACTED in redact(f"x {form} y"), form


@pytest.mark.parametrize(
    ("name", "value"),
    [("DB_PASSWORD", "short one"), ("DATABASE_URL", "postgres://app:inthe-url@h/d"), ("SECRET_KEY_BASE", "0123456789")],
)
def test_secrets_of_the_environment_are_told_by_name_and_by_their_place_in_an_address(name: str, value: str) -> None:
    (secret,) = secret_values({name: value, "SSH_KEY": "/home/someone/.ssh/id_ed25519"})
    assert secret in value
