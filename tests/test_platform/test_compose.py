"""docker-compose.yml and the Dockerfile agree with the code: names, ports, variables, commands, settings."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from starter.app import build_cli_app
from tests.cases import every_case
from tests.test_platform.site import ROOT
from workers import embedded
from workers.settings import WorkerSettings

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()
OURS = {name: service for name, service in SERVICES.items() if service.get("build")}
JOBS = {"temporal-schema", "temporal-namespace", "migrate", "setup", "starter"}
ONLY_FOR_TESTS = {"frontend.WorkflowTimeSkippingEnabled"}
ONLY_ON_A_SERVER = {"activity.enableStandalone", "history.enableChasm"}  # the embedded server has them on by itself


def test_the_images_of_others_stand_in_one_file_with_what_each_is_for() -> None:
    lines = [line for line in (ROOT / "deploy" / "images.txt").read_text().splitlines() if not line.startswith("#")]
    named = {image: words for image, _, words in (line.partition("  ") for line in lines)}
    for image, words in named.items():
        assert re.fullmatch(r"[a-z/-]+:\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?", image), "a version, and maybe a digest"
        assert words.strip().startswith("# "), f"{image}: say where it is used, and what for"
    from_lines = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    services = {service["image"] for service in SERVICES.values() if service not in OURS.values()}
    assert {*from_lines, *services} == set(named)


def test_our_image_has_our_version() -> None:
    assert {service["image"] for service in OURS.values()} == {f"ratchet:{PROJECT['project']['version']}"}


@every_case("name", SERVICES)
def test_ports_are_open_on_this_machine_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)


def test_no_port_is_given_twice() -> None:
    ports = [port.split(":")[1] for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == len(set(ports))


@every_case("name", SERVICES)
def test_everybody_waits_for_what_there_is_and_can_be_waited_for(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        if how["condition"] == "service_healthy":
            assert SERVICES[other]["healthcheck"]["test"]
        else:
            assert (how["condition"], other in JOBS) == ("service_completed_successfully", True)


def test_what_stays_is_restarted_and_watched() -> None:
    for name in SERVICES.keys() - JOBS - {"temporal-ui"}:
        assert (SERVICES[name]["restart"], "healthcheck" in SERVICES[name]) == ("unless-stopped", True), name


def test_data_is_in_named_volumes_and_the_rest_is_read_only_from_here() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source, *_, mode = volume.split(":")
            if source not in COMPOSE["volumes"]:
                assert ((ROOT / source).is_file(), mode) == (True, "ro"), volume


@pytest.mark.parametrize("name", OURS)
def test_our_variables_are_settings_that_exist_and_fit(name: str) -> None:
    variables = OURS[name]["environment"]
    for variable, value in variables.items():
        if variable.startswith("RATCHET_"):
            field = WorkerSettings.model_fields[variable.removeprefix("RATCHET_").lower()]
            TypeAdapter(field.rebuild_annotation()).validate_python(str(value))
        else:
            assert variable in {"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "PGPASSWORD"}


@every_case("name", SERVICES)
def test_hosts_are_services_and_their_ports_are_served(name: str) -> None:
    served = {"postgres": "5432", "temporal": "7233"}
    environment = SERVICES[name].get("environment", {})
    hosts = [str(environment[key]) for key in ("TEMPORAL_ADDRESS", "POSTGRES_SEEDS") if key in environment]
    hosts += re.findall(r"@([\w-]+:\d+)/", " ".join(map(str, environment.values())))
    for host in hosts:
        service, _, port = host.partition(":")
        assert service in SERVICES
        assert not port or served[service] == port


def test_no_password_is_written_down() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    for variable, value in re.findall(r"(\w*(?:PASSWORD|PWD))\s*: (.+)", text):
        assert value == "${POSTGRES_PASSWORD:?put POSTGRES_PASSWORD into .env}", variable
    assert ".env" in (ROOT / ".gitignore").read_text().split()


@pytest.mark.parametrize("name", OURS)
def test_our_commands_exist_with_their_options(name: str) -> None:
    build_cli_app().parse_args(OURS[name]["command"], print_error=False, exit_on_error=False)


def test_a_worker_is_given_longer_to_stop_than_it_takes() -> None:
    for name in ("worker-1", "worker-2"):
        drain = float(SERVICES[name]["environment"]["RATCHET_DRAIN"])
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) >= drain + 10


def test_the_health_check_asks_where_the_metrics_are_served() -> None:
    worker = SERVICES["worker-1"]
    port = worker["environment"]["RATCHET_METRICS"].rpartition(":")[2]
    assert f"http://127.0.0.1:{port}/metrics" in worker["healthcheck"]["test"][-1]
    assert worker["ports"] == [f"127.0.0.1:{port}:{port}"]
    compile(worker["healthcheck"]["test"][-1], "health check", "exec")


def test_the_server_is_tuned_as_the_embedded_one_is() -> None:
    config = yaml.safe_load((ROOT / "deploy" / "dynamicconfig.yaml").read_text())
    found = {key: values[0]["value"] for key, values in config.items()}
    wanted = {key: yaml.safe_load(value) for key, _, value in (line.partition("=") for line in embedded.DYNAMIC_CONFIG)}
    assert {key: found.get(key) for key in wanted.keys() - ONLY_FOR_TESTS} == {
        key: value for key, value in wanted.items() if key not in ONLY_FOR_TESTS
    }
    assert found.keys() - wanted.keys() == ONLY_ON_A_SERVER
    mounted = SERVICES["temporal"]["volumes"][0].split(":")[1]
    assert mounted == f"/etc/temporal/{SERVICES['temporal']['environment']['DYNAMIC_CONFIG_FILE_PATH']}"


def test_the_namespace_keeps_what_the_embedded_one_keeps() -> None:
    script = (ROOT / "deploy" / "temporal-namespace.sh").read_text()
    assert f"TEMPORAL_RETENTION:-{embedded.HISTORY_RETENTION_DAYS}d" in script
    assert f"TEMPORAL_NAMESPACE:-{OURS['setup']['environment']['TEMPORAL_NAMESPACE']}" in script


@pytest.mark.parametrize("script", ["temporal-schema.sh", "temporal-namespace.sh"])
def test_the_scripts_can_be_read_by_a_shell(script: str) -> None:
    subprocess.run(["sh", "-n", ROOT / "deploy" / script], check=True)


def run_script(script: str, folder: Path, **programs: str) -> subprocess.CompletedProcess[str]:
    """Runs a script with programs of our own in place of Temporal's and nc."""
    for name, text in programs.items():
        program = folder / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    variables = {"PATH": f"{folder}:{os.environ['PATH']}", "WAIT_SECONDS": "1", "SQL_USER": "ratchet"}
    return subprocess.run(["sh", ROOT / "deploy" / script], env=variables, capture_output=True, text=True)


