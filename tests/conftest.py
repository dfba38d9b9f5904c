"""Fixtures that every layer may use, and one rule: no example of a Hypothesis law is judged by its time."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.gateway_process import gateway

__all__ = ["gateway"]

settings.register_profile("tidegate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidegate")
