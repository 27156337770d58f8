"""Which tests `python3 run.py test` runs: the fast ones. `--all`, or the name of a file or folder, runs every test.

A file is in a tier by its own name, or else by its folder's.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]

# Pure rules, the store on both databases, every family's actions on one shared stack, and a kill smoke.
FAST = (
    "tests/",
    "tests/test_cli/test_input.py",
    "tests/test_cli/test_words.py",
    "tests/test_dialects/",
    "tests/test_edge/",
    "tests/test_leases/",
    "tests/test_machines/",
    "tests/test_simulated/",
    "tests/test_store/",
    "tests/test_systems/",
)
# What starts and kills processes of its own, a browser or a cloud; what searches at random; and of each family the rare
# cases, which take longer than the usual ones.
SLOW = (
    "tests/chaos/",
    "tests/fuzz/",
    "tests/test_aws/",
    "tests/test_browser.py",
    "tests/test_cli/",
    "tests/test_client.py",
    "tests/test_clouds/",
    "tests/test_crashes.py",
    "tests/test_delegation.py",
    "tests/test_determinism.py",
    "tests/test_dialect_g8.py",
    "tests/test_dialect_tumblebug.py",
    "tests/test_dialects/test_blazar.py",
    "tests/test_dialects/test_clients.py",
    "tests/test_dialects/test_generated.py",
    "tests/test_dialects/test_kills.py",
    "tests/test_dialects/test_schema.py",
    "tests/test_edge/test_by_hand.py",
    "tests/test_edge/test_commands.py",
    "tests/test_edge/test_connections.py",
    "tests/test_edge/test_crashes.py",
    "tests/test_edge/test_cut_off.py",
    "tests/test_edge/test_delegation.py",
    "tests/test_edge/test_disorder.py",
    "tests/test_edge/test_floods.py",
    "tests/test_edge/test_following.py",
    "tests/test_edge/test_instances.py",
    "tests/test_edge/test_links.py",
    "tests/test_edge/test_orphans.py",
    "tests/test_edge/test_over_http.py",
    "tests/test_edge/test_postgres.py",
    "tests/test_edge/test_real_apps.py",
    "tests/test_edge/test_repairs.py",
    "tests/test_edge/test_tokens.py",
    "tests/test_edge/test_upgrades.py",
    "tests/test_embedded.py",
    "tests/test_family_example.py",
    "tests/test_floods.py",
    "tests/test_gateway_messages.py",
    "tests/test_guard.py",
    "tests/test_healing.py",
    "tests/test_hints.py",
    "tests/test_leases/test_away.py",
    "tests/test_leases/test_commands.py",
    "tests/test_leases/test_cut_off.py",
    "tests/test_leases/test_delegation.py",
    "tests/test_leases/test_fence.py",
    "tests/test_leases/test_ironic.py",
    "tests/test_leases/test_ironic_chaos.py",
    "tests/test_leases/test_metal.py",
    "tests/test_leases/test_orphans.py",
    "tests/test_leases/test_updates.py",
    "tests/test_load.py",
    "tests/test_machines/test_bin.py",
    "tests/test_machines/test_commands.py",
    "tests/test_machines/test_delegation.py",
    "tests/test_machines/test_full_bin.py",
    "tests/test_machines/test_hypervisor.py",
    "tests/test_machines/test_late.py",
    "tests/test_machines/test_leftovers.py",
    "tests/test_machines/test_orphans.py",
    "tests/test_machines/test_qemu.py",
    "tests/test_machines/test_qemu_chaos.py",
    "tests/test_machines/test_refusals.py",
    "tests/test_machines/test_relatives.py",
    "tests/test_machines/test_trouble.py",
    "tests/test_mci_hold.py",
    "tests/test_mci_life.py",
    "tests/test_mci_orphans.py",
    "tests/test_mci_policy.py",
    "tests/test_mci_scale.py",
    "tests/test_mci_survey.py",
    "tests/test_platform/",
    "tests/test_removal.py",
    "tests/test_runs.py",
    "tests/test_simulated/test_commits.py",
    "tests/test_store/test_interleavings.py",
    "tests/test_store/test_listing_memory.py",
    "tests/test_store/test_migrations.py",
    "tests/test_store/test_model.py",
    "tests/test_store/test_plans.py",
    "tests/test_store/test_restore.py",
    "tests/test_systems/test_backends.py",
    "tests/test_systems/test_commands.py",
    "tests/test_systems/test_confinement.py",
    "tests/test_systems/test_container_chaos.py",
    "tests/test_systems/test_containers.py",
    "tests/test_systems/test_crashes.py",
    "tests/test_systems/test_deploys.py",
    "tests/test_systems/test_going_back.py",
    "tests/test_systems/test_orphans.py",
    "tests/test_systems/test_processes.py",
    "tests/test_systems/test_rollback.py",
    "tests/test_systems/test_unserved.py",
    "tests/test_takeover.py",
    "tests/test_trouble.py",
    "tests/test_tui.py",
    "tests/test_verify.py",
)


def is_fast(file: Path) -> bool:
    """Is this test file in the fast tier? One that is in no tier is an error."""
    name = file.relative_to(ROOT).as_posix()
    folder = f"{file.parent.relative_to(ROOT).as_posix()}/"
    [tier, *_] = [tier for entry in (name, folder) for tier in (FAST, SLOW) if entry in tier]
    return tier is FAST
