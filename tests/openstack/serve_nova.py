"""Serves Nova on database files: FOLDER PORT NEUTRON_PORT CORES. Runs in OpenStack's environment, not in ours.

API, conductor, scheduler, compute and placement are one process; the hypervisor is Nova's fake driver and Glance is
Nova's test fixture. Everything else is Nova's own, as a cloud runs it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"

from tokens import ADMIN_TOKEN, end_with_parent, keep_open, replace_keystone  # type: ignore[import-not-found]

CONFIG = """
[DEFAULT]
transport_url = fake:///
compute_driver = fake.FakeDriver
host = tests
state_path = {folder}
log_file = {folder}/nova.log
vif_plugging_timeout = 0
vif_plugging_is_fatal = false
periodic_enable = false
[wsgi]
api_paste_config = {prefix}/etc/nova/api-paste.ini
[api_database]
connection = sqlite:///{folder}/api.db?timeout=60
[database]
connection = sqlite:///{folder}/cell1.db?timeout=60
[placement]
auth_type = admin_token
token = admin
endpoint = http://127.0.0.1:{placement}
endpoint_override = http://127.0.0.1:{placement}
[neutron]
auth_type = admin_token
token = {token}
endpoint = http://127.0.0.1:{neutron}
endpoint_override = http://127.0.0.1:{neutron}
[service_user]
send_service_user_token = true
auth_type = admin_token
token = {token}
endpoint = http://127.0.0.1:{neutron}
[oslo_concurrency]
lock_path = {folder}
[quota]
instances = -1
cores = {cores}
ram = -1
metadata_items = 128
key_pairs = -1
[key_manager]
backend = nova.keymgr.conf_key_mgr.ConfKeyManager
[cache]
enabled = false
[oslo_messaging_notifications]
driver = noop
"""

NODE = "22222222-2222-4222-8222-222222222222"  # the identity of the compute node


def main() -> None:
    folder, port, neutron, cores = Path(sys.argv[1]), *(int(word) for word in sys.argv[2:5])
    sys.argv[1:] = []
    from nova import monkey_patch  # type: ignore[import-not-found]

    monkey_patch.patch(backend="threading")
    end_with_parent()
    replace_keystone()
    placement = _serve_placement(folder)
    config = folder / "nova.conf"
    config.write_text(
        CONFIG.format(
            folder=folder, prefix=sys.prefix, token=ADMIN_TOKEN, placement=placement, neutron=neutron, cores=cores
        )
    )
    os.environ |= {"OS_NOVA_CONFIG_DIR": str(folder), "OS_NOVA_CONFIG_FILES": "nova.conf"}
    _read_config(config)
    _create_tables(folder)
    keep_open(*(folder / f"{name}.db" for name in ("api", "placement", "cell0", "cell1")))
    _use_fixtures()
    _keep_servers(folder)
    _wait_while_told(folder / "hold")
    _start_services()
    from nova.api import wsgi  # type: ignore[import-not-found]
    from nova.api.openstack import wsgi_app  # type: ignore[import-not-found]
    from werkzeug.serving import make_server

    wsgi_app._setup_service("tests", "osapi_compute")
    make_server("127.0.0.1", port, wsgi.Loader().load_app("osapi_compute"), threaded=True).serve_forever()


def _serve_placement(folder: Path) -> int:
    """Serves placement in a thread. Returns its port."""
    from oslo_config import cfg  # type: ignore[import-not-found]
    from placement import conf, db_api, deploy  # type: ignore[import-not-found]
    from placement.db.sqlalchemy import migration  # type: ignore[import-not-found]
    from werkzeug.serving import make_server

    config = cfg.ConfigOpts()
    conf.register_opts(config)
    config.set_override("connection", f"sqlite:///{folder}/placement.db?timeout=60", group="placement_database")
    config.set_override("auth_strategy", "noauth2", group="api")
    config([], default_config_files=[])
    db_api.configure(config)
    migration.upgrade("head")
    server = make_server("127.0.0.1", 0, deploy.loadapp(config), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_port)


def _read_config(file: Path) -> None:
    from nova import config, objects

    config.parse_args(["nova", "--config-file", str(file)], default_config_files=[str(file)])
    objects.register_all()


def _create_tables(folder: Path) -> None:
    from nova import context, objects
    from nova.db import migration  # type: ignore[import-not-found]

    new = not (folder / "api.db").exists()
    migration.db_sync(database="api")
    admin = context.get_admin_context()
    if not new:
        return
    cells = {objects.CellMapping.CELL0_UUID: "cell0", "11111111-1111-4111-8111-111111111111": "cell1"}
    for uuid, name in cells.items():
        url = f"sqlite:///{folder}/{name}.db?timeout=60"
        cell = objects.CellMapping(
            context=admin, uuid=uuid, name=name, transport_url="fake:///", database_connection=url
        )
        cell.create()
        if name != "cell0":
            shutil.copy(folder / "cell0.db", folder / f"{name}.db")  # the same tables; to make them takes long
            continue
        with context.target_cell(admin, cell) as inside:
            migration.db_sync(database="main", context=inside)
    for number, (name, memory) in enumerate({"m1.tiny": 512, "m1.small": 2048}.items(), 1):
        objects.Flavor(
            context=admin,
            **{"flavorid": str(number), "name": name, "memory_mb": memory, "vcpus": 1, "root_gb": 1},
            **{"ephemeral_gb": 0, "swap": 0, "rxtx_factor": 1.0, "disabled": False, "is_public": True},
        ).create()


def _use_fixtures() -> None:
    """Nova's own test fixtures: images without Glance, and one writer at a time, as SQLite wants it."""
    import fixtures  # type: ignore[import-not-found]
    from nova.tests.fixtures.glance import GlanceFixture  # type: ignore[import-not-found]
    from nova.tests.fixtures.nova import DatabaseWriteLock  # type: ignore[import-not-found]

    class Test(fixtures.Fixture):  # type: ignore[misc]
        def stub_out(self, name: str, value: Any) -> None:
            self.useFixture(fixtures.MonkeyPatch(name, value))

    test = Test()
    test.setUp()
    test.useFixture(GlanceFixture(test))
    test.useFixture(DatabaseWriteLock())


