# One Tidemark broker.
#
#   docker build -t tidemark .
#   docker run -p 9092:9092 -v tidemark:/var/lib/tidemark tidemark
#
# Clients connect to the address that the broker tells them. The default suits clients on the same machine; for others:
#   docker run … -e ADVERTISED_LISTENERS=PLAINTEXT://broker.example:9092 tidemark
# More settings follow the image's name: tidemark --set num.partitions=3
# HTTP (health, metrics, records as JSON) is for the container itself, and for its health check. To let others in:
#   docker run … -p 127.0.0.1:8082:8082 tidemark --set http.listeners=HTTP://0.0.0.0:8082

FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
# Wheels first, then an environment without pip made of nothing but them: only that goes into the image.
RUN pip wheel --no-cache-dir --quiet -c constraints.txt -w /wheels . \
    && python -m venv --without-pip /opt/tidemark \
    && pip --python /opt/tidemark/bin/python install --no-cache-dir --quiet --no-index --find-links /wheels tidemark

FROM python:3.11-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin tidemark \
    && install -d -o tidemark -g tidemark -m 750 /var/lib/tidemark
COPY --from=build /opt/tidemark /opt/tidemark
ENV PATH=/opt/tidemark/bin:$PATH \
    ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:9092
USER 10001
WORKDIR /var/lib/tidemark
VOLUME /var/lib/tidemark
EXPOSE 9092
# SIGTERM is the clean stop: what was accepted is finished, logs are synced and closed.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=10s --retries=3 \
    CMD ["tidemark", "health", "http://127.0.0.1:8082", "--timeout", "5"]
# sh only to fill in the address; exec leaves the broker as the container's first process, where signals reach it.
ENTRYPOINT ["sh", "-c", "exec tidemark start --set listeners=PLAINTEXT://0.0.0.0:9092 --set http.listeners=HTTP://127.0.0.1:8082 --set log.dirs=/var/lib/tidemark --set advertised.listeners=\"$ADVERTISED_LISTENERS\" \"$@\"", "tidemark"]
