"""Leases and hosts."""

from __future__ import annotations

from tests.hints.story import HintStory

HOST = "host add {n}/h1"
LEASE = "lease create {n}/a --pool {n} --hosts 1"
LATER = f"{LEASE} --start +1h --end +2h"

STORIES = (
    HintStory("pool … has no hosts", f"{LEASE} --end +1h"),
    HintStory(
        "not enough …: … wanted, room for … in pool … from … to …; the pool has ……",
        "lease create {n}/b --pool {n} --hosts 1 --end +1h",
        (HOST, f"{LEASE} --end +1h"),
        shows="h1    UP",
    ),
    HintStory(
        "not enough hosts: … wanted, room for … in pool …: the pool has ……",
        "lease create {n}/a --pool {n} --hosts 2 --end +1h",
        (HOST,),
    ),
    HintStory(
        "the start … is in the past: now is …",
        f"{LEASE} --start 2020-01-01 --end +1h",
        (HOST,),
        f"{LEASE} --start now --end +1h",
    ),
    HintStory(
        "the end … is in the past: now is …",
        "lease update {n}/a --end 2020-01-01",
        (HOST, f"{LEASE} --end +2h", "until {n}/a ACTIVE"),
        "lease end {n}/a --yes",
    ),
    HintStory("… … is too far away: the limit is …", f"{LEASE} --end 9999-12-31", (HOST,), f"{LEASE} --end +1h"),
    HintStory("bad … …", f"{LEASE} --end someday", (HOST,), f"{LEASE} --end +2h"),
    HintStory(
        "the lease …: start …, end …", f"{LEASE} --start +2h --end +1h", (HOST,), f"{LEASE} --start +1h --end +2h"
    ),
    HintStory("the lease would last …: the limit is …", f"{LEASE} --end +367d", (HOST,), f"{LEASE} --end +300d"),
    HintStory(
        "before_end … is outside the lease, which lasts from … to …",
        f"{LEASE} --end +2h --before-end +3h",
        (HOST,),
        f"{LEASE} --end +2h --before-end +1h",
    ),
    HintStory("… comes at …: …", "lease start {n}/a", (HOST, LATER), again="until {n}/a ACTIVE"),
    HintStory(
        "the lease started at …: its start cannot change any more",
        "lease update {n}/a --start +1h",
        (HOST, f"{LEASE} --end +2h", "until {n}/a ACTIVE"),
        "lease update {n}/a --end +3h",
    ),
    HintStory(
        "the lease has ended: only its name can change",
        "lease update {n}/a --end +3h",
        (HOST, f"{LEASE} --end +2h", "until {n}/a ACTIVE", "lease end {n}/a --yes"),
        "lease create {n}/b --pool {n} --hosts 1 --end +3h",
    ),
    HintStory("… is booked by ……", "host remove {n}/h1 --yes", (HOST, LATER, "host add {n}/h2")),
    HintStory("there is no such lease: …", "lease show {n}/x", (HOST, LATER), shows="{n}/a"),
    HintStory(
        "the calendar ends before it starts",
        "lease calendar --pool {n} --start +2h --end +1h",
        (HOST,),
        "lease calendar --pool {n} --start +1h --end +2h",
    ),
)
UNTRIED: dict[str, str] = {}
