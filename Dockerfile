# rofl for machines with CPUs: docker build -t fed-noisy-labels .
# docs/deploy.md says how to run a federation with it. tests/deploy executes these steps without an engine for containers.
FROM python:3.11-slim AS build
# Where pip finds a torch for CPUs, if the one that it finds by itself is for GPUs; empty: pip's own index.
ARG TORCH_INDEX=""
ARG EXTRAS="flower,dicom"
WORKDIR /build
RUN python -m venv /opt/rofl
COPY constraints.txt ./
RUN /opt/rofl/bin/pip install --no-cache-dir --no-compile --constraint constraints.txt \
      ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/rofl/bin/pip install --no-cache-dir --no-compile --constraint constraints.txt ".[$EXTRAS]"
# headers, tests of other packages, and what installs: nobody runs them
WORKDIR /opt/rofl/lib/python3.11/site-packages
RUN rm -rf pip pip-* setuptools setuptools-* torch/include torch/test pyarrow/include \
 && find . -depth -type d -name tests -exec rm -rf {} +

FROM python:3.11-slim
RUN groupadd --gid 10001 rofl \
 && useradd --uid 10001 --gid rofl --no-create-home --home-dir /data --shell /usr/sbin/nologin rofl
RUN install --directory --owner 10001 --group 10001 --mode 700 /data /keys
COPY --from=build /opt/rofl /opt/rofl
ENV PATH=/opt/rofl/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ROFL_CACHE=/data/cache
USER 10001:10001
WORKDIR /data
# of a coordinator; a site opens no port
EXPOSE 9443
# rofl ends in order on Ctrl-C, and goes on later from the last round
STOPSIGNAL SIGINT
# of a coordinator or a site whose run folder is /data/run
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
  CMD ["rofl", "federation", "check", "/data/run"]
ENTRYPOINT ["rofl"]
CMD ["--help"]
