# Two stages: one with a C compiler, so that the hot packages are compiled, and a slim one that runs the result.
FROM python:3.13 AS build
COPY . /source
RUN pip install --no-cache-dir --prefix=/installed '/source[geo,javascript,snappy,text,tls,web,zstd]' \
    && (pip install --no-cache-dir --prefix=/installed icukit-pyicu || echo "no ICU: collations will be refused")

FROM python:3.13-slim
COPY --from=build /installed /usr/local
# What is run in containers of mongod: a shell, under its names, and folders where compose files mount data and scripts.
RUN for name in mongosh mongo; do printf '#!/bin/sh\nexec mongottl shell "$@"\n' >/usr/local/bin/$name && chmod 755 /usr/local/bin/$name; done
RUN useradd --create-home mongottl && mkdir /data && chown mongottl /data && chmod 700 /data
RUN mkdir -p /data/db /tmp/cosmos/appdata /docker-entrypoint-initdb.d && chown -R mongottl /data/db /tmp/cosmos && chmod 700 /data/db /tmp/cosmos/appdata
USER mongottl
# MongoDB; of the emulator MongoDB and the certificate.
EXPOSE 27017 10255 8081
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=5s CMD ["mongottl", "ping", "--container"]
ENTRYPOINT ["mongottl", "container"]
