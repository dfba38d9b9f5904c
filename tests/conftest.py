"""Fixtures that every layer may use, and rules for Hypothesis.

No example of a law is judged by its time. On CI the examples follow from the law's source and are always the
same, for whether a change may land is no throw of dice; elsewhere each run looks at others.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.gateway_process import gateway

__all__ = ["gateway"]

settings.register_profile(
    "tidegate",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("tidegate")
