"""Serves Neutron's API on a database file: FOLDER PORT. Runs in OpenStack's environment, not in ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tokens import end_with_parent, keep_open, replace_keystone, write_one_at_a_time  # type: ignore[import-not-found]

CONFIG = """
[DEFAULT]
core_plugin = ml2
service_plugins =
transport_url = fake:///
api_paste_config = {prefix}/etc/neutron/api-paste.ini
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
state_path = {folder}
host = tests
log_file = {folder}/neutron.log
[database]
connection = sqlite:///{folder}/neutron.db?timeout=60
[ml2]
type_drivers = local
tenant_network_types = local
mechanism_drivers = test
[oslo_concurrency]
lock_path = {folder}
[quotas]
default_quota = -1
quota_network = -1
quota_subnet = -1
quota_port = -1
quota_security_group = -1
quota_security_group_rule = -1
"""


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    sys.argv[1:] = []
    config = folder / "neutron.conf"
    config.write_text(CONFIG.format(folder=folder, prefix=sys.prefix))
    os.environ["OS_NEUTRON_CONFIG_FILES"] = str(config)
    end_with_parent()
    replace_keystone()
    write_one_at_a_time()
    _bind_every_port()
    _create_tables(folder / "neutron.db")
    from neutron.wsgi.api import application  # type: ignore[import-not-found]
    from werkzeug.serving import make_server

    make_server("127.0.0.1", port, application, threaded=True).serve_forever()


def _bind_every_port() -> None:
    """Puts a driver in place of Neutron's own for tests: there is no agent here that would bind a port."""
    from neutron.tests.unit.plugins.ml2.drivers import mechanism_test  # type: ignore[import-not-found]
    from neutron_lib.plugins.ml2 import api  # type: ignore[import-not-found]

    class BindingDriver(api.MechanismDriver):  # type: ignore[misc]
        def initialize(self) -> None:
            """Needs nothing."""

        def bind_port(self, context: Any) -> None:
            for segment in context.segments_to_bind:
                context.set_binding(segment[api.ID], "ovs", {}, status="ACTIVE")

    mechanism_test.TestMechanismDriver = BindingDriver


def _create_tables(file: Path) -> None:
    """Creates the tables of the models: Neutron's migrations do not run on SQLite."""
    import sqlalchemy as sa
    from neutron.db.migration.models import head  # type: ignore[import-not-found]

    if not file.exists():
        engine = sa.create_engine(f"sqlite:///{file}")
        head.get_metadata().create_all(engine)
        engine.dispose()
    keep_open(file)


if __name__ == "__main__":
    main()
