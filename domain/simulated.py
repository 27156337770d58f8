"""What is simulated: marked wherever it is shown, and refused by workers with RATCHET_SIMULATED=off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from domain.errors import Category, Refused
from domain.wire import SIMULATED, split_placement, split_region_and_provider

SWITCH = "RATCHET_SIMULATED=off"


def is_always_simulated(_spec: Mapping[str, Any], _placement: str, _info: Mapping[str, Any]) -> bool:
    """Says yes: for kinds whose only provider is simulated."""
    return True


def is_simulated_place(placement: str) -> bool:
    """Tells whether a placement names the simulated provider."""
    return bool(placement) and split_region_and_provider(split_placement(placement)[1])[1] == SIMULATED


def simulated_provider_refusal(what: str) -> Refused:
    """Returns the refusal of a request that needs a simulated provider."""
    return Refused(
        Category.NOT_ALLOWED,
        f"{what} is simulated, and the workers refuse what is simulated ({SWITCH})",
        "use a real provider, see README, What is real; or start the workers without RATCHET_SIMULATED",
    )


def check_no_place_simulated(places: Iterable[str]) -> None:
    """Refuses simulated places."""
    for place in sorted(places):
        if is_simulated_place(place):
            raise simulated_provider_refusal(place)
