# syntax=docker/dockerfile:1
# Toolyard in a container: `docker build -t toolyard .`, then see compose.yaml.

FROM python:3.13-slim-trixie AS build
WORKDIR /build
COPY requirements/run.txt requirements/run.txt
RUN python -m venv /opt/toolyard \
    && /opt/toolyard/bin/pip install --no-cache-dir --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/toolyard/bin/pip install --no-cache-dir --no-deps .

FROM python:3.13-slim-trixie
# tini takes in the orphans of children; node brings npx, which many stdio servers are started with.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini nodejs npm \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 toolyard \
    && useradd --create-home --uid 10001 --gid 10001 toolyard \
    && install -d -o toolyard -g toolyard -m 700 /data
COPY --from=build /opt/toolyard /opt/toolyard
# What comes to a published port does not arrive over loopback, whatever the browser calls it.
ENV PATH=/opt/toolyard/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    TOOLYARD_DATA_DIR=/data \
    TOOLYARD_HOST=0.0.0.0 \
    TOOLYARD_ALLOWED_HOSTS=localhost,127.0.0.1,[::1] \
    TOOLYARD_PORT=8420 \
    TOOLYARD_PEOPLE_MODE=password
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8420
HEALTHCHECK --interval=15s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8420/healthz', timeout=2)"]
ENTRYPOINT ["tini", "--", "toolyard"]
CMD ["serve"]
