"""A machine's life through libcloud's own `gig_g8` driver: `python g8_life.py URL TOKEN ACCOUNT_NUMBER`.

It runs as a program of its own, and prints a line of JSON for each step.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from importlib import import_module
from typing import Any

PATIENCE_SECONDS = 180.0  # as in tests/patience.py, which this program cannot import


def say(step: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"step": step, **facts}) + "\n")
    sys.stdout.flush()


def live(url: str, token: str, account: int) -> None:
    types = import_module("libcloud.compute.types")
    errors = import_module("libcloud.common.exceptions")
    driver_class: Any = import_module("libcloud.compute.providers").get_driver(types.Provider.GIG_G8)
    driver = driver_class(account, token, f"{url}/restmachine/cloudapi")

    network = driver.ex_create_network("dev")
    say("network", public=network.publicipaddress, cidr=network.cidr, listed=len(driver.ex_list_networks()))
    (image,) = [image for image in driver.list_images() if image.name.startswith("ubuntu")]
    size = next(size for size in driver.list_sizes() if size.name == "large")
    node = driver.create_node("db", image, network, "a database", size=size)
    say("create", state=node.state, ips=node.private_ips, vcpus=size.extra["vcpus"], ram=size.ram)
    small = driver.create_node("web", image, network, "", ex_create_attr={"memory": 700, "vcpus": 3})
    say("nodes", names=sorted(each.name for each in driver.list_nodes()), ips=[*node.private_ips, *small.private_ips])
    driver.stop_node(node)
    (stopped,) = [each for each in driver.list_nodes() if each.id == node.id]
    volume = driver.create_volume(20, "data", "its data")
    say("stop", state=stopped.state, volume=volume.size)
    driver.attach_volume(node, volume)
    (attached,) = driver.list_volumes()
    say("attach", node=attached.extra["node_id"] == int(node.id))

    starting = threading.Thread(target=driver.start_node, args=(node,))  # the caller made the hypervisor slow
    starting.start()
    other = driver_class(account, token, f"{url}/restmachine/cloudapi")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and "starting" not in [each.state for each in other.list_nodes(network)]:
        time.sleep(0.05)
    try:
        other.detach_volume(node, volume)
    except errors.BaseHTTPError as error:
        say("busy", code=error.code, message=str(error.message))
    starting.join()

    driver.reboot_node(node)
    driver.detach_volume(node, volume)
    driver.destroy_volume(volume)
    driver.destroy_node(node)
    driver.destroy_node(small)
    say("destroy", nodes=len(driver.list_nodes()), volumes=len(driver.list_volumes()))
    try:
        driver.start_node(node)
    except errors.BaseHTTPError as error:
        say("gone", code=error.code)
    driver.ex_destroy_network(network)
    say("end", networks=len(driver.ex_list_networks()))


if __name__ == "__main__":
    live(sys.argv[1], sys.argv[2], int(sys.argv[3]))
