# tidegate as an image: one program on a base without a shell, for a user without rights, on a root that is only read.
#
#   docker build --tag tidegate:0.1.0 \
#     --build-arg REVISION="$(git rev-parse HEAD)" --build-arg CREATED="$(date -u +%Y-%m-%dT%H:%M:%SZ)" .
#   docker run --read-only --cap-drop ALL --security-opt no-new-privileges \
#     --volume "$PWD/orders.toml:/etc/tidegate/tidegate.toml:ro" --publish 127.0.0.1:8080:8080 tidegate:0.1.0
#   docker build --target symbols --output type=local,dest=. .    # tidegate.debug: line numbers, for gdb and profilers
#
# To pin the bases by digest, give them with it: --build-arg BUILD_IMAGE=docker.io/library/rust@sha256:...
# The build image has to be of the runtime image's Debian, since its C library is the older limit, and has a C and C++
# compiler, make and perl; the runtime image needs the C library and libgcc alone.
ARG BUILD_IMAGE=docker.io/library/rust:1.95-bookworm
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:nonroot

# ---------------------------------------------------------------------------------------------------------------------
# hadolint ignore=DL3006
FROM ${BUILD_IMAGE} AS build
WORKDIR /build

# `cargo auditable` writes the list of dependencies and their versions into the program, where `cargo audit bin` and the
# scanners of images find it. An empty version leaves it out. For an SBOM beside the image: docker buildx build --sbom=true.
ARG CARGO_AUDITABLE_VERSION=0.7.7
RUN if [ -n "$CARGO_AUDITABLE_VERSION" ]; then \
      cargo install --locked cargo-auditable --version "$CARGO_AUDITABLE_VERSION"; \
    fi

# The dependencies, librdkafka and OpenSSL among them, are most of the time: a layer of their own, which stays until the
# manifest changes. What the manifest says of tests and benches names files that are not here.
COPY Cargo.toml Cargo.lock ./
RUN sed -i '/^\[\[/,$d' Cargo.toml \
 && mkdir src \
 && echo 'fn main() {}' > src/main.rs \
 && touch src/lib.rs \
 && cargo build --release --locked

# The sources may be older than what was built a moment ago, and cargo goes by the time.
COPY config/default.toml config/
COPY web/ web/
COPY src/ src/
ARG REVISION=unknown
RUN touch src/main.rs src/lib.rs \
 && TIDEGATE_REVISION="$REVISION" cargo ${CARGO_AUDITABLE_VERSION:+auditable} build --release --locked

# Function names stay in the program, so that a backtrace says where it was; line numbers, most of the size, go apart.
RUN objcopy --only-keep-debug target/release/tidegate tidegate.debug \
 && objcopy --strip-debug --add-gnu-debuglink=tidegate.debug target/release/tidegate tidegate

# ---------------------------------------------------------------------------------------------------------------------
FROM scratch AS symbols
COPY --from=build /build/tidegate.debug /

# ---------------------------------------------------------------------------------------------------------------------
# hadolint ignore=DL3006
FROM ${RUNTIME_IMAGE}
ARG REVISION=unknown
ARG CREATED=
ARG SOURCE=
LABEL org.opencontainers.image.title="tidegate" \
      org.opencontainers.image.description="Turns Kafka topics into per-window results by event time, exactly once" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY LICENSE /usr/share/doc/tidegate/LICENSE
COPY --from=build /build/tidegate /tidegate

# By number, so that Kubernetes can see that it is not root.
USER 65532:65532
# In a container nobody reaches the loopback address from outside. What is published is the platform's choice.
ENV TIDEGATE__HTTP__LISTEN=0.0.0.0:8080 \
    RUST_BACKTRACE=1
EXPOSE 8080
# The program handles SIGTERM itself, also as process 1, and starts no other: no init is needed. Give it longer than
# `service.shutdown_timeout` (25 s) before it is killed.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 CMD ["/tidegate", "healthcheck"]
ENTRYPOINT ["/tidegate"]
CMD ["run", "--config", "/etc/tidegate/tidegate.toml"]
