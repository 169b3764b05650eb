# EventBridge with Airflow, Spark, their Java, and s3proxy: one image for every service of ours in docker-compose.yaml.
#   docker build -t eventbridge:0.2.0 .

FROM maven:3-eclipse-temurin-17 AS s3proxy
COPY tests/s3proxy/pom.xml /build/pom.xml
RUN mvn -q -B -f /build/pom.xml dependency:copy-dependencies -DoutputDirectory=/build/jars \
  && mv /build/jars/s3proxy-4.1.0-jar-with-dependencies.jar /build/s3proxy.jar \
  && echo "a4d025969aaf796616ed4b1e2491d87d455ce84bb28cb9db086b2e6aaa68b48d  /build/s3proxy.jar" | sha256sum -c

FROM python:3.11-slim-bookworm
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
ENV AIRFLOW_HOME=/opt/airflow NUMBA_CACHE_DIR=/var/cache/eventbridge PYTHONUNBUFFERED=1
RUN uv pip install --system --no-cache --no-deps . \
  && useradd --uid 50000 --create-home eventbridge \
  && install -d -o eventbridge /opt/airflow /opt/airflow/state /opt/airflow/logs "$NUMBA_CACHE_DIR" \
    /var/lib/eventbridge /var/lib/spark /var/lib/spark-master /var/lib/s3

USER eventbridge
# By the user who needs it: forty seconds once, that no first event waits for.
RUN eventbridge compile
