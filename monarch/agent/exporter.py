"""Exports the metrics of an agent: over HTTP on the loopback interface, and as a file.

prometheus-client renders them; it is imported only if they are wanted. Values are
read in the event loop, and rendered and sent by one thread, so that a slow reader or a
hanging file system delays nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socketserver
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from monarch import report as reports
from monarch.agent.live import Live
from monarch.agent.metric_samples import Histogram, Sample, samples, waits
from monarch.atomic_file import whole_file
from monarch.background import in_thread
from monarch.metrics import JOB_LABEL, PREFIX, Metric, metrics

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.core import CollectorRegistry
    from prometheus_client.core import Metric as Family

    from monarch.agent.setup import Setup

HOST: Final = "127.0.0.1"
PERIOD_S: Final = 15.0
"""How often the file is replaced."""
TIMEOUT_S: Final = 5.0
"""A slower reader is disconnected: others wait for it."""

log = logging.getLogger("monarch.agent")


def begin_export(live: Live, setup: Setup, warn: Callable[[str], None]) -> Exporter:
    """Begin to export the configured metrics.

    Args:
        warn: called with the reason of a failure; the job continues.
    """
    wanted, label, path = setup.config.metrics, live.stats().label, None
    if wanted.textfile is not None:
        path = reports.fill_template(wanted.textfile, label.job, label.node)
    exporter = Exporter(live, wanted.port, path, mode=0o666 & ~setup.umask)
    exporter.begin(warn)
    return exporter


class Exporter:
    """Exports the metrics of an agent until it is closed.

    Args:
        live: the source of the figures.
        textfile: the path of the file; None: no file.
        port: 0: any free one; None: no HTTP.
        mode: the permissions of the file.
    """

    def __init__(
        self, live: Live, port: int | None, textfile: Path | None, mode: int
    ) -> None:
        self._live = live
        self._port = port
        self._textfile = textfile
        self._mode = mode
        self._loop = asyncio.get_running_loop()
        self._server: WSGIServer | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Exporter port {self._port} file {self._textfile}>"

    def begin(self, warn: Callable[[str], None]) -> None:
        """Begin to export.

        Args:
            warn: called with the reason of a failure; the job continues.
        """
        self._task = asyncio.create_task(self._run(warn))

    async def close(self) -> None:
        """Stop exporting, and remove the file."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._live.metrics_url = ""
        if self._server is not None:
            in_thread(_end, self._server)
        if self._textfile is not None:
            with contextlib.suppress(TimeoutError):
                removed = in_thread(self._textfile.unlink, True)
                await asyncio.wait_for(removed, TIMEOUT_S)

    async def _run(self, warn: Callable[[str], None]) -> None:
        if self._port is not None:
            try:
                self._server = server = await in_thread(self._listen, self._port)
            except OSError as error:
                warn(f"metrics.port {self._port}: {error.strerror}; not exported there")
            else:
                in_thread(server.serve_forever)
                self._live.metrics_url = f"http://{HOST}:{server.server_port}/metrics"
        failed = False
        while self._textfile is not None:
            try:
                await in_thread(self._write, self._textfile)
            except OSError as error:
                if not failed:
                    warn(f"metrics.textfile {self._textfile}: {error.strerror}")
                failed = True
            await asyncio.sleep(PERIOD_S)

    def _listen(self, port: int) -> WSGIServer:
        from prometheus_client import make_wsgi_app

        return _make_server(port, make_wsgi_app(self._registry()))

    def _write(self, path: Path) -> None:
        from prometheus_client import generate_latest

        text = generate_latest(self._registry())
        with whole_file(path, mode=self._mode, durable=False) as file:
            file.write(text)

    def _registry(self) -> CollectorRegistry:
        from prometheus_client.core import CollectorRegistry

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return registry

    def collect(self) -> Iterator[Family]:
        """Yield all metrics with their values; called by a thread."""
        reading = asyncio.run_coroutine_threadsafe(self._read(), self._loop)
        values, histogram, job = reading.result(TIMEOUT_S)
        by_metric: dict[str, list[Sample]] = {}
        for sample in values:
            by_metric.setdefault(sample.metric, []).append(sample)
        for metric in metrics():
            yield _family(metric, by_metric.get(metric.name, []), histogram, job)

    async def _read(self) -> tuple[list[Sample], Histogram, str]:
        stats = self._live.stats()
        return samples(self._live), waits(stats), stats.label.job


def _family(
    metric: Metric, values: list[Sample], histogram: Histogram, job: str
) -> Family:
    """Return one metric with its values, as prometheus-client renders it."""
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    name, text = f"{PREFIX}{metric.name}", f"{metric.text} ({metric.unit})"
    labels = [JOB_LABEL, *metric.labels]
    if metric.kind == "histogram":
        whole = HistogramMetricFamily(name, text, labels=labels)
        buckets = [
            ("+Inf" if end == float("inf") else repr(end), count)
            for end, count in histogram.buckets
        ]
        whole.add_metric([job], buckets, histogram.total)
        return whole
    kind: Any = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family: Family = kind(name, text, labels=labels)
    for sample in values:
        family.add_metric([job, *sample.labels], sample.value)  # type: ignore[attr-defined]
    return family


def _make_server(port: int, application: Any) -> WSGIServer:
    """Return a server on the loopback interface that answers one reader at a time."""
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

    class Server(WSGIServer):
        """Binds without resolving its own name."""

        def server_bind(self) -> None:
            socketserver.TCPServer.server_bind(self)
            self.server_name, self.server_port = HOST, self.server_address[1]
            self.setup_environ()

        def handle_error(self, *_: Any) -> None:
            log.info("metrics not sent error=%r", sys.exc_info()[1])

    class Request(WSGIRequestHandler):
        timeout = TIMEOUT_S

        def log_message(self, *_: Any) -> None:
            """Log nothing: readers send requests repeatedly."""

    server = Server((HOST, port), Request)
    server.set_app(application)
    return server


def _end(server: WSGIServer) -> None:
    server.shutdown()
    server.server_close()
