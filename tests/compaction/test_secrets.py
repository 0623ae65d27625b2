from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcompact.text.secrets import REDACTED, Redactor, secret_values

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
