# SPDX-License-Identifier: Apache-2.0
"""Waiting times grow, are bounded, and respect what the peer asked for."""

from __future__ import annotations

from gpudeck import errors
from gpudeck.kube import pacing


def test_waits_double_up_to_the_limit_with_jitter_below() -> None:
    pace = pacing.Backoff(first_seconds=1.0, limit_seconds=4.0)
    for step in (1.0, 2.0, 4.0, 4.0):
        assert step / 2 <= pace.next() <= step


def test_success_starts_anew() -> None:
    pace = pacing.Backoff(first_seconds=1.0)
    for _ in range(5):
        pace.next()
    pace.reset()
    assert pace.next() <= 1.0


def test_an_outage_of_days_does_not_overflow() -> None:
    pace = pacing.Backoff(first_seconds=1.0, limit_seconds=60.0)
    pace.failures = 100_000
    assert pace.next() <= 60.0


def test_the_peer_is_not_asked_again_sooner_than_it_wants() -> None:
    pace = pacing.Backoff(first_seconds=0.1)
    assert pace.after(errors.UnavailableError("busy", after_seconds=9.0)) == 9.0
    assert pace.after(errors.UnavailableError("busy", after_seconds=0.0)) > 0.0
    assert pace.after(errors.NotFoundError("no")) < 9.0


def test_an_unreachable_peer_is_tried_every_few_seconds_however_long_it_is_away() -> None:
    pace = pacing.Backoff()
    away = errors.UnavailableError("away", reason=pacing.UNREACHABLE)
    waits = [pace.after(away) for _ in range(1000)]
    assert waits[0] <= pace.first_seconds
    assert max(waits) <= pacing.UNREACHABLE_SECONDS
    assert min(waits[10:]) >= pacing.UNREACHABLE_SECONDS / 2


def test_what_fails_after_an_outage_does_not_wait_as_if_it_had_failed_all_the_time() -> None:
    pace = pacing.Backoff()
    for _ in range(1000):
        pace.after(errors.UnavailableError("away", reason=pacing.UNREACHABLE))
    assert pace.after(errors.UnavailableError("it is still starting")) <= 6.4
