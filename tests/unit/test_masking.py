"""Claims about masking: every planted secret goes, nothing else does, and what is left is stable and valid."""

import base64
import copy
import json
import os
import pickle
import random
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernel.masking import PLACEHOLDER, Masker, by_call, by_name, by_path, by_regex, contains_placeholder

MASKER = Masker.default()
_RANDOM = random.Random(20)


def _chars(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(_RANDOM.choices(alphabet, k=count - 2)) + "a7"


def _b64(data: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


def _pem(label: str, *, newline: str = "\n") -> str:
    lines = newline.join(_chars(64) for _ in range(4))
    return f"-----BEGIN {label}-----{newline}{lines}{newline}-----END {label}-----"


UPPER = string.ascii_uppercase + "234567"
HEX = "0123456789abcdef"

# Built at run time, so that no scanner of repositories takes this file for a leak.
FORMS: dict[str, str] = {
    "openai": "sk-" + _chars(48),
    "openai project": "sk-" + "proj-" + _chars(64),
    "openai service": "sk-" + "svcacct-" + _chars(64),
    "anthropic": "sk-" + "ant-api03-" + _chars(60),
    "aws": "AK" + "IA" + _chars(16, UPPER).upper(),
    "aws session": "AS" + "IA" + _chars(16, UPPER).upper(),
    "github": "gh" + "p_" + _chars(36),
    "github oauth": "gh" + "o_" + _chars(36),
    "github user": "gh" + "u_" + _chars(36),
    "github server": "gh" + "s_" + _chars(36),
    "github refresh": "gh" + "r_" + _chars(36),
    "github fine": "github" + "_pat_" + _chars(22) + "_" + _chars(59),
    "gitlab": "gl" + "pat-" + _chars(20),
    "slack bot": "xo" + "xb-" + _chars(12, string.digits) + "-" + _chars(24),
    "slack user": "xo" + "xp-" + _chars(12, string.digits) + "-" + _chars(24),
    "slack app": "xa" + "pp-1-" + _chars(11) + "-" + _chars(40),
    "google": "AI" + "za" + _chars(35),
    "google token": "ya" + "29." + _chars(60),
    "google secret": "GOC" + "SPX-" + _chars(28),
    "stripe": "sk" + "_live_" + _chars(24),
    "stripe restricted": "rk" + "_live_" + _chars(24),
    "npm": "np" + "m_" + _chars(36),
    "pypi": "py" + "pi-AgEIcHlwaS5vcmc" + _chars(60),
    "hugging face": "h" + "f_" + _chars(34),
    "sendgrid": "S" + "G." + _chars(22) + "." + _chars(43),
    "twilio": "S" + "K" + "".join(_RANDOM.choices(HEX, k=32)),
    "jwt": _b64({"alg": "HS256", "typ": "JWT"}) + "." + _b64({"sub": "1"}) + "." + _chars(43),
    "groq": "gs" + "k_" + _chars(52),
    "pem": _pem("PRIVATE " + "KEY"),
    "pem rsa": _pem("RSA PRIVATE " + "KEY"),
    "pem ec": _pem("EC PRIVATE " + "KEY"),
    "pem openssh": _pem("OPENSSH PRIVATE " + "KEY"),
    "pem encrypted": _pem("ENCRYPTED PRIVATE " + "KEY"),
    "pem escaped": _pem("PRIVATE " + "KEY", newline="\\n"),
}

WORD = "Tr0ub4dor" + "-and-3"
PAIR = base64.b64encode(f"ann:{WORD}".encode()).decode()

CONTEXTS: dict[str, tuple[Any, str]] = {
    "bearer": (f"curl -H 'Authorization: Bearer {WORD}' https://x", WORD),
    "bearer lower": (f"authorization: bearer {WORD}", WORD),
    "basic": (f"Authorization: Basic {PAIR}", PAIR),
    "url": (f"cannot connect to postgres://ann:{WORD}@db:5432/x", WORD),
    "url with at sign": (f"amqp://ann:p@{WORD}@mq/vhost", WORD),
    "url with slashes escaped": (f'{{"dsn": "redis:\\/\\/ann:{WORD}@host"}}', WORD),
    "env": (f"export DB_PASSWORD={WORD}\nDEBUG=1", WORD),
    "env key": (f"STRIPE_KEY={WORD}", WORD),
    "env quoted": (f'OPENAI_API_KEY="{WORD}"', WORD),
    "env letters only": ("DB_PASSWORD=" + "swordfish", "swordfish"),
    "env short": ("MYSQL_PWD=" + "q7z", "q7z"),
    "yaml": (f"password: {WORD}\nhost: db", WORD),
    "yaml letters only": ("user: ann\npassword: " + "swordfish\n", "swordfish"),
    "connection string": ("host=db user=ann password=" + "swordfish dbname=x", "swordfish"),
    "query": (f"GET /x?access_token={WORD}&page=2", WORD),
    "aws secret": (f"aws_secret_access_key = {WORD}/{WORD}", WORD),
    "python literal": (f"client = Client(api_key='{WORD}')", WORD),
    "repr of a dict": (f"{{'client_secret': '{WORD}'}}", WORD),
    "flag": (f"mysql --password {WORD} -h db", WORD),
    "flag with equals": (f"mysql --password={WORD} -h db", WORD),
    "cookie header": (f"Cookie: session={WORD}; theme=dark", WORD),
    "set-cookie header": (f"set-cookie: sid={WORD}; Path=/", WORD),
    "slack webhook": ("https://hooks.slack.com/" + f"services/T012345/B0123/{WORD}", WORD),
    "exception": (f"RuntimeError: 401 for token={WORD}", WORD),
    "json in prose": (f'I call {{"tool": "login", "args": {{"password": "{WORD}"}}}}', WORD),
    "json in json": (json.dumps({"a": json.dumps({"password": WORD})}), WORD),
    "json in json in json": (json.dumps({"a": json.dumps({"b": json.dumps({"api_key": WORD})})}), WORD),
    "unicode escapes": ('{"note": "' + FORMS["openai"].replace("-", "\\u002d") + '"}', FORMS["openai"][3:]),
    "escaped equals": ('{"note": "password\\u003d' + WORD + '"}', WORD),
    "dict": ({"headers": {"Authorization": WORD, "X-Api-Key": WORD}}, WORD),
    "dict list": ({"headers": {"authorization": [f"Bearer {WORD}"]}, "cookie": [f"a={WORD}"]}, WORD),
    "dict camel": ({"clientSecret": WORD, "accessToken": WORD, "refreshToken": WORD}, WORD),
    "dict token": ({"args": {"token": WORD}}, WORD),
    "header pair": ([{"name": "Authorization", "value": WORD}], WORD),
    "otlp attribute": ({"attributes": [{"key": "db.password", "value": {"stringValue": WORD}}]}, WORD),
    "otlp attribute text": (json.dumps([{"key": "db.password", "value": {"stringValue": WORD}}]), WORD),
}


FRAMES = (
    "{}",
    "my key is {}.",
    'x="{}"',
    "https://api.test/v1?key={}&a=1",
    "PLAIN={}\n",
    "ValueError: key {!r}",
    "a,{},b",
)


@pytest.mark.parametrize("form", FORMS)
def test_a_credential_is_masked_by_its_form_wherever_it_stands(form: str) -> None:
    secret = FORMS[form]
    for frame in FRAMES:
        masked = MASKER.mask_text(frame.format(secret))
        assert secret not in masked
        assert secret[12:28] not in masked
        assert PLACEHOLDER.search(masked)


@pytest.mark.parametrize("form", FORMS)
def test_a_credential_is_masked_at_every_depth_of_json_text_and_the_text_stays_json(form: str) -> None:
    text = FORMS[form]
    for _ in range(4):
        text = json.dumps({"note": text, "n": 1})
        masked = MASKER.mask_text(text)
        assert FORMS[form][12:28] not in masked
        assert json.loads(masked)["n"] == 1


@pytest.mark.parametrize("case", CONTEXTS)
def test_a_secret_is_masked_by_what_stands_before_it(case: str) -> None:
    value, secret = CONTEXTS[case]
    masked = MASKER.mask(value)
    text = masked if isinstance(masked, str) else json.dumps(masked)
    assert secret not in text
    assert contains_placeholder(masked)
    if isinstance(value, str) and value[0] in "{[" and '"' in value:
        json.loads(masked)


def test_the_parsed_and_every_escaped_form_of_a_secret_get_one_placeholder() -> None:
    secret = 'p"q\\r' + "\u00e9\n" + WORD
    parsed = MASKER.mask({"password": secret})["password"]
    text = json.dumps({"password": secret})
    assert json.loads(MASKER.mask_text(text))["password"] == parsed
    assert json.loads(MASKER.mask_text("Action: " + text).removeprefix("Action: "))["password"] == parsed
    nested = json.loads(MASKER.mask_text(json.dumps({"arguments": text})))["arguments"]
    assert json.loads(nested)["password"] == parsed


def test_a_key_has_one_placeholder_whether_found_by_its_form_or_by_a_name() -> None:
    key = FORMS["openai"]
    stand_in = MASKER.mask_text(key)
    assert MASKER.mask({"api_key": key}) == {"api_key": stand_in}
    assert MASKER.mask_text(f"Authorization: Bearer {key}") == f"Authorization: Bearer {stand_in}"
    assert MASKER.mask_text(f"OPENAI_API_KEY={key}") == f"OPENAI_API_KEY={stand_in}"


def test_a_private_key_has_one_placeholder_with_real_and_escaped_line_ends() -> None:
    pem = FORMS["pem"]
    assert (
        MASKER.mask_text(pem)
        == MASKER.mask_text(pem.replace("\n", "\\n"))
        == MASKER.mask({"private_key": pem})["private_key"]
    )


def test_a_private_key_that_was_cut_off_is_masked_as_far_as_it_goes() -> None:
    cut = FORMS["pem rsa"][:180]
    assert PLACEHOLDER.fullmatch(MASKER.mask_text(cut))


CLEAN: list[Any] = [
    "",
    "the token budget is 4000: input_tokens=12, output_tokens=7, max_tokens: 100",
    {"usage": {"input_tokens": 12, "output_tokens": "7", "total_token_count": 9, "token_budget": 5}},
    {"logprobs": {"content": [{"token": "Hello", "logprob": -0.1, "bytes": [72]}, {"token": " international"}]}},
    {"next_page_token": "CAUQAA81729abc", "eos_token": "</s>", "time_to_first_token": "0.2"},
    {
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "span_id": "00f067aa0ba902b7",
        "id": "call_A1b2C3d4E5f6G7h8I9j0K1l2",
    },
    {"id": "chatcmpl-9xYzAbCdEfGhIjKlMnOpQrStUvWx", "tool_call_id": "toolu_01A09q90qw90lq917835lq9"},
    {"response_id": "resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b", "system_fingerprint": "fp_44709d6fcb"},
    {"traceId": "S/kvNXezTaajzpKdDg5HNg==", "spanId": "APBnqgupArc="},
    {"commit": "3f786850e387550fdab836ed7e6dc881de23001b", "digest": "sha256:" + "9f86d081884c7d65" * 4},
    {"uuid": "123e4567-e89b-12d3-a456-426614174000", "at": "2024-05-01T12:00:00.123456Z", "n": 1714564800123456789},
    {"password": None, "api_key": "", "secret": True, "token": 12345},
    {"password": "${DB_PASSWORD}", "api_key": "<your-api-key>", "secret": "{{ secret }}", "token": "********"},
    {"properties": {"password": {"type": "string", "description": "the user's password"}}, "required": ["password"]},
    "def login(user: str, password: str, token: Optional[str] = None) -> None:",
    "self.password = password; token = request.headers['x']; api_key = os.environ['API_KEY']; secret = get_secret()",
    "connect(user=user, password=password, token=self.token)",
    "Password: wrong. The password: is required; Authorization: required",
    "a basic understanding of bearer authentication; Basic authentication: on",
    "class='sk-estimator-doc-link' sk-toggleable__label-arrow scikit-learn task-force-something-long-plain risk-free",
    "http://localhost:8080/a@b https://user@host/x git@github.com:org/repo.git ftp://host:21/",
    "PWD=/srv/project OLDPWD=/srv pwd: /testbed",
    "-----BEGIN CERTIFICATE-----\nMIIBszCCARygAwIBAgIJALq\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIBszCCARygAwIBAgIJALq\n-----END PUBLIC KEY-----",
    "eyJub3QiOiJhIGp3dCJ9.abc.def is base64 of plain JSON",
    {"public_key": "MIIBszCCARygAwIBAgIJALq", "cache_key": "user:17:profile", "primary_key": "id", "key": "value1234"},
]


@pytest.mark.parametrize("password", ["$ecret", "{x", "changeme", "p w", "%41", "<3you", "secret:1", "os.x1"])
def test_a_password_that_resembles_a_variable_or_a_template_is_masked(password: str) -> None:
    assert PLACEHOLDER.fullmatch(MASKER.mask({"password": password})["password"])


@pytest.mark.parametrize("value", CLEAN, ids=range(len(CLEAN)))
def test_what_is_no_secret_comes_back_as_the_same_object(value: Any) -> None:
    before = copy.deepcopy(value)
    masked, count = MASKER.mask_counted(value)
    assert masked is value
    assert value == before
    assert not count
    text = json.dumps(value)
    assert MASKER.mask_text(text) is text


def test_only_changed_containers_are_copied_and_the_input_stays_as_it_was() -> None:
    value = {"a": [1, {"x": "y"}], "b": {"password": WORD, "n": 1.5}, "c": ("t", FORMS["npm"])}
    before = copy.deepcopy(value)
    masked = MASKER.mask(value)
    assert value == before
    assert masked["a"] is value["a"]
    assert list(masked) == ["a", "b", "c"]
    assert masked["b"]["n"] == 1.5
    assert isinstance(masked["c"], tuple)


def test_a_credential_used_as_a_dict_key_is_masked_in_place() -> None:
    masked = MASKER.mask({"a": 1, FORMS["github"]: {"n": [FORMS["npm"]]}, "z": 2})
    keys = list(masked)
    assert keys[0] == "a" and keys[2] == "z" and PLACEHOLDER.fullmatch(keys[1])
    assert PLACEHOLDER.fullmatch(masked[keys[1]]["n"][0])


def test_counts_name_every_kind_that_was_masked() -> None:
    _, count = MASKER.mask_counted([{"password": WORD}, f"{FORMS['npm']} {FORMS['npm']}", {FORMS["github"]: 1}])
    assert count == {"password": 1, "npm-token": 2, "github-token": 1}


def test_the_placeholder_is_the_same_in_another_process() -> None:
    code = "import sys; from kernel.masking import Masker; sys.stdout.write(Masker.default().mask_text(sys.argv[1]))"
    root = Path(__file__).parents[2]
    other = subprocess.run(
        [sys.executable, "-c", code, FORMS["openai"]],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(root)},
    )
    assert other.stdout == MASKER.mask_text(FORMS["openai"])


def test_a_weak_secret_shows_four_digits_and_a_random_key_eight() -> None:
    assert len(MASKER.mask({"password": WORD})["password"].rstrip("~").rpartition(".")[2]) == 4
    assert len(MASKER.mask_text(FORMS["openai"]).rstrip("~").rpartition(".")[2]) == 8


def test_a_keyed_masker_gives_placeholders_of_its_own_and_never_tells_its_key() -> None:
    keyed = Masker.default(key=b"0123456789")
    assert keyed.mask_text(FORMS["openai"]) != MASKER.mask_text(FORMS["openai"])
    assert "0123456789" not in repr(keyed) + json.dumps(keyed.describe())


def test_a_masker_survives_pickling() -> None:
    masker = Masker.default(personal=True).with_rules(
        by_path("/a/*/pin"), by_regex(r"X(\d+)", kind="x", group=1), by_name("pin")
    )
    again = pickle.loads(pickle.dumps(masker))
    assert again == masker
    assert again.mask({"a": [{"pin": "12"}]}) == masker.mask({"a": [{"pin": "12"}]})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/args/*/pin", {"args": {"card": {"pin": "1234"}}}),
        ("/**/pin", {"a": [{"b": {"pin": "1234"}}]}),
        ("/**/pin", {"pin": "1234"}),
        ("/args/creds", {"args": {"creds": {"x": ["1234"]}}}),
        ("/a~1b/p*", {"a/b": {"pin": "1234"}}),
    ],
)
def test_a_path_rule_masks_the_strings_at_and_below_its_place(path: str, value: Any) -> None:
    masker = MASKER.with_rules(by_path(path, kind="pin"))
    masked, count = masker.mask_counted(value)
    assert "1234" not in json.dumps(masked)
    assert count == {"pin": 1}
    assert masker.mask({"other": "1234", "args": {"pin": 1234}}) == {"other": "1234", "args": {"pin": 1234}}


