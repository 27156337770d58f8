"""What of this family may be called from outside, and by which right (`domain/exposure.py`)."""

from __future__ import annotations

from domain.exposure import INTERNAL, LOCAL, TOKEN, Exposures

# fmt: off
ACTIVITIES: Exposures = {
    "operate_object":   INTERNAL,
    "settle_object":    INTERNAL,
    "machines_on":      INTERNAL,
    "serve_node_order": TOKEN,  # the secret of an order that lies in the hypervisor's folder
    "bin_due":          LOCAL,
    "wake_bin":         INTERNAL,
}
MESSAGES: Exposures = {}
# fmt: on
