# Tidegate's image for people with Docker or Podman, from the repository's root:
#   docker build -t registry.example/tidegate:0.1.0 --build-arg REVISION="$(git rev-parse HEAD)" .
#   docker build -t registry.example/tidegate-console:0.1.0 --build-arg EXTRA=console .
#   docker build -t registry.example/tidegate-forwarder:0.1.0 --build-arg EXTRA=forwarder .
# It runs what the image of `make image` runs: Python 3.11, the packages of uv.lock by their hashes, and the same wheel,
# as the same user with the same command. What differs: below it is the Python image of Docker Hub, with a shell, pip
# and all of Python's library, so it is several times as large; and two builds differ, as the base has no digest here
# (--build-arg BASE=python@sha256:... gives it one). Releases have the image of `make image`, which image/Dockerfile
# builds as well, with that of rollup Jobs.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ENV UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy
WORKDIR /src
COPY tools/uv.txt tools/
RUN python3 -m pip install --no-cache-dir --no-deps --only-binary :all: --require-hashes -r tools/uv.txt
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY image/build-requirements.txt image/
ARG EXTRA=""
RUN uv export --quiet --frozen --no-default-groups --no-emit-project ${EXTRA:+--extra "$EXTRA"} --output-file locked.txt
RUN uv venv --quiet /opt/tidegate
RUN uv pip install --quiet --python /opt/tidegate --no-deps --compile-bytecode \
      --require-hashes --require-build-hashes --build-constraints image/build-requirements.txt -r locked.txt
COPY controller_logic controller_logic
COPY operator operator
RUN uv build --quiet --wheel --out-dir dist --require-hashes --build-constraints image/build-requirements.txt
RUN uv pip install --quiet --python /opt/tidegate --no-deps --no-index --compile-bytecode dist/*.whl

FROM ${BASE}
COPY --from=build /opt/tidegate /opt/tidegate
RUN ln -s /opt/tidegate/bin/tidegate /opt/tidegate/bin/kubectl-tidegate /usr/bin/
# What `tidegate version` says this was built from.
ARG REVISION=""
ENV TIDEGATE_REVISION=${REVISION}
LABEL org.opencontainers.image.title="Tidegate" \
      org.opencontainers.image.description="Keeps Kafka brokers under their network limits with native quotas only." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision=${REVISION}
USER 65532:65532
ENTRYPOINT ["/usr/bin/tidegate"]
