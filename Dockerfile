# Two stages: one with a C compiler, so that the hot packages are compiled, and a slim one that runs the result. Nothing
# names an architecture: what has no wheel for this one is compiled.
FROM python:3.13 AS build
# --build-arg MONGOTTL_PURE=1 compiles nothing: a build in one minute of a server that is ten times slower.
ARG MONGOTTL_PURE=
COPY . /source
# Collations need ICU. Its wheel brings ICU a second time, for programs in C, which nothing here is. Where there is no
# wheel, PyICU is compiled, and the libraries of Debian's ICU come along.
RUN pip install --no-cache-dir --root-user-action=ignore --prefix=/installed '/source[geo,javascript,postgresql,snappy,text,tls,web,zstd]' \
    && (pip install --no-cache-dir --root-user-action=ignore --prefix=/installed --only-binary :all: icukit-pyicu \
        || (apt-get update && apt-get install --yes --no-install-recommends g++ libicu-dev pkg-config \
            && pip install --no-cache-dir --root-user-action=ignore --prefix=/installed PyICU)) \
    && rm -rf /installed/lib/python*/site-packages/icukit_pyicu /installed/bin/pcre2* \
    && for library in $(ldd /installed/lib/python*/site-packages/icu/_icu*.so | sed -n 's:.* => \(/\(usr/\)\?lib/.*libicu[^ ]*\) .*:\1:p'); \
        do cp "$library" /installed/lib/; done \
    && find /installed \( -name '*__mypyc.*.so' -o -path '*/zstandard/*.so' \) -exec strip --strip-unneeded {} +
# What is run in containers of mongod, under its names.
RUN cd /installed/bin \
    && for name in mongosh mongo; do printf '#!/bin/sh\nexec mongottl shell "$@"\n' >$name; done \
    && for name in mongod mongos docker-entrypoint.sh; do printf '#!/bin/sh\nexec mongottl container "$@"\n' >$name; done \
    && chmod 755 mongosh mongo mongod mongos docker-entrypoint.sh

FROM python:3.13-slim
# Health checks of compose files for the emulator fetch its certificate by curl.
RUN apt-get update && apt-get install --yes --no-install-recommends curl && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY --from=build /installed /usr/local
# Folders where compose files mount data and scripts. The group of root may write what the user may, since a user id that
# is chosen when a container starts (--user 12345, OpenShift) has that group.
# An extra that is missing, or that misses a library, fails here and not when it is used.
RUN ldconfig && python -c "import Stemmer, h11, icu, prometheus_client, psycopg, quickjs, s2rst, snappy, trustme, zstandard" \
    && useradd --create-home mongottl \
    && mkdir -p /data/db /tmp/cosmos/appdata /docker-entrypoint-initdb.d \
    && chown -R mongottl:root /data /tmp/cosmos \
    && chmod -R 770 /data /tmp/cosmos
USER mongottl
# MongoDB; of the emulator MongoDB and the certificate.
EXPOSE 27017 10255 8081
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=5s CMD ["mongottl", "ping", "--container"]
ENTRYPOINT ["mongottl", "container"]
