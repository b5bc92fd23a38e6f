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
    check: Callable[[str], bool] | None = None

    def compiled(self) -> re.Pattern[str]:
        """The pattern to match where one of `starts` begins."""
        return re.compile(self.left + self.body)


_PEM_TEXT: Final = r"(?:[A-Za-z0-9+/=:,. ]|\s|\\+[nrt]|-(?!----))*+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_CUT: Final = (
    r"(?:(?:\s|\\+[nrt])*+[A-Za-z0-9+/=]{16,}+)*+"  # the end is missing: take the lines that look like base64
)

FORMATS: Final[tuple[Format, ...]] = (
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
