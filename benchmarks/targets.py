"""What is compared, how is each started, and how much CPU has it used?"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

from tidegate.config import digest_of

MOCK_PORTS = (19101, 19102)
NGINX_PORT, AGAIN_PORT, BARE_PORT = 19110, 19111, 19114
TIDEGATE_PORT, PURE_PORT = 19112, 19115
ADMIN_PORTS = {TIDEGATE_PORT: 19113, PURE_PORT: 19116}
KEY = "tg-benchmark"
PROXY_CORE, LOAD_CORE = 0, 1

NGINX_CONF = """
worker_processes 1; daemon off; error_log {folder}/error.log warn; pid {folder}/nginx.pid;
events {{ worker_connections 8192; multi_accept on; }}
http {{
  access_log off; tcp_nodelay on; keepalive_requests 10000000; client_max_body_size 32m;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream engines {{ least_conn; server 127.0.0.1:{mocks[0]}; server 127.0.0.1:{mocks[1]}; keepalive 2048;
                      keepalive_requests 10000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{ proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection "";
                  proxy_set_header Authorization "Bearer upstream"; proxy_buffering off; }}
  }}
}}
"""

TIDEGATE_YAML = """
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin}"}}
limits: {{requests_per_minute: 1.0e+9, tokens_per_minute: 1.0e+12}}
tenants:
  bench:
    limits: {{requests_per_minute: 1.0e+9, tokens_per_minute: 1.0e+12}}
    keys:
      one: {{sha256: {digest}, limits: {{requests_per_minute: 1.0e+9, tokens_per_minute: 1.0e+12}}}}
pools:
  mock:
    gate: {{max_concurrency: 4096, kv_tokens: 100000000}}
    queue: {{max_requests: 4096}}
    replicas: [{{url: "http://127.0.0.1:{mocks[0]}"}}, {{url: "http://127.0.0.1:{mocks[1]}"}}]
"""


class Target:
    """A running proxy."""

    def __init__(self, name: str, port: int, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.port = port
        self.process = process

    def cpu_s(self) -> float:
        """User plus system seconds so far, of the process and its children."""
        return sum(_cpu_ns(pid) for pid in _family(self.process.pid)) / 1e9

    def rss_mb(self) -> float:
        """Resident memory of the process and its children."""
        pages = sum(
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in _family(self.process.pid)
        )
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(grandchild for child in children for grandchild in _family(int(child)))]


def _cpu_ns(pid: int) -> int:
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


@contextmanager
def targets(folder: Path, compiled: Path | None) -> Iterator[list[Target]]:
    """All proxies and the mock engines, up at once. `compiled` is where the compiled package is installed."""
    for tool in ("nginx", "wrk"):
        if shutil.which(tool) is None and not Path(f"/usr/sbin/{tool}").exists():
            raise SystemExit(f"{tool} is missing; install the Debian package of that name")
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    with ExitStack() as stack:
        mocks = [sys.executable, "-m", "benchmarks.mock", *map(str, MOCK_PORTS)]
        stack.enter_context(_running(mocks, LOAD_CORE, MOCK_PORTS[0], folder / "mock.log"))
        up = []
        for name, port in (("nginx", NGINX_PORT), ("nginx again", AGAIN_PORT)):
            home = folder / str(port)
            home.mkdir()
            conf = home / "nginx.conf"
            conf.write_text(NGINX_CONF.format(folder=home, port=port, mocks=MOCK_PORTS))
            command = [nginx, "-p", str(home), "-c", str(conf)]
            up.append(
                Target(name, port, stack.enter_context(_running(command, PROXY_CORE, port, home / "log")))
            )
        command = [sys.executable, "-m", "benchmarks.bare", str(BARE_PORT), *map(str, MOCK_PORTS)]
        process = stack.enter_context(_running(command, PROXY_CORE, BARE_PORT, folder / "bare.log"))
        up.append(Target("bare Python", BARE_PORT, process))
        if compiled is not None:
            up.append(stack.enter_context(_tidegate("tidegate", TIDEGATE_PORT, folder, compiled)))
        up.append(stack.enter_context(_tidegate("tidegate, pure Python", PURE_PORT, folder, None)))
        yield up


@contextmanager
def _tidegate(name: str, port: int, folder: Path, package: Path | None) -> Iterator[Target]:
    """A gateway with everything on; of the package that is installed there, else of the one in this tree."""
    yaml = folder / f"{port}.yaml"
    digest = digest_of(KEY.encode())
    yaml.write_text(TIDEGATE_YAML.format(port=port, admin=ADMIN_PORTS[port], mocks=MOCK_PORTS, digest=digest))
    command = [sys.executable, "-m", "tidegate", "serve", "--config", str(yaml)]
    path = {} if package is None else {"PYTHONPATH": str(package.resolve())}
    with _running(command, PROXY_CORE, port, folder / f"{port}.log", path) as process:
        _wait_ready(ADMIN_PORTS[port])
        yield Target(name, port, process)


@contextmanager
def _running(
    command: list[str], core: int, port: int, log: Path, more: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            env={**os.environ, **(more or {})},
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} did not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(admin_port: int) -> None:
    for _ in range(200):
        try:
            with urlopen(f"http://127.0.0.1:{admin_port}/readyz", timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("tidegate did not become ready")