def test_the_namespace_is_made_once_the_server_is_healthy_and_a_sick_server_is_told(tmp_path: Path) -> None:
    sick = run_script("temporal-namespace.sh", tmp_path, temporal='echo "connection refused" >&2; exit 1')
    assert sick.returncode == 1
    assert "is not healthy" in sick.stderr
    assert "connection refused" in sick.stderr
    starting = 'echo x >> "$0.asked"; [ "$(wc -l < "$0.asked")" -gt 1 ]'
    made = run_script("temporal-namespace.sh", tmp_path, temporal=f'case "$*" in *health*) {starting};; esac')
    assert (made.returncode, "keeps closed workflows for 90d" in made.stdout) == (0, True), made.stderr


def test_the_schema_script_passes_over_what_exists_and_nothing_else(tmp_path: Path) -> None:
    exists = 'case "$*" in *"create"*|*setup-schema*) echo "pq: database already exists" >&2; exit 1;; esac'
    assert run_script("temporal-schema.sh", tmp_path, temporal_sql_tool=exists, nc="exit 0").returncode == 0
    denied = 'case "$*" in *"create"*) echo "pq: permission denied" >&2; exit 1;; esac'
    failed = run_script("temporal-schema.sh", tmp_path, temporal_sql_tool=denied, nc="exit 0")
    assert (failed.returncode, "permission denied" in failed.stderr) == (1, True)
    away = run_script("temporal-schema.sh", tmp_path, temporal_sql_tool="exit 0", nc="exit 1")
    assert (away.returncode, "no PostgreSQL at postgres:5432" in away.stderr) == (1, True)


def test_the_image_has_every_layer_and_every_extra_that_it_needs() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    files = {word for words in copied for word in words.split()}
    assert set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= files
    assert all((ROOT / file).exists() for file in files)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {f"!{file}" for file in files} <= set(ignored)
    extras = set(re.findall(r"--extra (\w+)", DOCKERFILE))
    assert extras <= PROJECT["project"]["optional-dependencies"].keys()
    assert {"postgres", "encryption", "tracing"} <= extras


def test_the_image_runs_a_python_that_we_support_and_a_script_that_we_have() -> None:
    versions = set(re.findall(r"^FROM python:(\d+\.\d+)", DOCKERFILE, re.MULTILINE))
    assert versions == {PROJECT["project"]["requires-python"].removeprefix(">=")}
    assert '["starter"]' in DOCKERFILE
    assert "starter" in PROJECT["project"]["scripts"]
    assert "USER ratchet" in DOCKERFILE


