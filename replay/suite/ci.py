"""Whether this is a machine that builds and tests by itself, where nothing may be recorded, accepted or updated."""

from __future__ import annotations

import os
from collections.abc import Mapping

VARIABLES = (
    "CI",  # GitHub, GitLab, CircleCI, Travis, Buildkite, Drone, Woodpecker, Cirrus, Vercel, Netlify, ...
    "CONTINUOUS_INTEGRATION",
    "BUILD_NUMBER",  # Jenkins, Hudson, TeamCity, Bamboo; pytest itself goes by this one and CI
    "BUILD_ID",  # Jenkins, Google Cloud Build
    "JENKINS_URL",
    "TF_BUILD",  # Azure Pipelines
    "TEAMCITY_VERSION",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "BUILDKITE",
    "CIRCLECI",
    "TRAVIS",
    "APPVEYOR",
    "DRONE",
    "BITBUCKET_BUILD_NUMBER",
    "CODEBUILD_BUILD_ID",  # AWS
    "bamboo_buildKey",
    "GO_PIPELINE_NAME",  # GoCD
    "SEMAPHORE",
    "HARNESS_BUILD_ID",
)
_NO = ("", "0", "false", "no", "off")


def seen_in(environment: Mapping[str, str] | None = None) -> str:
    """The name of the variable by which this is seen to be CI, or "". A variable set to 0, false, no or off does not count."""
    found = os.environ if environment is None else environment
    return next((name for name in VARIABLES if found.get(name, "").strip().lower() not in _NO), "")
