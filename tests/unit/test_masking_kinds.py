"""Every known kind of secret, planted where it stands in real texts, and look-alikes that are none."""

from __future__ import annotations

import random
import string

import pytest

from kernel.masking import Masker

MASKER = Masker.default()
_random = random.Random(7)
WORD = "hunter2xyzQ"


def chars(count: int) -> str:
    return "".join(_random.choices(string.ascii_letters + string.digits, k=count - 2)) + "A7"


def digits(count: int) -> str:
    return "".join(_random.choices("0123456789abcdef", k=count))


def uuid() -> str:
    return "-".join(digits(count) for count in (8, 4, 4, 4, 12))


# Built from parts, so that no scanner of repositories takes this file for a leak.
KEYS = {
    "atlassian": "ATA" + "TT3x" + chars(180),
    "databricks": "da" + "pi" + digits(32),
    "doppler": "dp" + ".pt." + chars(43),
    "dynatrace": "dt0" + "c01." + chars(24).upper() + "." + chars(64).upper(),
    "figma": "fig" + "d_" + chars(40),
    "fly.io": "fo" + "1_" + chars(43),
    "gitlab trigger": "gl" + "ptt-" + digits(40),
    "grafana": "gl" + "sa_" + chars(32) + "_" + digits(8),
    "heroku": "HR" + "KU-" + chars(60),
    "hubspot": "pat" + "-na1-" + uuid(),
    "langfuse": "sk" + "-lf-" + uuid(),
    "linear": "lin" + "_api_" + chars(40),
    "mailchimp": digits(32) + "-us" + "12",
    "mailgun": "ke" + "y-" + digits(32),
    "mapbox": "sk" + ".eyJ" + chars(60) + "." + chars(22),
    "new relic": "NR" + "AK-" + chars(27).upper(),
    "notion": "nt" + "n_" + chars(46),
    "notion old": "sec" + "ret_" + chars(43),
    "nvidia": "nv" + "api-" + chars(64),
    "openrouter": "sk" + "-or-v1-" + digits(64),
    "planetscale": "psc" + "ale_tkn_" + chars(43),
    "postman": "PM" + "AK-" + digits(24) + "-" + digits(34),
    "pulumi": "pu" + "l-" + digits(40),
    "sentry": "snt" + "rys_" + chars(120),
    "square": "EA" + "AA" + chars(60),
    "supabase": "sb" + "p_" + digits(40),
    "telegram": "123456789" + ":AA" + chars(33),
    "terraform": chars(14) + ".atlas" + "v1." + chars(67),
    "together": "tg" + "p_v1_" + chars(43),
    "vercel": "vc" + "p_" + chars(24),
    "adafruit": "ai" + "o_" + chars(28),
    "age": "AGE-SEC" + "RET-KEY-1" + chars(58).upper(),
    "airtable": "pat" + chars(14) + "." + digits(64),
    "alibaba": "LT" + "AI5t" + chars(18),
    "apify": "apify" + "_api_" + chars(36),
    "azure": "a1b8" + "Q~" + chars(34),
    "azure devops": chars(76) + "AZ" + "DO" + chars(4),
    "brevo": "xkey" + "sib-" + digits(64) + "-" + chars(16),
    "buildkite": "bk" + "ua_" + digits(40),
    "cerebras": "cs" + "k-" + chars(48),
    "circleci": "CCI" + "PAT_" + chars(22) + "_" + digits(40),
    "contentful": "CF" + "PAT-" + chars(43),
    "discord": "MTA" + chars(21) + "." + chars(6) + "." + chars(38),
    "e2b": "e2" + "b_" + digits(40),
    "elevenlabs": "s" + "k_" + digits(48),
    "facebook": "EA" + "AC" + chars(80),
    "firecrawl": "f" + "c-" + digits(32),
    "fireworks": "f" + "w_" + chars(24),
    "jina": "ji" + "na_" + chars(56),
    "1password": "ops" + "_eyJ" + chars(250),
    "pinecone": "pc" + "sk_" + chars(6) + "_" + chars(63),
    "resend": "r" + "e_" + chars(8) + "_" + chars(24),
    "rubygems": "ruby" + "gems_" + digits(48),
    "sonar": "sq" + "u_" + digits(40),
    "sourcegraph": "sg" + "p_" + digits(16) + "_" + digits(40),
    "tailscale": "tsk" + "ey-auth-" + chars(12) + "-" + chars(32),
    "tencent": "AK" + "ID" + chars(32),
    "volcengine": "AK" + "LT" + chars(44),
    "yandex": "AQ" + "VN" + chars(36),
    "zhipu": digits(32) + "." + chars(16),
    "weights & biases": "wan" + "db_v1_" + chars(60),
}
PLACES = {
    "Chinese label": f"密码：{WORD}",
    "Chinese label, blank": f"密码: {WORD}",
    "Chinese verb": f"登录口令是 {WORD}",
    "Chinese, equals": f"密钥={WORD}",
    "Chinese, token": f"访问令牌：{WORD}",
    "element": f"<password>{WORD}</password>",
    "element with attributes": f'<password type="text">{WORD}</password>',
    "element in a namespace": f"<wsse:Password>{WORD}</wsse:Password>",
    "camel-case element": f"<clientSecret>{WORD}</clientSecret>",
    "YAML block": f"password: |\n  {WORD}\n",
    "folded YAML": f"db_password: >-\n  {WORD}\nhost: x",
    "YAML list": f"passwords:\n  - {WORD}\n",
    "JSON list": f'{{"passwords": ["{WORD}"]}}',
    "curl -u": f"curl -u bob:{WORD} https://x",
    "curl --user": f"curl -s --user bob:{WORD} https://x",
    "netrc": f"machine x login bob password {WORD}",
    "netrc on lines": f"machine x\n  login bob\n  password {WORD}\n",
    "URL, at sign and slash": f"postgres://bob:p@ss/{WORD}@db/x",
    "URL, slash": f"mysql://bob:a/b{WORD}@db:3306/x",
    "mysql -p": f"mysql -uroot -p{WORD} db",
    "sshpass": f"sshpass -p {WORD} ssh x",
    "SQL, identified": f"CREATE USER bob IDENTIFIED BY '{WORD}'",
    "SQL, password": f"ALTER USER bob WITH PASSWORD '{WORD}'",
    "Chinese, authorization code": f"授权码：{WORD}",
    "full-width colon": f"password：{WORD}",
    "Chinese verb after an English name": f"数据库password是{WORD}",
    "Japanese": f"パスワード: {WORD}",
    "German": f"Passwort: {WORD}",
    "French": f"mot de passe : {WORD}",
    "bold label": f"**Password:** {WORD}",
    "bold label, code": f"- **Password**: `{WORD}`",
    "label, code": f"Password: `{WORD}`",
    "row of a table": f"| password | {WORD} |",
    "environment of a container": f"- name: DB_PASSWORD\n  value: {WORD}\n",
    "setting in XML": f'<add key="Password" value="{WORD}"/>',
    "CDATA": f"<password><![CDATA[{WORD}]]></password>",
    "escaped element": f"&lt;password&gt;{WORD}&lt;/password&gt;",
    "curl on two lines": f"curl https://x \\\n  -u bob:{WORD}",
    "netrc, default": f"default login bob password {WORD}",
    "netrc, password first": f"machine x password {WORD} login bob",
    "docker login": f"docker login -u bob -p {WORD}",
    "redis-cli": f"redis-cli -a {WORD} ping",
    "smbclient": f"smbclient -U bob%{WORD}",
    "openssl": f"openssl enc -pass pass:{WORD}",
    "SQL, set": f"SET PASSWORD FOR 'a' = '{WORD}'",
    "prose": f"The password is {WORD}.",
}
HARMLESS = [
    "密码错误，请重试",
    "密码是必填项",
    "the password is required",
    "Password is incorrect, try again",
    "<title>reset your password</title>",
    "<p>password</p>",
    "<key>name</key>",
    "password: |\nnext: 1",
    "tokens:\n  - hello\n  - world",
    '{"tokens": ["hello", "world"]}',
    "curl -u https://example.org",
    "http://localhost:3000/users/@bob",
    "https://example.org:8080/a@b",
    "see mysql -p and then type it",
    "trying to login with a password is not possible",
    "pattern.matches and patch.apply",
    "secret_santa_list_of_the_year",
    "key-value store, key-board",
    "v1.0-rc1 of the package",
    "https://en.wikipedia.org/wiki/Password",
    "SELECT password FROM users WHERE name = 'bob'",
    "fig_1 and fm2_test",
    "see core_functions_and_more of re_match_2 in sk_learn",
    "the password is: `required`",
    "| token | string | required |",
    "**Token:** bearer",
    "- name: region\n  value: eu-west-1a",
    "passwords：none",
    "密码是必填项，password是必填项",
    '<add key="Timeout" value="30"/>',
    "docker login -u bob --password-stdin",
    "Passwort: erforderlich",
    "file.0123456789abcdef.AbstractFactory",
    "1.0.0 and 3.14159 and a.b.c.d",
    "AKIRA, LTAI and AQVN are names",
    "the ratio is 123456789:AA",
]


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_masked_by_its_form_alone(name: str) -> None:
    masked = MASKER.mask_text(f"use {KEYS[name]} now")
    assert "~masked." in masked and KEYS[name][-20:] not in masked
    assert masked.startswith("use ") and masked.endswith(" now")


@pytest.mark.parametrize("name", PLACES)
def test_a_password_is_masked_in_its_surroundings(name: str) -> None:
    masked = MASKER.mask_text(PLACES[name])
    assert "~masked." in masked and WORD not in masked
    assert MASKER.mask_text(masked) == masked


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert MASKER.mask_text(text) == text


@pytest.mark.parametrize(
    "piece",
    ["<a ", "password: |\n ", "- x\n", '"password": [ "', "curl -u ", "login ", "://a:", "密码：", "<password>"],
)
def test_hostile_repetition_takes_linear_work(piece: str) -> None:
    """Ten thousand openers of a shape are read; a quadratic search would not end."""
    assert isinstance(MASKER.mask_text(piece * 10_000), str)
