"""Accounts, cloudspaces, machines, disks, images, nodes."""

from __future__ import annotations

from tests.hints.story import HintStory

SPACE = ("node create {n}-node", "account create {n}", "cloudspace create {n}/dev")
IMAGE = "image create {n}-os"
MACHINE = "machine create {n}/dev/m --image {n}-os"

STORIES = (
    HintStory("there is no such …: …", "cloudspace create {n}/dev"),
    HintStory("there is no image …", MACHINE, SPACE),
    HintStory("… is …", MACHINE, (*SPACE, IMAGE, "image disable {n}-os")),
    HintStory("there is no node …", f"{MACHINE} --node {{n}}-x", (*SPACE, IMAGE), shows="{n}-node"),
    HintStory("there is no such disk: …", "machine attach-disk {n}/dev/m --disk d1", (*SPACE, IMAGE, MACHINE)),
    HintStory(
        "there is no such machine: …",
        "disk attach {n}/d1 --machine dev/m",
        (*SPACE, IMAGE, "disk create {n}/d1"),
        chosen={"IMAGE": "{n}-os"},
    ),
    HintStory(
        "disk … exists already, under …",
        "machine add-disk {n}/dev/m --disk d1",
        (*SPACE, IMAGE, MACHINE, "disk create {n}/d1"),
        again="machine detach-disk {n}/dev/m --disk d1",
    ),
    HintStory(
        "disk … is attached to …, not to …",
        "machine detach-disk {n}/dev/m --disk d1",
        (
            *SPACE,
            IMAGE,
            MACHINE,
            "machine create {n}/dev/other --image {n}-os",
            "disk create {n}/d1",
            "disk attach {n}/d1 --machine dev/other",
        ),
        again="machine attach-disk {n}/dev/m --disk d1",
    ),
    HintStory(
        "… is not possible: disk … is ……",
        "machine detach-disk {n}/dev/m --disk d1",
        (*SPACE, IMAGE, MACHINE, "disk create {n}/d1"),
        shows="CREATED",
    ),
    HintStory(
        "… is not possible: machine … is …",
        "disk attach {n}/d1 --machine dev/m",
        (*SPACE, IMAGE, MACHINE, "disk create {n}/d1", "machine stop {n}/dev/m", "machine delete {n}/dev/m"),
    ),
    HintStory(
        "… of … is not possible: … is …",
        MACHINE,
        (*SPACE, IMAGE, "cloudspace disable {n}/dev"),
        shows="DISABLED",
    ),
    HintStory(
        "machine … has no snapshot …",
        "machine rollback {n}/dev/m --snapshot s",
        (*SPACE, IMAGE, MACHINE, "machine snapshot {n}/dev/m --snapshot other"),
        shows="other",
    ),
    HintStory(
        "machine … has a snapshot … already",
        "machine snapshot {n}/dev/m --snapshot s",
        (*SPACE, IMAGE, MACHINE, "machine snapshot {n}/dev/m --snapshot s"),
    ),
    HintStory(
        "the snapshot … is of … when it was halted: it has no memory to go on with",
        "machine rollback {n}/dev/m --snapshot s",
        (
            *SPACE,
            IMAGE,
            MACHINE,
            "machine stop {n}/dev/m",
            "machine snapshot {n}/dev/m --snapshot s",
            "machine start {n}/dev/m",
        ),
    ),
    HintStory(
        "the snapshot … is of … with other disks: …",
        "machine rollback {n}/dev/m --snapshot s",
        (
            *SPACE,
            IMAGE,
            MACHINE,
            "machine snapshot {n}/dev/m --snapshot s",
            "machine add-disk {n}/dev/m --disk d1",
        ),
        shows="snapshots",
    ),
)
_NODES = "nodes are shared by all tests; tests/test_machines/test_refusals.py tries it on a site of its own"
UNTRIED = {
    "unknown object type …": "of the old API, whose client knows the types",
    "the machine is on node … already": _NODES,
    "node … is …": _NODES,
    "… is not possible: there is no other enabled node": _NODES,
    "no other node has room for … of … of node …: …": _NODES,
    "machine … has … snapshots, which is the most": "tests/test_machines/test_snapshots.py takes as many",
}
