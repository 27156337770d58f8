# One image for workers, jobs and the CLI. Temporal's server, its Web UI and PostgreSQL have their own images.
FROM python:3.11.14-slim-bookworm AS build
ENV UV_PROJECT_ENVIRONMENT=/app/.venv UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
COPY deploy/uv.txt .
RUN pip install --no-cache-dir --require-hashes --only-binary :all: --requirement uv.txt
WORKDIR /app
COPY pyproject.toml uv.lock README.md LICENSE ./
RUN uv sync --frozen --no-dev --no-install-project --extra postgres --extra encryption --extra tracing --extra clouds --extra gateway
COPY domain domain
COPY store store
COPY providers providers
COPY activities activities
COPY workflows workflows
COPY client client
COPY workers workers
COPY gateway gateway
COPY starter starter
COPY examples examples
RUN uv sync --frozen --no-dev --extra postgres --extra encryption --extra tracing --extra clouds --extra gateway

FROM python:3.11.14-slim-bookworm
RUN useradd --system --create-home --uid 10001 ratchet
COPY --from=build --chown=root:root /app /app
WORKDIR /app
USER ratchet
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 RATCHET_HOME=/home/ratchet/.ratchet
STOPSIGNAL SIGTERM
ENTRYPOINT ["starter"]
CMD ["worker"]
