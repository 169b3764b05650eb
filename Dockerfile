# EventBridge with Airflow, Spark, their Java, and s3proxy: one image for every service of ours in docker-compose.yaml.
#   docker build -t eventbridge:0.3.0 .

# The base images by their full versions; docs/howto/deploy.md says how to pin them by digest.
ARG MAVEN_IMAGE=maven:3.9.11-eclipse-temurin-17
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm

FROM ${MAVEN_IMAGE} AS s3proxy
COPY tests/s3proxy/pom.xml /build/pom.xml
RUN mvn -q -B -f /build/pom.xml dependency:copy-dependencies -DoutputDirectory=/build/jars \
  && mv /build/jars/s3proxy-4.1.0-jar-with-dependencies.jar /build/s3proxy.jar \
  && echo "a4d025969aaf796616ed4b1e2491d87d455ce84bb28cb9db086b2e6aaa68b48d  /build/s3proxy.jar" | sha256sum -c

FROM ${PYTHON_IMAGE}
RUN apt-get update \
  && apt-get install -y --no-install-recommends gcc libc6-dev openjdk-17-jre-headless procps \
  && rm -rf /var/lib/apt/lists/* \
  && pip install --no-cache-dir uv

# What is pinned comes first: a change of our own code leaves this layer as it is.
COPY requirements.txt /opt/eventbridge/requirements.txt
RUN uv pip install --system --no-cache --require-hashes -r /opt/eventbridge/requirements.txt

COPY . /opt/eventbridge
COPY --from=s3proxy /build/s3proxy.jar /opt/s3proxy/s3proxy.jar
WORKDIR /opt/eventbridge
# All processes belong to one user without rights, and so do the folders that volumes are mounted on.
# Compiled beside the sources, where that user may read: forty seconds once, that no first event waits for.
RUN uv pip install --system --no-cache --no-deps . \
  && eventbridge compile \
  && useradd --uid 50000 --no-create-home --home-dir /tmp eventbridge \
  && install -d -m 0700 -o eventbridge /opt/airflow /opt/airflow/state /opt/airflow/logs \
    /var/lib/eventbridge /var/lib/spark /var/lib/spark-master /var/lib/s3

# What is compiled for another processor than the image was built on is kept as long as its container.
ENV AIRFLOW_HOME=/opt/airflow NUMBA_CACHE_DIR=/tmp/numba PYTHONUNBUFFERED=1
USER eventbridge
