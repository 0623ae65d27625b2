"""Forty secrets, each in the text that it usually stands in. All of them are made up."""

from __future__ import annotations

SECRETS: tuple[tuple[str, str], ...] = (
    ("AWS_SECRET_ACCESS_KEY={}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzEXAMPLEK"),
    ("DB_PASSWORD='{}'", "Tr0ub4dor&3xyz"),
    ("DB_ADMIN_PASSWORD={}", "correct-horse-battery"),
    ('{{"password": "{}"}}', "p@ss w0rd with spaces"),
    ('export PGPASSWORD="{}"', "s3cr3t;x,y"),
    ('"client_secret": "{}"', "GOCSPX-abc.def_ghi"),
    ("api_key = '{}'", "a.b.c.d.e.f1"),
    ("apiKey: `{}`", "k/1+2=3==x"),
    ("x-api-key: {}", "9f8e7d6c5b4a39281706f5e4d3c2b1a0"),
    ("Authorization: token {}", "0123456789abcdef0123"),
    ("Authorization: Basic {}", "dXNlcjpwYXNzd29yZDEyMw=="),
    ("Authorization: Bearer {}", "abcdefghijklmnop1234"),
    ("postgres://app:{}@db.local/x", "p%40ss:w0rd"),
    ("redis://:{}@cache.local:6379/0", "secretpw"),
    ("psql --password {} -h db", "hunter2!xyz"),
    ("tool --token={} run", "abcdefghij"),
    ("curl -u user:{} https://example.org", "Pa55w0rd!"),
    ("machine example.org login me password {}", "zzzz9yyy"),
    ('{{\\"db_password\\": \\"{}\\"}}', "Tr0ub4dor&4xyz"),
    ("password: {}", "s3cr3t#x9"),
    ('token = "{}"', "ünïcödé-pässwörd-1"),
    ("SECRET_KEY_BASE={}", "abcdef/ghijk"),
    ("DefaultEndpointsProtocol=https;AccountKey={};x", "Zm9vYmFyYmF6cXV4+/abc123=="),
    ("https://example.org/y?sv=1&sig={}&se=2", "aB%2Bcdefghijklmnopq%3D"),
    ("PASSPHRASE='{}'", "open sesame phrase"),
    ("os.environ['MAIL_PASSWORD'] = '{}'", "Tr0ub4dor&5xyz"),
    ("{{'db': {{'passwd': '{}'}}}}", "axb!longer"),
    ("GITHUB_TOKEN: {}", "0aB1cD2eF3gH4iJ5"),
    ("connect(user='x', password='{}')", "hunter2"),
    ("spring.datasource.password={}", "pa$$w0rd#1"),
    ("MYSQL_PWD={}", "rootroot!"),
    ("the key is {}", "sk-proj-0123456789abcdefghijklmnop"),
    ("use {} there", "ghp_" + "a1B2" * 9),
    ("id {}", "AKIA" + "ABCDEFGH12345678"),
    ("maps {}", "AIza" + "Sy0123456789" * 3),
    ("bot {}", "xoxb-" + "1234567890-abc"),
    ("hub {}", "hf_" + "aBcDeFgH12" * 3),
    ("session {}", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.dBjftJeZ4CVPmB92K27uhbUJU1p1r"),
    ("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----", "MIIEowIBAAKCAQEA0Zr"),
    ("the variable's value is {}", "mauve otter lane, 4711"),
)
"""The text with a place for the secret, and the secret. The last is told by the host's environment alone."""

ENVIRONMENT = {"BILLING_API_TOKEN": SECRETS[-1][1]}

ORDINARY: tuple[str, ...] = (
    "password = os.environ['PASSWORD']",
    "token: str = field(default='')",
    "primary_key = 'user_id'",
    'sort(key="name")',
    "keyword: configuration",
    "secret: see 1Password",
    "api_key=settings.OPENAI_API_KEY",
    "password = getpass.getpass()",
    "access key: press Ctrl+K",
    "token = tokens[3]",
    "PASSWORD_FILE=/run/secrets/db_password",
    "max_tokens = 16384",
    "tokens_before=177657, secret santa is on friday",
    'csrf_token = request.cookies.get("csrf2")',
    'key_path="/home/u/.ssh/id_rsa"',
    "password: must have 8 characters",
    'key: "Ctrl+Shift+P"',
    "the tokenizer counts tokens: 4 per word",
    "`api_key`: the key",
    "password=${DB_PASSWORD}",
    "password: <your password>",
    "def login(user, password: str) -> None:",
    "secret_name: 'db-creds-1'",
    "token_count=12_345_678",
    "if token == expected_token:",
    "password='%s' % x",
    "--token TOKEN",
    "auth_token: Optional[str] = None",
    "secrets: SecretStore = SecretStore()",
    "credentials: same-origin",
    "error: 'password: must be longer than that'",
    "tests/test_login.py::test_password_reset",
    "https://example.org:8080/path/to?x=1",
)
"""What only looks a little like one, and must stay as it is."""


def texts() -> list[str]:
    """The forty texts with their secrets in them."""
    return [text.format(secret) for text, secret in SECRETS]


def found_in(text: str) -> list[str]:
    """The secrets that a text still shows."""
    return [secret for _, secret in SECRETS if secret in text]
