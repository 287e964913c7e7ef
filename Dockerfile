# syntax=docker/dockerfile:1
# The image of both processes: no shell, no compiler, no package tools are needed at run time, and nothing is written
# outside of /tmp.  Its steps are those of tools/image.sh, which the tests run.
# Pin the base by digest for what you ship: --build-arg BASE=python:3.13-slim@sha256:...
# With traces: --build-arg EXTRAS="uvloop traces"
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /source
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY tools tools
COPY config config
COPY examples examples
COPY kqueue kqueue
COPY webhooks webhooks
ARG EXTRAS=uvloop
RUN EXTRAS="$EXTRAS" tools/image.sh build /opt/kqueue

FROM ${BASE}
ENV PATH=/opt/kqueue/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
COPY --from=build /opt/kqueue /opt/kqueue
USER 65532:65532
ENTRYPOINT ["kqueue"]
