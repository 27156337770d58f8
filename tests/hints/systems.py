"""Systems of services."""

from __future__ import annotations

from tests.hints.story import HintStory

SHOP = "name: shop\nservices: {web: {image: nginx}}\n"
FILES = {"web.yaml": "image: nginx\n"}

STORIES = (
    HintStory(
        "there is no such System: …",
        "system deploy {n} /web -f {dir}/web.yaml",
        shows="",
        again="system create {n}",
        files=FILES,
    ),
    HintStory(
        "there is no deploy …",
        "system rollback {n} d9",
        ("system create {n}", "system deploy {n} /web -f {dir}/web.yaml"),
        shows="d1",
        files=FILES,
    ),
    HintStory(
        "there is no …",
        "system deploy {n} /back/api -f {dir}/web.yaml",
        ("system create {n}",),
        shows="{n}",
        files=FILES,
    ),
)
UNTRIED = {
    "no worker serves the backend …: nothing was changed": "starts a worker: tests/test_systems/test_unserved.py",
    "deploy is not allowed for System under …": "only while it is deleted, or after that failed",
}
