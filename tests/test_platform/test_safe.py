"""What is safe without any setting: the data folder, the worker's memory, the HTTP API's host, the installation."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from client.actions import ActionClient
from client.documents import UnreadableDocument, read_document
from domain.errors import Refused
from domain.model import Request
from providers.aws.connection import AwsCredentialsSource
from providers.aws.credentials import check_prerequisites
from tests.patience import PATIENCE
from tests.test_platform.site import ROOT
from workers import embedded
from workers.crm import platform_file
from workers.datafolder import secure_data_folder
from workers.process import run_stack
from workers.settings import WorkerSettings


def ask_http(server: embedded.EmbeddedServer, host: str, origin: str = "") -> int:
    """Starts a workflow by Temporal's HTTP API, as a web page could. Returns the status."""
    url = f"http://127.0.0.1:{server.http.rpartition(':')[2]}/api/v1/namespaces/default/workflows/web-page"
    body = {"workflowType": {"name": "DeployPart"}, "taskQueue": {"name": "actions"}}
    headers = {"Host": host, "Content-Type": "text/plain", **({"Origin": origin} if origin else {})}
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers, method="POST")
    try:
        return int(urllib.request.urlopen(request, timeout=PATIENCE).status)
    except urllib.error.HTTPError as error:
        return error.code


async def test_a_web_page_cannot_use_the_http_api(tmp_path: Path) -> None:
    server = await embedded.start_server(tmp_path)
    try:
        host_and_port = server.http.removeprefix("http://")
        port = host_and_port.partition(":")[2]
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", "evil.example", f"evil.example:{port}"):
            assert await asyncio.to_thread(ask_http, server, host, "https://evil.example") == 403, host
        assert await asyncio.to_thread(ask_http, server, host_and_port) == 200
        other = await embedded.start_server(tmp_path / "other")
        await other.stop_server()
        assert other.http.rpartition(":")[0] != server.http.rpartition(":")[0]
    finally:
        await server.stop_server()


async def test_nobody_else_can_read_what_a_stack_writes(tmp_path: Path) -> None:
    home, before = tmp_path / "home", os.umask(0o022)
    try:
        async with run_stack(WorkerSettings(home=home, simulated_latency=0)):
            found = {path: stat.S_IMODE(path.lstat().st_mode) for path in (home, *home.rglob("*"))}
    finally:
        os.umask(before)
    assert len(found) > 5
    assert {path: oct(mode) for path, mode in found.items() if mode & 0o077} == {}


@pytest.mark.parametrize(("name", "mode"), [("", 0o755), ("", 0o770), ("inventory.db", 0o644), ("archive", 0o755)])
def test_a_loose_data_folder_is_refused_with_the_command_that_closes_it(tmp_path: Path, name: str, mode: int) -> None:
    home = tmp_path / "home"
    (home / "archive").mkdir(parents=True)
    (home / "inventory.db").touch()
    (home / name).chmod(mode)
    with pytest.raises(Refused, match="others may use") as refused:
        secure_data_folder(home)
    subprocess.run(refused.value.hint.removeprefix("close it: ").split(), check=True)
    secure_data_folder(home)


def test_a_worker_cannot_be_read_by_another_process_of_its_user(tmp_path: Path) -> None:
    """As root one can read everything, so another user tries: first his own process, then one that is protected."""
    if os.geteuid() != 0:
        pytest.skip("needs two processes of another user")
    script = (
        "import os, subprocess, sys\n"
        "import ctypes\n"
        "if sys.argv[1] == 'yes': ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
        "command = ['/bin/cat', f'/proc/{os.getpid()}/environ']\n"
        "print(subprocess.run(command, capture_output=True).returncode)\n"
    )
    assert "PR_SET_DUMPABLE = 4" in (ROOT / "workers" / "datafolder.py").read_text()
    for protected, code in (("no", "0"), ("yes", "1")):
        words = ["/usr/bin/python3", "-I", "-c", script, protected]
        ran = subprocess.run(words, capture_output=True, text=True, cwd="/", user=65534, group=65534)
        assert ran.stdout.strip() == code, (protected, ran.stderr)


