"""A process that was taken over gains rights in its container, or changes it: none has any, and most cannot write."""

from __future__ import annotations

import re

import pytest
from demo.config import ROOT
from demo.production import env
from demo.production.compose import document

SERVICES = document(env.random_secrets())["services"]
#: Whose images write into themselves: see the comments of docker-compose.yaml.
WRITING = {"kafka", "rocketmq-names", "rocketmq-broker", "spark-master", "spark-worker", "spark-connect"}
#: A full version: at least major and minor number, and a patch where the project has one.
VERSION = re.compile(r"[\w./-]+:(\d+\.\d+(\.\d+)?)(-[\w.-]+)?(@sha256:[0-9a-f]{64})?")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_service_has_or_gains_a_right(name: str) -> None:
    """Every capability is dropped, none is added, and no program runs with its owner's rights."""
    fields = SERVICES[name]

    assert fields["cap_drop"] == ["ALL"]
    assert "cap_add" not in fields
    assert fields["security_opt"] == ["no-new-privileges:true"]
    assert not fields.get("privileged")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_the_root_of_a_container_is_read_only(name: str) -> None:
    """Where it is, /tmp is memory; the others are named with their reason."""
    fields = SERVICES[name]

    assert fields.get("read_only", False) is (name not in WRITING)
    assert ("/tmp" in fields.get("tmpfs", [])) is (name not in WRITING)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_an_image_is_named_by_its_full_version(name: str) -> None:
    """What an operator may pin by digest, through a variable, is no moving tag before."""
    image = SERVICES[name]["image"]

    assert VERSION.fullmatch(image), image


def test_base_images_are_named_by_their_full_version() -> None:
    """The Dockerfile takes both as arguments, so that they can be pinned by digest too."""
    text = (ROOT / "Dockerfile").read_text()
    defaults = dict(re.findall(r"(?m)^ARG (\w+_IMAGE)=(\S+)$", text))

    assert re.findall(r"(?m)^FROM (\S+)", text) == ["${MAVEN_IMAGE}", "${PYTHON_IMAGE}"]
    assert defaults == SERVICES["eventbridge-api"]["build"]["args"]
    assert all(VERSION.fullmatch(each) for each in defaults.values())


def test_a_digest_is_put_in_through_a_variable() -> None:
    """As `.env` has it."""
    pinned = f"postgres:18.1@sha256:{'a' * 64}"
    found = document(env.random_secrets() | {"POSTGRES_IMAGE": pinned})["services"]["postgresql"]["image"]

    assert found == pinned


def test_spark_ends_an_executor_whose_task_does_not_stop() -> None:
    """Java does not interrupt SQL in the middle of an event: without it the task slot is lost until the event ends."""
    command = SERVICES["spark-connect"]["command"]

    assert {"spark.task.reaper.enabled=true", "spark.task.reaper.killTimeout=120s"} <= set(command)
