"""The known credential formats, one row each: what a secret looks like by itself, wherever it stands.

A row is found by its literal `starts`, then checked by `body`, matched where the literal begins. Every body is
linear on hostile input: classes repeat possessively or greedily with nothing after them that could make them give
back, a `left` border keeps a run from being tried at each of its characters, and no class holds a quote or a
backslash, so a mask inside JSON text can never eat a closing quote or half an escape.
"""

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_ALNUM: Final = r"(?<![A-Za-z0-9])"
_WORD: Final = r"(?<![A-Za-z0-9_-])"


def _has_digit(secret: str) -> bool:
    return any(c.isdigit() for c in secret)


def _is_openai(secret: str) -> bool:
    """Tell a key from CSS classes such as scikit-learn's `sk-…`: a digit, or one long word."""
    return _has_digit(secret) or ("-" not in secret[3:] and "_" not in secret and len(secret) >= 28)


def _is_jwt(secret: str) -> bool:
    """Whether the first part decodes to a JSON object that names an algorithm (RFC 7515, section 4.1)."""
    head = secret.partition(".")[0]
    try:
        decoded = urlsafe_b64decode(head + "=" * (-len(head) % 4))
    except ValueError:
        return False
    return decoded.lstrip().startswith(b"{") and b'"alg"' in decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One credential format. `group` is what is masked; `left` the border before the literal."""

    kind: str
    starts: tuple[str, ...]
    body: str
    group: int = 0
    left: str = _ALNUM
    near: str = ""
    """What must stand around the literal, for one that is too common to be looked at each time."""
    check: Callable[[str], bool] | None = None

    def compiled(self) -> re.Pattern[str]:
        """The pattern to match where one of `starts` begins."""
        return re.compile(self.left + self.body)


_PEM_TEXT: Final = r"(?:[A-Za-z0-9+/=:,. ]|\s|\\+[nrt]|-(?!----))*+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_CUT: Final = (
    r"(?:(?:\s|\\+[nrt])*+[A-Za-z0-9+/=]{16,}+)*+"  # the end is missing: take the lines that look like base64
)

FORMATS: Final[tuple[Format, ...]] = (
    Format(kind="cerebras-key", starts=("csk-",), body=r"csk-[A-Za-z0-9]{40,}", check=_has_digit),
    Format(kind="pinecone-key", starts=("pcsk_",), body=r"pcsk_[A-Za-z0-9]{4,10}_[A-Za-z0-9]{40,}"),
    Format(kind="anthropic-key", starts=("sk-ant-",), body=r"sk-ant-[A-Za-z0-9_-]{8,}"),
    Format(kind="openai-key", starts=("sk-",), body=r"sk-[A-Za-z0-9_-]{16,}", check=_is_openai),
    Format(kind="groq-key", starts=("gsk_",), body=r"gsk_[A-Za-z0-9]{32,}"),
    Format(kind="xai-key", starts=("xai-",), body=r"xai-[A-Za-z0-9]{40,}"),
    Format(kind="perplexity-key", starts=("pplx-",), body=r"pplx-[A-Za-z0-9]{32,}"),
    Format(kind="replicate-key", starts=("r8_",), body=r"r8_[A-Za-z0-9]{32,}"),
    Format(kind="langsmith-key", starts=("lsv2_pt_", "lsv2_sk_"), body=r"lsv2_[ps][tk]_[A-Za-z0-9_]{24,}"),
    Format(kind="tavily-key", starts=("tvly-",), body=r"tvly-[A-Za-z0-9_-]{20,}", check=_has_digit),
    Format(kind="huggingface-token", starts=("hf_",), body=r"hf_[A-Za-z0-9]{28,}"),
    Format(
        kind="aws-key",
        starts=("AKIA", "ASIA", "ABIA", "ACCA"),
        body=r"A(?:KI|SI|BI|CC)A[A-Z0-9]{16}(?![A-Za-z0-9_-])",
        left=r"(?<![A-Za-z0-9/+_-])",
    ),
    Format(kind="google-key", starts=("AIza",), body=r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])", left=_WORD),
    Format(kind="google-token", starts=("ya29.",), body=r"ya29\.(?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-])){20,}"),
    Format(kind="google-secret", starts=("GOCSPX-",), body=r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    Format(
        kind="github-token",
        starts=("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        body=r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
    ),
    Format(
        kind="gitlab-token",
        starts=("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-"),
        body=r"gl(?:pat|dt|rt|ptt|cbt|soat)-[A-Za-z0-9_-]{20,}",
    ),
    Format(
        kind="slack-token",
        starts=("xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xoxe.", "xapp-"),
        body=r"(?:xox[abeoprs][.-]|xapp-)(?:[A-Za-z0-9-]|\.(?=[A-Za-z0-9])){10,}",
        check=_has_digit,
    ),
    Format(
        kind="slack-webhook",
        starts=("hooks.slack.com/",),
        body=r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_+-]{16,})",
        group=1,
    ),
    Format(
        kind="discord-webhook",
        starts=("discord.com/api/webhooks/",),
        body=r"discord\.com/api/webhooks/\d{1,24}/([A-Za-z0-9_-]{32,})",
        group=1,
    ),
    Format(
        kind="stripe-key",
        starts=("sk_live_", "rk_live_", "sk_test_", "rk_test_", "whsec_"),
        body=r"(?:[sr]k_(?:live|test)|whsec)_[A-Za-z0-9]{16,}",
    ),
    Format(kind="sendgrid-key", starts=("SG.",), body=r"SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}"),
    Format(kind="twilio-key", starts=("SK",), body=r"SK[0-9a-f]{32}(?![A-Za-z0-9])", left=_WORD),
    Format(kind="npm-token", starts=("npm_",), body=r"npm_[A-Za-z0-9]{30,}"),
    Format(kind="pypi-token", starts=("pypi-AgE",), body=r"pypi-AgE[A-Za-z0-9_-]{16,}"),
    Format(kind="docker-token", starts=("dckr_pat_",), body=r"dckr_pat_[A-Za-z0-9_-]{20,}"),
    Format(kind="digitalocean-token", starts=("dop_v1_", "doo_v1_", "dor_v1_"), body=r"do[opr]_v1_[a-f0-9]{32,}"),
    Format(
        kind="shopify-token",
        starts=("shpat_", "shpss_", "shpca_", "shppa_"),
        body=r"shp(?:at|ss|ca|pa)_[A-Fa-f0-9]{32,}",
    ),
    Format(kind="vault-token", starts=("hvs.", "hvb."), body=r"hv[sb]\.[A-Za-z0-9_-]{24,}"),
    Format(kind="atlassian-token", starts=("ATATT3x",), body=r"ATATT3x[A-Za-z0-9_=-]{40,}"),
    Format(kind="adafruit-key", starts=("aio_",), body=r"aio_[A-Za-z0-9]{28}(?![A-Za-z0-9])"),
    Format(kind="age-key", starts=("AGE-SECRET-KEY-",), body=r"AGE-SECRET-KEY-[A-Z0-9-]{50,}"),
    Format(
        kind="airtable-token",
        starts=(".",),
        body=r"\.([a-f0-9]{64})(?![A-Za-z0-9])",
        group=1,
        left=r"(?<=pat[A-Za-z0-9]{14})",
        near=r"(?<=pat[A-Za-z0-9]{14}\.)",
    ),
    Format(
        kind="alibaba-key",
        starts=("LTAI",),
        body=r"LTAI[A-Za-z0-9]{12,26}(?![A-Za-z0-9])",
        left=_WORD,
        check=_has_digit,
    ),
    Format(kind="anyscale-key", starts=("esecret_",), body=r"esecret_[A-Za-z0-9]{24,}"),
    Format(kind="apify-token", starts=("apify_api_",), body=r"apify_api_[A-Za-z0-9]{32,}"),
    Format(
        kind="azure-secret",
        starts=("Q~",),
        near=r"(?=[A-Za-z0-9_~.-]{31})",
        body=r"Q~([A-Za-z0-9_~.-]{31,34})(?![A-Za-z0-9_~-])",
        group=1,
        left=r"(?<=[A-Za-z0-9_~.]{3}\d)",
    ),
    Format(
        kind="brevo-key", starts=("xkeysib-", "xsmtpsib-"), body=r"(?:xkeysib|xsmtpsib)-[a-f0-9]{64}-[A-Za-z0-9]{16}"
    ),
    Format(kind="buildkite-token", starts=("bkua_",), body=r"bkua_[a-f0-9]{40}"),
    Format(kind="circleci-token", starts=("CCIPAT_", "CCIPRJ_"), body=r"CCIP(?:AT|RJ)_[A-Za-z0-9]{16,}_[a-f0-9]{40}"),
    Format(kind="contentful-token", starts=("CFPAT-",), body=r"CFPAT-[A-Za-z0-9_-]{40,}"),
    Format(
        kind="discord-token",
        starts=(".",),
        body=r"\.([A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40})(?![A-Za-z0-9_.-])",
        group=1,
        left=r"(?:(?<=[MNO][A-Za-z0-9_-]{23})|(?<=[MNO][A-Za-z0-9_-]{25}))",
        near=r"(?<=[A-Za-z0-9_-]{24}\.)(?=[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27})",
    ),
    Format(
        kind="duffel-token", starts=("duffel_live_", "duffel_test_"), body=r"duffel_(?:live|test)_[A-Za-z0-9_=-]{40,}"
    ),
    Format(kind="e2b-key", starts=("e2b_",), body=r"e2b_[a-f0-9]{40}"),
    Format(kind="easypost-key", starts=("EZAK", "EZTK"), body=r"EZ[AT]K[A-Za-z0-9]{54}(?![A-Za-z0-9])"),
    Format(kind="elevenlabs-key", starts=("sk_",), near=r"(?=[a-f0-9]{48})", body=r"sk_[a-f0-9]{48}(?![A-Za-z0-9])"),
    Format(kind="facebook-token", starts=("EAAC",), body=r"EAAC[A-Za-z0-9]{60,}", check=_has_digit),
    Format(
        kind="firecrawl-key",
        starts=("fc-",),
        near=r"(?=[a-f0-9]{32})",
        body=r"fc-[a-f0-9]{32}(?![A-Za-z0-9])",
        left=_WORD,
    ),
    Format(
        kind="fireworks-key",
        starts=("fw_",),
        near=r"(?=[A-Za-z0-9]{22})",
        body=r"fw_[A-Za-z0-9]{22,26}(?![A-Za-z0-9_])",
        left=_WORD,
        check=_has_digit,
    ),
    Format(kind="flutterwave-key", starts=("FLWSECK-", "FLWSECK_TEST-"), body=r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,}"),
    Format(kind="frameio-token", starts=("fio-u-",), body=r"fio-u-[A-Za-z0-9_=-]{60,}"),
    Format(
        kind="infracost-key",
        starts=("ico-",),
        near=r"(?=[A-Za-z0-9]{32})",
        body=r"ico-[A-Za-z0-9]{32}(?![A-Za-z0-9])",
        left=_WORD,
        check=_has_digit,
    ),
    Format(kind="jina-key", starts=("jina_",), body=r"jina_[A-Za-z0-9_-]{40,}", check=_has_digit),
    Format(kind="mailersend-token", starts=("mlsn.",), body=r"mlsn\.[a-f0-9]{60,}"),
    Format(kind="onepassword-token", starts=("ops_eyJ",), body=r"ops_eyJ[A-Za-z0-9+/=_-]{100,}"),
    Format(kind="polar-token", starts=("polar_oat_", "polar_pat_"), body=r"polar_[op]at_[A-Za-z0-9]{30,}"),
    Format(kind="prefect-key", starts=("pnu_", "pnb_"), body=r"pn[ub]_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    Format(kind="readme-key", starts=("rdme_",), body=r"rdme_[a-z0-9]{68,}"),
    Format(
        kind="resend-key",
        starts=("re_",),
        near=r"(?=[A-Za-z0-9]{7,9}_[A-Za-z0-9]{22})",
        body=r"re_[A-Za-z0-9]{7,9}_[A-Za-z0-9]{22,28}(?![A-Za-z0-9_])",
        check=_has_digit,
    ),
    Format(kind="rubygems-key", starts=("rubygems_",), body=r"rubygems_[a-f0-9]{48}"),
    Format(kind="scalingo-token", starts=("tk-us-",), body=r"tk-us-[A-Za-z0-9_-]{48}"),
    Format(kind="shippo-token", starts=("shippo_live_", "shippo_test_"), body=r"shippo_(?:live|test)_[a-f0-9]{40}"),
    Format(kind="sonar-token", starts=("squ_", "sqp_", "sqa_"), body=r"sq[upa]_[a-f0-9]{40}(?![A-Za-z0-9])"),
    Format(
        kind="sourcegraph-token", starts=("sgp_",), body=r"sgp_(?:[a-f0-9]{16}_|local_)?[a-f0-9]{40}(?![A-Za-z0-9])"
    ),
    Format(kind="tailscale-key", starts=("tskey-",), body=r"tskey-[a-z]{2,10}-[A-Za-z0-9]{8,}-[A-Za-z0-9]{16,}"),
    Format(kind="tencent-key", starts=("AKID",), body=r"AKID[A-Za-z0-9]{28,}", left=_WORD, check=_has_digit),
    Format(kind="typeform-token", starts=("tfp_",), body=r"tfp_[A-Za-z0-9_.=-]{44,}"),
    Format(kind="volcengine-key", starts=("AKLT",), body=r"AKLT[A-Za-z0-9=]{32,}", left=_WORD, check=_has_digit),
    Format(kind="yandex-key", starts=("AQVN",), body=r"AQVN[A-Za-z0-9_-]{34,38}(?![A-Za-z0-9_-])", left=_WORD),
    Format(
        kind="zhipu-key",
        starts=(".",),
        body=r"\.([A-Za-z0-9]{16})(?![A-Za-z0-9_])",
        group=1,
        left=r"(?<=(?<![A-Za-z0-9])[a-f0-9]{32})",
        near=r"(?<=[a-f0-9]{32}\.)(?=[A-Za-z0-9]{16})",
        check=_has_digit,
    ),
    Format(kind="cloudflare-token", starts=("cfat_", "cfut_"), body=r"cf[au]t_[A-Za-z0-9_-]{40,}"),
    Format(kind="cloudflare-key", starts=("v1.0-",), body=r"v1\.0-[a-f0-9]{20,}-[a-f0-9]{40,}"),
    Format(kind="datadog-key", starts=("ddapp_", "pub_dd"), body=r"(?:ddapp_|pub_dd)[A-Za-z0-9]{30,}"),
    Format(
        kind="doppler-token",
        starts=("dp.",),
        body=r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}",
    ),
    Format(
        kind="dynatrace-token",
        starts=("dt0c01.", "dt0s01.", "dt0s16."),
        body=r"dt0[cs]\d\d\.[A-Z0-9]{8,24}\.[A-Z0-9]{40,64}",
    ),
    Format(kind="figma-token", starts=("figd_", "figu_"), body=r"fig[du]_[A-Za-z0-9_-]{30,}"),
    Format(kind="flyio-token", starts=("fo1_", "fm1r_", "fm2_"), body=r"(?:fo1_|fm1r_|fm2_)[A-Za-z0-9+/=_-]{32,}"),
    Format(kind="grafana-token", starts=("glsa_", "glc_"), body=r"gl(?:sa|c)_[A-Za-z0-9+/=_]{24,}"),
    Format(kind="heroku-key", starts=("HRKU-",), body=r"HRKU-[A-Za-z0-9_-]{30,}"),
    Format(
        kind="hubspot-token",
        starts=("pat-na1-", "pat-eu1-"),
        body=r"pat-(?:na|eu)1-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}",
    ),
    Format(kind="langfuse-key", starts=("sk-lf-",), body=r"sk-lf-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"),
    Format(kind="linear-key", starts=("lin_api_", "lin_oauth_"), body=r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"),
    Format(kind="mailgun-key", starts=("key-",), body=r"key-[a-f0-9]{32}(?![A-Za-z0-9])", left=_WORD),
    Format(kind="mapbox-token", starts=("sk.eyJ",), body=r"sk\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}"),
    Format(kind="newrelic-key", starts=("NRAK-", "NRJS-", "NRII-"), body=r"NR(?:AK|JS|II)-[A-Za-z0-9_-]{19,}"),
    Format(
        kind="notion-token",
        starts=("ntn_", "secret_"),
        body=r"(?:ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43}(?![A-Za-z0-9]))",
    ),
    Format(kind="nvidia-key", starts=("nvapi-",), body=r"nvapi-[A-Za-z0-9_-]{40,}"),
    Format(kind="openrouter-key", starts=("sk-or-",), body=r"sk-or-(?:v1-)?[A-Za-z0-9]{32,}"),
    Format(kind="planetscale-token", starts=("pscale_",), body=r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,}"),
    Format(kind="postman-key", starts=("PMAK-",), body=r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    Format(kind="pulumi-token", starts=("pul-",), body=r"pul-[a-f0-9]{40}(?![A-Za-z0-9])"),
    Format(kind="sentry-token", starts=("sntrys_", "sntryu_"), body=r"sntry[su]_[A-Za-z0-9+/=_-]{40,}"),
    Format(
        kind="square-token",
        starts=("EAAA", "sq0atp-", "sq0csp-"),
        body=r"(?:EAAA[A-Za-z0-9_-]{56,}|sq0(?:atp|csp)-[A-Za-z0-9_-]{22,})",
        check=_has_digit,
    ),
    Format(
        kind="supabase-key", starts=("sbp_", "sb_secret_"), body=r"(?:sbp_[a-f0-9]{40}|sb_secret_[A-Za-z0-9_-]{20,})"
    ),
    Format(
        kind="telegram-token",
        starts=(":AA",),
        body=r":(AA[A-Za-z0-9_-]{32,34})(?![A-Za-z0-9_-])",
        group=1,
        left=r"(?<=\d{8})",
    ),
    Format(
        kind="terraform-token",
        starts=(".atlasv1.",),
        body=r"\.atlasv1\.([A-Za-z0-9_=-]{60,})",
        group=1,
        left=r"(?<=[A-Za-z0-9])",
    ),
    Format(kind="together-key", starts=("tgp_v1_",), body=r"tgp_v1_[A-Za-z0-9_-]{30,}"),
    Format(kind="vercel-token", starts=("vcp_", "vck_"), body=r"vc[pk]_[A-Za-z0-9]{24,}"),
    Format(kind="wandb-key", starts=("wandb_v1_",), body=r"wandb_v1_[A-Za-z0-9_-]{40,}"),
    Format(
        kind="azure-signature", starts=("?sig=", "&sig="), body=r"[?&]sig=([A-Za-z0-9%/+]{20,}=*)", group=1, left=""
    ),
    Format(
        kind="jwt",
        starts=("eyJ",),
        body=r"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{2,}+\.[A-Za-z0-9_-]*+(?:\.[A-Za-z0-9_-]++){0,2}+",
        left=_WORD,
        check=_is_jwt,
    ),
    Format(
        kind="private-key",
        starts=("-----BEGIN ",),
        body=r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:" + _PEM_TEXT + "|" + _PEM_CUT + ")",
        left="",
    ),
)