def test_a_name_rule_works_in_data_and_in_json_text() -> None:
    masker = MASKER.with_rules(by_name("card_pin"))
    parsed = masker.mask({"cardPin": "4711"})["cardPin"]
    assert PLACEHOLDER.fullmatch(parsed)
    assert masker.mask_text('go {"card_pin": "4711"}') == f'go {{"card_pin": "{parsed}"}}'


def test_a_regex_rule_masks_one_group_and_keeps_json_text_valid() -> None:
    masker = MASKER.with_rules(by_regex(r"order (\d+)", kind="order", group=1), by_regex(r"zip.*", kind="zip"))
    assert masker.mask_text("order 4711 of 9").endswith(" of 9")
    masked = masker.mask_text('{"a": "zip 10115", "b": 1}')
    assert json.loads(masked)["b"] == 1
    assert "10115" not in masked


def test_a_callable_rule_may_rewrite_and_fails_closed() -> None:
    def clean(text: str) -> str | None:
        if text == "boom":
            raise RuntimeError(text)
        return text.replace("Ann", "N.") if "Ann" in text else None

    masked, count = MASKER.with_rules(by_call(clean, kind="person")).mask_counted(["Ann", "Bob", "boom"])
    assert masked[:2] == ["N.", "Bob"]
    assert PLACEHOLDER.fullmatch(masked[2])
    assert count == {"person": 1, "person-failed": 1}


