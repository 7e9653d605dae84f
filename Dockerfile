# An image with the daemon, from the Debian package that the first stage makes:
#
#   docker build -t specd .
#   mkdir -p sockets
#   docker run --rm --user=$(id -u):$(id -g) --volume=$PWD/sockets:/run/specd specd --detokenizer=off
#
# Engines of the same user then attach to the socket sockets/specd.sock. Without --user the daemon is the
# user 900. If BUILD_IMAGE names an image of Debian 12 that has nvcc, the daemon also has CUDA.
ARG BUILD_IMAGE=debian:12
FROM ${BUILD_IMAGE} AS build
COPY tools/setup tools/lib.sh /specd/tools/
RUN /specd/tools/setup --quiet build package
COPY . /specd
WORKDIR /specd
RUN cmake --workflow --preset package

FROM debian:12-slim
RUN useradd --system --uid 900 --home-dir /var/lib/specd --create-home specd \
 && install -d -o specd -g specd /run/specd
COPY --from=build /specd/build/package/specd_*.deb /srv/
RUN apt-get update \
 && apt-get install -y --no-install-recommends /srv/specd_*.deb \
 && rm -rf /var/lib/apt/lists/* /srv/specd_*.deb
USER specd
WORKDIR /var/lib/specd
VOLUME /run/specd
ENTRYPOINT ["specd"]
CMD ["--flagfile=/etc/specd/specd.flags"]
