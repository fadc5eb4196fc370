# Two stages: one with a C compiler, so that the hot packages are compiled, and a slim one that runs the result.
FROM python:3.13 AS build
COPY . /source
RUN pip install --no-cache-dir --prefix=/installed '/source[geo,javascript,tls,web,snappy,text,zstd]' \
    && (pip install --no-cache-dir --prefix=/installed icukit-pyicu || echo "no ICU: collations will be refused")

FROM python:3.13-slim
COPY --from=build /installed /usr/local
RUN useradd --create-home mongottl && mkdir /data && chown mongottl /data && chmod 700 /data
USER mongottl
EXPOSE 27017
STOPSIGNAL SIGTERM
# With other options than these (TLS, another port), give the check its URI: docker run --health-cmd "mongottl ping URI".
HEALTHCHECK --interval=10s --timeout=6s --start-period=5s CMD ["mongottl", "ping"]
ENTRYPOINT ["mongottl", "serve"]
CMD ["--host", "0.0.0.0"]