def test_personal_data_is_masked_only_when_asked_for() -> None:
    card = "4111 1111" + " 1111 1111"
    text = f"mail ann.lee+x@mail.example.org, card {card}, order 4111 1111 1111 1112, id 1714564800123456789"
    assert MASKER.mask_text(text) is text
    masked, count = Masker.default(personal=True).mask_counted(text)
    assert count == {"email": 1, "card": 1}
    assert "ann.lee" not in masked and card not in masked
    assert "4111 1111 1111 1112" in masked and "1714564800123456789" in masked


def test_the_description_is_plain_data_and_holds_no_pattern() -> None:
    masker = Masker.default(personal=True).with_rules(by_regex(WORD, kind="mine"), by_path("/a"), by_name("pin"))
    told = masker.describe()
    assert json.loads(json.dumps(told)) == told
    assert WORD not in json.dumps(told)
    assert [entry["rule"] for entry in told] == ["default", "personal", "regex", "path", "name"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: by_path("args/pin"), "begin with '/'"),
        (lambda: by_regex("a", kind="Bad Kind"), "lower-case"),
        (lambda: by_regex("a", kind="x", group=1), "no group 1"),
        (lambda: by_name("--"), "letter or digit"),
        (lambda: Masker.default(key=b"x" * 65), "at most 64"),
    ],
)
def test_an_unusable_rule_is_refused_with_the_remedy(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_masker_without_defaults_masks_nothing() -> None:
    value = {"password": WORD, "k": FORMS["openai"]}
    assert Masker(defaults=False).mask(value) is value


def test_a_deep_value_needs_no_recursion() -> None:
    value: Any = FORMS["npm"]
    for _ in range(50_000):
        value = [value]
    masked = MASKER.mask(value)
    assert contains_placeholder(masked)
    while isinstance(masked, list):
        masked = masked[0]
    while isinstance(value, list):  # taken apart by hand: the interpreter would recurse
        value = value[0]


def _corpus() -> Path:
    return Path(os.environ.get("TRACEFIRST_CORPUS") or Path(__file__).parents[3] / "shared" / "corpus")


@pytest.mark.corpus
@pytest.mark.skipif(not _corpus().is_dir(), reason="no corpus beside the checkout")
def test_nothing_in_real_traces_is_taken_for_a_secret() -> None:
    masked: list[str] = []
    for path in sorted(_corpus().rglob("*")):
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            masked += [f"{path.name}: {hit.kind} at {hit.start}" for hit in MASKER.find(text)]
            for line in [text, *text.splitlines()]:
                try:
                    value = json.loads(line)
                except ValueError:
                    continue
                masked += [f"{path.name}: {kind} in values" for kind in MASKER.mask_counted(value)[1]]
    assert masked == []