def test_docker_compose_itself_can_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("this machine has no `docker compose`")
    monkeypatch.setenv("POSTGRES_PASSWORD", "for-this-test")
    read = subprocess.run([docker, "compose", "config", "--quiet"], cwd=ROOT, capture_output=True, text=True)
    assert read.returncode == 0, read.stderr
    monkeypatch.delenv("POSTGRES_PASSWORD")
    assert (
        "put POSTGRES_PASSWORD into .env"
        in subprocess.run([docker, "compose", "config", "--quiet"], cwd=ROOT, capture_output=True, text=True).stderr
    )


# The same for Kubernetes.

DOCUMENTS = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text()))
CONFIG, JOB, WORKERS, BUDGET = DOCUMENTS


def containers() -> list[dict[str, Any]]:
    pods = [each["spec"]["template"]["spec"] for each in (JOB, WORKERS)]
    return [container for pod in pods for container in (*pod.get("initContainers", ()), *pod["containers"])]


def test_on_kubernetes_the_image_is_ours_and_of_this_version() -> None:
    version = PROJECT["project"]["version"]
    assert {container["image"] for container in containers()} == {f"ratchet:{version}"}
    assert JOB["metadata"]["name"].endswith(version)


def test_no_manifest_lets_systems_run_programs() -> None:
    for file in ("docker-compose.yml", "Dockerfile", "deploy/kubernetes.yaml", "deploy/production.env"):
        text = (ROOT / file).read_text()
        served = re.findall(r"RATCHET_BACKENDS\W+([\w,]+)|--queues\W+([\w,-]+)", text)
        assert not [words for words in served if "process" in "".join(words)], file
        assert "RATCHET_PROGRAMS" not in text, file
    assert WorkerSettings.model_fields["backends"].default == ("simulated",)


def test_on_kubernetes_variables_are_settings() -> None:
    names = {
        *CONFIG["data"],
        *(variable["name"] for container in containers() for variable in container.get("env", [])),
    }
    known = {f"RATCHET_{name.upper()}" for name in WorkerSettings.model_fields}
    assert names - known == {"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"}
    for variable, value in CONFIG["data"].items():
        if variable in known:
            field = WorkerSettings.model_fields[variable.removeprefix("RATCHET_").lower()]
            TypeAdapter(field.rebuild_annotation()).validate_python(value)


def test_on_kubernetes_commands_exist() -> None:
    for container in containers():
        if "args" in container:
            build_cli_app().parse_args(container["args"], print_error=False, exit_on_error=False)


def test_on_kubernetes_a_worker_has_time_to_drain_and_is_asked_where_it_answers() -> None:
    pod = WORKERS["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > float(CONFIG["data"]["RATCHET_DRAIN"]) + 10
    port = pod["containers"][0]["ports"][0]
    assert CONFIG["data"]["RATCHET_METRICS"].endswith(f":{port['containerPort']}")
    probes = [pod["containers"][0][f"{probe}Probe"] for probe in ("startup", "readiness", "liveness")]
    assert {probe["httpGet"]["port"] for probe in probes} == {port["name"]}
    assert f"--uid {pod['securityContext']['runAsUser']}" in DOCKERFILE


def test_on_kubernetes_pods_are_restricted_and_one_worker_always_stays() -> None:
    """What the pod security standard *restricted* asks for."""
    for workload in (JOB, WORKERS):
        pod = workload["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod["initContainers"], *pod["containers"]):
            assert not container["securityContext"]["allowPrivilegeEscalation"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted <= {volume["name"] for volume in pod["volumes"]}
    assert BUDGET["spec"]["minAvailable"] == 1
    assert BUDGET["spec"]["selector"]["matchLabels"].items() <= WORKERS["spec"]["selector"]["matchLabels"].items()


def test_on_kubernetes_the_files_are_where_the_settings_look_for_them() -> None:
    (worker,) = WORKERS["spec"]["template"]["spec"]["containers"]
    (files,) = (mount["mountPath"] for mount in worker["volumeMounts"] if mount["name"] == "files")
    for variable in ("RATCHET_KEYS_FILE", "RATCHET_CONNECTIONS", "RATCHET_POLICY_FILE"):
        assert CONFIG["data"][variable].startswith(f"{files}/")


@pytest.mark.parametrize("unit", sorted(path.name for path in (ROOT / "deploy").glob("*.service")))
def test_a_systemd_unit_runs_a_command_that_exists_and_lets_it_drain(unit: str) -> None:
    text = (ROOT / "deploy" / unit).read_text()
    (command,) = re.findall(r"^ExecStart=\S+/starter (.+)$", text, re.MULTILINE)
    build_cli_app().parse_args(shlex.split(command), print_error=False, exit_on_error=False)
    assert "NoNewPrivileges=yes" in text
    if (verify := shutil.which("systemd-analyze")) is not None:
        ran = subprocess.run([verify, "verify", "--man=no", ROOT / "deploy" / unit], capture_output=True, text=True)
        wrong = [line for line in ran.stderr.splitlines() if unit in line and "not executable" not in line]
        assert not wrong