def _keep_servers(folder: Path) -> None:
    """Lets the fake hypervisor have its node and its servers again after a restart, as a real one has them."""
    from nova.virt import fake, node  # type: ignore[import-not-found]

    fake.uuids.node_tests = NODE
    if not (folder / "compute_id").exists():
        node.write_local_node_uuid(NODE)
    init_host = fake.FakeDriver.init_host

    def remember(driver: Any, host: str) -> None:
        init_host(driver, host)
        with closing(sqlite3.connect(f"file:{folder}/cell1.db?mode=ro", uri=True)) as rows:
            query = (
                "SELECT id, uuid, power_state FROM instances WHERE deleted = 0 AND vm_state IN ('active', 'stopped')"
            )
            for number, uuid, state in rows.execute(query):
                driver.instances[uuid] = fake.FakeInstance(f"instance-{number:08x}", state, uuid)

    fake.FakeDriver.init_host = remember


def _wait_while_told(file: Path) -> None:
    """Lets the fake hypervisor build and stop no server while there is such a file: a test may kill it meanwhile."""
    from nova.virt import fake

    def delayed(work: Any) -> Any:
        def wait_and_work(*args: Any, **kwargs: Any) -> Any:
            while file.exists():
                time.sleep(0.05)
            return work(*args, **kwargs)

        return wait_and_work

    fake.FakeDriver.spawn = delayed(fake.FakeDriver.spawn)
    fake.FakeDriver.power_off = delayed(fake.FakeDriver.power_off)


def _start_services() -> None:
    from nova import context, service
    from nova.compute import rpcapi as compute  # type: ignore[import-not-found]
    from nova.conductor import rpcapi as conductor  # type: ignore[import-not-found]
    from nova.scheduler import rpcapi as scheduler  # type: ignore[import-not-found]

    service.Service.create(binary="nova-conductor", topic=conductor.RPC_TOPIC).start()
    service.Service.create(binary="nova-scheduler", topic=scheduler.RPC_TOPIC).start()
    service.Service.create(binary="nova-compute", topic=compute.RPC_TOPIC, topic_alt=compute.RPC_TOPIC_ALT).start()
    from nova.objects import host_mapping  # type: ignore[import-not-found]

    host_mapping.discover_hosts(context.get_admin_context())


if __name__ == "__main__":
    main()
