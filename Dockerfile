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
WORKDIR /opt/eventbridge
# Spark's processes and all others belong to one user without rights. What volumes are mounted on is that user's.
RUN uv pip install --system --no-cache --no-deps . \
  && eventbridge compile \
  && useradd --uid 50000 --create-home eventbridge \
  && install -d -o eventbridge /opt/airflow/state /opt/airflow/logs /var/lib/eventbridge /var/lib/spark /var/lib/s3 \
  && chown eventbridge /opt/airflow
COPY --from=s3proxy /build/s3proxy.jar /opt/s3proxy/s3proxy.jar

ENV AIRFLOW_HOME=/opt/airflow PYTHONUNBUFFERED=1
USER eventbridge
