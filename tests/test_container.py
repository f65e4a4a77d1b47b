"""Container file, compose file and systemd unit: lint, and agreement with Toolyard's settings."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml
from tests.conftest import NODE, ROOT, ProgramStarter

from toolyard.config import SETTINGS, load_settings
from toolyard.web.http_server import connection_limits
from toolyard.web.middleware.request_guard import AllowedHosts, HostHeader

DOCKERFILE, COMPOSE = ROOT / "Dockerfile", ROOT / "compose.yaml"
NOT_SETTINGS = {"TOOLYARD_DATA_DIR"}


def lint(*words: object) -> str:
    result = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=99, cwd=ROOT
    )
    return "" if result.returncode == 0 else result.stdout + result.stderr


def test_the_container_file_has_nothing_that_a_linter_minds() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert hadolint is not None
    assert lint(hadolint, DOCKERFILE) == ""


def test_the_compose_file_has_nothing_that_a_linter_minds() -> None:
    assert lint(NODE / "dclint", COMPOSE) == ""


def test_every_variable_in_them_is_a_setting() -> None:
    variables = {setting.variable for setting in SETTINGS} | NOT_SETTINGS
    matches = set(re.findall(r"TOOLYARD_[A-Z_]+", DOCKERFILE.read_text() + COMPOSE.read_text()))
    assert matches - variables == set()


def test_everything_that_is_copied_into_the_image_is_there() -> None:
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert lines
    included_paths = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    ]
    for line in lines:
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert source in included_paths, f".dockerignore keeps {source} from the build"


@pytest.mark.parametrize("name", ["localhost:8420", "127.0.0.1:8420", "[::1]:8420"])
def test_a_port_that_is_published_on_this_machine_is_answered(name: str) -> None:
    env = dict(re.findall(r"(TOOLYARD_[A-Z_]+)=(\S+)", DOCKERFILE.read_text()))
    host = HostHeader.parse(name)
    assert host is not None
    # The container engine forwards to the container's address in its own network.
    assert AllowedHosts(load_settings("/data", env=env)).is_allowed(host, "172.17.0.2")


def test_the_health_check_asks_a_server_that_runs_as_the_image_runs_it(
    tmp_path: Path, start_program: ProgramStarter
) -> None:
    text = DOCKERFILE.read_text()
    env = dict(re.findall(r"(TOOLYARD_[A-Z_]+)=(\S+)", text))
    check = yaml.safe_load(text[text.index("CMD [") + 4 :].splitlines()[0])
    env |= {"TOOLYARD_DATA_DIR": str(tmp_path), "TOOLYARD_HOST": "127.0.0.1", "TOOLYARD_PORT": "{port}"}
    program = start_program(sys.executable, "-m", "toolyard", "serve", **env)
    # It listens before the app is loaded, and the check has a short timeout.
    urllib.request.urlopen(f"{program.url}/healthz", timeout=60).close()
    # A busy machine may need longer.
    slow = [word.replace("timeout=2", "timeout=25") for word in check[1:]]
    words = [sys.executable, *(word.replace("8420", str(program.port)) for word in slow)]
    assert subprocess.run(words, timeout=30).returncode == 0
    program.stop()
    assert subprocess.run(words, timeout=30, stderr=subprocess.DEVNULL).returncode != 0


def test_everything_that_pip_installs_in_the_image_is_pinned_by_hash() -> None:
    commands = re.findall(r"pip (?:install|wheel) (.+?)(?: \\)?$", DOCKERFILE.read_text(), re.MULTILINE)
    assert len(commands) == 5
    for words in commands:
        ours = "--no-deps" in words and ("--no-build-isolation" in words or words.endswith(".whl"))
        assert "--require-hashes" in words or ours, words


def test_the_base_images_can_be_given_by_digest() -> None:
    before, *stages = re.split(r"^FROM ", DOCKERFILE.read_text(), flags=re.MULTILINE)
    assert re.search(r"^ARG PYTHON_IMAGE=\S+$", before, re.MULTILINE)
    # This would fetch the program that reads the file, by a tag.
    assert "syntax=" not in before
    assert {each.split()[0] for each in stages} == {"${PYTHON_IMAGE}"}
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert services["database"]["image"].startswith("${POSTGRES_IMAGE:-")
    assert services["toolyard"]["build"]["args"]["PYTHON_IMAGE"].startswith("${PYTHON_IMAGE:-")


def test_the_container_writes_to_its_data_alone_and_has_limits() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    ours = services["toolyard"]
    assert ours["read_only"] is True
    assert ours["tmpfs"] == ["/tmp"]
    assert ours["cap_drop"] == ["ALL"]
    # npx and uvx keep their caches below the home directory.
    assert re.search(r"HOME=/data/\w+", DOCKERFILE.read_text())
    assert "HOME" not in ours["environment"]
    for service in services.values():
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["mem_limit"]
        assert service["pids_limit"] > 0


def test_no_other_program_keeps_the_environment_of_the_container() -> None:
    """An init program would expose the environment to every server in /proc/1/environ."""
    assert 'ENTRYPOINT ["toolyard"]' in DOCKERFILE.read_text()


def test_the_image_brings_the_programs_that_start_servers() -> None:
    text = DOCKERFILE.read_text()
    assert "nodejs npm" in text
    assert "COPY --from=build /opt/uv/bin/uv /opt/uv/bin/uvx /usr/local/bin/" in text


def test_nothing_in_the_image_is_tied_to_one_architecture() -> None:
    assert not re.search(r"amd64|x86_64|arm64|aarch64|--platform", DOCKERFILE.read_text())
    for name in ("run", "build", "uv"):
        text = (ROOT / f"requirements/{name}.txt").read_text()
        assert "platform_machine ==" not in text


# The systemd unit in the documentation.


def unit_text() -> str:
    page = (ROOT / "docs/deploying.md").read_text("utf-8")
    match = re.search(r"```ini\n(.+?)```", page, re.DOTALL)
    assert match is not None
    return match[1]


def unit_values(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit_text(), re.MULTILINE)


def test_the_service_may_raise_its_limit_of_files_as_far_as_toolyard_does() -> None:
    """The soft limit is for its children, some of which use select()."""
    assert unit_values("LimitNOFILE") == [f"1024:{connection_limits.MAX_DESCRIPTORS}"]


def test_the_service_keeps_its_data_and_secrets_to_itself() -> None:
    (folder,) = unit_values("StateDirectory")
    assert f"TOOLYARD_DATA_DIR=/var/lib/{folder}" in unit_values("Environment")
    assert unit_values("StateDirectoryMode") == ["0700"]
    assert unit_values("UMask") == ["0077"]
    assert unit_values("User") not in ([], ["root"])
    assert unit_values("CapabilityBoundingSet") == [""]
    assert unit_values("ProtectSystem") == ["strict"]
    kernel = ("ProtectControlGroups", "ProtectKernelLogs", "LockPersonality", "RestrictRealtime")
    kernel += ("PrivateDevices", "ProtectClock", "ProtectHome", "RemoveIPC")
    for name in ("NoNewPrivileges", "PrivateTmp", "RestrictSUIDSGID", *kernel):
        assert unit_values(name) == ["yes"], name
    assert unit_values("RestrictAddressFamilies") == ["AF_INET AF_INET6 AF_UNIX AF_NETLINK"]
    assert unit_values("SystemCallArchitectures") == ["native"]
    matches = set(re.findall(r"TOOLYARD_[A-Z_]+", unit_text()))
    assert matches <= {setting.variable for setting in SETTINGS} | NOT_SETTINGS
    # Environment= is readable for every user of the machine.
    secrets = {setting.variable for setting in SETTINGS if setting.secret}
    assert secrets
    assert not matches & secrets


def test_systemd_accepts_the_service(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / "toolyard.service"
    unit.write_text(unit_text().replace("/opt/toolyard/.venv/bin/toolyard", "/bin/sh"), "utf-8")
    assert lint(analyze, "verify", "--man=no", unit) == ""
