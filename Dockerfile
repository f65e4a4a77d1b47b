# Toolyard in a container: `docker build -t toolyard .`, then see compose.yaml.

# For a reproducible build, pin the base image by digest: --build-arg PYTHON_IMAGE=python@sha256:…
ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
COPY requirements/run.txt requirements/build.txt requirements/uv.txt requirements/
RUN python -m venv /opt/toolyard \
    && /opt/toolyard/bin/pip install --no-cache-dir --require-hashes -r requirements/run.txt \
    && python -m venv /opt/uv \
    && /opt/uv/bin/pip install --no-cache-dir --require-hashes -r requirements/uv.txt \
    && python -m venv /build/backend \
    && /build/backend/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY docs docs
RUN /build/backend/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /build/wheel . \
    && /opt/toolyard/bin/pip install --no-cache-dir --no-deps /build/wheel/*.whl

FROM ${PYTHON_IMAGE}
# Many stdio servers are started by npx, which Node provides, or by uvx.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends nodejs npm \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 toolyard \
    && useradd --no-create-home --home-dir /data/home --uid 10001 --gid 10001 toolyard \
    && install -d -o toolyard -g toolyard -m 700 /data /data/home
COPY --from=build /opt/toolyard /opt/toolyard
COPY --from=build /opt/uv/bin/uv /opt/uv/bin/uvx /usr/local/bin/
# npx and uvx store packages in the home directory, which is on the volume: the rest may be read-only.
# Connections to a published port do not arrive over loopback, even if the browser uses the name localhost.
ENV PATH=/opt/toolyard/bin:$PATH \
    HOME=/data/home \
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
# Do not put another init program in front of it: its environment, with our secrets, would be readable for servers.
ENTRYPOINT ["toolyard"]
CMD ["serve"]