async def test_a_running_stack_is_not_dumpable(tmp_path: Path) -> None:
    async with run_stack(WorkerSettings(home=tmp_path / "home", simulated_latency=0)):
        import ctypes

        get_dumpable = 3
        assert ctypes.CDLL(None).prctl(get_dumpable, 0, 0, 0, 0) == 0


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_policy_that_others_may_change_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("{}")
    file.chmod(mode)
    with pytest.raises(UnreadableDocument, match="can be changed by others: chmod go-w"):
        read_document(file)
    file.chmod(0o644)
    assert read_document(file) == {}


def test_credentials_that_others_may_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    file.chmod(0o640)
    source = AwsCredentialsSource.model_validate({"source": "file", "path": str(file)})
    with pytest.raises(Refused, match="can be used by others"):
        check_prerequisites(source)
    file.chmod(0o600)
    check_prerequisites(source)


def test_two_organizations_never_share_a_token_file() -> None:
    one, other = (platform_file(Path("h"), path) for path in ("org:a-b:cloudlet:c", "org:a:cloudlet:b-c"))
    assert one != other


def test_the_installation_stops_at_a_wrong_hash(tmp_path: Path) -> None:
    """uv refuses a package whose hash is not the locked one; then nothing is installed, by pip either."""
    (tmp_path / "bin").mkdir()
    for name, text in {
        "uv": "#!/bin/sh\necho 'hash mismatch for package' >&2\nexit 1\n",
        "pip": "#!/bin/sh\ntouch pip-was-asked\n",
    }.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o700)
    (tmp_path / "run.py").write_text((ROOT / "run.py").read_text())
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    words = [sys.executable, str(tmp_path / "run.py"), "--help"]
    ran = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "could not be installed as uv.lock has them" in ran.stderr
    assert not (tmp_path / ".venv").exists()
    assert not (tmp_path / "pip-was-asked").exists()


def test_uv_itself_comes_with_hashes() -> None:
    lines = (ROOT / "deploy" / "uv.txt").read_text().split("\n")
    assert lines[0].startswith("uv==")
    assert sum("--hash=sha256:" in line for line in lines) > 10
    assert "--require-hashes" in (ROOT / "run.py").read_text()
    assert "--require-hashes" in (ROOT / "Dockerfile").read_text()


@pytest.mark.skipif(not shutil.which("curl"), reason="the page's second example is a curl")
async def test_the_signals_of_the_docs_work_as_typed(tmp_path: Path) -> None:
    page = (ROOT / "docs/temporal.md").read_text().partition("\n## Signals\n")[2].partition("\n## ")[0]
    examples = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    assert [example.split()[0] for example in examples] == ["temporal", "HTTP=$(sed"]
    spec = yaml.safe_load((ROOT / "examples/mci-hold.yaml").read_text())
    path = "ns:default:mci:launch"
    async with run_stack(WorkerSettings(home=tmp_path / ".ratchet", simulated_latency=0)) as running:
        asking = ActionClient(running.client)
        temporal = Path(embedded.find_temporal_binary()).parent
        environ = {"PATH": f"{temporal}:{os.environ['PATH']}", "TEMPORAL_ADDRESS": running.address}
        for example in examples:
            ticket = await asking.request_action(Request(path=path, action="create", spec=spec))
            async with asyncio.timeout(PATIENCE):
                while (await asking.read_object(path)).status != "Prepared":
                    await asyncio.sleep(0.05)
            typed = await asyncio.create_subprocess_shell(f"set -e\n{example}", cwd=tmp_path, env=environ)
            assert await typed.wait() == 0
            assert (await asking.wait_for_outcome(path, ticket.run)).status.startswith("Running")
            deleted = await asking.request_action(Request(path=path, action="delete"))
            await asking.wait_for_outcome(path, deleted.run)
